#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_attack.py - the attacks of attacks.py, each until it is certain that the
attacked process goes on.

A root or an agent, in plain text or over TLS, is attacked by processes without
a credential. Meanwhile it answers /healthz and /readyz, a quota beside it
passes units and never more than its bucket lets through, memory and log stay
below their bounds, and connections over a bound are ended. No test
here asserts a speed: live_measured.py does, in the long form."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent),
                str(Path(__file__).parents[1] / "live")]
import attacks  # noqa: E402
from field import (BIN_MS, LIMIT, QUOTA, RSS_MAX, SLOW,  # noqa: E402
                   Field, Process)
from live_agent import Resp  # noqa: E402
from patience import PATIENCE, until, until_equal  # noqa: E402

ANSWERS = 50           # of /healthz and /readyz, while an attack runs
UNITS = 2 * LIMIT      # that pass meanwhile
ENDED = 50             # connections of an attack that must be ended
# A line a kind and second, and the usual lines.
LINES, LINES_PER_S = 40, 12
LIMITERS = int(os.environ.get("WEIR_ATTACK_LIMITERS", "40"))
EACH = 200  # limiters in a process, at most
CROWD = Path(os.environ["WEIR_BUILD"]) / "test" / "limiters"


class Case(unittest.TestCase):
    def field(self, against="root", tls=False, **more):
        field = Field(against, tls, **more)
        self.addCleanup(field.close)
        return field

    def goes_on(self, field, start):
        """The process answers and the quota passes, while it is attacked."""
        until("answers of /healthz and /readyz",
              lambda: field.answered(start) >= ANSWERS)
        until(f"units of a quota of {LIMIT}/s",
              lambda: field.passed(start) >= UNITS)

    def bounded(self, field, start):
        """No more passes than a bucket lets through. A limiter that didn't run
        for so long that it became stale isn't checked: it uses on_stale."""
        if not field.stale(start):
            self.assertLessEqual(field.over(start), field.under_way,
                                 "units beyond the limit and its burst")

    def holds(self, field, start, *attacks):
        """Checks the bounds that hold at each instant since 'start'."""
        seconds = time.monotonic() - start
        self.assertIsNone(field.victim.poll(), field.logged()[-2000:])
        unanswered = [line for line in field.asked(start)
                      if line["status"] not in (200, 503)]
        self.assertEqual(unanswered, [])
        self.bounded(field, start)
        if SLOW == 1:
            self.assertLess(field.rss_max, field.memory_max(*attacks),
                            "bytes of memory")
        lines = field.logged()[field.logged_before:].count("\n")
        self.assertLess(lines, LINES + LINES_PER_S * seconds,
                        f"lines of the log in {seconds:.1f} s")

    def withstands(self, name, variant=None, listener=None, against="root",
                   tls=False, ended=0, sent=0, **more):
        """One attack, with all of these checks; the server ends 'ended' of its
        connections, or 'sent' bytes were sent."""
        field = self.field(against, tls)
        start = field.mark()
        attackers = field.attack(name, variant, listener, **more)
        until("the attack", lambda: attackers.total("made") > 0)
        self.goes_on(field, start)
        until(f"{ended} connections ended by the server",
              lambda: attackers.total("ended") >= ended or
              0 < sent <= attackers.total("sent"))
        attackers.stop()
        self.holds(field, start, name)
        return attackers


class Hpack(Case):
    """The connection ends at the bound, before the whole block is decoded."""

    def test_refer_root_tls(self):
        said = self.withstands("hpack_bomb", tls=True, ended=ENDED)
        self.assertTrue(any(
            word.startswith(("ENHANCE_YOUR_CALM", "COMPRESSION_ERROR"))
            for word in said.last_words()), said.last_words())

    def test_refer_elsewhere(self):
        for against, tls in [("root", False), ("agent", False),
                             ("agent", True)]:
            with self.subTest(against=against, tls=tls):
                self.withstands("hpack_bomb", against=against, tls=tls,
                                ended=ENDED)

    def test_small(self):
        self.withstands("hpack_bomb", "small", ended=ENDED)

    def test_continuation(self):
        self.withstands("hpack_bomb", "continuation", ended=ENDED)

    def test_empty(self):
        self.withstands("hpack_bomb", "empty", ended=ENDED)

    def test_huffman(self):
        self.withstands("hpack_bomb", "huffman", ended=ENDED)

    def test_sizes(self):
        self.withstands("hpack_bomb", "sizes")


