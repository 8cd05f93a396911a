#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lease.py - a leased quota, among processes: three limiters, a root that
leases it out, three times the load.

What passes is the limit; its sharing is changed on the running fleet there and
back; what the root's death leaves, and a child of fork() has; and the command
line takes from it. The figures are printed; what is asserted is a mean over
five seconds, and that no second has more than the limit and the smaller
burst."""

import json
import subprocess
import sys
import time
import unittest

from live_election import Etcd, Relay  # noqa: E402
from live_fleet import WEIR, WINDOW, Fleet, until, wait_for

LIMITERS = 3
LIMIT = 3000
BOUND = 0.02


class Leases(unittest.TestCase):
    def setUp(self):
        said = subprocess.run([WEIR, "serve", "--help"], text=True,
                              capture_output=True, check=True).stdout
        if "--election" not in said:
            self.skipTest("a root that leases nothing out")
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(1)

    def set(self, sharing, *fields):
        # Nobody has a lease of another master: it needn't hear of any first.
        learning = "0s" if sharing == "leased" else ""
        self.fleet.set("q", f"limit={LIMIT}/s", f"sharing={sharing}",
                       "on_stale=closed", f"learning={learning}", *fields)

    def load(self):
        for _ in range(LIMITERS):
            self.fleet.add_limiter([f"q={3 * LIMIT // LIMITERS}"])
        self.fleet.wait_linked()

    def passed(self, seconds):
        """Per second, over so many from now on."""
        start = time.monotonic()
        wait_for(seconds)
        return self.fleet.rates("q", start, time.monotonic())[1]

    def seconds(self, start, end):
        """What passed in each second between two instants."""
        return [self.fleet.rates("q", start + at, start + at + 1)[1]
                for at in range(int(end - start))]

    def settled(self):
        """Once the first bursts are over and the grants are even."""
        self.load()
        wait_for(4)

    def test_the_limit_holds(self):
        self.set("leased")
        self.settled()
        passed = self.passed(2 * WINDOW)
        print(f"leased, 3 x the limit: {passed:.0f}/s passed of {LIMIT}",
              file=sys.stderr)
        self.assertLess(abs(passed / LIMIT - 1), BOUND)
        for limiter in self.fleet.limiters:
            now = time.monotonic()
            share = limiter.rates("q", now - WINDOW, now)[1]
            self.assertLess(abs(share * LIMITERS / LIMIT - 1), 0.1)

    def test_the_sharing_is_changed_under_load(self):
        self.set("counted")
        self.settled()
        start = time.monotonic()
        for sharing in ("leased", "counted", "leased", "counted"):
            self.set(sharing)
            wait_for(4)
        each = self.seconds(start, time.monotonic())
        print("counted, leased, counted, leased, counted each 4 s: "
              f"{min(each):.0f} to {max(each):.0f} a second of {LIMIT}",
              file=sys.stderr)
        self.assertEqual(self.fleet.failed(), 0)
        self.assertLessEqual(max(each), 2 * LIMIT)
        self.assertGreaterEqual(min(each), LIMIT / 2)
        mean = sum(each) / len(each)
        self.assertLess(abs(mean / LIMIT - 1), 0.05)

    def test_a_root_that_dies_leaves_its_leases(self):
        self.set("leased", "lease=4s", "refresh=1s")
        self.settled()
        self.fleet.roots[0].kill()
        passed = self.passed(2)
        print(f"root killed: {passed:.0f}/s in the next 2 s", file=sys.stderr)
        self.assertGreater(passed, LIMIT * 0.8)
        until("nothing passes when the leases are over",
              lambda: self.passed(0.5) == 0)
        self.fleet.roots[0].start()
        until("leases again", lambda: self.passed(1) > LIMIT * 0.9)

    def test_two_roots_on_one_store(self):
        """Nobody elects, and both would hand out the whole."""
        self.fleet.add_roots(1)
        first, second = self.fleet.roots
        until("the second stands by", lambda: "another root on this store "
              "does" in second.logged())
        self.assertIn("hands out leases", first.logged())
        self.assertNotIn("hands out leases", second.logged())
        self.set("leased", "lease=4s", "refresh=1s")
        for root in self.fleet.roots:
            self.fleet.add_limiter([f"q={LIMIT}"], roots=root.listen)
        self.fleet.wait_linked(1)
        wait_for(4)
        passed = self.passed(2)
        print(f"two roots, a limiter at each: {passed:.0f}/s passed of "
              f"{LIMIT}", file=sys.stderr)
        self.assertLess(passed, LIMIT * (1 + BOUND))
        first.kill()
        until("the second hands out", lambda: "hands out leases" in
              second.logged())
        until("leases of the second", lambda: self.passed(1) > LIMIT * 0.9)

    def test_a_child_of_fork_has_a_lease_of_its_own(self):
        self.set("leased")
        limiter = self.fleet.add_limiter(["q=1000"])
        self.fleet.wait_linked()
        until("it passes", lambda: self.passed(0.5) > 900)
        limiter.tell("fork")
        child = until("a child", lambda: next(
            (line["pid"] for line in list(limiter.lines) if "seen" in line
             and line["pid"] != limiter.process.pid), None))
        until("the child has its own", lambda: limiter.rates(
            "q", time.monotonic() - 0.5, time.monotonic(), child)[1] > 900)

    def test_the_command_line_takes(self):
        self.set("leased")
        status, said, errors = self.fleet.weir("take", "q", "--json")
        self.assertEqual(status, 0, errors)
        reply = json.loads(said)
        print(f"weir take: granted {reply['granted']:.1f}/s", file=sys.stderr)
        self.assertGreater(reply["granted"], 0)


class NextMaster(unittest.TestCase):
    """Two roots, of which a lock on a file makes one the master."""

    def election(self):
        return "--election", f"file:{self.fleet.folder / 'lock'}"

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(2, *self.election())
        self.fleet.set("q", f"limit={LIMIT}/s", "sharing=leased",
                       "on_stale=closed", "lease=4s", "refresh=1s")

    def master(self, roots):
        return next((root for root in roots if "This <b>is</b> the master"
                     in root.read("/debug/status")), None)

    def has_learned(self, root):
        """What it leases out, and nobody else can have any more of."""
        return "<td>false</td>" in root.read("/debug/resources")

    def passes(self, loads):
        """Whether each limiter passes all but a tenth of its load."""
        now = time.monotonic()
        return all(limiter.seen() and
                   limiter.rates("q", now - 1, now)[1] > 0.9 * load
                   for limiter, load in zip(self.fleet.limiters, loads))

    def test_it_knows_when_it_has_heard_all(self):
        loads = [400, 600]
        for load in loads:
            self.fleet.add_limiter([f"q={load}"])
        self.fleet.wait_linked()
        until("all passes", lambda: self.passes(loads))
        first = self.master(self.fleet.roots)
        until("the first one has learned", lambda: self.has_learned(first))
        wait_for(3)  # in which each is answered, and told a roll
        first.kill()
        left = [root for root in self.fleet.roots if root is not first]
        second = until("the next master", lambda: self.master(left))
        elected = time.monotonic()
        until("it has learned",
              lambda: self.passes(loads) and self.has_learned(second))
        took = time.monotonic() - elected
        print(f"the next master has heard all after {took:.2f} s",
              file=sys.stderr)
        # By time it would be a lease, a refresh and the guard of 5 s.
        self.assertLess(took, 8)
        self.fleet.add_limiter(["q=500"])
        until("who is new has its own", lambda: self.passes(loads + [500]))


class NextMasterByEtcd(NextMaster):
    """Two roots, of which etcd makes one the master."""

    def election(self):
        etcd = Etcd(self.fleet.folder)
        self.addCleanup(etcd.kill)
        etcd.start()
        return ("--election", "etcd", "--etcd-endpoints", etcd.at,
                "--election-ttl", "2s")


class SlowEtcd(unittest.TestCase):
    """A root whose etcd takes its time for each answer, nearly a third of the
    ttl at most: it stays master, and nobody waits for a write that needn't."""

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.etcd = Etcd(self.fleet.folder)
        self.addCleanup(self.etcd.kill)
        self.etcd.start()

    def set(self, sharing):
        self.fleet.set("q", f"limit={LIMIT}/s", f"sharing={sharing}",
                       "on_stale=closed",
                       "learning=0s" if sharing == "leased" else "learning=")

    def stay(self, delay):
        relay = Relay(self.etcd.port, delay)
        self.addCleanup(relay.close)
        self.fleet.add_roots(1, "--election", "etcd", "--etcd-endpoints",
                             relay.at, "--election-ttl", "10s")
        root = self.fleet.roots[0]
        until("a master", lambda: "hands out leases" in root.logged())
        began = time.monotonic()
        self.set("counted")
        for _ in range(LIMITERS):
            self.fleet.add_limiter([f"q={LIMIT // LIMITERS}"])
        self.fleet.wait_linked()
        wait_for(4)
        start = time.monotonic()
        self.set("leased")
        wait_for(6)
        each = [self.fleet.rates("q", start + at / 2, start + at / 2 + 0.5)[1]
                for at in range(11)]
        print(f"etcd answers after {delay} s, counted to leased: "
              f"{min(each):.0f} to {max(each):.0f}/s of {LIMIT}",
              file=sys.stderr)
        self.assertGreaterEqual(min(each), LIMIT / 2)
        # Who comes later is served, too.
        came = time.monotonic()
        late = self.fleet.add_limiter(["q=100"])
        until("who is new has its own", lambda: late.seen() and late.rates(
            "q", time.monotonic() - 0.5, time.monotonic())[1] > 80)
        print(f"who is new: {time.monotonic() - came:.2f} s", file=sys.stderr)
        wait_for(max(0, began + 12 - time.monotonic()))
        self.assertEqual(root.logged().count("hands out leases"), 1)
        self.assertNotIn("hands out no leases", root.logged())

    def test_two_seconds(self):
        self.stay(2.0)

    def test_more_than_two(self):
        self.stay(2.3)


if __name__ == "__main__":
    unittest.main()
