//! Reading the kernel's structures at any address. This module and [`crate::known`], for pointers whose type the
//! verifier knows, are the only ones that turn an address into a value.
//!
//! Each type is an address that the kernel gave us, with the fields that we read. A pointer may be
//! stale or NULL where we got it from memory; the read helper then fails and the caller gets `None`,
//! it cannot fault.

mod current;
mod library;

pub use current::{
    SystemCall, acts_for_the_kernel, current_memory, current_process_began_cs,
    current_task_and_cgroup, may_act_for_the_kernel,
};

use aya_ebpf::helpers::{bpf_probe_read_kernel, generated};

use crate::maps::constant;

/// Declares the kernel types: an address, and a reading function for each field.
macro_rules! kernel_types {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty = $offset:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub u64);
        #[allow(dead_code)]
        impl $name {
            $(#[inline(always)]
            pub fn $field(self) -> Option<$type> {
                read(self.0 + u64::from(constant!(OFFSETS.$offset)))
            })*
        }
    )*};
}

kernel_types! {
    /// `struct task_struct`.
    Task {
        id: u32 = task_pid,
        process: u32 = task_tgid,
        leader: Task = task_group_leader,
        began_ns: u64 = task_start_boottime,
        parent: Task = task_real_parent,
        flags: u32 = task_flags,
        personality: u32 = task_personality,
        memory: u64 = task_mm,
        credentials: u64 = task_cred,
        own_credentials: u64 = task_real_cred,
        cgroups: CssSet = task_cgroups,
        namespaces: NsProxy = task_nsproxy,
    }
    /// `struct nsproxy`.
    NsProxy {
        mounts: MountNamespace = nsproxy_mnt_ns,
        network: NetworkNamespace = nsproxy_net_ns,
        host_name: UtsNamespace = nsproxy_uts_ns,
    }
    /// `struct net`.
    NetworkNamespace {
        number: u32 = net_inum,
        owner: UserNamespace = net_user_ns,
    }
    /// `struct uts_namespace`.
    UtsNamespace {
        number: u32 = uts_namespace_inum,
    }
    /// `struct cred`.
    Credentials {
        namespace: UserNamespace = cred_user_ns,
    }
    /// `struct sk_buff`.
    Message {
        data: u64 = sk_buff_data,
        len: u32 = sk_buff_len,
    }
    /// `struct user_namespace`.
    UserNamespace {
        level: u32 = user_namespace_level,
    }
    /// `struct tty_struct`.
    Terminal {
        session: u64 = tty_session,
        other_end: Terminal = tty_link,
        driver: TerminalDriver = tty_driver,
        driver_data: u64 = tty_driver_data,
    }
    /// `struct tty_driver`.
    TerminalDriver {
        major: u32 = tty_driver_major,
        first_minor: u32 = tty_driver_first_minor,
        subtype: u16 = tty_driver_subtype,
    }
    /// `struct mnt_namespace`.
    MountNamespace {
        number: u32 = mnt_namespace_inum,
    }
    /// `struct vfsmount`.
    Mount {
        root: Dentry = vfsmount_mnt_root,
    }
    /// `struct vm_area_struct`.
    Area {
        file: File = area_vm_file,
    }
    /// `struct css_set`.
    CssSet {
        default_cgroup: Cgroup = css_set_dfl_cgrp,
    }
    /// `struct cgroup`; also a `cgroup_subsys_state` that is one's `self`, its first member.
    Cgroup {
        node: KernfsNode = cgroup_kn,
        parent: Cgroup = cgroup_parent,
    }
    /// `struct kernfs_node`.
    KernfsNode {
        id: u64 = kernfs_node_id,
    }
    /// `struct file`.
    File {
        dentry: Dentry = file_path_dentry,
        flags: u32 = file_flags,
        mode: u32 = file_mode,
        private: u64 = file_private_data,
    }
    /// `struct path`.
    Path {
        dentry: Dentry = path_dentry,
        mount: Mount = path_mnt,
    }
    /// `struct dentry`.
    Dentry {
        flags: u32 = dentry_flags,
        parent: Dentry = dentry_parent,
        name_len: u32 = dentry_name_len,
        name: u64 = dentry_name,
        inode: Inode = dentry_inode,
        superblock: Superblock = dentry_sb,
    }
    /// `struct inode`.
    Inode {
        superblock: Superblock = inode_sb,
        mode: u16 = inode_mode,
        flags: u32 = inode_flags,
        number: u64 = inode_number,
        generation: u32 = inode_generation,
        device: u32 = inode_rdev,
    }
    /// `struct super_block`.
    Superblock {
        dev: u32 = sb_dev,
        magic: u64 = sb_magic,
        root: Dentry = sb_root,
        kind: FileSystemType = sb_type,
        references: u32 = sb_references,
    }
    /// `struct fs_context`.
    FileSystemContext {
        kind: FileSystemType = fs_context_fs_type,
    }
    /// `struct file_system_type`.
    FileSystemType {
        name: u64 = file_system_type_name,
    }
    /// `struct linux_binprm`.
    Bprm {
        file: File = bprm_file,
        filename: u64 = bprm_filename,
    }
    /// `struct socket`.
    Socket {
        sock: Sock = socket_sk,
    }
    /// `struct sock`.
    Sock {
        kind: u16 = sock_type,
        network: NetworkNamespace = sock_net,
        family: u16 = sock_family,
        protocol: u16 = sock_protocol,
        local_port: u16 = sock_num,
        peer_port: u16 = sock_dport,
        peer_v4: u32 = sock_daddr,
        peer_v6_high: u64 = sock_v6_daddr,
        own_v4: u32 = inet_sock_saddr,
        bound_device: u32 = sock_bound_device,
        device_for_sends: u32 = inet_sock_device,
        unix_address: UnixAddress = unix_sock_addr,
        unix_peer: Sock = unix_sock_peer,
        unix_dentry: Dentry = unix_sock_path_dentry,
    }
    /// `struct unix_address`.
    UnixAddress {
        len: u32 = unix_address_len,
    }
}