class Frames(Case):
    """The server may end a flood or slow it down; other connections go on. (A
    flood of calls that are reset as they begin must be ended.)"""

    def test_reset(self):
        self.withstands("h2_frames", "reset", ended=1)

    def test_each_root(self):
        for variant in attacks.ATTACKS["h2_frames"].variants[1:]:
            with self.subTest(variant):
                self.withstands("h2_frames", variant)

    def test_each_agent_tls(self):
        for variant in attacks.ATTACKS["h2_frames"].variants:
            with self.subTest(variant):
                self.withstands("h2_frames", variant, against="agent",
                                tls=True)


class Connections(Case):
    def test_handshakes_root_tls(self):
        self.withstands("handshakes", "full", tls=True)

    def test_hellos_and_churn(self):
        for variant in "hello", "churn":
            for against in "root", "agent":
                with self.subTest(variant, against=against):
                    self.withstands("handshakes", variant, against=against,
                                    tls=True)

    def test_churn_of_each_listener(self):
        for against, listeners in attacks.ATTACKS["handshakes"] \
                .listeners.items():
            for listener in listeners:
                with self.subTest(listener, against=against):
                    self.withstands("handshakes", "churn", listener,
                                    against=against)

    def test_log_root_tls(self):
        said = self.withstands("log_flood", tls=True, ended=10 * ENDED)
        self.assertGreater(said.total("made"), 10 * ENDED)

    def test_log_of_each_listener(self):
        for against, listeners in attacks.ATTACKS["log_flood"] \
                .listeners.items():
            for listener in listeners:
                for variant in "garbage", "hello":
                    with self.subTest(listener, variant=variant):
                        self.withstands("log_flood", variant, listener,
                                        against=against, tls=True,
                                        ended=10 * ENDED)

    def test_limiters_come_back(self):
        """Beside an attack, after the root was killed and started again."""
        field = self.field(tls=True)
        crowd = Crowd(field, LIMITERS)
        self.addCleanup(crowd.stop)
        for name in "hpack_bomb", "handshakes":
            took = crowd.come_back(field.attack(name))
            print(f"{name}: {LIMITERS} limiters back after {took:.1f} s",
                  file=sys.stderr)


class Crowd:
    """Limiters that are linked and take nothing (limiters.c)."""

    def __init__(self, field, count):
        self.field, self.count = field, count
        shares = [min(EACH, count - first) for first in range(0, count, EACH)]
        with changed_environment(field.limiter_env()):
            self.processes = [Process(CROWD, field.listen, share)
                              for share in shares]
        until("all limiters have their root", self.all_up)

    def up(self):
        """How many have their root; None until all processes have printed."""
        lines = [process.last() for process in self.processes]
        return sum(line["up"] for line in lines) if all(lines) else None

    def all_up(self):
        return self.up() == self.count

    def come_back(self, attackers):
        """Kills the limiters' root beside an attack and starts it again;
        returns the seconds from its start until all of them have it."""
        until("the attack", lambda: attackers.total("made") > 0)
        self.field.kill_root()
        until("no limiter has a root", lambda: self.up() == 0)
        self.field.start_root()
        start = time.monotonic()
        until("all limiters are back", self.all_up)
        attackers.stop()
        return max(process.last()["at"] for process in self.processes) - start

    def stop(self):
        for process in self.processes:
            process.stop()


