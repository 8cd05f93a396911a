#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_security.py - unauthenticated peers at the listeners of a real root:
every method of every listener with every wrong credential; the root's answers
and counts, and the facts that it must not reveal.

The routes come from the root itself (GET /v1), the methods of gRPC from
weir.proto: a new one can't be forgotten here. HTTP requests are made with
Python's client, gRPC calls with curl."""

import hashlib
import http.client
import itertools
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from grpc_call import CALL, LINK, Call
from identities import (EDIT, READ, TAKE, WEIR, Certificates, Who, bearer,
                        everybody, run, yesterday)
from patience import PATIENCE, until, until_equal

SOURCE = Path(os.environ["WEIR_SOURCE"])
QUOTA = "a-name-that-nobody-may-see"

UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED = 16, 7, 12
ASKERS = 4  # threads that ask at once
METHODS = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"]
ALERT = b"\x15\x03"
BODY = 64 << 20  # bytes of the largest body that a root reads


# ---- Between ----

class Relay:
    """Relays connections to a port and keeps a copy of the bytes."""

    def __init__(self, port):
        self.port, self.bytes, self.sockets = port, bytearray(), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            self.sockets += near, far
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.hand_on, args=(one, other),
                                 daemon=True).start()

    def hand_on(self, one, other):
        try:
            while True:
                part = one.recv(65536)
                if not part:
                    break
                self.bytes += part
                other.sendall(part)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        for one in [self.listener, *self.sockets]:
            one.close()


