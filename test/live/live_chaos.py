#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_chaos.py - six services, an agent and a root around one shared table.
Any of them is killed, or stopped for 0.1 to 5 s, at random points; half of the
points are in the middle of takes that lock. These must hold:

- No take is held up: neither by a stopped process nor by one that doesn't get
  the processor. BOUND and SLICE say how long a take may run and sleep, beside
  the time in which its own process was stopped or didn't get the processor
  (table_service.c). None hangs: in the end each service ends by itself.
- The agent answers /healthz within HEALTHZ whenever it runs itself.
- No count is lost: the table has the units that the services saw pass, and at
  most one more for each call in which a service was killed. The root, killed
  and started as well, has the units of the table: they fill a bucket that
  hardly leaks, which a new root takes over (docs/design/late-counts.md).
- No quota passes more than its limit and its stated bound. No unit stays in
  flight, and the table passes its audit.

WEIR_KILLS and WEIR_STOPS are the numbers of points (30 and 12). The seed
repeats the choice of points and victims, not the machine's schedule."""

import json
import math
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

from agent_probe import ask
from live_fleet import BUILD, WEIR, Fleet
from patience import PATIENCE, free_port, until, until_equal

KILLS = int(os.environ.get("WEIR_KILLS", "30"))
STOPS = int(os.environ.get("WEIR_STOPS", "12"))
SERVICES, THREADS = 6, 4
BOUND = 0.001    # seconds: a take's wait for locks (weir.h)
SLICE = 0.010    # of a thread on the processor; longer than the kernel's
HEALTHZ = 0.100
SHORTEST, LONGEST = 0.1, 5  # seconds, of a stop
STOPPED_MAX = 3  # processes at once
PAUSE = 0.25     # the longest time between two points
EDITED = 0.3     # probability of an edit before a point
AIM = 0.02       # the longest wait for a take that locks

KINDS = ["ledger", "limited", "log", "window", "user", "db"]
LOCKING = 1 + KINDS.index("log")
LIMITED, BURST = 5000, 750
LOG, LOGS = 2000, 1500  # in any second
WINDOW = 5000    # in an hour
DB = 200         # in flight
QUOTAS = [
    ("ledger", "limit=1/day", "low_burst=1000000000", "high_burst=1000000000"),
    ("limited", f"limit={LIMITED}/s", "low_burst=500", f"high_burst={BURST}"),
    # The parent refuses more often: the log's step is undone then.
    ("logs", f"limit={LOGS}/s", "sharing=local", "algorithm=sliding_window"),
    ("log", f"limit={LOG}/s", "sharing=local", "algorithm=sliding_log",
     f"max_entries={LOG}", "parent=logs"),
    ("window", f"limit={WINDOW}/h", "sharing=local", "algorithm=fixed_window"),
    ("users", "limit=1/day", "low_burst=1000000000", "high_burst=1000000000"),
    ("spill", "limit=unlimited", "parent=users"),
    ("user/*", "limit=1000/s", "parent=users", "overflow=spill"),
    ("db", "kind=concurrency", "sharing=local", f"limit={DB}"),
]


def say(text):
    print(text, file=sys.stderr, flush=True)


class Record:
    """struct record of table_service.c."""

    COUNT, LISTED = 4, 8192
    HEAD = 4
    THREAD = 1 + COUNT * len(KINDS)
    TAKES = HEAD + THREADS * THREAD
    TAKE = 7
    GAPS = TAKES + TAKE * LISTED
    WORDS = GAPS + 2 * LISTED

    def __init__(self, path):
        path.write_bytes(bytes(8 * self.WORDS))
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 8 * self.WORDS)

    def words(self, at, count=1):
        return struct.unpack_from(f"={count}Q", self.map, 8 * at)

    def end(self):
        struct.pack_into("=Q", self.map, 0, 1)

    def started(self):
        return self.words(1)[0]

    def doing(self):
        return [self.words(self.HEAD + i * self.THREAD)[0]
                for i in range(THREADS)]

    def counts(self, kind):
        """(begun, passed, limited, unknown) of a kind, over all threads."""
        return [sum(column) for column in zip(*(
            self.words(self.HEAD + i * self.THREAD + 1 + self.COUNT * kind,
                       self.COUNT) for i in range(THREADS)))]

    def takes(self):
        """(kind, start, wall, own, allocated, ran, switches) of long takes; in
        seconds."""
        count = min(self.words(2)[0], self.LISTED)
        rows = struct.iter_unpack(f"={self.TAKE}Q", self.map[
            8 * self.TAKES:8 * (self.TAKES + self.TAKE * count)])
        return [(KINDS[row[0]], *(t / 1e9 for t in row[1:6]), row[6])
                for row in rows if row[1]]

    def gaps(self):
        count = min(self.words(3)[0], self.LISTED)
        rows = struct.iter_unpack("=2Q", self.map[
            8 * self.GAPS:8 * (self.GAPS + 2 * count)])
        return [(start / 1e9, end / 1e9) for start, end in rows if end]

    def beyond(self):
        """Takes and gaps that found no place in the lists."""
        return [max(0, count - self.LISTED) for count in self.words(2, 2)]

    def close(self):
        self.map.close()
        self.file.close()


