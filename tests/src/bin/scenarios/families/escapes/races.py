# A directory with a file in it is moved from place to place; inside, the file is opened by the directory's descriptor
# meanwhile.
#
#     move state there here rounds     outside: its name is `there` while `state` is 4n + 2, `here` while it is 4n
#     open state here                  inside: says how often the file opened and was refused in each place
#
# It stays in each place until the file has been tried there, however slow the machine is.
import mmap, os, sys, time

MOVING = 1
STATE, TRIED = slice(0, 8), slice(8, 16)
PATIENCE = 60


def shared(path):
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 16)


def get(state, what=STATE):
    return int.from_bytes(state[what], "little")


def put(state, value, what=STATE):
    state[what] = value.to_bytes(8, "little")


def move(state, there, here, rounds):
    state = shared(state)
    for step in range(0, 4 * int(rounds), 2):
        put(state, step + MOVING)
        os.rename(*((here, there) if step % 4 == 0 else (there, here)))
        before, end = get(state, TRIED), time.monotonic() + PATIENCE
        put(state, step + 2)
        time.sleep(0.002)
        while get(state, TRIED) == before and time.monotonic() < end:
            time.sleep(0.002)
    put(state, 2**63)


def opened(state, here):
    state = shared(state)
    directory = os.open(here, os.O_PATH | os.O_DIRECTORY)
    seen = {"here": [0, 0], "there": [0, 0]}
    print("ready", flush=True)
    while (before := get(state)) < 2**63:
        try:
            os.close(os.open("file", os.O_RDONLY, dir_fd=directory))
            refused = 0
        except PermissionError:
            refused = 1
        # What was tried while it was moved may go either way.
        if before == get(state) and not before & MOVING:
            seen["here" if before % 4 == 0 else "there"][refused] += 1
            put(state, get(state, TRIED) + 1, TRIED)
    for place, (opens, refusals) in seen.items():
        print(place, opens, refusals, flush=True)


what, *arguments = sys.argv[1:]
{"move": move, "open": opened}[what](*arguments)
