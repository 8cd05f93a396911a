#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_store.py - two roots beside a PostgreSQL server: what one is told the
other knows, and what both do while the server is dead, or frozen."""

import json
import re
import sys
import time
import unittest

from live_cli import Case, Root, until
from postgres import PASSWORD, Postgres

LOOK = 1.0  # seconds: WEIR_STORE_LOOK_MS of server/store_thread.h


class Shared(Case):
    def setUp(self):
        super().setUp()
        self.server = Postgres()
        self.addCleanup(self.server.close)
        self.server.start()
        self.ok("store", "init", self.server.url)
        self.roots_here = [Root(self, store=self.server.url)
                           for _ in range(2)]

    def limit(self, root, name):
        status, text = root.get(f"/v1/quotas/{name}")
        return json.loads(text)["limit"] if status == 200 else None

    def set(self, root, limit):
        self.ok("quota", "set", "a", f"limit={limit}", root=root)

    def test_an_edit_reaches_the_other_root(self):
        """By NOTIFY. A root that isn't notified looks by itself a second
        after it looked last, which was when it made the edit before: of 30
        edits hardly one would be seen within a quarter of that, and here half
        of them are. (No bound on how long it takes when all is well.)"""
        one, two = self.roots_here
        delays = []
        for i in range(1, 31):
            self.set(one, f"{i}/s")
            start = time.monotonic()
            until("the edit", lambda: self.limit(two, "a") == f"{i}/s")
            delays.append(time.monotonic() - start)
            one, two = two, one
        delays.sort()
        print(f"an edit is seen by the other root after "
              f"{1000 * delays[15]:.0f} ms (median), "
              f"{1000 * delays[-1]:.0f} ms (at most)", file=sys.stderr)
        self.assertLess(delays[15], LOOK / 4, "not by NOTIFY")

    def test_the_server_dies_and_comes_back(self):
        one, two = self.roots_here
        self.set(one, "5/s")
        until("both", lambda: self.limit(two, "a") == "5/s")
        self.server.kill()
        until("trouble", lambda: "quota store" in one.logged() and
              "quota store" in two.logged())
        # what is known goes on being served, and edits say why not
        self.assertEqual(self.limit(one, "a"), "5/s")
        self.ok("take", "a", root=two)
        said = self.fails("quota store", "quota", "set", "a", "limit=6/s",
                          root=one)
        self.assertNotIn(PASSWORD, said)
        self.server.start()

        def edited():
            return self.run_weir("quota", "set", "a", "limit=7/s",
                                 root=two).status == 0
        until("an edit", edited)
        until("both again", lambda: self.limit(one, "a") == "7/s")
        log = self.ok("quota", "log", root=one)
        self.assertIn("7/s", log)
        self.assertNotIn("6/s", log)

    def test_the_password_is_shown_nowhere(self):
        one, two = self.roots_here
        shown = f"postgres://weir:***@127.0.0.1:{self.server.port}"
        self.assertIn(shown, one.logged())
        self.assertIn(shown, self.ok("status", root=two))
        self.server.kill()
        until("trouble", lambda: re.search("store.*(lost|reach)",
                                           one.logged()))
        for text in (one.logged(), two.logged(), self.ok("status", root=one),
                     one.get("/v1/status")[1]):
            self.assertNotIn(PASSWORD, text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