@contextlib.contextmanager
def changed_environment(env):
    """Processes that are started inside this context have 'env'."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Room(Case):
    """Connections and descriptors."""

    def descriptors(self, against, tls):
        field = self.field(against, tls, descriptors=1024)
        start = field.mark()
        attackers = field.attack("idle", "idle")
        # Connections that the process doesn't accept wait in the kernel.
        until("1200 connections", lambda: attackers.total("made") >= 1200)
        self.goes_on(field, start)
        self.assertEqual(field.limiter.seen()["seen"][QUOTA][3], 0,
                         "calls of the limiter that failed")
        attackers.stop()
        self.holds(field, start)

    def test_descriptors_agent(self):
        self.descriptors("agent", True)

    def test_descriptors_elsewhere(self):
        for against, tls in [("root", True), ("root", False),
                             ("agent", False)]:
            with self.subTest(against=against, tls=tls):
                self.descriptors(against, tls)

    def test_one_address_leaves_room_for_others(self):
        """While one address has as many connections as it can, another address
        without a credential is still accepted, at each listener."""
        for listener, count in ("listen", 5000), ("http", 1200):
            field = self.field(tls=True)
            start = field.mark()
            attackers = field.attack("idle", "shaken", listener,
                                     connections=count)
            until("the attack", lambda: attackers.total("made") > 200)
            until("room for another address", lambda: is_let_in(
                field.places[listener], "127.0.0.3"))
            self.goes_on(field, start)
            self.assertTrue(is_let_in(field.places[listener], "127.0.0.4"))
            attackers.stop()
            self.holds(field, start)


def is_let_in(place, source):
    """Whether a handshake from that address is answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, port = place.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), PATIENCE,
                                      (source, 0)) as raw, \
                context.wrap_socket(raw, server_hostname="localhost"):
            return True
    except OSError:
        return False


class Slow(Case):
    def test_heads_root_tls(self):
        """Connections that take too long are ended at each listener."""
        self.withstands("loris", "head", tls=True, ended=ENDED,
                        connections=100)

    def each_listener(self, variant, **more):
        for against, listeners in attacks.ATTACKS["loris"].listeners.items():
            for listener in listeners:
                with self.subTest(listener, against=against):
                    self.withstands("loris", variant, listener,
                                    against=against, **more)

    def test_heads_of_each_listener(self):
        self.each_listener("head", tls=True, ended=ENDED, connections=100)

    def test_halves_of_each_listener(self):
        self.each_listener("half", tls=True, ended=ENDED, connections=100)

    def test_answers_that_are_not_read(self):
        self.each_listener("unread", connections=50)

    def test_events_that_are_not_read(self):
        for against in "root", "agent":
            with self.subTest(against=against):
                self.withstands("loris", "events", "http", against=against)


class Bodies(Case):
    """Bodies are refused by the head, or dropped as they arrive; if they were
    kept, they would exceed RSS_MAX."""

    def withstands_bodies(self, *variant, **of):
        self.withstands("bodies", *variant, rate=0, ended=4 * ENDED,
                        sent=4 * RSS_MAX, **of)

    def test_root_tls(self):
        self.withstands_bodies(tls=True)

    def test_elsewhere(self):
        for against, tls in [("root", False), ("agent", False),
                             ("agent", True)]:
            with self.subTest(against=against, tls=tls):
                self.withstands_bodies(against=against, tls=tls)

    def test_small(self):
        for against in "root", "agent":
            with self.subTest(against=against):
                self.withstands_bodies("small", against=against, tls=True)


# ---- Lies ----

DEBT = 2  # seconds: max_debt of the quota
SPAN = 2  # seconds, at least, of a mean rate
SPAN_BINS = SPAN * 1100 // BIN_MS  # a tenth more: bins may be early


