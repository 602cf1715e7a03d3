# Inside. Has a tmpfs of its own that gets its name, lets go of it, then reads what takes its number until it is told to stop.
#
#     own stop fresh place...
#
# Says `gone DEVICE`, then `PLACE READS TRIES` for each place, and at last whether `fresh` could be read.
import ctypes, os, sys, time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_PRIVATE, MS_REC = 0x20000, 0x40000, 0x4000
PATIENCE = 20


def call(name, *arguments):
    if getattr(LIBC, name)(*arguments) < 0:
        sys.exit(f"{name}: {os.strerror(ctypes.get_errno())}")


def opens(path, *mode):
    try:
        with open(path, *mode) as file:
            file.read(1)
        return True
    except OSError:
        return False


def until(what, is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            print(f"waited in vain: {what}", flush=True)
            return False
        time.sleep(0.02)
    return True


def has_its_name(own):
    # Denied wherever it lies, so that opensafe looks where it is; and at this place alone.
    opens(f"{own}/anywhere", "w+")
    return not opens(f"{own}/here", "w+")


def had_its_name(own):
    told, tell = os.pipe()
    if os.fork() == 0:
        call("unshare", CLONE_NEWNS)
        call("mount", None, b"/", None, MS_PRIVATE | MS_REC, None)
        call("mount", b"x", own.encode(), b"tmpfs", 0, None)
        if until("a tmpfs of its own has its name", lambda: has_its_name(own)):
            os.write(tell, str(os.stat(own).st_dev).encode())
        os._exit(0)
    os.wait()
    os.close(tell)
    return os.read(told, 64).decode() or 0


own, stop, fresh, *places = sys.argv[1:]
# The second has the first one's place and number, and gets its name all the same.
print("gone", had_its_name(own) and had_its_name(own), flush=True)

read, tries = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
while not os.path.exists(stop):
    for place in places:
        tries[place] += 1
        read[place] += opens(place)
    time.sleep(0.005)
for place in places:
    print("place", place, read[place], tries[place], flush=True)
print("fresh", "read" if until("a new one has its name", lambda: opens(fresh)) else "denied", flush=True)
