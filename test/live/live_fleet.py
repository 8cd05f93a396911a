# SPDX-License-Identifier: MIT
"""live_fleet.py - helpers of the live tests of a fleet: roots on one store,
limiters under load (live_load.c), and waiting for their counts and rates.

Roots and limiters are processes with free ports and a folder of their own;
close() ends them all."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from patience import PATIENCE, free_port, until

BUILD = Path(os.environ["WEIR_BUILD"])
WEIR = str(BUILD / "weir")
LOAD = str(BUILD / "test" / "live_load")
# Seconds over which a rate is a mean. A bucket moves within its band, which
# over two seconds is a few per cent of a limit.
MEAN = 2


class Root:
    """A `weir serve`, which can be killed and started again on its ports."""

    def __init__(self, fleet, *options, env=None):
        self.fleet, self.options, self.env = fleet, options, env
        # These ports stay its own while it is dead.
        self.listen, self.http = (f"127.0.0.1:{free_port()}"
                                  for _ in range(2))
        self.number = len(fleet.roots)
        self.start()

    def start(self):
        ports = self.fleet.folder / f"ports{self.number}"
        ports.unlink(missing_ok=True)
        with open(self.fleet.folder / f"log{self.number}", "a") as log:
            self.process = subprocess.Popen(
                [WEIR, "serve", *self.source(), "--listen",
                 self.listen, "--http", self.http, "--port-file", ports,
                 "--name", f"root{self.number}", *self.options], stderr=log,
                env=self.env)
        try:
            until("a root's port file", lambda:
                  self.process.poll() is not None or ports.exists())
        except AssertionError:
            self.kill()
            raise
        if self.process.poll() is not None:
            raise AssertionError("weir serve ended: " + self.logged())

    def source(self):
        """The options that name the source of its quotas."""
        return ["--store", self.fleet.store]

    def kill(self):
        """Kills it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def logged(self):
        return (self.fleet.folder / f"log{self.number}").read_text()

    def read(self, path, **query):
        url = f"http://{self.http}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def get(self, path, **query):
        return json.loads(self.read(path, **query))

    def status(self):
        return self.get("/v1/status")

    def usage(self):
        """Quota -> usage, of the quotas in use."""
        listed = self.get("/v1/usage", limit=1000)["quotas"]
        return {quota["name"]: quota for quota in listed}


class RegionRoot(Root):
    """A root of a region, under the roots 'above'."""

    def __init__(self, fleet, region, above, *options):
        self.region, self.above = region, above
        super().__init__(fleet, *options)

    def source(self):
        return ["--region", self.region, "--upstream",
                ",".join(root.listen for root in self.above), "--snapshot",
                str(self.fleet.folder / f"region{self.number}.snapshot")]


class Limiter:
    """A live_load; its lines are read by a thread as they come."""

    def __init__(self, roots, name, loads, bin_ms=100, ready=False,
                 env=None):
        self.name = name
        self.lines = []
        self.process = subprocess.Popen(
            [LOAD, *(["--ready"] if ready else []), roots, name, str(bin_ms),
             *loads], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=env)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def told(self, key, pid=None):
        """The lines with 'key', of the process itself or of its child."""
        pid = pid or self.process.pid
        return [line for line in list(self.lines)
                if key in line and line["pid"] == pid]

    def seen(self, pid=None):
        """The last bin, or None before the first."""
        pid = pid or self.process.pid
        for line in reversed(self.lines):
            if "seen" in line and line["pid"] == pid:
                return line
        return None

    def up(self):
        seen = self.seen()
        return seen["roots_up"] if seen else 0

    def flip(self, name, passed, after):
        """The instant of the first flip to 'passed' after an instant."""
        for line in self.told("flip"):
            if (line["flip"], line["passed"]) == (name, int(passed)) and \
                    line["at"] > after:
                return line["at"]
        return None

    def counts(self, name, start, end, pid=None):
        """(offered, passed, calls, failed, seconds) between the bins that
        are nearest to two instants."""
        bins = self.told("seen", pid)
        first = min(bins, key=lambda line: abs(line["at"] - start))
        last = min(bins, key=lambda line: abs(line["at"] - end))
        counts = [b - a for a, b in zip(first["seen"][name],
                                        last["seen"][name])]
        return (*counts, last["at"] - first["at"])

    def rates(self, name, start, end, pid=None):
        """(offered, passed) per second between two instants."""
        offered, passed, _, _, seconds = self.counts(name, start, end, pid)
        return (offered / seconds, passed / seconds) if seconds else (0, 0)

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join(PATIENCE)
        self.process.stdout.close()
        return self.process.returncode


