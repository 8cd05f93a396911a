#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_grow.py - more quotas and more values than a limiter has memory for: a
real root, `weir agent`, and Envoy's protocol (RLS) at its port.

WEIR_GROW_QUOTAS and WEIR_GROW_VALUES are the numbers of quotas and of values of
a descriptor (20,001 and 5,000; the suite "long" has 200,001 and 100,000). The
agent's processor time is printed, not asserted."""

import json
import os
import re
import struct
import sys
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from live_agent import Agents
from live_log import PREFACE, connect, frame, grpc_call
from patience import PATIENCE, until

QUOTAS = int(os.environ.get("WEIR_GROW_QUOTAS", "20001"))
VALUES = int(os.environ.get("WEIR_GROW_VALUES", "5000"))
SLOT = 940      # bytes of a slot with one root, about
STREAMS = 50    # calls on a connection at once
CALLS = 5000    # calls on a connection
PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CONFIG = """domain: shop
descriptors:
  - key: client
    rate_limit: {unit: hour, requests_per_unit: 3}
"""
OK, OVER = 1, 2


def field(number, data):
    """A field of Protobuf: bytes shorter than 128."""
    return bytes([number << 3 | 2, len(data)]) + data


def request(value):
    entry = field(1, b"client") + field(2, str(value).encode())
    return field(1, b"shop") + field(2, field(1, entry))


class Rls:
    """Calls of RLS, many at once on a connection. The agent's settings are
    never acknowledged: then none of them concerns the headers."""

    def __init__(self, place):
        self.place = place

    def ask(self, values):
        codes = []
        for at in range(0, len(values), CALLS):
            codes += self.on_connection(values[at:at + CALLS])
        return codes

    def on_connection(self, values):
        with connect(self.place) as link:
            # Its answers need no more window than this.
            link.sendall(PREFACE + frame(8, 0, 0, struct.pack(">I", 1 << 30)))
            self.link, self.buffer, codes = link, b"", []
            for at in range(0, len(values), STREAMS):
                part = values[at:at + STREAMS]
                first = 2 * at + 1
                link.sendall(b"".join(
                    grpc_call(first + 2 * i, PATH, request(value))
                    for i, value in enumerate(part)))
                answers = self.receive(len(part))
                codes += [answers[first + 2 * i] for i in range(len(part))]
            return codes

    def receive(self, count):
        """The overall code of each stream, once all have ended."""
        answers, ended = {}, 0
        while ended < count:
            while len(self.buffer) < 9 or \
                    len(self.buffer) < 9 + self.length():
                more = self.link.recv(1 << 16)
                if not more:
                    raise ConnectionError("the agent has closed it")
                self.buffer += more
            size = self.length()
            kind, flags = self.buffer[3], self.buffer[4]
            stream = struct.unpack(">I", self.buffer[5:9])[0]
            body = self.buffer[9:9 + size]
            self.buffer = self.buffer[9 + size:]
            if kind == 0 and len(body) > 6 and body[5] == 8:
                answers[stream] = body[6]
            ended += bool(stream and kind in (0, 1) and flags & 1)
        return answers

    def length(self):
        return struct.unpack(">I", b"\0" + self.buffer[:3])[0]


