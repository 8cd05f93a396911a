#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""side_by_side.py JOBS FILE - runs the tests of a file, some at a time.

A test of a fleet mostly waits: for a bucket to settle, for a mean over five
seconds. It has processes, ports and a folder of its own, and a fleet under
load takes a tenth of a processor (live_regions: 102 s by the clock, 15 s of
processor), so JOBS of them don't disturb each other. Each test is a process;
what one says is printed when it has ended, in one piece."""

import importlib
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def names(suite):
    """Class.method of every test."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from names(part)
        else:
            yield part.id().split(".", 1)[1]


def run(file, name):
    done = subprocess.run([sys.executable, file, "-v", name], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, file=sys.stderr, flush=True)
    return done.returncode


def main():
    jobs, file = int(sys.argv[1]), sys.argv[2]
    module = importlib.import_module(Path(file).stem)
    listed = list(names(unittest.defaultTestLoader.loadTestsFromModule(
        module)))
    with ThreadPoolExecutor(jobs) as pool:
        statuses = list(pool.map(lambda name: run(file, name), listed))
    sys.exit(1 if not listed or any(statuses) else 0)


if __name__ == "__main__":
    main()
