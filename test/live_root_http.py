#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_root_http.py - the HTTP listener of `weir serve`: quotas, metrics,
pages of other origins, garbage."""

import json
import re
import socket
import unittest

from live_cli import Case, Root
from patience import PATIENCE


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
                # Doorman's own names are as it gave them.
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
