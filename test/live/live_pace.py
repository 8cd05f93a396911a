#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_pace.py - `weir pace` with real pipes, on 10,000 lines of a real log.

A process on a busy machine is woken late and is slower than its rate, but it is
never faster. So the tests assert properties that hold on any machine: at every
instant the reader has at most the lines that the rate allows since before the
start, every line arrives, and some window of time shows the rate itself. The
exactness of the rate is tested in virtual time: test_pacer.c asserts that late
turns don't make a rate drift by a single unit, and that no span passes more."""

import fcntl
import gzip
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path

from patience import PATIENCE, until

WEIR = os.environ.get("WEIR") or str(Path(os.environ["WEIR_BUILD"]) / "weir")
SOURCE = Path(os.environ["WEIR_SOURCE"])
LOG = gzip.decompress((SOURCE / "test/data/access.log.gz").read_bytes())
LINES = 10000
# Seconds: a turn (1 ms) and the lateness that the pacer makes up for (9 ms).
LAG = 0.01
WINDOW = 0.5  # seconds over which a reader sees a rate


def waiting_bytes(pipe):
    """The number of bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, 0x541B, bytes(4)),  # FIONREAD
                          sys.byteorder)


def is_blocked(process):
    """Whether it sleeps without a timer, as a pacer does if its reader reads
    nothing. A pacer that isn't blocked is woken each millisecond, and is
    runnable if the machine doesn't let it run."""
    def slept():
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        switches = re.findall("switches:\\s*(\\d+)", Path(
            f"/proc/{process.pid}/status").read_text())
        return stat.rsplit(")", 1)[1].split()[0] == "S" and switches
    before = slept()
    time.sleep(0.05)
    return before and before == slept()


