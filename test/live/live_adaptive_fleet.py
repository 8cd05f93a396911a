#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_adaptive_fleet.py - one adaptive limit for a fleet of real processes
(live_backend.c), while roots are killed, processes come, stop and go on, and
the scope is switched.

The back ends have their time from a list of events, so a busy machine changes
neither latencies nor the time without a request let in. Each process notes its
lowest and its highest limit between two looks, so no test has to be there at
the right moment."""

import signal
import subprocess
import unittest
import urllib.error

from live_adaptive import Backend
from live_debt import LIAR
from live_fleet import Fleet
from patience import PATIENCE, until

TARGET_MS = 180  # of 48 in flight in a back end, or of 16 if it is SLOW
SLOW = 3
GAP_MS = 2000    # without a request let in: ten times as long as one takes


class Case(unittest.TestCase):
    ROOTS = 3
    MAX = 200  # more than all back ends bear

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(self.ROOTS)
        self.set("scope=fleet", f"target={TARGET_MS}ms", f"max={self.MAX}",
                 "kind=concurrency", "sharing=adaptive")
        self.processes = {}

    def set(self, *fields):
        self.fleet.set("db", *fields, root=self.alive()[0])

    def alive(self):
        return [root for root in self.fleet.roots
                if root.process.poll() is None]

    def start(self, *names, clients=96, slow=1):
        """Processes that all roots answer."""
        for name in names:
            process = Backend(self.fleet.addresses(), "db", clients, name)
            self.addCleanup(process.process.kill)
            self.processes[name] = process
            process.tell(f"slow {slow}")

    def close(self):
        for process in self.processes.values():
            self.assertEqual(process.close(), 0)

    # ---- What the roots show ----

    def views(self):
        """Of the roots that have the quota: another's edit comes later."""
        for root in self.alive():
            try:
                yield root, root.get("/v1/fleet", name="db")
            except urllib.error.HTTPError as error:
                self.assertEqual(error.code, 404)

    def master(self):
        """The one root that leads."""
        leads = [root for root, view in self.views() if view["leads"]]
        self.assertLessEqual(len(leads), 1, "two roots lead")
        return leads[0] if leads else None

    def view(self):
        """The master's view, if it has found a limit or learned one."""
        for _, view in self.views():
            if view["leads"] and view["fleet"] and \
                    not view["fleet"]["learning"]:
                return view
        return None

    def until_view(self, what, judge, patience=PATIENCE):
        def ask():
            view = self.view()
            return view if view and judge(view) else None
        return until(what, ask, patience)

    def has_members(self, *names):
        return lambda view: sorted(
            one["name"] for one in view["members"]) == sorted(names)

    # ---- What the processes show ----

    def until_each(self, what, judge, *names):
        """What each process shows once it satisfies 'judge'."""
        return {name: until(f"{what}: {name}",
                            self.processes[name].limit_is(judge))
                for name in names or self.processes}

    def until_given(self, *names):
        """Each goes by its part of the fleet's limit."""
        return self.until_each(
            "a part of the fleet's limit", lambda seen: seen["fleet"] and
            not seen["alone"] and seen["reason"] == "given", *names)

    def mark(self):
        seen = {name: process.look()
                for name, process in self.processes.items()}
        for process in self.processes.values():
            process.tell("mark")
        return seen

    def until_served(self, before, requests, *names):
        """Each has served so many requests since then."""
        return self.until_each(
            f"{requests} requests", lambda seen: seen["served"] >=
            before + requests, *names)

    def assert_steady(self, before):
        """Since the mark none has stopped, and no part has fallen far below
        what it was, or jumped."""
        for name, was in before.items():
            seen = self.processes[name].look()
            said = f"{name}: {was}, then {seen}"
            self.assertLess(seen["gap_ms"], GAP_MS, said)
            self.assertGreater(seen["low"], was["limit"] / 2, said)
            self.assertLess(seen["high"], was["limit"] * 2, said)
            self.assertGreater(seen["served"], was["served"], said)

    def settle(self):
        """Three processes under more load than their back ends bear: a limit
        that is far above the one that a controller begins with (20)."""
        self.start("one", "two", "three", slow=SLOW)
        names = self.has_members("one", "two", "three")
        view = self.until_view("a limit", lambda view: names(view) and
                               view["fleet"]["limit"] > 40)
        self.until_each("its part", lambda seen: seen["reason"] == "given" and
                        seen["limit"] > 12)
        return view["fleet"]["limit"]