impl Task {
    /// When its process began, in hundredths of a second since the host was started, modulo 2^32: what /proc tells of a process
    /// (`starttime` in fs/proc/array.c, Linux 6.12).
    #[inline(always)]
    pub fn process_began_cs(self) -> Option<u32> {
        const NS_IN_CS: u64 = 10_000_000;
        Some((self.leader()?.began_ns()? / NS_IN_CS) as u32)
    }
}

impl Sock {
    /// Where a socket's packets to the unspecified IPv4 address go (`ip_route_output_key_hash_rcu` in net/ipv4/route.c): to
    /// the socket's own address, in the network's order, or 0 for the loopback's. `None` if that depends on a device.
    #[inline(always)]
    pub fn where_unspecified_leads(self) -> Option<u32> {
        match (
            self.own_v4()?,
            self.bound_device()?,
            self.device_for_sends()?,
        ) {
            (0, 0, 0) => Some(0),
            (0, _, _) => None,
            (own, _, _) => Some(own),
        }
    }

    /// The low half of the peer's IPv6 address, in the network's order.
    #[inline(always)]
    pub fn peer_v6_low(self) -> Option<u64> {
        read(self.0 + u64::from(constant!(OFFSETS.sock_v6_daddr)) + 8)
    }
}

impl Dentry {
    /// Tells a name from another that has its dentry later: its directory, hash and length are in it.
    #[inline(always)]
    pub fn identity(self) -> u64 {
        // The hash shares its word with the length (`struct qstr`).
        let at = u64::from(constant!(OFFSETS.dentry_name_len) & !7);
        let name: u64 = read(self.0 + at).unwrap_or(0);
        let parent = self.parent().map_or(0, |parent| parent.0);
        self.0 ^ parent.rotate_left(21) ^ name.rotate_left(43)
    }
}

impl Inode {
    /// Whether it is a file system's own, about which the functions that call the hooks of paths and inodes ask nobody
    /// (`IS_PRIVATE` of include/linux/fs.h).
    #[inline(always)]
    pub fn is_private(self) -> bool {
        const S_PRIVATE: u32 = 1 << 9;
        self.flags().is_some_and(|flags| flags & S_PRIVATE != 0)
    }
}

impl File {
    /// The terminal that it is, if it is one.
    #[inline(always)]
    pub fn terminal(self) -> Option<Terminal> {
        read(self.private()? + u64::from(constant!(OFFSETS.tty_file_private_tty)))
    }
}

