//! Drives the built `opensafe` from outside: scenarios in a guest kernel.
