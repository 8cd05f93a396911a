#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_lab.py - scenarios in both back ends: real processes must behave as the
simulator does.

Each scenario that comes with the program and has `live` must hold in virtual
time. One scenario has every action that a live run can do, among them the death
of each kind of process: real processes must meet the same expectations, in the
same order, however long a busy machine needs (--patience), and the counts must
add up. Rates and other measures are asserted in the simulator, and for real
fleets by live_roots.py and others. In live runs they are figures of a quiet
machine, for the suite "long" (WEIR_LAB_LIVE=1). A live run refuses actions that
it can't do, and leaves nothing behind however it ends."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from live_fleet import WEIR, until

PATIENCE = 180  # seconds, for one run
LATE = "60s"      # for one expectation of it
SEED = os.environ.get("WEIR_SEED", "1")
SERIES = str(Path(os.environ["WEIR_BUILD"]) / "live_lab")


def lab(*arguments, **options):
    return subprocess.run([WEIR, "lab", *arguments], text=True,
                          capture_output=True, timeout=PATIENCE, **options)


def live_scenarios():
    """Names of the scenarios that have `live`."""
    listed = json.loads(lab("list", "--json").stdout)
    return [scenario["name"] for scenario in listed
            if "live" in lab("show", scenario["name"]).stdout.splitlines()]


def outcome(name, *options):
    """Expectation -> its lines, and the metrics."""
    done = lab("run", name, "--seed", SEED, "--json", *options)
    if done.returncode > 1 or not done.stdout:
        raise AssertionError(f"{name} {options}: {done.stderr}")
    said = json.loads(done.stdout)
    found = {}
    for line in said["expectations"]:
        found.setdefault(line["text"], []).append(line)
    return found, said["metrics"]


# All actions; no measures, which are for virtual time. Each expectation must
# hold before the next action that makes it untrue. A root serves one edit after
# the other: once an edit is in force, the earlier ones are.
VERBS = """title "Everything that a live run can do"
roots 3
limiters 6 started=5
links l1..l2 to root1..root2
network rtt=1ms
node stale_after=2s
quota all limit=5000/s
quota api limit=1000/s parent=all
quota other limit=100/s low_burst=0.5s high_burst=0.5s
load users to api rate=2x spread=zipf:1 weight=1..3
load beat to other rate=1x sine=50%/2s arrivals=regular
load bursts to other rate=5x burst=200ms/1s on=l1..l2
run 9s
always epochs <= 4
at 0s expect limit of api = 1000 within 1s
at 0.5s expect links = 13
at 0.5s expect ready = 5
at 1s start l6
at 1s expect links = 16 within 500ms
at 1.5s pause l1
at 1.7s resume l1
at 2s cut l3 from root3 up
at 2.2s expect links = 15
at 2.5s cut l4 from root1 noticed after 200ms
at 2.6s expect links = 14
at 2.7s expect links = 14
at 3s mend
at 3s expect links = 16 within 1400ms
at 3.5s store away
at 3.6s set api limit=3000/s
at 4s expect limit of api = 1000
at 4s store back
at 4.2s set api limit=2000/s
at 4.2s set api limit=2500/s
at 4.2s expect limit of api = 2500 within 200ms
at 4.5s reset root2
at 4.6s expect links = 16 within 700ms
at 5s remove other
at 5.1s set api limit=2200/s
at 5.1s expect limit of api = 2200 within 300ms
at 5.2s load users rate=100/s
at 5.5s restart root3 after 300ms
at 5.5s kill 1 of l1..l6
at 5.6s expect ready = 5
at 6s expect roots = 3 within 400ms
at 6.5s kill root1..root3
at 6.6s expect roots = 0
at 6.6s expect links = 0 within 900ms
at 7.5s start root1..root3
at 7.5s expect roots = 3 within 500ms
at 7.5s expect links >= 13 within 1s
at 8.9s expect ready = 5
"""
MEASURES = """expect offered_mean of api over 2s..4s within 3.5..4.5
expect offered_mean of api over 6s..8s within 0.05..0.15
expect offered_mean of other over 1s..4s within 1.6..2.4
expect passed_max of other over 1s..4s < 2
"""


