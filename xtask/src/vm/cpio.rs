//! Writes an initramfs: the `newc` form of cpio, as the kernel's `Documentation/driver-api/early-userspace/
//! buffer-format.rst` describes it.

/// An archive being written, in memory.
pub(super) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    pub(super) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            inode: 0,
        }
    }

    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, (0, 0), &[]);
    }

    /// A file that may be executed.
    pub(super) fn program(&mut self, name: &str, bytes: &[u8]) {
        self.entry(name, PROGRAM, (0, 0), bytes);
    }

    pub(super) fn character_device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE, (major, minor), &[]);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) {
        self.inode += 1;
        let size = bytes.len();
        let name_size = name.len() + 1;
        // inode, mode, uid, gid, links, mtime, size, device of the file, device it is, name's size, checksum
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name_size:08x}{:08x}",
            self.inode, 0, 0, 1, 0, 0, 0, device.0, device.1, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    /// Names and contents end on a multiple of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_aligned_and_the_trailer_ends_them() {
        let mut archive = Archive::new();
        archive.directory("bin");
        archive.program("init", b"#!/bin/sh");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..114], b"bin\0");
        assert_eq!(&bytes[116..122], b"070701");
        assert!(bytes.windows(10).any(|name| name == b"TRAILER!!!"));
    }
}
