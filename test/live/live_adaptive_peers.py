#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_adaptive_peers.py - bench/adaptive-peers: its figures, of arrivals that
are known; and short runs, in which every peer and every backend produces its
lines.

The short runs fetch the peers by the registries of Go, Maven and Python. A
peer that can't be fetched is skipped by name."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(os.environ["WEIR_SOURCE"]) / "bench/adaptive-peers"
sys.path.insert(0, str(BENCH))
from phases import Arrival, Run, percentile, read  # noqa: E402
from runs import Job, batches  # noqa: E402

PEERS = ["weir", "static", "gradient2", "vegas", "aimd", "aimd-target",
         "failsafe", "envoy", "envoy-front"]
PHASES = ["steady", "hang", "recovery", "slowdown"]


class Figures(unittest.TestCase):
    def figures(self, arrivals, processes=1, begin_ms=0, end_ms=2000):
        return Run(arrivals, processes).figures(begin_ms, end_ms, 100, 1000)

    def test_percentile_is_a_nearest_rank(self):
        values = list(range(1, 101))
        self.assertEqual([percentile(values, share)
                          for share in (1, 50, 95, 100)], [1, 50, 95, 100])
        self.assertEqual(percentile([7], 95), 7)
        self.assertEqual(percentile([1, 2], 50), 1)
        self.assertIsNone(percentile([], 95))

    def test_lines_of_a_process(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("1.50 s 20.25 0.10\n7.00 d 0.00 0.00\n")
            f.flush()
            self.assertEqual(list(read(3, f.name)), [
                Arrival(3, 1.5, "s", 20.25, .1), Arrival(3, 7, "d", 0, 0)])

    def test_answers_count_where_they_end(self):
        # Arrived in the first two seconds, answered in the next two.
        early = [Arrival(0, 1900, "s", 300, 0), Arrival(0, 1950, "d", 0, 0)]
        first = self.figures(early)
        self.assertEqual((first["offered"], first["admitted"],
                          first["goodput"]), (1, .5, 0))
        self.assertIsNone(first["p95_ms"])
        second = self.figures(early, begin_ms=2000, end_ms=4000)
        self.assertEqual((second["offered"], second["goodput"],
                          second["p95_ms"]), (0, .5, 300))

    def test_a_window_is_over_by_its_percentile(self):
        fast = [Arrival(0, 10 * i, "s", 50, 0) for i in range(90)]
        slow = [Arrival(0, 1000 + 10 * i, "s", 150, 0) for i in range(80)]
        got = self.figures(fast + slow)
        self.assertEqual((got["windows"], got["windows_over"],
                          got["over_target"]), (2, 1, .5))
        self.assertEqual((got["p50_ms"], got["p95_ms"]), (50, 150))
        self.assertEqual(got["served_each_s"], [90, 80])
        # A window without an end is none.
        self.assertEqual(self.figures(fast)["windows"], 1)

    def test_a_caller_that_gave_up_is_slow_and_not_served(self):
        got = self.figures([Arrival(0, 10, "t", 1500, 0),
                            Arrival(0, 20, "e", 5, 0)])
        self.assertEqual((got["goodput"], got["timed_out"], got["errors"],
                          got["windows_over"], got["p95_ms"]),
                         (0, 1, 1, 1, 1500))

    def test_the_first_five_seconds(self):
        each = [Arrival(0, 100 * i, "s", 0, 0) for i in range(100)]
        late = [a for a in each if a.at_ms >= 4000]
        self.assertEqual(self.figures(late, end_ms=10000)["first_5s"], 2)
        self.assertEqual(self.figures(each, end_ms=2000)["first_5s"], 10)

    def test_shares_are_of_an_equal_part(self):
        got = self.figures([Arrival(i % 4 == 0, i, "s", 0, 0)
                            for i in range(400)], processes=2)
        self.assertEqual((got["share_min"], got["share_max"]), (.5, 1.5))
        idle = self.figures([Arrival(0, 1, "d", 0, 0)], processes=2)
        self.assertEqual((idle["share_min"], idle["share_max"]),
                         (None, None))


class Batches(unittest.TestCase):
    def sizes(self, processes, count, processes_max):
        jobs = [Job("weir", n, "poisson") for n in processes]
        made = list(batches(jobs, count, processes_max))
        self.assertEqual([job for batch in made for job in batch], jobs)
        return [len(batch) for batch in made]

    def test_by_jobs_and_by_processes(self):
        self.assertEqual(self.sizes([], 3, 10), [])
        self.assertEqual(self.sizes([1] * 7, 3, 10), [3, 3, 1])
        self.assertEqual(self.sizes([4, 4, 4, 4], 3, 10), [2, 2])
        # One that is too large runs alone.
        self.assertEqual(self.sizes([20, 20, 1], 3, 10), [1, 1, 1])


@unittest.skipUnless(shutil.which("go"), "there is no go in the PATH")
class ShortRun(unittest.TestCase):
    def lines(self, *options):
        done = subprocess.run(
            [BENCH / "measure", "--build", os.environ["WEIR_BUILD"],
             "--quick", *options],
            check=True, stdout=subprocess.PIPE, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        told = {}
        for line in lines:
            told.setdefault((line.get("backend"), line.get("peer")),
                            []).append(line)
        return told, done.stdout

    def check(self, backend, peers, *options):
        told, text = self.lines("--backends", backend, "--peers",
                                ",".join(peers), "--scope", "process",
                                *options)
        self.assertEqual(list(told), [(backend, peer) for peer in peers])
        for (_, peer), lines in told.items():
            with self.subTest(peer=peer):
                note = lines[0].get("note", "")
                if note.startswith("not fetched:"):
                    self.skipTest(f"{peer}: {note}")
                self.assertEqual(note, "")
                self.assertEqual([line["phase"] for line in lines], PHASES)
                for line in lines:
                    self.assertGreater(line["offered"], 0)
                # An answer at some time: the backend is there.
                self.assertGreater(sum(line["goodput"] for line in lines), 0)
        return told, text

    def test_each_peer_produces_its_lines(self):
        _, text = self.check("workers", PEERS, "--arrivals", "poisson")
        # The figure leaves out runs that were late on a busy machine.
        lines = [{**json.loads(line), "late_p99_ms": 0}
                 for line in text.splitlines() if '"note"' not in line]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "peers.json"
            file.write_text("".join(json.dumps(line) + "\n"
                                    for line in lines))
            table = subprocess.run([BENCH / "figure", file, folder],
                                   check=True, stdout=subprocess.PIPE,
                                   text=True).stdout
            for name in ("adaptive-peers", "adaptive-peers-workers"):
                self.assertTrue((Path(folder) / f"{name}.svg").exists())
        self.assertIn("| workers | poisson | 2 | weir |", table)

    def test_the_article(self):
        self.check("article", ["weir"], "--arrivals", "regular",
                   "--processes", "3", "--abandoned", "work")

    def test_postgres(self):
        """A database that is locked, and one whose processes are stopped."""
        for hang in ([], ["--stop"]):
            told, _ = self.check("postgres", ["weir"], *hang)
            lines = told["postgres", "weir"]
            self.assertGreater(lines[0]["capacity"], 0)
            self.assertEqual(sum(line["errors"] for line in lines), 0)

    def test_the_fleet_runs_or_is_left_out_with_the_reason(self):
        told, _ = self.lines("--backends", "workers", "--peers", "weir",
                             "--scope", "both", "--times", "hang=2")
        fleet = told.pop((None, "weir-fleet"), None)
        if fleet is None:
            self.assertEqual(
                [line["phase"] for line in told["workers", "weir-fleet"]],
                PHASES)
        else:
            self.assertIn("weir refuses scope=fleet: there is no field",
                          fleet[0]["note"])
        self.assertEqual([line["phase"] for line in told["workers", "weir"]],
                         PHASES)


if __name__ == "__main__":
    unittest.main()
