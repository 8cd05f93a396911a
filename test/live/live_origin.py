#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_origin.py - requests that pages of other origins can make a browser send
to `weir serve` and `weir agent`: each route and each command, plain and over
TLS with the browser's certificate.

The listeners list their routes and commands (GET /v1, COMMAND) from the tables
that they look requests up in: a new one cannot be forgotten here or in the man
pages."""

import http.client
import json
import os
import re
import ssl
import unittest
from pathlib import Path

from live_agent import Agents, Resp
from live_agent_tls import Agent as SealedAgent
from live_agent_tls import Sealed as SealedResp
from live_cli import Root
from live_log import PREFACE, connect, frame, grpc_call, receive
from patience import PATIENCE, until

SOURCE = Path(os.environ["WEIR_SOURCE"])
QUOTA = "shop"
READS = {"GET"}

# Bodies that change something, by path; other paths need no body.
BODIES = {
    "/v1/quotas/NAME": {"limit": "7/s"},
    "/v1/quotas:import": {"quotas": [{"name": "new", "limit": "7/s"}]},
    "/v1/quotas:remove": {"names": [QUOTA]},
    "/v1/quotas:reset": {"names": [QUOTA]},
    "/v1/undo": {"epoch": 1},
    "/v1/preview": {"quota": {"name": QUOTA, "limit": "7/s"},
                    "offered": [1], "step": "1s"},
    "/v1/take": {"name": QUOTA},
    "/v1/charge": {"name": QUOTA, "weight": 1},
    "/v1/settle": {"name": QUOTA, "charged": 0, "actual": 1},
    "/v1/enter": {"name": QUOTA},
    "/v1/leave": {"permit": 1},
    "/json": {"domain": "a", "descriptors": [
        {"entries": [{"key": "a", "value": "b"}]}]},
}
# Types of a body that a form or a fetch without a preflight can send.
OF_FORMS = [None, "", "text/plain", "text/plain;charset=UTF-8",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x", "TEXT/PLAIN",
            "text/plain; application/json"]
OWN = {"Content-Type": "application/json"}


class Listener:
    """A listener of HTTP: its address, and the TLS that a browser has for it.
    """

    def __init__(self, place, context=None):
        self.port = place.rsplit(":", 1)[1]
        self.host = "localhost" if context else place.rsplit(":", 1)[0]
        self.context = context
        self.origin = f"http{'s' if context else ''}://{self.host}:{self.port}"

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, text), on a connection of its own."""
        link = http.client.HTTPSConnection(
            self.host, self.port, timeout=PATIENCE, context=self.context) \
            if self.context else \
            http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            link.request(method, path, body, headers or {})
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            link.close()

    def routes(self):
        status, _, text = self.ask("GET", "/v1")
        assert status == 200, text
        return json.loads(text)["routes"]

    def foreign(self):
        """Headers of requests that another origin's page causes: with JSON, as
        after a preflight (which a former listener of this port may have
        allowed), and with the browser's certificate or token."""
        scheme, other = ("https", "http") if self.context else \
            ("http", "https")
        place = f"{self.host}:{self.port}"
        for origin in (f"{scheme}://evil.example",
                       f"{scheme}://{self.host}:3000",
                       f"{scheme}://{self.host}",
                       f"{other}://{place}",
                       f"{scheme}://{place}.evil.example",
                       f"{scheme}://evil.example:{self.port}",
                       f"{scheme}://{place}@evil.example", "null", ""):
            yield OWN | {"Origin": origin}
        for site in ("cross-site", "same-site", "SAME-SITE", "other"):
            yield OWN | {"Sec-Fetch-Site": site}
        if self.context:
            return  # foreign names have no certificate of ours
        for host in ("evil.example", f"evil.example:{self.port}",
                     f"{place}.evil.example", f"{self.host}.evil.example:1"):
            yield OWN | {"Host": host}
            yield OWN | {"Host": host, "Origin": f"http://{host}",
                         "Sec-Fetch-Site": "same-origin"}

    def simple(self, browser):
        """Headers of requests without a preflight. 'browser': with an Origin.
        """
        for kind in OF_FORMS:
            headers = {} if kind is None else {"Content-Type": kind}
            yield headers | ({"Origin": self.origin} if browser else {})