def has_signals(process):
    """Whether signals are pending for it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return any(int(mask, 16) for mask in
               re.findall("(?:SigPnd|ShdPnd):\\s*(\\w+)", status))


class Reader:
    """Reads to the end, and records the instant of each chunk."""

    def __init__(self, fd):
        self.fd = fd
        self.chunks = []  # (instant, bytes)

    def read(self, lines=None):
        """Reads to the end, or until it has so many lines."""
        seen = 0
        while lines is None or seen < lines:
            data = os.read(self.fd, 65536)
            if not data:
                break
            self.chunks.append((time.monotonic(), data))
            seen += data.count(b"\n")

    def text(self):
        return b"".join(data for _, data in self.chunks)

    def until_rate(self, per_s):
        """Reads on until a window has that rate; the end of the input is the
        deadline. The upper bound holds for every window: a chunk is timed
        after it was read, so only the few bytes in the pipe were written
        before a window."""
        missed = []
        while True:
            begin, seen = time.monotonic(), 0
            while time.monotonic() < begin + WINDOW:
                data = os.read(self.fd, 65536)
                if not data:
                    raise AssertionError(f"expected {per_s} lines a second, "
                                         f"got {missed}")
                self.chunks.append((time.monotonic(), data))
                seen += data.count(b"\n")
            missed.append(seen / (time.monotonic() - begin))
            if missed[-1] >= 0.95 * per_s:
                return missed[-1]

    def lead(self, per_s, since, first=0):
        """The most lines by which it was ahead of the rate, in the chunks from
        number 'first' on."""
        most, lines = 0, 0
        for at, data in self.chunks[first:]:
            lines += data.count(b"\n")
            most = max(most, lines - per_s * (at - since))
        return most


class Case(unittest.TestCase):
    def setUp(self):
        self.home = Path(tempfile.mkdtemp(prefix="live_pace."))
        self.addCleanup(shutil.rmtree, self.home)
        self.log = self.home / "access.log"
        self.log.write_bytes(LOG)

    def path(self, name):
        return str(self.home / name)

    def start(self, *options, stdin=None, **more):
        """Starts it; its input is the log, or 'stdin'."""
        opened = open(self.log, "rb") if stdin is None else stdin
        process = subprocess.Popen(
            [WEIR, "pace", *options], stdin=opened, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, bufsize=0, **more)
        if stdin is None:
            opened.close()
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def finish(self, process, status=0):
        error = process.stderr.read().decode()
        self.assertEqual(process.wait(PATIENCE), status, error)
        return error

    def run_pace(self, *options, input=b"", status=0):
        done = subprocess.run([WEIR, "pace", *options], input=input,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done.stdout, done.stderr.decode()

    def drain(self, process):
        chunks = []

        def read():
            while data := os.read(process.stdout.fileno(), 65536):
                chunks.append(data)
        thread = threading.Thread(target=read)
        thread.chunks = chunks
        thread.start()
        return thread

    def assert_same(self, got, wanted):
        """assertEqual() would print megabytes."""
        self.assertEqual(len(got), len(wanted))
        self.assertEqual(hashlib.sha256(got).hexdigest(),
                         hashlib.sha256(wanted).hexdigest())


class Rate(Case):
    def test_the_rate_is_kept_and_never_exceeded(self):
        self.log.write_bytes(LOG * 6)  # a minute of it
        begin = time.monotonic()
        process = self.start("--rate", "1000/s", "--json")
        reader = Reader(process.stdout.fileno())
        found = reader.until_rate(1000)
        process.send_signal(signal.SIGINT)
        reader.read()
        said = json.loads(self.finish(process, 1).splitlines()[-1])
        text = reader.text()
        self.assert_same(text, (LOG * 6)[:len(text)])
        self.assertEqual(said["units"], text.count(b"\n"))
        lead = reader.lead(1000, begin)
        print(f"{found:.0f} lines/s at the reader in {WINDOW} s, at most "
              f"{lead:.1f} lines ahead; {said}")
        self.assertLessEqual(lead, 1 + 1000 * LAG)

    def test_all_lines_come_and_are_counted(self):
        begin = time.monotonic()
        process = self.start("--rate", "5000/s", "--json")
        reader = Reader(process.stdout.fileno())
        reader.read()
        said = json.loads(self.finish(process))
        self.assert_same(reader.text(), LOG)
        self.assertEqual(said["units"], LINES)
        self.assertGreaterEqual(said["seconds"],
                                (LINES - 1) / 5000 - LAG - 0.001)
        self.assertLessEqual(reader.lead(5000, begin), 1 + 5000 * LAG)

    def test_a_reader_that_stops_is_not_flooded_afterwards(self):
        process = self.start("--rate", "1000/s", "--json")
        reader = Reader(process.stdout.fileno())
        reader.read(200)
        until("a pace that is blocked", lambda: is_blocked(process))
        begin = time.monotonic()
        time.sleep(1)  # this is the stall that is tested
        waited = time.monotonic() - begin
        stalled, at_once = len(reader.chunks), waiting_bytes(process.stdout)
        # A hundredth of a second of lines, or the smallest possible pipe.
        self.assertLessEqual(at_once, 8192)
        lines = LOG[sum(len(data) for _, data in reader.chunks):][
            :at_once].count(b"\n")
        end = time.monotonic()
        reader.read(1000)
        process.send_signal(signal.SIGINT)
        reader.read()
        said = json.loads(self.finish(process, 1).splitlines()[-1])
        text = reader.text()
        self.assert_same(text, LOG[:len(text)])
        lead = reader.lead(1000, end, stalled)
        print(f"waited {said['waited_s']} s of {waited:.3f}; {lines} lines "
              f"stood in the pipe; then {lead:.1f} lines ahead at most")
        self.assertGreaterEqual(said["waited_s"], waited - 0.001)
        # The lines in the pipe, the piece about to be written, and then the
        # rate. Making up for the stalled second would be a thousand lines.
        self.assertLessEqual(lead, lines + 2 * (1 + 1000 * LAG))

    def test_bytes_and_records(self):
        text = LOG[:400000]
        out, _ = self.run_pace("--rate", "400k/s", "--by", "byte", input=text)
        self.assert_same(out, text)
        out, _ = self.run_pace("--rate", "500/s", "--by", "record:1000",
                               input=text[:399999])
        self.assert_same(out, text[:399999])

    def test_a_burst_goes_at_once_and_the_rest_at_the_rate(self):
        """At a unit an hour, all lines that arrive are of the burst."""
        process = self.start("--rate", "1/h", "--burst", "9500", "--json")
        reader = Reader(process.stdout.fileno())
        reader.read(9500)
        ready, _, _ = select.select([process.stdout], [], [], 0.2)
        self.assertFalse(ready, "more than the burst was let go")
        process.send_signal(signal.SIGINT)
        reader.read()
        said = json.loads(self.finish(process, 1).splitlines()[-1])
        self.assertEqual(said["units"], 9500)
        self.assert_same(reader.text(),
                         b"".join(LOG.splitlines(True)[:9500]))

    def test_each_algorithm_keeps_all_and_its_rate(self):
        text = b"".join(LOG.splitlines(True)[:801])
        self.log.write_bytes(text)
        algorithms = ("leaky_queue", "fixed_window", "sliding_log",
                      "sliding_window")
        started = [self.start("--rate", "400/s", "--algorithm", algorithm,
                              "--json") for algorithm in algorithms]
        readers = [self.drain(process) for process in started]
        for algorithm, process, reader in zip(algorithms, started, readers):
            with self.subTest(algorithm):
                reader.join()
                self.assert_same(b"".join(reader.chunks), text)
                seconds = json.loads(self.finish(process))["seconds"]
                print(f"{algorithm}: {seconds} s")
                # 400 at once, 400 more at the next window, and one; a fixed
                # window may end just after the first lines.
                self.assertGreater(seconds, 0.99)

    def test_a_log_is_as_long_as_the_rate_needs(self):
        text = b"".join(LOG.splitlines(True)[:4000])
        for options in (["2000/s"], ["4096/s"], ["10M/s", "--by", "byte"]):
            out, _ = self.run_pace("--algorithm", "sliding_log", "--rate",
                                   *options, input=text)
            self.assert_same(out, text)
        _, said = self.run_pace("--algorithm", "sliding_log", "--rate",
                                "4097/s", input=text, status=2)
        self.assertIn("4096 at most", said)


class Lines(Case):
    def test_long_lines_no_last_feed_and_nothing_at_all(self):
        texts = [b"", b"\n", b"one", b"a\n\nb", b"x" * 3000000 + b"\ny\n",
                 bytes(range(256)) * 5000, b"z" * 300000]
        for text in texts:
            out, _ = self.run_pace("--rate", "100k/s", input=text)
            self.assert_same(out, text)

    def test_records_of_any_size(self):
        for size in (1, 4096, 131072, 200000, 262144, 262145, 1000000):
            text = LOG[:400] if size == 1 else LOG
            out, said = self.run_pace("--rate", "1k/s", "--json", "--by",
                                      f"record:{size}", input=text)
            self.assert_same(out, text)
            self.assertEqual(json.loads(said)["units"],
                             (len(text) + size - 1) // size)

    def test_a_slow_writer_isnt_waited_for_with_a_half_line(self):
        process = self.start("--rate", "1000/s", stdin=subprocess.PIPE)
        process.stdin.write(b"first\nsec")
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"first\n")
        ready, _, _ = select.select([process.stdout], [], [], 0.2)
        self.assertFalse(ready, "half a line was let go")
        process.stdin.write(b"ond\n")
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"second\n")
        process.stdin.close()
        self.finish(process)


class Stop(Case):
    def stop_and_go_on(self, *options, signal_at=300):
        state = self.path("state")
        process = self.start(*options, "--state", state)
        reader = Reader(process.stdout.fileno())
        reader.read(signal_at)
        process.send_signal(signal.SIGINT)
        reader.read()
        said = self.finish(process, 1)
        first = reader.text()
        self.assertIn("stopped after", said)
        self.assertTrue(os.path.exists(state), said)
        process = self.start(*options, "--state", state)
        reader = Reader(process.stdout.fileno())
        reader.read()
        self.finish(process)
        self.assertFalse(os.path.exists(state))
        self.assert_same(first + reader.text(), LOG)
        return first

    def test_stopped_and_gone_on_with_at_a_line(self):
        first = self.stop_and_go_on("--rate", "10k/s")
        self.assertTrue(first.endswith(b"\n"))

    def test_stopped_and_gone_on_with_at_a_record(self):
        first = self.stop_and_go_on("--rate", "20k/s", "--by", "record:300")
        self.assertEqual(len(first) % 300, 0)

    def test_input_that_has_changed_is_noticed(self):
        state = self.path("state")
        process = self.start("--rate", "1000/s", "--state", state)
        Reader(process.stdout.fileno()).read(50)
        process.send_signal(signal.SIGTERM)
        Reader(process.stdout.fileno()).read()
        self.finish(process, 1)
        self.log.write_bytes(b"y" + LOG[1:])
        process = self.start("--rate", "1000/s", "--state", state)
        out = process.stdout.read()
        said = self.finish(process, 2)
        self.assertEqual(out, b"")
        self.assertIn("isn't what it was", said)
        self.log.write_bytes(LOG[:10])
        process = self.start("--rate", "1000/s", "--state", state)
        self.assertIn("shorter", self.finish(process, 2))
        Path(state).write_text("something else\n")
        process = self.start("--rate", "1000/s", "--state", state)
        self.assertIn("no file that", self.finish(process, 2))

    def test_a_reader_that_goes_leaves_a_state(self):
        state = self.path("state")
        process = self.start("--rate", "2000/s", "--state", state)
        got = os.read(process.stdout.fileno(), 1000)
        process.stdout.close()
        said = self.finish(process, 1)
        self.assertIn("the reader has gone", said)
        written = int(Path(state).read_text().splitlines()[1].split()[0])
        self.assertGreaterEqual(written, len(got))

    def test_a_reader_that_goes_leaves_whole_lines(self):
        """The rate is high, so many lines go at once; and whole records."""
        state = self.path("state")
        for options, unit in ((["-r", "1M/s"], None),
                              (["-r", "1M/s", "--by", "record:300"], 300)):
            process = self.start(*options, "--state", state)
            until("a pipe that is nearly full", lambda: int.from_bytes(
                fcntl.ioctl(process.stdout, 0x541B, b"\0" * 4),  # FIONREAD
                sys.byteorder) > 50000)
            process.stdout.close()
            self.finish(process, 1)
            line = Path(state).read_text().splitlines()[1].split()
            written, units = int(line[0]), int(line[1])
            self.assertEqual(units, written // unit if unit
                             else LOG[:written].count(b"\n"))
            if unit:
                self.assertEqual(written % unit, 0)
            else:
                self.assertTrue(LOG[:written].endswith(b"\n"))
            os.unlink(state)

    def test_killed_it_knows_where_it_was(self):
        """It repeats about a second, and begins at the start of a line."""
        state = self.path("state")
        process = self.start("--rate", "2000/s", "--state", state)
        until("a state", lambda: os.path.exists(state))
        process.kill()
        first = process.stdout.read()
        process.wait()
        line = Path(state).read_text().splitlines()[1].split()
        written, units = int(line[0]), int(line[1])
        self.assertGreater(written, 0)
        self.assertLessEqual(written, len(first))
        self.assertEqual(LOG[:written].count(b"\n"), units)
        self.assertTrue(LOG[:written].endswith(b"\n"))
        process = self.start("--rate", "100k/s", "--state", state, "--json")
        rest = process.stdout.read()
        said = json.loads(self.finish(process))
        self.assert_same(first[:written] + rest, LOG)
        self.assertEqual(said["units"], LINES)
        self.assertFalse(os.path.exists(state))

    def test_a_reader_that_never_reads_can_be_left(self):
        """It blocks in the middle of a line that is longer than a pipe: after
        the first signal it waits for the line's end, the second ends it."""
        state, log = self.path("state"), self.path("long")
        line = b"x" * 300000 + b"\n"
        Path(log).write_bytes(line)
        with open(log, "rb") as opened:
            process = self.start("--rate", "100k/s", "--state", state,
                                 stdin=opened)
        until("a pace that is blocked", lambda: is_blocked(process))
        process.send_signal(signal.SIGINT)
        # Two signals that are pending arrive as one.
        until("the signal was read", lambda: not has_signals(process))
        process.send_signal(signal.SIGINT)
        said = self.finish(process, 1)
        self.assertIn("stopped after", said)
        written = int(Path(state).read_text().splitlines()[1].split()[0])
        self.assert_same(process.stdout.read(), line[:written])


