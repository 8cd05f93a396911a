#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease_mixed.py - a mixed fleet, among processes: limiters of libweir,
which hold a stream, and clients of Doorman's, which ask at their pace, all of
one quota, from two servers of which a lock on a file makes one the master. It
is killed, and later the next one.

Doorman's clients keep no roll, so each next master learns by time. Till then
everybody keeps what he has, and a limiter that comes gets what they give up. As
in live_lease_tree.py the sum of all is judged afterwards: it is never over the
capacity, whoever was told what by whom."""

import time
import unittest

import live_lease_tree
from live_doorman import Client
from live_fleet import Fleet, until
from live_lease_tree import BIN_MS, CAPACITY, FOLDER, WANTS, say

LEASE = 6  # seconds
CLIENTS = 6  # of Doorman's
OFFERED = CAPACITY  # units a second, by each limiter: it wants all


class Asking(live_lease_tree.Asking):
    """Clients of Doorman's that go to the master that they are told of."""

    def __init__(self, roots, names):
        super().__init__(roots[0], names)
        self.addresses = [root.listen for root in roots]
        self.clients = [self.client] + [
            Client(["/usr/bin/python3", FOLDER / "client.py"], address)
            for address in self.addresses[1:]]

    def ask(self, name):
        answer = super().ask(name)
        if answer.get("resources"):
            return
        at = self.clients.index(self.client)
        master = answer.get("master")
        at = self.addresses.index(master) if master in self.addresses \
            else (at + 1) % len(self.clients)
        self.client = self.clients[at]

    def end(self):
        super().end()
        for client in self.clients:
            if client is not self.client:
                client.end()


class Mixed(live_lease_tree.Judged):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(2, "--election",
                             f"file:{self.fleet.folder / 'lock'}")
        self.fleet.set("q", f"limit={CAPACITY}/s", "sharing=leased",
                       "on_stale=closed", f"lease={LEASE}s", "refresh=1s")

    def add_limiter(self):
        self.fleet.add_limiter([f"q={OFFERED}"], BIN_MS)
        self.fair = (CAPACITY - CLIENTS * WANTS) / len(self.fleet.limiters)

    def master(self, roots):
        return next((root for root in roots if "This <b>is</b> the master"
                     in root.read("/debug/status")), None)

    def kill_master(self):
        """The master is killed, and a limiter comes while the next one learns.
        Returns who was killed when all is as it should be."""
        first = until("a master", lambda: self.master(self.fleet.roots))
        began = time.monotonic()
        first.kill()
        left = [root for root in self.fleet.roots if root is not first]
        second = until("the next master", lambda: self.master(left))
        elected = time.monotonic()
        self.add_limiter()
        self.until_fair("a limiter comes to the next master")
        until("it has learned", lambda: "<td>false</td>" in
              second.read("/debug/resources"))
        now = time.monotonic()
        # What they had of late may be less than what they had just then.
        settled = began + 5 * BIN_MS / 1000
        least = min(had for _, had in self.sums(settled, now))
        say(f"elected {elected - began:.1f} s after the kill, learned after "
            f"{now - elected:.1f} s more; at least {least:.0f} of {CAPACITY} "
            "were out")
        self.assertGreater(least, 0)
        return first

    def test_masters_are_killed(self):
        start = time.monotonic()
        for _ in range(2):
            self.add_limiter()
        asking = Asking(self.fleet.roots, [f"old-{i}" for i in range(CLIENTS)])
        self.addCleanup(asking.end)
        self.asking = [asking]
        asking.start()
        self.until_fair("all begin")
        killed = self.kill_master()
        killed.start()
        self.kill_master()
        self.assert_whole()
        self.assert_never_over(start)
        self.assertEqual(self.fleet.failed(), 0)


if __name__ == "__main__":
    unittest.main()
