# SPDX-License-Identifier: MIT
"""live.py - common to the tests of all bindings: a real root, quotas with
predictable answers, and programs that are built once."""

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(os.environ["WEIR_SOURCE"])
BUILD = Path(os.environ["WEIR_BUILD"])
HERE = SOURCE / "bindings"
sys.path.insert(0, str(SOURCE / "test/live"))
from live_fleet import Fleet  # noqa: E402

BUILT = BUILD / "bindings" / "built"
KEPT = 86400  # seconds, from the last use of a built folder
# The leak of an hour is invisible to a test; local, so that the test needn't
# wait for other limiters' counts.
THREE = ["limit=3/h", "low_burst=3", "high_burst=3"]
HOURLY = [*THREE, "sharing=local"]
QUOTAS = {
    "three": HOURLY,
    "each/*": HOURLY,
    # One at a time: the second waits for 20 ms.
    "slow": ["limit=50/s", "low_burst=1", "high_burst=1", "sharing=local"],
    "two": ["kind=concurrency", "limit=2", "sharing=local"],
    "hello": THREE,
    "db": ["kind=concurrency", "limit=2"],
}


@functools.cache
def shared_fleet():
    """One root for all classes of a file: each limiter counts a local quota
    for itself."""
    fleet = Fleet()
    atexit.register(fleet.close)
    fleet.add_roots(1)
    for name, fields in QUOTAS.items():
        fleet.set(name, *fields)
    return fleet


class Rooted(unittest.TestCase):
    """Tests beside the root of this file."""

    @classmethod
    def setUpClass(cls):
        cls.fleet = shared_fleet()
        cls.roots = cls.fleet.addresses()


def run(*command, **more):
    """A compiler's output; an AssertionError with all of it if it fails."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status "
                             f"{done.returncode}\n{done.stdout}")
    return done.stdout


def key_of(sources, more):
    """Of the bytes of files, and of 'more', on which the result depends."""
    key = hashlib.sha256("\0".join(map(str, more)).encode())
    for path in sorted(sources):
        data = path.read_bytes()
        key.update(f"\0{path.relative_to(SOURCE)} {len(data)}\0".encode())
        key.update(data)
    return key.hexdigest()[:16]


def built(name, sources, more, make):
    """A folder that make(folder) has filled, once for these sources: the next
    test of the same build folder finds it, and a test that runs at the same
    time waits. 'more': the compiler's version, its options."""
    BUILT.mkdir(parents=True, exist_ok=True)
    folder = BUILT / f"{name}-{key_of(sources, more)}"
    with open(BUILT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            remove_old(name)
            making = Path(tempfile.mkdtemp(prefix="making-", dir=BUILT))
            try:
                make(making)
                making.rename(folder)
            finally:
                shutil.rmtree(making, ignore_errors=True)
        os.utime(folder)
    return folder


def remove_old(name):
    """Removes folders unused for a day; other tests may use the rest."""
    for old in BUILT.glob(f"{name}-*"):
        if time.time() - old.stat().st_mtime > KEPT:
            shutil.rmtree(old)