class Jobs(Case):
    def test_each_at_its_own_rate(self):
        lines = LOG.splitlines(True)
        for name, count in (("a b", 100), ("b", 200), ("c", 300)):
            Path(self.path(name)).write_bytes(b"".join(lines[:count]))
        jobs = self.path("jobs")
        Path(jobs).write_text(
            "# rate  input  output\n\n"
            f'100/s "{self.path("a b")}" {self.path("a.out")}\n'
            f'200/s {self.path("b")} {self.path("b.out")} # twice that\n'
            f'300/s {self.path("c")} {self.path("c.out")}\n')
        _, said = self.run_pace("--jobs", jobs, "--json")
        self.assertGreater(json.loads(said)["seconds"], 0.98)
        for name, out in (("a b", "a.out"), ("b", "b.out"), ("c", "c.out")):
            self.assert_same(Path(self.path(out)).read_bytes(),
                             Path(self.path(name)).read_bytes())

    def test_stopped_and_gone_on_with(self):
        jobs, state = self.path("jobs"), self.path("state")
        small = self.path("small")
        Path(small).write_bytes(b"1\n2\n3\n")
        Path(jobs).write_text(f"10k/s {self.log} {self.path('out')}\n"
                              f"1k/s {small} {self.path('small.out')}\n")
        process = self.start("--jobs", jobs, "--state", state)
        until("some output", lambda: os.path.exists(self.path("out")) and
              os.path.getsize(self.path("out")) > 100000)
        process.send_signal(signal.SIGINT)
        self.finish(process, 1)
        part = os.path.getsize(self.path("out"))
        self.assertLess(part, len(LOG))
        self.run_pace("--jobs", jobs, "--state", state)
        self.assert_same(Path(self.path("out")).read_bytes(), LOG)
        self.assertEqual(Path(self.path("small.out")).read_bytes(),
                         b"1\n2\n3\n")

    def test_one_that_cant_go_on_stops_none_of_the_others(self):
        jobs, fifo = self.path("jobs"), self.path("fifo")
        os.mkfifo(fifo)
        reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        Path(jobs).write_text(f"10k/s {self.log} {fifo}\n"
                              f"20k/s {self.log} {self.path('out')}\n")
        process = self.start("--jobs", jobs)
        until("the other", lambda: os.path.exists(self.path("out")) and
              os.path.getsize(self.path("out")) == len(LOG))
        os.close(reading)
        self.finish(process, 1)

    def test_no_file_is_written_that_is_read(self):
        """Under any of its names; and no file is emptied before all jobs are
        known to be sound."""
        jobs, other = self.path("jobs"), self.path("other")
        shutil.copy(self.log, other)
        os.link(other, self.path("linked"))
        os.symlink(other, self.path("pointed"))
        mine = self.path("out")
        for lines, wanted in (
                (f"100/s {other} {other}\n", "reads it"),
                (f"100/s {other} {self.path('linked')}\n", "reads it"),
                (f"9/s {other} {mine}\n9/s {mine} {self.path('o')}\n",
                 "reads it"),
                (f"9/s {self.log} {self.path('pointed')}\n"
                 f"9/s {self.log} {self.path('linked')}\n",
                 "another job writes"),
                (f"9/s {self.log} {mine}\n9/s {self.path('no')} o\n",
                 "No such file"),
                (f"9/s {self.log} {mine}\n9/s {self.log} /nowhere/o\n",
                 "No such file"),
                ("9/s - a\n9/s - b\n", "another job reads -")):
            Path(mine).write_text("of value\n")
            Path(jobs).write_text(lines)
            _, said = self.run_pace("--jobs", jobs, status=2)
            self.assertIn(wanted, said)
            self.assert_same(Path(other).read_bytes(), LOG)
            self.assertEqual(Path(mine).read_text(), "of value\n")

    def test_a_file_that_grows_by_what_is_read_of_it(self):
        with open(self.log, "rb") as read, open(self.log, "ab") as grows:
            done = subprocess.run([WEIR, "pace", "-r", "1M/s"], stdin=read,
                                  stdout=grows, stderr=subprocess.PIPE,
                                  timeout=PATIENCE)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assert_same(self.log.read_bytes(), LOG)

    def test_no_output_is_emptied_for_a_state_that_cant_be_written(self):
        jobs, mine = self.path("jobs"), self.path("out")
        Path(mine).write_text("of value\n")
        Path(jobs).write_text(f"9/s {self.log} {mine}\n")
        self.run_pace("--jobs", jobs, "--state", "/nowhere/state", status=2)
        self.assertEqual(Path(mine).read_text(), "of value\n")

    def test_what_a_file_of_jobs_must_say(self):
        jobs = self.path("jobs")
        for text, wanted in (
                ("100/s onlyone\n", "RATE INPUT OUTPUT"),
                ("fast a b\n", "jobs:1"),
                ("\n", "no job in it"),
                ("1/s a o\n1/s b o\n", "another job writes o"),
                (f"1/s {self.path('none')} {self.path('o')}\n",
                 "No such file")):
            Path(jobs).write_text(text)
            _, said = self.run_pace("--jobs", jobs, status=2)
            self.assertIn(wanted, said)


