#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_agent_tls.py - unauthenticated peers at the listeners of `weir agent`:
HTTP, RESP and Envoy's service, each over TLS and with every wrong credential
that live_security.py has for a root's listeners."""

import itertools

import signal
import socket
import ssl
import subprocess
import unittest

from identities import EDIT, TAKE, WEIR, Who
from live_agent import Resp
from live_security import ALERT, Case
from patience import PATIENCE, until

HEALTH = "/grpc.health.v1.Health/Check"
LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
UNAUTHENTICATED, PERMISSION_DENIED = 16, 7


class Sealed(Resp):
    """A client of Redis over TLS, without ALPN as these clients are."""

    def __init__(self, place, context):
        host, port = place.rsplit(":", 1)
        with socket.create_connection((host, int(port)), PATIENCE) as raw:
            self.link = context.wrap_socket(raw, server_hostname="localhost")
        self.link.settimeout(PATIENCE)
        self.file = self.link.makefile("rb")
        # With TLS 1.3 a refused certificate fails the first read.
        try:
            self.said = self.ask("PING")
        except (OSError, EOFError):
            self.close()
            raise


class Agent(Case):
    """A root and an agent, each over TLS and with credentials."""

    def setUp(self):
        super().setUp()
        self.files = ["--listener-tls-cert", self.cert, "--listener-tls-key",
                      self.key, "--listener-tls-ca", self.trusted,
                      "--credentials", self.credentials]
        self.unix = f"unix:{self.folder}/resp"
        self.places = self.agent(*self.files, "--http", "127.0.0.1:0",
                                 "--resp", "127.0.0.1:0",
                                 "--resp", self.unix, "--rls", "127.0.0.1:0")

    def agent(self, *options):
        ports, log = self.folder / "places", self.folder / "agent.log"
        token = self.folder / "token"
        token.write_text(TAKE + "\n")
        ports.unlink(missing_ok=True)
        self.log = log
        with open(log, "w") as errors:
            process = subprocess.Popen(
                [WEIR, "agent", "--roots", f"localhost:{self.root.grpc}",
                 "--tls-ca", str(self.certificates.ca), "--token-file",
                 str(token), "--port-file", str(ports),
                 *map(str, options)], stderr=errors)
        self.process = process

        def end():
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE), 0, log.read_text())
        self.addCleanup(end)
        until("the places", lambda: ports.exists() or
              process.poll() is not None)
        self.assertIsNone(process.poll(), log.read_text())
        until("ready", lambda: "ready: the quotas" in log.read_text())
        places = {}
        for line in ports.read_text().split():
            places.setdefault(*line.split("=", 1))
        return places

    def port(self, kind):
        return int(self.places[kind].rsplit(":", 1)[1])

    def sealed(self, who):
        """A connection to the RESP listener; None: TLS failed."""
        try:
            link = Sealed(self.places["resp"],
                          who.context(self.certificates.ca))
        except (ssl.SSLError, ConnectionError, EOFError):
            return None
        self.addCleanup(link.close)
        return link


# Paths of HTTP, and the roles that they need.
ROLES = {"/v1/take": "take", "/v1/status": "read", "/v1/live": "read",
         "/healthz": None}


class Walk(Agent):
    def test_http(self):
        before = self.log.read_text().count("refused (tls)")
        for who, path in itertools.product(self.everybody, ROLES):
            where = f"{path} with {who.name}"
            method = "POST" if path == "/v1/take" else "GET"
            answer = self.ask(who, method, path, '{"name": "a"}'
                              if method == "POST" else None,
                              port=self.port("http"))
            if who.result == "tls":
                self.assertIsNone(answer, where)
                continue
            may = not ROLES[path] or ROLES[path] in who.result
            wanted = 200 if may else 401 if who.result == "credential" else 403
            self.assertEqual(answer[0], wanted, where)
            for secret in (EDIT, TAKE):
                self.assertNotIn(secret, answer[2], where)
        self.assertGreater(self.log.read_text().count("refused (tls)"),
                           before)

    def test_rls(self):
        for who, path in itertools.product(self.everybody, (HEALTH, LIMIT)):
            where = f"{path} with {who.name}"
            # An empty domain is refused by the service itself.
            answer = self.call(who, path, port=self.port("rls"))
            if who.result == "tls":
                self.assertIsNone(answer, where)
            elif who.result == "credential" and path == LIMIT:
                self.assertEqual(answer[0], UNAUTHENTICATED, where)
            elif path == LIMIT and "take" not in who.result:
                self.assertEqual(answer[0], PERMISSION_DENIED, where)
            else:
                self.assertNotIn(answer[0],
                                 (UNAUTHENTICATED, PERMISSION_DENIED), where)

    def test_resp(self):
        """The password of AUTH is the token of a header 'Bearer'. So a header
        with a token and no scheme isn't wrong here, and is left out."""
        for who in self.everybody:
            if who.header == EDIT:
                continue
            link = self.sealed(who)
            if who.result == "tls":
                self.assertIsNone(link, who.name)
                continue
            by_certificate = bool(who.cert) and "taker-1" in str(who.cert)
            self.assertEqual(link.said, "+PONG" if by_certificate else
                             "-NOAUTH Authentication required.", who.name)
            if not by_certificate:
                self.assertTrue(link.ask("WEIR.TAKE", "a")
                                .startswith("-NOAUTH"), who.name)
            if who.header is None:
                continue
            word, _, token = who.header.partition(" ")
            said = link.ask("AUTH", token if word == "Bearer" else who.header)
            if who.result == "credential":
                self.assertTrue(said.startswith("-WRONGPASS"), who.name)
                # The connection keeps its identity, as with Redis.
                self.assertEqual(link.ask("PING"), link.said, who.name)
            elif "take" in who.result:
                self.assertEqual(said, "+OK", who.name)
                self.assertEqual(link.ask("WEIR.TAKE", "a")[0], 0)
            else:
                self.assertTrue(said.startswith("-NOPERM"), who.name)

    def test_a_path_is_plain_and_asks_all_the_same(self):
        link = Resp(self.unix)
        self.addCleanup(link.close)
        self.assertTrue(link.ask("PING").startswith("-NOAUTH"))
        self.assertEqual(link.ask("AUTH", TAKE), "+OK")
        self.assertEqual(link.ask("PING"), "+PONG")


