#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease_mixed.py - a mixed fleet, among processes: limiters of libweir,
which hold a stream, and clients of Doorman's, which ask at their pace, all of
one quota, from two servers of which a lock on a file makes one the master. It
is killed, and later the next one.

Doorman's clients keep no roll, so each next master learns by time. Until it has
learned, all keep what they have, and a limiter that comes gets what they give
up. As in live_lease_tree.py the sum of all is judged afterwards: it is never
over the capacity, whichever master told them."""

import time
import unittest

import live_grants
from live_grants import Client, Judged, granted, has_learned, master

CAPACITY = 1000
LEASE = 2       # seconds; the next master learns for 5 more and a refresh
CLIENTS = 6     # of Doorman's
WANTS = 50      # by each of them
OFFERED = CAPACITY  # units a second, by each limiter: it wants all


class Asking(live_grants.Asking):
    """Clients of Doorman's that go to the master that they are told of."""

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
        """All have something by what they were told after the kill, while the
        next master still learns; whether it has learned is asked last."""
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
        self.until("all have something of the next master", kept_or_learned)
        self.assertTrue(kept[0], "nothing was kept: " + self.tell())

    def kill_master(self):
        """The master is killed, and a limiter comes while the next one learns.
        Returns the killed one when all is as it should be."""
        first = self.until("a master", lambda: master(self.fleet.roots))
        first.kill()
        killed = time.monotonic()
        left = [root for root in self.fleet.roots if root is not first]
        second = self.until("the next master", lambda: master(left))
        self.kept_while_learning(second, killed)
        self.add_limiter(OFFERED)
        self.until_fair("a limiter comes to the next master")
        self.until("it has learned", lambda: has_learned(second))
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
