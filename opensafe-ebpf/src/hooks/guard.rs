//! What a sandbox may do beyond files and peers: to processes outside, to mounts, to the kernel.

use aya_ebpf::programs::LsmContext;
use opensafe_common::{
    operation::{How, Operation},
    tables::SuperblockKey,
};

use super::own::shares_mounts;
use crate::{
    actor::{Actor, is_in},
    decide::{self, By},
    gate::{PathRequest, change, operation, plain_operation as plain},
    kernel::{
        DEVPTS, Dentry, File, FileSystemContext, FileSystemType, Inode, Mount, Path, S_IFBLK,
        S_IFCHR, S_IFMT, Superblock, Task, Terminal, argument, read,
    },
    known::{Known, process},
    maps::{OWN_TERMINALS, OWN_TMPFS, SANDBOXES, constant},
    path,
};
use opensafe_common::verdict::Access;

/// `sb_mount(device, path, type, flags, data)`: mount(2), also for binds, moves and remounts.
#[inline(always)]
pub fn mount(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/uapi/linux/mount.h: MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_SHARED. They say how mounts spread
    // from here on, and are how a namespace is cut off from the one that it was copied from.
    const SPREADING: u64 = 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20;
    // MS_REMOUNT, MS_BIND: looked at before the others (`path_mount` of fs/namespace.c).
    const BEFORE: u64 = 1 << 5 | 1 << 12;
    let place = Path(argument(ctx, 1));
    let flags = argument(ctx, 3);
    if flags & BEFORE == 0 && is_overlay(argument(ctx, 2)) {
        let errno = named_overlay(actor);
        if errno != 0 {
            return errno;
        }
    }
    if flags & SPREADING != 0 && flags & BEFORE == 0 && !shares_mounts(actor) {
        return 0;
    }
    at_mount(actor, How::Mount, place.mount(), place.dentry())
}

/// `move_mount(from, to)`: move_mount(2), also of what `open_tree` and `fsmount` made.
#[inline(always)]
pub fn move_mount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let to = Path(argument(ctx, 1));
    at_mount(actor, How::MoveMount, to.mount(), to.dentry())
}

/// `sb_umount(mount, flags)`.
#[inline(always)]
pub fn unmount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let mount = Mount(argument(ctx, 0));
    // What goes here goes wherever the mount around it has peers.
    at_mount(actor, How::Unmount, mount.around(), mount.root())
}

/// `sb_remount(superblock, options)`: other options for a superblock, by mount(2) or fsconfig(2), hold for
/// everyone who uses it. Not asked about one of the sandbox's own, which the policy's tables do not know.
#[inline(always)]
pub fn remount(actor: &Actor, ctx: &LsmContext) -> i32 {
    let root = Superblock(argument(ctx, 0)).root().unwrap_or(Dentry(0));
    if !shares_mounts(actor) && !path::knows(actor.policy_index, root) {
        return 0;
    }
    operation(actor, Operation::Mount, How::Remount, 0, 0, root.0)
}

/// `sb_pivotroot(old, new)`.
#[inline(always)]
pub fn pivot_root(actor: &Actor, ctx: &LsmContext) -> i32 {
    let place = Path(argument(ctx, 1));
    at_mount(actor, How::PivotRoot, place.mount(), place.dentry())
}

/// `sb_kern_mount(superblock)`: a new superblock, by mount(2) or fsmount(2).
#[inline(always)]
pub fn new_superblock(actor: &Actor, ctx: &LsmContext) -> i32 {
    // linux/magic.h
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    let superblock = Superblock(argument(ctx, 0));
    match superblock.magic() {
        Some(OVERLAYFS_SUPER_MAGIC) => overlay(actor, superblock.root().unwrap_or(Dentry(0))),
        Some(SuperblockKey::TMPFS_MAGIC) => {
            note_own_tmpfs(actor, superblock);
            0
        }
        _ => 0,
    }
}

