//! The kernel programs and where each is attached: one line each.

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// To a hook of the Linux security modules, or before the function that calls it: [`crate::enforcement::Way`].
    Lsm,
    /// To a raw tracepoint.
    RawTracepoint,
    /// To an iterator, whenever it is read.
    Iterator,
    /// To the sandbox's cgroup; used only where the LSM's hooks are not to be had.
    Cgroup,
    /// To the raw tracepoint at the end of every system call; used only where the LSM's hooks are not to be had.
    SystemCall,
}

impl Attach {
    /// Whether it is used only where the LSM's hooks are not to be had.
    #[must_use]
    pub const fn stands_in(self) -> bool {
        matches!(self, Self::Cgroup | Self::SystemCall)
    }
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Enforces `exec` rules.
    Exec,
    /// Enforces `file` rules.
    File,
    /// Enforces `connect` rules, and those on sockets and what they are bound to.
    Connect,
    /// Enforces rules on operations on others, the mounts and the kernel.
    Operation,
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
    /// The first kernel that has it, if that is later than 6.1: before, there is nothing for it to see.
    pub since: Option<&'static str>,
}

impl Hook {
    /// The kernel's function that calls an LSM hook (security/security.c).
    #[must_use]
    pub fn security_function(&self) -> String {
        let name = match self.target {
            "bprm_check_security" => "bprm_check",
            "sb_alloc_security" => "sb_alloc",
            "sb_free_security" => "sb_free",
            "inode_free_security" => "inode_free",
            "userns_create" => "create_user_ns",
            "settime" => "settime64",
            hook => hook,
        };
        format!("security_{name}")
    }
}

macro_rules! since {
    [] => { None };
    [$release:literal] => { Some($release) };
}

