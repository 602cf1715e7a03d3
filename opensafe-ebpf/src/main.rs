//! OpenSafe's kernel programs, one line each: where it is attached, since which kernel, what it does.
//!
//! ```text
//! hook → actor (who is asking?) → decide (rule tables → verdict → errno) → emit (record, counters)
//! ```
//! Verdicts never wait for anyone and do not depend on whether a record could be sent.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)] // atomic.rs

mod actor;
mod atomic;
mod automaton;
mod bound;
mod decide;
mod emit;
mod gate;
mod hooks;
mod kernel;
mod known;
mod maps;
mod memo;
mod path;
mod room;
mod scratch;
mod superblock;
mod walk;

use aya_ebpf::{
    macros::{cgroup_sock_addr, lsm, raw_tracepoint},
    programs::{LsmContext, RawTracePointContext, SockAddrContext},
};
use opensafe_common::event::ConnectBody;

use gate::{busy_gate, gate};
use hooks::{
    capability, cgroup_net, exec, failed, file, guard, life, mount, names, net, route, socket, unix,
};

/// Declares programs of LSM hooks that go through the gate: the hooks' own (`CONFIG_BPF_LSM`, Linux ≥ 5.7), or run before the
/// functions that ask the hooks (`BPF_MODIFY_RETURN`, Linux ≥ 5.7).
macro_rules! lsm_programs {
    ($($(#[$doc:meta])* $name:ident($hook:literal) = $function:path;)*) => {$(
        $(#[$doc])*
        #[lsm(hook = $hook)]
        fn $name(ctx: LsmContext) -> i32 {
            gate(|actor| $function(actor, &ctx))
        }
    )*};
}

lsm_programs! {
    /// A program or the interpreter its first line names.
    bprm_check_security("bprm_check_security") = exec::check;
    /// A new file, device, pipe or socket.
    path_mknod("path_mknod") = names::mknod;
    /// A new directory.
    path_mkdir("path_mkdir") = names::make_directory;
    /// A new symbolic link.
    path_symlink("path_symlink") = names::make_link;
    /// A further name for a file.
    path_link("path_link") = names::link;
    /// Another name for a file or directory.
    path_rename("path_rename") = names::rename;
    /// A name taken away.
    path_unlink("path_unlink") = names::remove;
    /// A directory taken away.
    path_rmdir("path_rmdir") = names::remove_directory;
    /// Cutting a file by its path.
    path_truncate("path_truncate") = file::truncate;
    /// A file's mode.
    path_chmod("path_chmod") = file::attributes;
    /// A file's owner.
    path_chown("path_chown") = file::attributes;
    /// A file's times.
    inode_setattr("inode_setattr") = file::times;
    /// An extended attribute.
    inode_setxattr("inode_setxattr") = file::extended_attributes;
    /// An extended attribute taken away.
    inode_removexattr("inode_removexattr") = file::extended_attributes;
    /// An access list (Linux ≥ 6.2; an extended attribute before).
    inode_set_acl("inode_set_acl") = file::extended_attributes;
    /// An access list taken away (Linux ≥ 6.2).
    inode_remove_acl("inode_remove_acl") = file::extended_attributes;
    /// A file's flags, by its name (Linux ≥ 6.17).
    inode_file_setattr("inode_file_setattr") = file::flags;
    /// A descriptor from elsewhere.
    file_receive("file_receive") = file::receive;
    /// A command to a device.
    file_ioctl("file_ioctl") = file::ioctl;
    /// A command to a device, by a 32-bit program (Linux ≥ 6.8).
    file_ioctl_compat("file_ioctl_compat") = file::ioctl;
    /// inotify and fanotify.
    path_notify("path_notify") = file::watch;
    /// A file mapped as code.
    mmap_file("mmap_file") = exec::map;
    /// Memory that becomes code.
    file_mprotect("file_mprotect") = exec::protect;
    /// What a file system is mounted with.
    fs_context_parse_param("fs_context_parse_param") = mount::mount_parameter;
    /// mount(2).
    sb_mount("sb_mount") = mount::mount;
    /// Other options for a superblock.
    sb_remount("sb_remount") = mount::remount;
    /// move_mount(2).
    move_mount("move_mount") = mount::move_mount;
    /// umount(2).
    sb_umount("sb_umount") = mount::unmount;
    /// pivot_root(2).
    sb_pivotroot("sb_pivotroot") = mount::pivot_root;
    /// Control over another process.
    ptrace_access_check("ptrace_access_check") = guard::ptrace;
    /// Control by one's parent.
    ptrace_traceme("ptrace_traceme") = guard::traced_by_parent;
    /// kill(2) and its kin.
    task_kill("task_kill") = guard::signal;
    /// Signals that descriptors send.
    file_send_sigiotask("file_send_sigiotask") = guard::signal_by_file;
    /// prlimit(2).
    task_setrlimit("task_setrlimit") = guard::limit;
    /// setpriority(2).
    task_setnice("task_setnice") = guard::schedule;
    /// sched_setscheduler(2), sched_setaffinity(2).
    task_setscheduler("task_setscheduler") = guard::schedule;
    /// ioprio_set(2).
    task_setioprio("task_setioprio") = guard::schedule;
    /// move_pages(2), migrate_pages(2).
    task_movememory("task_movememory") = guard::schedule;
    /// A user namespace (Linux ≥ 6.1).
    userns_create("userns_create") = guard::user_namespace;
    /// bpf(2).
    bpf("bpf") = guard::bpf;
    /// perf_event_open(2).
    perf_event_open("perf_event_open") = guard::perf_event;
    /// Modules and other code for the kernel, from a file.
    kernel_read_file("kernel_read_file") = guard::kernel_read_file;
    /// The same from memory.
    kernel_load_data("kernel_load_data") = guard::kernel_load_data;
    /// A new key.
    key_alloc("key_alloc") = guard::make_key;
    /// The use of a key.
    key_permission("key_permission") = guard::use_key;
    /// What kernel lockdown is about.
    locked_down("locked_down") = guard::locked_down;
    /// settimeofday(2), clock_settime(2).
    settime("settime") = guard::clock;
    /// A right of root's.
    capable("capable") = capability::check;
    /// A message to the kernel about the network, and others.
    netlink_send("netlink_send") = capability::netlink;
    /// socket(2).
    socket_create("socket_create") = socket::create;
    /// bind(2).
    socket_bind("socket_bind") = socket::bind;
    /// listen(2).
    socket_listen("socket_listen") = socket::listen;
    /// setsockopt(2).
    socket_setsockopt("socket_setsockopt") = route::option;
    /// Several SCTP addresses at once.
    sctp_bind_connect("sctp_bind_connect") = route::sctp;
    /// connect(2).
    socket_connect("socket_connect") = net::connect;
    /// Sending to a named peer.
    socket_sendmsg("socket_sendmsg") = net::send;
    /// Connecting to a Unix stream or packet socket.
    unix_stream_connect("unix_stream_connect") = unix::connect;
    /// Connecting or sending to a Unix datagram socket.
    unix_may_send("unix_may_send") = unix::send;
}

/// Opening a file, programs and interpreters included.
#[lsm(hook = "file_open")]
fn file_open(ctx: LsmContext) -> i32 {
    busy_gate(|actor| file::open(actor, &ctx))
}

/// A task of a sandbox makes another: the child is marked, or the fork fails.
#[lsm(hook = "task_alloc")]
fn task_alloc(ctx: LsmContext) -> i32 {
    life::alloc(&ctx)
}

/// A task's memory goes.
#[lsm(hook = "task_free")]
fn task_free(ctx: LsmContext) -> i32 {
    life::free(&ctx);
    0
}

/// An inode goes, and what was kept under its address.
#[lsm(hook = "inode_free_security")]
fn inode_free_security(ctx: LsmContext) -> i32 {
    path::forget(&ctx);
    0
}

/// A superblock is made, of anyone's, before it has its device number.
#[lsm(hook = "sb_alloc_security")]
fn sb_alloc_security(ctx: LsmContext) -> i32 {
    superblock::made(&ctx)
}

/// A new superblock, of anyone's: its device number may have been another's.
#[lsm(hook = "sb_kern_mount")]
fn sb_kern_mount(ctx: LsmContext) -> i32 {
    match superblock::note(&ctx) {
        0 => gate(|actor| mount::new_superblock(actor, &ctx)),
        errno => errno,
    }
}

/// A superblock goes, and that it was a sandbox's own.
#[lsm(hook = "sb_free_security")]
fn sb_free_security(ctx: LsmContext) -> i32 {
    superblock::forget(&ctx);
    0
}

/// A process was made (Linux ≥ 4.17, as the other raw tracepoints).
#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn sched_process_fork(ctx: RawTracePointContext) -> i32 {
    life::fork(&ctx);
    0
}

/// A process runs another program.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn sched_process_exec(ctx: RawTracePointContext) -> i32 {
    gate(|actor| {
        exec::done(actor, &ctx);
        0
    })
}

