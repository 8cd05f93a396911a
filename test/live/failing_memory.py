# SPDX-License-Identifier: MIT
"""failing_memory.py - processes in which allocations fail when a test says so
(failing_memory.c), and where they failed."""

import collections
import mmap
import os
import re
import struct
import subprocess
from pathlib import Path

LIBRARY = Path(os.environ["WEIR_BUILD"]) / "test" / "libfailing_memory.so"
SITES, FRAMES = 256, 16  # as in failing_memory.c
HEAD = struct.Struct("=4Q")
SITE = struct.Struct(f"={FRAMES}Q")
FROM, EVERY, COUNT, FAILED = range(4)


class FailingMemory:
    """The control file of one process: put env() into its environment."""

    def __init__(self, path):
        self.path = str(path)
        with open(path, "w+b") as file:
            file.truncate(HEAD.size + SITES * SITE.size)
            self.memory = mmap.mmap(file.fileno(), 0)

    def env(self, env=None):
        """An environment in which the process obeys this file."""
        env = dict(env or os.environ)
        preload = f"{env.get('LD_PRELOAD', '')} {LIBRARY}".strip()
        # With a sanitizer: its own library may be the second in the list.
        options = f"{env.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"
        return env | {"LD_PRELOAD": preload, "ASAN_OPTIONS": options,
                      "WEIR_FAILING_MEMORY": self.path}

    def get(self, index):
        return struct.unpack_from("=Q", self.memory, 8 * index)[0]

    def put(self, index, value):
        struct.pack_into("=Q", self.memory, 8 * index, value)

    def fail(self, first, every=0):
        """From now on the allocation number 'first' fails, and each 'every'-th
        after it."""
        self.put(FROM, 0)
        for index, value in (EVERY, every), (COUNT, 0), (FAILED, 0), \
                (FROM, first):
            self.put(index, value)

    def stop(self):
        """No allocation fails any longer; returns how many have."""
        self.put(FROM, 0)
        return self.get(FAILED)

    def close(self):
        self.memory.close()
        os.unlink(self.path)

    def sites(self):
        """The return addresses of the last failures, newest last."""
        last = self.get(FAILED)
        found = []
        for number in range(max(0, last - SITES), last):
            frames = SITE.unpack_from(self.memory, HEAD.size +
                                      number % SITES * SITE.size)
            found.append([frame for frame in frames if frame])
        return found


def read_map(pid):
    """[(start, end, offset, path)] of the code of a process."""
    mapped = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = re.match(r"(\w+)-(\w+) ..x. (\w+) \S+ \S+ +(/.*)", line)
        if match:
            mapped.append((*(int(part, 16) for part in match.groups()[:3]),
                           match[4]))
    return mapped


def describe(mapped, frames):
    """The functions of these addresses, innermost first."""
    wanted = collections.defaultdict(list)
    for frame in frames:
        for start, end, offset, path in mapped:
            if start <= frame < end:
                # Return addresses: the call is before them. Code is mapped as
                # it lies in the file, but for a difference of whole pages.
                wanted[path].append((frame, frame - start + offset - 1))
    names = {}
    for path, places in wanted.items():
        done = subprocess.run(
            ["addr2line", "-f", "-s", "-e", path,
             *(hex(shift(path) + place) for _, place in places)],
            text=True, capture_output=True, check=True).stdout.split("\n")
        for (frame, _), function, line in zip(places, done[::2], done[1::2]):
            names[frame] = function if line.startswith("?") else \
                f"{function} {line}"
            if function == "??":
                names[frame] = Path(path).name
    return " < ".join(names.get(frame, "?") for frame in frames[1:])


def shift(path):
    """The difference of address and offset of a file's code."""
    said = subprocess.run(["readelf", "-lW", path], text=True,
                          capture_output=True, check=True).stdout
    for line in said.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in words[6:-1]:
            return int(words[2], 16) - int(words[1], 16)
    return 0