class Routes:
    """Mixed into a test case with a root and an agent."""

    def check_problem(self, wanted, answer, where):
        status, headers, text = answer
        self.assertEqual(status, wanted, f"{where}: {text}")
        self.assertEqual(headers["Content-Type"], "application/problem+json",
                         where)
        self.assertEqual(json.loads(text)["status"], wanted, where)

    def attacks(self, listener, method, path):
        """(status that is wanted, headers)."""
        for headers in listener.foreign():
            yield 403, headers
        if method == "DELETE":
            return  # no form sends it, and a fetch needs a preflight
        for headers in listener.simple(browser=True):
            yield 415, headers
        # Clients of envoyproxy/ratelimit post JSON as forms do.
        if path != "/json":
            for headers in listener.simple(browser=False):
                yield 415, headers

    def check_listener(self, listener, picture):
        """Checks each route that changes something; picture() returns all that
        can be changed."""
        changing = [(r["method"], r["path"], r["role"])
                    for r in listener.routes() if r["method"] not in READS]
        self.assertGreaterEqual(len(changing), 4)
        before = picture()
        for method, path, role in changing:
            self.assertIn(role, ("edit", "take"), path)
            body = json.dumps(BODIES[path]) if path in BODIES else None
            where = path.replace("NAME", QUOTA)
            for wanted, headers in self.attacks(listener, method, path):
                self.check_problem(
                    wanted, listener.ask(method, where, body, headers),
                    f"{method} {where} with {headers}")
        self.assertEqual(picture(), before)
        # The listener's own page may, and so may a client without a page.
        for method, path, _ in changing:
            body = json.dumps(BODIES[path]) if path in BODIES else None
            for headers in (OWN, OWN | {"Origin": listener.origin,
                                        "Sec-Fetch-Site": "same-origin"}):
                status, _, text = listener.ask(
                    method, path.replace("NAME", QUOTA), body, headers)
                self.assertNotIn(status, (400, 401, 403, 405, 415),
                                 f"{method} {path}: {text}")
        self.assertNotEqual(picture(), before)

    def root_picture(self, listener):
        def picture():
            return [listener.ask("GET", path)[2] for path in
                    ("/v1/quotas", "/v1/log")]
        return picture

    def agent_picture(self, listener):
        """A function that reads the decisions and the remaining units."""
        def picture():
            _, _, page = listener.ask("GET", "/metrics")
            decided = re.findall(r"(?m)^weir_agent_decisions_total.*$", page)
            peek = json.dumps({"name": QUOTA, "peek": True})
            _, _, text = listener.ask("POST", "/v1/take", peek, OWN)
            return decided, json.loads(text)["remaining"]
        return picture

    def check_reads(self, listener):
        """A browser hides answers from a page of another origin, unless that
        origin's name resolves to this host."""
        for route in listener.routes():
            if route["method"] not in READS:
                continue
            self.assertIn(route["role"], ("", "read"), route)
            path = route["path"].replace("NAME", QUOTA)
            for headers in listener.foreign():
                if "Sec-Fetch-Site" in headers and "Host" not in headers:
                    continue
                self.check_problem(403, listener.ask("GET", path, None,
                                                     headers),
                                   f"{path} with {headers}")

    def test_root(self):
        listener = self.of_root()
        self.check_reads(listener)
        self.check_listener(listener, self.root_picture(listener))

    def test_agent(self):
        listener = self.of_agent()
        self.check_reads(listener)
        self.check_listener(listener, self.agent_picture(listener))


