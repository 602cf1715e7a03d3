# System calls with arguments that a careful program would not give: at the end of what is mapped, read-only, unterminated,
# too long, nowhere at all, and such that change while the kernel reads them. Run outside and inside, it says what came of
# each, one to a line.
#
#     paths FOLDER              paths to what lies in FOLDER/open and in FOLDER/closed
#     peers FOLDER PORT PORT    addresses of sockets that listen, the first one open, the second one closed
#     names FOLDER              names, arguments and attributes of any bytes
#     race FOLDER PORT PORT     what is named changes between open and closed while it is read
import ctypes, errno, mmap, os, signal, socket, struct, sys, time

PAGE = 4096
AT_FDCWD = -100 & 0xFFFFFFFFFFFFFFFF
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
# A NULL pointer, one below the first page, one of the kernel, one that is none.
NOWHERE = {"null": 0, "low": 1, "kernel": 0xFFFFFFFF81000000, "no-address": 1 << 63}


# arch/x86/entry/syscalls/syscall_64.tbl
class Call:
    open, creat, openat, openat2, execve, execveat = 2, 85, 257, 437, 59, 322
    truncate, rename, renameat2, link, symlink, unlink = 76, 82, 316, 86, 88, 87
    mkdir, rmdir, mknod, chmod, lchown, mount, umount2 = 83, 84, 133, 90, 94, 165, 166
    setxattr, removexattr, utimensat = 188, 197, 280
    connect, sendto, sendmsg, bind, sendmmsg, prctl = 42, 44, 46, 49, 307, 157


def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_ulong(word) for word in (number, *arguments)))
    return result, "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def say(*words):
    print(*words, flush=True)


