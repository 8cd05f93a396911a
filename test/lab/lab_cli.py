#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lab_cli.py - `weir lab` as people and scripts use it: its output, the files
that it writes, its refusals and their texts. Fleets here are small, runs are
short, and time is virtual."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

WEIR = os.environ.get("WEIR") or str(Path(os.environ["WEIR_BUILD"]) / "weir")

SMALL = """\
# Three limiters, two roots, five seconds.
title "A small fleet under three times its load"
set limiters = 3
set rtt = 2ms
roots 2
limiters $limiters
network rtt=$rtt
quota api limit=200/s
load users to api rate=3x
run 5s
measure passed_mean over 2s..5s
measure passed_sd over 2s..5s
measure echo
claim "it is flat" holds if passed_sd < 0.5
claim "nothing is limited" holds if echo = 0
expect passed_mean over 2s..5s within 0.5..1.5
figure "The passed rate follows the limit" offered passed limit
figure "The fill stays under high_burst" fill root_fill limiter_fill
"""

VARIED = """\
title "The effect of the report interval"
set interval = 1s
vary interval 0.2s 1s
roots 1
limiters 4
node report_interval=$interval slack=off
quota api limit=200/s
load users to api rate=3x
run 4s
measure passed_sd over 1s..4s
figure "The swing grows with the interval" passed_sd against interval
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.home = Path(tempfile.mkdtemp(prefix="lab_cli."))
        self.addCleanup(shutil.rmtree, self.home)
        self.small = self.write("small.weir", SMALL)

    def write(self, name, text):
        path = self.home / name
        path.write_text(text)
        return str(path)

    def weir(self, *args, status=0):
        done = subprocess.run([WEIR, "lab", *args], text=True, cwd=self.home,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120)
        if status is not None:
            self.assertEqual(done.returncode, status,
                             f"weir lab {' '.join(args)}\n{done.stdout}"
                             f"{done.stderr}")
        return done

    def refused(self, *args):
        done = self.weir(*args, status=2)
        self.assertEqual(done.stdout, "")
        return done.stderr


class Looking(Case):
    def test_list_names_what_show_prints_and_check_finds_good(self):
        lines = self.weir("list").stdout.splitlines()
        names = [line.split()[0] for line in lines]
        self.assertIn("weir-fleet", names)
        listed = json.loads(self.weir("list", "--json").stdout)
        self.assertEqual([entry["name"] for entry in listed], names)
        for name in names:
            text = self.weir("show", name).stdout
            path = self.write(f"{name}.weir", text)
            self.assertIn("good", self.weir("check", path).stdout)

    def test_help_says_each_command(self):
        top = self.weir("--help").stdout
        for part in ["list", "show", "check", "run", "compare", "swarm"]:
            self.assertIn(f"\n  {part} ", top)
            done = subprocess.run([WEIR, "help", "lab", part], text=True,
                                  stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, 0)
            self.assertEqual(done.stdout, self.weir(part, "--help").stdout)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 79)


class Running(Case):
    def test_json_is_a_line_a_seed_and_the_same_each_time(self):
        ask = ["run", self.small, "--seeds", "3..6", "--json"]
        once = self.weir(*ask, "--jobs", "1").stdout
        self.assertEqual(once, self.weir(*ask, "--jobs", "3").stdout)
        rows = [json.loads(line) for line in once.splitlines()]
        self.assertEqual([row["seed"] for row in rows], [3, 4, 5, 6])
        self.assertEqual(list(rows[0])[:3], ["scenario", "seed", "metrics"])
        self.assertEqual(rows[0]["scenario"], "small")
        self.assertEqual(list(rows[0]["metrics"]),
                         ["passed_mean", "passed_sd", "echo"])
        self.assertEqual(len({row["takes"] for row in rows}), 4)

    def rows(self, *args):
        return [json.loads(line) for line in
                self.weir(*args, "--json").stdout.splitlines()]

    def test_variants_have_a_line_each(self):
        path = self.write("varied.weir", VARIED)
        rows = self.rows("run", path)
        self.assertEqual([row["variant"] for row in rows],
                         ["interval=0.2s", "interval=1s"])
        self.assertEqual(list(rows[0]), list(rows[1]))
        self.assertEqual(list(rows[0]["metrics"]), list(rows[1]["metrics"]))
        one = self.rows("run", path, "--variant", "interval=1s")
        self.assertEqual([row["metrics"] for row in one],
                         [rows[1]["metrics"]])

    def test_set_leaves_out_what_it_contradicts(self):
        path = self.write("named.weir", SMALL +
                          "set arrivals = poisson\n"
                          "variant regular arrivals=regular\n"
                          "variant poisson arrivals=poisson\n")
        self.assertEqual([row["variant"] for row in self.rows("run", path)],
                         ["regular", "poisson"])
        rows = self.rows("run", path, "--set", "arrivals=regular")
        self.assertEqual([row["variant"] for row in rows], ["regular"])
        self.assertIn("choose one with --variant: regular, poisson",
                      self.refused("run", path, "--set", "arrivals=never"))

    def test_set_changes_what_is_run(self):
        plain = self.weir("run", self.small, "--json").stdout
        slow = self.weir("run", self.small, "--json", "--set",
                         "rtt=200ms").stdout
        self.assertNotEqual(plain, slow)
        said = self.weir("run", self.small, "--set", "rtt=200ms").stdout
        self.assertIn("rtt=200ms", said)

    def test_text_says_what_held_and_what_was_refuted(self):
        said = self.weir("run", self.small).stdout
        self.assertIn("small: A small fleet under three times its load", said)
        self.assertRegex(said, r"\npassed_mean +[01]\.\d{3}\n")
        self.assertRegex(said, r"\n  holds +it is flat\n")
        self.assertRegex(said, r"\n  refuted +nothing is limited\n")
        self.assertRegex(said, r"\n  held +.*passed_mean .*\(found ")
        said = self.weir("run", self.small, "--seeds", "1..3").stdout
        self.assertRegex(said, r"mean +sd +least +most\n")

    def test_an_expectation_that_fails_is_status_1(self):
        path = self.write("hopeless.weir",
                          SMALL + "expect passed_mean > 2\n")
        said = self.weir("run", path, "--seeds", "1..2", status=1).stdout
        self.assertRegex(said, r"\n  FAILED +.*passed_mean > 2")
        self.assertIn("in 2 of 2 seeds: 1, 2", said)

    def test_a_scenario_from_a_pipe(self):
        done = subprocess.run([WEIR, "lab", "run", "-", "--json"],
                              input=SMALL, text=True, stdout=subprocess.PIPE,
                              check=True)
        self.assertEqual(json.loads(done.stdout)["metrics"],
                         json.loads(self.weir("run", self.small, "--json")
                                    .stdout)["metrics"])


class Files(Case):
    def test_out_has_series_and_figures(self):
        out = self.home / "out"
        self.weir("run", self.small, "--seeds", "1..2", "--out", str(out))
        wanted = {"small-1.csv", "small-2.csv", "small-1.gp", "small-1.dat",
                  "small-2.gp", "small-2.dat"}
        if shutil.which("gnuplot"):
            wanted |= {"small-1.svg", "small-2.svg"}
        self.assertEqual({path.name for path in out.iterdir()}, wanted)
        rows = (out / "small-1.csv").read_text().splitlines()
        self.assertTrue(rows[0].startswith("time_s,reports,messages,"))
        self.assertEqual(len(rows), 1 + 50)

    def test_out_is_the_same_each_time(self):
        path = self.write("varied.weir", VARIED)
        for name in ["a", "b"]:
            self.weir("run", path, "--seeds", "1..2", "--out", name)
        for first in sorted((self.home / "a").iterdir()):
            second = self.home / "b" / first.name
            self.assertEqual(first.read_bytes(), second.read_bytes(), first)

    def test_without_gnuplot_it_says_how_to_go_on(self):
        empty = self.home / "empty"
        empty.mkdir()
        done = subprocess.run([WEIR, "lab", "run", self.small, "--out",
                               "out"], text=True, cwd=self.home,
                              env={"PATH": str(empty)},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0)
        self.assertIn("install gnuplot-nox, then: cd out && gnuplot",
                      done.stderr)
        self.assertTrue((self.home / "out" / "small-1.csv").exists())

    def test_compare_shows_two_settings(self):
        done = self.weir("compare", self.small, "--set", "limiters=2",
                         "--vs", "--set", "limiters=9", "--out", "out")
        self.assertRegex(done.stdout,
                         r"\n +limiters=2 +limiters=9 +change\n")
        self.assertTrue((self.home / "out" / "small-1.gp").exists())
        lines = self.weir("compare", self.small, "--vs", "--set",
                          "limiters=9", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["variant"] for line in lines],
                         ["as written", "limiters=9"])


class Swarm(Case):
    def test_seeds_are_what_they_are(self):
        ask = ["swarm", "--seeds", "1..6"]
        self.assertIn("seeds 1..6: 0 of 6 failed", self.weir(*ask).stdout)
        once = self.weir(*ask, "--json", "--jobs", "1").stdout
        self.assertEqual(once, self.weir(*ask, "--json").stdout)
        self.assertEqual(len(once.splitlines()), 6)

    def test_show_prints_a_scenario_that_runs(self):
        text = self.weir("swarm", "--seeds", "4", "--show").stdout
        path = self.write("swarm4.weir", text)
        self.assertIn("good", self.weir("check", path).stdout)


class Refusals(Case):
    def test_names(self):
        self.assertEqual(self.refused("run", "weir-flet"),
                         "weir: there is no scenario 'weir-flet'; did you "
                         "mean 'weir-fleet'?\n")
        self.assertIn("`weir lab list` names", self.refused("run", "qqq"))
        self.assertIn("No such file", self.refused("run", "qqq.weir"))
        self.assertIn("did you mean `weir lab run`", self.refused("rnu"))
        self.assertIn("one scenario, please", self.refused("run"))

    def test_settings(self):
        said = self.refused("run", self.small, "--set", "limters=4")
        self.assertIn("limters", said)
        self.assertIn("limiters", said.replace("limters", ""))
        self.assertIn("--set", self.refused("run", self.small, "--set", "x"))
        said = self.refused("run", self.small, "--set", "limiters=many")
        self.assertIn("many", said)

    def test_numbers(self):
        for seeds, word in [("x", "1..20"), ("3..", "1..20"),
                            ("9..3", "write 3..9"), ("-1", "1..20"),
                            ("1..9999999", "at most 1000000 seeds"),
                            ("18446744073709551616", "1..20")]:
            said = self.refused("run", self.small, f"--seeds={seeds}")
            self.assertIn(word, said)
        self.assertIn("1 to 256", self.refused("run", self.small, "--jobs",
                                               "0"))
        self.assertIn("choose one", self.refused("run", self.small, "--seed",
                                                 "1", "--seeds", "1..2"))
        self.assertIn("one --seed", self.refused("run", self.small,
                                                 "--seeds", "1..2",
                                                 "--trace"))

    def test_a_file_with_a_mistake_is_shown_with_its_line(self):
        path = self.write("bad.weir", SMALL.replace("roots 2", "rots 2"))
        said = self.refused("run", path)
        self.assertTrue(said.startswith(f"{path}:5:1: "), said)
        self.assertIn("did you mean 'roots'", said)
        self.assertRegex(said, r"\n +rots 2\n +\^\n$")
        said = self.weir("check", self.small, path, status=2)
        self.assertIn("good", said.stdout)
        path = self.write("none.weir",
                          SMALL.replace("limiters = 3", "limiters = 0"))
        self.assertRegex(self.refused("run", path), r":\d+:\d+: ")

    def test_compare_wants_two(self):
        self.assertIn("compare what with what",
                      self.refused("compare", self.small))
        self.assertIn("one scenario, please",
                      self.refused("compare", "--vs", "--set", "x=1"))

    def test_out_that_is_no_folder(self):
        self.assertIn("can't write into the folder", self.refused(
            "run", self.small, "--json", "--out", self.small))


class Stopping(Case):
    def test_until_event_stops_before_it(self):
        whole = json.loads(self.weir("run", self.small, "--json").stdout)
        done = self.weir("run", self.small, "--json", "--until-event", "500",
                         "--trace", status=None)
        part = json.loads(done.stdout)
        self.assertLess(part["takes"], whole["takes"])
        self.assertIn("stops before event 500", done.stderr)
        self.assertTrue(re.search(r"\n.*499", done.stderr))


if __name__ == "__main__":
    unittest.main()
