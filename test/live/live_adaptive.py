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
    def __init__(self, roots, quota, clients=96, name="backend"):
        self.process = subprocess.Popen(
            [BACKEND, roots, quota, str(clients), name],
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
        self.backend = Backend(self.root.address, "db")
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
        self.assertFalse(rose["fleet"] or rose["alone"])
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
                        "measured", "edited", "resumed", "given"))
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

    def test_one_limit_for_the_fleet(self):
        """The scope is switched under load: each process has a part, at most
        the bound in sum, and then a limit of its own again."""
        until("a limit", self.backend.limit_is(lambda seen: seen["limit"] > 8))
        switched = self.run_weir("quota", "set", "db", "scope=fleet", "min=5",
                                 "max=8", root=self.root)
        self.assertEqual((switched.status, switched.err), (0, ""))
        until("the whole bound", self.backend.limit_is(
            lambda seen: seen["limit"] == 8 and seen["reason"] == "given"))
        other = Backend(self.root.address, "db", clients=16)
        self.addCleanup(other.process.kill)
        for name, backend in ("the one", self.backend), ("the other", other):
            until(f"half of it: {name}", backend.limit_is(
                lambda seen: abs(seen["limit"] - 4) < 0.01 and
                seen["reason"] == "given"))
        self.assertEqual(other.close(), 0)
        until("the whole bound again", self.backend.limit_is(
            lambda seen: seen["limit"] == 8))
        warned = self.run_weir("quota", "set", "db", "scope=process", "min=9",
                               "max=100", root=self.root)
        self.assertEqual((warned.status, warned.err), (0, ""))
        until("a limit of its own", self.backend.limit_is(
            lambda seen: seen["limit"] > 10 and seen["reason"] != "given"))

    def test_the_fleet_divides_its_bound(self):
        self.ok("quota", "set", "db", "max=", "fleet_max=8", root=self.root)
        until("the whole limit", self.backend.limit_is(
            lambda seen: seen["limit"] == 8))
        other = Backend(self.root.address, "db", clients=16)
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


class OneForAll(Case):
    """One limit for the whole fleet, as the root shows it."""

    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())
        self.ok("quota", "set", "db", "kind=concurrency", "sharing=adaptive",
                "scope=fleet", f"target={TARGET_MS}ms", "max=30",
                root=self.root)

    def start(self, *names):
        for name in names:
            backend = Backend(self.root.address, "db", name=name)
            self.addCleanup(backend.process.kill)
            yield backend

    def fleet(self):
        """The answer, whose parts are never more than the limit, unless it
        fell just now and processes still have their former parts."""
        answer = json.loads(self.root.get("/v1/fleet?name=db")[1])
        if answer["fleet"]:
            limit = max(answer["fleet"]["limit"], answer["fleet"]["before"])
            self.assertLessEqual(sum(one["granted"] for one in
                                     answer["members"]), limit + 1e-9)
        return answer

    def fleet_is(self, what):
        def ask():
            seen = self.fleet()
            return seen if seen["fleet"] and what(seen) else None
        return ask

    def test_shares(self):
        empty = self.fleet()
        self.assertEqual((empty["leads"], empty["fleet"], empty["members"]),
                         (True, None, []))
        self.assertIn("no process uses it",
                      self.ok("quota", "get", "db", root=self.root))
        one, two = self.start("one", "two")
        seen = until("equal shares of the limit", self.fleet_is(
            lambda seen: seen["fleet"]["limit"] == 30 and sorted(
                (one["name"], one["granted"]) for one in seen["members"]) ==
            [("one", 15), ("two", 15)]))
        self.assertGreater(seen["fleet"]["wants"], 30)
        self.assertEqual(seen["fleet"]["members"], 2)
        self.assertLess(seen["fleet"]["latency_s"], TARGET_MS / 1000)
        self.assertEqual(seen["fleet"]["target_s"], TARGET_MS / 1000)
        self.assertEqual({member["left_out"] for member in seen["members"]},
                         {False})
        for process in one, two:
            until("a process keeps to its share", process.limit_is(
                lambda seen: seen["limit"] == 15 and
                seen["reason"] == "given" and seen["fleet"] and
                not seen["alone"]))
        self.assertRegex(self.ok("quota", "get", "db", root=self.root),
                         r"fleet +limit 30 \(headroom, .*\n\n"
                         r"PROCESS +PART +WANTS +HAS +LEFT OUT\n"
                         r"(one|two) +15 +[0-9.e+]+ +15 +-\n")
        self.assertEqual(json.loads(self.ok(
            "quota", "get", "db", "--json", root=self.root))["usage"]["fleet"]
            ["fleet"]["limit"], 30)
        until("the usage has it", lambda: json.loads(self.root.get(
            "/v1/usage")[1])["quotas"][0]["adaptive"]["fleet"]["limit"] == 30)
        _, page = self.root.get("/metrics")
        self.assertIn('weir_fleet_limit_units{quota="db"} 30\n', page)
        self.assertIn('weir_fleet_members{quota="db"} 2\n', page)
        self.assertEqual(two.close(), 0)
        until("the other has all", self.fleet_is(
            lambda seen: [one["granted"] for one in seen["members"]] == [30]))
        self.root.process.kill()
        until("it goes on alone", one.limit_is(
            lambda seen: seen["fleet"] and seen["alone"]))
        self.assertEqual(one.close(), 0)

    def test_an_outlier_is_named(self):
        """The back end of one of three processes is slow: its path, as the
        others see it."""
        one, two, far = self.start("one", "two", "far")
        until("all have their part", self.fleet_is(
            lambda seen: seen["fleet"]["limit"] == 30 and
            len(seen["members"]) == 3))
        far.tell("slow 10")
        seen = until("it is left out", self.fleet_is(
            lambda seen: seen["fleet"]["outliers"] == 1))
        self.assertEqual([member["name"] for member in seen["members"]
                          if member["left_out"]], ["far"])
        self.assertEqual(seen["fleet"]["limit"], 30)
        status = self.ok("status", root=self.root)
        self.assertRegex(status, r"FLEET +LIMIT +IN FLIGHT +LATENCY +TARGET")
        self.assertIn("far is left out of the limit of db", status)
        self.assertRegex(self.ok("quota", "get", "db", root=self.root),
                         r"far +10 +[0-9.e+]+ +10 +yes\n")
        until("it is logged", lambda: "'far' is left out of the fleet's limit "
              "of quota 'db'" in self.root.logged())
        far.tell("slow 1")
        until("it is back", self.fleet_is(
            lambda seen: seen["fleet"]["outliers"] == 0))
        until("that is logged", lambda: "'far' is quick again" in
              self.root.logged())
        for process in one, two, far:
            self.assertEqual(process.close(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