/// A tmpfs is new each time, and nothing is in it but what the sandbox puts there. It counts as lying where temporary files
/// do (the tables' `OwnTmpfs`) until the agent has met it and found it a name. A devtmpfs, which shows the host's devices,
/// is none.
#[inline(always)]
fn note_own_tmpfs(actor: &Actor, superblock: Superblock) {
    let name = superblock.kind().and_then(FileSystemType::name);
    if name.and_then(read::<[u8; 6]>) == Some(*b"tmpfs\0") {
        // Without the note it is nameless.
        let _ = OWN_TMPFS.insert(&superblock.0, &actor.sandbox, 0);
    }
}

/// `fs_context_parse_param(context, parameter)`: a parameter of a file system that is to be mounted, before the file
/// system has seen it. 0 leaves it to whoever comes after us.
#[inline(always)]
pub fn mount_parameter(actor: &Actor, ctx: &LsmContext) -> i32 {
    let kind = FileSystemContext(argument(ctx, 0)).kind();
    match kind.and_then(FileSystemType::name) {
        Some(name) if is_overlay(name) => named_overlay(actor),
        _ => 0,
    }
}

/// An overlay would have the kernel open what lies below it in the mounter's name ([`super::file::open`] lets that pass),
/// so a sandbox may not make one where anything is denied to it: it has no name in the view, and gets the verdict for
/// that.
#[inline(always)]
fn overlay(actor: &Actor, root: Dentry) -> i32 {
    change(actor, root, Access::FILE)
}

/// An overlay that is only named yet. When its superblock is complete, the kernel has made its work directory already,
/// and emptied it; so what will be refused is refused here. What goes ahead is on record when it is complete.
#[inline(always)]
fn named_overlay(actor: &Actor) -> i32 {
    if !decide::at_path(actor, Dentry(0), Access::FILE, By::Policy).refuses(actor) {
        return 0;
    }
    overlay(actor, Dentry(0))
}

/// Whether a file system's name, at this address, is that of overlays.
#[inline(always)]
fn is_overlay(name: u64) -> bool {
    read::<[u8; 8]>(name) == Some(*b"overlay\0")
}

/// `ptrace_access_check(task, mode)`: attaching to a process, reading or writing its memory, taking its
/// descriptors, and what /proc tells only to who could do so.
#[inline(always)]
pub fn ptrace(actor: &Actor, ctx: &LsmContext) -> i32 {
    // include/linux/ptrace.h: PTRACE_MODE_NOAUDIT, of whoever asks only in order to show less.
    const NO_AUDIT: u32 = 0x4;
    let mode = argument(ctx, 1) as u32;
    if mode & NO_AUDIT != 0 {
        return 0;
    }
    to_task(actor, Operation::Ptrace, How::Ptrace, mode, ctx)
}

/// `task_kill(task, info, signal, credentials)`: a signal to a process; the kernel's own do not pass here.
#[inline(always)]
pub fn signal(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(
        actor,
        Operation::Signal,
        How::Signal,
        argument(ctx, 2) as u32,
        ctx,
    )
}

/// `file_send_sigiotask(task, owner, signal)`: a signal that a descriptor sends to its owner (`F_SETOWN`).
#[inline(always)]
pub fn signal_by_file(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(
        actor,
        Operation::Signal,
        How::SignalByFile,
        argument(ctx, 2) as u32,
        ctx,
    )
}

/// `task_setrlimit(task, resource, limit)`: prlimit(2).
#[inline(always)]
pub fn limit(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(
        actor,
        Operation::Signal,
        How::Limit,
        argument(ctx, 1) as u32,
        ctx,
    )
}

/// `task_setnice`, `task_setscheduler`, `task_setioprio`, `task_movememory`: the first argument is the task.
#[inline(always)]
pub fn schedule(actor: &Actor, ctx: &LsmContext) -> i32 {
    to_task(actor, Operation::Signal, How::Scheduling, 0, ctx)
}

/// `userns_create(credentials)`.
#[inline(always)]
pub fn user_namespace(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain(actor, Operation::Namespace, How::UserNamespace, 0)
}

/// `bpf(command, attributes, size)`.
#[inline(always)]
pub fn bpf(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain(actor, Operation::Bpf, How::Bpf, argument(ctx, 0) as u32)
}

/// `perf_event_open`.
#[inline(always)]
pub fn perf_event(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain(actor, Operation::Bpf, How::PerfEvent, 0)
}

