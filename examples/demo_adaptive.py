#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""demo_adaptive.py BUILD [--short] - a real database, two classes of requests,
an adaptive limit.

Starts a PostgreSQL with a table of few rows that all requests change,
examples/service_db.c in front of it, a root, and clients: four that send a
request now and then (sync), and forty that send as fast as they are answered
(bulk). Bulk alone overloads the database. The demo runs first without a limit,
then with one, then with bulk that waits for its turn in the service, then with
bulk that obeys Retry-After. It prints a line each second, and in the end a
line per claim with the figures. Exit status: 0 if all hold, 1 if one fails, 2
if it can't run.

The claims are about ratios and a target, so they hold on any machine, also on
a busy one. Everything lives in temporary folders and on free ports, and is
removed afterwards."""

import asyncio
import collections
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "test/live"))
from postgres import Postgres  # noqa: E402

BULK = 40               # clients; the server takes fifty connections
SYNC = 4
SYNC_PAUSE = 0.25       # seconds, between two requests of one of them
IMPATIENCE = 0.1        # seconds from a refusal to the next try
PLACES = 3              # rows; each request changes one
MOMENT = 0.01           # seconds for which a request locks its row
PARALLEL = 10           # times a request alone: the target
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
BOLD, GREEN, RED, DIM = "1", "32", "31", "2"

Answer = collections.namedtuple("Answer", "klass status seconds retry_after")


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def say(text=""):
    print(text, flush=True)


def p95(values):
    """In milliseconds; infinite without values."""
    ordered = sorted(values)
    return 1000 * ordered[int(0.95 * (len(ordered) - 1))] if ordered \
        else float("inf")


# ---- Processes ----


class Database(Postgres):
    """A database with a few rows: each request locks one of them for a moment,
    and the other requests wait for it. So it gets slower under load by a lock
    and not by the processor, which other programs may be using."""

    def sql(self, text):
        done = subprocess.run([self.bin / "psql", "-qtAX", self.url],
                              input=text, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise RuntimeError("psql: " + done.stderr)
        return done.stdout

    def fill(self):
        self.sql("CREATE TABLE places (id int PRIMARY KEY, sold bigint) WITH "
                 "(fillfactor = 10);"
                 f"INSERT INTO places SELECT id, 0 FROM generate_series(1, "
                 f"{PLACES}) AS id;"
                 "CREATE FUNCTION sell() RETURNS int LANGUAGE plpgsql AS '"
                 f"DECLARE place int := 1 + floor(random() * {PLACES}); BEGIN "
                 "UPDATE places SET sold = sold + 1 WHERE id = place;"
                 f"PERFORM pg_sleep({MOMENT}); RETURN place; END';")

    def alone(self):
        """The time of a single request, in milliseconds."""
        said = self.sql("\\timing on\n" + 30 * "SELECT sell();\n")
        took = sorted(float(line.split()[1].replace(",", "."))
                      for line in said.splitlines() if "Time:" in line)
        return took[len(took) // 2]


class Stage:
    """The processes of the demo, all of which end with it."""

    def __init__(self, build, database):
        self.build, self.database = build, database
        self.folder = Path(tempfile.mkdtemp(prefix="weir-demo-"))
        self.processes = []

    def start(self, name, command):
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes.append(subprocess.Popen(command, stderr=log))

    def raise_curtain(self):
        ports = self.folder / "ports"
        store = f"sqlite:{self.folder / 'quotas.db'}"
        subprocess.run([self.build / "weir", "store", "init", store],
                       check=True, stdout=subprocess.DEVNULL)
        self.start("root", [self.build / "weir", "serve", "--store", store,
                            "--listen",
                            "127.0.0.1:0", "--http", "127.0.0.1:0",
                            "--port-file", ports])
        until("the root listens", ports.exists)
        said = dict(line.split("=") for line in ports.read_text().split())
        self.root = said["listen"]
        self.port = free_port()
        self.start("service", [self.build / "examples" / "service_db",
                               "--listen", str(self.port), "--roots",
                               self.root, "--database", self.database.url])
        until("the service listens", self.listens)

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def quota(self, *fields):
        subprocess.run([self.build / "weir", "quota", "set", "--root",
                        self.root, "db", *fields], check=True,
                       stdout=subprocess.DEVNULL)

    def close(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run(["rm", "-rf", self.folder], check=False)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def until(what, ask):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if ask():
            return
        time.sleep(0.01)
    raise RuntimeError(f"{what}: not within 30 s")


# ---- Clients ----


async def exchange(port, streams, path):
    """One request on a persistent connection; returns status, headers,
    body."""
    if not streams:
        streams.extend(await asyncio.open_connection("127.0.0.1", port))
    reader, writer = streams
    writer.write(f"GET {path} HTTP/1.1\r\nHost: db\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(fields["Content-Length"]))
    return int(head[0].split()[1]), fields, body


class Load:
    """All clients, and the answers that they got."""

    def __init__(self, port):
        self.port = port
        self.answers = []
        self.path = "/bulk"     # for bulk
        self.obeys = False      # bulk obeys Retry-After

    async def client(self, klass, number):
        streams = []
        await asyncio.sleep(number * 0.02)
        while True:
            begun = time.monotonic()
            path = self.path if klass == "bulk" else "/sync"
            status, fields, _ = await exchange(self.port, streams, path)
            again = fields.get("Retry-After")
            self.answers.append(Answer(klass, status,
                                       time.monotonic() - begun, again))
            if klass == "sync":
                await asyncio.sleep(SYNC_PAUSE)
            elif status == 429:
                await asyncio.sleep(int(again) if self.obeys and again
                                    else IMPATIENCE)

    def since(self, mark, klass, *statuses):
        return [a for a in self.answers[mark:]
                if a.klass == klass and a.status in statuses]


class Phase:
    """The measurements of one act."""

    def __init__(self, load, mark, seconds):
        self.sync_p95 = p95(a.seconds for a in load.since(mark, "sync", 200))
        self.sync_refused = len(load.since(mark, "sync", 429, 503))
        self.sync_served = len(load.since(mark, "sync", 200))
        self.bulk_served = len(load.since(mark, "bulk", 200))
        self.bulk_rate = self.bulk_served / seconds
        refused = load.since(mark, "bulk", 429)
        self.refused = len(refused)
        self.untold = sum(1 for a in refused if not a.retry_after)
        self.failed = len(load.since(mark, "bulk", 503))
        self.tries = (self.refused + self.bulk_served) / \
            max(self.bulk_served, 1)


async def act(stage, load, what, settle, seconds, limited=True):
    """Plays for 'settle' seconds, then measures for 'seconds'."""
    say(paint(BOLD, what))
    watch = []
    begin, begun = len(load.answers), time.monotonic()
    for second in range(settle + seconds):
        if second == settle:
            begin, begun = len(load.answers), time.monotonic()
        before, started = len(load.answers), time.monotonic()
        await asyncio.sleep(1)
        _, _, body = await exchange(stage.port, watch, "/stats")
        now, took = json.loads(body), time.monotonic() - started
        sync = p95(a.seconds for a in load.since(before, "sync", 200))
        served = len(load.since(before, "bulk", 200)) / took
        refused = len(load.since(before, "bulk", 429)) / took
        limit = f"limit {now['limit']:5.1f}   in flight {now['in_flight']:3d}"
        say(f"  sync p95 {sync:6.0f} ms   bulk {served:5.0f}/s   limited "
            f"{refused:5.0f}/s   " + (limit if limited else "no limit") +
            (paint(DIM, f"   {now['reason']}") if limited else ""))
    watch[1].close()
    return Phase(load, begin, time.monotonic() - begun)


# ---- The show ----


def judge(target, off, on, waits, obeys):
    """Each claim, whether it holds, and the figures."""
    near = 1.6 * target
    return [
        ("without a limit sync waits for bulk",
         off.sync_served > 0 and off.sync_p95 >= 1.5 * on.sync_p95,
         f"sync p95 {off.sync_p95:.0f} ms off, {on.sync_p95:.0f} ms on"),
        ("with a limit sync is quick", on.sync_p95 <= near,
         f"p95 {on.sync_p95:.0f} ms, target {target:.0f} ms"),
        ("sync is never limited",
         on.sync_refused + waits.sync_refused + obeys.sync_refused == 0,
         f"{on.sync_served + waits.sync_served + obeys.sync_served} sync "
         "requests, none limited"),
        ("the database does as much work", on.bulk_rate >= 0.6 * off.bulk_rate,
         f"bulk {off.bulk_rate:.0f}/s off, {on.bulk_rate:.0f}/s on"),
        ("refusals have a Retry-After",
         on.refused > 0 and on.untold == 0 and on.failed == 0,
         f"{on.refused} times 429, {on.untold} without Retry-After"),
        ("requests that wait in the service are served, not limited",
         waits.refused <= 0.02 * waits.bulk_served and
         waits.bulk_rate >= 0.6 * off.bulk_rate and waits.sync_p95 <= near,
         f"{waits.refused} of {waits.refused + waits.bulk_served} limited, "
         f"bulk {waits.bulk_rate:.0f}/s, sync p95 {waits.sync_p95:.0f} ms"),
        ("a client that obeys Retry-After passes, with few tries",
         obeys.bulk_served > 0 and obeys.tries <= 0.5 * on.tries + 1 and
         obeys.sync_p95 <= near,
         f"{obeys.tries:.1f} tries a request, {on.tries:.1f} without it; "
         f"sync p95 {obeys.sync_p95:.0f} ms"),
    ]


async def play(stage, short):
    alone = stage.database.alone()
    target = PARALLEL * alone
    load = Load(stage.port)
    stage.quota("kind=concurrency", "sharing=adaptive", "mode=off",
                f"target={target:.0f}ms", "classes=sync:observed,bulk",
                "queue=fifo")
    say(f"A request alone takes {alone:.1f} ms. {BULK} bulk clients, {SYNC} "
        f"sync ones; the quota's target is {target:.0f} ms.")
    clients = [asyncio.create_task(load.client(klass, i))
               for klass, count in (("bulk", BULK), ("sync", SYNC))
               for i in range(count)]
    times = (2, 4, 7, 6, 1, 4, 2, 5) if short else (3, 10, 10, 14, 2, 10, 3, 12)
    off = await act(stage, load, "Without a limit", *times[0:2],
                    limited=False)
    stage.quota("mode=enforce")
    on = await act(stage, load, "With the limit; bulk is limited, and comes "
                   f"again after {1000 * IMPATIENCE:.0f} ms", *times[2:4])
    load.path = "/bulk?wait"
    waits = await act(stage, load, "Bulk waits for its turn in the service",
                      *times[4:6])
    load.path, load.obeys = "/bulk", True
    obeys = await act(stage, load, "Bulk comes again when Retry-After says",
                      *times[6:8])
    for client in clients:
        gone = client.done() and client.exception()
        client.cancel()
        if gone:
            raise RuntimeError(f"a client: {gone!r}")
    await asyncio.gather(*clients, return_exceptions=True)
    return judge(target, off, on, waits, obeys)


def main(arguments):
    build = Path(arguments[0] if arguments else "build").resolve()
    program = build / "examples" / "service_db"
    if not program.exists():
        say(f"demo_adaptive.py: there is no {program}; it is built where libpq "
            "is (tools/install-deps.sh demo)")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    with Database() as database:
        database.fill()
        stage = Stage(build, database)
        try:
            stage.raise_curtain()
            claims = asyncio.run(play(stage, "--short" in arguments))
        finally:
            stage.close()
    say()
    for claim, holds, figures in claims:
        mark = paint(GREEN, "holds") if holds else paint(RED, "FAILS")
        say(f"  {mark}  {claim}: {figures}")
    return 0 if all(holds for _, holds, _ in claims) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RuntimeError, AssertionError, OSError) as error:
        say(f"demo_adaptive.py: {error}")
        sys.exit(2)