/// A process is gone.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn sched_process_exit(_ctx: RawTracePointContext) -> i32 {
    gate(|actor| {
        life::exit(actor);
        0
    })
}

/// Where no LSM hook is asked: a system call is over.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit(ctx: RawTracePointContext) -> i32 {
    failed::system_call(&ctx);
    0
}

/// A cgroup was made.
#[raw_tracepoint(tracepoint = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: RawTracePointContext) -> i32 {
    life::cgroup_made(&ctx);
    0
}

/// A cgroup was removed.
#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
fn cgroup_rmdir(ctx: RawTracePointContext) -> i32 {
    life::cgroup_removed(&ctx);
    0
}

/// Tells which processes are marked (Linux ≥ 5.8).
// SAFETY: the section that the loader looks for, and a name of its own.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
fn marked_tasks(context: *const u64) -> i32 {
    life::tell_marked(context)
}

/// Where no LSM hook is asked: connect(2) to IPv4 (Linux ≥ 4.17).
#[cgroup_sock_addr(connect4)]
fn cgroup_connect4(ctx: SockAddrContext) -> i32 {
    cgroup_net::v4(&ctx, ConnectBody::CONNECT)
}

/// Where no LSM hook is asked: connect(2) to IPv6.
#[cgroup_sock_addr(connect6)]
fn cgroup_connect6(ctx: SockAddrContext) -> i32 {
    cgroup_net::v6(&ctx, ConnectBody::CONNECT)
}

/// Where no LSM hook is asked: unconnected UDP to IPv4 (Linux ≥ 4.18).
#[cgroup_sock_addr(sendmsg4)]
fn cgroup_sendmsg4(ctx: SockAddrContext) -> i32 {
    cgroup_net::v4(&ctx, ConnectBody::SEND)
}

/// Where no LSM hook is asked: unconnected UDP to IPv6.
#[cgroup_sock_addr(sendmsg6)]
fn cgroup_sendmsg6(ctx: SockAddrContext) -> i32 {
    cgroup_net::v6(&ctx, ConnectBody::SEND)
}

/// Does nothing: the floor that benchmarks compare with.
#[lsm(hook = "file_open")]
fn empty_file_open(_ctx: LsmContext) -> i32 {
    0
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No path leads here: the verifier would refuse the endless loop.
    loop {}
}

// SAFETY: the name that the kernel looks for (`license`), used once.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
