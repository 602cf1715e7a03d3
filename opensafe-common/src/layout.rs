//! Where the running kernel keeps the fields that the programs read.
//!
//! The agent looks each one up in `/sys/kernel/btf/vmlinux` and writes this struct into the object's
//! read-only data before the programs are loaded, so that the verifier sees constants and one object
//! runs on every kernel.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares [`Offsets`] and, from the same lines, the BTF path of each field.
macro_rules! offsets {
    ($($(#[$doc:meta])* $field:ident = $path:literal,)*) => {
        /// Byte offsets, by the field's name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct Offsets { $($(#[$doc])* #[doc = concat!("`", $path, "`")] pub $field: u32,)* }

        impl Offsets {
            /// BTF path (`struct.member.member`) of each field, in order.
            pub const PATHS: &'static [&'static str] = &[$($path,)*];
            /// Before the agent has filled it in.
            pub const ZERO: Self = Self { $($field: 0,)* };
        }
    };
}

offsets! {
    task_cgroups = "task_struct.cgroups",
    task_flags = "task_struct.flags",
    task_personality = "task_struct.personality",
    task_cred = "task_struct.cred",
    task_real_cred = "task_struct.real_cred",
    task_io_uring = "task_struct.io_uring",
    task_pid = "task_struct.pid",
    task_tgid = "task_struct.tgid",
    task_group_leader = "task_struct.group_leader",
    task_start_boottime = "task_struct.start_boottime",
    task_real_parent = "task_struct.real_parent",
    task_mm = "task_struct.mm",
    task_signal = "task_struct.signal",
    task_exit_code = "task_struct.exit_code",
    task_nsproxy = "task_struct.nsproxy",
    task_compat_status = "task_struct.thread_info.status",
    nsproxy_mnt_ns = "nsproxy.mnt_ns",
    mnt_namespace_inum = "mnt_namespace.ns.inum",
    nsproxy_net_ns = "nsproxy.net_ns",
    net_inum = "net.ns.inum",
    net_user_ns = "net.user_ns",
    nsproxy_uts_ns = "nsproxy.uts_ns",
    uts_namespace_inum = "uts_namespace.ns.inum",
    cred_user_ns = "cred.user_ns",
    sk_buff_data = "sk_buff.data",
    sk_buff_len = "sk_buff.len",
    user_namespace_level = "user_namespace.level",
    signal_live = "signal_struct.live.counter",
    signal_group_exit_code = "signal_struct.group_exit_code",
    mm_arg_start = "mm_struct.arg_start",
    mm_arg_end = "mm_struct.arg_end",
    css_set_dfl_cgrp = "css_set.dfl_cgrp",
    cgroup_kn = "cgroup.kn",
    cgroup_parent = "cgroup.self.parent",
    kernfs_node_id = "kernfs_node.id",
    file_path_dentry = "file.f_path.dentry",
    file_flags = "file.f_flags",
    file_mode = "file.f_mode",
    file_private_data = "file.private_data",
    tty_file_private_tty = "tty_file_private.tty",
    tty_session = "tty_struct.ctrl.session",
    tty_link = "tty_struct.link",
    tty_driver = "tty_struct.driver",
    tty_driver_data = "tty_struct.driver_data",
    tty_driver_major = "tty_driver.major",
    tty_driver_first_minor = "tty_driver.minor_start",
    tty_driver_subtype = "tty_driver.subtype",
    path_dentry = "path.dentry",
    path_mnt = "path.mnt",
    vfsmount_mnt_root = "vfsmount.mnt_root",
    mount_mnt = "mount.mnt",
    mount_parent = "mount.mnt_parent",
    mount_group = "mount.mnt_group_id",
    mount_children = "mount.mnt_mounts",
    mount_sibling = "mount.mnt_child",
    area_vm_file = "vm_area_struct.vm_file",
    dentry_parent = "dentry.d_parent",
    dentry_flags = "dentry.d_flags",
    dentry_name_len = "dentry.d_name.len",
    dentry_name = "dentry.d_name.name",
    dentry_inode = "dentry.d_inode",
    dentry_short_name = "dentry.d_shortname",
    dentry_short_name_before_6_15 = "dentry.d_iname",
    dentry_sb = "dentry.d_sb",
    inode_sb = "inode.i_sb",
    inode_mode = "inode.i_mode",
    inode_flags = "inode.i_flags",
    inode_number = "inode.i_ino",
    inode_generation = "inode.i_generation",
    proc_inode_vfs_inode = "proc_inode.vfs_inode",
    proc_inode_pid = "proc_inode.pid",
    pid_tasks = "pid.tasks",
    task_pid_links = "task_struct.pid_links",
    inode_rdev = "inode.i_rdev",
    inode_ctime_s = "inode.i_ctime_sec",
    inode_ctime_before_6_11 = "inode.__i_ctime",
    inode_ctime_before_6_6 = "inode.i_ctime",
    iattr_ia_valid = "iattr.ia_valid",
    sb_dev = "super_block.s_dev",
    sb_magic = "super_block.s_magic",
    sb_root = "super_block.s_root",
    sb_type = "super_block.s_type",
    sb_references = "super_block.s_active.counter",
    fs_context_fs_type = "fs_context.fs_type",
    file_system_type_name = "file_system_type.name",
    bprm_file = "linux_binprm.file",
    bprm_filename = "linux_binprm.filename",
    socket_sk = "socket.sk",
    socket_type = "socket.type",
    sock_family = "sock.__sk_common.skc_family",
    sock_protocol = "sock.sk_protocol",
    sock_type = "sock.sk_type",
    sock_net = "sock.__sk_common.skc_net.net",
    sock_num = "sock.__sk_common.skc_num",
    sock_dport = "sock.__sk_common.skc_dport",
    sock_daddr = "sock.__sk_common.skc_daddr",
    sock_v6_daddr = "sock.__sk_common.skc_v6_daddr",
    sock_bound_device = "sock.__sk_common.skc_bound_dev_if",
    inet_sock_saddr = "inet_sock.inet_saddr",
    inet_sock_device = "inet_sock.uc_index",
    msghdr_name = "msghdr.msg_name",
    msghdr_namelen = "msghdr.msg_namelen",
    msghdr_control = "msghdr.msg_control",
    msghdr_control_len = "msghdr.msg_controllen",
    msghdr_flags = "msghdr.msg_flags",
    unix_sock_peer = "unix_sock.peer",
    unix_sock_addr = "unix_sock.addr",
    unix_sock_path_dentry = "unix_sock.path.dentry",
    unix_address_len = "unix_address.len",
    unix_address_name = "unix_address.name",
    pt_regs_orig_ax = "pt_regs.orig_ax",
    pt_regs_di = "pt_regs.di",
    pt_regs_si = "pt_regs.si",
    pt_regs_dx = "pt_regs.dx",
}

impl Offsets {
    /// Fields without which the programs do: 0 where a kernel lacks them. The registers are those of
    /// x86-64; elsewhere the name as asked is not on record. A short name has its place in the dentry by
    /// one or the other name.
    pub const OPTIONAL: &'static [&'static str] = &[
        "task_struct.io_uring",
        "task_struct.thread_info.status",
        "sock.__sk_common.skc_v6_daddr",
        "inode.i_ctime_sec",
        "inode.__i_ctime",
        "inode.i_ctime",
        "dentry.d_shortname",
        "dentry.d_iname",
        "pt_regs.orig_ax",
        "pt_regs.di",
        "pt_regs.si",
        "pt_regs.dx",
    ];
}