macro_rules! hooks {
    ($($program:ident $attach:ident $target:literal $purpose:ident $without:literal $(since $since:literal)?;)*) => {
        /// Every program.
        pub const HOOKS: &[Hook] = &[$(Hook {
            program: stringify!($program),
            attach: Attach::$attach,
            target: $target,
            purpose: Purpose::$purpose,
            without: $without,
            since: since![$($since)?],
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
    path_chmod Lsm "path_chmod" File "modes are changed unchecked";
    path_chown Lsm "path_chown" File "owners are changed unchecked";
    inode_setattr Lsm "inode_setattr" File "times are set unchecked";
    inode_setxattr Lsm "inode_setxattr" File "extended attributes are set unchecked";
    inode_removexattr Lsm "inode_removexattr" File "extended attributes are removed unchecked";
    inode_set_acl Lsm "inode_set_acl" File "access lists are set unchecked" since "6.2";
    inode_remove_acl Lsm "inode_remove_acl" File "access lists are removed unchecked" since "6.2";
    inode_file_setattr Lsm "inode_file_setattr" File "flags are set by file_setattr(2) unchecked" since "6.17";
    file_receive Lsm "file_receive" File "descriptors that come with messages are unchecked";
    file_ioctl Lsm "file_ioctl" File "devices are asked unchecked, and typing into a terminal is";
    file_ioctl_compat Lsm "file_ioctl_compat" File "32-bit programs ask devices unchecked" since "6.8";
    path_notify Lsm "path_notify" File "directories are watched unchecked";
    mmap_file Lsm "mmap_file" Exec "files become code unchecked, by ld.so PROGRAM";
    file_mprotect Lsm "file_mprotect" Exec "mapped files become code unchecked";
    sb_alloc_security Lsm "sb_alloc_security" File "what is mounted outside during a run may pass for what had its device number";
    sb_kern_mount Lsm "sb_kern_mount" File "an overlay of the sandbox's own shows it any file";
    sb_free_security Lsm "sb_free_security" File "a tmpfs of others may pass for the sandbox's own";
    fs_context_parse_param Lsm "fs_context_parse_param" File "a directory is emptied as the work directory of an overlay that is then refused";
    sb_mount Lsm "sb_mount" Operation "mounts that others share are changed unchecked";
    sb_remount Lsm "sb_remount" Operation "superblocks that others use are remounted unchecked";
    move_mount Lsm "move_mount" Operation "mounts are attached unchecked";
    sb_umount Lsm "sb_umount" Operation "mounts are taken away unchecked";
    sb_pivotroot Lsm "sb_pivotroot" Operation "the root that others share can be changed";
    ptrace_access_check Lsm "ptrace_access_check" Operation "processes outside can be controlled";
    ptrace_traceme Lsm "ptrace_traceme" Operation "a sandbox's first process has opensafe control it";
    task_kill Lsm "task_kill" Operation "processes outside can be signalled";
    file_send_sigiotask Lsm "file_send_sigiotask" Operation "descriptors can signal processes outside";
    task_setrlimit Lsm "task_setrlimit" Operation "limits of processes outside can be changed";
    task_setnice Lsm "task_setnice" Operation "priorities of processes outside can be changed";
    task_setscheduler Lsm "task_setscheduler" Operation "scheduling of processes outside can be changed";
    task_setioprio Lsm "task_setioprio" Operation "I/O priorities of processes outside can be changed";
    task_movememory Lsm "task_movememory" Operation "memory of processes outside can be moved";
    userns_create Lsm "userns_create" Operation "user namespaces are made unchecked";
    bpf Lsm "bpf" Operation "bpf(2) is unchecked";
    perf_event_open Lsm "perf_event_open" Operation "perf_event_open(2) is unchecked";
    kernel_read_file Lsm "kernel_read_file" Operation "modules are loaded unchecked";
    kernel_load_data Lsm "kernel_load_data" Operation "modules are loaded from memory unchecked";
    key_alloc Lsm "key_alloc" Operation "keys are made unchecked";
    key_permission Lsm "key_permission" Operation "keys are used unchecked";
    locked_down Lsm "locked_down" Operation "the kernel's memory and trace files are open to root inside";
    settime Lsm "settime" Operation "the clock is set unchecked";
    capable Lsm "capable" Operation "root inside changes routes and clocks, and restarts the host";
    netlink_send Lsm "netlink_send" Operation "a socket of the network outside is used from another network";
    socket_create Lsm "socket_create" Connect "sockets of families that no rule can speak about are made unchecked";
    socket_bind Lsm "socket_bind" Connect "bind(2) is unchecked";
    socket_listen Lsm "socket_listen" Connect "listen(2) without bind(2) is unchecked";
    socket_setsockopt Lsm "socket_setsockopt" Connect "packets take a route of the sandbox's choice (IP_OPTIONS)";
    sctp_bind_connect Lsm "sctp_bind_connect" Connect "SCTP associations by several addresses are unchecked";
    socket_connect Lsm "socket_connect" Connect "connect(2) is unchecked";
    socket_sendmsg Lsm "socket_sendmsg" Connect "unconnected sends and TCP fast open are unchecked";
    unix_stream_connect Lsm "unix_stream_connect" Connect "Unix stream sockets are unchecked";
    unix_may_send Lsm "unix_may_send" Connect "Unix datagram sockets are unchecked";
    inode_free_security Lsm "inode_free_security" Speed "directory states are not cached, and terminals of others may pass for the sandbox's own";
    sched_process_fork RawTracepoint "sched_process_fork" Membership "a process cloned into the cgroup is not marked";
    sched_process_exec RawTracepoint "sched_process_exec" Record "programs that run are not on record";
    sched_process_exit RawTracepoint "sched_process_exit" Record "exits are not on record";
    cgroup_mkdir RawTracepoint "cgroup_mkdir" Membership "cgroups that a sandbox makes are not armed";
    cgroup_rmdir RawTracepoint "cgroup_rmdir" Membership "ids of removed cgroups stay armed";
    marked_tasks Iterator "task" Membership "a process that left the cgroup may outlive the run";
    cgroup_connect4 Cgroup "cgroup/connect4" Connect "connect(2) to IPv4 is unchecked";
    cgroup_connect6 Cgroup "cgroup/connect6" Connect "connect(2) to IPv6 is unchecked";
    cgroup_sendmsg4 Cgroup "cgroup/sendmsg4" Connect "unconnected UDP to IPv4 is unchecked";
    cgroup_sendmsg6 Cgroup "cgroup/sendmsg6" Connect "unconnected UDP to IPv6 is unchecked";
    sys_exit SystemCall "sys_exit" Record "opens that fail are not on record";
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
        let listed: BTreeSet<_> = HOOKS.iter().map(|hook| hook.program).collect();
        for line in source.lines() {
            let declared = line.trim().split_once("(\"").map(|(name, _)| name);
            if let Some(name) = declared.filter(|_| line.ends_with(';')) {
                assert!(
                    listed.contains(name),
                    "{name} is in the object and not listed"
                );
            }
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
