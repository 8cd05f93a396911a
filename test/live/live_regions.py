#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_regions.py - a region under top roots: one limit for limiters of both,
edits that reach the region, a region's root killed, the region cut off.

Real roots and limiters under load; tests wait for events and check rates as
live_roots.py does. How accurate the limit of a region is, and how soon it is
kept again, is asserted in virtual time by test_region and test_stalls."""

import math
import os
import re
import signal
import subprocess
import unittest

from live_fleet import PATIENCE, WEIR, Fleet
from live_roots import (PART, SMALL, Case, passed_by, rest, say,
                        until_counted)
from patience import until, until_equal

MODES = ("pass", "limit", "share", "hold")


class Regions(Case):
    """Two top roots on one store, a region of two roots, limiters of both."""
    OPTIONS = ("--report-interval", "200ms", "--stale-after", "1s")

    def setUp(self):
        super().setUp()
        self.top, self.region = self.fleet.roots[:2], []
        self.inside, self.outside = [], []

    def set(self, name, *fields):
        self.fleet.set(name, *fields, root=self.top[0])

    def add_region(self):
        """Adds the region, once its quotas are set: its first snapshot has
        them all."""
        self.region = self.fleet.add_region("eu", 2, *self.OPTIONS)

    def load(self, *loads, inside=3, outside=0):
        for roots, count, limiters in (
                (self.region, inside, self.inside),
                (self.top, outside, self.outside)):
            for _ in range(count):
                limiters.append(self.limiter(*loads, roots=roots))
        self.fleet.wait_linked(2)

    def states(self):
        return [root.status()["region"] for root in self.region]

    def says(self, pattern, ask):
        until(pattern, lambda: re.search(pattern, ask()))

    def test_one_limit(self):
        self.set("q", "limit=6000/s", *SMALL)
        self.add_region()
        self.load("q=4000", inside=3, outside=2)
        self.fleet.until_rate("q", 6000, PART)
        self.assert_told()
        rest(self.fleet.limiters)
        until_counted(self.top, "q", passed_by(self.fleet.limiters, "q"))
        until_counted(self.region, "q", passed_by(self.inside, "q"))
        self.assert_edits()
        self.assert_all_answered()

    def assert_told(self):
        """Checks status and metrics of a sound region; on a busy machine it
        isn't sound at every instant."""
        until("a sound region", lambda: all(
            (state["upstreams_up"], state["stale"]) == (2, False) and
            state["age_s"] < 1 for state in self.states()))
        for state in self.states():
            self.assertEqual(state["name"], "eu")
            self.assertEqual(state["table_full"], 0)
        self.says(r"region +eu, under .*\(up\), .*\(up\)", lambda:
                  self.fleet.weir("status", root=self.region[0])[1])
        for line in ("weir_upstream_roots_up 2", "weir_region_stale 0"):
            self.says(f"(?m)^{line}$", lambda:
                      self.region[0].read("/metrics"))
        self.assertIsNone(self.top[0].status()["region"])

    def assert_edits(self):
        code, _, said = self.fleet.weir("quota", "set", "q", "limit=1/s",
                                        root=self.region[0])
        self.assertEqual(code, 2)
        self.assertIn(self.top[0].listen, said)
        say(f"an edit through the region says: {said.strip()}")
        self.set("q", "limit=20000/s")
        epoch = self.top[0].status()["epoch"]
        until_equal("the epoch of every limiter", {epoch}, lambda: {
            limiter.seen()["epoch"] for limiter in self.fleet.limiters})
        self.fleet.weir("quota", "rm", "q")
        until("the removal in the region", lambda: all(
            "name: q" not in self.fleet.weir("quota", "export", root=root)[1]
            for root in self.region))

    def test_one_budget(self):
        """A bucket that hardly leaks, and takers one after the other, inside
        and outside: each gets the units that the others left. That also holds
        after a root of the region (perhaps the carrier) is killed, which had
        passed on all its counts.

        The top roots' fill contains a region limiter's own counts a little
        late, so it may overrun the bucket by its slack and that of the root
        (merge_carry.c): less than the half that is left to the last taker. No
        unit is lost, and no other limiter gets any."""
        budget = 3000
        self.set("q", "limit=1/h", f"low_burst={budget}",
                 f"high_burst={budget}")
        self.add_region()
        takers = [self.take(self.region, 500)]
        until_counted(self.top + self.region, "q", passed_by(takers, "q"))
        self.region[0].kill()
        takers.append(self.take(self.top, budget / 2))
        until_counted(self.top, "q", passed_by(takers, "q"))
        takers.append(self.take(self.region[1:], budget))
        passed = passed_by(takers, "q")
        self.assertLess(passed, 1.5 * budget)
        until_counted(self.top, "q", passed)
        until_counted(self.region[1:], "q", passed_by(takers[::2], "q"))
        # Less than a unit leaks in an hour.
        until_equal("the fills above", {passed}, lambda: {
            math.ceil(root.usage()["q"]["fill"]) for root in self.top})
        late = [self.limiter("q=5000", roots=roots)
                for roots in (self.top, self.region[1:])]
        until("refusals", lambda: all(
            limiter.seen() and limiter.seen()["seen"]["q"][0] > 500
            for limiter in late))
        rest(late)
        self.assertEqual(passed_by(late, "q"), 0)
        self.assert_all_answered()

    def take(self, roots, most):
        """A new limiter; it takes until all limiters have passed 'most'."""
        taker = self.limiter("q=5000", roots=roots)
        until(f"{most} in all", lambda: all(
            limiter.seen() for limiter in self.fleet.limiters) and
              passed_by(self.fleet.limiters, "q") >= most)
        rest([taker])
        return taker

    def test_a_command_waits_for_quotas(self):
        """A new root has no quotas until it has read its store, a region's
        root none until it has them from a root above."""
        self.set("q", "limit=5/s")
        for root in self.top:
            root.kill()
        self.add_region()
        env = dict(os.environ, WEIR_ROOTS=self.region[0].listen)
        command = subprocess.Popen(
            [WEIR, "quota", "get", "q"], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for root in self.top:
            root.start()
        out, said = command.communicate(timeout=PATIENCE)
        self.assertEqual((command.returncode, said), (0, ""))
        self.assertIn("5/s", out)

    def test_region_root_killed(self):
        self.set("q", "limit=6000/s", *SMALL)
        self.add_region()
        self.load("q=4000", inside=3, outside=1)
        self.fleet.until_rate("q", 6000, PART)
        self.region[0].kill()
        until("one root for those inside", lambda: all(
            limiter.up() == 1 for limiter in self.inside))
        self.fleet.until_rate("q", 6000, PART)
        self.region[0].start()
        self.fleet.wait_linked(2)
        self.fleet.until_rate("q", 6000, PART)
        rest(self.fleet.limiters)
        until_counted(self.region[1:], "q", passed_by(self.inside, "q"))
        self.assert_all_answered()

    def test_region_above_itself(self):
        """If a root's upstream is itself, or another root of its region, it
        gets an error, and nothing is counted that way."""
        self.add_region()
        first, second = self.region
        for root, above in ((first, first), (second, first)):
            root.kill()
            root.above = [above]
            root.start()
            until("a refusal in its log",
                  lambda: "it is of this region" in root.logged())
            region = root.status()["region"]
            self.assertEqual(region["upstreams_up"], 0)
            self.assertFalse(region["upstream"][0]["up"])
            self.assertIn("of this region", region["upstream"][0]["problem"])
            self.says(r"\(DOWN: it is of this region", lambda:
                      self.fleet.weir("status", root=root)[1])
        say([line for line in first.logged().splitlines()
             if "of this region" in line][0])

    def cut_off(self, cut, mend):
        """The region uses on_stale until mended. How good the learnt parts and
        frequencies are depends on the machine: test_stalls checks them."""
        for mode in MODES:
            self.set(mode, "limit=3000/s", f"on_stale={mode}", *SMALL)
        # A quota that never refused anything.
        self.set("idle", "limit=1000000/s", "on_stale=hold")
        limits = dict.fromkeys(MODES, 3000)
        self.add_region()
        self.load("idle=300", *[f"{mode}=3000" for mode in MODES])
        self.fleet.until_rates(limits, PART)
        cut()
        until("the region is stale",
              lambda: all(state["stale"] for state in self.states()))
        until("a warning", lambda: "cut off" in self.region[0].logged())
        self.says("STALE", lambda:
                  self.fleet.weir("status", root=self.region[0])[1])
        spans = self.until_stale(self.inside)
        self.assert_passed(spans, "pass")
        self.assert_passed(spans, "idle")
        self.assert_limited(spans, "limit")
        self.assert_held(spans, "hold")
        # The region keeps to its part of the limit, as its two roots have
        # learnt it: at most all of it, and at least half of it.
        self.fleet.until_rate("share", 0.75 * 3000, 0.4)
        mend()
        until("the region is fresh",
              lambda: not any(state["stale"] for state in self.states()))
        until("its limiters are fresh", lambda: not any(
            limiter.seen()["stale"] for limiter in self.inside))
        self.fleet.until_rates(limits, PART)
        rest(self.inside)
        for name in ("idle", *MODES):
            until_counted(self.region, name, passed_by(self.inside, name))
        self.assert_all_answered()

    def test_top_killed(self):
        def cut():
            for root in self.top:
                root.kill()

        def mend():
            for root in self.top:
                root.start()
        self.cut_off(cut, mend)

    def test_top_silent(self):
        """The links to the top stay, and nothing arrives. Until the region is
        stale, limiters are told that its allowance is used up. Units counted
        meanwhile reach the top in the end, once."""
        def signal_all(number):
            for root in self.top:
                root.process.send_signal(number)
        self.cut_off(lambda: signal_all(signal.SIGSTOP),
                     lambda: signal_all(signal.SIGCONT))
        for name in ("idle", *MODES):
            until_counted(self.top, name, passed_by(self.inside, name))

    def test_starts_without_its_upstream(self):
        """A region's root starts from its last snapshot."""
        self.set("q", "limit=3000/s", *SMALL)
        self.add_region()
        self.load("q=3000")
        until("a snapshot", lambda: all(
            root.status()["snapshot"].get("epoch") == root.status()["epoch"]
            for root in self.region))
        for root in self.fleet.roots:
            root.kill()
        for root in self.region:
            root.start()
        self.fleet.wait_linked(2)
        for root in self.region:
            self.assertTrue(root.status()["snapshot"]["serving"])
            self.assertEqual(root.read("/readyz"), "ready\n")
            self.assertIn("name: q", self.fleet.weir("quota", "export",
                                                     root=root)[1])
            self.assertIsNone(root.status()["region"]["age_s"])
        for root in self.top:
            root.start()
        until("the upstream's word", lambda: not any(
            root.status()["snapshot"]["serving"] for root in self.region))
        until("fresh limiters", lambda: not any(
            limiter.seen()["stale"] for limiter in self.inside))
        self.fleet.until_rate("q", 3000, PART)
        self.assert_all_answered()


class Role(unittest.TestCase):
    """A region's root reports for many limiters: it needs the role 'root'."""
    TOKENS = {"take": "token-of-a-limiter-1", "root": "token-of-a-root-0001"}

    def test_role(self):
        fleet = Fleet()
        self.addCleanup(fleet.close)
        credentials = fleet.folder / "credentials"
        credentials.write_text("".join(
            f"{role} token {role}r {token}\n"
            for role, token in self.TOKENS.items()))
        credentials.chmod(0o600)
        fleet.add_roots(1, "--credentials", str(credentials))
        file = fleet.folder / "token"
        file.write_text(self.TOKENS["take"] + "\n")
        file.chmod(0o600)
        region, = fleet.add_region("eu", 1, "--upstream-token-file",
                                   str(file))
        until("a refusal", lambda: "hasn't the role 'root'" in
              region.logged())
        self.assertEqual(region.status()["region"]["upstreams_up"], 0)
        # The token file is read again for each try.
        file.write_text(self.TOKENS["root"] + "\n")
        until("the upstream", lambda:
              region.status()["region"]["upstreams_up"] == 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
