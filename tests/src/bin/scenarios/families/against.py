# Inside, as root: what a sandbox does against opensafe, and against others. The first argument says what.
import ctypes, errno, os, signal, struct, sys, time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_INTO_CGROUP = 0x20000, 0x200000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
CLONE3 = 435


def mount(source, target, kind, flags=0, data=None):
    words = [word and word.encode() for word in (source, target, kind)]
    if LIBC.mount(*words, ctypes.c_ulong(flags), data and data.encode()) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def own_mounts():
    if LIBC.unshare(CLONE_NEWNS) < 0:
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    mount(None, "/", None, MS_PRIVATE | MS_REC)


def told(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def read(path):
    try:
        with open(path) as file:
            return "read " + file.read(16).strip()
    except OSError as error:
        return errno.errorcode[error.errno]


def clone3(flags=0, pid=0, cgroup=0):
    """As fork(2), with a process id of one's choice, into a cgroup of one's choice."""
    number = ctypes.c_int(pid)
    at, numbers = (ctypes.addressof(number), 1) if pid else (0, 0)
    fields = (flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, at, numbers, cgroup)
    arguments = ctypes.create_string_buffer(struct.pack("11Q", *fields))
    child = LIBC.syscall(CLONE3, arguments, 88)
    return child if child >= 0 else -ctypes.get_errno()


def as_the_dead(dead, closed):
    """A process that is not the first one, which ends with opensafe, takes opensafe's id when that is gone."""
    agent = os.getppid()
    if os.fork():
        signal.pause()
    os.setsid()
    print("ready", flush=True)
    told(dead)
    child = clone3(pid=agent)
    if child == 0:
        print("it:", read(closed), flush=True)
        if os.fork() == 0:
            print("its child:", read(closed), flush=True)
            os._exit(0)
        os.wait()
        elsewhere = clone3(CLONE_INTO_CGROUP, cgroup=os.open("/sys/fs/cgroup", os.O_RDONLY))
        if elsewhere == 0:
            print("its child elsewhere:", read(closed), flush=True)
            os._exit(0)
        if elsewhere < 0:
            print("its child elsewhere:", errno.errorcode[-elsewhere], flush=True)
        else:
            os.wait()
        os._exit(0)
    if child < 0:
        print("no such id:", errno.errorcode[-child], flush=True)
    else:
        os.wait()
    print("done", flush=True)


def hold(place, here, stop):
    """What is mounted at a place that is denied gets another name, and stays when it goes from the first one."""
    own_mounts()
    mount(place, here, None, MS_BIND)
    print("bound", read(f"{here}/token"), flush=True)
    reads = tries = 0
    while not os.path.exists(stop):
        tries += 1
        # Some denied, so that opensafe looks where it is.
        reads += read(f"{here}/token").startswith("read")
        time.sleep(0.01)
    print("end", reads, tries, flush=True)


def mount_without_end(here, mounts, opens):
    """A tmpfs of its own, in which something is denied, behind many mounts."""
    own_mounts()
    os.makedirs(f"{here}/many")
    mount("many", f"{here}/many", "tmpfs")
    for i in range(500):
        os.mkdir(f"{here}/many/{i}")
        mount(f"{here}/many", f"{here}/many/{i}", None, MS_BIND)
    made = 501
    while made < int(mounts):
        os.makedirs(f"{here}/{made}")
        mount(f"{here}/many", f"{here}/{made}", None, MS_BIND | MS_REC)
        made += 501
    mount("tmpfs", f"{here}/closed/tmpfs", "tmpfs")
    for i in range(int(opens)):
        try:
            open(f"{here}/closed/tmpfs/anywhere", "w")
        except OSError:
            pass
    print("ready", flush=True)
    time.sleep(1000)


def keep(busy, patience):
    """Processes that are in the midst of being denied when another one gets the processor, for long."""
    deep = os.getcwd()
    while len(deep) < 3700:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        deep += "/" + "d" * 200
    open("closed", "w").close()
    end = time.monotonic() + float(patience)

    def idle():
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while time.monotonic() < end:
            read(deep + "/closed")

    def hog():
        while time.monotonic() < end:
            pass

    for act in [idle] * 40 + [hog] * 2:
        if os.fork() == 0:
            act()
            os._exit(0)
    open(busy, "w").close()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break


def work(here, patience):
    """Ordinary work. Says how often it failed, and how often it did not."""
    failed = done = 0
    end = time.monotonic() + float(patience)
    while time.monotonic() < end:
        try:
            name = f"{here}/file{done % 7}"
            open(name, "w").close()
            os.rename(name, name + "x")
            os.unlink(name + "x")
            done += 1
        except OSError:
            failed += 1
        time.sleep(0.02)
    print("failed", failed, "done", done, flush=True)


def make_file_systems(here, many):
    """More than a sandbox's share."""
    own_mounts()
    made = 0
    for i in range(int(many)):
        os.makedirs(f"{here}/{i % 100}", exist_ok=True)
        mount("tmpfs", f"{here}/{i % 100}", "tmpfs", 0, "nr_inodes=4,size=4k")
    print("made", flush=True)


what, *arguments = sys.argv[1:]
globals()[what](*arguments)