class Quota(Case):
    def setUp(self):
        super().setUp()
        ports = self.path("ports")
        self.root = subprocess.Popen(
            [WEIR, "serve", "--listen", "127.0.0.1:0", "--http",
             "127.0.0.1:0", "--port-file",
             ports], stderr=subprocess.DEVNULL,
            cwd=self.home, env={**os.environ, "HOME": str(self.home)})
        self.addCleanup(self.root.wait)
        self.addCleanup(self.root.kill)
        until("the root's ports", lambda: os.path.exists(ports))
        places = dict(line.split("=") for line in
                      Path(ports).read_text().split())
        self.address, self.http = places["listen"], places["http"]

    def weir(self, *words):
        subprocess.run([WEIR, *words, "--roots", self.address], check=True,
                       stdout=subprocess.DEVNULL)

    def test_two_processes_share_a_live_quota(self):
        """The quota doesn't leak during the test, so both write its burst and
        their slack (a quarter of it in all), however slow they are. After an
        edit they write the rest."""
        self.weir("quota", "set", "out", "limit=1/h", "high_burst=1000",
                  "low_burst=1000")
        text = b"".join(LOG.splitlines(True)[:1500])
        both = [self.start("--quota", "out", "--roots", self.address,
                           stdin=subprocess.PIPE) for _ in range(2)]
        outs = [self.drain(process) for process in both]
        # The first use of a name is decided by each process alone, until the
        # root has answered.
        first = text.index(b"\n") + 1
        for process in both:
            process.stdin.write(text[:first])
        until("two units at the root", lambda: self.passed("out") == 2)
        feeders = [self.feed(process, text[first:]) for process in both]

        def lines():
            return sum(chunk.count(b"\n") for out in outs
                       for chunk in list(out.chunks))
        until("the burst", lambda: lines() >= 1000)
        print(f"of a burst of 1,000 two processes let go {lines()}")
        until("a root that was told", lambda: self.passed("out") >= 1000)
        # Two without a common root would write 2,000.
        self.assertLess(lines(), 1500)
        self.weir("quota", "set", "out", "limit=100k/s", "high_burst=1000")
        for process, feeder, out in zip(both, feeders, outs):
            feeder.join()
            out.join()
            self.finish(process)
            self.assert_same(b"".join(out.chunks), text)
        until("the rest at the root", lambda: self.passed("out") == 3000)

    def passed(self, name):
        """Units that passed, as the root counts."""
        url = f"http://{self.http}/v1/usage?limit=1000"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            listed = json.loads(answer.read())["quotas"]
        return sum(one["passed"] for one in listed if one["name"] == name)

    def feed(self, process, text):
        def write():
            process.stdin.write(text)
            process.stdin.close()
        thread = threading.Thread(target=write)
        thread.start()
        return thread

    def test_a_name_without_quota_is_refused(self):
        _, said = self.run_pace("--quota", "nobody", "--roots", self.address,
                                input=b"1\n", status=2)
        self.assertIn("weir quota set nobody", said)

    def test_the_rate_can_be_changed_meanwhile(self):
        self.weir("quota", "set", "out", "limit=1/s", "high_burst=1")
        process = self.start("--quota", "out", "--roots", self.address)
        os.read(process.stdout.fileno(), 1000)
        self.weir("quota", "set", "out", "limit=100k/s", "high_burst=1000")
        reader = Reader(process.stdout.fileno())
        reader.read()
        self.finish(process)
        self.assertEqual(reader.text()[-100:], LOG[-100:])


