//! Commands to terminals that are decided, and their names (include/uapi/asm-generic/ioctls.h; those of consoles:
//! include/uapi/linux/kd.h and vt.h).

/// Declares each command and, from the same lines, the table of their names.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        $($(#[$doc])* pub const $name: u32 = $number;)*

        /// Every command with its name.
        pub const NAMES: &[(u32, &str)] = &[$(($name, stringify!($name)),)*];
    };
}

commands! {
    /// Input that nobody typed.
    TIOCSTI = 0x5412,
    /// Pastes the console's selection, among others.
    TIOCLINUX = 0x541c,
    /// Has what the console shows.
    TIOCCONS = 0x541d,
    /// Becomes one's controlling terminal; with 1, also one that is another session's (ioctl_tty(2)).
    TIOCSCTTY = 0x540e,
    /// Nobody else may open it.
    TIOCEXCL = 0x540c,
    /// A serial line's port and interrupt.
    TIOCSSERIAL = 0x541f,
    /// Another line discipline, by which nothing typed arrives.
    TIOCSETD = 0x5423,
    /// How a serial line is driven.
    TIOCSRS485 = 0x542f,
    /// The same for chip cards.
    TIOCSISO7816 = 0xc028_5443,
    /// Hangs it up: the session ends.
    TIOCVHANGUP = 0x5437,
    /// Settings that cannot be changed any more, such as that passwords are not shown.
    TIOCSLCKTRMIOS = 0x5457,
    /// A console that shows nothing.
    KDSETMODE = 0x4b3a,
    /// A console whose keys do nothing.
    KDSKBMODE = 0x4b45,
    /// The same.
    KDSKBMUTE = 0x4b51,
    /// A console that is not left.
    VT_SETMODE = 0x5602,
}

/// Unlocks a pseudoterminal's other end, which nobody can open before. Not decided: it tells who has made one.
pub const TIOCSPTLCK: u32 = 0x4004_5431;