class Masters(Case):
    """Three roots, of which one leads."""

    def test_the_master_is_killed(self):
        limit = self.settle()
        before = self.mark()
        first = self.master()
        first.kill()
        view = self.until_view("another master's limit", lambda view: len(
            view["members"]) == 3)
        self.assertGreater(view["fleet"]["limit"], limit / 2)
        self.assertLess(view["fleet"]["limit"], limit * 2)
        second = self.master()
        self.until_view("windows are judged", lambda view:
                        view["fleet"]["windows"] >= 3)
        self.until_given()
        self.assert_steady(before)

        before = self.mark()
        first.start()
        until("it stands by", lambda: first.get(
            "/v1/fleet", name="db")["master"] == second.listen)
        windows = self.view()["fleet"]["windows"]
        self.until_view("more windows", lambda view:
                        view["fleet"]["windows"] >= windows + 3)
        self.until_given()
        self.assertIs(self.master(), second)
        self.assert_steady(before)
        for seen in self.processes.values():
            self.assertFalse(seen.look()["was_alone"])
        self.close()

    def test_nothing_is_refused(self):
        """Processes that want less than there is, while the master is killed
        and comes back."""
        self.start("one", "two", "three", clients=4)
        self.until_given()
        # A new process lets one request in at a time, and refuses others.
        self.until_each("room for all", lambda seen: seen["limit"] >= 4)
        before = self.mark()
        for _ in range(2):
            killed = self.master()
            killed.kill()
            self.until_view("another master's limit", lambda view: len(
                view["members"]) == 3 and view["fleet"]["windows"] >= 2)
            self.until_given()
            killed.start()
        for name, was in before.items():
            seen = self.processes[name].look()
            said = f"{name}: {was}, then {seen}"
            self.assertEqual(seen["limited"], was["limited"], said)
            self.assertLess(seen["gap_ms"], GAP_MS, said)
        self.close()


class Alone(Case):
    ROOTS = 1

    def test_the_only_root_is_killed(self):
        limit = self.settle()
        root = self.fleet.roots[0]
        before = self.mark()
        root.kill()
        self.until_each("it is alone", lambda seen: seen["alone"])
        self.until_each("it finds a limit", lambda seen:
                        seen["reason"] in ("headroom", "slow"))
        # Alone each bears as much as its part was.
        self.assert_steady(before)

        before = self.mark()
        root.start()
        view = self.until_view("its limit", lambda view: len(
            view["members"]) == 3)
        self.assertGreater(view["fleet"]["limit"], limit / 2)
        self.assertLess(view["fleet"]["limit"], limit * 2)
        self.until_view("windows are judged", lambda view:
                        view["fleet"]["windows"] >= 3)
        self.until_given()
        self.assert_steady(before)
        self.close()