def overlap(start, end, intervals):
    """The time between two instants that is in any of the intervals."""
    covered, upto = 0, start
    for first, last in sorted(intervals):
        first, last = max(first, upto), min(last, end)
        if last > first:
            covered, upto = covered + last - first, last
    return covered


class Victim:
    """A process that is killed, stopped and started again."""

    def __init__(self, name):
        self.name = name
        self.stops = []         # [(from, to)], of CLOCK_MONOTONIC
        self.stopped_at = None  # instant; None: it isn't stopped
        self.go_on_at = None

    def spawn(self, log, *command):
        self.log = log
        with open(log, "a") as errors:
            self.process = subprocess.Popen(command, stderr=errors)

    def stop(self, seconds):
        self.stopped_at = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)
        self.go_on_at = time.monotonic() + seconds

    def go_on(self):
        if self.stopped_at is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.stops.append((self.stopped_at, time.monotonic()))
        self.stopped_at = None

    def kill(self):
        self.process.kill()
        if self.process.wait(PATIENCE) != -signal.SIGKILL:
            raise AssertionError(f"{self.name} ended by itself: "
                                 f"{self.process.returncode} {self.logged()}")
        self.go_on()

    def logged(self):
        return self.log.read_text()[-1000:]


class Service(Victim):
    def __init__(self, test, number):
        super().__init__(f"service {number}")
        self.test, self.number = test, number
        self.record_path = test.memory / f"record{number}"
        self.record = Record(self.record_path)
        self.start()

    def start(self):
        # Half of them can be the reporter.
        roots = [self.test.root.listen] if self.number % 2 else []
        self.spawn(self.test.folder / f"service{self.number}.log",
                   BUILD / "test" / "table_service", self.test.table,
                   self.record_path, str(self.number), *roots)

    def is_locking(self):
        return LOCKING in self.record.doing()


class Agent(Victim):
    def __init__(self, test):
        super().__init__("agent")
        self.test = test
        self.http = f"127.0.0.1:{free_port()}"
        self.pid_file = test.folder / "agent.pid"
        self.ups = []  # [(started, killed)]
        self.start()

    def start(self):
        self.began = time.monotonic()
        self.spawn(self.test.folder / "agent.log", WEIR, "agent", "--roots",
                   self.test.root.listen, "--table", self.test.table,
                   "--http", self.http)
        self.pid_file.write_text(str(self.process.pid))

    def kill(self):
        killed = time.monotonic()
        super().kill()
        self.ups.append((self.began, killed))


