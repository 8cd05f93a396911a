#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""demo.py BUILD - two roots, three services, real load, seven claims.

Starts two `weir serve` on one SQLite file and three of examples/service.c,
and lets wrk replay an access log at them (replay.lua), three times as much as
the site's quota allows. Then it edits quotas, kills roots and locks the store
under that load, prints a line each second, and in the end a line per claim
with the figures. Exit status: 0 if all hold, 1 if one fails, 2 if it can't
run. Everything lives in a temporary directory and on free ports."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOG = HERE.parent / "test" / "data" / "access.log.gz"
SERVICES = ["web1", "web2", "web3"]
LIMIT = 2000            # a second, for the whole site
LOAD = 3 * LIMIT        # a second, on all services together
NIGHT = 1000            # a second, for the other parent
CLIENT = 100            # a second, for each client
BUSIEST = "66.249.73.135"   # of the log's clients
STALE = 2               # seconds
TOLERANCE = 0.03

COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
BOLD, GREEN, RED, DIM = "1", "32", "31", "2"


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def say(text=""):
    print(text, flush=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def until(what, ask):
    """Calls the function until its answer is true, and returns the answer."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.01)
    raise RuntimeError(f"{what}: not within 10 s")


# ---- Processes ----


class Root:
    def __init__(self, stage, name):
        self.stage, self.name = stage, name
        self.listen = self.http = "127.0.0.1:0"
        self.start()

    def start(self):
        ports = self.stage.folder / f"{self.name}.ports"
        ports.unlink(missing_ok=True)
        self.process = self.stage.start(
            self.name, [self.stage.weir, "serve", "--store", self.stage.store,
                        "--listen", self.listen, "--http", self.http,
                        "--name", self.name, "--port-file", ports,
                        "--stale-after", f"{STALE}s"])
        until(f"{self.name} listens", ports.exists)
        said = dict(line.split("=") for line in ports.read_text().split())
        self.listen, self.http = said["listen"], said["http"]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def usage(self, quota):
        url = f"http://{self.http}/v1/usage?match={quota}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            usage = json.load(answer)
        of = next((q for q in usage["quotas"] if q["name"] == quota), None)
        return dict(of, at=usage["at"]) if of else None


class Service:
    def __init__(self, stage, name, roots):
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.process = stage.start(
            name, [stage.build / "examples" / "service", "--listen",
                   self.address, "--roots", roots, "--name", name])
        self.connection = http.client.HTTPConnection(self.address, timeout=5)
        until(f"{name} answers", self.answers)

    def answers(self):
        try:
            return self.stats()
        except OSError:
            return None

    def stats(self):
        try:
            self.connection.request("GET", "/stats")
            return json.load(self.connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise OSError(error) from error


class Stage:
    """The processes of the demo, all of which end with it."""

    def __init__(self, build):
        self.build = build
        self.weir = build / "weir"
        self.folder = Path(tempfile.mkdtemp(prefix="weir-demo-"))
        self.db = self.folder / "quotas.db"
        self.store = f"sqlite:{self.db}"
        self.processes, self.loads = [], []

    def start(self, name, command, **more):
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen(command, stderr=log, **more)
        self.processes.append(process)
        return process

    def command(self, *arguments):
        env = dict(os.environ, WEIR_ROOTS=",".join(r.listen
                                                   for r in self.roots))
        return subprocess.run([self.weir, *arguments], env=env, text=True,
                              capture_output=True, timeout=20)

    def edit(self, *fields, quiet=False):
        done = self.command("quota", "set", *fields)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        if not quiet:
            shown = " ".join(f"'{f}'" if "*" in f else f for f in fields)
            say(paint(DIM, f"    $ weir quota set {shown}"))

    def set_up(self):
        self.roots = []
        done = self.command("store", "init", self.store)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        self.roots = [Root(self, "root1"), Root(self, "root2")]
        self.edit("site", f"limit={LIMIT}/s", quiet=True)
        self.edit("night", f"limit={NIGHT}/s", "on_stale=share", quiet=True)
        self.edit("site/*", f"limit={CLIENT}/s", "parent=site", quiet=True)
        roots = ",".join(root.listen for root in self.roots)
        self.services = [Service(self, name, roots) for name in SERVICES]

    def start_load(self):
        for i, service in enumerate(self.services):
            self.loads.append(self.start(
                f"wrk{i + 1}",
                ["wrk", "-t1", "-c32", "-d300s", "-s", HERE / "replay.lua",
                 f"http://{service.address}", "--", str(LOG),
                 str(LOAD // len(SERVICES)), str(3333 * i)],
                stdout=subprocess.PIPE, text=True))

    def stop_load(self):
        """(requests, failed, worst of the 99th percentiles in ms)."""
        said = []
        for load in self.loads:
            load.send_signal(signal.SIGINT)
            out = load.communicate(timeout=10)[0]
            said.append(json.loads(out.strip().splitlines()[-1]))
        return (sum(s["requests"] for s in said),
                sum(s["failed"] for s in said),
                max(s["p99_ms"] for s in said))

    def lock_store(self):
        """Another process that locks the file, like a backup gone wrong."""
        locker = self.start("locker", [
            sys.executable, "-c",
            "import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "db.execute('BEGIN EXCLUSIVE')\n"
            "print('locked', flush=True)\n"
            "sys.stdin.read()\n", str(self.db)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        locker.stdout.readline()
        return locker

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- Measurements ----


class Meter:
    """Reads the services' counts each second and prints them."""

    def __init__(self, stage):
        self.stage = stage
        self.next = time.monotonic()
        self.last = self.read()
        self.lines = 0

    def read(self):
        at = time.monotonic()
        return at, [(s["offered"], s["passed"]) for s in
                    (service.stats() for service in self.stage.services)]

    def head(self):
        names = "".join(f" │{name:^17}" for name in SERVICES)
        say(paint(BOLD, f"   {names} │{'all':^18}"))
        say(paint(DIM, "  s" + " │  ask  pass limit" * len(SERVICES) +
                  " │ asked  pass limit"))

    def line(self):
        """One second, one line."""
        # After a wait in between (for an edit) it begins a full second anew.
        self.next = max(self.next + 1, time.monotonic() + 0.9)
        time.sleep(self.next - time.monotonic())
        before, counts = self.last
        self.last = self.read()
        seconds = self.last[0] - before
        rates = [((o - o0) / seconds, (p - p0) / seconds) for
                 (o, p), (o0, p0) in zip(self.last[1], counts)]
        self.lines += 1
        text = f"{self.lines:3}"
        for offered, passed in rates:
            text += f" │{offered:5.0f}{passed:6.0f}{offered - passed:6.0f}"
        offered, passed = (sum(column) for column in zip(*rates))
        say(f"{text} │{offered:6.0f}" +
            paint(GREEN, f"{passed:6.0f}") + f"{offered - passed:6.0f}")

    def watch(self, settle, seconds):
        """(offered, passed) per second of all services, over the last
        'seconds' of settle + seconds lines."""
        for _ in range(settle):
            self.line()
        at, before = self.last
        for _ in range(seconds):
            self.line()
        took = self.last[0] - at
        return tuple(sum(now[i] - then[i] for now, then in
                         zip(self.last[1], before)) / took for i in (0, 1))


class Claims:
    def __init__(self):
        self.list = []

    def add(self, claim, holds, figures):
        self.list.append((claim, holds, figures))

    def show(self):
        say()
        for claim, holds, figures in self.list:
            word = paint(GREEN, "holds") if holds else paint(RED, "FAILS")
            say(f"{word}  {claim}")
            say(f"       {figures}")
        return all(holds for _, holds, _ in self.list)


def near(rate, limit):
    return abs(rate - limit) <= TOLERANCE * limit


def act(letter, text):
    """Opens an act, or continues it for the letter ' '."""
    say(paint(BOLD, f"{letter}{'.' if letter != ' ' else ' '}  {text}"))


# ---- The story ----


def limit_holds(stage, meter, claims):
    act("a", f"The site may do {LIMIT:,} requests a second; three times that "
             "come in.")
    meter.head()
    offered, passed = meter.watch(3, 3)
    claims.add("a. the limit holds at three times the load",
               near(passed, LIMIT) and offered > 2.5 * LIMIT,
               f"{offered:,.0f}/s asked, {passed:,.0f}/s passed of "
               f"{LIMIT:,}/s" + ("" if offered > 2.5 * LIMIT else
                                 ": this machine is too busy for the load"))


def limit_doubled(stage, meter, claims):
    act("b", "The limit is doubled while they run.")
    stage.edit("site", f"limit={2 * LIMIT}/s")
    client = f"site/{BUSIEST}"
    meter.watch(0, 2)
    first = stage.roots[1].usage(client)
    _, passed = meter.watch(0, 3)
    last = stage.roots[1].usage(client)
    seconds = last["at"] - first["at"]
    through = (last["passed"] - first["passed"]) / seconds
    limited = (last["limited"] - first["limited"]) / seconds
    claims.add("b. an edit is in force on every service, and no client takes "
               "it all",
               near(passed, 2 * LIMIT) and through <= 1.1 * CLIENT,
               f"{passed:,.0f}/s passed of {2 * LIMIT:,}/s; the largest "
               f"client {through:.0f}/s of {through + limited:.0f}/s asked "
               f"({CLIENT}/s each)")


def other_parent(stage, meter, claims):
    act("c", f"All clients get another parent: night, {NIGHT:,} a second.")
    stage.edit("site/*", "parent=night")
    _, passed = meter.watch(2, 3)
    claims.add("c. a child moved under another parent obeys it at once",
               near(passed, NIGHT), f"{passed:,.0f}/s passed of {NIGHT:,}/s")


def one_root_killed(stage, meter, claims):
    act("d", "One root is killed with SIGKILL …")
    stage.roots[0].kill()
    _, alone = meter.watch(0, 3)
    act(" ", "… and started again, with an empty memory.")
    stage.roots[0].start()
    _, both = meter.watch(1, 2)
    fills = [root.usage("night")["fill"] for root in stage.roots]
    claims.add("d. a root dies and comes back, and nobody notices",
               near(alone, NIGHT) and near(both, NIGHT) and
               abs(fills[0] - fills[1]) <= 0.05 * fills[1],
               f"{alone:,.0f}/s with one root, {both:,.0f}/s with two again; "
               f"fill {fills[0]:,.0f} in the new one, {fills[1]:,.0f} in "
               "the other")


def both_killed(stage, meter, claims):
    act("e", f"Both are killed. For {STALE} s (--stale-after) each service "
             "goes by what it")
    act(" ", "knows; then each keeps to its share of the limit "
             "(on_stale=share).")
    for root in stage.roots:
        root.kill()
    offered, passed = meter.watch(STALE + 1, 3)
    claims.add("e. with all roots dead the services go on",
               offered > 2.5 * LIMIT and abs(passed - NIGHT) < 0.15 * NIGHT,
               f"{offered:,.0f}/s answered, {passed:,.0f}/s passed of "
               f"{NIGHT:,}/s by on_stale=share")


def store_locked(stage, meter, claims):
    act("f", "The roots are back, but another process has locked the store.")
    for root in stage.roots:
        root.start()
    meter.watch(0, 2)
    locker = stage.lock_store()
    done = stage.command("quota", "set", "night", f"limit={LIMIT}/s")
    say(paint(DIM, f"    $ weir quota set night limit={LIMIT}/s"))
    said = done.stderr.strip().replace(str(stage.folder), "…")
    for line in textwrap.wrap(said, 74):
        say(paint(RED, f"    {line}"))
    _, passed = meter.watch(1, 2)
    locker.communicate(timeout=5)
    act(" ", "The lock is gone.")
    stage.edit("night", f"limit={LIMIT}/s")
    _, after = meter.watch(1, 2)
    claims.add("f. a locked store refuses edits, says why, and stops nothing "
               "else",
               done.returncode == 2 and "locked" in said and
               near(passed, NIGHT) and near(after, LIMIT),
               f"{passed:,.0f}/s passed of {NIGHT:,}/s meanwhile; once "
               f"unlocked, {after:,.0f}/s of {LIMIT:,}/s")


def play(stage):
    say("Three services share one quota. Each request asks libweir in the "
        "service's own\nmemory; two roots on one SQLite file add up what "
        "they count. wrk replays the\naccess log of a real site: 1,753 "
        "clients, each with a quota of its own.")
    say(paint(DIM, f"    site    {LIMIT}/s     what all services together "
                   "may pass"))
    say(paint(DIM, f"    site/*  {CLIENT}/s      each client, within site"))
    say(paint(DIM, f"    night   {NIGHT}/s     used by nobody yet"))
    say()
    stage.set_up()
    stage.start_load()
    until("load", lambda: all(s.stats()["offered"] > 0
                              for s in stage.services))
    meter, claims = Meter(stage), Claims()
    for scene in (limit_holds, limit_doubled, other_parent, one_root_killed,
                  both_killed, store_locked):
        scene(stage, meter, claims)
    requests, failed, p99 = stage.stop_load()
    claims.add("no request failed, whatever was killed", failed == 0,
               f"{requests:,} requests, {failed} failed; the slowest "
               f"service's p99 {p99:.1f} ms")
    return claims.show()


def main():
    build = Path(sys.argv[1]).resolve()
    for needed in (build / "weir", build / "examples" / "service"):
        if not needed.exists():
            say(f"demo: {needed} isn't there; build it with `make`")
            return 2
    if shutil.which("wrk") is None:
        say("demo: wrk isn't there; tools/install-deps.sh demo installs it")
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(2))
    stage = Stage(build)
    try:
        return 0 if play(stage) else 1
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        say(f"demo: {error}")
        return 2
    except KeyboardInterrupt:
        return 2
    finally:
        stage.close()


if __name__ == "__main__":
    sys.exit(main())
