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
mod scratch;

use aya_ebpf::{
    macros::{cgroup_sock_addr, lsm, raw_tracepoint},
    programs::{LsmContext, RawTracePointContext, SockAddrContext},
};
use opensafe_common::event::ConnectBody;

use gate::gate;
use hooks::{cgroup_net, exec, file, life, net};

/// Declares LSM programs (`CONFIG_BPF_LSM`, Linux ≥ 5.7) that go through the gate.
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
    /// Opening a file, programs and interpreters included.
    file_open("file_open") = file::open;
    /// A program or the interpreter its first line names.
    bprm_check_security("bprm_check_security") = exec::check;
    /// A new file, device, pipe or socket.
    path_mknod("path_mknod") = file::mknod;
    /// A new directory.
    path_mkdir("path_mkdir") = file::make;
    /// A new symbolic link.
    path_symlink("path_symlink") = file::make;
    /// A further name for a file.
    path_link("path_link") = file::link;
    /// Another name for a file or directory.
    path_rename("path_rename") = file::rename;
    /// A name taken away.
    path_unlink("path_unlink") = file::remove;
    /// A directory taken away.
    path_rmdir("path_rmdir") = file::remove;
    /// A new superblock.
    sb_kern_mount("sb_kern_mount") = file::mount;
    /// Cutting a file by its path.
    path_truncate("path_truncate") = file::truncate;
    /// connect(2).
    socket_connect("socket_connect") = net::connect;
    /// Sending to a named peer.
    socket_sendmsg("socket_sendmsg") = net::send;
    /// Connecting to a Unix stream or packet socket.
    unix_stream_connect("unix_stream_connect") = net::unix_connect;
    /// Connecting or sending to a Unix datagram socket.
    unix_may_send("unix_may_send") = net::unix_send;
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

/// A directory's inode goes, and what was cached under its address.
#[lsm(hook = "inode_free_security")]
fn inode_free_security(ctx: LsmContext) -> i32 {
    path::forget_directory(&ctx);
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

/// Without BPF LSM: connect(2) to IPv4 (Linux ≥ 4.17).
#[cgroup_sock_addr(connect4)]
fn cgroup_connect4(ctx: SockAddrContext) -> i32 {
    cgroup_net::v4(&ctx, ConnectBody::CONNECT)
}

/// Without BPF LSM: connect(2) to IPv6.
#[cgroup_sock_addr(connect6)]
fn cgroup_connect6(ctx: SockAddrContext) -> i32 {
    cgroup_net::v6(&ctx, ConnectBody::CONNECT)
}

/// Without BPF LSM: unconnected UDP to IPv4 (Linux ≥ 4.18).
#[cgroup_sock_addr(sendmsg4)]
fn cgroup_sendmsg4(ctx: SockAddrContext) -> i32 {
    cgroup_net::v4(&ctx, ConnectBody::SEND)
}

/// Without BPF LSM: unconnected UDP to IPv6.
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
