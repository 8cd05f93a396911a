#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease_mixed.py - a mixed fleet among processes: limiters of libweir,
which keep a stream open, and clients of Doorman's, which ask at their own pace,
for one quota, at two servers. A lock on a file makes one of them the master,
which is killed, and later the next one.

Doorman's clients keep no roster token, so each next master learns by time.
Until it has learned, all keep their grants, and a new limiter gets the units
that they give up. As in live_lease_tree.py the sum of all grants is checked
afterwards: it never exceeds the capacity, whichever master granted them."""

import time
import unittest

import live_grants
from live_grants import Client, Judged, granted, has_learned, master

CAPACITY = 1000
LEASE = 2       # seconds; the next master learns for 5 more and a refresh
CLIENTS = 6     # of Doorman's
WANTS = 50      # by each of them
OFFERED = CAPACITY  # units a second, by each limiter: each wants all


class Asking(live_grants.Asking):
    """Clients of Doorman's that follow an answer's mastership."""

    def __init__(self, roots, names, wants):
        super().__init__(roots[0], names, wants)
        self.addresses = [root.listen for root in roots]
        self.clients = [self.client] + [Client(address) for address in
                                        self.addresses[1:]]

    def ask(self, name):
        answer = super().ask(name)
        if answer.get("resources"):
            return
        at = self.clients.index(self.client)
        told = answer.get("master")
        at = self.addresses.index(told) if told in self.addresses \
            else (at + 1) % len(self.clients)
        self.client = self.clients[at]

    def end(self):
        super().end()
        for client in self.clients:
            if client is not self.client:
                client.end()


class Mixed(Judged):
    capacity = CAPACITY

    def setUp(self):
        super().setUp()
        self.fleet.add_roots(2, "--election",
                             f"file:{self.fleet.folder / 'lock'}")
        # The first master has no predecessor; those after it learn by time.
        self.set("0s")

    def set(self, learning):
        self.set_everywhere(f"limit={CAPACITY}/s", "sharing=leased",
                            "on_stale=limit", f"lease={LEASE}s",
                            "refresh=500ms", f"learning={learning}")

    def kept_while_learning(self, root, killed):
        """Waits until all have a grant from after the kill, while the next
        master still learns; whether it has learned is asked last."""
        def have():
            return all(limiter.seen()["at"] > killed and granted(limiter) > 0
                       for limiter in self.fleet.limiters) and \
                self.asking[0].least() > 0
        kept = [False]

        def kept_or_learned():
            has = have()
            learned = has_learned(root)
            kept[0] = kept[0] or has and not learned
            return kept[0] or learned
        self.until("all have a grant of the next master", kept_or_learned)
        self.assertTrue(kept[0], "nothing was kept: " + self.tell())

    def kill_master(self):
        """Kills the master, and starts a limiter while the next one learns.
        Returns the killed root once the parts are fair."""
        first = self.until("a master", lambda: master(self.fleet.roots))
        first.kill()
        killed = time.monotonic()
        left = [root for root in self.fleet.roots if root is not first]
        second = self.until("the next master", lambda: master(left))
        self.kept_while_learning(second, killed)
        self.add_limiter(OFFERED)
        self.until_fair("a limiter comes to the next master")
        self.until("learning is over", lambda: has_learned(second))
        return first

    def test_masters_are_killed(self):
        for _ in range(2):
            self.add_limiter(OFFERED)
        names = [f"old-{i}" for i in range(CLIENTS)]
        self.ask(Asking(self.fleet.roots, names, WANTS))
        self.until_fair("all begin")
        self.set("")
        killed = self.kill_master()
        killed.start()
        self.kill_master()
        self.until_fair("fair parts in the end")
        self.until_sampled()
        self.assert_never_over()
        self.assertEqual(self.fleet.failed(), 0)


if __name__ == "__main__":
    unittest.main()
