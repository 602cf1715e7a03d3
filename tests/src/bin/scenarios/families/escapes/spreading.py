# One attempt, named by the first argument, at the place that is the second. Ends with 13 if it is refused.
import ctypes, fcntl, os, socket, struct, sys

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2


def call(name, *arguments):
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        errno = ctypes.get_errno()
        sys.exit(13 if errno in (1, 13) else f"{name}: {os.strerror(errno)}")
    return result


def apart(private=False):
    call("unshare", CLONE_NEWNS)
    if private:
        call("mount", None, b"/", None, MS_PRIVATE | MS_REC, None)


def by_new_calls(kind, key, value, *flags):
    # fsopen(2), fsconfig(2) with FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING and FSCONFIG_CMD_CREATE
    context = call("syscall", 430, kind, 0)
    for flag in flags:
        call("syscall", 431, context, 0, flag, None, 0)
    call("syscall", 431, context, 1, key, value, 0)
    call("syscall", 431, context, 6, None, None, 0)


def one_of(place, *controllers):
    # Another may be in use, or not be there at all; a refusal is for all of them.
    for controller in controllers:
        if LIBC.mount(b"x", place, b"cgroup", 0, controller) == 0:
            return
        if ctypes.get_errno() in (1, 13):
            sys.exit(13)
    sys.exit("each is used, or there is none")


def option(family, level, name, value):
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.setsockopt(level, name, value)


def try_it(what, place):
    if what == "detach":
        apart()
        call("umount2", place, MNT_DETACH)
    elif what == "detach-around":
        apart()
        call("mount", None, b"/", None, MS_PRIVATE, None)
        call("umount2", os.path.dirname(place), MNT_DETACH)
    elif what == "bind":
        apart()
        call("mount", b"/etc", place + b"/directory", None, MS_BIND, None)
    elif what == "tmpfs":
        apart()
        call("mount", b"x", place + b"/directory", b"tmpfs", 0, None)
    elif what == "unmount":
        apart()
        call("umount2", place + b"/sub", 0)
    elif what == "beneath":
        apart()
        call("mount", None, place + b"/sub", None, MS_PRIVATE, None)
        # open_tree(2) with OPEN_TREE_CLONE, move_mount(2) with MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_BENEATH
        tree = call("syscall", 428, -100, b"/etc", 1)
        call("syscall", 429, tree, b"", -100, place + b"/sub", 0x204)
    elif what == "remove-directory":
        apart(private=True)
        call("umount2", place + b"/sub", MNT_DETACH)
        call("rmdir", place + b"/sub")
    elif what == "remove-file":
        apart(private=True)
        call("umount2", place + b"/file", MNT_DETACH)
        call("unlink", place + b"/file")
    elif what == "rename-over":
        apart(private=True)
        call("umount2", place + b"/sub", MNT_DETACH)
        call("rename", place + b"/directory", place + b"/sub")
    elif what in ("debugfs", "tracefs"):
        apart(private=True)
        call("mount", b"x", place + b"/directory", what.encode(), 0, b"mode=755")
    elif what == "cgroup2":
        apart(private=True)
        call("mount", b"x", place + b"/directory", b"cgroup2", 0, None)
    elif what == "cgroup-controller":
        apart(private=True)
        one_of(place + b"/directory", b"hugetlb", b"rdma", b"misc", b"perf_event", b"net_cls", b"net_prio", b"freezer", b"devices")
    elif what == "cgroup-named":
        apart(private=True)
        call("mount", b"x", place + b"/directory", b"cgroup", 0, b"none,name=escape")
    elif what == "cgroup-by-parameter":
        by_new_calls(b"cgroup", b"name", b"escape", b"none")
    elif what == "debugfs-by-parameter":
        by_new_calls(b"debugfs", b"mode", b"755")
    elif what == "binfmt":
        call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        call("mount", b"x", place + b"/directory", b"binfmt_misc", 0, None)
    elif what == "label":
        with_label = bytearray(256)
        with_label[:6] = b"escape"
        fcntl.ioctl(os.open("/", os.O_RDONLY), 0x41009432, with_label)  # FS_IOC_SETFSLABEL
    elif what == "trim":
        fcntl.ioctl(os.open("/", os.O_RDONLY), 0xC0185879, bytearray(struct.pack("QQQ", 0, 4096, 0)))  # FITRIM
    elif what == "device-by-name":
        option(socket.AF_INET, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
    elif what == "device-by-number":
        option(socket.AF_INET6, socket.SOL_SOCKET, 62, 1)  # SO_BINDTOIFINDEX
    elif what == "device-for-sends":
        option(socket.AF_INET, 0, 50, struct.pack("!I", 1))  # IP_UNICAST_IF
    elif what == "device-for-sends-6":
        option(socket.AF_INET6, 41, 76, struct.pack("!I", 1))  # IPV6_UNICAST_IF
    elif what == "device-kept":
        option(socket.AF_INET6, 41, 50, bytes(16) + struct.pack("I", 1))  # IPV6_PKTINFO
    elif what == "past-routes":
        option(socket.AF_INET, socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
    elif what == "device-with-packet":
        number = socket.if_nametoindex(place.decode())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            information = struct.pack("I8x", number)
            made.sendmsg([b"x"], [(socket.IPPROTO_IP, 8, information)], 0, ("127.9.9.9", 9))  # IP_PKTINFO
    elif what == "abstract-name":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.bind(b"\0" + place)
    else:
        sys.exit(f"no attempt is called {what}")


try:
    try_it(sys.argv[1], sys.argv[2].encode())
except PermissionError:
    sys.exit(13)