/// What the agent tells the programs besides offsets.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Host {
    /// Address of the kernel's `rename_lock` sequence, or 0 where `/proc/kallsyms` does not tell:
    /// then directory states are not cached.
    pub rename_lock: u64,
    /// Number of scratch slots.
    pub scratch_slots: u32,
    /// Which argument of `inode_setattr` is the dentry: the first or the second, by kernel and by what is asked, the hook or
    /// the function that calls it.
    pub setattr_dentry: u32,
    /// `DCACHE_MOUNTED`: the flag of a dentry that something is mounted on, in any namespace.
    pub dentry_is_mounted_on: u32,
    /// `s_dev` of the BPF file system that has the programs' links and the maps, where no sandbox changes anything; 0 for none.
    pub pins_device: u32,
    /// 1 where the programs run before the functions that call the hooks, 0 where they are the hooks' own.
    pub before_functions: u32,
    /// Always 0: keeps the layout free of implicit padding.
    pub reserved: u32,
}

impl Host {
    /// Before the agent has filled it in.
    pub const ZERO: Self = Self {
        rename_lock: 0,
        scratch_slots: 0,
        setattr_dentry: 0,
        dentry_is_mounted_on: 0,
        pins_device: 0,
        before_functions: 0,
        reserved: 0,
    };
}