class Wire(Agent):
    def test_plain_text_gets_an_alert(self):
        for kind, data in itertools.product(
                ("http", "resp", "rls"),
                (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
                 b"PING\r\n", b"*1\r\n$4\r\nPING\r\n" * 10,
                 b"\x16\x03\x01\xff\xff" + bytes(70000), bytes(100000))):
            said = b""
            with socket.create_connection(("127.0.0.1",
                                           self.port(kind))) as client:
                client.settimeout(PATIENCE)
                try:
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    while part := client.recv(4096):
                        said += part
                except OSError:
                    pass
            self.assertLessEqual(len(said), 7, said)
            self.assertTrue(said == b"" or said.startswith(ALERT), said)

    def test_pipelines_and_long_answers(self):
        """In each direction more than a record, a buffer or a socket holds."""
        link = self.sealed(self.ops)
        text = "x" * 10000
        rounds = 300
        line = Resp.line("ECHO", text)
        asked = line * rounds
        link.link.setblocking(False)
        sent, answers = 0, 0
        got = bytearray()
        wanted = len(b"$10000\r\n" + text.encode() + b"\r\n")
        # Reads nothing before the agent has stopped reading.
        stuck = 0
        while len(got) < wanted * rounds:
            try:
                sent += link.link.send(asked[sent:]) if sent < len(asked) \
                    else 0
                stuck = 0 if sent < len(asked) else 100
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                stuck += 1
            if stuck < 100:
                continue
            try:
                got += link.link.recv(1 << 20)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                answers += 1
        self.assertEqual(sent, len(asked))
        self.assertEqual(bytes(got), (b"$10000\r\n" + text.encode() + b"\r\n")
                         * rounds)
        link.link.settimeout(PATIENCE)
        self.assertEqual(link.ask("PING"), "+PONG")
        self.assertEqual(link.ask("QUIT"), "+OK")
        self.assertEqual(link.file.read(), b"")

    def halves(self):
        """Connections with a handshake of an incomplete record, cut in each of
        its parts."""
        for kind, size in itertools.product(("http", "resp", "rls"),
                                            (1, 3, 5, 300)):
            half = self.connect(kind)
            half.sendall((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" +
                          bytes(300))[:size])
            yield half

    def connect(self, kind):
        link = socket.create_connection(("127.0.0.1", self.port(kind)),
                                        PATIENCE)
        self.addCleanup(link.close)
        return link

    def test_strangers_do_not_stay(self):
        """Peers that send nothing, half a handshake or half a command are
        ended, and no other client waits for that."""
        silent = [self.connect(kind) for kind in ("http", "resp", "rls")
                  for _ in range(20)]
        halves = list(self.halves())
        shaken = self.sealed(Who("nobody", "credential"))
        plain = Resp(self.unix)
        self.addCleanup(plain.close)
        plain.link.sendall(b"*1\r\n")
        self.assertEqual(self.sealed(self.ops).said, "+PONG")
        for link in *silent, *halves, shaken.link, plain.link:
            link.settimeout(PATIENCE)
            self.assertEqual(link.recv(1), b"")
        self.assertIn("took too long", self.log.read_text())