impl Terminal {
    /// Where the other end of a pseudoterminal's master is found: its dentry in a devpts (`ptmx_open` of
    /// drivers/tty/pty.c).
    #[inline(always)]
    pub fn slave(self) -> Option<Dentry> {
        // include/linux/tty_driver.h: PTY_TYPE_MASTER
        const MASTER: u16 = 1;
        if self.driver()?.subtype()? != MASTER {
            return None;
        }
        Some(Dentry(self.other_end()?.driver_data()?))
    }
}

impl Mount {
    /// The mount around it, on which it is mounted.
    #[inline(always)]
    pub fn around(self) -> Option<Self> {
        let at = u64::from(constant!(OFFSETS.mount_mnt));
        let parent: u64 = read(self.whole() + u64::from(constant!(OFFSETS.mount_parent)))?;
        Some(Self(parent + at))
    }

    /// Whether it has peers, in this or another namespace: what is mounted on it, or taken away, is so on them too. By the
    /// group of peers; the flag for it is kept elsewhere since Linux 6.17.
    #[inline(always)]
    pub fn is_shared(self) -> bool {
        read::<u32>(self.whole() + u64::from(constant!(OFFSETS.mount_group))) != Some(0)
    }

    /// Address of the `struct mount` that the `struct vfsmount` is a member of.
    #[inline(always)]
    pub fn whole(self) -> u64 {
        self.0.wrapping_sub(u64::from(constant!(OFFSETS.mount_mnt)))
    }
}

impl Inode {
    /// The process that an inode of procfs is about; `None` if it is about none.
    #[inline(always)]
    pub fn process(self) -> Option<Task> {
        // `struct proc_inode` has the inode as a member, and the `struct pid`, whose list of tasks begins with the
        // one that has that id as its own.
        let whole = self
            .0
            .wrapping_sub(u64::from(constant!(OFFSETS.proc_inode_vfs_inode)));
        let pid: u64 = read(whole + u64::from(constant!(OFFSETS.proc_inode_pid)))?;
        if pid == 0 {
            return None;
        }
        let first: u64 = read(pid + u64::from(constant!(OFFSETS.pid_tasks)))?;
        if first == 0 {
            return None;
        }
        Some(Task(
            first.wrapping_sub(u64::from(constant!(OFFSETS.task_pid_links))),
        ))
    }
}

/// Copies a value out of kernel memory.
#[inline(always)]
pub fn read<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address and fails on a bad one; `T` is an integer, an array of
    // them or one of the addresses above, for which every bit pattern is a value.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}

/// Reads a value of the running process's memory; `None` if it is not there.
#[inline(always)]
pub fn read_user<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address, and any bytes are a value of the plain types that this is asked for.
    unsafe { aya_ebpf::helpers::bpf_probe_read_user(address as *const T) }.ok()
}

/// [`read`], with 0 for what cannot be read. The helper clears what it did not copy (`bpf_probe_read_kernel_common` in
/// kernel/trace/bpf_trace.c, Linux 6.1), so nobody has to ask: the verifier follows one way on instead of two.
#[inline(always)]
pub fn read_or_zero<T: Copy>(address: u64) -> T {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the source, and writes as many bytes as there are; `T` is an integer, for which every bit
    // pattern is a value.
    unsafe {
        let to = value.as_mut_ptr().cast();
        generated::bpf_probe_read_kernel(to, size_of::<T>() as u32, address as *const _);
        value.assume_init()
    }
}

// Kinds of files in an inode's mode (include/uapi/linux/stat.h).
/// The bits that say which kind.
pub const S_IFMT: u16 = 0o170_000;
/// A socket.
pub const S_IFSOCK: u16 = 0o140_000;
/// A symbolic link.
pub const S_IFLNK: u16 = 0o120_000;
/// A regular file.
pub const S_IFREG: u16 = 0o100_000;
/// A block device.
pub const S_IFBLK: u16 = 0o060_000;
/// A directory.
pub const S_IFDIR: u16 = 0o040_000;
/// A character device.
pub const S_IFCHR: u16 = 0o020_000;

/// `DEVPTS_SUPER_MAGIC` of linux/magic.h.
pub const DEVPTS: u64 = 0x1cd1;

