#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_fields.py - fields that only some quotas have, by the command line: set,
shown, exported, read back, refused; and the examples of the manual."""

import json
import unittest
from pathlib import Path

from live_cli import Case, Root

SOURCE = Path(__file__).resolve().parents[2]


class Fields(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())

    def test_set_the_fields_of_algorithms(self):
        self.assertIn("order=3", self.ok("quota", "set", "a/*", "order=3",
                                         root=self.root))
        self.assertIn("count_limited=yes", self.ok(
            "quota", "set", "mail", "algorithm=fixed_window", "sharing=local",
            "limit=1000/month", "window=month", "tz=+01:00",
            "count_limited=yes", root=self.root))
        shown = self.ok("quota", "get", "mail", root=self.root)
        self.assertRegex(shown, "window +month")
        self.assertRegex(shown, "count_limited +yes")
        self.assertNotIn("high_burst", shown)
        self.assertNotIn("store", shown)
        self.assertEqual(
            self.ok("quota", "export", root=self.root).split("- name: ")[2],
            "mail\n  limit: 1000/30d\n  algorithm: fixed_window\n"
            "  window: month\n  tz: \"+01:00\"\n  count_limited: yes\n"
            "  sharing: local\n")
        self.fails("leave it out", "quota", "set", "mail", "algorithm=leaky",
                   root=self.root)
        self.ok("quota", "set", "mail", "algorithm=leaky", "window=", "tz=",
                "count_limited=", root=self.root)
        self.assertRegex(self.ok("quota", "log", root=self.root),
                         "algorithm fixed_window -> leaky, window month -> "
                         "none")

    def test_set_the_debt_of_a_counted_quota(self):
        self.ok("quota", "set", "api/*", "limit=100/s", "max_debt=5min",
                root=self.root)
        self.ok("quota", "set", "web", "limit=100/s", root=self.root)
        self.assertRegex(self.ok("quota", "get", "api/*", root=self.root),
                         "max_debt +5min")
        self.assertRegex(self.ok("quota", "get", "web", root=self.root),
                         "max_debt +1min")
        quota = json.loads(self.ok("quota", "get", "api/*", "--json",
                                   root=self.root))
        self.assertEqual(quota["max_debt"], "5min")
        self.assertIn("- name: api/*\n  limit: 100/s\n  max_debt: 5min\n",
                      self.ok("quota", "export", root=self.root)
                      .replace('"', ""))
        self.fails("write it as max_debt=60s", "quota", "set", "web",
                   "max_debt=1ms", root=self.root)
        self.fails("max_debt goes with sharing=counted and kind=rate only",
                   "quota", "set", "api/*", "sharing=local", root=self.root)

    def test_set_the_fields_of_leases(self):
        self.ok("quota", "set", "db", "limit=500/s", "sharing=leased",
                "lease=20s", "safe_capacity=0.5/s", "priority=-7",
                "decay_factor=0.5", "learning=0s", root=self.root)
        shown = self.ok("quota", "get", "db", root=self.root)
        self.assertRegex(shown, "refresh +5s")
        self.assertRegex(shown, "share_algorithm +fair_share")
        self.assertRegex(shown, "safe_capacity +1/2s")
        quota = json.loads(self.ok("quota", "get", "db", "--json",
                                   root=self.root))
        self.assertEqual((quota["priority"], quota["learning"],
                          quota["decay_factor"]), (-7, "0s", "0.5"))
        exported = self.ok("quota", "export", root=self.root)
        self.assertIn("- name: db\n  limit: 500/s\n  sharing: leased\n"
                      "  safe_capacity: 1/2s\n  lease: 20s\n"
                      "  learning: 0s\n  priority: -7\n"
                      "  decay_factor: 0.5\n", exported)
        # The refusal names an edit, and that edit is accepted.
        result = self.run_weir("quota", "set", "db", "sharing=counted",
                               root=self.root)
        self.assertNotEqual(result.status, 0)
        words = result.err.split("as by ")[1].split()
        self.assertEqual(words, ["sharing=counted", "safe_capacity=",
                                 "lease=", "learning=", "priority=",
                                 "decay_factor="])
        self.ok("quota", "set", "db", *words, root=self.root)
        self.assertNotIn("lease", self.ok("quota", "get", "db",
                                          root=self.root))
        self.ok("quota", "import", "-", root=self.root, stdin=exported)
        self.assertEqual(self.ok("quota", "export", root=self.root), exported)
        self.ok("quota", "set", "db/[0-9]", "glob=path", "limit=5/s",
                "parent=db", root=self.root)
        self.fails("has none; name one quota", "quota", "set", "db/[0-9]",
                   "parent=x{1}", root=self.root)

    def test_set_the_scope_of_an_adaptive_limit(self):
        self.ok("quota", "set", "db", "kind=concurrency", "sharing=adaptive",
                "max=40", root=self.root)
        self.assertRegex(self.ok("quota", "get", "db", root=self.root),
                         "scope +process")
        self.assertNotIn("scope", self.ok("quota", "export", root=self.root))
        self.assertIn("scope=fleet", self.ok("quota", "set", "db",
                                             "scope=fleet", root=self.root))
        self.assertRegex(self.ok("quota", "get", "db", root=self.root),
                         "scope +fleet")
        exported = self.ok("quota", "export", root=self.root)
        self.assertIn("- name: db\n  kind: concurrency\n  sharing: adaptive\n"
                      "  scope: fleet\n  max: 40\n", exported)
        self.fails("scope can't be 'region'; it is one of process, fleet",
                   "quota", "set", "db", "scope=region", root=self.root)
        self.fails("fleet_min 50 is above max 40; raise max or lower fleet_min",
                   "quota", "set", "db", "fleet_min=50", root=self.root)
        # The refusals name edits, and those are accepted.
        for edit, needs in (("controller=vegas", ["scope="]),
                            ("sharing=local", ["scope=", "max="])):
            result = self.run_weir("quota", "set", "db", edit, root=self.root)
            self.assertIn("scope goes with sharing=adaptive and "
                          "controller=target only", result.err)
            words = result.err.split("as by ")[1].split()
            self.assertEqual(words, [edit, *needs])
            self.ok("quota", "set", "db", *words, root=self.root)
            self.assertNotIn("scope", self.ok("quota", "export",
                                              root=self.root))
            self.ok("quota", "import", "-", root=self.root, stdin=exported)
            self.assertEqual(self.ok("quota", "export", root=self.root),
                             exported)
        self.assertIn("scope process -> fleet",
                      self.ok("quota", "log", root=self.root))

    def test_the_examples_of_the_manual_are_taken(self):
        page = (SOURCE / "man/weir-quota.5").read_text(encoding="utf-8")
        examples = [block.split(".Ed")[0] for block in
                    page.split(".Bd -literal -offset indent\n")[1:]]
        files = [text for text in examples if text.startswith("weir: 1")]
        lists = [text for text in examples if "algorithm:" in text]
        self.assertEqual((len(files), len(lists)), (1, 1))
        for text in files + ["weir: 1\nquotas:\n" + lists[0]]:
            self.ok("quota", "import", "-", root=self.root, stdin=text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
