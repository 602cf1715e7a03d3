//! Set-up, build, test, guests, demo and benchmarks of OpenSafe.
fn main() {}