/// `kernel_read_file(file, id, contents)`: modules, firmware, kexec images.
#[inline(always)]
pub fn kernel_read_file(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain(
        actor,
        Operation::Module,
        How::KernelReadFile,
        argument(ctx, 1) as u32,
    )
}

/// `kernel_load_data(id, contents)`: as above, out of memory.
#[inline(always)]
pub fn kernel_load_data(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain(
        actor,
        Operation::Module,
        How::KernelLoadData,
        argument(ctx, 0) as u32,
    )
}

/// `key_alloc(key, credentials, flags)`.
#[inline(always)]
pub fn make_key(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain(actor, Operation::Keyring, How::KeyMake, 0)
}

/// `key_permission(key, credentials, permission)`.
#[inline(always)]
pub fn use_key(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain(
        actor,
        Operation::Keyring,
        How::KeyUse,
        argument(ctx, 2) as u32,
    )
}

/// `locked_down(reason)`: what kernel lockdown would refuse to everyone.
#[inline(always)]
pub fn locked_down(actor: &Actor, ctx: &LsmContext) -> i32 {
    plain(
        actor,
        Operation::Kernel,
        How::LockedDown,
        argument(ctx, 0) as u32,
    )
}

/// `settime(time, zone)`: the clock by which files are told from later ones is everyone's.
#[inline(always)]
pub fn clock(actor: &Actor, _ctx: &LsmContext) -> i32 {
    plain(actor, Operation::Kernel, How::Clock, 0)
}

/// Answering for everyone whether a file may be opened or read (fanotify(7)).
#[inline(always)]
pub fn decides_for_others(actor: &Actor, mask: u32) -> i32 {
    plain(actor, Operation::Kernel, How::Fanotify, mask)
}

/// Freezing or shutting down a file system, which everyone on it waits for.
#[inline(always)]
pub fn stops_file_system(actor: &Actor, command: u32) -> i32 {
    plain(actor, Operation::Mount, How::FileSystemIoctl, command)
}

/// An ioctl on a character device: those that make a terminal take input which nobody typed, or take it from the session
/// that has it.
#[inline(always)]
pub fn terminal(actor: &Actor, file: File, command: u32, argument: u64) -> i32 {
    // include/uapi/asm-generic/ioctls.h; TIOCLINUX pastes the console's selection.
    const TIOCSTI: u32 = 0x5412;
    const TIOCLINUX: u32 = 0x541c;
    const TIOCCONS: u32 = 0x541d;
    const TIOCSCTTY: u32 = 0x540e;
    // Unlocks the other end, which nobody can open before.
    const TIOCSPTLCK: u32 = 0x4004_5431;
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
        TIOCSCTTY => plain(actor, Operation::Terminal, How::TerminalIoctl, command),
        TIOCSTI | TIOCLINUX | TIOCCONS => {
            plain(actor, Operation::Terminal, How::TerminalIoctl, command)
        }
        _ => 0,
    }
}

/// What opening a file may mean beyond the file: a disk's blocks, from under every rule on the files in it; a
/// cgroup's control file; what /proc has of a process.
#[inline(always)]
pub fn open(actor: &Actor, known: Known, request: &PathRequest) -> i32 {
    let mode: u16 = known
        .follow(constant!(OFFSETS.dentry_inode))
        .get(constant!(OFFSETS.inode_mode));
    let magic: u64 = known
        .follow(constant!(OFFSETS.dentry_sb))
        .get(constant!(OFFSETS.sb_magic));
    beyond_the_file(actor, request.dentry, request.access, mode, magic)
}

/// As [`open`], of a file that is open already.
#[inline(always)]
pub fn receive(actor: &Actor, file: File, dentry: Dentry, access: Access) -> i32 {
    let errno = master_of_others(actor, dentry, file);
    if errno != 0 {
        return errno;
    }
    let magic = dentry.superblock().and_then(Superblock::magic).unwrap_or(0);
    beyond_the_file(actor, dentry, access, dentry.mode(), magic)
}

