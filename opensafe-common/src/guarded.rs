//! What both sides tell apart by itself: terminals, and what /proc tells of a process only to who could trace it.

/// Every pseudoterminal's master: major and minor number (Documentation/admin-guide/devices.txt).
pub const MASTER: (u32, u32) = (5, 2);

/// Whether a character device is a terminal at which somebody may sit: a console, a serial line, the slave of a
/// pseudoterminal. `/dev/tty` (5:0) is whoever's asks.
#[inline(always)]
#[must_use]
pub const fn is_somebodys_terminal(major: u32, minor: u32) -> bool {
    // TTY_MAJOR, UNIX98_PTY_SLAVE_MAJOR and what follows (include/uapi/linux/major.h), HVC_MAJOR (drivers/tty/hvc);
    // TTYAUX_MAJOR with the console's minor number.
    matches!((major, minor), (4 | 136..=143 | 229, _) | (5, 1))
}

/// Whether that is a virtual console: the keyboard and screen of the host. Of a driver, by the first of its minor numbers
/// (`vty_init` in `drivers/tty/vt/vt.c`; serial lines begin at 64, Documentation/admin-guide/devices.txt).
#[inline(always)]
#[must_use]
pub const fn is_virtual_console(major: u32, minor: u32) -> bool {
    matches!((major, minor), (4, 0..64))
}

/// Whether a character device may lead to a virtual console: one itself, or `/dev/tty` and `/dev/console`, which are whatever
/// terminal is one's own, or the system's.
#[inline(always)]
#[must_use]
pub const fn may_be_console(major: u32, minor: u32) -> bool {
    is_virtual_console(major, minor) || matches!((major, minor), (5, 0 | 1))
}

/// How the files of /proc/PID begin that tell what is mapped where: maps, smaps and `smaps_rollup`, `numa_maps`, `map_files`.
pub const MAPPINGS: [[u8; 4]; 4] = [*b"maps", *b"smap", *b"numa", *b"map_"];

/// A pseudoterminal's number in its devpts, and the sandbox whose own it is, in one word.
#[inline(always)]
#[must_use]
pub const fn terminal_note(number: u64, sandbox: u32) -> u64 {
    number << 32 | sandbox as u64
}

/// The sandbox in a [`terminal_note`].
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is the sandbox"
)]
#[must_use]
pub const fn sandbox_of_note(note: u64) -> u32 {
    note as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_and_whoevers_terminal_are_nobodys() {
        assert!(!is_somebodys_terminal(MASTER.0, MASTER.1));
        assert!(!is_somebodys_terminal(5, 0));
        for (major, minor) in [(4, 64), (5, 1), (136, 0), (143, 255), (229, 0)] {
            assert!(is_somebodys_terminal(major, minor), "{major}:{minor}");
        }
    }

    #[test]
    fn a_serial_line_is_no_console_and_what_leads_to_one_may_be() {
        for (minor, is_console) in [(0, true), (1, true), (63, true), (64, false)] {
            assert_eq!(is_virtual_console(4, minor), is_console, "4:{minor}");
            assert_eq!(may_be_console(4, minor), is_console, "4:{minor}");
        }
        for minor in [0, 1] {
            assert!(may_be_console(5, minor) && !is_virtual_console(5, minor));
        }
        assert!(!may_be_console(MASTER.0, MASTER.1) && !may_be_console(136, 1));
    }

    #[test]
    fn a_note_tells_its_sandbox() {
        assert_eq!(sandbox_of_note(terminal_note(7, 1023)), 1023);
        assert_ne!(terminal_note(7, 1), terminal_note(8, 1));
    }
}