class Grow(Agents):
    def import_quotas(self):
        path = Path(self.path("quotas.yaml"))
        path.write_text("weir: 1\nquotas:\n" + "".join(
            f"  - {{name: q/{i}, limit: 3/h, low_burst: 3, high_burst: 3}}\n"
            for i in range(QUOTAS)))
        self.ok("quota", "import", str(path), root=self.root,
                patience=PATIENCE + QUOTAS / 1000)

    def import_envoy(self, *options):
        path = Path(self.path("envoy.yaml"))
        path.write_text(CONFIG)
        return self.ok("quota", "import", "--from", "envoy", *options,
                       str(path), root=self.root)

    def get(self, place, path, body=None):
        """The answer's JSON, whatever its status."""
        try:
            with urllib.request.urlopen(urllib.request.Request(
                    f"http://{place}{path}", body,
                    {"Content-Type": "application/json"})) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def status_of(self, place):
        return self.get(place, "/v1/status")

    def has_epoch(self, place, least):
        until("the quotas", lambda: self.status_of(place)["epoch"] >= least)

    def metrics(self, place):
        with urllib.request.urlopen(f"http://{place}/metrics") as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in
                re.findall(r"^(weir_agent_\w+) (\S+)$", text, re.M)}

    def take(self, place, name):
        return self.get(place, "/v1/take",
                        json.dumps({"name": name}).encode())

    def processor_time(self):
        with open(f"/proc/{self.agents[-1][0].pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_a_default_agent_has_them_all(self):
        self.import_quotas()
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        self.has_epoch(place, QUOTAS)
        status = self.status_of(place)
        self.assertEqual((status["slots_used"], status["lacking"]),
                         (QUOTAS, 0))
        self.assertEqual(self.get(place, "/readyz"), {"ready": True})
        for i in (0, QUOTAS // 2, QUOTAS - 1):
            passed = [self.take(place, f"q/{i}")["verdict"] == "passed"
                      for _ in range(4)]
            self.assertEqual(passed, [True] * 3 + [False])

    def test_more_than_memory_max(self):
        self.import_quotas()
        for number, on_full in enumerate(("refuse", "pass")):
            place, = self.agent("--http", "127.0.0.1:0", "--memory-max",
                                str(SLOT * QUOTAS // 2), "--on-full",
                                on_full)["http"]
            until("the lack of room", lambda: self.status_of(place)["lacking"])
            until("all quotas", lambda: self.get(place, "/readyz").get(
                "lacking", 0) > QUOTAS // 4)
            status = self.status_of(place)
            self.assertEqual(status["lacking"],
                             QUOTAS - status["slots_used"])
            said = self.get(place, "/readyz")
            self.assertTrue(said["ready"])
            self.assertEqual(said["on_full"], on_full)
            figures = self.metrics(place)
            self.assertEqual(figures["weir_agent_quotas_lacking"],
                             status["lacking"])
            self.assertLessEqual(figures["weir_agent_memory_bytes"],
                                 figures["weir_agent_memory_max_bytes"])
            rule = "are refused" if on_full == "refuse" else "pass"
            short = f"names without a quota {rule} (on_full={on_full})"
            until("the root to know", lambda:
                  f"has no room for {status['lacking']} quotas, and {short}"
                  in self.ok("status", root=self.root))
            until("the log's line", lambda: re.search(
                  f"the table has no room: {status['lacking']} quotas have no "
                  f"room, and {re.escape(short)}; raise memory_max; the first: "
                  r"q/\d+", Path(self.agents[-1][1]).read_text()))
            # One that is there keeps its limit; the others, and names that
            # might be theirs, go by --on-full.
            self.assertEqual([self.take(place, f"q/{10 + number}")["verdict"]
                              for _ in range(4)],
                             ["passed"] * 3 + ["limited"])
            for name in f"q/{QUOTAS - 1}", "nobody":
                said = self.take(place, name)
                self.assertTrue(said["full"], said)
                self.assertEqual(said["verdict"], "limited" if
                                 on_full == "refuse" else "passed")
            before = self.processor_time()
            for i in range(10):
                self.quota(f"q/{i}", "limit=4/h")
            print(f"{self.processor_time() - before:.2f} s of the agent's "
                  f"processor for 10 edits, {status['lacking']:,} quotas "
                  f"lacking; {before:.2f} s until then", file=sys.stderr)
            # Edits of one that is missing don't make it more.
            for i in range(10):
                self.quota(f"q/{QUOTAS - 2}", f"limit={i + 1}/min")
            self.quota(f"q/{20 + number}", "limit=0")
            until("a later edit", lambda: self.take(
                place, f"q/{20 + number}")["verdict"] == "limited")
            self.assertEqual(self.status_of(place)["lacking"],
                             status["lacking"])

    def test_values_of_a_descriptor(self):
        said = self.import_envoy()
        self.assertIn("share the limit of 1000 values", said)
        made = self.agent("--rls", "127.0.0.1:0", "--http", "127.0.0.1:0")
        place, = made["http"]
        rls = Rls(made["rls"][0])
        until("the quotas",
              lambda: self.status_of(place)["slots_used"] >= 2)
        over = [rls.ask(range(VALUES)).count(OVER) for i in range(4)]
        status = self.status_of(place)
        # A background thread that has lost its processor for longer than 1 ms
        # may keep the table's lock: such a request is refused, uncharged.
        contended = status["contended"]
        print(f"{over} of {VALUES:,} limited in each round, {contended} for "
              "want of a lock", file=sys.stderr)
        self.assertLessEqual(sum(over[:3]), contended)
        self.assertGreaterEqual(over[3], VALUES - contended)
        self.assertLessEqual(contended, VALUES // 500)
        self.assertLessEqual(status["slots_used"], VALUES + 2)
        self.assertEqual((status["unknown"], status["overflowed"]), (0, 0))

    def test_values_beyond_memory_max(self):
        """They share the overflow quota's limit: as much as 10 of them."""
        self.import_envoy("--overflow", "10")
        made = self.agent("--rls", "127.0.0.1:0", "--http", "127.0.0.1:0",
                          "--memory-max",
                          str(SLOT * VALUES // 2))
        place, = made["http"]
        rls = Rls(made["rls"][0])
        until("the quotas",
              lambda: self.status_of(place)["slots_used"] >= 2)
        codes = rls.ask(range(VALUES))
        status = self.status_of(place)
        beyond = status["overflowed"]
        print(f"{beyond:,} of {VALUES:,} values beyond the memory for "
              f"{status['slots']:,}", file=sys.stderr)
        self.assertGreater(beyond, VALUES // 4)
        self.assertEqual(status["unknown"], 0)
        # Some passed twice as much: a root may have lent units meanwhile.
        passed = codes.count(OK) - (VALUES - beyond)
        self.assertGreaterEqual(passed, 20)
        self.assertLessEqual(passed, 60)

    def test_values_beyond_without_overflow(self):
        self.import_envoy("--overflow", "0")
        made = self.agent("--rls", "127.0.0.1:0", "--http", "127.0.0.1:0",
                          "--memory-max",
                          str(SLOT * VALUES // 2))
        place, = made["http"]
        rls = Rls(made["rls"][0])
        until("the quotas",
              lambda: self.status_of(place)["slots_used"] >= 1)
        codes = rls.ask(range(VALUES))
        beyond = self.status_of(place)["overflowed"]
        self.assertGreater(beyond, VALUES // 4)
        self.assertEqual(codes.count(OVER), beyond)
        said = self.get(place, "/readyz")
        self.assertEqual((said["ready"], said["lacking"], said["overflowed"],
                          said["on_full"]), (True, 0, beyond, "refuse"))
        until("the root to know", lambda: re.search(
              f"had no room for the names of {beyond} requests, the last .* "
              "ago: an overflow quota decides, or else they are refused "
              r"\(on_full=refuse\)", self.ok("status", root=self.root)))
        until("the log's lines", lambda: sum(map(int, re.findall(
              r"the table has no room: (\d+) requests by names without room: "
              r"an overflow quota decides, or they are refused "
              r"\(on_full=refuse\); raise memory_max",
              Path(self.agents[-1][1]).read_text()))) == beyond)
        self.assertIn(f"weir_overflowed_requests_total {beyond}\n",
                      self.root.get("/metrics")[1])
        said = self.take(place, "envoy/shop/client=nobody")
        self.assertEqual(said["verdict"], "limited")
        self.assertIn("the table has no room", said["detail"])

    def test_a_parent_without_room(self):
        """It isn't taken for one that limits nothing."""
        self.quota("child", "limit=9/h", "high_burst=9")
        place, = self.agent("--http", "127.0.0.1:0", "--memory-max",
                            "900000")["http"]
        for i in range(60):
            self.quota(f"log/{i}", "limit=1000/h", "algorithm=sliding_log",
                       "sharing=local")
        until("the lack of room", lambda: self.status_of(place)["lacking"])
        self.quota("site", "limit=1000/h", "algorithm=sliding_log",
                   "sharing=local")
        self.quota("child", "parent=site")
        until("the lack of the parent", lambda: self.take(
              place, "child").get("full"))
        said = self.take(place, "child")
        self.assertEqual((said["verdict"], said["full"]), ("limited", True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