#[inline(always)]
fn beyond_the_file(actor: &Actor, dentry: Dentry, access: Access, mode: u16, magic: u64) -> i32 {
    if mode & S_IFMT == S_IFBLK {
        return at_device(actor, How::OpenDevice, dentry);
    }
    if mode & S_IFMT == S_IFCHR {
        return terminal_of_others(actor, dentry);
    }
    let writes = access.contains(Access::WRITE);
    match magic {
        CGROUP1 | CGROUP2 if writes => cgroup_of_others(actor, dentry),
        PROC if writes || is_private(dentry, mode) => process_of_others(actor, dentry),
        _ => 0,
    }
}

/// Whether a file of /proc tells what only who could trace the process may know: those that nobody but its
/// owner can read, and what is mapped where. The kernel asks about tracing too, but from 7.x on not only: who may
/// look into every process (CAP_PERFMON) is told all the same (`may_access_mm` of kernel/fork.c).
#[inline(always)]
fn is_private(dentry: Dentry, mode: u16) -> bool {
    if mode & 0o044 == 0 {
        return true;
    }
    let name = dentry.name().unwrap_or(0);
    let start: u32 = read(name).unwrap_or(0);
    // maps, smaps and smaps_rollup, numa_maps, map_files
    [*b"maps", *b"smap", *b"numa", *b"map_"]
        .iter()
        .any(|known| u32::from_ne_bytes(*known) == start)
}

/// What /proc has of a process, for one that could trace it: its memory, its patience with the kernel.
#[inline(always)]
fn process_of_others(actor: &Actor, dentry: Dentry) -> i32 {
    let Some(task) = dentry.inode().and_then(Inode::process) else {
        return 0; // of no process: for rules to decide
    };
    let target = task.process();
    if target == Some(process()) || is_in(task, actor.sandbox) {
        return 0;
    }
    operation(
        actor,
        Operation::Ptrace,
        How::ProcessFile,
        0,
        target.unwrap_or(0),
        dentry.0,
    )
}

/// A pseudoterminal whose master the sandbox has is its own.
#[inline(always)]
fn note_own_terminal(actor: &Actor, file: File) {
    // Only of a master is it known what the file has for its own.
    let device = file
        .dentry()
        .and_then(Dentry::inode)
        .and_then(Inode::device);
    if device != Some(PTMX) {
        return;
    }
    let slave = file.terminal().and_then(Terminal::slave);
    if let Some(slave) = slave
        && slave.superblock().and_then(Superblock::magic) == Some(DEVPTS)
        && let Some(inode) = slave.inode()
    {
        // Without the note it is another's, and stays closed.
        let note = own_terminal(actor, inode.number().unwrap_or(0));
        let _ = OWN_TERMINALS.insert(&inode.0, &note, 0);
    }
}

/// A pseudoterminal's number in its devpts, and whose it is.
#[inline(always)]
fn own_terminal(actor: &Actor, number: u64) -> u64 {
    number << 32 | u64::from(actor.sandbox)
}

/// Every master's device number (Documentation/admin-guide/devices.txt).
const PTMX: u32 = 5 << 20 | 2;

/// Whether a device is a terminal at which somebody may sit: a console, a serial line, the slave of a pseudoterminal.
/// `/dev/tty` is whoever's asks.
#[inline(always)]
fn is_somebodys(device: Option<u32>) -> bool {
    const CONSOLE: u32 = 5 << 20 | 1;
    match device {
        // TTY_MAJOR, UNIX98_PTY_SLAVE_MAJOR and what follows (include/uapi/linux/major.h), HVC_MAJOR (drivers/tty/hvc)
        Some(device) => device == CONSOLE || matches!(device >> 20, 4 | 136..=143 | 229),
        None => true,
    }
}

/// Receiving a master: by it one types into the other end.
#[inline(always)]
fn master_of_others(actor: &Actor, dentry: Dentry, file: File) -> i32 {
    if dentry.inode().and_then(Inode::device) != Some(PTMX) {
        return 0;
    }
    let slave = file.terminal().and_then(Terminal::slave);
    let slave = slave.unwrap_or(Dentry(0));
    let inode = slave.inode().unwrap_or(Inode(0));
    let number = inode.number().unwrap_or(0);
    // SAFETY: the value, one aligned u64, is copied out.
    if unsafe { OWN_TERMINALS.get(&inode.0) }.copied() == Some(own_terminal(actor, number)) {
        return 0;
    }
    let how = How::OpenTerminal;
    operation(actor, Operation::Terminal, how, number as u32, 0, slave.0)
}

