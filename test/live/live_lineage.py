#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lineage.py - a store whose history was replaced: a PostgreSQL failover
that lost commits, an SQLite file set back to an older copy. In both, edits that
the old history doesn't have bring the epoch beyond that of the lost edits, so
that the epoch alone shows nothing.

A root that had the lost edits and was away meanwhile, the root that made the
later edits, and a limiter of both end with the store's set."""

import os
import re
import signal
import sqlite3
import unittest

from live_fleet import Fleet
from live_roots import PART, SMALL, rest, say
from patience import until, until_equal
from postgres import Postgres

LOST = 4    # edits that the old copy doesn't have
LATER = 7   # edits after it was put in place: more than were lost


class Case(unittest.TestCase):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.make_store()

    def add_root(self):
        name = f"root{len(self.fleet.roots)}.snapshot"
        self.fleet.add_roots(1, "--snapshot", str(self.fleet.folder / name))
        return self.fleet.roots[-1]

    def export(self, root):
        return self.fleet.weir("quota", "export", root=root)[1]

    def epoch(self, root):
        return root.status()["epoch"]

    def lose_edits(self, root):
        """Makes edits at 'root', of which the saved copy lacks the last four:
        a changed quota, a new one, a removal, another new one."""
        for name, limit in ("q", 3000), ("gone", 1000):
            self.fleet.set(name, f"limit={limit}/s", *SMALL, root=root)
        self.save()
        until("the store", lambda: root.status()["store"]["state"] == "ok")
        self.fleet.set("q", "limit=100/s", root=root)
        self.fleet.set("lost", "limit=500/s", *SMALL, root=root)
        self.fleet.weir("quota", "rm", "gone", root=root)
        self.fleet.set("lost_too", "limit=7/s", root=root)

    def edit_on(self, root):
        """The first edit has the epoch of the first lost one, and is of the
        same quota."""
        self.fleet.set("q", "limit=2500/s", root=root)
        for i in range(LATER):
            self.fleet.set(f"later{i}", "limit=5/s", root=root)

    def assert_agreed(self, away, other):
        """Both have the store's set, and only the root that had the lost edits
        warns, with their number."""
        until("the same set at both", lambda: self.epoch(away) ==
              self.epoch(other) and self.export(away) == self.export(other))
        listed = self.export(away)
        self.assertNotIn("lost", listed)
        self.assertIn("name: gone", listed)
        self.assertIn(f"later{LATER - 1}", listed)
        warned = until("a warning", lambda: re.search(
            r".*lacks (at least )?\d+ .*", away.logged()))
        say(warned.group())
        self.assertNotIn("lacks", other.logged())

    def test_a_root_that_was_away(self):
        """Stopped while the store went back and on."""
        away = self.add_root()
        self.lose_edits(away)
        limiter = self.fleet.add_limiter(["q=6000", "lost=2000", "gone=3000"])
        self.fleet.until_rates({"q": 100, "lost": 500, "gone": 3000}, PART)
        away.process.send_signal(signal.SIGSTOP)
        self.go_back()
        other = self.add_root()
        self.edit_on(other)
        away.process.send_signal(signal.SIGCONT)
        self.assert_agreed(away, other)
        self.assertRegex(away.logged(), f"lacks {LOST} edits")
        both = self.fleet.add_limiter(["q=6000", "lost=2000", "gone=3000"])
        for each in limiter, both:
            until("the store's epoch", lambda: each.seen() and
                  each.seen()["epoch"] == self.epoch(other))
        self.fleet.until_rates({"q": 2500, "lost": 4000, "gone": 1000}, PART)
        rest([limiter, both])

    def test_a_limiter_of_both(self):
        """It has the lost edits from the one root when the other comes."""
        away = self.add_root()
        self.lose_edits(away)
        other = self.add_root()
        until_equal("the epoch", self.epoch(away), lambda: self.epoch(other))
        limiter = self.fleet.add_limiter(["q=6000", "lost=2000", "gone=3000"])
        self.fleet.wait_linked(2)
        self.fleet.until_rates({"q": 100, "lost": 500, "gone": 3000}, PART)
        for root in away, other:
            root.process.send_signal(signal.SIGSTOP)
        self.go_back()
        third = self.add_root()
        self.edit_on(third)
        third.kill()
        self.fleet.roots.pop()
        for root in away, other:
            root.process.send_signal(signal.SIGCONT)
        until("the same set at both", lambda: "later" in self.export(away) and
              self.export(away) == self.export(other))
        self.fleet.wait_linked(2)
        self.fleet.until_rates({"q": 2500, "lost": 2000, "gone": 1000}, PART)
        self.assertEqual(limiter.seen()["epoch"], self.epoch(other))
        for root in away, other:
            self.assertRegex(root.logged(), f"lacks {LOST} edits")
            self.assertEqual(root.status()["store"]["restores"], 1)

    def test_from_a_snapshot(self):
        """Dead while the store went back and on: its snapshot has the lineage
        of its last edit."""
        away = self.add_root()
        self.lose_edits(away)
        epoch = self.epoch(away)
        away.kill()
        away.start()
        until_equal("the snapshot's epoch", epoch,
                    lambda: away.status()["snapshot"].get("epoch"))
        away.kill()
        self.go_back()
        other = self.add_root()
        self.edit_on(other)
        away.start()
        self.assert_agreed(away, other)

    def test_a_store_that_kept_its_history(self):
        """No warning where nothing was lost."""
        away = self.add_root()
        self.lose_edits(away)
        away.process.send_signal(signal.SIGSTOP)
        other = self.add_root()
        self.edit_on(other)
        away.process.send_signal(signal.SIGCONT)
        until("the same set at both",
              lambda: self.export(away) == self.export(other))
        away.kill()
        away.start()
        until("the same set at both",
              lambda: self.export(away) == self.export(other))
        self.assertNotIn("lacks", away.logged() + other.logged())
        self.assertEqual(away.status()["store"]["restores"], 0)


class Sqlite(Case):
    def make_store(self):
        self.old = self.fleet.folder / "old.db"

    def save(self):
        copy = sqlite3.connect(self.old)
        with copy, sqlite3.connect(self.fleet.db) as store:
            store.backup(copy)
        store.close()
        copy.close()

    def go_back(self):
        for end in "-wal", "-shm":
            if os.path.exists(f"{self.fleet.db}{end}"):
                os.rename(f"{self.fleet.db}{end}",
                          f"{self.fleet.folder}/lost{end}")
        os.rename(self.old, self.fleet.db)


class Failover(Case):
    """The server's folder is set back to a copy."""

    @classmethod
    def setUpClass(cls):
        cls.server = Postgres()
        cls.addClassCleanup(cls.server.close)
        cls.server.start()

    def make_store(self):
        self.fleet.store = self.server.new_database()
        self.assertEqual(self.fleet.weir("store", "init",
                                         self.fleet.store)[0], 0)

    def save(self):
        self.server.stop()
        self.server.save()
        self.server.start()

    def go_back(self):
        self.server.kill()
        self.server.go_back()
        self.server.start()


del Case

if __name__ == "__main__":
    unittest.main(verbosity=2)