class Members(Case):
    ROOTS = 1
    MAX = 30

    def test_a_process_joins(self):
        self.start("one", "two")
        self.until_each("half of it", lambda seen: seen["limit"] == 15)
        self.start("three")
        view = self.until_view("its share", lambda view: any(
            one["granted"] >= .5 * view["fleet"]["limit"] / 3
            for one in view["members"] if one["name"] == "three"))
        self.assertEqual(view["fleet"]["limit"], 30)
        self.until_each("a third", lambda seen: seen["limit"] == 10)
        self.close()

    def test_a_process_is_stopped(self):
        """Its part goes to the others, and it comes back with answers that it
        has read late: one slow path, not a slow service."""
        self.start("one", "two", "three")
        self.until_each("a third", lambda seen: seen["limit"] == 10)
        others = "one", "two"
        before = self.mark()
        stopped = self.processes["three"].process
        stopped.send_signal(signal.SIGSTOP)
        self.until_each("half of it", lambda seen: seen["limit"] == 15,
                        *others)
        stopped.send_signal(signal.SIGCONT)
        self.until_each("a third again", lambda seen: seen["limit"] == 10 and
                        seen["reason"] == "given")
        view = self.until_view("all", lambda view: len(view["members"]) == 3)
        self.assertEqual(view["fleet"]["limit"], 30)
        # Its own part was the others' until they gave it back.
        self.assert_steady({name: before[name] for name in others})
        self.assertLess(self.processes["three"].look()["gap_ms"], GAP_MS)
        self.close()


class Liars(Case):
    """A member whose latencies are false, beside three processes."""
    ROOTS = 1

    def lie(self, how):
        liar = subprocess.Popen(
            [LIAR, self.fleet.addresses(), "db", how],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(liar.stdout.close)
        self.addCleanup(liar.wait)
        self.addCleanup(liar.kill)
        self.assertEqual(liar.stdout.readline(), "told\n")
        return liar

    def test_slow(self):
        limit = self.settle()
        root = self.fleet.roots[0]
        before = self.mark()
        liar = self.lie("slow")
        view = self.until_view("it is named", lambda view: [
            one["name"] for one in view["members"] if one["left_out"]] ==
            ["liar"], 4 * PATIENCE)  # each window takes 15 s meanwhile
        self.assertGreater(view["fleet"]["limit"], limit / 2)
        windows = view["fleet"]["windows"]
        self.until_view("more windows", lambda view:
                        view["fleet"]["windows"] >= windows + 5)
        self.assertIn("'liar' is left out of the fleet's limit of quota 'db'",
                      root.logged())
        liar.kill()
        self.until_view("it is gone", lambda view: len(
            view["members"]) == 3 and view["fleet"]["outliers"] == 0)
        # A quarter of the limit was its part.
        self.assert_steady(before)
        self.close()

    def test_quick(self):
        limit = self.settle()
        before = self.mark()
        self.lie("quick")
        windows = self.until_view("its part", lambda view: len(
            view["members"]) == 4)["fleet"]["windows"]
        view = self.until_view("more windows", lambda view:
                               view["fleet"]["windows"] >= windows + 5)
        self.assertLess(view["fleet"]["limit"], limit * 2)
        self.assert_steady(before)
        self.close()


class Scope(Case):
    MAX = 100

    def shown_fleets(self):
        """The lines of `weir status` below the title of fleets' limits."""
        status, text, said = self.fleet.weir("status", root=self.master())
        self.assertEqual(status, 0, said)
        return text.partition("\nFLEET ")[2].splitlines()[1:]

    def test_it_is_switched_live(self):
        """Two processes with as much load as they bear, and one with little;
        nothing of it is refused."""
        self.start("one", "two", slow=SLOW)
        self.start("little", clients=4)
        self.until_given()
        self.until_each("room for all", lambda seen: seen["limit"] >= 4)
        before = self.mark()
        for _ in range(2):
            self.set("scope=process")
            self.until_each("a limit of its own", lambda seen:
                            not seen["fleet"] and seen["reason"] in
                            ("headroom", "slow"))
            until("no fleet", lambda: not self.shown_fleets())
            self.set("scope=fleet")
            self.until_given()
            self.until_view("a limit of all", lambda view: len(
                view["members"]) == 3 and view["fleet"]["windows"] >= 2)
            self.assertRegex(self.shown_fleets()[0], r"db +[0-9.]+ ")
        for name, was in before.items():
            seen = self.processes[name].look()
            said = f"{name}: {was}, then {seen}"
            self.assertLess(seen["gap_ms"], GAP_MS, said)
            if name == "little":
                self.assertEqual(seen["limited"], was["limited"], said)
        self.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
