#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease_tree.py - a tree of leases among processes: a root, two regional
and four leaf servers, and at each leaf a limiter of libweir under load and
clients of Doorman's (generated gRPC, in Python), all for one quota.

            top
          /     \\
        east    west          SIGKILL, and back
        / \\     /  \\
      e1   e2  w1   w2        w1 is stopped, and goes on

The sum of their grants never exceeds the capacity. After each failure the
holders that can be reached have all of it, and in the end each has its fair
part again."""

import os
import signal
import unittest

from live_grants import WHOLE, Asking, Judged, granted

CAPACITY = 1000
OFFERED = 300         # units a second, by each limiter
WANTS = 50            # by each client of Doorman's
CLIENTS = 3           # of Doorman's, at each leaf


class Tree(Judged):
    capacity = CAPACITY

    def setUp(self):
        super().setUp()
        self.fleet.add_roots(1)
        self.regions = [self.fleet.add_region(name, 1)[0]
                        for name in ("east", "west")]
        self.leaves = [
            self.fleet.add_region(f"{region.region[0]}{i}", 1,
                                  above=[region])[0]
            for region in self.regions for i in (1, 2)]

    def load(self, lease, refresh):
        # No other master has leased anything: there is nothing to learn.
        self.fleet.set("q", f"limit={CAPACITY}/s", "sharing=leased",
                       "on_stale=limit", f"lease={lease}",
                       f"refresh={refresh}", "learning=0s")
        for leaf in self.leaves:
            self.add_limiter(OFFERED, roots=leaf.listen)
            names = [f"{leaf.region}-{i}" for i in range(CLIENTS)]
            self.ask(Asking(leaf, names, WANTS))
        self.until_fair("all begin")

    def has(self, leaves):
        """The grants at some leaves, by the last bins and answers."""
        return sum(granted(self.fleet.limiters[i])
                   for i, leaf in enumerate(self.leaves) if leaf in leaves) + \
            sum(asking.has() for asking in self.asking if asking.root in leaves)

    def until_has(self, what, wanted, leaves):
        self.until(what, lambda: self.has(leaves) > WHOLE * wanted)

    def end(self):
        self.until_sampled()
        self.assert_never_over()
        self.assertEqual(self.fleet.failed(), 0)

    def test_a_newcomer_waits_for_nobody(self):
        """Renewal and end of the others' leases are much further away than
        this test waits."""
        self.load("20m", "5m")
        late = self.ask(Asking(self.leaves[-1], ["late"], WANTS))
        self.until("a newcomer at the full tree has its part",
                   lambda: late.has() == WANTS)
        self.until_sampled()
        # The client stops using its grant before it releases it.
        late.pause()
        late.told["late"].add(0, 0)
        late.client.call("ReleaseCapacity", client="late", resources=["q"])
        self.asking.remove(late)
        self.until_fair("it has gone")
        self.asking.append(late)
        self.end()

    def test_a_region_dies(self):
        self.load("3s", "500ms")
        east, west = self.leaves[:2], self.leaves[2:]
        self.regions[0].kill()
        self.until("the leases in the east are over",
                   lambda: self.has(east) == 0)
        self.until_has("the region in the east is killed",
                       2 * (OFFERED + CLIENTS * WANTS), west)
        self.regions[0].start()
        self.until_fair("it is back")
        self.end()

    def test_a_leaf_is_stopped(self):
        self.load("3s", "500ms")
        leaf = self.leaves[2]
        others = [each for each in self.leaves if each is not leaf]
        leaf.process.send_signal(signal.SIGSTOP)
        self.addCleanup(os.kill, leaf.process.pid, signal.SIGCONT)
        self.until("its clients have nothing", lambda: self.has([leaf]) == 0)
        self.until_has("a leaf is stopped", CAPACITY, others)
        leaf.process.send_signal(signal.SIGCONT)
        self.until_fair("it goes on")
        self.end()


if __name__ == "__main__":
    unittest.main()
