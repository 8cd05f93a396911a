#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_regions.py - a region under top roots: one limit for limiters of both,
edits that come down, a region's root killed, the region cut off.

Real roots and limiters under load. What is to happen is waited for until a
deadline; what goes on meanwhile is a mean over five seconds, as a limit is
promised."""

import re
import signal
import sys
import time
import unittest

from live_fleet import WINDOW, Fleet, until, wait_for
from live_witness import Measured

STALE_AFTER = 2      # seconds
LEARNT = 8           # seconds, beside the first four
MODES = ("open", "closed", "share", "hold")
# As in live_story.py: a region cut off goes on with what it learnt in some
# seconds.
SHARE = 0.2
EDIT_BOUND = 2.0     # seconds; the target is 0.1 a tier


def say(text):
    print(text, file=sys.stderr)


class Regions(Measured):
    """Two top roots on one store, a region of two roots, limiters of both."""
    OPTIONS = ("--stale-after", f"{STALE_AFTER}s")

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(2, *self.OPTIONS)
        self.top = self.fleet.roots[:2]
        self.region = self.fleet.add_region("eu", 2, *self.OPTIONS)

    def load(self, *loads, inside=3, outside=0):
        for roots, count in ((self.region, inside), (self.top, outside)):
            for _ in range(count):
                self.fleet.add_limiter(
                    loads, 50, roots=",".join(r.listen for r in roots))
        self.inside = self.fleet.limiters[:inside]
        self.fleet.wait_linked(2)
        until("every limiter decides by the quotas", lambda: all(
            limiter.seen()["epoch"] > 0 for limiter in self.fleet.limiters))
        wait_for(4)

    def passed(self, name, limiters=None, seconds=WINDOW):
        limiters = limiters or self.fleet.limiters
        start = time.monotonic()
        wait_for(seconds)
        until("the last bin", lambda: all(
            limiter.seen()["at"] >= start + seconds for limiter in limiters))
        return sum(limiter.rates(name, start, start + seconds)[1]
                   for limiter in limiters)

    def states(self):
        return [root.status()["region"] for root in self.region]

    def test_one_limit(self):
        self.fleet.set("q", "limit=10000/s")
        self.load("q=6000", inside=3, outside=2)
        passed = self.passed("q")
        say(f"3 limiters in the region, 2 above, 30000/s offered: passed "
            f"{passed:.0f}/s of 10000/s")
        self.assert_rate(passed, 10000, 0.03, "region and top")
        self.assert_fills_agree()
        self.assert_told()
        self.assert_edits()
        self.assertEqual(self.fleet.failed(), 0)

    def assert_fills_agree(self):
        """Give or take what merge.c says of an onset: a root that hears of it
        later than another by a quarter of a second, which is how long slack
        lasts at three times the limit, has so much more in its bucket for as
        long as the load lasts. There is no waiting for that."""
        fills = [root.usage().get("q", {}).get("fill", 0)
                 for root in self.fleet.roots]
        said = ", ".join(f"{fill:.0f}" for fill in fills)
        say(f"fills at the top and in the region: {said}")
        self.assert_steady(max(fills) - min(fills) <= 0.25 * 10000,
                           f"fills that don't agree: {said}")

    def says(self, pattern, ask):
        until(pattern, lambda: re.search(pattern, ask()))

    def assert_told(self):
        """What status and metrics say of a sound region; on a busy machine it
        may not be one at every instant."""
        until("a sound region", lambda: all(
            (state["upstreams_up"], state["stale"]) == (2, False) and
            state["age_s"] < STALE_AFTER for state in self.states()))
        for state in self.states():
            self.assertEqual(state["name"], "eu")
            self.assertEqual(state["no_room"], 0)
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
        begun = time.monotonic()
        self.fleet.set("q", "limit=20000/s")
        epoch = self.top[0].status()["epoch"]
        until("the edit at every limiter", lambda: all(
            limiter.seen()["epoch"] == epoch
            for limiter in self.fleet.limiters))
        took = time.monotonic() - begun
        self.assertLess(took, EDIT_BOUND)
        say(f"an edit at the top is at every limiter after {took:.2f} s "
            "(bins of 50 ms)")
        self.fleet.weir("quota", "rm", "q")
        until("the removal in the region", lambda: all(
            "name: q" not in self.fleet.weir("quota", "export", root=root)[1]
            for root in self.region))

    def test_region_root_killed(self):
        self.fleet.set("q", "limit=9000/s")
        self.load("q=5000", inside=3, outside=1)
        before = self.passed("q")
        self.region[0].kill()
        until("one root for those inside", lambda: all(
            limiter.up() == 1 for limiter in self.inside))
        # What the carrier took with it passes once more.
        wait_for(5)
        alone = self.passed("q")
        self.region[0].start()
        self.fleet.wait_linked(2)
        wait_for(4)
        both = self.passed("q")
        say(f"limit 9000/s: passed {before:.0f}/s; a root of the region "
            f"killed: {alone:.0f}/s; back: {both:.0f}/s")
        self.assert_rate(before, 9000, 0.03, "before")
        self.assert_rate(alone, 9000, 0.03, "with the other carrier")
        self.assert_rate(both, 9000, 0.03, "with both again")
        self.assertEqual(self.fleet.failed(), 0)

    def test_region_above_itself(self):
        """A root whose upstream is itself, or another of its region, is told
        so, and counts nothing that way."""
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

    def rates(self, seconds=WINDOW):
        start = time.monotonic()
        wait_for(seconds)
        until("the last bin", lambda: all(
            limiter.seen()["at"] >= start + seconds
            for limiter in self.inside))
        return {name: sum(limiter.rates(name, start, start + seconds)[1]
                          for limiter in self.inside)
                for name in MODES}

    def cut_off(self, cut, mend):
        """(rates while cut off, rates when mended)"""
        for mode in MODES:
            self.fleet.set(mode, "limit=3000/s", f"on_stale={mode}")
        self.load(*[f"{mode}=3000" for mode in MODES])
        wait_for(LEARNT)
        begun = time.monotonic()
        cut()
        until("the region is stale",
              lambda: all(state["stale"] for state in self.states()))
        until("its limiters are stale", lambda: all(
            limiter.seen()["stale"] for limiter in self.inside))
        stale = time.monotonic() - begun
        self.assertIn("cut off", self.region[0].logged())
        shown = self.fleet.weir("status", root=self.region[0])[1]
        self.assertRegex(shown, "STALE")
        wait_for(2)
        rates = self.rates()
        begun = time.monotonic()
        mend()
        until("the region is fresh",
              lambda: not any(state["stale"] for state in self.states()))
        until("its limiters are fresh", lambda: not any(
            limiter.seen()["stale"] for limiter in self.inside))
        fresh = time.monotonic() - begun
        wait_for(4)
        after = self.rates()
        for what, seen in ((f"stale after {stale:.1f} s", rates),
                           (f"mended, fresh after {fresh:.1f} s", after)):
            say(f"{what}: " + ", ".join(f"{mode} {rate:.0f}/s"
                                        for mode, rate in seen.items()))
        self.assert_rate(rates["open"], 9000, 0.05, "open")
        self.assertEqual(rates["closed"], 0)
        self.assert_rate(rates["share"], 3000, SHARE, "share")
        for mode, rate in after.items():
            self.assert_rate(rate, 3000, 0.05, f"{mode}, mended")
        return rates["hold"]

    def test_top_killed(self):
        def cut():
            for root in self.top:
                root.kill()

        def mend():
            for root in self.top:
                root.start()
        self.assert_rate(self.cut_off(cut, mend), 3000, 0.2, "hold")

    def test_top_silent(self):
        """Their links stand, and nothing comes: until that is known for
        silence, limiters are told that the region's allowance is used up."""
        def signal_all(number):
            for root in self.top:
                root.process.send_signal(number)
        hold = self.cut_off(lambda: signal_all(signal.SIGSTOP),
                            lambda: signal_all(signal.SIGCONT))
        self.assert_rate(hold, 3000, 0.2, "hold")

    def test_starts_without_its_upstream(self):
        """By the snapshot of its former life."""
        self.fleet.set("q", "limit=3000/s")
        self.load("q=3000")
        until("a snapshot", lambda: all(
            root.status()["snapshot"].get("epoch") == root.status()["epoch"]
            for root in self.region))
        for root in self.fleet.roots:
            root.kill()
        for root in self.region:
            root.start()
        self.fleet.wait_linked(2)
        self.assertTrue(all(root.status()["snapshot"]["serving"]
                            for root in self.region))
        for root in self.region:
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
        wait_for(4)
        passed = self.passed("q")
        say(f"all killed, the region back by its snapshot, then the top: "
            f"passed {passed:.0f}/s of 3000/s")
        self.assert_rate(passed, 3000, 0.03, "in the end")


class Role(unittest.TestCase):
    """A region's root speaks for many: that wants the role of it."""
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
        # The file is read again for each try.
        file.write_text(self.TOKENS["root"] + "\n")
        until("the upstream", lambda:
              region.status()["region"]["upstreams_up"] == 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