# Memory with nothing after it.
def before_a_hole(content, protection=mmap.PROT_READ | mmap.PROT_WRITE):
    pages = max(1, -(-len(content) // PAGE))
    start = libc.mmap(None, (pages + 1) * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(start + pages * PAGE, PAGE)
    at = start + pages * PAGE - len(content)
    ctypes.memmove(at, content, len(content))
    libc.mprotect(start, pages * PAGE, protection)
    return at


def text(content):
    return before_a_hole(content + b"\0")


def padded(path, length):
    return b"/" * (length - len(path)) + path


# The same path in each of the ways to give it.
def given(path):
    yield "at-the-end", before_a_hole(path + b"\0")
    yield "read-only", before_a_hole(path + b"\0", mmap.PROT_READ)
    yield "unreadable", before_a_hole(path + b"\0", 0)
    yield "unterminated", before_a_hole(path)
    yield "empty", before_a_hole(b"\0")
    for length in (4095, 4096, 4097, 3 * PAGE):
        yield f"{length}-bytes", text(padded(path, length))
    yield "long-and-unterminated", before_a_hole(padded(path, 4095))
    yield from NOWHERE.items()


# Those that differ most.
FEW = ("at-the-end", "unterminated", "4095-bytes")


# In a child, as a program that runs is the end of the one that ran it.
def executed(*arguments):
    child = os.fork()
    if child == 0:
        _, said = call(*arguments)
        os._exit({code: number for number, code in errno.errorcode.items()}.get(said, 255))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None, f"signal-{os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    return None, "ok" if code == 0 else errno.errorcode.get(code, str(code))


def how(flags):
    return struct.pack("<QQQ", flags, 0o600 if flags & os.O_CREAT else 0, 0)


# What is done with a path; `other` is one in a directory where everything may be done.
def on_file(path, other):
    write = os.O_WRONLY
    yield "open", lambda: call(Call.open, path, os.O_RDONLY, 0)
    yield "open-create", lambda: call(Call.open, path, write | os.O_CREAT, 0o600)
    yield "creat", lambda: call(Call.creat, path, 0o600)
    yield "openat", lambda: call(Call.openat, AT_FDCWD, path, os.O_RDWR, 0)
    yield "openat2", lambda: call(Call.openat2, AT_FDCWD, path, before_a_hole(how(0)), 24)
    yield "openat2-larger", lambda: call(Call.openat2, AT_FDCWD, path, before_a_hole(how(0) + bytes(PAGE - 24)), PAGE)
    yield "openat2-cut-off", lambda: call(Call.openat2, AT_FDCWD, path, before_a_hole(how(0)[:23]), 24)
    yield "truncate", lambda: call(Call.truncate, path, 0)
    yield "rename", lambda: call(Call.rename, path, text(other + b"-new"))
    yield "renameat2", lambda: call(Call.renameat2, AT_FDCWD, path, AT_FDCWD, text(other + b"-new"), 1)
    yield "link", lambda: call(Call.link, path, text(other + b"-new"))
    yield "chmod", lambda: call(Call.chmod, path, 0o640)
    yield "chown", lambda: call(Call.lchown, path, 1, 1)
    yield "setxattr", lambda: call(Call.setxattr, path, text(b"user.a"), text(b"b"), 1, 0)
    yield "removexattr", lambda: call(Call.removexattr, path, text(b"user.kept"))
    yield "utimensat", lambda: call(Call.utimensat, AT_FDCWD, path, 0, 0)
    yield "unlink", lambda: call(Call.unlink, path)


def on_no_file(path, other):
    yield "make", lambda: call(Call.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    yield "make-openat2", lambda: call(Call.openat2, AT_FDCWD, path, before_a_hole(how(os.O_WRONLY | os.O_CREAT)), 24)
    yield "mkdir", lambda: call(Call.mkdir, path, 0o700)
    yield "mknod", lambda: call(Call.mknod, path, 0o010600, 0)
    yield "symlink", lambda: call(Call.symlink, text(b"x" * 4095), path)
    yield "rename-to", lambda: call(Call.rename, text(other), path)
    yield "link-to", lambda: call(Call.link, text(other), path)


def on_program(path, _):
    vector = struct.pack("<Q", text(b"true"))
    none = before_a_hole(bytes(8))
    yield "execve", lambda: executed(Call.execve, path, before_a_hole(vector + bytes(8)), none)
    yield "execve-no-arguments", lambda: executed(Call.execve, path, 0, 0)
    yield "execve-endless-arguments", lambda: executed(Call.execve, path, before_a_hole(vector), none)
    yield "execve-arguments-nowhere", lambda: executed(Call.execve, path, 1 << 63, none)
    yield "execve-argument-nowhere", lambda: executed(Call.execve, path, before_a_hole(struct.pack("<QQ", 8, 0)), none)
    yield "execveat", lambda: executed(Call.execveat, AT_FDCWD, path, before_a_hole(vector + bytes(8)), none, 0)


def on_directory(path, _):
    kind, nothing = text(b"tmpfs"), text(b"none")

    def mounted(*arguments):
        _, said = call(Call.mount, *arguments)
        if said == "ok":
            call(Call.umount2, path, 0)
        return None, said

    yield "mount", lambda: mounted(nothing, path, kind, 0, 0)
    yield "mount-bind", lambda: mounted(path, path, 0, 0x1000, 0)
    for what, address in given(b"tmpfs"):
        yield f"mount-kind-{what}", lambda: mounted(nothing, path, address, 0, 0)
    for what, address in NOWHERE.items():
        yield f"mount-data-{what}", lambda: mounted(nothing, path, kind, 0, address)


def attributes(path):
    file = text(path)
    for what, name in given(b"user.a"):
        if what != "long-and-unterminated":
            yield f"setxattr-name-{what}", lambda: call(Call.setxattr, file, name, text(b"b"), 1, 0)
    for length in (5, 6, 254, 255, 256):
        name = b"user." + b"\xff\n" * 200
        yield f"setxattr-name-of-{length}", lambda: call(Call.setxattr, file, text(name[:length]), text(b"b"), 1, 0)
    for what, address in NOWHERE.items():
        yield f"setxattr-value-{what}", lambda: call(Call.setxattr, file, text(b"user.a"), address, 1, 0)
    yield "setxattr-value-too-long", lambda: call(Call.setxattr, file, text(b"user.a"), text(b"b"), 1 << 20, 0)


def quietly(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        pass


# As it is before each call, as far as it may be.
def prepare(folder, other):
    quietly(os.unlink, other + b"-new")
    quietly(os.unlink, f"{folder}/none")
    quietly(os.rmdir, f"{folder}/none")
    quietly(write, other)
    if not os.path.exists(f"{folder}/file"):
        quietly(write, f"{folder}/file")
        quietly(os.setxattr, f"{folder}/file", "user.kept", b"x")


def write(path, content=b"content"):
    with open(path, "wb") as file:
        file.write(content)


def paths(folder):
    other = f"{folder}/open/other".encode()
    for place in ("open", "closed"):
        base = f"{folder}/{place}"
        for name, calls in (("file", on_file), ("none", on_no_file), ("program", on_program)):
            for what, address in given(f"{base}/{name}".encode()):
                # A program takes a process.
                if name == "program" and what not in FEW:
                    continue
                for verb, tried in calls(address, other):
                    prepare(base, other)
                    opened, said = tried()
                    if verb.startswith(("open", "creat", "make")) and said == "ok":
                        os.close(opened)
                    say(place, f"{verb}-{what}", said)
        for what, address in given(f"{base}/directory".encode()):
            if what not in FEW:
                continue
            for verb, tried in on_directory(address, other):
                say("mount", f"{place}-{verb}-{what}", tried()[1])
        for verb, tried in attributes(f"{base}/file".encode()):
            prepare(base, other)
            say(place, verb, tried()[1])


# Around the sizes of `sockaddr_in` (16), `sockaddr_in6` (28), `sockaddr_un` (110) and `sockaddr_storage` (128), and those of their
# parts.
LENGTHS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 23, 24, 27, 28, 29, *range(107, 113), *range(126, 131), 1000, 0x7FFFFFFF, 0xFFFFFFFF)


# An address, filled up with zeros or with what is none of it, of each length there may be.
def addresses(family, content):
    whole = struct.pack("<H", family) + content
    for length in sorted({*LENGTHS, len(whole) - 1, len(whole), len(whole) + 1}):
        for what, filler in (("zeros", b"\0"), ("more", b"A")):
            at = before_a_hole(whole[:length] + filler * (min(length, 1000) - len(whole)))
            yield f"{length}-{what}", at, length
    at = before_a_hole(whole)
    for length in (len(whole) + 1, 110, 128, 129):
        yield f"{length}-of-{len(whole)}", at, length
    for what, address in NOWHERE.items():
        yield what, address, len(whole)


def message(address, length):
    data = before_a_hole(b"x")
    vector = before_a_hole(struct.pack("<QQ", data, 1))
    return struct.pack("<QIIQQQQII", address, length, 0, vector, 1, 0, 0, 0, 0)


def tried_with(family, kind, address, length):
    def fresh(action):
        with socket.socket(family, kind) as one:
            one.setblocking(False)
            return action(one.fileno())[1]

    data = before_a_hole(b"x")
    yield "connect", lambda: fresh(lambda to: call(Call.connect, to, address, length))
    yield "sendto", lambda: fresh(lambda to: call(Call.sendto, to, data, 1, 0, address, length))
    one = message(address, length)
    yield "sendmsg", lambda: fresh(lambda to: call(Call.sendmsg, to, before_a_hole(one), 0))
    many = before_a_hole((one + bytes(8)) * 2)
    yield "sendmmsg", lambda: fresh(lambda to: call(Call.sendmmsg, to, many, 2, 0))
    yield "bind", lambda: fresh(lambda to: call(Call.bind, to, address, length))


def peers(folder, *ports):
    for place, port in zip(("open", "closed"), ports):
        port = struct.pack(">H", int(port))
        loopback = socket.inet_aton("127.0.0.1")
        for name, family, contents in (
            ("unix", socket.AF_UNIX, f"{folder}/{place}/socket".encode()),
            ("abstract", socket.AF_UNIX, b"\0" + f"{folder}/{place}".encode()),
            ("inet", socket.AF_INET, port + loopback + bytes(8)),
            ("inet6", socket.AF_INET6, port + bytes(4 + 10) + b"\xff\xff" + loopback + bytes(4)),
        ):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                path = contents + b"-dgram" if family == socket.AF_UNIX and kind == socket.SOCK_DGRAM else contents
                for what, address, length in addresses(family, path):
                    for verb, tried in tried_with(family, kind, address, length):
                        # Part of the path would be the name of something else, somewhere above.
                        if verb != "bind" or not 2 < length < 2 + len(path):
                            say(place, f"{verb}-{name}-{kind.name}-{what}", tried())
            # The family of the address is another than the socket's.
            for other in (0, 1, 2, 10, 65535):
                at = before_a_hole(struct.pack("<H", other) + contents)
                for verb, tried in tried_with(family, socket.SOCK_DGRAM, at, 2 + len(contents)):
                    say(place, f"{verb}-{name}-as-{other}", tried())


# 255 bytes that a name may have, 254 of which there are.
def any_bytes(first):
    every = bytes(byte for byte in range(1, 256) if byte != ord("/"))
    start = every.index(first)
    return (every[start:] + every[:start] + bytes([first]))[:255]


def names(folder):
    here = folder.encode()
    for first in (1, 10, 34, 92, 128, 255):
        for place in (b"open", b"closed"):
            path = here + b"/" + place + b"/" + any_bytes(first)
            _, said = call(Call.open, text(path), os.O_WRONLY | os.O_CREAT, 0o600)
            say(place.decode(), f"name-{first}", said)
    call(Call.prctl, 15, text(b"\n\xff\"}\n{\x1b[2J\\x41cut"))  # PR_SET_NAME
    say("closed", "comm", call(Call.open, text(here + b"/closed/file"), os.O_RDONLY)[1])
    # As many as one may be, and as many together.
    one = b"\x1b\"\n" * 43000
    program = here + b"/open/program"
    for count in (1, 15):
        words = [text(b"true")] + [before_a_hole(one + b"\0")] * count
        vector = before_a_hole(struct.pack(f"<{len(words) + 1}Q", *words, 0))
        say("open", f"arguments-{count}", executed(Call.execve, text(program), vector, before_a_hole(bytes(8)))[1])
    say("closed", "afterwards", call(Call.open, text(here + b"/closed/file"), os.O_RDONLY)[1])


# What is mapped to be changed; it stays so.
changed = []


# What is at an address becomes one and the other in turn, by another process, which is not asked.
def changing(contents):
    length = max(len(content) for content in contents)
    shared = mmap.mmap(-1, length)
    first, second = (content.ljust(length, b"\0") for content in contents)
    shared[:] = first
    child = os.fork()
    if child == 0:
        while os.getppid() != 1:
            for _ in range(1000):
                shared[:] = second
                shared[:] = first
        os._exit(0)
    changed.append(shared)
    return ctypes.addressof(ctypes.c_char.from_buffer(shared)), child


def race(folder, *ports):
    at_least, at_most = 2, 20
    both = [f"{folder}/{place}".encode() for place in ("open", "closed")]
    seen = {}

    def goes_on(what, contents, tried):
        at, child = changing(contents)
        start, said = time.monotonic(), {}
        # Until it was seen to be both.
        while (took := time.monotonic() - start) < at_least or (len(said) < 2 and took < at_most):
            word = tried(at)
            said[word] = said.get(word, 0) + 1
        seen.update(((what, word), times) for word, times in said.items())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def opened(at):
        file, said = call(Call.open, at, os.O_RDONLY, 0)
        if said == "ok":
            said = os.read(file, 100).decode()
            os.close(file)
        return said

    # Made once: there is an end to what may be mapped.
    none, taken = text(both[1] + b"/none"), text(both[0] + b"/taken")
    vector, nothing = before_a_hole(struct.pack("<QQ", text(b"true"), 0)), before_a_hole(bytes(8))
    data = before_a_hole(b"x")

    def by_how(at):
        file, said = call(Call.openat2, AT_FDCWD, none, at, 24)
        if said == "ok":
            os.close(file)
        return said

    def ran(at):
        return executed(Call.execve, at, vector, nothing)[1]

    def renamed(at):
        _, said = call(Call.rename, at, taken)
        if said == "ok":
            with open(both[0] + b"/taken", "rb") as file:
                said = file.read(100).decode()
            os.rename(both[0] + b"/taken", both[0] + b"/" + b"file")
        return said

    def contacted(family, kind, call_number):
        length = 16 if family == socket.AF_INET else 2 + len(both[1]) + 8
        header = before_a_hole(message(0, length))

        def tried(at):
            with socket.socket(family, kind) as one:
                one.setblocking(False)
                if call_number == Call.connect:
                    return call(Call.connect, one.fileno(), at, length)[1]
                if call_number == Call.sendto:
                    return call(Call.sendto, one.fileno(), data, 1, 0, at, length)[1]
                ctypes.memmove(header, struct.pack("<Q", at), 8)
                return call(Call.sendmsg, one.fileno(), header, 0)[1]

        return tried

    files = [path + b"/file\0\0" for path in both]
    goes_on("open", files, opened)
    goes_on("openat2", [how(0), how(os.O_CREAT | os.O_WRONLY)], by_how)
    goes_on("execve", [path + b"/program\0\0" for path in both], ran)
    goes_on("rename", files, renamed)
    inet = [struct.pack(">H", int(port)) + socket.inet_aton("127.0.0.1") + bytes(8) for port in ports]
    inet = [struct.pack("<H", socket.AF_INET) + address for address in inet]
    unix = [struct.pack("<H", socket.AF_UNIX) + path + b"/socket\0\0\0" for path in both]
    goes_on("connect-inet", inet, contacted(socket.AF_INET, socket.SOCK_STREAM, Call.connect))
    goes_on("sendto-inet", inet, contacted(socket.AF_INET, socket.SOCK_DGRAM, Call.sendto))
    goes_on("sendmsg-inet", inet, contacted(socket.AF_INET, socket.SOCK_DGRAM, Call.sendmsg))
    goes_on("connect-unix", unix, contacted(socket.AF_UNIX, socket.SOCK_STREAM, Call.connect))
    for (what, said), times in sorted(seen.items()):
        say(what, said, times)


what, *arguments = sys.argv[1:]
{"paths": paths, "peers": peers, "names": names, "race": race}[what](*arguments)
