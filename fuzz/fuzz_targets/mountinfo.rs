#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opensafe_agent::untrusted::check("mountinfo", bytes));