/// Opening a terminal: what is typed there is read, what is shown there is written. Refused unless the sandbox was started
/// on it, or has made it.
#[inline(always)]
fn terminal_of_others(actor: &Actor, dentry: Dentry) -> i32 {
    let inode = dentry.inode().unwrap_or(Inode(0));
    if !is_somebodys(inode.device()) {
        return 0;
    }
    let place = (
        dentry.superblock().and_then(Superblock::dev).unwrap_or(0),
        inode.number().unwrap_or(0),
    );
    // SAFETY: the value, one aligned u64, is copied out.
    if unsafe { OWN_TERMINALS.get(&inode.0) }.copied() == Some(own_terminal(actor, place.1)) {
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

/// Making a device node: one more name for a disk or for memory. A character device 0:0 is a whiteout, which
/// opens nothing.
#[inline(always)]
pub fn make_device(actor: &Actor, dentry: Dentry, mode: u16, device: u32) -> i32 {
    match mode & S_IFMT {
        S_IFBLK => at_device(actor, How::MakeDevice, dentry),
        S_IFCHR if device != 0 => at_device(actor, How::MakeDevice, dentry),
        _ => 0,
    }
}

#[inline(always)]
fn at_device(actor: &Actor, how: How, dentry: Dentry) -> i32 {
    operation(actor, Operation::Device, how, 0, 0, dentry.0)
}

/// A change at `dentry` if it is a cgroup's control file, or a cgroup in another: refused unless the cgroup
/// is the sandbox's. By such files processes are frozen, killed, and moved.
#[inline(always)]
pub fn cgroup_of_others(actor: &Actor, dentry: Dentry) -> i32 {
    let magic = dentry.superblock().and_then(Superblock::magic).unwrap_or(0);
    if !is_of_cgroups(magic) {
        return 0;
    }
    // The directory's inode number is the cgroup's id.
    let directory = dentry
        .parent()
        .and_then(Dentry::inode)
        .and_then(Inode::number);
    if magic == CGROUP2
        && let Some(cgroup) = directory
        && let Some(sandbox) = crate::actor::armed(cgroup)
        && sandbox.0 == actor.sandbox
    {
        return 0;
    }
    operation(
        actor,
        Operation::Cgroup,
        How::CgroupFile,
        directory.unwrap_or(0) as u32,
        0,
        dentry.0,
    )
}

// linux/magic.h: CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC.
const CGROUP2: u64 = 0x6367_7270;
const CGROUP1: u64 = 0x0027_e0eb;

/// `PROC_SUPER_MAGIC`
const PROC: u64 = 0x9fa0;

/// Whether a superblock of that type holds cgroups.
#[inline(always)]
pub fn is_of_cgroups(magic: u64) -> bool {
    magic == CGROUP2 || magic == CGROUP1
}

/// Mounting or unmounting at a place: refused where processes outside would see it, because the namespace is
/// theirs too or what is mounted spreads to them.
#[inline(always)]
fn at_mount(actor: &Actor, how: How, mount: Option<Mount>, dentry: Option<Dentry>) -> i32 {
    // include/linux/mount.h
    const MNT_SHARED: u32 = 0x1000;
    let spreads = match mount.and_then(Mount::flags) {
        Some(flags) => flags & MNT_SHARED != 0,
        None => true,
    };
    if !spreads && !shares_mounts(actor) {
        return 0;
    }
    let place = dentry.unwrap_or(Dentry(0));
    operation(actor, Operation::Mount, how, 0, 0, place.0)
}

/// Something done to the task that is the hook's first argument: refused if it is outside.
#[inline(always)]
fn to_task(actor: &Actor, what: Operation, how: How, number: u32, ctx: &LsmContext) -> i32 {
    let task = Task(argument(ctx, 0));
    let target = task.process();
    if target == Some(process()) || is_in(task, actor.sandbox) {
        return 0;
    }
    operation(actor, what, how, number, target.unwrap_or(0), 0)
}