class Commands:
    """A mix-in, too: each command as the body of a browser's request."""

    def posts(self, words):
        line = b" ".join(str(word).encode() for word in words) + b"\r\n"
        for body in (line, Resp.line(*words)):
            head = (b"Host: 127.0.0.1:6379\r\nContent-Type: text/plain\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(body))
            for first in (b"POST / HTTP/1.1\r\n", b"post / HTTP/1.1\r\n",
                          b"PUT /a HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n",
                          b"\r\nPOST / HTTP/1.1\r\n", b"",
                          b"OPTIONS * HTTP/1.1\r\n"):
                yield first + head + body

    def answer(self, data, place, context):
        """All bytes until the connection ends."""
        with connect(place, context) as link:
            try:
                link.sendall(data)
            except ConnectionError:
                pass
            got = b""
            while part := receive(link):
                got += part
            return got

    def arguments(self, name, arity):
        """Arguments with which the command has an effect."""
        usual = {"cl.throttle": ["key", 9, 1, 3600],
                 "cl.probe": ["key", 9, 1, 3600], "del": ["key"],
                 "weir.take": [QUOTA, 1], "weir.peek": [QUOTA]}
        return usual.get(name, ["a"] * (abs(arity) - 1))

    def check_commands(self, open_link, place, context):
        link = open_link()
        commands = link.ask("COMMAND")
        writes = [c[0] for c in commands if "+write" in c[2]]
        self.assertLessEqual({"weir.take", "cl.throttle", "del"}, set(writes))
        take = link.ask("CL.THROTTLE", "key", 9, 1, 3600)
        self.assertEqual(take[0], 0)

        def picture():
            return (link.ask("WEIR.PEEK", QUOTA)[:2],
                    link.ask("CL.PROBE", "key", 9, 1, 3600)[:3])
        # The limiter has the quota, and its root's answer for it.
        until("a full quota", lambda: picture()[0] == [0, 100])
        before = picture()
        for name, arity, *_ in commands:
            for data in self.posts([name, *self.arguments(name, arity)]):
                got = self.answer(data, place, context)
                self.assertLessEqual(got.count(b"\r\n"), 1, (data, got))
                self.assertRegex(got, b"^(-ERR Protocol error.*HTTP\r\n)?$")
        self.assertEqual(picture(), before)
        # From a client of Redis they do change something.
        for name, arity, *_ in commands:
            if name in writes:
                link.ask(name, *self.arguments(name, arity))
        self.assertNotEqual(picture(), before)


class Plain(Routes, Commands, Agents):
    """Listeners on loopback, which other hosts can't reach."""

    def setUp(self):
        super().setUp()
        self.root = Root(self, "--resp", "127.0.0.1:0",
                         store=self.make_store("origin.db"))
        self.quota(QUOTA, "limit=100/day", "low_burst=100", "high_burst=100")

    def of_root(self):
        return Listener(self.root.http)

    def of_agent(self):
        return Listener(self.agent("--http", "127.0.0.1:0")["http"][0])

    def test_commands_of_root(self):
        place = self.root.ports["resp"]
        self.check_commands(lambda: self.resp(place), place, None)

    def test_commands_of_agent(self):
        place = self.agent("--resp", "127.0.0.1:0")["resp"][0]
        self.check_commands(lambda: self.resp(place), place, None)

    def test_posts_to_grpc(self):
        """HTTP/1.1 isn't answered: browsers use HTTP/2 over TLS only."""
        rls = self.agent("--rls", "127.0.0.1:0")["rls"][0]
        post = (b"POST /weir.v1.Root/Call HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: %d\r\n\r\n" + PREFACE)
        for place in (self.root.address, rls):
            self.assertNotIn(b"HTTP/1.1 2", self.answer(post, place, None))


class Sealed(Routes, Commands, SealedAgent):
    """Listeners of TLS; the browser has a certificate of its own with all
    roles."""

    def setUp(self):
        super().setUp()
        self.browser = self.ops.context(self.certificates.ca)
        status, _, text = self.of_root().ask(
            "PUT", f"/v1/quotas/{QUOTA}",
            '{"limit": "100/day", "low_burst": 100, "high_burst": 100}', OWN)
        self.assertEqual(status, 201, text)

    def of_root(self):
        return Listener(f"127.0.0.1:{self.root.http}", self.browser)

    def of_agent(self):
        return Listener(self.places["http"], self.browser)

    def test_commands_of_agent(self):
        place = self.places["resp"]
        self.check_commands(lambda: self.sealed(self.ops), place,
                            self.browser)

    def test_posts_to_grpc(self):
        """Here a browser uses HTTP/2, and sends no content type of gRPC without
        a preflight."""
        context = self.ops.context(self.certificates.ca)
        context.set_alpn_protocols(["h2"])
        before = self.root_picture(self.of_root())()
        call = b"".join(bytes([number << 3 | 2, len(part)]) + part
                        for number, part in ((1, b"DELETE"),
                                             (2, b"/v1/quotas/shop")))
        for place in (f"127.0.0.1:{self.root.grpc}", self.places["rls"]):
            for kind in OF_FORMS[1:]:
                data = PREFACE + grpc_call(
                    1, "/weir.v1.Root/Call", call,
                    **{"content-type": kind, "origin": "https://evil.example"})
                with connect(place, context) as link:
                    # GOAWAY at the end: no other call follows.
                    link.sendall(data + frame(7, 0, 0, bytes(8)))
                    got = b""
                    while part := receive(link):
                        got += part
                self.assertIn(b"415", got, (place, kind))
        self.assertEqual(self.root_picture(self.of_root())(), before)


class Documents(Agents):
    """Each route is in the man page of its listener, and those of the agent
    are in openapi.yaml."""

    def said(self, page):
        """The man page's lines of routes, without mdoc macros."""
        text = (SOURCE / "man" / page).read_text()
        for line in re.findall(r"(?m)^\.It Li (.*)$", text):
            line = re.sub(r" Ns (Op Li .*|Ar )", " ", line)
            yield re.sub(r"/ (NAME)", r"/\1", line)

    def check_page(self, page, listener):
        lines = list(self.said(page))
        for route in listener.routes():
            path = re.escape(route["path"])
            named = re.compile(rf"(^|, ){route['method']} (\S+ , )*{path}"
                               r"([?, ]|$)|" +
                               rf"^{route['method']} /.* , {path}( |$)")
            self.assertTrue(any(map(named.search, lines)),
                            f"{page} lacks {route}")

    def test_man_pages(self):
        self.check_page("weir-http.7", Listener(self.root.http))
        self.check_page("weir-agent.8",
                        Listener(self.agent("--http",
                                            "127.0.0.1:0")["http"][0]))

    def test_openapi(self):
        text = (SOURCE / "examples" / "openapi.yaml").read_text()
        wanted = {(match[1], method.upper()) for match in re.finditer(
            r"(?m)^  (/\S*):\n((?:    .*\n)+)", text)
            for method in re.findall(r"(?m)^    (\w+):$", match[2])}
        listener = Listener(self.agent("--http", "127.0.0.1:0")["http"][0])
        self.assertEqual(wanted, {(route["path"], route["method"])
                                  for route in listener.routes()})


if __name__ == "__main__":
    unittest.main(verbosity=2)
