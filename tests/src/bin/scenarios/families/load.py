"""Busy tasks, some of which hardly get to run, open a file for a while: prints how often they got it, and of how many times.

load.py FILE SECONDS TASKS
"""

import os
import sys
import time


def opens(path, until):
    got = tries = 0
    while time.monotonic() < until:
        tries += 1
        try:
            os.close(os.open(path, os.O_RDONLY))
            got += 1
        except PermissionError:
            pass
    return got, tries


path, seconds, tasks = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
until = time.monotonic() + seconds
reader, writer = os.pipe()
for task in range(tasks):
    if os.fork() == 0:
        os.nice(2 * task)
        os.write(writer, b"%d %d\n" % opens(path, until))
        os._exit(0)
os.close(writer)
counts = [int(word) for word in os.fdopen(reader).read().split()]
print("got", sum(counts[::2]), "of", sum(counts[1::2]))
