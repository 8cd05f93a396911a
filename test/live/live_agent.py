#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_agent.py - `weir agent` and its clients, of HTTP and of Redis: well
behaved, slow, broken, unauthenticated, and ten thousand at once, beside a real
root. The HTTP listener's tests are live_agent_http.py.
Limits are per hour or day, so that a bucket doesn't leak a unit during a test,
however long that takes."""

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

import plain_grpc
from live_cli import WEIR, Case, Root
from patience import PATIENCE, until, until_equal

BUILD = Path(os.environ["WEIR_BUILD"])
TALKS_MAX = 12288  # WEIR_PROTOCOL_CONNS_MAX
TAKER, READER = "a-token-that-may-take", "a-token-that-may-read"

JSON = {"Content-Type": "application/json"}


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Resp:
    """A client of Redis in a few lines."""

    def __init__(self, place):
        if place.startswith("unix:"):
            self.link = socket.socket(socket.AF_UNIX)
            self.link.connect(place[5:])
        else:
            host, port = place.rsplit(":", 1)
            self.link = socket.create_connection((host, int(port)), PATIENCE)
        self.link.settimeout(PATIENCE)
        self.file = self.link.makefile("rb")

    @staticmethod
    def line(*words):
        coded = [str(word).encode() for word in words]
        return b"*%d\r\n" % len(coded) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in coded)

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(line)
        kind, rest = line[:1], line[1:-2].decode()
        if kind in b"+-":
            return kind.decode() + rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else \
                self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"_":
            return None
        count = int(rest) * (2 if kind == b"%" else 1)
        return [self.read() for _ in range(count)]

    def ask(self, *words):
        self.link.sendall(self.line(*words))
        return self.read()

    def close(self):
        self.file.close()
        self.link.close()


class Agents(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())
        self.agents, self.links = [], []

    def tearDown(self):
        for link in self.links:
            link.close()
        for agent, log in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
            if agent.wait(PATIENCE) != 0:
                raise AssertionError(Path(log).read_text())
        super().tearDown()

    def agent(self, *options, ready=True):
        """Starts an agent; returns its listeners, kind -> addresses."""
        number = len(self.agents)
        ports, log = self.path(f"places{number}"), self.path(f"agent{number}")
        with open(log, "w") as errors:
            process = subprocess.Popen(
                [WEIR, "agent", "--roots", self.root.address, "--port-file",
                 ports, *(options or ["--http", "127.0.0.1:0", "--resp",
                                      "127.0.0.1:0"])],
                stderr=errors, env=self.env)
        self.agents.append((process, log))
        until("the port file", lambda: process.poll() is not None or
              os.path.exists(ports))
        self.assertIsNone(process.poll(), Path(log).read_text())
        places = {}
        for line in Path(ports).read_text().split():
            kind, place = line.split("=", 1)
            places.setdefault(kind, []).append(place)
        if ready:
            until("ready", lambda: "ready: the quotas" in
                  Path(log).read_text())
        return places

    def resp(self, place):
        self.links.append(Resp(place))
        return self.links[-1]

    def logged(self):
        return Path(self.agents[-1][1]).read_text()

    def quota(self, *fields):
        """Sets a quota, without a band: no verdict depends on chance."""
        self.ok("quota", "set", *fields, root=self.root)


class Redis(Agents):
    def test_throttle_is_redis_cells(self):
        place = self.agent("--resp", "127.0.0.1:0", "--resp",
                           "unix:" + self.path("r.sock"))["resp"]
        link, other = self.resp(place[0]), self.resp(place[1])
        key = "user123", 15, 30, 86400
        self.assertEqual(link.ask("CL.THROTTLE", *key, 1),
                         [0, 16, 15, -1, 2880])
        # Listeners of one agent share one table.
        self.assertEqual(other.ask("cl.probe", *key, 16)[:3], [1, 16, 15])
        self.assertEqual(other.ask("DEL", "user123", "nobody"), 1)
        self.assertEqual(link.ask("CL.PROBE", *key, 16),
                         [0, 16, 0, -1, 16 * 2880])
        cell = "-Cell error: Store error: "
        for words, says in [
                (["k"], cell + "Usage: cl.throttle <key> <max_burst> <count "
                 "per period> <period> [<quantity>]"),
                (["k", 1, 2, 3, 4, 5], cell + "Usage: cl.throttle <key> "
                 "<max_burst> <count per period> <period> [<quantity>]"),
                (["k", "abc", 1, 1], cell + "Couldn't parse as integer: abc"),
                (["k", 1, 0, 1], cell + "Zero rates are not supported"),
                (["k", 1, 1, 0], cell + "Zero rates are not supported")]:
            self.assertEqual(link.ask("CL.THROTTLE", *words), says)
        self.assertTrue(link.ask("CL.THROTTLE", "k", -1, 1, 1)
                        .startswith("-ERR"))
        # A unit of 12342 6/7 s: none of the seven is lost to a rounding.
        self.assertEqual([link.ask("CL.THROTTLE", "seven", 6, 7, 86400)[2]
                          for _ in range(7)], [6, 5, 4, 3, 2, 1, 0])

    def test_the_fleet_counts_a_key(self):
        place = self.agent("--resp", "127.0.0.1:0", "--resp-sharing",
                           "counted",
                           "--memory-max", "64Ki")["resp"][0]
        link = self.resp(place)
        asked = "CL.THROTTLE", "user123", 15, 30, 86400
        self.assertEqual(link.ask("CL.PROBE", *asked[1:], 16),
                         [0, 16, 0, -1, 16 * 2880])
        # As redis-cell answers, but the root may report a unit more.
        self.assertIn(link.ask(*asked, 1), [[0, 16, 15, -1, 2880],
                                            [0, 16, 14, -1, 5760]])
        self.assertEqual(link.ask(*asked, 17)[0:4:3], [1, -1])
        limited, limit, left, wait, reset = link.ask(*asked, 16)
        self.assertIn((limited, limit, left), [(1, 16, 14), (1, 16, 15)])
        self.assertTrue(0 < wait <= reset <= 2 * 2880, (wait, reset))
        self.assertEqual(link.ask(*asked, -1)[2], 16)
        self.assertEqual(link.ask(*asked, 0)[:3], [0, 16, 16])
        # A take of 0 units is limited by a quota that passes nothing.
        self.quota("throttle:16:30/86400s:user123", "limit=0")
        until("the edit", lambda: link.ask(*asked, 0)[0] == 1)
        self.assertEqual(link.ask(*asked, 0)[:3], [1, 16, 0])
        # With another rate it is another quota.
        self.assertEqual(link.ask("CL.THROTTLE", "user123", 0, 1, 60),
                         [0, 1, 0, -1, 60])
        self.assertIn("throttle_sharing:counted\r", link.ask("INFO"))
        for words, says in [
                (["CL.THROTTLE", "k", -1, 1, 1], "-ERR a burst"),
                (["CL.THROTTLE", "k", 2 ** 63 - 1, 1, 1], "-ERR a burst"),
                (["CL.THROTTLE", "k", 1, 1, 10 ** 9], "-ERR a burst"),
                (["CL.THROTTLE", "k", 1, 1, 1, 2 ** 33], "-ERR a burst"),
                (["CL.THROTTLE", "a\nb", 1, 1, 1], "-ERR a key"),
                (["DEL", "user123"], "-ERR a key")]:
            self.assertTrue(link.ask(*words).startswith(says), words)
        # A key in use isn't evicted for a new one, and a new key that finds no
        # room doesn't pass.
        answers = [link.ask("CL.THROTTLE", key, 0, 1, 1000)
                   for key in range(100)]
        self.assertEqual(answers[0], [0, 1, 0, -1, 1000])
        # While another thread has the writer lock, 'wait' is 1: the search for
        # room comes later.
        self.assertIn(answers[-1], [[1, 1, 0, wait, 1000] for wait in (1, 2)])
        until_equal("no room", [1, 1, 0, 2, 1000],
                    lambda: link.ask("CL.THROTTLE", 99, 0, 1, 1000))

    def test_no_wait_is_longer_than_the_reset(self):
        """The random part of a wait raises the reset, and no wait is too
        short."""
        link = self.resp(self.agent("--resp", "127.0.0.1:0", "--resp-sharing",
                                    "counted")["resp"][0])
        for key, burst, count, period in [("one", 0, 1, 3600),
                                          ("two", 1, 7, 3600),
                                          ("fast", 0, 1000, 1)]:
            asked = "CL.THROTTLE", key, burst, count, period, burst + 1
            link.ask(*asked)
            for _ in range(50):
                limited, _, _, wait, reset = link.ask(*asked)
                self.assertTrue(wait <= reset, (key, limited, wait, reset))
        # A stored quota of that name may make a caller wait longer. The limit
        # of one has arrived when that of the later has.
        self.quota("throttle:1:1/100s:slow", "limit=1/110s", "low_burst=1",
                   "high_burst=1")
        self.quota("throttle:1:1000/1s:fast", "limit=1/h", "low_burst=1",
                   "high_burst=1")
        until("the edits", lambda: link.ask(*asked)[3] > 1)
        _, _, _, wait, reset = link.ask(*asked)
        self.assertTrue(2000 < wait == reset, (wait, reset))
        asked = "CL.THROTTLE", "slow", 0, 1, 100
        began = time.monotonic()
        self.assertEqual(link.ask(*asked)[0], 0)
        for _ in range(50):
            _, _, _, wait, reset = link.ask(*asked)
            left = 110 - (time.monotonic() - began)
            self.assertTrue(left - 1 <= wait <= reset, (left, wait, reset))

    def test_a_key_without_room_where_such_names_pass(self):
        place = self.agent("--resp", "127.0.0.1:0", "--resp-sharing",
                           "counted",
                           "--memory-max", "64Ki", "--on-full",
                           "pass")["resp"][0]
        link = self.resp(place)
        answers = [link.ask("CL.THROTTLE", key, 0, 1, 1000)
                   for key in range(100)]
        self.assertEqual(answers[0], [0, 1, 0, -1, 1000])
        self.assertEqual(answers[-1], [0, 1, 1, -1, 0])

    def test_a_probe_hears_of_the_other_door(self):
        """One agent only probes at a key that is used up at another one."""
        user, prober = (self.resp(self.agent("--resp", "127.0.0.1:0",
                                             "--resp-sharing",
                                             "counted")["resp"][0])
                        for _ in range(2))
        key = "hot", 4, 5, 3600
        replies = []

        # While the root is slow, an agent refuses before the limit.
        def passed():
            replies.append(user.ask("CL.THROTTLE", *key)[0])
            return replies.count(0)
        until_equal("units that passed at the one", 5, passed)
        until("the other agent hears of it",
              lambda: prober.ask("CL.PROBE", *key)[0] == 1)
        self.assertEqual(prober.ask("CL.PROBE", "cold", 4, 5, 3600)[0], 0)

    def test_doors_pass_a_rate_together(self):
        """Two agents, each under more load than its part of the rate: together
        they pass the rate."""
        rate, burst = 200, 20
        doors = [self.resp(self.agent("--resp", "127.0.0.1:0",
                                      "--resp-sharing",
                                      "counted")["resp"][0])
                 for _ in range(2)]
        line = Resp.line("CL.THROTTLE", "together", burst - 1, rate, 1)

        # Until the agents know of each other, each passes the rate; then both
        # pass it together. How soon depends on the machine: any two seconds
        # will do in which more than twice the rate was asked for.
        told = [(time.monotonic(), 0, 0)]  # (instant, asked, passed so far)
        means = set()

        def agreed():
            for link in doors:
                link.link.sendall(line * 16)
            passed = sum(link.read()[0] == 0 for link in doors
                         for _ in range(16))
            _, asked, before = told[-1]
            told.append((time.monotonic(), asked + 32, before + passed))
            while told[-1][0] - told[1][0] >= 2:
                del told[0]
            seconds, asked, passed = (
                last - first for first, last in zip(told[0], told[-1]))
            means.add((round(asked / seconds), round(passed / seconds)))
            return seconds >= 2 and asked > 2 * rate * seconds and \
                abs(passed / seconds - rate) <= 0.1 * rate

        end = time.monotonic() + PATIENCE
        while not agreed():
            self.assertLess(time.monotonic(), end, f"expected {rate}/s, give "
                            f"or take 10 %; asked and passed: {means}")
        # The root counts it by its name, and has no such quota.
        shown = json.loads(self.root.get("/v1/usage")[1])["quotas"]
        self.assertIn("throttle:20:200/1s:together",
                      [quota["name"] for quota in shown])
        self.assertNotIn("throttle", self.ok("quota", "ls", root=self.root))

    def test_quotas(self):
        self.quota("site", "limit=1/h", "low_burst=3", "high_burst=3")
        link = self.resp(self.agent("--resp", "127.0.0.1:0")["resp"][0])
        self.assertEqual(link.ask("WEIR.TAKE", "site", 2), [0, 1, 0, "site"])
        self.assertEqual(link.ask("WEIR.PEEK", "site"), [0, 1, 0, "site"])
        self.assertEqual(link.ask("weir.take", "site"), [0, 0, 0, "site"])
        limited, left, wait, name = link.ask("WEIR.TAKE", "site")
        self.assertEqual((limited, left, name), (1, 0, "site"))
        self.assertTrue(0 < wait <= 4501000, wait)
        self.assertEqual(link.ask("WEIR.TAKE", "site", 4)[2], -1)
        # A wait of less than a millisecond is answered as one.
        self.quota("one", "limit=1000/s", "low_burst=1", "high_burst=1")
        for _ in range(1000):
            self.assertNotEqual(link.ask("WEIR.TAKE", "one")[::2], [1, 0])
        self.assertEqual(link.ask("WEIR.TAKE", "nobody"),
                         [0, 2 ** 63 - 1, 0, ""])
        for words in [["WEIR.TAKE"], ["WEIR.TAKE", "site", "x"],
                      ["WEIR.TAKE", "site", -1], ["WEIR.TAKE", "site", 1, 2],
                      ["WEIR.TAKE", ""], ["WEIR.TAKE", "shadow:a"]]:
            self.assertTrue(link.ask(*words).startswith("-ERR"), words)

    def test_costs_by_resp(self):
        self.quota("cost", "limit=1/h", "low_burst=9", "high_burst=9",
                   "sharing=local")
        link = self.resp(self.agent("--resp", "127.0.0.1:0")["resp"][0])

        def left():
            return link.ask("WEIR.PEEK", "cost")[1]

        self.assertEqual(link.ask("WEIR.TAKE", "cost", 5)[0], 0)
        self.assertEqual(link.ask("WEIR.SETTLE", "cost", 5, 2), 2)
        self.assertEqual(left(), 7)
        self.assertEqual(link.ask("WEIR.SETTLE", "cost", 2, 4), 4)
        self.assertEqual(left(), 5)
        self.assertEqual(link.ask("weir.charge", "cost", 2 ** 40), 2 ** 40)
        self.assertEqual(link.ask("WEIR.PEEK", "cost")[0], 1)
        self.assertEqual(link.ask("WEIR.SETTLE", "cost", 2 ** 40, 0), 0)
        self.assertEqual(left(), 5)
        self.assertEqual(link.ask("WEIR.CHARGE", "nobody", 3), 0)
        self.assertEqual(link.ask("WEIR.SETTLE", "nobody", 3, 4), 3)
        for words in (["WEIR.CHARGE", "cost"], ["WEIR.CHARGE", "cost", -1],
                      ["WEIR.CHARGE", "cost", 2 ** 40 + 1],
                      ["WEIR.CHARGE", "", 1], ["WEIR.SETTLE", "cost", 1],
                      ["WEIR.SETTLE", "cost", 1, "x"],
                      ["WEIR.SETTLE", "cost", -1, 0],
                      ["WEIR.SETTLE", "shadow:a", 0, 1]):
            self.assertTrue(link.ask(*words).startswith("-ERR"), words)
        self.assertEqual(left(), 5)
        # In a transaction they are checked before all.
        self.assertEqual(link.ask("MULTI"), "+OK")
        self.assertEqual(link.ask("WEIR.CHARGE", "cost", 1), "+QUEUED")
        self.assertTrue(link.ask("WEIR.SETTLE", "cost", 1, "x")
                        .startswith("-ERR"))
        self.assertTrue(link.ask("EXEC").startswith("-EXECABORT"))
        self.assertEqual(left(), 5)

    def test_a_transaction_is_all_or_nothing(self):
        # Local: a root's fill would come between two commands.
        self.quota("site", "limit=1/h", "low_burst=9", "high_burst=9",
                   "sharing=local")
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        link, other = self.resp(place), self.resp(place)
        self.assertEqual(link.ask("MULTI"), "+OK")
        for words in (["WEIR.TAKE", "site", 2], ["weir.peek", "site"],
                      ["CL.THROTTLE", "k", 1, 1, 3600], ["PING"], ["UNWATCH"],
                      ["CLIENT", "GETNAME"]):
            self.assertEqual(link.ask(*words), "+QUEUED")
        # Nothing is charged yet.
        self.assertEqual(other.ask("WEIR.PEEK", "site"), [0, 9, 0, "site"])
        self.assertEqual(link.ask("EXEC"), [
            [0, 7, 0, "site"], [0, 7, 0, "site"], [0, 2, 1, -1, 3600], "+PONG",
            "+OK", None])
        self.assertEqual(link.ask("PING"), "+PONG")
        # A command that is refused refuses them all.
        aborted = ("-EXECABORT Transaction discarded because of previous "
                   "errors.")
        alone = "-ERR Command not allowed inside a transaction"
        for words, says in [
                (["GET", "a"], "-ERR unknown command 'GET', with args "
                 "beginning with: 'a' "),
                (["ECHO"], "-ERR wrong number of arguments for 'echo' "
                 "command"),
                (["CL.THROTTLE", "k", "x", 1, 1], "-Cell error: Store error: "
                 "Couldn't parse as integer: x"),
                (["WEIR.TAKE", "site", 1, "x"],
                 "-ERR a name and a weight are enough"),
                (["WEIR.PEEK", "site", -1],
                 "-ERR a weight is a number from 0 to 4294967296"),
                (["CLIENT", "FOO"],
                 "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
                (["CLIENT", "ID", "x"], "-ERR wrong number of arguments for "
                 "'client|id' command"),
                (["INFO"], alone), (["COMMAND"], alone), (["HELLO"], alone),
                (["AUTH", "x"], alone), (["CONFIG", "GET", "x"], alone)]:
            self.assertEqual(link.ask("MULTI"), "+OK")
            self.assertEqual(link.ask("WEIR.TAKE", "site"), "+QUEUED")
            self.assertEqual(link.ask(*words), says)
            self.assertEqual(link.ask("WEIR.TAKE", "site"), "+QUEUED")
            self.assertEqual(link.ask("EXEC"), aborted)
        # As redis-server 7 has it, these refuse themselves alone.
        self.assertEqual(link.ask("EXEC"), "-ERR EXEC without MULTI")
        self.assertEqual(link.ask("DISCARD"), "-ERR DISCARD without MULTI")
        self.assertEqual(link.ask("MULTI"), "+OK")
        self.assertEqual(link.ask("MULTI"),
                         "-ERR MULTI calls can not be nested")
        self.assertEqual(link.ask("WATCH", "a"),
                         "-ERR WATCH inside MULTI is not allowed")
        self.assertEqual(link.ask("EXEC"), [])
        self.assertIn("no values to WATCH", link.ask("WATCH", "a"))
        self.assertEqual(link.ask("UNWATCH"), "+OK")
        # A transaction that ends otherwise charges nothing.
        for words, says in (["DISCARD"], "+OK"), (["RESET"], "+RESET"):
            self.assertEqual(link.ask("MULTI"), "+OK")
            self.assertEqual(link.ask("WEIR.TAKE", "site"), "+QUEUED")
            self.assertEqual(link.ask(*words), says)
            self.assertEqual(link.ask("EXEC"), "-ERR EXEC without MULTI")
        self.assertEqual(link.ask("MULTI"), "+OK")
        self.assertEqual(link.ask("WEIR.TAKE", "site"), "+QUEUED")
        self.assertEqual(link.ask("QUIT"), "+OK")
        self.assertEqual(link.link.recv(1), b"")
        other.ask("MULTI")
        other.ask("WEIR.TAKE", "site")
        other.close()
        self.assertEqual(self.resp(place).ask("WEIR.PEEK", "site"),
                         [0, 7, 0, "site"])

    def test_a_transaction_has_bounds(self):
        """256 commands and 16 KiB; all their replies come, in HELLO's
        language, also those of the longest names."""
        top = "t" * 255
        self.quota(top, "limit=1/h", "low_burst=999", "high_burst=999",
                   "sharing=local")
        self.quota("a", "parent=" + top, "limit=9000/h", "low_burst=9000",
                   "high_burst=9000", "sharing=local")
        link = self.resp(self.agent("--resp", "127.0.0.1:0")["resp"][0])
        link.ask("HELLO", 3)
        bound = ("-ERR a transaction has at most 256 commands and 16 KiB; "
                 "send DISCARD and smaller ones")
        take = Resp.line("WEIR.TAKE", "a")
        for _ in range(3):
            link.link.sendall(Resp.line("MULTI") + take * 256 +
                              Resp.line("EXEC"))
            self.assertEqual(link.read(), "+OK")
            self.assertEqual([link.read() for _ in range(256)],
                             ["+QUEUED"] * 256)
            self.assertEqual([reply[3] for reply in link.read()], [top] * 256)
        self.assertEqual(link.ask("WEIR.PEEK", "a")[1], 999 - 3 * 256)
        link.link.sendall(Resp.line("MULTI") + take * 257)
        self.assertEqual([link.read() for _ in range(258)],
                         ["+OK"] + ["+QUEUED"] * 256 + [bound])
        self.assertTrue(link.ask("EXEC").startswith("-EXECABORT"))
        text = "x" * 8170
        self.assertEqual(link.ask("MULTI"), "+OK")
        self.assertEqual(link.ask("ECHO", text), "+QUEUED")
        self.assertEqual(link.ask("PING", "y" * 8100), "+QUEUED")
        self.assertEqual(link.ask("EXEC"), [text, "y" * 8100])
        self.assertEqual(link.ask("MULTI"), "+OK")
        self.assertEqual(link.ask("ECHO", text), "+QUEUED")
        self.assertEqual(link.ask("ECHO", text), bound)
        self.assertTrue(link.ask("EXEC").startswith("-EXECABORT"))
        self.assertEqual(link.ask("WEIR.PEEK", "a")[1], 999 - 3 * 256)

    def test_what_clients_ask_beside(self):
        link = self.resp(self.agent("--resp", "127.0.0.1:0")["resp"][0])
        self.assertEqual(link.ask("PING"), "+PONG")
        self.assertEqual(link.ask("PING", "hi"), "hi")
        self.assertEqual(link.ask("ECHO", ""), "")
        self.assertEqual(link.ask("SELECT", 0), "+OK")
        self.assertTrue(link.ask("SELECT", 1).startswith("-ERR"))
        self.assertEqual(link.ask("CLIENT", "SETNAME", "me"), "+OK")
        self.assertEqual(link.ask("CLIENT", "GETNAME"), "me")
        self.assertEqual(link.ask("CLIENT", "SETINFO", "LIB-NAME", "x"),
                         "+OK")
        self.assertTrue(link.ask("CLIENT", "KILL").startswith("-ERR"))
        self.assertIn("connected_clients:1", link.ask("INFO"))
        count = link.ask("COMMAND", "COUNT")
        self.assertEqual(len(link.ask("COMMAND")), count)
        self.assertEqual(len(link.ask("COMMAND", "LIST")), count)
        self.assertIsNone(link.ask("COMMAND", "INFO", "get")[0])
        self.assertEqual(link.ask("GET", "a"), "-ERR unknown command 'GET', "
                         "with args beginning with: 'a' ")
        self.assertEqual(link.ask("ECHO"), "-ERR wrong number of arguments "
                         "for 'echo' command")
        self.assertTrue(link.ask("AUTH", "x").startswith("-ERR AUTH"))
        self.assertEqual(link.ask("HELLO", 4),
                         "-NOPROTO unsupported protocol version")
        said = link.ask("HELLO", 3, "SETNAME", "you")
        self.assertEqual(said[said.index("proto") + 1], 3)
        self.assertEqual(link.ask("CLIENT", "GETNAME"), "you")
        self.assertEqual(link.ask("RESET"), "+RESET")
        self.assertIsNone(link.ask("CLIENT", "GETNAME"))
        self.assertEqual(link.ask("QUIT"), "+OK")
        self.assertEqual(link.link.recv(1), b"")

    def test_commands_are_described(self):
        """COMMAND as redis-server 7 answers it."""
        link = self.resp(self.agent("--resp", "127.0.0.1:0")["resp"][0])
        rows = link.ask("COMMAND")
        self.assertEqual([len(row) for row in rows], [10] * len(rows))
        self.assertEqual(link.ask("COMMAND", "INFO"), rows)
        names = link.ask("COMMAND", "LIST")
        self.assertEqual([row[0] for row in rows], names)
        self.assertEqual(link.ask("COMMAND", "INFO", "del", "get", "MULTI"), [
            ["del", -2, ["+write", "+fast"], 1, -1, 1,
             ["+@keyspace", "+@write", "+@fast"], [],
             [["flags", ["+RW", "+update"],
               "begin_search", ["type", "index", "spec", ["index", 1]],
               "find_keys", ["type", "range", "spec", [
                   "lastkey", -1, "keystep", 1, "limit", 0]]]], []],
            None,
            ["multi", 1, ["+fast"], 0, 0, 0, ["+@transaction", "+@fast"], [],
             [], []]])
        self.assertEqual(link.ask("COMMAND", "DOCS", "get", "cl.throttle"), [
            "cl.throttle", [
                "summary", "Takes units of a key whose limit comes with the "
                "request.", "since", "1.0.0", "group", "module", "arguments", [
                    ["name", "key", "type", "key"],
                    ["name", "max_burst", "type", "integer"],
                    ["name", "count", "type", "integer"],
                    ["name", "period", "type", "integer"],
                    ["name", "quantity", "type", "integer",
                     "flags", ["+optional"]]]]])
        self.assertEqual(link.ask("COMMAND", "DOCS")[::2], names)
        self.assertEqual(link.ask("COMMAND", "GETKEYS", "DEL", "a", "b"),
                         ["a", "b"])
        self.assertEqual(link.ask("COMMAND", "GETKEYS", "CL.PROBE", "a", 1, 2),
                         ["a"])
        # The longest answers, one after the other.
        longest = Resp.line("COMMAND", "DOCS", *["CL.THROTTLE"] * 62)
        link.link.sendall(longest * 20)
        for _ in range(20):
            self.assertEqual(link.read()[::2], ["cl.throttle"] * 62)
        link.link.sendall(Resp.line("COMMAND", "INFO", *["DEL"] * 62) * 20)
        for _ in range(20):
            self.assertEqual(len(link.read()), 62)
        for words, says in [
                (["COUNT", "x"], "-ERR wrong number of arguments for "
                 "'command|count' command"),
                (["FOO"], "-ERR unknown subcommand 'FOO'. Try COMMAND HELP."),
                (["LIST", "x"], "-ERR syntax error"),
                (["GETKEYS", "ping"],
                 "-ERR The command has no key arguments"),
                (["GETKEYS", "get", "a"], "-ERR Invalid command specified"),
                (["GETKEYS", "del"], "-ERR Invalid number of arguments "
                 "specified for command")]:
            self.assertEqual(link.ask("COMMAND", *words), says)
        for command in "COMMAND", "CLIENT":
            self.assertTrue(link.ask(command, "HELP")[0]
                            .startswith("+" + command))

    def test_a_client_sees_itself(self):
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        link, other = self.resp(place), self.resp(place)
        other.ask("CLIENT", "SETNAME", "other")
        own = link.ask("CLIENT", "ID")
        host, port = link.link.getsockname()
        line = (f"id={own} addr={host}:{port} name=me age=0 idle=0 flags=N "
                "db=0 sub=0 psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 "
                "argv-mem=0 multi-mem=0 obl=0 oll=0 omem=0 tot-mem=0 events=r "
                "cmd=client|{} user=default redir=-1 resp=2\n")
        link.ask("CLIENT", "SETNAME", "me")
        for words in ([], ["ID", own + 1, own], ["TYPE", "normal"]):
            self.assertEqual(link.ask("CLIENT", "LIST", *words),
                             line.format("list"))
        self.assertEqual(link.ask("CLIENT", "INFO"), line.format("info"))
        for words in ["ID", own + 1], ["TYPE", "pubsub"]:
            self.assertEqual(link.ask("CLIENT", "LIST", *words), "")
        for words, says in [
                (["GETREDIR"], -1), (["NO-EVICT", "on"], "+OK"),
                (["NO-TOUCH", "OFF"], "+OK"), (["REPLY", "ON"], "+OK"),
                (["TRACKING", "OFF"], "+OK"),
                (["SETINFO", "lib-ver", "1"], "+OK"),
                (["SETINFO", "x", "1"], "-ERR Unrecognized option 'x'"),
                (["NO-EVICT", "x"], "-ERR syntax error"),
                (["LIST", "x"], "-ERR syntax error"),
                (["LIST", "ID", "x"], "-ERR Invalid client ID"),
                (["LIST", "TYPE", "x"], "-ERR Unknown client type 'x'"),
                (["ID", "x"], "-ERR wrong number of arguments for "
                 "'client|id' command"),
                (["FOO"], "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.")]:
            self.assertEqual(link.ask("CLIENT", *words), says)
        for words in ["REPLY", "OFF"], ["TRACKING", "ON"]:
            self.assertTrue(link.ask("CLIENT", *words).startswith("-ERR"))
        # A HELLO that is refused changes nothing.
        self.assertEqual(link.ask("HELLO", 3, "SETNAME", "you", "FOO"),
                         "-ERR Syntax error in HELLO option 'FOO'")
        self.assertEqual(link.ask("HELLO", 3, "AUTH", "x"),
                         "-ERR Syntax error in HELLO option 'AUTH'")
        self.assertEqual(link.ask("CLIENT", "GETNAME"), "me")
        self.assertEqual(len(link.ask("HELLO", 2, "AUTH", "x", "y", "SETNAME",
                                      "you")), 14)
        self.assertEqual(link.ask("CLIENT", "GETNAME"), "you")

    def test_broken_clients(self):
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        for garbage, says in [
                (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$'"),
                (b"*1000000\r\n",
                 "-ERR Protocol error: invalid multibulk length"),
                (b"a" * 5000, "-ERR Protocol error: too big inline request"),
                (b"*1\r\n$99999\r\n",
                 "-ERR Protocol error: invalid bulk length")]:
            link = self.resp(place)
            link.link.sendall(b"PING\r\n" + garbage)
            self.assertEqual(link.read(), "+PONG")
            self.assertEqual(link.read(), says)
            self.assertRaises(EOFError, link.read)
        link = self.resp(place)
        link.link.sendall(b"*2\r\n$4\r\nEC")
        link.close()
        self.assertEqual(self.resp(place).ask("PING"), "+PONG")

    def test_a_browser_posts_no_commands(self):
        """A simple request, which fetch() of any page can send, without the
        headers that don't matter here."""
        self.quota("drain", "limit=1/h", "low_burst=3", "high_burst=3")
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        for method, target in ("POST", "/"), ("POST", "/?'a"), ("GET", "/"):
            link = http.client.HTTPConnection(place, timeout=PATIENCE)
            self.addCleanup(link.close)
            link.request(method, target, b"WEIR.TAKE drain 3\r\n",
                         {"Content-Type": "text/plain"})
            with self.assertRaises(http.client.BadStatusLine) as said:
                link.getresponse()
            self.assertIn("HTTP", said.exception.line)
            self.assertEqual(link.sock.recv(100), b"")
        self.assertEqual(self.resp(place).ask("WEIR.PEEK", "drain"),
                         [0, 3, 0, "drain"])

    def test_who_does_not_read_waits_alone(self):
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        slow, other = self.resp(place), self.resp(place)
        slow.link.setblocking(False)
        text, sent, rounds = "x" * 10000, 0, 0
        line = Resp.line("ECHO", text)
        # Until the agent reads no more of it.
        while rounds < 50:
            try:
                sent += slow.link.send(line[sent % len(line):])
                rounds = 0
            except BlockingIOError:
                self.assertEqual(other.ask("PING"), "+PONG")
                rounds += 1
        slow.link.settimeout(PATIENCE)
        # Now it reads: each request that was sent whole has its answer.
        for _ in range(sent // len(line)):
            self.assertEqual(slow.read(), text)
        slow.link.sendall(line[sent % len(line):] if sent % len(line)
                          else line)
        self.assertEqual(slow.read(), text)
        self.assertTrue(sent > 100 * len(line), sent)

    def test_ten_thousand_idle(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < TALKS_MAX + 1000:
            self.skipTest("too few descriptors here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (TALKS_MAX + 1000, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE,
                        (soft, hard))
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        first = self.resp(place)
        self.assertEqual(first.ask("PING"), "+PONG")
        before = self.memory()
        host, port = place.split(":")
        for _ in range(TALKS_MAX - 1):
            self.links.append(socket.create_connection((host, int(port)),
                                                       PATIENCE))
            self.links[-1].sendall(b"PING\r\n")
        for link in self.links[1:]:
            self.assertEqual(link.recv(100), b"+PONG\r\n")
        self.assertIn(f"connected_clients:{TALKS_MAX}\r", first.ask("INFO"))
        each = (self.memory() - before) / TALKS_MAX
        print(f"{TALKS_MAX} idle connections: {each:.0f} bytes each")
        self.assertLess(each, 2048)
        # One more gets an error; a connection that ends makes room.
        more = self.resp(place)
        self.assertEqual(more.read(), "-ERR max number of clients reached")
        self.assertEqual(first.ask("PING"), "+PONG")
        self.links.pop(1).close()
        until("room", lambda:
              f"connected_clients:{TALKS_MAX - 1}\r" in first.ask("INFO"))
        self.assertEqual(self.resp(place).ask("PING"), "+PONG")

    def memory(self):
        pid = self.agents[-1][0].pid
        for line in Path(f"/proc/{pid}/status").read_text().split("\n"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


class Clients(Agents):
    """Programs and libraries that know nothing of Weir."""

    def setUp(self):
        super().setUp()
        self.quota("site", "limit=1/h", "low_burst=2", "high_burst=2")
        self.place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        self.port = self.place.split(":")[1]

    def run_client(self, *command, stdin=None):
        if not shutil.which(command[0]):
            self.skipTest(f"no {command[0]} here")
        done = subprocess.run([str(word) for word in command], text=True,
                              input=stdin, capture_output=True,
                              timeout=2 * PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_redis_cli(self):
        for protocol in ("-2", "-3"):
            out = self.run_client("redis-cli", protocol, "-p", self.port,
                                  stdin="PING\nCL.THROTTLE a" + protocol +
                                  " 1 1 60\nWEIR.TAKE nobody\nINFO server\n")
            lines = out.split("\n")
            self.assertEqual(lines[:6], ["PONG", "0", "2", "1", "-1", "60"])
            # Its help is from COMMAND DOCS.
            out += self.run_client("redis-cli", protocol, "-p", self.port,
                                   "COMMAND", "DOCS", "weir.take")
            self.assertIn("Takes units of a quota.", out)
            self.assertIn("weir_version", out)

    def test_redis_benchmark(self):
        for pipeline in (1, 16):
            out = self.run_client(
                "redis-benchmark", "-p", self.port, "-n", "20000", "-c", "50",
                "-P", pipeline, "-r", "1000", "--csv", "CL.THROTTLE",
                "key:__rand_int__", "100", "100", "1")
            self.assertIn("CL.THROTTLE", out)
        keys = self.resp(self.place).ask("INFO")
        self.assertIn("throttle_keys_max:1000000", keys)

    def test_redis_py(self):
        script = """
import redis, sys
passed = 0
for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), client_name="py")
    assert client.ping()
    own = client.client_info()
    assert own["name"] == "py", own
    assert [int(line["id"]) for line in client.client_list()] == \\
        [int(own["id"])] == [client.client_id()]
    commands = client.command()
    assert commands["del"]["last_key_pos"] == -1, commands["del"]
    assert client.command_count() == len(commands)
    assert client.command_getkeys("DEL", "a", "b") in \\
        (["a", "b"], [b"a", b"b"])
    assert client.execute_command("CL.THROTTLE", f"p{protocol}", 1, 1, 60) \\
        == [0, 2, 1, -1, 60]
    pipe = client.pipeline(transaction=False)
    for _ in range(100):
        pipe.execute_command("WEIR.TAKE", "site")
    replies = pipe.execute()
    passed += sum(1 - reply[0] for reply in replies)
    pipe = client.pipeline(transaction=True)
    for _ in range(3):
        pipe.execute_command("CL.THROTTLE", f"t{protocol}", 1, 1, 3600)
    assert [reply[0] for reply in pipe.execute()] == [0, 0, 1]
    pipe.execute_command("CL.THROTTLE", f"u{protocol}", 0, 1, 3600)
    pipe.get("x")
    try:
        pipe.execute()
        sys.exit("GET was answered")
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error
    assert client.execute_command("CL.PROBE", f"u{protocol}", 0, 1, 3600)[0] \
        == 0
    try:
        client.get("x")
        sys.exit("GET was answered")
    except redis.ResponseError:
        pass
print(passed)
"""
        python = "/usr/bin/python3"
        has = subprocess.run([python, "-c", "import redis"],
                             capture_output=True)
        if has.returncode:
            self.skipTest("no redis for Python here")
        # Of two units, one may wait until a root has counted the other.
        self.assertIn(self.run_client(python, "-c", script, self.port),
                      ("1\n", "2\n"))

    def test_hiredis(self):
        program = BUILD / "test" / "resp_hiredis"
        if not program.exists():
            self.skipTest("built without hiredis")
        self.assertEqual(self.run_client(program, self.port), "ok\n")


class Strangers(Agents):
    def setUp(self):
        super().setUp()
        self.credentials = self.path("credentials")
        self.write(f"take token taker {TAKER}\nread token reader {READER}\n")
        self.places = self.agent("--http", "127.0.0.1:0", "--resp",
                                 "127.0.0.1:0",
                                 "--rls", "127.0.0.1:0", "--credentials",
                                 self.credentials)

    def write(self, text):
        made = self.credentials + ".new"
        with open(os.open(made, os.O_CREAT | os.O_WRONLY, 0o600), "w") as out:
            out.write(text)
        os.rename(made, self.credentials)

    def status(self, path, token=None):
        link = http.client.HTTPConnection(self.places["http"][0],
                                          timeout=PATIENCE)
        headers = {"Authorization": "Bearer " + token} if token else {}
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        answer.read()
        link.close()
        return answer.status

    def test_http(self):
        self.assertEqual(self.status("/healthz"), 200)
        self.assertEqual(self.status("/v1/status"), 401)
        self.assertEqual(self.status("/nothing"), 401)
        self.assertEqual(self.status("/v1/status", "wrong-and-long-enough"),
                         401)
        for path in "/v1/status", "/metrics":
            self.assertEqual(self.status(path, READER), 200)
            self.assertEqual(self.status(path, TAKER), 403)
        until("the log", lambda: "refused (credential)" in self.logged())

    def errors(self):
        """The counts that aren't 0, by protocol and kind."""
        link = http.client.HTTPConnection(self.places["http"][0],
                                          timeout=PATIENCE)
        link.request("GET", "/metrics",
                     headers={"Authorization": "Bearer " + READER})
        text = link.getresponse().read().decode()
        link.close()
        return {key: int(count) for *key, count in re.findall(
            r'errors_total{protocol="(.*)",kind="(.*)"} (.*)', text)
                if count != "0" for key in [tuple(key)]}

    def send(self, *lines, body=""):
        """The status of the answer to a request that is sent as it is."""
        host, port = self.places["http"][0].rsplit(":", 1)
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall("\r\n".join([*lines, "", body]).encode())
            return int(link.makefile("rb").readline().split()[1])

    def test_all_are_counted(self):
        """A request without a verdict passes at clients that let requests pass
        on errors, so each is counted: here those that the listener refuses
        before it has read one."""
        rls = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        rlqs = ("/envoy.service.rate_limit_quota.v3."
                "RateLimitQuotaService/StreamRateLimitQuotas")
        for path in rls, rls, rlqs:
            self.assertEqual(plain_grpc.call(self.places["rls"][0], path)[0],
                             16)
        host = f"Host: {self.places['http'][0]}"
        take = "POST /v1/take HTTP/1.1"
        json_type = "Content-Type: application/json"
        self.assertEqual([
            self.send(take, host, json_type, "Content-Length: 0"),
            self.send(take, host, json_type, "Content-Length: 0",
                      f"Authorization: Bearer {READER}"),
            self.send(take, "Host: elsewhere", json_type, "Content-Length: 0",
                      "Origin: http://elsewhere"),
            self.send(take, host, json_type, "Transfer-Encoding: chunked"),
            self.send(take, host, "Long: " + 17000 * "x"),
            # No request of a verdict.
            self.send("GET /v1/status HTTP/1.1", host),
        ], [401, 403, 403, 411, 431, 401])
        link = self.resp(self.places["resp"][0])
        link.ask("PING")
        link.ask("AUTH", "wrong")
        link.ask("AUTH", READER)
        self.assertEqual(self.errors(), {
            ("rls", "unauthenticated"): 2, ("rlqs", "unauthenticated"): 1,
            ("http", "unauthenticated"): 1, ("http", "denied"): 1,
            ("http", "invalid"): 3, ("resp", "unauthenticated"): 2,
            ("resp", "denied"): 1})
        # With their listener's name.
        for name in "rls", "rlqs", "http", "resp":
            until(name, lambda: re.search(
                f" {name} listener: .* refused ", self.logged()))
        self.assertNotIn("this root", self.logged())

    def test_an_envoy_without_a_request(self):
        self.write("")
        places = self.agent("--http", "127.0.0.1:0", "--rls", "127.0.0.1:0")
        rls = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        self.assertEqual(plain_grpc.call(places["rls"][0], rls)[0], 3)
        self.places = places
        self.assertEqual(self.errors(), {("rls", "invalid"): 1})

    def test_resp(self):
        link = self.resp(self.places["resp"][0])
        noauth = "-NOAUTH Authentication required."
        self.assertEqual(link.ask("PING"), noauth)
        self.assertEqual(link.ask("NOTHING"), noauth)
        self.assertTrue(link.ask("HELLO", 3).startswith("-NOAUTH"))
        self.assertTrue(link.ask("AUTH", "wrong").startswith("-WRONGPASS"))
        self.assertTrue(link.ask("AUTH", READER).startswith("-NOPERM"))
        for word in "MULTI", "EXEC", "DISCARD":
            self.assertEqual(link.ask(word), noauth)
        self.assertEqual(link.ask("AUTH", "anybody", TAKER), "+OK")
        self.assertEqual(link.ask("PING"), "+PONG")
        self.assertEqual(link.ask("RESET"), "+RESET")
        self.assertEqual(link.ask("PING"), noauth)
        self.assertTrue(link.ask("HELLO", 2, "AUTH", "x", "wrong", "SETNAME",
                                 "me").startswith("-WRONGPASS"))
        self.assertEqual(link.ask("PING"), noauth)
        self.assertEqual(len(link.ask("HELLO", 2, "SETNAME", "me", "AUTH", "x",
                                      TAKER)), 14)
        self.assertEqual(link.ask("CLIENT", "GETNAME"), "me")
        # A client is ended when its token is removed, though it sends nothing.
        self.write(f"take token other {TAKER}-of-another\n")
        self.assertEqual(link.link.recv(1), b"")


class AtARoot(Case):
    def test_resp(self):
        root = Root(self, "--resp", "127.0.0.1:0", store=self.make_store())
        self.ok("quota", "set", "site", "limit=1/h", "low_burst=3",
                "high_burst=3", root=root)
        link = Resp(root.ports["resp"])
        self.addCleanup(link.close)
        until("the quota", lambda: link.ask("WEIR.PEEK", "site")[3])
        self.assertEqual(link.ask("WEIR.TAKE", "site", 3), [0, 0, 0, "site"])
        self.assertEqual(link.ask("WEIR.TAKE", "site")[0], 1)
        self.assertEqual(link.ask("CL.THROTTLE", "k", 0, 1, 60),
                         [0, 1, 0, -1, 60])
        # The root's own limiter reports its counts to the root.
        until("the count", lambda: any(
            quota["name"] == "site" and quota["passed"] >= 3 for quota in
            json.loads(root.get("/v1/usage")[1])["quotas"]))
        self.assertEqual(root.stop(), 0)
        self.assertEqual(link.link.recv(1), b"")

    def test_only_where_all_is_plain(self):
        for words, says in [
                (["--resp", "0.0.0.0:0"], "--insecure"),
                (["--resp", ":x"], "a port"),
                (["--resp", "127.0.0.1:0", "--credentials", "x"],
                 "weir agent")]:
            done = self.run_weir("serve", *words)
            self.assertEqual(done.status, 2, words)
            self.assertIn(says, done.err, words)

    def test_the_fleet_counts_a_key(self):
        root = Root(self, "--resp", "127.0.0.1:0", "--resp-sharing", "counted",
                    store=self.make_store())
        link = Resp(root.ports["resp"])
        self.addCleanup(link.close)
        self.assertEqual(link.ask("CL.THROTTLE", "k", 0, 1, 3600),
                         [0, 1, 0, -1, 3600])
        self.assertEqual(link.ask("CL.THROTTLE", "k", 0, 1, 3600)[0], 1)
        until_equal("the count", [("throttle:1:1/3600s:k", 1)], lambda: [
            (quota["name"], quota["passed"]) for quota in
            json.loads(root.get("/v1/usage")[1])["quotas"]])


class Mistakes(Case):
    def test_the_command_line(self):
        for words, says in [
                (["--http", "nonsense"], "the port is missing"),
                (["--http", "0.0.0.0:0"], "--insecure"),
                (["--http", "localhost.example:0", "--insecure"], "numeric"),
                (["--http", "unix:" + "a" * 200], "107"),
                (["--http", "unix:/no/such/folder/x"], "No such file"),
                (["--resp", "127.0.0.1:0", "--resp-keys", "0"], "--resp-keys"),
                (["--resp", "127.0.0.1:0", "--resp-sharing", "counted",
                  "--resp-keys",
                  "1"], "--memory-max"),
                (["--resp", "127.0.0.1:0", "--resp-sharing", "x"], "local"),
                (["--credentials", "/no/such"], "/no/such"),
                (["--log-level", "loud"], "--log-level"),
                (["--memory-max", "much"], "--memory-max"),
                (["--rsp", "127.0.0.1:0"], "did you mean --resp"),
                (["what"], "'what'")]:
            done = self.run_weir("agent", *words)
            self.assertEqual(done.status, 2, words)
            self.assertIn(says, done.err, words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