#[repr(C)]
/// The first bytes of a `struct dentry`, copied at once: where it hangs and how it is called.
pub struct DentryHead {
    bytes: [u64; DENTRY_HEAD_WORDS],
}

/// Words that hold `d_parent` and `d_name` on every kernel from 6.1 to 7.2.
const DENTRY_HEAD_WORDS: usize = 7;

impl DentryHead {
    /// `d_parent`: the dentry itself at a root.
    #[inline(always)]
    pub fn parent(&self) -> Dentry {
        Dentry(self.word(constant!(OFFSETS.dentry_parent)))
    }

    /// Length of `d_name` in bytes.
    #[inline(always)]
    pub fn name_len(&self) -> u32 {
        // The length shares its word with the hash before it (`struct qstr`).
        (self.word(constant!(OFFSETS.dentry_name_len) & !7) >> 32) as u32
    }

    /// Kernel address of `d_name`'s bytes.
    #[inline(always)]
    pub fn name(&self) -> u64 {
        self.word(constant!(OFFSETS.dentry_name))
    }

    #[inline(always)]
    fn word(&self, offset: u32) -> u64 {
        // SAFETY: the offset is a constant to the verifier, which refuses one outside `bytes`.
        unsafe {
            core::ptr::read_volatile(
                self.bytes
                    .as_ptr()
                    .cast::<u8>()
                    .add(offset as usize)
                    .cast::<u64>(),
            )
        }
    }
}

impl Dentry {
    /// `i_mode` of what is there; 0 if nothing is.
    #[inline(always)]
    pub fn mode(self) -> u16 {
        self.inode().and_then(Inode::mode).unwrap_or(0)
    }

    /// Copies its head.
    #[inline(always)]
    pub fn head(self) -> Option<DentryHead> {
        Some(DentryHead {
            bytes: read(self.0)?,
        })
    }

    /// Copies its head to `to`; says whether it could be read.
    ///
    /// # Safety
    /// `to` must be valid for writing.
    #[inline(always)]
    pub unsafe fn copy_head(self, to: *mut DentryHead) -> bool {
        // SAFETY: by the caller's promise; the helper checks the source.
        unsafe {
            generated::bpf_probe_read_kernel(
                to.cast(),
                size_of::<DentryHead>() as u32,
                self.0 as *const core::ffi::c_void,
            ) == 0
        }
    }
}

impl Inode {
    /// When its content, its names or its attributes last changed, in seconds since 1970.
    #[inline(always)]
    pub fn changed_s(self) -> Option<u64> {
        let at = match (
            constant!(OFFSETS.inode_ctime_s),
            constant!(OFFSETS.inode_ctime_before_6_11),
        ) {
            (0, 0) => constant!(OFFSETS.inode_ctime_before_6_6),
            (0, at) | (at, _) => at,
        };
        if at == 0 {
            return None;
        }
        read(self.0 + u64::from(at))
    }
}

/// An argument of an LSM hook, as a number: the verifier knows the argument itself as a pointer, which
/// it lets into no function that takes numbers.
#[inline(always)]
pub fn argument(ctx: &aya_ebpf::programs::LsmContext, index: usize) -> u64 {
    use aya_ebpf::EbpfContext as _;
    // The context is an array of 64-bit arguments. It is always there, so the read cannot fail.
    let address = ctx.as_ptr().cast::<u64>().wrapping_add(index);
    // SAFETY: as in `read`.
    unsafe { bpf_probe_read_kernel(address) }.unwrap_or(0)
}

impl Cgroup {
    /// Inode number of its directory.
    #[inline(always)]
    pub fn id(self) -> Option<u64> {
        self.node()?.id()
    }
}

impl UnixAddress {
    /// Address of the name's bytes after the family.
    #[inline(always)]
    pub fn name(self) -> u64 {
        self.0 + u64::from(constant!(OFFSETS.unix_address_name)) + 2
    }
}

/// The sequence that the kernel bumps around every move of a dentry; `None` where its address is not
/// known. Odd while a move is under way.
#[inline(always)]
pub fn rename_sequence() -> Option<u32> {
    match constant!(HOST.rename_lock) {
        0 => None,
        address => read(address),
    }
}