class BothBackEnds(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-live-lab-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def assert_held(self, what, expectations):
        missed = [line for lines in expectations.values() for line in lines
                  if not line["held"]]
        self.assertEqual(missed, [], f"{what}, seed {SEED}")

    def test_every_action(self):
        path = self.folder / "verbs.weir"
        path.write_text(VERBS + MEASURES)
        simulated, _ = outcome(path)
        self.assert_held("simulated", simulated)
        path.write_text(VERBS)
        live, _ = outcome(path, "--live", "--patience", LATE, "--out",
                          self.folder / "out")
        self.assert_held("live", live)
        self.assertEqual({text: len(held) for text, held in live.items()},
                         {text: len(held) for text, held in simulated.items()
                          if text not in MEASURES})
        self.assert_adds_up(self.folder / "out" / f"verbs-{SEED}.csv")

    def assert_adds_up(self, path):
        with open(path) as file:
            samples = list(csv.DictReader(file))
        self.assertEqual(len(samples), 90)
        for quota in "all", "api", "other":
            sums = {what: sum(float(sample[f"{quota}.{what}"])
                              for sample in samples)
                    for what in ("offered", "passed", "limited")}
            print(quota, sums, file=sys.stderr)
            self.assertAlmostEqual(sums["passed"] + sums["limited"],
                                   sums["offered"], delta=1e-6, msg=quota)
            self.assertGreater(sums["passed"], 0, quota)
            self.assertGreater(sums["limited"], 0, quota)

    def test_the_scenarios_that_come_with_it(self):
        names = live_scenarios()
        self.assertGreaterEqual(len(names), 5)
        for name in names:
            with self.subTest(name):
                self.assert_held(name, outcome(name)[0])

    @unittest.skipUnless(os.environ.get("WEIR_LAB_LIVE"),
                         "figures of a quiet machine: WEIR_LAB_LIVE=1")
    def test_the_same_expectations_are_met(self):
        for name in live_scenarios():
            simulated, there = outcome(name)
            # The series stay in SERIES, for a look after a failure.
            live, here = outcome(name, "--live", "--out", SERIES)
            for metric, value in there.items():
                print(f"{name:20} {metric:20} simulated {value:8.3f}  "
                      f"live {here[metric]:8.3f}", file=sys.stderr)
            self.assertEqual(simulated.keys(), live.keys())
            with self.subTest(name):
                self.assert_held(name, live)


class Refused(unittest.TestCase):
    FILE = """title "t"
roots 1
limiters {limiters}
network {network}
quota q limit=10/s
load l to q {load}
run 1s
{more}
"""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-live-lab-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def refusal(self, **parts):
        path = self.folder / "x.weir"
        usual = {"limiters": 1, "network": "rtt=1ms", "load": "rate=1x",
                 "more": ""}
        path.write_text(self.FILE.format(**{**usual, **parts}))
        self.assertEqual(lab("check", path).returncode, 0)
        done = lab("run", path, "--live", env=dict(os.environ,
                                                   TMPDIR=self.folder))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(os.listdir(self.folder), ["x.weir"])
        return done.stderr

    def test_what_processes_cannot_do(self):
        for what, parts in {
            "x.weir:4:9: --live can't lose messages": {"network": "loss=1%"},
            "x.weir:4:9: --live can't delay messages":
                {"network": "rtt=100ms"},
            "can't start 65 limiters": {"limiters": 65},
            "x.weir:6:6: --live can't give each key its limiter":
                {"load": "rate=1x spread=sticky"},
            "x.weir:8:7: --live can't slow processors":
                {"more": "at 0s cpu root1 message=1ms"},
            "x.weir:8:9: --live can't move clocks":
                {"more": "at 0.5s clock l1 step=1s"},
            "x.weir:8:8: --live can't see what is above high":
                {"more": "always over_high of q < 1"},
            "x.weir:8:9: --live can't see what passes of one load":
                {"more": "measure passed_mean of load l"},
            "x.weir:8:20: --live can't see what passes of one load":
                {"more": 'claim "c" holds if passed_mean of load l > 0'},
        }.items():
            with self.subTest(what):
                said = self.refusal(**parts)
                self.assertIn(what, said)
                self.assertIn("run it in the simulator", said)

    def test_patience_ends(self):
        """The run waits that long, and then goes on to its end."""
        path = self.folder / "x.weir"
        path.write_text(self.FILE.format(
            limiters=1, network="rtt=1ms", load="rate=1x",
            more="at 0.2s expect ready = 9\nat 0.3s expect ready = 1"))
        begin = time.monotonic()
        done = lab("run", path, "--live", "--json", "--patience", "2s")
        self.assertGreater(time.monotonic() - begin, 2.9)
        self.assertEqual(done.returncode, 1, done.stderr)
        held = {line["text"]: line["held"]
                for line in json.loads(done.stdout)["expectations"]}
        self.assertEqual(sorted(held.values()), [False, True], held)

    def test_patience_is_for_live_runs(self):
        for options, wanted in ((["--patience", "1s"], "is for --live"),
                                (["--live", "--patience", "x"], "--patience")):
            done = lab("run", "live-steady", *options)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(wanted, done.stderr)


class Ends(unittest.TestCase):
    """A run that is ended from outside leaves no process and no file."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-live-lab-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.process = subprocess.Popen(
            [WEIR, "lab", "run", "live-steady", "--live"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, TMPDIR=str(self.folder)))
        self.addCleanup(self.process.communicate)
        self.addCleanup(self.process.kill)
        until("three roots and five limiters",
              lambda: len(self.children()) >= 8)

    def children(self):
        """Processes that name the run's folder or are its agents."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1]
            except OSError:
                continue
            ours = b"TMPDIR=" + str(self.folder).encode() in words
            if ours and int(entry.name) != self.process.pid and \
                    state.split()[0] != "Z":
                found.append(int(entry.name))
        return found

    def test_interrupted(self):
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=PATIENCE)
        self.assertEqual(self.process.returncode, 2, said)
        self.assertIn("interrupted", said)
        self.assertEqual(self.children(), [])
        # A sanitizer's runtime leaves a file there.
        left = [name for name in os.listdir(self.folder)
                if not name.startswith("tsan.")]
        self.assertEqual(left, [])

    def test_killed(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        until("an end of all its processes", lambda: not self.children())


if __name__ == "__main__":
    unittest.main()
