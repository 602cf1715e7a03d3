//! The kernel programs and where each is attached: one line each.

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// To a hook of the Linux security modules.
    Lsm,
    /// To a raw tracepoint.
    RawTracepoint,
    /// To the sandbox's cgroup; used only where the LSM's hooks are not to be had.
    Cgroup,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Enforces `exec` rules.
    Exec,
    /// Enforces `file` rules.
    File,
    /// Enforces `connect` rules.
    Connect,
    /// Knows who is in the sandbox.
    Membership,
    /// Puts on record what is allowed.
    Record,
    /// Makes verdicts cheaper.
    Speed,
}

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Its name in the object.
    pub program: &'static str,
    /// How it is attached.
    pub attach: Attach,
    /// To what.
    pub target: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    /// What is lost without it.
    pub without: &'static str,
}

macro_rules! hooks {
    ($($program:ident $attach:ident $target:literal $purpose:ident $without:literal;)*) => {
        /// Every program.
        pub const HOOKS: &[Hook] = &[$(Hook {
            program: stringify!($program),
            attach: Attach::$attach,
            target: $target,
            purpose: Purpose::$purpose,
            without: $without,
        },)*];
    };
}

hooks! {
    task_alloc Lsm "task_alloc" Membership "a process moved out of its cgroup takes no mark to its children";
    task_free Lsm "task_free" Membership "marks of dead tasks are not removed";
    file_open Lsm "file_open" File "files are opened unchecked, programs and interpreters run unchecked";
    bprm_check_security Lsm "bprm_check_security" Exec "the default for programs does not hold";
    path_mknod Lsm "path_mknod" File "files are created unchecked";
    path_mkdir Lsm "path_mkdir" File "directories are created unchecked";
    path_symlink Lsm "path_symlink" File "symbolic links are created unchecked";
    path_link Lsm "path_link" File "a denied file can get another name";
    path_rename Lsm "path_rename" File "files are renamed unchecked";
    path_unlink Lsm "path_unlink" File "files are removed unchecked";
    path_rmdir Lsm "path_rmdir" File "directories are removed unchecked";
    path_truncate Lsm "path_truncate" File "files are cut by name unchecked";
    sb_kern_mount Lsm "sb_kern_mount" File "an overlay of the sandbox's own shows it any file";
    socket_connect Lsm "socket_connect" Connect "connect(2) is unchecked";
    socket_sendmsg Lsm "socket_sendmsg" Connect "unconnected sends and TCP fast open are unchecked";
    unix_stream_connect Lsm "unix_stream_connect" Connect "Unix stream sockets are unchecked";
    unix_may_send Lsm "unix_may_send" Connect "Unix datagram sockets are unchecked";
    inode_free_security Lsm "inode_free_security" Speed "directory states are not cached";
    sched_process_fork RawTracepoint "sched_process_fork" Membership "a process cloned into the cgroup is not marked";
    sched_process_exec RawTracepoint "sched_process_exec" Record "programs that run are not on record";
    sched_process_exit RawTracepoint "sched_process_exit" Record "exits are not on record";
    cgroup_mkdir RawTracepoint "cgroup_mkdir" Membership "cgroups that a sandbox makes are not armed";
    cgroup_rmdir RawTracepoint "cgroup_rmdir" Membership "ids of removed cgroups stay armed";
    cgroup_connect4 Cgroup "cgroup/connect4" Connect "connect(2) to IPv4 is unchecked";
    cgroup_connect6 Cgroup "cgroup/connect6" Connect "connect(2) to IPv6 is unchecked";
    cgroup_sendmsg4 Cgroup "cgroup/sendmsg4" Connect "unconnected UDP to IPv4 is unchecked";
    cgroup_sendmsg6 Cgroup "cgroup/sendmsg6" Connect "unconnected UDP to IPv6 is unchecked";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_program_is_listed_twice() {
        let names: std::collections::HashSet<_> = HOOKS.iter().map(|hook| hook.program).collect();
        assert_eq!(names.len(), HOOKS.len());
    }

    #[test]
    fn every_program_of_the_object_is_listed() {
        let source = include_str!("../../../opensafe-ebpf/src/main.rs");
        for hook in HOOKS {
            assert!(
                source.contains(&format!("{}(", hook.program)),
                "{} is not in the object",
                hook.program
            );
        }
    }

    #[test]
    fn the_documentation_explains_every_hook_and_no_other() {
        let page = include_str!("../../../docs/kernel-support.md");
        let explained: BTreeSet<_> = page.lines().filter_map(hook_of_row).collect();
        let listed: BTreeSet<_> = HOOKS.iter().map(|hook| hook.target).collect();
        assert_eq!(explained, listed);
    }

    /// The hook of a row "| `hook` | 5.7 | …": only the tables of hooks have a release in their second cell.
    fn hook_of_row(line: &str) -> Option<&str> {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let hook = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let (major, minor) = cells.next()?.split_once('.')?;
        let number = |part: &str| part.parse::<u32>().is_ok();
        (number(major) && number(minor)).then_some(hook)
    }
}
