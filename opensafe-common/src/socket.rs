//! Numbers of the socket interface that both sides decide by.

/// Nothing said (include/linux/socket.h, as the other families).
pub const AF_UNSPEC: u16 = 0;
/// Unix sockets.
pub const AF_UNIX: u16 = 1;
/// IPv4.
pub const AF_INET: u16 = 2;
/// IPv6.
pub const AF_INET6: u16 = 10;
/// To the kernel, and to others by groups.
pub const AF_NETLINK: u16 = 16;
/// Frames.
pub const AF_PACKET: u16 = 17;
/// Packets as they are (include/linux/net.h).
pub const SOCK_RAW: u16 = 3;
