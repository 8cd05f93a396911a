#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_log.py - the logs of `weir serve` and `weir agent` under tens of
thousands of refused connections and requests, at each listener, plain and over
TLS, at the log level with the most lines.

A line's form is the line without its numbers. Each form may have a burst and a
line for each second, however many peers cause it, and lines left out are
counted: no speed is asserted. WEIR_LOG_FLOOD is the number of connections and
requests of each kind."""

import os
import re
import signal
import socket
import ssl
import struct
import time
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from live_agent import Agents, Resp
from live_agent_tls import Agent as SealedAgent
from live_cli import Root
from patience import PATIENCE

FLOOD = int(os.environ.get("WEIR_LOG_FLOOD", "10000"))
BURST = 10      # WEIR_LOG_BURST
LINE_MAX = 1024  # WEIR_LOG_LINE_MAX
PEERS = 32      # that come at once
LEFT_OUT = re.compile(r" \((\d+) more like this left out in the last \d+ s\)$")
WRONG = "Bearer nobody-has-this-token"

GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\nUser-Agent: \x9b2J\r\n\r\n",
    b"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
    b"*1000000\r\n$-5\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
    b"\0" * 300,
    b"\n\x1b]0;a\x07\r\n",
]


# ---- Peers ----

def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + \
        struct.pack(">I", stream) + body


def grpc_call(stream, path, message, **headers):
    """A request of gRPC; headers are literals without a table."""
    pairs = {":method": "POST", ":scheme": "http", ":path": path,
             ":authority": "a", "content-type": "application/grpc",
             "te": "trailers", **headers}
    block = b""
    for name, value in pairs.items():
        block += b"\0"
        for word in (name.encode(), value.encode()):
            block += bytes([len(word)]) + word
    body = struct.pack(">BI", 0, len(message)) + message
    return frame(1, 4, stream, block) + frame(0, 1, stream, body)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)


def receive(link):
    try:
        return link.recv(65536)
    except ConnectionError:
        return b""


def drain(link):
    """Reads until the other side has closed."""
    while receive(link):
        pass


def connect(place, context=None):
    host, port = place.rsplit(":", 1)
    link = socket.create_connection((host, int(port)), PATIENCE)
    return context.wrap_socket(link, server_hostname="localhost") \
        if context else link


def say(place, data, context=None):
    """Sends bytes on a connection of their own, and ends it."""
    try:
        with connect(place, context) as link:
            link.sendall(data)
            if not context:
                link.shutdown(socket.SHUT_WR)
            drain(link)
    except OSError:  # it may be ended at any byte
        pass


def in_parallel(do, items):
    with ThreadPoolExecutor(PEERS) as pool:
        for _ in pool.map(do, items):
            pass


def flood(place):
    """FLOOD connections, each with one of the texts of GARBAGE."""
    in_parallel(lambda i: say(place, GARBAGE[i % len(GARBAGE)]),
                range(FLOOD))


def ask_often(place, one, answer, context=None, count=FLOOD):
    """Sends at least 'count' requests, on as many connections as they need;
    each reply must have 'answer'."""
    def ask(_):
        answers = 0
        while answers < count / PEERS:
            with connect(place, context) as link:
                with suppress(ConnectionError):
                    link.sendall(one * 50)
                got = b""
                while got.count(answer) < 50 and (part := receive(link)):
                    got += part
                assert answer in got, got
                answers += got.count(answer)
    in_parallel(ask, range(PEERS))


# ---- The log ----

def form_of(line):
    """The line without its time, its numbers and the count of lines left out.
    """
    text = LEFT_OUT.sub("", line.partition(" ")[2])
    return re.sub(r"\d+", "N", text)


class Written:
    """The log of one process: all lines, and those of each form."""

    def __init__(self, path, began):
        self.text = Path(path).read_bytes()
        self.seconds = int(time.monotonic() - began) + 1
        self.lines = self.text.decode().splitlines()
        self.forms = Counter(map(form_of, self.lines))

    def ever(self, what):
        """The number of lines with these words if none had been left out."""
        return sum(1 + sum(map(int, LEFT_OUT.findall(line)))
                   for line in self.lines if what in line)


class Bounded:
    """Mixed into a test case that has processes: 'logs' are their files."""

    def check(self, path, began):
        written = Written(path, began)
        for form, count in written.forms.items():
            self.assertLessEqual(count, BURST + written.seconds, form)
        for line in written.text.splitlines(keepends=True):
            self.assertLessEqual(len(line), LINE_MAX)
            self.assertRegex(line, rb"^[\x20-\x7e\x80-\xff]+\n$")
        return written


class Plain(Bounded, Agents):
    """Listeners without TLS and without credentials."""

    def setUp(self):
        super().setUp()
        self.began = time.monotonic()
        self.root = Root(self, "--log-level", "debug",
                         store=self.make_store("debug.db"))
        self.places = self.agent("--http", "127.0.0.1:0", "--resp",
                                 "127.0.0.1:0", "--rls",
                                 "127.0.0.1:0", "--log-level", "debug")

    def check_all(self):
        process, log = self.agents[-1]
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0, Path(log).read_text())
        self.assertEqual(self.root.stop(), 0)
        return (self.check(self.root.log_path, self.began),
                self.check(log, self.began))

    def test_garbage(self):
        for place in (self.root.address, self.root.http,
                      *(each[0] for each in self.places.values())):
            flood(place)
        root, _ = self.check_all()
        # Each connection to the listener of gRPC has ended.
        self.assertGreaterEqual(root.ever("connection of"), FLOOD)

    def test_links_that_say_nonsense(self):
        link = PREFACE + grpc_call(1, "/weir.v1.Root/Link", b"\xff" * 20)
        in_parallel(lambda _: say(self.root.address, link), range(FLOOD))
        root, _ = self.check_all()
        self.assertGreaterEqual(root.ever("dropped: "), FLOOD)

    def test_commands_and_requests(self):
        resp, http = self.places["resp"][0], self.places["http"][0]
        ask_often(resp, b"NO.SUCH \x1b[31m\r\n", b"-ERR")
        ask_often(resp, Resp.line("WEIR.TAKE", "a\nb"), b"-ERR")
        ask_often(http, b"GET /%E2%80%AE HTTP/1.1\r\nHost: localhost\r\n"
                  b"\r\n", b"HTTP/1.1 404")
        ask_often(http, b"GET /\xe2\x80\xae HTTP/1.1\r\nHost: localhost\r\n"
                  b"\r\n", b"HTTP/1.1 400")
        ask_often(self.root.http, b"POST /v1/quotas:remove HTTP/1.1\r\n"
                  b"Host: localhost\r\nContent-Length: 1\r\n\r\nx",
                  b"HTTP/1.1 415")
        self.check_all()


class Sealed(Bounded, SealedAgent):
    """The same over TLS, and with credentials."""

    def setUp(self):
        self.began = time.monotonic()
        super().setUp()
        self.sealed_by = ssl.create_default_context(
            cafile=str(self.certificates.ca))

    def start(self, *options, **places):
        return super().start("--log-level", "debug", *options, **places)

    def agent(self, *options):
        return super().agent("--log-level", "debug", *options)

    def check_all(self):
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(PATIENCE), 0)
        self.assertEqual(self.root.stop(), 0)
        return (self.check(self.root.log, self.began),
                self.check(self.log, self.began))

    def test_handshakes(self):
        for place in (f"127.0.0.1:{self.root.grpc}",
                      f"127.0.0.1:{self.root.http}",
                      *(self.places[kind] for kind in ("http", "rls"))):
            flood(place)
        root, agent = self.check_all()
        # No line is lost without having been counted.
        for written, listeners in ((root, ("grpc", "http")),
                                   (agent, ("http", "http"))):
            for listener in listeners:
                self.assertGreaterEqual(
                    written.ever(f"{listener} listener: "),
                    FLOOD * listeners.count(listener), listener)

    def test_wrong_tokens(self):
        request = (f"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"
                   f"Authorization: {WRONG}\r\n\r\n").encode()
        for place in (f"127.0.0.1:{self.root.http}", self.places["http"]):
            # Each answer ends its connection.
            ask_often(place, request, b"HTTP/1.1 401", self.sealed_by,
                      FLOOD // 5)
        ask_often(self.places["resp"], Resp.line("AUTH", WRONG), b"-WRONGPASS",
                  self.sealed_by)
        root, agent = self.check_all()
        self.assertGreaterEqual(root.ever("refused (credential)"), FLOOD // 5)
        self.assertGreaterEqual(agent.ever("refused (credential)"),
                                FLOOD // 5 + FLOOD)

    def test_wrong_tokens_of_grpc(self):
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        context.set_alpn_protocols(["h2"])
        calls = b"".join(
            grpc_call(2 * i + 1, "/weir.v1.Root/Call", b"",
                      authorization=WRONG) for i in range(20))
        place = f"127.0.0.1:{self.root.grpc}"

        def ask(_):
            # A stream is refused by its headers; its body is ignored.
            with connect(place, context) as link:
                link.sendall(PREFACE + calls + frame(7, 0, 0, bytes(8)))
                drain(link)
        in_parallel(ask, range(FLOOD // 20 // 10))
        root, _ = self.check_all()
        self.assertGreaterEqual(root.ever("refused (credential)"),
                                FLOOD // 10)


if __name__ == "__main__":
    unittest.main()
