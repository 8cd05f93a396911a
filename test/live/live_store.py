#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_store.py - two roots beside a PostgreSQL server: edits at one root reach
the other; and both while the server is dead or frozen."""

import json
import re
import time
import unittest

from live_cli import Case, Root
from patience import until, until_equal
from postgres import PASSWORD, Postgres

LOOK = 1.0  # seconds: WEIR_STORE_LOOK_MS of server/store_thread.h
RUN = 5     # edits


class Shared(Case):
    """One server for all tests; each test has a database of its own, and leaves
    the server running."""

    @classmethod
    def setUpClass(cls):
        cls.server = Postgres()
        cls.addClassCleanup(cls.server.close)
        cls.server.start()

    def setUp(self):
        super().setUp()
        url = self.server.new_database()
        self.ok("store", "init", url)
        self.roots_here = [Root(self, store=url) for _ in range(2)]
        self.addCleanup(self.bring_back)

    def bring_back(self):
        if not self.server.process:
            self.server.start()

    def limit(self, root, name):
        status, text = root.get(f"/v1/quotas/{name}")
        return json.loads(text)["limit"] if status == 200 else None

    def set(self, root, limit):
        status, text = root.get("/v1/quotas/a", "PUT",
                                json.dumps({"limit": limit}))
        self.assertIn(status, (200, 201), text)

    def edit_and_see(self, one, two, limits):
        """Makes edits at one root, each when the other has the one before;
        returns the seconds that took."""
        begin = time.monotonic()
        for limit in limits:
            self.set(one, f"{limit}/s")
            until_equal("the edit at the other root", f"{limit}/s",
                        lambda: self.limit(two, "a"))
        return time.monotonic() - begin

    def test_an_edit_reaches_the_other_root(self):
        """By NOTIFY. A root without notifications reads the store each second,
        and sees edits that follow each other in different reads: five take at
        least four seconds. Five that arrive within a second were notified; how
        soon there are such five depends on the machine."""
        one, two = self.roots_here
        self.edit_and_see(one, two, [1])
        limits = iter(range(2, 1000000))
        for here, there in (one, two), (two, one):
            until("edits that are seen within a look", lambda: (
                self.edit_and_see(here, there, [next(limits) for _ in range(
                    RUN)]) < LOOK))

    def test_the_server_dies_and_comes_back(self):
        one, two = self.roots_here
        self.set(one, "5/s")
        until_equal("both", "5/s", lambda: self.limit(two, "a"))
        self.server.kill()
        until("trouble", lambda: "quota store" in one.logged() and
              "quota store" in two.logged())
        # Known quotas are still served, and an edit's error has the reason.
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
        until_equal("both again", "7/s", lambda: self.limit(one, "a"))
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