class Liar(Case):
    """A limiter with false reports stops the others for max_debt at most."""

    def setUp(self):
        self.root = self.field()
        self.root.weir("quota", "set", QUOTA, f"max_debt={DEBT}s")

    def lie(self, variant="total"):
        """Lies until the quota passes nothing. Returns the instant of the last
        report."""
        start = time.monotonic()
        liar = self.root.attack("liar", variant)

        def stands():
            bins = self.root.bins(start)
            return any(a[1] == b[1] for a, b in zip(bins, bins[3:]))
        until("nothing passes for a while", stands)
        liar.stop()
        return time.monotonic()

    def passes_again(self, since):
        """Waits until nine tenths of the limit pass, as a mean over a span of
        at least SPAN seconds."""
        def rate():
            bins = self.root.bins(since)
            return any(b[0] - a[0] >= SPAN and
                       (b[1] - a[1]) / (b[0] - a[0]) >= 0.9 * LIMIT
                       for a, b in zip(bins, bins[SPAN_BINS:]))
        until(f"at least {0.9 * LIMIT}/s", rate)
        print(f"passes again: the quota stood for "
              f"{self.stood(since):.1f} s after the last report",
              file=sys.stderr)
        self.bounded(self.root, since)

    def stood(self, since):
        """Seconds until a unit passed again."""
        bins = self.root.bins(since)
        return next((at for at, passed in bins if passed > bins[0][1]),
                    since) - since

    def test_after_it_has_left(self):
        self.passes_again(self.lie())

    def test_a_pace(self):
        self.passes_again(self.lie("pace"))

    def test_after_an_edit(self):
        since = self.lie()
        self.root.weir("quota", "set", QUOTA, "description=edited")
        self.passes_again(since)

    def test_after_a_restart_of_the_root(self):
        since = self.lie()
        self.root.restart_root()
        self.passes_again(since)

    def test_a_lie_to_a_root_that_was_just_started(self):
        self.root.restart_root()
        self.passes_again(self.lie("fill"))

    def test_a_reset_empties_it(self):
        self.root.weir("quota", "set", QUOTA, "max_debt=1h")
        since = self.lie()
        self.root.weir("quota", "reset", QUOTA)
        self.passes_again(since)
        # A restarted root doesn't get the debt from its limiters.
        self.root.restart_root()
        self.passes_again(time.monotonic())


# ---- Single requests ----

def exchange(place, data, patience=PATIENCE):
    """All bytes of the answer, until the other side ends it."""
    host, port = place.rsplit(":", 1)
    said = b""
    with socket.create_connection((host, int(port)), patience) as link:
        link.settimeout(patience)
        with contextlib.suppress(OSError):
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := link.recv(65536):
                said += part
    return said


class Browser(Case):
    """Requests that a page can make the operator's browser send."""

    def drain(self, field, place):
        field.weir("quota", "set", "drain", "limit=1/h", "low_burst=3",
                   "high_burst=3")
        with contextlib.closing(Resp(place)) as link:
            until_equal("the quota", [0, 3, 0, "drain"],
                        lambda: link.ask("WEIR.PEEK", "drain"))
            for head in (b"POST / HTTP/1.1\r\nHost: localhost\r\n",
                         b"Host: localhost\r\n", b"POST /\r\n",
                         b"GET / HTTP/1.0\r\n"):
                said = exchange(place, head + b"Content-Type: text/plain\r\n"
                                b"\r\nWEIR.TAKE drain 3\r\n")
                self.assertNotIn(b"*4", said, head)
            self.assertEqual(link.ask("WEIR.PEEK", "drain"),
                             [0, 3, 0, "drain"])

    def test_resp(self):
        field = self.field("agent")
        self.drain(field, field.places["resp"])

    def test_resp_of_a_root(self):
        field = self.field(resp=True)
        self.drain(field, field.places["resp"])

    def test_edits_from_other_origins(self):
        """A root makes none of the edits, an agent none of the decisions."""
        for against, path, body in [
                ("root", "/v1/quotas:remove", {"names": [QUOTA]}),
                ("agent", "/v1/take", {"name": QUOTA})]:
            field = self.field(against)
            place = field.places["http"]
            text = json.dumps(body).encode()
            for headers in FOREIGN:
                host = headers.get("Host", place)
                lines = "".join(f"{key}: {value}\r\n" for key, value in
                                ({"Content-Type": "application/json"} |
                                 headers | {"Host": host}).items())
                said = exchange(place, f"POST {path} HTTP/1.1\r\n{lines}"
                                f"Content-Length: {len(text)}\r\nConnection: "
                                f"close\r\n\r\n".encode() + text)
                with self.subTest(against=against, headers=headers):
                    self.assertRegex(said, rb"^HTTP/1\.1 (403|415|421) ")
            self.assertIn(QUOTA, field.weir("quota", "ls"))