class RootVictim(Victim):
    def __init__(self, root):
        super().__init__("root")
        self.root = root

    def logged(self):
        return self.root.logged()[-1000:]

    @property
    def process(self):
        return self.root.process

    def start(self):
        self.root.start()

    def edit(self, name, **fields):
        """Returns when it is in force here; it isn't stopped."""
        request = urllib.request.Request(
            f"http://{self.root.http}/v1/quotas/{name}", method="PATCH",
            data=json.dumps(fields).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            answer.read()


class Chaos(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("WEIR_SEED", time.time_ns()))
        say(f"WEIR_SEED={seed}")
        self.chance = random.Random(seed)
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.folder = self.fleet.folder
        # In memory: a page of a file on a disk can make a thread wait.
        self.memory = Path(tempfile.mkdtemp(prefix="weir-chaos-",
                                            dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.memory)
        self.table = str(self.memory / "table")
        # A root that is stopped again and again is never missed for so long.
        self.fleet.add_roots(1, "--stale-after", "10min")
        self.root, = self.fleet.roots
        for quota in QUOTAS:
            self.fleet.set(*quota)
        self.victims, self.services, self.edits = [], [], 0
        self.addCleanup(self.kill_all)
        self.agent = Agent(self)
        self.root_victim = RootVictim(self.root)
        self.victims += [self.agent, self.root_victim]
        self.await_agent()
        self.began = time.monotonic()
        for number in range(SERVICES):
            self.services.append(Service(self, number))
            self.victims.append(self.services[-1])
        for service in self.services:
            until("its takes", service.record.started)

    def await_agent(self):
        until("the agent has its quotas", lambda: ask(
            self.agent.http, "/readyz") == 200)

    def kill_all(self):
        for victim in self.victims:
            if victim.process.poll() is None:
                victim.process.kill()
                victim.process.wait()
        for service in self.services:
            service.record.close()

    # ---- The points ----

    def aim(self, victim):
        """Half of the points at a service are while it takes from a quota that
        locks; some microseconds later."""
        if not isinstance(victim, Service) or self.chance.random() < 0.5:
            return
        delay = self.chance.random() * 100e-6
        end = time.monotonic() + AIM
        while time.monotonic() < end:
            if victim.is_locking():
                break
        end = time.monotonic() + delay
        while time.monotonic() < end:
            pass

    def go_on(self, all=False):
        """Ends the stops that are over; or all, each in its time."""
        while True:
            stopped = [v for v in self.victims if v.stopped_at is not None]
            due = [v for v in stopped if time.monotonic() >= v.go_on_at]
            for victim in due:
                victim.go_on()
            crowded = len(stopped) - len(due) >= STOPPED_MAX
            if not crowded and not (all and len(stopped) > len(due)):
                return
            time.sleep(0.002)

    def pause(self):
        end = time.monotonic() + self.chance.random() * PAUSE
        while time.monotonic() < end:
            self.go_on()
            time.sleep(0.002)

    def strike(self, point):
        if point == "kill":
            victim = self.chance.choice(self.victims)
            self.aim(victim)
            victim.kill()
            victim.start()
            return
        victim = self.chance.choice([v for v in self.victims
                                     if v.stopped_at is None])
        # Short ones are more frequent: evenly by their logarithm.
        seconds = math.exp(self.chance.uniform(math.log(SHORTEST),
                                               math.log(LONGEST)))
        self.aim(victim)
        victim.stop(seconds)

    def edit(self):
        """Now and then: a rule with a state, or one with many instances."""
        if self.root_victim.stopped_at or self.chance.random() > EDITED:
            return
        self.edits += 1
        if self.edits % 2:
            self.root_victim.edit("log", limit=f"{LOG - self.edits % 4}/s",
                                  max_entries=LOG)
        else:
            self.root_victim.edit("user/*", limit=f"{1000 + self.edits}/s")

    def strike_all(self):
        points = ["kill"] * KILLS + ["stop"] * STOPS
        self.chance.shuffle(points)
        for point in points:
            self.pause()
            self.go_on()
            self.edit()
            self.strike(point)
        self.go_on(all=True)

    def probe(self, mode, *words):
        """A process that asks the agent (agent_probe.py)."""
        with open(self.folder / mode, "w") as out:
            process = subprocess.Popen(
                [sys.executable, Path(__file__).parent / "agent_probe.py",
                 mode, self.agent.http, *words], stdin=subprocess.PIPE,
                stdout=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    # ---- The test ----

    def test_killed_and_stopped(self):
        probes = [self.probe("watch", self.agent.pid_file),
                  self.probe("busy")]
        self.strike_all()
        say(f"{KILLS} killed, {STOPS} stopped, {self.edits} edits in "
            f"{time.monotonic() - self.began:.1f} s")
        for service in self.services:
            service.record.end()
        for service in self.services:
            until(f"the end of {service.name}",
                  lambda: service.process.poll() is not None)
            self.assertEqual(service.process.returncode, 0, service.logged())
        self.await_agent()
        for probe in probes:
            probe.stdin.close()
            self.assertEqual(probe.wait(PATIENCE), 0)
        self.agent.ups.append((self.agent.began, time.monotonic()))
        until_equal("the last edit in the table", self.root.status()["epoch"],
                    self.epoch_of_agent)
        found = self.check_counts(time.monotonic() - self.began)
        found += self.check_takes() + self.check_healthz()
        self.agent.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.agent.process.wait(PATIENCE), 0)
        self.assertEqual(self.examine("db")["db"][1], 0)
        self.assertEqual(found, [])

    def epoch_of_agent(self):
        with urllib.request.urlopen(f"http://{self.agent.http}/v1/status",
                                    timeout=PATIENCE) as answer:
            return json.load(answer)["epoch"]

    def examine(self, *names):
        done = subprocess.run(
            [BUILD / "test" / "table_examiner", self.table, *names],
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check_counts(self, seconds):
        """Sentences about counts that are wrong."""
        found = []
        until("no unit in flight",
              lambda: self.examine("db")["db"][1] == 0)
        table = self.examine("ledger", "limited", "log", "window", "users")
        for kind, name in enumerate(KINDS):
            begun, passed, limited, unknown = (sum(column) for column in zip(*(
                service.record.counts(kind) for service in self.services)))
            say(f"{name}: {passed:,} passed, {limited:,} limited, "
                f"{begun - passed - limited} in which a process was killed")
            if unknown:
                found.append(f"{name}: {unknown} passed without a quota")
            if name == "db":
                continue
            count = table["users" if name == "user" else name][0]
            if not passed <= count <= begun - limited:
                found.append(f"{name}: {count} in the table; {passed} passed, "
                             f"{begun - limited} at most")
            most = {"limited": LIMITED * seconds + BURST + SERVICES * THREADS,
                    # If its lock's holder was killed, a state begins anew;
                    # of an edit that is assumed as well.
                    "log": LOG * (seconds + 1 + KILLS + self.edits),
                    "window": WINDOW * (2 + KILLS)}.get(name, math.inf)
            if passed > most:
                found.append(f"{name}: {passed} passed, {most:.0f} at most")
        for name in "ledger", "users":
            until_equal(f"the units of {name} at the root", table[name][0],
                        lambda: self.at_root(name, table[name][0]))
        return found

    def at_root(self, name, count):
        """The units in its bucket; 'count' if just one of these has leaked."""
        fill = self.root.usage().get(name, {"fill": 0})["fill"]
        return count if count - 1 <= fill <= count else fill

    def stood_still(self):
        """Gaps of services that weren't stopped: those of the machine."""
        return [gap for service in self.services
                for gap in service.record.gaps()
                if overlap(*gap, service.stops) == 0]

    def long_takes(self):
        """Kind -> [(own, wall, allocated, ran, switches)]: the first two
        without the time in which the process was stopped, or the machine
        stood still."""
        machine, found = self.stood_still(), {}
        for service in self.services:
            away = service.record.gaps() + service.stops + machine
            for kind, start, wall, own, *rest in service.record.takes():
                gone = overlap(start, start + wall, away)
                found.setdefault(kind, []).append(
                    (own - gone, wall - gone, *rest))
        return found

    def check_takes(self):
        beyond = [service.record.beyond() for service in self.services]
        say(f"gaps of the machine: {len(self.stood_still())}; takes and gaps "
            f"beyond the lists: {beyond}")
        found = []
        for kind, takes in self.long_takes().items():
            own, wall, allocated, _, switches = (
                max(column) for column in zip(*takes))
            late = [take for take in takes if take[0] > BOUND + SLICE]
            say(f"longest take of {kind}: {own * 1e3:.1f} ms of its own, "
                f"{wall * 1e3:.1f} ms by the clock, {allocated * 1e3:.1f} ms "
                f"for memory, {switches} switches; {len(late)} too long")
            found += [
                f"{kind}: a take of {own * 1e3:.0f} ms of its own: "
                f"{wall * 1e3:.0f} ms by the clock, {allocated * 1e3:.0f} ms "
                f"for memory; since the account was read {ran * 1e3:.0f} ms "
                f"on a processor, {switches} switches"
                for own, wall, allocated, ran, switches in late]
        return found

    def check_healthz(self):
        """While the agent was up and wasn't stopped."""
        machine = self.stood_still()
        lines = (self.folder / "watch").read_text().splitlines()
        probes = [json.loads(line) for line in lines]
        longest, late, failed, judged, starts = 0, 0, 0, 0, []
        for began, killed in self.agent.ups:
            first = [p["end"] for p in probes
                     if p["start"] >= began and p["status"] == 200]
            if not first:
                continue
            starts.append(first[0] - began - overlap(
                began, first[0], self.agent.stops))
            for p in probes:
                if p["start"] < first[0] or p["end"] > killed or \
                        overlap(p["start"], p["end"], self.agent.stops):
                    continue
                own = p["own"] - overlap(p["start"], p["end"], machine)
                judged += 1
                failed += p["status"] != 200
                late += own > HEALTHZ
                longest = max(longest, own)
        say(f"/healthz: {judged} answers, the longest {longest * 1e3:.1f} ms, "
            f"{late} late, {failed} failed; the longest start "
            f"{max(starts):.2f} s")
        return [f"/healthz: {late} late, {failed} failed, the longest "
                f"{longest * 1e3:.0f} ms"] if late or failed else []


if __name__ == "__main__":
    unittest.main()
