#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_adaptive.py - a service keeps to an adaptive limit in front of a back
end that becomes slow and quick again (live_backend.c): the limit falls and
rises with it, and views show its value and the reason. The limiter is given
the back end's times instead of measuring them, so they are the same on any
machine. How well a limit is found is asserted in virtual time:
test_controller.c, test_model_adaptive.c and lab/scenarios/adaptive-*."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from live_cli import Case, Root
from patience import PATIENCE, until

BACKEND = str(Path(os.environ["WEIR_BUILD"]) / "test" / "live_backend")
TARGET_MS = 180  # of 48 in flight, or of 12 when it is four times as slow


class Backend:
    def __init__(self, root, quota, clients=96):
        self.process = subprocess.Popen(
            [BACKEND, root.address, quota, str(clients)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def look(self):
        self.tell("look")
        return json.loads(self.process.stdout.readline())

    def limit_is(self, what):
        """A question for until(): the state once it satisfies 'what', or None.
        """
        def ask():
            seen = self.look()
            return seen if what(seen) else None
        return ask

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status


class Adaptive(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())
        self.ok("quota", "set", "db", "kind=concurrency", "sharing=adaptive",
                f"target={TARGET_MS}ms", "max=100", root=self.root)
        self.backend = Backend(self.root, "db")
        self.addCleanup(self.backend.process.kill)

    def metric(self, line):
        status, text = self.root.get("/metrics")
        self.assertEqual(status, 200)
        found = [row for row in text.splitlines() if row.startswith(line)]
        return float(found[0].split()[-1]) if found else None

    def told(self):
        """The limit that the process has reported to the root."""
        for limiter in json.loads(self.root.get("/v1/status")[1])["limiters"]:
            for limit in limiter["adaptive"]:
                return limit
        return None

    def test_the_limit_follows_the_back_end(self):
        rose = until("the limit rises", self.backend.limit_is(
            lambda seen: seen["limit"] > 25 and seen["reason"] == "headroom"))
        self.assertGreater(rose["served"], 0)
        # Six times as slow: the target is met by 8 in flight.
        self.backend.tell("slow 6")
        fell = until("the limit falls", self.backend.limit_is(
            lambda seen: seen["limit"] < 12 and seen["reason"] == "slow"))
        self.assertGreater(fell["limited"], 0)

        # Every view shows the limit and the reason.
        until("the root is told", lambda: (self.told() or {}).get(
            "limit", 99) < 12 and self.told()["reason"] in ("slow", "headroom"))
        shown = self.ok("status", root=self.root)
        self.assertRegex(shown, r"LIMITER +ADAPTIVE +LIMIT")
        self.assertRegex(shown, r"backend +db +[0-9.]+ +[0-9]+ ")
        until("the metrics are told", lambda: all(self.metric(
            'weir_adaptive_limit_units{quota="db",of="%s"}' % of) < 12
            for of in ("min", "median", "max")))
        reasons = sum(self.metric(
            'weir_adaptive_processes{quota="db",reason="%s"}' % why)
            for why in ("initial", "slow", "dropped", "headroom", "measuring",
                        "measured", "edited", "resumed"))
        self.assertEqual(reasons, 1)

        # Quick again: the limit finds room.
        self.backend.tell("slow 1")
        low = fell["limit"]
        back = until("the limit rises again", self.backend.limit_is(
            lambda seen: seen["limit"] > low + 4 and
            seen["reason"] == "headroom"))
        # An edit takes effect at once, and units in flight stay.
        self.ok("quota", "set", "db", "max=3", root=self.root)
        edited = until("the bound holds", self.backend.limit_is(
            lambda seen: seen["limit"] <= 3))
        self.assertEqual(edited["reason"], "edited")
        until("enough have left", self.backend.limit_is(
            lambda seen: seen["in_flight"] <= 3))
        self.assertGreater(back["served"], fell["served"])
        self.assertEqual(self.backend.close(), 0)

    def test_the_fleet_divides_its_bound(self):
        self.ok("quota", "set", "db", "max=", "fleet_max=8", root=self.root)
        until("the whole limit", self.backend.limit_is(
            lambda seen: seen["limit"] == 8))
        other = Backend(self.root, "db", clients=16)
        self.addCleanup(other.process.kill)
        warned = until("both processes are known", lambda: self.run_weir(
            "quota", "set", "db", "min=5", root=self.root).err)
        self.assertIn("min=5 in each of 2 processes is 10 in flight, above "
                      "fleet_max=8; lower min, or write fleet_min", warned)
        until("half of it", self.backend.limit_is(
            lambda seen: seen["limit"] <= 4))
        until("the other half", other.limit_is(
            lambda seen: seen["limit"] <= 4))
        self.assertEqual(other.close(), 0)
        until("the whole limit again", self.backend.limit_is(
            lambda seen: seen["limit"] > 4))
        self.assertEqual(self.backend.close(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
