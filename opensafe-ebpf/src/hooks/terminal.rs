//! Terminals: typing into them, taking them, and opening those of others.

use opensafe_common::{
    counter::Counter,
    guarded::{self, is_somebodys_terminal, is_virtual_console, may_be_console, terminal_note},
    ioctl::{
        TIOCCONS, TIOCEXCL, TIOCLINUX, TIOCSCTTY, TIOCSETD, TIOCSISO7816, TIOCSLCKTRMIOS,
        TIOCSPTLCK, TIOCSRS485, TIOCSSERIAL, TIOCSTI, TIOCVHANGUP, changes_console,
    },
    operation::{How, Operation},
    room::Room,
};

use crate::{
    actor::Actor,
    gate::{operation, plain_operation},
    kernel::{DEVPTS, Dentry, File, Inode, Superblock, Terminal},
    maps::{BPF_NOEXIST, EEXIST, OWN_TERMINALS, SANDBOXES, count},
    room,
};

/// An ioctl on a character device: those that make a terminal take input which nobody typed, take it from the session that
/// has it, or leave it unfit for whoever uses it after the sandbox.
#[inline(always)]
pub fn ioctl(actor: &Actor, file: File, command: u32, argument: u64) -> i32 {
    match command {
        // ioctl_tty(2): with 1, also one that is another session's.
        TIOCSCTTY
            if argument as u32 != 1 || file.terminal().and_then(Terminal::session) == Some(0) =>
        {
            0
        }
        TIOCSPTLCK => {
            note_own_terminal(actor, file);
            0
        }
        TIOCSCTTY => plain_operation(actor, Operation::Terminal, How::TerminalIoctl, command),
        TIOCSTI | TIOCLINUX | TIOCCONS => {
            plain_operation(actor, Operation::Terminal, How::TerminalIoctl, command)
        }
        TIOCVHANGUP | TIOCSETD | TIOCSLCKTRMIOS | TIOCEXCL | TIOCSSERIAL | TIOCSRS485
        | TIOCSISO7816
            if !is_own(actor, file) =>
        {
            plain_operation(actor, Operation::Terminal, How::TerminalIoctl, command)
        }
        // No sandbox makes one: they are there from the start.
        _ if changes_console(command) && is_console(file) => {
            plain_operation(actor, Operation::Terminal, How::TerminalIoctl, command)
        }
        _ => 0,
    }
}

/// Opening a terminal: what is typed there is read, what is shown there is written. Refused unless the sandbox was started
/// on it, or has made it.
#[inline(always)]
pub fn open(actor: &Actor, dentry: Dentry, device: u32) -> i32 {
    if !is_somebodys_terminal(device >> 20, device & 0xf_ffff) {
        return 0;
    }
    let inode = dentry.inode().unwrap_or(Inode(0));
    let place = (
        dentry.superblock().and_then(Superblock::dev).unwrap_or(0),
        inode.number().unwrap_or(0),
    );
    if is_noted(actor, inode, place.1) {
        return 0;
    }
    if let Some(sandbox) = SANDBOXES.get(actor.sandbox)
        && sandbox.terminal_device != 0
        && place == (sandbox.terminal_device, u64::from(sandbox.terminal_inode))
    {
        return 0;
    }
    operation(
        actor,
        Operation::Terminal,
        How::OpenTerminal,
        place.1 as u32,
        0,
        dentry.0,
    )
}

/// Receiving a master: by it one types into the other end.
#[inline(always)]
pub fn receive_master(actor: &Actor, dentry: Dentry, file: File) -> i32 {
    if !is_master(Some(dentry)) {
        return 0;
    }
    let slave = file.terminal().and_then(Terminal::slave);
    let slave = slave.unwrap_or(Dentry(0));
    let inode = slave.inode().unwrap_or(Inode(0));
    let number = inode.number().unwrap_or(0);
    if is_noted(actor, inode, number) {
        return 0;
    }
    let how = How::OpenTerminal;
    operation(actor, Operation::Terminal, how, number as u32, 0, slave.0)
}

/// A pseudoterminal whose master the sandbox has is its own.
#[inline(always)]
fn note_own_terminal(actor: &Actor, file: File) {
    // Only of a master is it known what the file has for its own.
    if !is_master(file.dentry()) {
        return;
    }
    let slave = file.terminal().and_then(Terminal::slave);
    if let Some(slave) = slave
        && slave.superblock().and_then(Superblock::magic) == Some(DEVPTS)
        && let Some(inode) = slave.inode()
    {
        // Without the note it is another's, and stays closed.
        let note = terminal_note(inode.number().unwrap_or(0), actor.sandbox);
        if !room::take(actor.sandbox, Room::Terminals) {
            count(actor.sandbox, Counter::NoRoom);
        } else if let Err(failed) = OWN_TERMINALS.insert(&inode.0, &note, BPF_NOEXIST) {
            room::give_back(actor.sandbox, Room::Terminals);
            if failed != -EEXIST {
                count(actor.sandbox, Counter::NoRoom);
            }
        }
    }
}

/// Whether a file leads to a virtual console: itself, or as the terminal that `/dev/tty` or `/dev/console` is just now. Where
/// that cannot be told, it does.
#[inline(always)]
fn is_console(file: File) -> bool {
    let Some(device) = file
        .dentry()
        .and_then(Dentry::inode)
        .and_then(Inode::device)
    else {
        return true;
    };
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    if !may_be_console(major, minor) {
        return false;
    }
    let driver = file.terminal().and_then(Terminal::driver);
    match driver.and_then(|driver| Some((driver.major()?, driver.first_minor()?))) {
        Some((major, first_minor)) => is_virtual_console(major, first_minor),
        None => true,
    }
}

/// Whether a file is either end of a pseudoterminal that the sandbox has made.
#[inline(always)]
fn is_own(actor: &Actor, file: File) -> bool {
    let Some(terminal) = file.terminal() else {
        return false;
    };
    // The other end knows its dentry (`ptmx_open` of drivers/tty/pty.c); what another driver keeps there is no inode that
    // was noted.
    let slave = match terminal.slave() {
        Some(slave) => slave,
        None => Dentry(terminal.driver_data().unwrap_or(0)),
    };
    let inode = slave.inode().unwrap_or(Inode(0));
    is_noted(actor, inode, inode.number().unwrap_or(0))
}

/// Whether a terminal's inode, with this number, was noted as the sandbox's own.
#[inline(always)]
fn is_noted(actor: &Actor, inode: Inode, number: u64) -> bool {
    // SAFETY: the value, one aligned u64, is copied out.
    unsafe { OWN_TERMINALS.get(&inode.0) }.copied() == Some(terminal_note(number, actor.sandbox))
}

#[inline(always)]
fn is_master(dentry: Option<Dentry>) -> bool {
    const MASTER: u32 = guarded::MASTER.0 << 20 | guarded::MASTER.1;
    dentry.and_then(Dentry::inode).and_then(Inode::device) == Some(MASTER)
}
