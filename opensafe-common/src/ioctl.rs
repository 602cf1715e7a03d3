//! Commands to terminals that are decided or that a console's own are told from, and their names (include/uapi/asm-generic/ioctls.h; those of consoles:
//! include/uapi/linux/kd.h and vt.h).

/// Declares each command and, from the same lines, the table of their names.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        $(#[allow(missing_docs)] $(#[$doc])* pub const $name: u32 = $number;)*

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
    /// How large it is. Of a console, what is shown of it.
    TIOCSWINSZ = 0x5414,
    /// A console's bell, and what it sounds like.
    KIOCSOUND = 0x4b2f,
    KDMKTONE = 0x4b30,
    /// What its keyboard's lights show.
    KDGETLED = 0x4b31,
    KDSETLED = 0x4b32,
    KDGKBTYPE = 0x4b33,
    /// The ports and memory of what it is shown on.
    KDADDIO = 0x4b34,
    KDDELIO = 0x4b35,
    KDENABIO = 0x4b36,
    KDDISABIO = 0x4b37,
    KDMAPDISP = 0x4b3c,
    KDUNMAPDISP = 0x4b3d,
    /// Whether it shows anything.
    KDSETMODE = 0x4b3a,
    KDGETMODE = 0x4b3b,
    /// Which sign is which, and what it looks like; the colours of all consoles.
    GIO_SCRNMAP = 0x4b40,
    PIO_SCRNMAP = 0x4b41,
    GIO_FONT = 0x4b60,
    PIO_FONT = 0x4b61,
    GIO_UNIMAP = 0x4b66,
    PIO_UNIMAP = 0x4b67,
    PIO_UNIMAPCLR = 0x4b68,
    GIO_UNISCRNMAP = 0x4b69,
    PIO_UNISCRNMAP = 0x4b6a,
    GIO_FONTX = 0x4b6b,
    PIO_FONTX = 0x4b6c,
    PIO_FONTRESET = 0x4b6d,
    GIO_CMAP = 0x4b70,
    PIO_CMAP = 0x4b71,
    KDFONTOP = 0x4b72,
    /// What its keys do, and whether they do anything.
    KDGKBMODE = 0x4b44,
    KDSKBMODE = 0x4b45,
    KDGKBENT = 0x4b46,
    KDSKBENT = 0x4b47,
    KDGKBSENT = 0x4b48,
    KDSKBSENT = 0x4b49,
    KDGKBDIACR = 0x4b4a,
    KDSKBDIACR = 0x4b4b,
    KDGETKEYCODE = 0x4b4c,
    KDSETKEYCODE = 0x4b4d,
    KDSIGACCEPT = 0x4b4e,
    KDSKBMUTE = 0x4b51,
    KDKBDREP = 0x4b52,
    KDGKBMETA = 0x4b62,
    KDSKBMETA = 0x4b63,
    KDGKBLED = 0x4b64,
    KDSKBLED = 0x4b65,
    KDGKBDIACRUC = 0x4bfa,
    KDSKBDIACRUC = 0x4bfb,
    /// Which console is shown, how large it is, and who may change that.
    VT_OPENQRY = 0x5600,
    VT_GETMODE = 0x5601,
    VT_SETMODE = 0x5602,
    VT_GETSTATE = 0x5603,
    VT_SENDSIG = 0x5604,
    VT_RELDISP = 0x5605,
    VT_ACTIVATE = 0x5606,
    VT_WAITACTIVE = 0x5607,
    VT_DISALLOCATE = 0x5608,
    VT_RESIZE = 0x5609,
    VT_RESIZEX = 0x560a,
    VT_LOCKSWITCH = 0x560b,
    VT_UNLOCKSWITCH = 0x560c,
    VT_GETHIFONTMASK = 0x560d,
    VT_WAITEVENT = 0x560e,
    VT_SETACTIVATE = 0x560f,
    /// The same, of Linux 6.17.
    VT_GETCONSIZECSRPOS = 0x8008_5610,
}

/// Unlocks a pseudoterminal's other end, which nobody can open before. Not decided: it tells who has made one.
pub const TIOCSPTLCK: u32 = 0x4004_5431;

/// Whether a command to a virtual console leaves it otherwise than it was: all of the keyboard's and the console's own (kd.h,
/// vt.h) but those that only ask or wait, also those that no kernel has yet.
#[inline(always)]
#[must_use]
pub const fn changes_console(command: u32) -> bool {
    // The letters that say whose a command is, K and V (`_IOC_TYPE` of include/uapi/asm-generic/ioctl.h).
    let of_consoles = matches!(command >> 8 & 0xff, 0x4b | 0x56) || command == TIOCSWINSZ;
    of_consoles
        && !matches!(
            command,
            KDGETLED
                | KDGKBTYPE
                | KDGETMODE
                | GIO_SCRNMAP
                | GIO_FONT
                | GIO_UNIMAP
                | GIO_UNISCRNMAP
                | GIO_FONTX
                | GIO_CMAP
                | KDGKBMODE
                | KDGKBENT
                | KDGKBSENT
                | KDGKBDIACR
                | KDGETKEYCODE
                | KDGKBMETA
                | KDGKBLED
                | KDGKBDIACRUC
                | VT_OPENQRY
                | VT_GETMODE
                | VT_GETSTATE
                | VT_WAITACTIVE
                | VT_GETHIFONTMASK
                | VT_WAITEVENT
                | VT_GETCONSIZECSRPOS
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_are_the_same() {
        for (at, (number, name)) in NAMES.iter().enumerate() {
            let same = NAMES.iter().skip(at + 1).find(|(other, _)| other == number);
            assert_eq!(same, None, "{name}");
        }
    }

    #[test]
    fn of_what_a_console_is_told_only_questions_leave_it_as_it_was() {
        for (number, name) in NAMES {
            let asks = ["GIO_", "KDG", "VT_GET", "VT_WAIT", "VT_OPENQRY"];
            let asks = asks.iter().any(|begin| name.starts_with(begin));
            let of_consoles = !name.starts_with("TIO") || *name == "TIOCSWINSZ";
            assert_eq!(changes_console(*number), of_consoles && !asks, "{name}");
        }
        // Nobody's yet; and what other terminals are told.
        assert!(changes_console(0x4bff) && changes_console(0x5611));
        assert!(!changes_console(0x5401) && !changes_console(TIOCSTI));
    }
}
