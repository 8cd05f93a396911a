#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_long_names.py - names over 255 bytes through each port of two agents and
through libweir, beside a real root: one bucket for all of them, and no way
around it.
Limits are per day, so that a bucket doesn't leak a unit during a test."""

import http.client
import json
import unittest
from pathlib import Path

from live_agent import JSON, Agents
from patience import PATIENCE, until

ENTRIES = [("a", "x" * 200), ("b", "ä" * 100), ("c", "z" * 300)]


def escaped(value):
    return value.replace("/", "%2F")


def name_of(entries, domain="shop"):
    return "/".join(["envoy", domain] +
                    [f"{key}={escaped(value)}" for key, value in entries])


class LongNames(Agents):
    def setUp(self):
        super().setUp()
        self.quota("envoy/shop/a=*/b=*/c=*", "glob=path", "limit=1/day",
                   "high_burst=3", "algorithm=token_bucket")
        self.places = [self.agent("--http", "127.0.0.1:0", "--resp",
                                  "127.0.0.1:0",
                                  "--resp-sharing", "counted")
                       for _ in range(2)]

    def post(self, agent, path, body):
        """(status, the answer)."""
        host, port = self.places[agent]["http"][0].rsplit(":", 1)
        link = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        link.request("POST", path, json.dumps(body), JSON)
        answer = link.getresponse()
        text = answer.read()
        link.close()
        return answer.status, json.loads(text)

    def rls(self, agent, entries):
        """Whether a call of Envoy's passes."""
        status, answer = self.post(agent, "/json", {
            "domain": "shop", "descriptors": [{"entries": [
                {"key": key, "value": value} for key, value in entries]}]})
        self.assertEqual(status, 200 if answer["overallCode"] == "OK" else 429)
        return status == 200

    def take(self, agent, name, **more):
        return self.post(agent, "/v1/take", {"name": name, **more})[0] == 200

    def metrics(self, agent):
        host, port = self.places[agent]["http"][0].rsplit(":", 1)
        link = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        link.request("GET", "/metrics")
        text = link.getresponse().read().decode()
        link.close()
        return dict(line.rsplit(" ", 1) for line in text.splitlines()
                    if not line.startswith("#"))

    def test_one_bucket(self):
        name = name_of(ENTRIES)
        self.assertEqual([self.rls(0, ENTRIES) for _ in range(4)],
                         [True] * 3 + [False])
        # By the same name through the other ports of the agent …
        link = self.resp(self.places[0]["resp"][0])
        self.assertFalse(self.take(0, name))
        self.assertEqual(link.ask("WEIR.TAKE", name)[0], 1)
        # … in the other process, once the root has sent the fill …
        until("the fill of the other agent",
              lambda: not self.take(1, name, peek=True))
        self.assertFalse(self.rls(1, ENTRIES))
        # … and by libweir.
        done = self.run_weir("take", name, root=self.root)
        self.assertEqual(done.status, 1, done.err)
        # Another last byte is another bucket.
        other = ENTRIES[:-1] + [("c", "z" * 299 + "y")]
        self.assertEqual([self.rls(0, other) for _ in range(4)],
                         [True] * 3 + [False])

    def test_the_stored_name(self):
        name = name_of(ENTRIES)
        for _ in range(3):
            self.assertTrue(self.take(0, name))
        status, answer = self.post(0, "/v1/take", {"name": name})
        self.assertEqual(status, 429)
        stored = answer["quota"]
        self.assertRegex(stored, "^envoy/shop/a=x+/b=ä+/c=z+~[0-9a-f]{32}$")
        self.assertLessEqual(len(stored.encode()), 255)
        # A client that gives the stored name doesn't reach that bucket …
        self.assertTrue(self.take(0, stored))
        # … and operators, who read it, do.
        until("the root lists it",
              lambda: stored in json.dumps(
                  json.loads(self.root.get("/v1/usage")[1]),
                  ensure_ascii=False))

    def test_keys_of_redis(self):
        link = self.resp(self.places[0]["resp"][0])
        for key in "k" * 5000, "k" * 5001, "ä" * 200:
            answers = [link.ask("CL.THROTTLE", key, 2, 1, 86400)[0]
                       for _ in range(4)]
            self.assertEqual(answers, [0, 0, 0, 1], key)

    def test_errors_are_counted(self):
        link = self.resp(self.places[0]["resp"][0])
        # Half a character at the end, within and beyond 255 bytes.
        for len in 10, 300:
            link.link.sendall(b"*2\r\n$9\r\nWEIR.TAKE\r\n$%d\r\n%s\xc3\r\n" %
                              (len + 1, b"k" * len))
            self.assertTrue(link.read().startswith("-ERR the name"))
        self.assertEqual(self.post(0, "/v1/take", {"nam": "x"})[0], 400)
        self.assertEqual(self.post(0, "/json", {"domain": "shop"})[0], 400)
        # A body over the bound is limited, and not refused by an error.
        status, said = self.post(0, "/json", {"domain": "d" * 70000})
        self.assertEqual((status, said), (429, {
            "overallCode": "OVER_LIMIT", "statuses": []}))
        for path in "/v1/take", "/v1/enter":
            for size in 65536, 65537:
                status, said = self.post(0, path, {"name": "n" * size})
                self.assertEqual((status, said["verdict"], said["never"]),
                                 (429, "limited", True))
        self.assertEqual(self.post(0, "/v1/leave", {"x": "n" * 70000})[0], 413)
        errors = self.metrics(0)
        for labels, count in (("resp", "invalid"), 2), (("http", "invalid"),
                                                        3), (
                ("http", "too_big"), 5), (("rls", "invalid"), 0):
            self.assertEqual(errors['weir_agent_errors_total{protocol="%s",'
                                    'kind="%s"}' % labels], str(count))
        # The log names the peer, so that a wrong client can be found.
        self.assertRegex(Path(self.agents[0][1]).read_text(),
                         r"http: a request of 127\.0\.0\.1:\d+ is limited: "
                         r"a body has 64 KiB")

    def test_shadow_mode(self):
        """With --rls-shadow a body over the bound passes too."""
        self.places.append(self.agent("--http", "127.0.0.1:0", "--rls-shadow"))
        status, said = self.post(2, "/json", {"domain": "d" * 70000})
        self.assertEqual((status, said), (200, {
            "overallCode": "OK", "statuses": []}))

    def test_bounds_of_envoys_requests(self):
        many = [{"entries": [{"key": "k", "value": str(i)}]}
                for i in range(1025)]
        body = {"domain": "shop", "descriptors": many[:1024]}
        self.assertEqual(self.post(0, "/json", body)[0], 200)
        body = {"domain": "shop", "descriptors": many}
        status, answer = self.post(0, "/json", body)
        self.assertEqual((status, answer["overallCode"]), (429, "OVER_LIMIT"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
