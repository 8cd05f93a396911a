#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_debt.py - a limiter with false reports, beside `weir take` and a real
root: the limit passes again within max_debt, the root names the limiter, and
`weir quota reset` empties a bucket that would drain for days."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from live_cli import Case, Root
from patience import PATIENCE, until

LIAR = str(Path(os.environ["WEIR_BUILD"]) / "test" / "live_liar")
LIES = (str(2**62), str(2**63 - 1), str(-2**63), str(2**62))


class Debt(Case):
    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.root = Root(self, store=self.store)

    def lie(self, quota):
        said = subprocess.run([LIAR, self.root.address, quota, *LIES],
                              capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual(said.stdout, "told\n", said.stderr)

    def passes(self, quota):
        return self.run_weir("take", quota, root=self.root).status == 0

    def test_the_limit_passes_again(self):
        self.ok("quota", "set", "api", "limit=100/s", "max_debt=2s",
                root=self.root)
        self.lie("api")
        until("the limit passes again", lambda: self.passes("api"))
        until("the log names it", lambda: "limiter 'liar' reported" in
              self.root.logged())
        self.assertEqual(self.root.logged().count("limiter 'liar'"), 1)

    def test_a_reset_empties_it(self):
        """With ten units a day the bucket would stay full for days."""
        self.ok("quota", "set", "day", "limit=10/day", "high_burst=5",
                root=self.root)
        self.lie("day")
        self.assertFalse(self.passes("day"))
        self.assertIn("reset 1", self.ok("quota", "reset", "day",
                                         root=self.root))
        until("the quota passes", lambda: self.passes("day"))
        shown = self.ok("quota", "log", "day", root=self.root)
        self.assertRegex(shown.splitlines()[1], r"day +reset$")
        log = json.loads(self.ok("quota", "log", "day", "--json",
                                 root=self.root))
        self.assertEqual([entry["reset"] for entry in log], [True, False])
        self.fails("nothing to undo", "quota", "undo",
                   str(log[0]["epoch"]), root=self.root)
        self.fails("there is no quota 'week'", "quota", "reset", "day",
                   "week", root=self.root)


if __name__ == "__main__":
    unittest.main(verbosity=1)
