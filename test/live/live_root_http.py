#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_root_http.py - the HTTP listener of `weir serve`: quotas, metrics, pages
of other origins, bodies, malformed requests."""

import json
import os
import re
import socket
import unittest
from pathlib import Path

import raw_http
from live_cli import Case, Root
from patience import PATIENCE, until
from raw_http import begin, connect, exchange, read_answers


class Http(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self)

    def test_quotas(self):
        status, text = self.root.get("/v1/quotas/a/b", "PUT",
                                     '{"limit": "5/s"}')
        self.assertEqual(status, 201)
        status, text = self.root.get("/v1/quotas/a%2Fb", "PATCH",
                                     '{"mode": "off"}')
        self.assertEqual(json.loads(text)["limit"], "5/s")
        status, text = self.root.get("/v1/quotas?match=a*&usage=1")
        self.assertEqual(len(json.loads(text)["quotas"]), 1)
        status, text = self.root.get("/v1/quotas/zz")
        self.assertEqual(status, 404)
        self.assertEqual(json.loads(text)["error"], "WEIR_ENOENT")
        status, text = self.root.get("/v1/quotas/a/b", "DELETE")
        self.assertEqual(status, 200)
        self.assertEqual(self.root.get("/v1/status", "POST", "x")[0], 405)

    def test_metrics_parse(self):
        self.root.get('/v1/quotas/a', "PUT", '{"limit": "5/s"}')
        status, text = self.root.get("/metrics")
        self.assertEqual(status, 200)
        kinds = {}
        sample = re.compile(r'(\w+)(\{(\w+="([^"\\]|\\.)*",?)*\})? \S+$')
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                kinds[name] = kind
            elif not line.startswith("# HELP "):
                found = sample.match(line)
                self.assertTrue(found, line)
                float(line.rsplit(" ", 1)[1])
                name = found[1]
                if name not in kinds:
                    name = re.sub("_(bucket|sum|count)$", "", name)
                    self.assertEqual(kinds[name], "histogram", line)
                # Doorman's own names stay as they are.
                if not name.startswith("doorman_"):
                    self.assertEqual(name.endswith("_total"),
                                     kinds[name] == "counter")
        self.assertIn("weir_quotas 1\n", text)

    def test_pages_of_other_origins(self):
        self.assertEqual(self.root.get("/healthz")[0], 200)
        for headers in ({"Host": "evil.example"},
                        {"Origin": "http://evil.example"},
                        {"Origin": "http://localhost:3000"},
                        {"Origin": f"http://{self.root.http}.evil.example"},
                        {"Origin": "null"}):
            self.assertEqual(self.root.get("/healthz", headers=headers)[0],
                             403, headers)
        self.assertEqual(self.root.get(
            "/healthz", headers={"Origin": f"http://{self.root.http}"})[0],
            200)
        for headers, status in (({"Content-Type": "text/plain"}, 415),
                                ({"Sec-Fetch-Site": "same-site"}, 403),
                                ({}, 201)):
            got, text = self.root.get("/v1/quotas/a", "PUT",
                                      '{"limit": "5/s"}', headers)
            self.assertEqual(got, status, headers)
            self.assertEqual("type" in json.loads(text), status != 201)

    def test_garbage(self):
        for address in (self.root.http, self.root.address):
            host, port = address.split(":")
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall(bytes(range(256)) * 64)
                raw.settimeout(PATIENCE)
                try:
                    while raw.recv(65536):
                        pass
                except ConnectionError:
                    pass
        self.ok("quota", "set", "a", "limit=1/s", root=self.root)
        self.assertEqual(self.root.stop(), 0)

    def test_strict(self):
        raw_http.check_strictness(self, self.root.http)
        self.assertEqual(json.loads(self.root.get("/v1/quotas")[1])["total"],
                         0)

    def test_problems(self):
        for status, method, path, allow in [
                (404, b"GET", b"/nothing", None),
                (404, b"PUT", b"/", None),
                (405, b"POST", b"/v1/status", "GET"),
                (405, b"POST", b"/v1/quotas/a",
                 "GET, PUT, PATCH, DELETE"),
                (413, b"GET", b"/v1/status", None),
                (501, b"OPTIONS", b"*", None)]:
            length = b"Content-Length: %d\r\n" % (9 if status == 413 else 0)
            answer, = exchange(self.root.http, begin(
                method, path, length, b"Connection: close\r\n"))
            self.assertEqual(answer[0], status)
            raw_http.check_problem(self, answer)
            self.assertEqual(answer[1].get("Allow"), allow)

    def put(self, name, *headers, body=b'{"limit": "5/s"}'):
        return begin(b"PUT", b"/v1/quotas/" + name, *headers,
                     b"Content-Length: %d\r\n" % len(body)) + body

    def test_requests_behind_an_edit_wait_for_it(self):
        with connect(self.root.http) as link:
            link.sendall(b"".join([
                self.put(b"a"), begin(b"GET", b"/v1/quotas/a"),
                begin(b"HEAD", b"/v1/quotas/a"),
                begin(b"DELETE", b"/v1/quotas/a"),
                begin(b"GET", b"/v1/quotas/a"),
                self.put(b"a", b"Connection: close\r\n")]))
            stream = link.makefile("rb")
            said = stream.read()
        statuses = [int(status) for status in
                    re.findall(rb"HTTP/1\.1 (\d+) ", said)]
        self.assertEqual(statuses, [201, 200, 200, 200, 404, 201])

    def count(self):
        status, text = self.root.get("/v1/quotas")
        self.assertEqual(status, 200, text)
        return json.loads(text)["total"]

    def test_a_client_that_goes_before_its_edit_is_answered(self):
        for i in range(20):
            with connect(self.root.http) as link:
                link.sendall(self.put(b"q%d" % i))
        until("all edits", lambda: self.count() == 20)
        self.assertEqual(self.root.stop(), 0)

    def test_bodies(self):
        """Bodies in parts, with "100 Continue" and without; and a body that the
        client doesn't finish."""
        quotas = [{"name": f"q{i}", "limit": "5/s"} for i in range(20000)]
        body = json.dumps(quotas).encode()
        head = begin(b"POST", b"/v1/quotas:import",
                     b"Expect: 100-continue\r\n",
                     b"Content-Length: %d\r\n" % len(body))
        with connect(self.root.http) as link:
            for i in range(len(head)):
                link.sendall(head[i:i + 1])
            self.assertEqual(link.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            link.sendall(body)
            link.sendall(self.put(b"last", b"Connection: close\r\n"))
            answers = read_answers(link)
        self.assertEqual([answer[0] for answer in answers], [200, 201])
        self.assertEqual(json.loads(answers[0][2])["created"], 20000)
        with connect(self.root.http) as link:
            link.sendall(head + body[:-1])
        self.assertEqual(self.count(), 20001)
        # The root doesn't wait for a refused body.
        for refused, status in [
                (begin(b"POST", b"/v1/quotas:import",
                       b"Expect: 100-continue\r\n",
                       b"Content-Length: %d\r\n" % ((64 << 20) + 1)), 413),
                (begin(b"PUT", b"/v1/quotas/a", b"Content-Length: 1048577\r\n"),
                 413),
                (begin(b"POST", b"/v1/quotas:import",
                       b"Sec-Fetch-Site: cross-site\r\n",
                       b"Content-Length: 1000\r\n"), 403)]:
            answer, = exchange(self.root.http, refused)
            self.assertEqual(answer[0], status)
            raw_http.check_problem(self, answer)

    def test_bodies_of_all_connections_have_a_bound(self):
        """128 MiB: of forty requests of 4 MiB each, some are refused."""
        size = 4 << 20
        # A small quarantine: memory in a sanitizer's would be counted here.
        options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        root = Root(self, env={**self.env, "ASAN_OPTIONS": options})
        head = begin(b"POST", b"/v1/quotas:import",
                     b"Content-Length: %d\r\n" % size)
        links = [connect(root.http) for _ in range(40)]
        refused = set()
        for link in links:
            try:
                link.sendall(head + bytes(size - 1))
            except ConnectionError:
                refused.add(link)  # ended, with bytes unread
        text = Path(f"/proc/{root.process.pid}/status").read_text()
        self.assertLess(int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]),
                        256 << 10)
        for link in links:
            try:
                link.sendall(b"x")
                status, _, body = read_answers(link, 1)[0]
                self.assertIn(status, (400, 503))
            except (ConnectionError, IndexError):
                status = None
            if status == 503:
                self.assertEqual(json.loads(body)["error"], "WEIR_EFULL")
            if status != 400:
                refused.add(link)
            link.close()
        self.assertTrue(8 <= len(refused) < len(links), len(refused))
        self.assertEqual(root.get("/v1/quotas")[0], 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
