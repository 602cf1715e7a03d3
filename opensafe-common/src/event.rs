//! What a record in the ring buffer looks like: a [`Header`], the body of its [`Kind`], then up to
//! three byte strings (path, name as asked, arguments), whose lengths are in the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::verdict::Access;

/// Bytes of arguments that an exec record carries at most.
pub const MAX_ARGS_BYTES: usize = 2048;
/// Bytes of the name as asked that a record carries at most.
pub const MAX_REQUESTED_BYTES: usize = 4096;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A program replaced a process's image ([`ExecBody`]; path, requested, arguments).
    Exec = 1,
    /// A program was refused or audited at the gate, before it ran ([`FileBody`]; path, requested).
    ExecGate = 2,
    /// A file was opened or was to be ([`FileBody`]; path, requested).
    File = 3,
    /// A peer was contacted or was to be ([`ConnectBody`]; path of a Unix socket or abstract name).
    Connect = 4,
    /// A process was made ([`ForkBody`]).
    Fork = 5,
    /// A process is gone ([`ExitBody`]).
    Exit = 6,
    /// An earlier tentative denial of creation did not take place: the file existed ([`FileBody`]).
    NotCreated = 7,
    /// A superblock that the policy's tables do not know was met ([`FileBody`]; path).
    UnknownSuperblock = 8,
    /// An operation without a path or a peer ([`OperationBody`]; path of a mount point or control file).
    Operation = 9,
    /// A socket was made or was to be ([`ConnectBody`]).
    Socket = 10,
    /// A socket was bound or was to be ([`ConnectBody`]).
    Bind = 11,
    /// A file could not be opened, and it was not us ([`OpenFailedBody`]; name as asked). Where no LSM hook is asked.
    OpenFailed = 12,
}

impl Kind {
    /// The kind of a byte that came from the kernel.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Exec,
            2 => Self::ExecGate,
            3 => Self::File,
            4 => Self::Connect,
            5 => Self::Fork,
            6 => Self::Exit,
            7 => Self::NotCreated,
            8 => Self::UnknownSuperblock,
            9 => Self::Operation,
            10 => Self::Socket,
            11 => Self::Bind,
            12 => Self::OpenFailed,
            _ => return None,
        })
    }
}

/// The start of every record.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub time_ns: u64,
    /// Cgroup v2 of the task.
    pub cgroup: u64,
    /// Index of the sandbox.
    pub sandbox: u32,
    /// Generation of the policy that decided.
    pub generation: u32,
    /// Process id (the kernel's tgid), in the initial pid namespace.
    pub pid: u32,
    /// Thread id (the kernel's pid).
    pub tid: u32,
    /// Parent's process id.
    pub parent_pid: u32,
    /// Effective user id in the initial user namespace.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// [`Kind`].
    pub kind: u8,
    /// [`crate::verdict::Verdict`].
    pub verdict: u8,
    /// [`flag`] bits.
    pub flags: u16,
    /// Bytes of path after the body.
    pub path_len: u16,
    /// Bytes of the name as asked, after the path.
    pub requested_len: u16,
    /// Bytes of arguments, NUL-separated, after the name as asked.
    pub args_len: u16,
    /// Kinds of access that were asked for.
    pub access: Access,
    /// The task's `comm`, NUL-padded.
    pub comm: [u8; 16],
}

/// What comes so long after what the same sandbox did last is told at once, and what follows sooner is looked for: the
/// reader of a ring buffer need not wake while nothing happens, and is never later than this by much.
pub const PAUSE_NS: u64 = 20_000_000;

/// Bits of [`Header::flags`].
pub mod flag {
    /// The operation was refused by us (in observe mode a denial lacks it).
    pub const ENFORCED: u16 = 1;
    /// The verdict is the one for objects without a name.
    pub const NAMELESS: u16 = 1 << 1;
    /// A denial of creation that is void if a [`super::Kind::NotCreated`] of the same thread follows.
    pub const TENTATIVE: u16 = 1 << 2;
    /// Arguments go on beyond what is here.
    pub const ARGS_TRUNCATED: u16 = 1 << 3;
    /// The path is not whole: its end is here, its beginning could not be walked.
    pub const PATH_PARTIAL: u16 = 1 << 4;
    /// A denial fails with `EPERM`, not `EACCES`.
    pub const EPERM: u16 = 1 << 5;
    /// Denied for what lies below: rules that speak there would not hold under the other name.
    pub const BELOW: u16 = 1 << 6;
    /// The file was open already and came with a message or from another process.
    pub const RECEIVED: u16 = 1 << 7;
    /// Denied because it is the record of a run.
    pub const RECORD: u16 = 1 << 8;
}

/// Body of [`Kind::File`], [`Kind::ExecGate`], [`Kind::NotCreated`], [`Kind::UnknownSuperblock`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileBody {
    /// `s_magic` of the superblock.
    pub magic: u64,
    /// Inode number, 0 where the file does not exist.
    pub inode: u64,
    /// `s_dev` of the superblock (major << 20 | minor).
    pub dev: u32,
    /// The file's `i_mode`, 0 where it does not exist.
    pub mode: u32,
}

/// Body of [`Kind::Exec`].
pub type ExecBody = FileBody;

/// Body of [`Kind::Connect`]. `dev` and `magic` are those of a Unix socket's path.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectBody {
    /// `s_magic` of the superblock.
    pub magic: u64,
    /// IPv6 address, IPv4 as mapped; zero for other families.
    pub address: [u8; 16],
    /// `s_dev` of the superblock.
    pub dev: u32,
    /// Address family (`AF_*`).
    pub family: u16,
    /// Port, 0 where there is none.
    pub port: u16,
    /// [`crate::tables::transport`].
    pub transport: u16,
    /// Socket type (`SOCK_*`).
    pub socket_type: u16,
    /// The kernel's protocol number (`IPPROTO_*`).
    pub protocol: u16,
    /// [`ConnectBody::CONNECT`] or [`ConnectBody::SEND`].
    pub how: u16,
}

impl ConnectBody {
    /// Nobody.
    pub const NONE: Self = Self {
        magic: 0,
        address: [0; 16],
        dev: 0,
        family: 0,
        port: 0,
        transport: 0,
        socket_type: 0,
        protocol: 0,
        how: 0,
    };
    /// By connect(2).
    pub const CONNECT: u16 = 0;
    /// By sending without connecting.
    pub const SEND: u16 = 1;
}

/// Body of [`Kind::Operation`]. `dev` and `magic` are those of the path's superblock.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OperationBody {
    /// `s_magic` of the superblock.
    pub magic: u64,
    /// `s_dev` of the superblock; 0 without a path.
    pub dev: u32,
    /// [`crate::operation::Operation`].
    pub operation: u16,
    /// [`crate::operation::How`].
    pub how: u16,
    /// What `how` says that it is.
    pub number: u32,
    /// The process that it was done to, 0 if none.
    pub target_pid: u32,
}

/// Body of [`Kind::Fork`]; the header's process is the parent.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ForkBody {
    /// The child's process id.
    pub child_pid: u32,
    /// Always 0.
    pub reserved: u32,
}

/// What an iterator tells about a task that carries a mark.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MarkedTask {
    /// Its process.
    pub process: u32,
    /// Index of its sandbox.
    pub sandbox: u32,
}

/// Body of [`Kind::OpenFailed`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenFailedBody {
    /// With which error (include/uapi/asm-generic/errno-base.h).
    pub errno: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Body of [`Kind::Exit`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExitBody {
    /// As wait(2) gives it: exit code << 8 | signal.
    pub status: u32,
    /// Always 0.
    pub reserved: u32,
}