FOREIGN = [
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "http://127.0.0.1:7078.evil.example"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example"},
    {"Origin": "http://localhost:3000", "Content-Type": "text/plain"},
]


def smuggled():
    """name -> a request that two servers could parse in two ways."""
    def get(*lines, body=b"", version=b"HTTP/1.1"):
        return b"GET /v1/status " + version + b"\r\n" + \
            b"\r\n".join(lines) + b"\r\n\r\n" + body
    host, length = b"Host: localhost", b"Content-Length: "
    chunked = b"Transfer-Encoding: chunked"
    chunks = b"2\r\n{}\r\n0\r\n\r\n"
    return {
        "two lengths": get(host, length + b"2", length + b"3", body=b"{} "),
        "a list of lengths": get(host, length + b"2, 3", body=b"{} "),
        "a signed length": get(host, length + b"+2", body=b"{}"),
        "a negative length": get(host, length + b"-2", body=b"{}"),
        "a length in hex": get(host, length + b"0x2", body=b"{}"),
        "a length beyond 64 bits": get(
            host, length + b"18446744073709551618", body=b"{}"),
        "an empty length": get(host, length, body=b"{}"),
        "a length and chunks": get(host, length + b"2", chunked, body=chunks),
        "an unknown coding": get(host, b"Transfer-Encoding: xchunked",
                                 body=chunks),
        "a space before the colon": get(host, b"Content-Length : 2",
                                        body=b"{}"),
        "a folded line": get(host, b"X-A: b\r\n c"),
        "a line without a colon": get(host, b"nonsense"),
        "a header without a name": get(host, b": nonsense"),
        "a control character": get(host, b"X-A: b\x01c"),
        "a carriage return alone": get(host, b"X-A: b\rc"),
        "a NUL": get(host, b"X-A: b\0c"),
        "two hosts": get(host, b"Host: evil.example"),
        "no host": get(b"X-A: b"),
        "another version": get(host, version=b"HTTP/1.2x"),
        "many headers": get(host, *[b"X-A: b"] * 200),
        "a long head": get(host, b"X-A: " + b"b" * 65536),
    }


class Smuggling(Case):
    def refuses(self, against):
        field = self.field(against)
        start = field.mark()
        place = field.places["http"]
        hidden = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for name, data in smuggled().items():
            said = exchange(place, data + hidden)
            with self.subTest(name):
                self.assertRegex(said[:80], rb"^HTTP/1\.1 [45]\d\d ")
                # The request behind it isn't read any more.
                self.assertEqual(said.count(b"HTTP/1.1 "), 1)
                self.assertIn(b"application/problem+json", said.lower())
        for method in b"BREW", b"TRACE", b"CONNECT":
            said = exchange(place, method + b" / HTTP/1.1\r\nHost: "
                            b"localhost\r\nConnection: close\r\n\r\n")
            with self.subTest(method):
                self.assertRegex(said[:80], rb"^HTTP/1\.1 (4\d\d|501) ")
                self.assertIn(b"application/problem+json", said.lower())
        self.holds(field, start)

    def test_root(self):
        self.refuses("root")

    def test_agent(self):
        self.refuses("agent")


class Command(unittest.TestCase):
    """attack.py, as SECURITY.md has people run it."""

    def run_it(self, *words, **env):
        return subprocess.run([Path(__file__).parent / "attack.py", *words],
                              text=True, capture_output=True,
                              timeout=PATIENCE, env=os.environ | env)

    def test_list(self):
        done = self.run_it("--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in attacks.ATTACKS:
            self.assertIn(f"{name}: ", done.stdout)

    def test_what_cannot_run_is_named(self):
        for words, said in [
                (["liar", "--against", "agent"], "--against agent: use root"),
                (["bodies", "--listener", "resp"], "resp: use http"),
                (["idle", "--variant", "x"], "x: use idle or shaken")]:
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)

    def test_the_command_that_builds_is_named(self):
        done = self.run_it("idle", WEIR_BUILD="/nonexistent")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("ninja -C /nonexistent weir test/live_load",
                      done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