class Words(Case):
    def test_what_goes_together(self):
        for options, wanted in (
                ([], "how fast?"),
                (["--rate", "1/s", "--quota", "a"], "how fast?"),
                (["--rate", "0"], "rate of 0"),
                (["--rate", "unlimited"], "nothing to pace"),
                (["--rate", "1/s", "--by", "word"], "line, byte or record"),
                (["--rate", "1/s", "--by", "record:0"], "1 byte"),
                (["--rate", "1/s", "--burst", "0"], "1 unit"),
                (["--rate", "1/s", "--algorithm", "guess"], "guess"),
                (["--rate", "1/s", "--algorithm", "leaky"], "token_bucket"),
                (["--rate", "1/s", "--algorithm", "fixed_window", "--burst",
                  "3"], "bucket's"),
                (["--quota", "a", "--burst", "3"], "of its own"),
                (["--rate", "1/s", "file"], "< file"),
                (["--rate", "1/s", "--state", "/nowhere/s"], "/nowhere"),
                (["--jobs", "/nowhere/s"], "can't be read")):
            _, said = self.run_pace(*options, status=2)
            self.assertIn(wanted, said, options)

    def test_the_bar(self):
        master, slave = pty.openpty()
        with open(self.log, "rb") as log:
            process = subprocess.Popen(
                [WEIR, "pace", "--rate", "10k/s", "--progress"], stdin=log,
                stdout=subprocess.DEVNULL, stderr=slave)
        os.close(slave)
        said = b""
        try:
            while data := os.read(master, 4096):
                said += data
        except OSError:
            pass  # the end of a terminal
        os.close(master)
        self.assertEqual(process.wait(PATIENCE), 0)
        text = said.decode()
        self.assertIn("set: 10000/s", text)
        self.assertRegex(text, r"0:01 left")
        last = text.rstrip().split("\r")[-1]
        self.assertIn("[" + "#" * 20 + "] 100 %  10000 lines", last)


if __name__ == "__main__":
    unittest.main(verbosity=2)