class Fleet:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-fleet-"))
        self.db = self.folder / "quotas.db"
        self.store = f"sqlite:{self.db}"
        self.roots, self.limiters = [], []
        self.weir("store", "init", self.store)

    def weir(self, *arguments, root=None, env=None):
        """Runs the command line; (status, output, errors)."""
        env = dict(env or os.environ, NO_COLOR="1")
        env["WEIR_ROOTS"] = (root or self.roots[0]).listen \
            if self.roots else ""
        done = subprocess.run([WEIR, *arguments], env=env, text=True,
                              capture_output=True, timeout=PATIENCE)
        return done.returncode, done.stdout, done.stderr

    def set(self, *arguments, root=None):
        status, _, said = self.weir("quota", "set", *arguments, root=root)
        if status != 0:
            raise AssertionError(f"weir quota set {arguments}: {said}")

    def add_roots(self, count, *options, env=None):
        for _ in range(count):
            self.roots.append(Root(self, *options, env=env))

    def add_region(self, name, count, *options, above=None):
        """The roots of a new region, under the top roots or under 'above'."""
        above = above or [root for root in self.roots
                          if not isinstance(root, RegionRoot)]
        made = []
        for _ in range(count):
            made.append(RegionRoot(self, name, above, *options))
            self.roots.append(made[-1])
        return made

    def addresses(self):
        return ",".join(root.listen for root in self.roots)

    def add_limiter(self, loads, bin_ms=100, roots=None, ready=False,
                    env=None):
        limiter = Limiter(roots or self.addresses(),
                          f"limiter{len(self.limiters)}", loads, bin_ms,
                          ready=ready, env=env)
        self.limiters.append(limiter)
        return limiter

    def wait_linked(self, roots=None):
        """Waits until every limiter has that many roots."""
        wanted = len(self.roots) if roots is None else roots
        until(f"{wanted} roots up for every limiter",
              lambda: all(limiter.seen() and limiter.up() == wanted
                          for limiter in self.limiters))

    def rates(self, name, start, end, limiters=None):
        """(offered, passed) per second of these limiters together."""
        rates = [limiter.rates(name, start, end)
                 for limiter in limiters or self.limiters]
        return tuple(sum(column) for column in zip(*rates))

    def means(self, names, start, limiters=None):
        """Quota -> (offered, passed) per second over MEAN seconds from start,
        once every limiter has printed these bins."""
        limiters = limiters or self.limiters
        until("the last bin of a window", lambda: all(
            limiter.seen() and limiter.seen()["at"] >= start + MEAN
            for limiter in limiters))
        return {name: self.rates(name, start, start + MEAN, limiters)
                for name in names}

    def until_rates(self, wanted, part, limiters=None, patience=PATIENCE):
        """Waits until the fleet passes the wanted rates: 'wanted' is quota ->
        units per second, and each must be met by a mean over MEAN, to within
        'part' of it. Returns the means that met them.

        The fleet settles on a rate; how soon depends on the machine. So the
        windows begin now and follow each other without a gap, and the first
        window that meets a rate settles that quota. A fleet that keeps to
        another rate fails when patience is over."""
        start = time.monotonic()
        end = start + patience
        met, missed = {}, {}
        while True:
            means = self.means(wanted, start, limiters)
            for name in wanted.keys() - met.keys():
                passed = means[name][1]
                if abs(passed - wanted[name]) <= part * wanted[name]:
                    met[name] = passed
                else:
                    missed.setdefault(name, []).append(round(passed))
            if met.keys() == wanted.keys():
                return met
            if time.monotonic() > end:
                raise AssertionError("; ".join(
                    f"{name}: expected {wanted[name]:.0f}/s give or take "
                    f"{part:.0%}, got in windows of {MEAN} s {missed[name]}"
                    for name in sorted(wanted.keys() - met.keys())))
            start += MEAN

    def until_rate(self, name, wanted, part, limiters=None):
        """until_rates() for one quota; returns its mean."""
        return self.until_rates({name: wanted}, part, limiters)[name]

    def failed(self):
        """Calls without a verdict, over all limiters and quotas."""
        return sum(counts[3] for limiter in self.limiters
                   for counts in limiter.seen()["seen"].values())

    def close(self):
        for limiter in self.limiters:
            limiter.stop()
        for root in self.roots:
            if root.process.poll() is None:
                root.process.send_signal(signal.SIGKILL)
                root.process.wait()
        shutil.rmtree(self.folder)
