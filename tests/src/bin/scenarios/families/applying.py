"""Finds out which policy decides, from many tasks at once. Policy N lets exactly file N be opened, and none that was replaced
comes back: so whoever finds file N closed knows that a later one decides, and one of the files after it has to be open."""

import os
import sys
import threading

folder, last, processes, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
PAUSE_S = 0.01


def opens(number):
    try:
        os.close(os.open(f"{folder}/{number}", os.O_RDONLY))
        return True
    except PermissionError:
        return False


def follow(said):
    """Follows the policies from the first to the last, and tells what no order of them explains."""
    number = tries = 0
    pause = threading.Event()
    while number < last:
        tries += 1
        if opens(number):
            # The next one is either not in force, or this one is not any more.
            if opens(number + 1) and opens(number):
                said.append(f"policies {number} and {number + 1} at once")
            pause.wait(PAUSE_S)
            continue
        following = number + 1
        while following <= last and not opens(following):
            following += 1
        if following > last:
            said.append(f"none after policy {number}")
            break
        number = following
    said.append(f"followed {number} by {tries}")


def process(count):
    said = []
    tasks = [threading.Thread(target=follow, args=(said,)) for _ in range(count)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    sys.stdout.write("".join(line + "\n" for line in said))
    sys.stdout.flush()


children = []
for index in range(processes):
    child = os.fork()
    if child == 0:
        process(threads if index == 0 else 1)
        os._exit(0)
    children.append(child)
print("ready", flush=True)
for child in children:
    os.waitpid(child, 0)
