#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_rows.py - rows that another program wrote into the store: the root
serves all others, names the bad ones, and an edit heals them."""

import json
import re
import sqlite3
import subprocess
import unittest
import urllib.error

from live_fleet import Fleet
from live_roots import say
from patience import until
from postgres import Postgres

# name -> fields that aren't readable
BAD = {
    "no_lines": "damaged",
    "no_algorithm": "limit: 5/s\nalgorithm: leakiest\n",
    "newer": "limit: 5/s\ncolour: red\n",
    "long" * 75: "limit: 5/s\n",
}
# name -> fields whose parents are of no use
ODD = {
    "orphan": "parent: nobody\nlimit: 5/s\n",
    "own_parent": "parent: own_parent\nlimit: 5/s\n",
}


class Case(unittest.TestCase):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.make_store()

    def add_root(self, *options):
        self.fleet.add_roots(1, *(options or ("--snapshot", "off")))
        return self.fleet.roots[-1]

    def bad_rows(self, root):
        return root.status()["store"].get("bad_rows", {"count": 0, "rows": []})

    def write(self, rows):
        """Rows behind the root's back, each with an epoch of its own."""
        for name, fields in rows.items():
            self.sql(f"UPDATE {self.META} SET epoch = epoch + 1, "
                     "last_id = last_id + 1",
                     f"INSERT INTO {self.QUOTAS} (id, epoch, created, name, "
                     f"fields) SELECT last_id, epoch, epoch, '{name}', "
                     f"'{fields}' FROM {self.META}")

    def insert(self, number, epoch, name):
        """A row whose numbers the store's meta row doesn't know."""
        self.sql(f"INSERT INTO {self.QUOTAS} (id, epoch, created, name, fields)"
                 f" VALUES ({number}, {epoch}, 1, '{name}', 'limit: 7/s\n')")

    def limit(self, root, name):
        """None: there is none, or the root isn't ready yet."""
        try:
            root.read("/readyz")
        except urllib.error.HTTPError:
            return None
        for quota in json.loads(root.read("/v1/quotas", limit=100))["quotas"]:
            if quota["name"] == name:
                return quota["limit"]
        return None

    def test_the_others_are_served(self):
        first = self.add_root()
        self.fleet.set("early", "limit=3/s")
        first.kill()
        self.fleet.roots.pop()
        self.write(BAD | ODD)
        root = self.add_root()
        self.fleet.set("late", "limit=4/s")
        bad = self.bad_rows(root)
        self.assertEqual(bad["count"], len(BAD))
        self.assertEqual({row["name"][:6] for row in bad["rows"]},
                         {f"'{name}"[:6] for name in BAD})
        for row in bad["rows"]:
            self.assertFalse(row["kept"])
            say(f"{row['name'][:20]}: {row['problem']}")
        for name in "early", "late", "orphan":
            self.assertIsNotNone(self.limit(root, name), name)
        self.assertRegex(root.read("/readyz"), "^ready, .*: 4; ")
        self.assertIn(f"weir_store_bad_rows {len(BAD)}\n",
                      root.read("/metrics"))
        shown = self.fleet.weir("status")[1]
        self.assertRegex(shown, r"BAD ROWS +4 (.*\n)+ +'no_lines' \(id \d+\)"
                                ", not served: ")
        self.assertRegex(root.logged(), "row of quota 'no_lines' .*is bad, and "
                                        "isn't served")
        # A limiter has the others, whatever their parents are.
        status, said, _ = self.fleet.weir("take", "late", "--timeout=60s")
        self.assertEqual((status, said), (0, "passed\n"))
        for name in ODD:
            self.assertEqual(self.fleet.weir("take", name, "--timeout=60s")[0],
                             0, name)
        # An edit replaces a bad row.
        self.fleet.set("no_lines", "limit=9/s")
        self.assertEqual(self.limit(root, "no_lines"), "9/s")
        self.assertEqual(self.bad_rows(root)["count"], len(BAD) - 1)
        root.kill()
        root.start()
        until("the store", lambda: self.limit(root, "no_lines") == "9/s")
        self.assertEqual(self.bad_rows(root)["count"], len(BAD) - 1)

    def test_numbers_of_another_program(self):
        """Rows with ids and epochs that no edit gave them."""
        root = self.add_root()
        self.fleet.set("early", "limit=3/s")
        root.kill()
        self.insert(0, 1000, "zero")
        self.insert(50, 1001, "ahead")
        self.insert(60, 0, "never")
        self.insert(61, 2**63 - 1, "endless")
        root.start()
        until("the store", lambda: self.limit(root, "early") == "3/s")
        bad = self.bad_rows(root)
        self.assertEqual({row["name"].split("'")[1] for row in bad["rows"]},
                         {"never", "endless"})
        # New quotas take no row's place.
        for i in range(60):
            self.fleet.set(f"late{i}", "limit=4/s")
        self.fleet.set("ahead", "limit=8/s")
        root.kill()
        root.start()
        until("the store", lambda: self.limit(root, "late59") == "4/s")
        for name, limit in {"early": "3/s", "zero": "7/s", "ahead": "8/s",
                            "late0": "4/s"}.items():
            self.assertEqual(self.limit(root, name), limit, name)
        self.assertEqual(self.bad_rows(root)["count"], 2)
        self.fleet.set("endless", "limit=9/s")
        self.assertEqual(self.limit(root, "endless"), "9/s")
        self.assertEqual(self.bad_rows(root)["count"], 1)
        self.assertNotIn("lacks", root.logged())

    def test_a_log_that_an_operator_edits(self):
        """Entries without editors, or deleted, are no lost edits."""
        root = self.add_root()
        self.fleet.set("turns", "limit=3/s")
        for statement in (f"UPDATE {self.LOG} SET who = 'nobody'",
                          f"DELETE FROM {self.LOG}"):
            self.sql(statement)
            self.fleet.set("turns", "limit=4/s")
            self.fleet.set("turns", "limit=3/s")
            self.assertEqual(self.limit(root, "turns"), "3/s")
        root.kill()
        self.sql(f"DELETE FROM {self.LOG}")
        root.start()
        until("the store", lambda: self.limit(root, "turns") == "3/s")
        self.assertEqual(root.status()["store"]["restores"], 0)
        self.assertNotIn("lacks", root.logged())

    def test_a_good_value_is_kept(self):
        root = self.add_root()
        self.fleet.set("turns", "limit=3/s")
        self.fleet.set("stays", "limit=3/s")
        self.sql(f"UPDATE {self.META} SET epoch = epoch + 1",
                 f"UPDATE {self.QUOTAS} SET fields = 'damaged', epoch = (SELECT"
                 f" epoch FROM {self.META}) WHERE name = 'turns'")
        until("the bad row", lambda: self.bad_rows(root)["count"] == 1)
        self.assertTrue(self.bad_rows(root)["rows"][0]["kept"])
        self.assertEqual(self.limit(root, "turns"), "3/s")
        # Also when the whole set is read anew.
        self.assertEqual(self.fleet.weir("store", "restored",
                                         self.fleet.store)[0], 0)
        until("another identity", lambda:
              root.status()["store"]["restores"] == 1)
        self.assertEqual(self.limit(root, "turns"), "3/s")
        self.assertEqual(self.bad_rows(root)["count"], 1)
        self.fleet.set("turns", "limit=8/s")
        self.assertEqual(self.limit(root, "turns"), "8/s")
        self.assertEqual(self.bad_rows(root)["count"], 0)
        self.assertEqual(root.read("/readyz"), "ready\n")
        self.assertTrue(re.search("'turns' .*last good value is served",
                                  root.logged()))


class Sqlite(Case):
    META, QUOTAS, LOG = "meta", "quotas", "log"

    def make_store(self):
        pass

    def sql(self, *statements):
        """One transaction: a root that read the new epoch without the row
        would never read the row."""
        store = sqlite3.connect(self.fleet.db, timeout=60)
        with store:
            for statement in statements:
                store.execute(statement)
        store.close()


class Server(Case):
    META, QUOTAS = "weir.weir_meta", "weir.weir_quotas"
    LOG = "weir.weir_log"

    @classmethod
    def setUpClass(cls):
        cls.server = Postgres()
        cls.addClassCleanup(cls.server.close)
        cls.server.start()

    def make_store(self):
        self.fleet.store = self.server.new_database()
        self.assertEqual(self.fleet.weir("store", "init",
                                         self.fleet.store)[0], 0)

    def sql(self, *statements):
        """One transaction: psql sends one command's statements at once."""
        subprocess.run([self.server.bin / "psql", "--no-psqlrc", "--quiet",
                        "--dbname", self.fleet.store,
                        "--command", "; ".join(statements)],
                       check=True)


del Case

if __name__ == "__main__":
    unittest.main(verbosity=2)