def rss(pid):
    """Bytes of resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) << 10


def is_closed(connection):
    return select.select([connection.sock], [], [], 0)[0] and \
        not connection.sock.recv(1)


# ---- The root ----

class Root:
    def __init__(self, folder, *options, listen="127.0.0.1:0",
                 http_at="127.0.0.1:0"):
        self.folder = folder
        self.log = folder / "log"
        ports = folder / "ports"
        ports.unlink(missing_ok=True)
        store = f"sqlite:{folder}/q.db"
        if not (folder / "q.db").exists():
            run(WEIR, "store", "init", store)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [WEIR, "serve", "--store", store, "--listen", listen,
                 "--http", http_at, "--port-file", str(ports),
                 *map(str, options)], stderr=log)
        until("the port file", lambda: ports.exists() or
              self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError("weir serve ended: " + self.logged())
        said = dict(line.split("=") for line in ports.read_text().split())
        self.grpc = int(said["listen"].rpartition(":")[2])
        self.http = int(said["http"].rpartition(":")[2])

    def logged(self):
        return self.log.read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


class Case(unittest.TestCase):
    """A root over TLS with credentials, and certificates of all kinds."""

    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="weir-security-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.certificates = Certificates(cls.shared)
        cls.everybody = everybody(cls.certificates)
        cls.ops = Who("ops", {"read", "edit", "take", "root"},
                      cls.certificates.good("client", "ops"))

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-security-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cert = self.folder / "root.pem"
        self.key = self.folder / "root.key"
        self.credentials = self.folder / "credentials"
        self.trusted = self.folder / "trusted.pem"
        self.show_certificate(self.certificates.server)
        self.trust("good")
        self.write_credentials()
        self.root = self.start("--tls-cert", self.cert, "--tls-key", self.key,
                               "--tls-ca", self.trusted,
                               "--credentials", self.credentials)

    def start(self, *options, **places):
        root = Root(self.folder, *options, **places)

        def end():
            if root.process.poll() is None:
                root.process.kill()
                root.process.wait()
        self.addCleanup(end)
        return root

    def show_certificate(self, files):
        for path, suffix in ((self.key, "key"), (self.cert, "pem")):
            made = path.with_suffix(".new")
            shutil.copy(f"{files}.{suffix}", made)
            made.rename(path)

    def trust(self, *authorities):
        """Sets the authorities that the root trusts."""
        made = self.folder / "trusted.new"
        made.write_text("".join((self.shared / name / "ca.pem").read_text()
                                for name in authorities))
        made.rename(self.trusted)

    def write_credentials(self, edit="edit", read="read"):
        digest = hashlib.sha256(EDIT.encode()).hexdigest()
        text = ("read,take,edit,root cert ops\n"
                "take cert taker-*\n"
                f"take token taker {TAKE}\n")
        if edit:
            text += f"{edit} token editor sha256:{digest}\n"
        if read:
            text += f"{read} token reader {READ}\n"
        made = self.folder / "credentials.new"
        made.write_text(text)
        made.chmod(0o600)
        made.rename(self.credentials)

    def connection(self, who, port=None):
        """A connection; a request makes it first, or again after its end."""
        return http.client.HTTPSConnection(
            "localhost", port or self.root.http, timeout=PATIENCE,
            context=who.context(self.certificates.ca))

    def ask_on(self, connection, who, method, path, body=None):
        """(status, headers, text); None: no answer, because TLS failed."""
        headers = {"Content-Type": "application/json"}
        if who.header is not None:
            headers["Authorization"] = who.header
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        except (ssl.SSLError, ConnectionError, http.client.BadStatusLine):
            connection.close()
            return None

    def ask(self, who, method, path, body=None, port=None):
        """ask_on() on a connection of its own."""
        connection = self.connection(who, port)
        try:
            return self.ask_on(connection, who, method, path, body)
        finally:
            connection.close()

    def call(self, who, path, message=b"", port=None):
        """(status of gRPC, its message), or None when TLS failed. Without
        'message' only the headers are sent, because for curl an answer before
        it has sent all is an error."""
        body = struct.pack(">BI", 0, len(message)) + message
        data = ["--data-binary", "@-"] if message else ["-X", "POST"]
        identity = ["--cert", f"{who.cert}.pem", "--key", f"{who.cert}.key"] \
            if who.cert else []
        if who.newest:
            identity += ["--tls-max", "1.2"]
        if who.header is not None:
            # curl omits an empty header unless it ends in ';'
            identity += ["-H", f"authorization: {who.header}" if who.header
                         else "authorization;"]
        done = subprocess.run(
            ["curl", "-s", "-i", "--http2", "-m", str(PATIENCE), "--cacert",
             str(self.certificates.ca), *identity, "-H",
             "content-type: application/grpc", "-H", "te: trailers",
             *data, f"https://localhost:{port or self.root.grpc}{path}"],
            input=body, capture_output=True, timeout=2 * PATIENCE)
        said = done.stdout.decode(errors="replace")
        status = re.search(r"(?i)grpc-status: (\d+)", said)
        why = re.search(r"(?mi)\bgrpc-message: (.*?)\r?$", said)
        if not status:
            self.assertNotIn("HTTP/2 200", said, who.name)
            self.assertNotIn(done.returncode, (0, 28), who.name)
            return None
        return int(status[1]), why[1] if why else ""

    def begin(self, who, path, port=None):
        """Begins a call: the server has read its headers, and no message."""
        call = Call(who, self.certificates.ca, port or self.root.grpc, path)
        self.addCleanup(call.socket.close)
        until("the headers", lambda: call.look() or call.begun)
        return call

    def metrics(self):
        _, _, page = self.ask(self.ops, "GET", "/metrics")
        return dict(line.rsplit(" ", 1) for line in page.splitlines()
                    if line and not line.startswith("#"))

    def refused(self):
        """(listener, reason) -> number of refusals."""
        pattern = (r'weir_refused_credentials_total'
                   r'\{listener="(\w+)",reason="(\w+)"\}')
        return {found.groups(): int(value)
                for name, value in self.metrics().items()
                if (found := re.match(pattern, name))}

    def assert_counted(self, before, **expected):
        """Checks the refusals since 'before': grpc_tls=3 and so on."""
        wanted = dict(before)
        for key, count in expected.items():
            wanted[tuple(key.split("_"))] += count
        # The root sees the end of a failed handshake a turn later.
        until_equal("the figures", wanted, self.refused)

    def assert_untouched(self):
        """The refused requests have changed nothing."""
        status = json.loads(self.ask(self.ops, "GET", "/v1/status")[2])
        listed = json.loads(self.ask(self.ops, "GET", "/v1/quotas")[2])
        self.assertEqual([q["name"] for q in listed["quotas"]], [QUOTA])
        self.assertEqual(status["limiters"], [])
        self.assertEqual(self.metrics()["weir_epoch"], "1")

    def add_quota(self):
        status, _, text = self.ask(self.ops, "PUT", f"/v1/quotas/{QUOTA}",
                                   '{"limit": "5/s"}')
        self.assertEqual(status, 201, text)


# ---- Every method with every credential ----

def call_request(method, path, body=b""):
    """A weir.v1.CallRequest."""
    parts = [(1, method.encode()), (2, path.encode()), (3, body)]
    return b"".join(bytes([number << 3 | 2, len(part)]) + part
                    for number, part in parts if part)


BODIES = {"PUT": '{"limit": "7/s"}', "PATCH": '{"limit": "7/s"}',
          "POST": '{"quotas": []}'}


class Walk(Case):
    def routes(self):
        status, _, text = self.ask(self.ops, "GET", "/v1")
        self.assertEqual(status, 200)
        routes = json.loads(text)["routes"]
        self.assertGreaterEqual(len(routes), 12)
        for route in routes:
            opened = route["path"] in ("/healthz", "/readyz")
            wanted = "" if opened else \
                "read" if route["method"] == "GET" else "edit"
            self.assertEqual(route["role"], wanted, route)
        return routes

    def requests(self):
        """(method, path, role) of all routes and of some unknown ones."""
        known = {("GET", "/"): ""}  # the page, without data
        for route in self.routes():
            path = route["path"].replace("NAME", QUOTA)
            known[route["method"], path] = route["role"]
        paths = dict.fromkeys(path for _, path in known)
        for path in [*paths, "/v2", "/v1/quotas/", "/healthz/x"]:
            for method in METHODS:
                reads = method in ("GET", "HEAD")
                usual = "read" if reads else "edit"
                role = known.get(("GET" if reads else method, path), usual)
                yield method, path, role

    def check_refused(self, who, role, answer, where):
        """Checks the answer; returns the reason that the root counts."""
        if who.result == "tls":
            self.assertIsNone(answer, where)
            return "tls"
        self.assertIsNotNone(answer, where)
        status, headers, text = answer
        problem = "application/problem+json"
        if who.result == "credential":
            self.assertEqual(status, 401, where)
            self.assertEqual(headers["WWW-Authenticate"], "Bearer", where)
            error = "WEIR_ECREDENTIAL"
        else:
            self.assertEqual(status, 403, where)
            error = "WEIR_EDENIED"
        self.assertEqual(headers["Content-Type"], problem, where)
        if text:  # HEAD has none
            said = json.loads(text)
            self.assertEqual(said["error"], error, where)
            self.assertGreater(len(said["detail"]), 20, where)
            self.assertRegex(said["detail"], f"'{role}'" if status == 403
                             else "credential|token", where)
        for secret in (QUOTA, EDIT, READ, TAKE):
            self.assertNotIn(secret, text, where)
        return "credential" if status == 401 else "role"

    def pairs(self, requests):
        """Yields (client, requests). After a failed handshake the root reads no
        request, so these clients make a few. If there are many requests, each
        is made without a credential, with two wrong ones or more, and by every
        client with a right one; each wrong credential makes a fifth of them."""
        step = 5 if len(requests) > 50 else 1
        for i, who in enumerate(self.everybody):
            if who.result == "tls":
                yield who, requests[::len(requests) // 2]
            elif who.result == "credential" and i > 0:
                yield who, requests[i % step::step]
            else:
                yield who, requests

    def check_requests(self, who, requests):
        """Makes them on one connection, as long as the root keeps it; returns
        the number of refusals by reason, and of requests that need no role."""
        counts = Counter()
        connection = self.connection(who)
        for method, path, role in requests:
            where = f"{method} {path} with {who.name}"
            if isinstance(who.result, set) and role in who.result:
                continue  # allowed
            answer = self.ask_on(connection, who, method, path,
                                 BODIES.get(method))
            if role == "" and who.result != "tls":
                self.assertEqual(answer[0], 200, where)
                counts["open"] += 1
                continue
            counts[self.check_refused(who, role, answer, where)] += 1
        connection.close()
        return counts

    def test_http(self):
        self.add_quota()
        before = self.refused()
        asked = Counter()
        pairs = list(self.pairs(list(self.requests())))
        with ThreadPoolExecutor(ASKERS) as pool:
            for counts in pool.map(lambda pair: self.check_requests(*pair),
                                   pairs):
                asked += counts
        self.assertGreater(asked["open"], 0)
        self.assert_counted(before, http_tls=asked["tls"],
                            http_credential=asked["credential"],
                            http_role=asked["role"])
        self.assert_untouched()
        print(f"HTTP: {dict(asked)}", file=sys.stderr)

    def test_methods_that_nothing_answers(self):
        self.add_quota()
        nobody = Who("nothing", "credential")
        for method in ("OPTIONS", "TRACE", "FOO", "get"):
            for who in (nobody, self.ops):
                answer = self.ask(who, method, "/v1/quotas")
                self.assertEqual(answer[0], 501, method)
                self.assertEqual(answer[1]["Content-Type"],
                                 "application/problem+json")
                self.assertNotIn(QUOTA, answer[2])
        # The answer to a CONNECT ends with the connection.
        context = nobody.context(self.certificates.ca)
        with socket.create_connection(("127.0.0.1", self.root.http)) as one:
            with context.wrap_socket(one, server_hostname="localhost") as s:
                s.settimeout(PATIENCE)
                s.sendall(b"CONNECT localhost:1 HTTP/1.1\r\n"
                          b"Host: localhost:1\r\n\r\n")
                self.assertIn(b" 501 ", s.recv(4096))
        self.assert_untouched()

    def methods_of_grpc(self):
        text = (SOURCE / "proto" / "weir.proto").read_text()
        package = re.search(r"(?m)^package ([\w.]+);", text)[1]
        found = []
        for service, body in re.findall(r"(?ms)^service (\w+) \{(.*?)^\}",
                                        text):
            found += [f"/{package}.{service}/{rpc}" for rpc in
                      re.findall(r"\brpc (\w+)\(", body)]
        self.assertIn("/weir.v1.Root/Link", found)
        return found

    def grpc_requests(self):
        """(path, message, role); role None: an unknown method, for clients
        with a credential."""
        for path in self.methods_of_grpc():
            if not path.endswith("/Call"):
                yield path, b"", "take"
                continue
            # Every call needs a credential here.
            yield path, call_request("GET", "/v1/quotas"), "read"
            yield path, call_request("PUT", f"/v1/quotas/{QUOTA}",
                                     b'{"limit": "9/s"}'), "edit"
            yield path, call_request("DELETE", f"/v1/quotas/{QUOTA}"), "edit"
        yield "/weir.v1.Root/Nothing", b"", None
        yield "/", b"", None

    def check_call(self, who, path, message, role):
        """Makes a call; returns the reason of its refusal, as the root counts
        it, or None."""
        where = f"{path} {message} with {who.name}"
        known = isinstance(who.result, set)
        if known and role in who.result:
            return None  # allowed
        answer = self.call(who, path, message if known else b"")
        if who.result == "tls":
            self.assertIsNone(answer, where)
            return "tls"
        self.assertIsNotNone(answer, where)
        status, why = answer
        if who.result == "credential":
            self.assertEqual(status, UNAUTHENTICATED, where)
            self.assertRegex(why, "credential|token", where)
            return "credential"
        if role is None:
            self.assertEqual(status, UNIMPLEMENTED, where)
            return None
        self.assertEqual(status, PERMISSION_DENIED, where)
        self.assertIn(f"'{role}'", why, where)
        return "role"

    def test_grpc(self):
        self.add_quota()
        before = self.refused()
        asked = Counter()
        calls = [(who, *request) for who, requests in
                 self.pairs(list(self.grpc_requests()))
                 for request in requests]
        with ThreadPoolExecutor(ASKERS) as pool:
            asked.update(pool.map(lambda call: self.check_call(*call), calls))
        self.assert_counted(before, grpc_tls=asked["tls"],
                            grpc_credential=asked["credential"],
                            grpc_role=asked["role"])
        self.assert_untouched()
        print(f"gRPC: {dict(asked)}", file=sys.stderr)

    def test_who_may_is_let_in(self):
        self.add_quota()
        for who in self.everybody:
            if not isinstance(who.result, set):
                continue
            if "read" in who.result:
                self.assertEqual(self.ask(who, "GET", "/v1/quotas")[0], 200)
            if "take" in who.result:
                self.assertEqual(self.call(who, "/weir.v1.Root/Link")[0] in
                                 (UNAUTHENTICATED, PERMISSION_DENIED), False)
            if "edit" in who.result:
                self.assertEqual(self.ask(
                    who, "PATCH", f"/v1/quotas/{QUOTA}",
                    '{"limit": "6/s"}')[0], 200)
        log = self.ask(self.ops, "GET", "/v1/log")[2]
        self.assertEqual(re.findall(r'"identity": "(.*?)"', log),
                         ["editor", "ops"])

    def test_no_body_is_kept_of_a_peer_without_a_role(self):
        """The root answers the head; the body stays in the peer's socket."""
        reader = Who("reader", None, header=bearer(READ))
        before, links = rss(self.root.process.pid), []
        for who, status in [(Who("nothing", None), 401), (reader, 403)] * 30:
            link = self.connection(who)
            self.addCleanup(link.close)
            link.putrequest("POST", "/v1/quotas:import")
            link.putheader("Content-Type", "application/json")
            link.putheader("Content-Length", str(BODY))
            if who.header:
                link.putheader("Authorization", who.header)
            link.endheaders()
            links.append((link, status))
        for link, status in links:
            # Nothing of the body has been sent yet.
            answer = link.getresponse()
            self.assertEqual((answer.status, answer.headers["Connection"]),
                             (status, "close"))
            self.assertEqual(json.loads(answer.read())["status"], status)
        self.assertLess(rss(self.root.process.pid) - before, 64 << 20)

    def test_the_sender_of_a_body_without_a_role_is_held_up(self):
        """On a plain socket, where a peer sends no more than the root reads."""
        root = self.start("--credentials", self.credentials)
        before, sent = rss(root.process.pid), 0
        with socket.create_connection(("127.0.0.1", root.http)) as link:
            link.settimeout(PATIENCE)
            link.sendall(b"POST /v1/quotas:import HTTP/1.1\r\n"
                         b"Host: localhost\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % BODY)
            with suppress(ConnectionError):  # the root ends it
                while sent < BODY:
                    sent += link.send(bytes(1 << 16))
        # Both ends' sockets buffer a few MiB, and the root discards one MiB.
        self.assertLess(sent, BODY // 2)
        self.assertLess(rss(root.process.pid) - before, 16 << 20)

    def test_pages_of_browsers(self):
        """A browser presents its certificate for any page's request."""
        for origin, wanted in (("https://evil.example", 403),
                               ("null", 403),
                               ("https://localhost", 403),
                               (f"https://localhost:{self.root.http}", 200)):
            connection = http.client.HTTPSConnection(
                "localhost", self.root.http, timeout=PATIENCE,
                context=self.ops.context(self.certificates.ca))
            connection.request("GET", "/v1/quotas",
                               headers={"Origin": origin})
            self.assertEqual(connection.getresponse().status, wanted, origin)
            connection.close()


# ---- Bytes on the wire ----

class Wire(Case):
    def plain(self, port, data):
        """All bytes that a port answers to plain text, until it closes."""
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(PATIENCE)
            said = b""
            try:
                client.sendall(data)
                while True:
                    part = client.recv(4096)
                    if not part:
                        break
                    said += part
            except ConnectionError:
                pass
            return said

    def test_plain_text_gets_an_alert(self):
        before = self.refused()
        texts = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
                 f"GET /v1/quotas HTTP/1.1\r\nHost: localhost\r\n"
                 f"Authorization: Bearer {EDIT}\r\n\r\n".encode(),
                 b"\x16\x03\x01\xff\xff" + bytes(70000),
                 bytes(100000)]
        for port, data in itertools.product(
                (self.root.grpc, self.root.http), texts):
            said = self.plain(port, data)
            self.assertLessEqual(len(said), 7, said)
            self.assertTrue(said == b"" or said.startswith(ALERT), said)
        self.assert_counted(before, grpc_tls=len(texts),
                            http_tls=len(texts))

    def test_nothing_is_to_be_read_on_the_way(self):
        relays = {}
        for port in (self.root.grpc, self.root.http):
            relays[port] = Relay(port)
            self.addCleanup(relays[port].close)
        editor = Who("editor", None, header=bearer(EDIT))
        grpc, web = (relays[port].own for port in
                     (self.root.grpc, self.root.http))
        done = self.ask(editor, "PUT", f"/v1/quotas/{QUOTA}",
                        '{"limit": "5/s", "description": "not for you"}',
                        port=web)
        self.assertEqual(done[0], 201)
        self.assertIn(QUOTA, self.ask(self.ops, "GET", "/v1/quotas",
                                      port=web)[2])
        done = self.call(editor, "/weir.v1.Root/Call",
                         call_request("GET", f"/v1/quotas/{QUOTA}"),
                         port=grpc)
        self.assertEqual(done[0], 0)
        self.use_a_limiter(grpc)
        for relay in relays.values():
            self.assertGreater(len(relay.bytes), 2000)
            for text in (QUOTA, EDIT, "not for you", "Bearer", "HTTP/1.1",
                         "PRI * HTTP/2", "weir.v1", "application/",
                         "grpc-status", "problem", "quotas", "a-limiter"):
                self.assertNotIn(text.encode(), bytes(relay.bytes), text)

    def use_a_limiter(self, port):
        """Takes one unit, over a new link."""
        done = subprocess.run(
            [WEIR, "take", QUOTA, "--roots", f"localhost:{port}", "--tls-ca",
             str(self.certificates.ca), "--tls-cert", f"{self.ops.cert}.pem",
             "--tls-key", f"{self.ops.cert}.key"], text=True,
            capture_output=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_strangers_who_say_nothing(self):
        """Their connections are ended, and other clients are served meanwhile.
        """
        before = self.refused()
        silent = {}
        for name, port in (("grpc", self.root.grpc),
                           ("http", self.root.http)):
            # 600 is more than half of the HTTP listener's connections.
            for i in range(600 if name == "http" else 20):
                silent[socket.create_connection(("127.0.0.1", port))] = name
        context = ssl.create_default_context(cafile=self.certificates.ca)
        context.set_alpn_protocols(["h2"])
        shaken = [context.wrap_socket(
            socket.create_connection(("127.0.0.1", self.root.grpc)),
            server_hostname="localhost") for _ in range(5)]
        self.add_quota()
        for stranger in [*silent, *shaken]:
            stranger.settimeout(PATIENCE)
            try:
                while stranger.recv(4096):
                    pass
            except (ConnectionError, ssl.SSLError):
                pass
            stranger.close()
        self.assert_counted(before, grpc_tls=20, http_tls=600,
                            grpc_credential=5)


# ---- Reload ----

class Reload(Case):
    def reload(self, **roles):
        before = self.root.logged().count("reloaded")
        self.write_credentials(**roles)
        until("the credentials", lambda:
              self.root.logged().count("reloaded") > before)

    def status(self, who, method="GET", path="/v1/status"):
        answer = self.ask(who, method, path)
        return answer[0] if answer else None

    def serial(self):
        """The certificate's number; None: a reload has ended the handshake."""
        context = ssl.create_default_context(cafile=self.certificates.ca)
        with suppress(ssl.SSLEOFError, ConnectionError), \
                socket.create_connection(("127.0.0.1", self.root.http)) as s, \
                context.wrap_socket(s, server_hostname="localhost") as sealed:
            return sealed.getpeercert()["serialNumber"]

    def test_token_revoked(self):
        reader = Who("reader", None, header=bearer(READ))
        taker = Who("taker", None, header=bearer(TAKE))
        editor = Who("editor", None, header=bearer(EDIT))
        self.assertEqual(self.status(reader), 200)
        staying = self.begin(taker, LINK)
        going = self.begin(self.ops, LINK)
        self.assertFalse(staying.ended or going.ended)

        self.write_credentials(edit="read", read=None)
        text = self.credentials.read_text().replace("cert ops", "cert ann")
        self.credentials.write_text(text + "read token newcomer "
                                    "the-token-of-a-newcomer\n")
        until("the reload", lambda: self.status(reader) == 401)
        self.assertEqual(self.status(editor), 200)
        self.assertEqual(self.status(editor, "DELETE", "/v1/quotas/x"), 403)
        newcomer = Who("newcomer", None,
                       header=bearer("the-token-of-a-newcomer"))
        until("the newcomer", lambda: self.status(newcomer) == 200)
        self.assertEqual(self.status(self.ops), 401)
        until("the end of the link without its role", going.look)
        self.assertFalse(staying.look())
        self.assertIn("reloaded 5 credentials", self.root.logged())

    def test_a_call_whose_request_comes_after_the_reload(self):
        """The new credentials apply to the call: with a valid one it is
        answered; without one, or without the role, it changes nothing."""
        editor = Who("editor", None, header=bearer(EDIT))
        staying = self.begin(self.ops, CALL)
        for edit in ("read", None):
            going = self.begin(editor, CALL)
            self.reload(edit=edit)
            going.send(call_request("PUT", f"/v1/quotas/by-{edit}",
                                    b'{"limit": "7/s"}'))
            until("the end of the call", going.look)
            self.assertEqual(going.replies, b"")
            self.reload()
        staying.send(call_request("PUT", f"/v1/quotas/{QUOTA}",
                                  b'{"limit": "7/s"}'))
        until("the end of the call", staying.look)
        self.assertIn(QUOTA.encode(), staying.replies)
        self.assert_untouched()

    def test_unsound_credentials_change_nothing(self):
        """The root reads the file each second; later texts don't wait for it,
        they send SIGHUP."""
        reader = Who("reader", None, header=bearer(READ))
        for text, complaint in (
                ("", "there is no credential"),
                ("read token\n", "a line is ROLES"),
                (f"read token reader {READ[:10]}\n", "16 to 512"),
                (f"read token a {TAKE}\nread token b {TAKE}\n",
                 "already"),
                (None, "No such file")):
            if text is None:
                self.credentials.unlink()
            else:
                self.credentials.write_text(text)
            if text != "":
                self.root.process.send_signal(signal.SIGHUP)
            until(complaint, lambda: re.search(
                "aren't reloaded.*" + complaint, self.root.logged()))
            self.assertEqual(self.status(reader), 200)
        for secret in (TAKE, READ[:10]):
            self.assertNotIn(secret, self.root.logged())

    def test_certificate_replaced(self):
        first = self.serial()
        link = self.begin(self.ops, LINK)
        fresh = self.folder / "fresh"
        fresh.mkdir()
        for name in ("ca.pem", "ca.key"):
            shutil.copy(self.shared / "good" / name, fresh)
        run(WEIR, "cert", "server", "--days", "5", fresh, "localhost")
        self.show_certificate(fresh / "localhost")
        until("a new certificate", lambda: self.serial() not in (None, first))
        self.assertFalse(link.look())
        self.assertIn("reloaded the certificate", self.root.logged())
        until("a warning", lambda: re.search(
            r"warning: the certificate .* ends in [45] days",
            self.root.logged()))
        left = float(self.metrics()["weir_certificate_expires_seconds"])
        self.assertTrue(4 * 86400 < left <= 5 * 86400, left)

        second = self.serial()
        half = self.cert.read_bytes()[:200]
        self.cert.write_bytes(half)
        until("the complaint", lambda: "certificates aren't reloaded" in
              self.root.logged())
        self.assertEqual(self.serial(), second)

    def test_an_unsound_certificate_is_read_once(self):
        made = self.cert.with_suffix(".new")
        made.write_text("no certificate\n")
        made.rename(self.cert)
        complaint = "certificates aren't reloaded"
        until("the complaint", lambda: complaint in self.root.logged())
        for _ in range(2):  # each after another look at the certificates
            self.reload()
        self.assertEqual(self.root.logged().count(complaint), 1)

    def keep_alive(self, who):
        """A connection of HTTP that was accepted and stays open."""
        connection = http.client.HTTPSConnection(
            "localhost", self.root.http, timeout=PATIENCE,
            context=who.context(self.certificates.ca))
        self.addCleanup(connection.close)
        return self.goes_on(connection)

    def goes_on(self, connection):
        connection.request("GET", "/v1/status")
        self.assertTrue(json.load(connection.getresponse())["ready"])
        return connection

    def test_a_handshake_ends_with_the_files_it_goes_by(self):
        for port in self.root.http, self.root.grpc:
            self.enterContext(socket.create_connection(
                ("127.0.0.1", port))).sendall(b"\x16\x03\x01")
        self.trust("good", "other")
        until("both have ended", lambda: self.root.logged().count(
            "by files that have been read anew") == 2)

    def test_authority_withdrawn(self):
        self.trust("good", "other")
        stranger = Who("the other ops", None, self.shared / "other" / "ops")
        until("the reload", lambda: self.status(stranger) == 200)
        staying, going = (self.begin(who, LINK)
                          for who in (self.ops, stranger))
        stays, goes = self.keep_alive(self.ops), self.keep_alive(stranger)
        before = self.refused()

        self.trust("good")
        until("the end of the link", going.look)
        until("the end of the connection", lambda: is_closed(goes))
        self.assert_counted(before, grpc_tls=1, http_tls=1)
        self.assertIn("no authority that is trusted here", self.root.logged())
        self.assertFalse(staying.look())
        self.goes_on(stays)

    def test_certificate_ends(self):
        """A link and a connection end with their certificate."""
        goes, seconds = None, 2
        while not goes:
            brief = Who("ops for a moment", None, self.certificates.by_openssl(
                self.folder / f"brief-{seconds}", 1, self.shared / "good",
                yesterday(seconds)))
            try:
                going = self.begin(brief, LINK)
                goes = self.keep_alive(brief)
            except (ssl.SSLError, ConnectionError):
                seconds *= 2  # the certificate had ended: a slow machine
        until("the end of the link", going.look)
        until("the end of the connection", lambda: is_closed(goes))
        self.assertIn("or one of its chain, has", self.root.logged())
        self.assertEqual(self.status(self.ops), 200)

    def test_hup_reads_all_again(self):
        self.root.process.send_signal(signal.SIGHUP)
        until("the log", lambda: "reloaded 5 credentials" in
              self.root.logged() and "reloaded the certificate" in
              self.root.logged())
        self.assertEqual(self.status(self.ops), 200)
        self.assertEqual(self.root.stop(), 0)


# ---- Start ----

class Start(Case):
    def setUp(self):
        super().setUp()
        self.root.stop()

    def fails(self, pattern, *options):
        done = subprocess.run(
            [WEIR, "serve", "--store", f"sqlite:{self.folder}/q.db",
             *map(str, options)], text=True, capture_output=True,
            timeout=PATIENCE)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertTrue(done.stderr.startswith("weir: "), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_what_is_missing_is_named(self):
        pair = ["--tls-cert", self.cert, "--tls-key", self.key]
        named = ["--credentials", self.credentials]
        trust = ["--tls-ca", self.certificates.ca]
        public = ["--listen", "0.0.0.0:0", "--http", "off"]
        web = ["--http", "[::]:0", "--listen", "127.0.0.1:0"]
        every = ["--listen", ":0", "--http", "off"]
        every_web = ["--http", ":0", "--listen", "127.0.0.1:0"]
        for place in (public, web, every, every_web):
            self.fails("--tls-cert, --tls-key and --credentials are", *place)
            self.fails("--tls-cert and --tls-key are", *place, *named)
            self.fails("--credentials is missing", *place, *pair)
        for place in (every, every_web):
            self.fails(f"{place[0]} :0: other hosts can reach it, at all "
                       "addresses .* Or listen on loopback 127.0.0.1:0, or "
                       "insist with --insecure", *place)
        self.fails("--tls-key is missing", *pair[:2])
        self.fails("--tls-cert is missing", *pair[2:])
        self.fails("--tls-cert and --tls-key are missing", *trust)
        self.fails("--credentials, their rights, is", *pair, *trust)

    def test_bad_files_are_named(self):
        pair = ["--tls-cert", self.cert, "--tls-key", self.key]
        other = f"{self.ops.cert}.key"
        none = self.folder / "none"
        self.fails("none.*No such file", *pair[:2], "--tls-key", none)
        self.fails(re.escape(other), *pair[:2], "--tls-key", other)
        self.fails("none.*No such file", *pair, "--credentials", none)
        self.credentials.write_text("edit token\n")
        self.fails("credentials:1: a line is", *pair, "--credentials",
                   self.credentials)
        self.write_credentials()
        self.credentials.chmod(0o644)
        self.fails("chmod 600", *pair, "--credentials", self.credentials)

    def test_an_open_address_with_all_that(self):
        root = self.start("--tls-cert", self.cert, "--tls-key", self.key,
                          "--tls-ca", self.certificates.ca, "--credentials",
                          self.credentials, listen="0.0.0.0:0",
                          http_at="0.0.0.0:0")
        self.assertNotIn("insecure", root.logged())
        self.assertEqual(self.ask(self.ops, "GET", "/v1/status",
                                  port=root.http)[0], 200)
        self.assertEqual(root.stop(), 0)

    def test_all_addresses(self):
        """:PORT is each address of IPv4 and IPv6, and a peer is known by its
        IPv4 address, not by the IPv6 address that maps it."""
        root = self.start("--tls-cert", self.cert, "--tls-key", self.key,
                          "--tls-ca", self.certificates.ca, "--credentials",
                          self.credentials, listen=":0", http_at=":0")
        self.assertRegex(root.logged(),
                         f"limiters at :{root.grpc}, HTTP at :{root.http}")
        self.assertEqual(self.ask(self.ops, "GET", "/v1/status",
                                  port=root.http)[0], 200)
        for host in ("127.0.0.1", "::1"):
            for port in (root.grpc, root.http):
                with socket.create_connection((host, port), PATIENCE):
                    pass
        with socket.create_connection(("127.0.0.1", root.http), PATIENCE) as \
                plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            until("the refusal", lambda: "127.0.0.1" in root.logged())
        self.assertNotIn("::ffff:", root.logged())
        self.assertEqual(root.stop(), 0)

    def test_all_addresses_by_insistence(self):
        root = self.start("--insecure", listen=":0", http_at="127.0.0.1:0")
        until("a warning", lambda: "--insecure: any client that" in
              root.logged())
        with socket.create_connection(("::1", root.grpc), PATIENCE):
            pass
        self.assertEqual(root.stop(), 0)

    def test_insecure_insists(self):
        root = self.start("--insecure", listen="0.0.0.0:0",
                          http_at="127.0.0.1:0")
        until("a warning", lambda: "--insecure: any client that" in
              root.logged())
        self.assertEqual(root.stop(), 0)

    def test_credentials_count_on_loopback_too(self):
        root = self.start("--credentials", self.credentials)

        def status(header):
            connection = http.client.HTTPConnection(
                "localhost", root.http, timeout=PATIENCE)
            headers = {"Authorization": header} if header else {}
            connection.request("GET", "/v1/quotas", headers=headers)
            answered = connection.getresponse().status
            connection.close()
            return answered

        # 503 until the root has read its store.
        until_equal("the quotas", 200, lambda: status(bearer(READ)))
        for header, wanted in ((None, 401), (bearer(EDIT[:-1]), 401),
                               (bearer(TAKE), 403)):
            self.assertEqual(status(header), wanted)
        self.assertEqual(root.stop(), 0)


class Cert(unittest.TestCase):
    def test_nothing_is_overwritten(self):
        folder = Path(tempfile.mkdtemp(prefix="weir-security-"))
        self.addCleanup(shutil.rmtree, folder)
        said = run(WEIR, "cert", "ca", folder / "c")
        self.assertIn("weir cert server", said)
        said = run(WEIR, "cert", "server", folder / "c", "localhost", "::1")
        self.assertRegex(said, "(?s)'edit,take cert ops'.*weir serve --tls-c")
        said = run(WEIR, "cert", "client", folder / "c", "ops")
        self.assertIn("edit,take cert ops", said)
        files = {path: path.read_bytes()
                 for path in (folder / "c").iterdir()}
        self.assertEqual(len(files), 6)
        for path in files:
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
        for again in (["ca"], ["server", "localhost"], ["client", "ops"]):
            done = subprocess.run([WEIR, "cert", again[0], folder / "c",
                                   *again[1:]], text=True,
                                  capture_output=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 2)
            self.assertIn("nothing is overwritten", done.stderr)
        for path, was in files.items():
            self.assertEqual(path.read_bytes(), was)
        for name in ("ca", "localhost", "ops"):
            run("openssl", "verify", "-x509_strict", "-CAfile",
                folder / "c" / "ca.pem", folder / "c" / f"{name}.pem")


if __name__ == "__main__":
    unittest.main()