class Reload(Agent):
    def test_credentials(self):
        token = self.sealed(Who("taker", {"take"}))
        self.assertEqual(token.ask("AUTH", TAKE), "+OK")
        ops = self.sealed(self.ops)
        made = self.folder / "credentials.new"
        made.write_text("read,take,edit,root cert ops\n")
        made.chmod(0o600)
        made.rename(self.credentials)
        until("the taker has gone", lambda: is_closed_over(token))
        self.assertEqual(ops.ask("PING"), "+PONG")
        made.write_text(f"take token taker {TAKE}\n")
        made.chmod(0o600)
        made.rename(self.credentials)
        until("ops has gone", lambda: is_closed_over(ops))

    def test_certificates(self):
        ops = self.sealed(self.ops)
        self.trust("other")
        until("ops has gone", lambda: is_closed_over(ops))
        self.assertIsNone(self.sealed(self.ops))
        self.assertEqual(self.ask(Who("health", set()), "GET", "/healthz",
                                  port=self.port("http"))[0], 200)
        self.trust("good")
        until("ops is let in", lambda: self.sealed(self.ops))
        self.cert.write_text("no certificate\n")
        until("a line in the log", lambda: "aren't reloaded" in
              self.log.read_text())
        self.assertEqual(self.sealed(self.ops).said, "+PONG")
        # Logged once: the file is read again only when it has changed.
        for round in range(1, 3):
            before = self.log.read_text().count("credentials of")
            self.credentials.write_text(self.credentials.read_text() + "\n")
            until("another look", lambda: self.log.read_text().count(
                "credentials of") > before)
        self.assertEqual(self.log.read_text().count("aren't reloaded"), 1)

    def test_a_handshake_meanwhile(self):
        """A handshake that began with the old authority ends with the new one.
        """
        said, told = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.ops.context(self.certificates.ca).wrap_bio(
            told, said, server_hostname="localhost")
        link = socket.create_connection(("127.0.0.1", self.port("resp")))
        self.addCleanup(link.close)
        link.settimeout(PATIENCE)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                link.sendall(said.read())
                told.write(link.recv(65536))
        before = self.log.read_text().count("reloaded the certificate")
        self.trust("other")
        until("other files", lambda: self.log.read_text().count(
            "reloaded the certificate") > before)
        client.write(Resp.line("PING"))
        try:
            link.sendall(said.read())
            while part := link.recv(65536):
                told.write(part)
        except ConnectionError:
            pass
        told.write_eof()
        with self.assertRaises(ssl.SSLError):
            self.assertEqual(client.read(), "nothing")


def is_closed_over(link):
    link.link.settimeout(0.01)
    try:
        return link.link.recv(1) == b""
    except TimeoutError:
        return False
    except (ssl.SSLError, ConnectionError):
        return True


class Start(Case):
    def fails(self, pattern, *options):
        done = subprocess.run(
            [WEIR, "agent", "--roots", "127.0.0.1:9", *map(str, options)],
            text=True, capture_output=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_all_addresses(self):
        """:PORT, of each protocol, is reached by IPv4 and by IPv6."""
        ports, log = self.folder / "every", self.folder / "every.log"
        with open(log, "w") as errors:
            process = subprocess.Popen(
                [WEIR, "agent", "--roots", "127.0.0.1:9", "--http", ":0",
                 "--resp", ":0", "--rls", ":0", "--port-file", str(ports),
                 "--listener-tls-cert", str(self.cert), "--listener-tls-key",
                 str(self.key), "--credentials", str(self.credentials)],
                stderr=errors)
        until("the places", lambda: ports.exists() or
              process.poll() is not None)
        self.assertIsNone(process.poll(), log.read_text())
        places = dict(line.split("=") for line in ports.read_text().split())
        self.assertEqual(set(places), {"http", "resp", "rls"})
        for place in places.values():
            self.assertRegex(place, "^:[0-9]+$")
            for host in ("127.0.0.1", "::1"):
                with socket.create_connection((host, int(place[1:])),
                                              PATIENCE):
                    pass
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0, log.read_text())

    def test_what_is_missing_is_named(self):
        pair = ["--listener-tls-cert", self.cert,
                "--listener-tls-key", self.key]
        named = ["--credentials", self.credentials]
        trust = ["--listener-tls-ca", self.certificates.ca]
        for door in ("--http", "--resp", "--rls"):
            for place in ([door, "0.0.0.0:0"], [door, "[::]:0"],
                          [door, ":0"]):
                self.fails(f"{door} .*--listener-tls-cert, --listener-tls-key "
                           "and --credentials are missing", *place)
                self.fails("--listener-tls-cert and --listener-tls-key are "
                           "missing", *place, *named)
                self.fails("--credentials is missing", *place, *pair)
            self.fails(f"{door} :0: other hosts can reach it, at all addresses "
                       ".* Or listen on loopback 127.0.0.1:0, or insist with "
                       "--insecure", door, ":0")
        self.fails("--listener-tls-key is missing", *pair[:2])
        self.fails("--listener-tls-cert is missing", *pair[2:])
        self.fails("--listener-tls-cert and --listener-tls-key are missing",
                   *trust)
        self.fails("--credentials, their rights, is", *pair, *trust)
        none = self.folder / "none"
        self.fails("none.*No such file", *pair[:2], "--listener-tls-key", none)


if __name__ == "__main__":
    unittest.main(verbosity=2)
