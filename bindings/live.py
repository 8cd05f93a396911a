# SPDX-License-Identifier: MIT
"""live.py - what the tests of all bindings share: a real root, and quotas in
which every answer can be foretold."""

import os
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ["WEIR_SOURCE"])
BUILD = Path(os.environ["WEIR_BUILD"])
HERE = SOURCE / "bindings"
sys.path.insert(0, str(SOURCE / "test"))
from live_fleet import Fleet  # noqa: E402

# What leaks in an hour isn't seen by a test; local, so that nobody else's
# count is waited for.
HOURLY = ["limit=3/h", "low_burst=3", "high_burst=3", "sharing=local"]
QUOTAS = {
    "three": HOURLY,
    "each/*": HOURLY,
    # One at a time: the second waits for 20 ms.
    "slow": ["limit=50/s", "low_burst=1", "high_burst=1", "sharing=local"],
    "two": ["kind=concurrency", "limit=2", "sharing=local"],
    "hello": ["limit=3/s"],
    "db": ["kind=concurrency", "limit=2"],
}


class Rooted(unittest.TestCase):
    """Tests beside a root of their class."""

    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet()
        cls.addClassCleanup(cls.fleet.close)
        cls.fleet.add_roots(1)
        for name, fields in QUOTAS.items():
            cls.fleet.set(name, *fields)
        cls.roots = cls.fleet.addresses()
