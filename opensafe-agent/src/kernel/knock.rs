//! What a process does that wants into BPF from a sandbox: makes a map, opens what others have loaded.
//! For `opensafe boundary`.

use std::io;

use aya::{
    maps::{MapError, MapType, loaded_maps},
    programs::{ProgramError, loaded_programs},
    sys::{SyscallError, is_map_supported},
};

/// Makes a map, of one entry, and lets it go.
///
/// # Errors
/// If the kernel refuses.
pub fn make_a_map() -> io::Result<()> {
    match is_map_supported(MapType::Array) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::ErrorKind::Unsupported.into()),
        Err(SyscallError { io_error, .. }) => Err(io_error),
    }
}

/// Opens the first map that anyone has loaded.
///
/// # Errors
/// If the kernel refuses, or there is none.
pub fn open_a_map() -> io::Result<()> {
    let words = |error| match error {
        MapError::SyscallError(SyscallError { io_error, .. }) => io_error,
        other => io::Error::other(other),
    };
    let map = loaded_maps().next().ok_or(io::ErrorKind::NotFound)?;
    map.and_then(|map| map.fd()).map(drop).map_err(words)
}

/// Opens the first program that anyone has loaded.
///
/// # Errors
/// If the kernel refuses, or there is none.
pub fn open_a_program() -> io::Result<()> {
    let words = |error| match error {
        ProgramError::SyscallError(SyscallError { io_error, .. }) => io_error,
        other => io::Error::other(other),
    };
    let program = loaded_programs().next().ok_or(io::ErrorKind::NotFound)?;
    program
        .and_then(|program| program.fd())
        .map(drop)
        .map_err(words)
}
