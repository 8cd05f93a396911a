#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_agent_http.py - the HTTP listener of `weir agent`: decisions, permits
and Envoy's JSON, each answer checked against examples/openapi.yaml; requests
that are broken, slow or of a foreign origin."""

import http.client
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import unittest
from pathlib import Path

import raw_http
from live_agent import JSON, Agents, UnixHTTP
from patience import PATIENCE, until

SOURCE = Path(os.environ["WEIR_SOURCE"])

try:
    import jsonschema
    import yaml
except ImportError:
    jsonschema = None


class Http(Agents):
    def setUp(self):
        super().setUp()
        self.api = None
        if jsonschema:
            text = (SOURCE / "examples" / "openapi.yaml").read_text()
            self.api = yaml.safe_load(text)

    def check(self, method, path, answer, body):
        """Status, headers and body must be as in openapi.yaml."""
        operation = self.api["paths"][path.split("?")[0]][method.lower()]
        said = operation["responses"][str(answer.status)]
        if "$ref" in said:
            said = self.api["components"]["responses"][
                said["$ref"].split("/")[-1]]
        kind = answer.getheader("Content-Type")
        schema = dict(said["content"][kind]["schema"],
                      components=self.api["components"])
        jsonschema.validate(body, schema,
                            cls=jsonschema.Draft202012Validator)
        for name in said.get("headers", {}):
            value = answer.getheader(name)
            pattern = self.api["components"]["headers"][name]["schema"]
            if value is not None:
                jsonschema.validate(value, pattern)

    def call(self, place, method, path, body=None, headers=None, host=None):
        """(status, headers, body)."""
        link = UnixHTTP(place[5:]) if place.startswith("unix:") else \
            http.client.HTTPConnection(place, timeout=PATIENCE)
        headers = JSON | (headers or {})
        if host:
            headers["Host"] = host
        link.request(method, path, body, headers)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        said = json.loads(text) if text else None
        if self.api and said and path.split("?")[0] in self.api["paths"] and \
                method.lower() in self.api["paths"][path.split("?")[0]]:
            self.check(method, path, answer, said)
        return answer.status, dict(answer.getheaders()), said

    def take(self, place, path="/v1/take", headers=None, **ask):
        return self.call(place, "POST", path, json.dumps(ask), headers)

    def test_a_quota_limits(self):
        self.quota("site", "limit=1/h", "low_burst=3", "high_burst=3")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        status, headers, said = self.take(place, name="site")
        self.assertEqual((status, said), (200, {
            "verdict": "passed", "quota": "site", "remaining": 2}))
        self.assertEqual(headers["RateLimit-Policy"], '"site";q=3;w=10800')
        self.assertEqual(headers["RateLimit"], '"site";r=2')
        status, _, said = self.take(place, name="site", weight=2, peek=True)
        self.assertEqual((status, said["remaining"]), (200, 2))
        self.assertEqual(self.take(place, name="site", weight=2)[0], 200)
        status, headers, said = self.take(place, "/v1/take?x-ratelimit=1",
                                          name="site")
        self.assertEqual((status, said["violated-policies"]),
                         (429, ["site"]))
        wait = int(headers["Retry-After"])
        self.assertTrue(1 <= wait <= 4501, wait)  # and jitter
        self.assertEqual(headers["RateLimit"], f'"site";r=0;t={wait}')
        self.assertEqual(headers["X-RateLimit-Limit"], "3")
        self.assertEqual(headers["X-RateLimit-Reset"], str(wait))
        self.assertTrue((wait - 1) * 1000 < said["retry_after_ms"] <=
                        wait * 1000)
        status, headers, said = self.take(place, name="site", weight=4)
        self.assertEqual((status, said["never"]), (429, True))
        self.assertNotIn("Retry-After", headers)
        # The roots receive the count.
        until("the root's count", lambda: any(
            quota["name"] == "site" and quota["passed"] >= 3 for quota in
            json.loads(self.root.get("/v1/usage")[1])["quotas"]))

    def test_costs(self):
        self.quota("cost", "limit=1/h", "low_burst=9", "high_burst=9",
                   "sharing=local")
        place, = self.agent("--http", "127.0.0.1:0")["http"]

        def on(path, **body):
            status, _, said = self.take(place, path, **body)
            return status, said

        def left():
            return on("/v1/take", name="cost", peek=True)[1].get("remaining")

        self.assertEqual(on("/v1/take", name="cost", weight=5)[0], 200)
        self.assertEqual(on("/v1/settle", name="cost", charged=5, actual=2),
                         (200, {"charged": 2}))
        self.assertEqual(left(), 7)
        self.assertEqual(on("/v1/charge", name="cost", weight=2 ** 40),
                         (200, {"charged": 2 ** 40}))
        self.assertEqual(on("/v1/take", name="cost")[0], 429)
        self.assertEqual(on("/v1/settle", name="cost", charged=2 ** 40,
                            actual=0), (200, {"charged": 0}))
        self.assertEqual(left(), 7)
        self.assertEqual(on("/v1/charge", name="nobody", weight=3),
                         (200, {"charged": 0, "unknown": True}))
        self.assertEqual(on("/v1/settle", name="nobody", charged=3, actual=4),
                         (200, {"charged": 3, "unknown": True}))
        for path, body in (
                ("charge", {"name": "cost"}), ("charge", {"weight": 1}),
                ("charge", {"name": "cost", "weight": 1, "peek": True}),
                ("charge", {"name": "cost", "weight": 2 ** 40 + 1}),
                ("charge", {"name": "", "weight": 1}),
                ("settle", {"name": "cost", "charged": 1}),
                ("settle", {"name": "cost", "charged": -1, "actual": 1}),
                ("settle", {"name": "cost", "charged": 1, "actual": "1"}),
                ("settle", {"name": ["cost"], "charged": 1, "actual": 1})):
            self.assertEqual(on("/v1/" + path, **body)[0], 400, body)
        self.assertEqual(left(), 7)

    def test_views_of_the_page(self):
        self.quota("site", "limit=1/h", "low_burst=3", "high_burst=3")
        self.quota("user/*", "limit=5/s", "parent=site")
        place, = self.agent("--http", "127.0.0.1:0")["http"]

        def get(path):
            return self.call(place, "GET", path)[2]
        for name in "site", "user/ann", "user/bob":
            self.take(place, name=name)
        live = until("the names taken", lambda: (said := get(
            "/v1/live?watch=user/*%0Asite"))["used"] == 3 and said)
        self.assertEqual([(quota["name"], quota["passed"]) for quota in
                          live["watched"]], [("user/*", 2), ("site", 3)])
        self.assertEqual({quota["name"] for quota in get(
            "/v1/usage?match=user/*")["quotas"]}, {"user/ann", "user/bob"})
        until("a second of it", lambda: get("/v1/recent?name=site")["samples"])
        why = get("/v1/why?name=user/eve")
        self.assertEqual((why["verdict"], [link["quota"] for link in
                          why["chain"]]), ("limited", ["user/*", "site"]))
        for path in "/v1/why", "/v1/recent", "/v1/usage?limit=x":
            self.assertEqual(get(path)["status"], 400)

    def test_names_of_all_kinds(self):
        self.quota("user/*", "limit=5/s", "low_burst=5", "high_burst=5")
        self.quota('ü"x', "limit=1/s", "low_burst=7", "high_burst=7")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        self.assertEqual(self.take(place, name="user/7")[2]["quota"],
                         "user/7")
        _, headers, said = self.take(place, name='ü"x')
        self.assertEqual(said["quota"], 'ü"x')
        self.assertEqual(headers["RateLimit"], '"%C3%BC%22x";r=6')
        status, headers, said = self.take(place, name="nobody's")
        self.assertEqual((status, said), (200, {"verdict": "passed",
                                                "unknown": True}))
        self.assertNotIn("RateLimit", headers)

    def test_policies(self):
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        for fields, policy in [
                (["day", "algorithm=fixed_window", "window=1d", "limit=5/d",
                  "sharing=local"], '"day";q=5;w=86400'),
                (["db", "kind=concurrency", "limit=4"],
                 '"db";q=4;qu="concurrent-requests"'),
                (["pool", "kind=concurrency", "sharing=adaptive"],
                 '"pool";q='),
                (["two", "algorithm=token_buckets", "sharing=local",
                  "limit=2/s", "high_burst=6", "next_buckets=1/s:60"],
                 '"two";q=6;w=3'),
                (["ban", "limit=0"], '"ban";q='),
                (["free", "limit=unlimited"], None)]:
            done = self.run_weir("quota", "set", *fields, root=self.root)
            self.assertEqual(done.status, 0, done.err)
            name = fields[0]
            until(name, lambda: "unknown" not in
                  self.take(place, name=name, peek=True)[2])
            _, headers, _ = self.take(place, name=name)
            self.assertEqual(headers.get("RateLimit-Policy", "").startswith(
                policy or "never"), policy is not None, headers)

    def test_why_of_adaptive_limits(self):
        """Of the process alone; a part of the fleet's; alone again, without a
        root."""
        place, = self.agent("--http", "127.0.0.1:0")["http"]

        def why(name):
            self.take(place, name=name)
            said = self.call(place, "GET", f"/v1/why?name={name}")[2]
            return said["chain"][0]["why"]
        for name, scope, reason in [
                ("own", "process", "this process has a limit of its own, by "
                 "its measurements: passes now"),
                ("shared", "fleet", "this process keeps to its part of the "
                 "fleet's limit: passes now")]:
            done = self.run_weir(
                "quota", "set", name, "kind=concurrency", "sharing=adaptive",
                f"scope={scope}", "target=100ms", root=self.root)
            self.assertEqual(done.status, 0, done.err)
            until(name, lambda: "unknown" not in
                  self.take(place, name=name, peek=True)[2])
            until(reason, lambda: why(name) == reason)
        self.root.process.kill()
        link = http.client.HTTPConnection(place, timeout=PATIENCE)
        self.addCleanup(link.close)

        def is_alone():
            status, said = self.on(link, "/v1/enter", name="shared")
            if status == 200:
                self.on(link, "/v1/leave", permit=said["permit"])
            return "finds a limit for itself" in why("shared")
        until("it goes on alone", is_alone)

    def test_lists(self):
        self.quota("a", "limit=1/h", "low_burst=20", "high_burst=20")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        status, _, said = self.take(place, requests=[
            {"name": "a"}, {"name": "a", "weight": 20}, {"name": "a"},
            {"name": "b"}])
        self.assertEqual(status, 200)
        self.assertEqual([one["verdict"] for one in said["replies"]],
                         ["passed", "limited", "passed", "passed"])
        self.quota("c", "limit=1/h", "low_burst=1", "high_burst=1")
        until("c", lambda: "unknown" not in
              self.take(place, name="c", peek=True)[2])
        self.assertEqual(self.take(place, requests=[{"name": "c"},
                                                {"name": ""}])[0], 400)
        self.assertEqual(self.take(place, name="c")[0], 200)
        self.assertEqual(self.take(place, requests=[])[2], {"replies": []})
        self.assertEqual(self.take(place, requests=[{"name": "c"}] * 257)[0],
                         400)

    def on(self, link, path, **body):
        """(status, answer), on a connection that stays open."""
        link.request("POST", path, json.dumps(body), JSON)
        answer = link.getresponse()
        said = json.loads(answer.read())
        if self.api:
            self.check("POST", path, answer, said)
        return answer.status, said

    def test_permits(self):
        self.quota("db", "kind=concurrency", "limit=2", "sharing=local")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        one, other = (http.client.HTTPConnection(place, timeout=PATIENCE)
                      for _ in range(2))
        status, said = self.on(one, "/v1/enter", name="db")
        self.assertEqual((status, said["permit"]), (200, 1))
        status, said = self.on(one, "/v1/enter", name="db", **{"class": "x"})
        self.assertEqual((status, said["permit"]), (200, 2))
        self.assertEqual(self.on(other, "/v1/enter", name="db")[0], 429)
        # A permit's number is unknown on another connection, and once left.
        self.assertEqual(self.on(other, "/v1/leave", permit=1)[0], 404)
        self.assertEqual(self.on(one, "/v1/leave", permit=1,
                                 outcome="dropped"), (200, {"left": True}))
        self.assertEqual(self.on(one, "/v1/leave", permit=1)[0], 404)
        self.assertEqual(self.on(other, "/v1/enter", name="db")[1]["permit"],
                         1)
        self.assertEqual(self.on(other, "/v1/enter", name="db")[0], 429)
        # A permit ends with its connection.
        one.close()
        until("the other unit", lambda: self.on(other, "/v1/enter",
                                                name="db")[0] == 200)
        # A pass without a permit has no number.
        self.assertEqual(self.on(other, "/v1/enter", name="no quota"),
                         (200, {"verdict": "passed", "unknown": True}))
        for path, body in [
                ("/v1/enter", {}), ("/v1/enter", {"name": "db", "class": 1}),
                ("/v1/enter", {"name": "db", "peek": True}),
                ("/v1/enter", {"name": "db", "permit": 1}),
                ("/v1/leave", {}), ("/v1/leave", {"permit": 0}),
                ("/v1/leave", {"permit": "1"}),
                ("/v1/leave", {"permit": 1, "outcome": "fine"}),
                ("/v1/leave", {"permit": 1, "weight": 1})]:
            self.assertEqual(self.on(other, path, **body)[0], 400, body)
        other.close()

    def test_a_holder_of_permits_is_probed(self):
        """A host without power ends no connection, and would keep its permits
        for ever: so the kernel probes it."""
        self.quota("db", "kind=concurrency", "limit=2", "sharing=local")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        link = http.client.HTTPConnection(place, timeout=PATIENCE)
        link.connect()
        ends = [f":{port:04X}" for port in (link.sock.getpeername()[1],
                                            link.sock.getsockname()[1])]

        def timer():
            """The connection's timer; "02" is that of keep-alives (Linux:
            proc_net_tcp)."""
            for line in Path("/proc/net/tcp").read_text().splitlines():
                part = line.split()
                if part[1].endswith(ends[0]) and part[2].endswith(ends[1]):
                    return part[5].split(":")[0]
            return None

        self.assertEqual(self.on(link, "/v1/take", name="db")[0], 200)
        until("no probes", lambda: timer() == "00")
        self.assertEqual(self.on(link, "/v1/enter", name="db")[0], 200)
        until("probes", lambda: timer() == "02")
        link.close()

    def test_as_many_permits_as_a_connection_may_have(self):
        self.quota("db", "kind=concurrency", "limit=5000", "sharing=local")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        link = http.client.HTTPConnection(place, timeout=PATIENCE)
        for i in range(1024):
            link.request("POST", "/v1/enter", '{"name": "db"}', JSON)
            answer = link.getresponse()
            answer.read()
            self.assertEqual(answer.status, 200, i)
        status, said = self.on(link, "/v1/enter", name="db")
        self.assertEqual(status, 503)
        self.assertEqual(self.on(link, "/v1/leave", permit=500)[0], 200)
        self.assertEqual(self.on(link, "/v1/enter", name="db")[1]["permit"],
                         1025)
        link.close()

    def protobuf(self):
        """The messages of Envoy's service and the JSON format, by protobuf's
        own Python; None if that isn't installed."""
        try:
            from google.protobuf import json_format
        except ImportError:
            return None
        if not shutil.which("protoc"):
            return None
        subprocess.run(["protoc", "-I", SOURCE / "proto", "--python_out",
                        self.folder, "rls.proto"], check=True)
        sys.path.insert(0, self.folder)
        try:
            return importlib.import_module("rls_pb2"), json_format
        finally:
            sys.path.remove(self.folder)

    def rls(self, place, domain="shop", hits=None, **pairs):
        """(status, answer) of one descriptor by /json."""
        entries = [{"key": key, "value": value}
                   for key, value in pairs.items()]
        body = {"domain": domain, "descriptors": [{"entries": entries}]}
        if hits is not None:
            body["hitsAddend"] = hits
        status, _, said = self.call(place, "POST", "/json", json.dumps(body))
        return status, said

    def test_envoys_json(self):
        self.quota("envoy/shop/path=cart", "limit=60/h", "low_burst=2",
                   "high_burst=2")
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        status, said = self.rls(place, path="cart")
        self.assertEqual((status, said["overallCode"]), (200, "OK"))
        self.assertEqual(said["statuses"][0]["limitRemaining"], 1)
        self.assertEqual(self.rls(place, path="cart")[0], 200)
        status, said = self.rls(place, path="cart")
        self.assertEqual((status, said["overallCode"]), (429, "OVER_LIMIT"))
        self.assertNotIn("limitRemaining", said["statuses"][0])
        # A descriptor without a quota passes.
        self.assertEqual(self.rls(place, path="/home"), (200, {
            "overallCode": "OK", "statuses": [{"code": "OK"}]}))
        for body, says in [
                ("{", "no JSON"), ("{}", "domain must not be empty"),
                ('{"domain": "a"}', "list must not be empty"),
                ('{"domain": "a", "hits": 1}', "'hits'")]:
            status, _, said = self.call(place, "POST", "/json", body)
            self.assertEqual(status, 400)
            self.assertIn(says, said["detail"])
        self.assertEqual(self.call(place, "GET", "/json")[0], 405)
        made = self.protobuf()
        if not made:
            self.skipTest("there is no protobuf for Python")
        messages, form = made
        request = messages.RateLimitRequest(domain="shop", hits_addend=1)
        request.descriptors.add(is_negative_hits=True).entries.add(
            key="path", value="cart")
        request.descriptors.add().entries.add(key="path", value="cart")
        for names in False, True:
            status, _, said = self.call(
                place, "POST", "/json", form.MessageToJson(
                    request, preserving_proto_field_name=names))
            self.assertEqual(status, 200)
            # rls.proto's Duration has no JSON form "1s".
            for one in said["statuses"]:
                reset = int(one.pop("durationUntilReset")[:-1])
                self.assertTrue(1 <= reset <= 3600, reset)
            answer = form.ParseDict(said, messages.RateLimitResponse())
            self.assertEqual([one.code for one in answer.statuses], [1, 1])
            self.assertEqual(answer.statuses[0].current_limit
                             .requests_per_unit, 60)

    def test_envoys_file_by_json(self):
        limits = Path(self.path("limits.yaml"))
        limits.write_text("domain: shop\ndescriptors:\n- key: path\n"
                          "  rate_limit: {unit: hour, requests_per_unit: 1,"
                          " name: cart}\n")
        self.ok("quota", "import", "--from", "envoy", str(limits),
                root=self.root)
        place, = self.agent("--http", "127.0.0.1:0", "--envoy-config",
                            str(limits),
                            "--rls-headers", "ietf")["http"]
        self.assertEqual(self.rls(place, path="/cart")[0], 200)
        status, said = self.rls(place, path="/cart")
        self.assertEqual(status, 429)
        self.assertEqual(said["statuses"][0]["currentLimit"], {
            "requestsPerUnit": 1, "unit": "HOUR", "name": "cart"})
        keys = [header["key"] for header in said["responseHeadersToAdd"]]
        self.assertEqual(keys, ["RateLimit-Policy", "RateLimit",
                                "Retry-After"])
        done = self.run_weir("agent", "--resp", "127.0.0.1:0", "--rls-shadow")
        self.assertEqual(done.status, 2)
        self.assertIn("go with --rls or --http", done.err)

    def test_errors_name_their_cause(self):
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        for body, says in [
                ("", "no JSON"), ("[", "line 1"), ("[]", "object"),
                ('{"nam": "a"}', '"nam"'), ('{"name": 1}', "name"),
                ('{"name": "a", "weight": -1}', "4294967296"),
                ('{"name": "a", "weight": 1.5}', "whole"),
                ('{"name": "a", "weight": 4294967297}', "4294967296"),
                ('{"name": "a", "peek": 1}', "peek"),
                ('{"name": "a", "name": "b"}', "duplicate"),
                ('{"name": "shadow:a"}', "shadow:"),
                (json.dumps({"name": "a\nb"}), "name"),
                ('{"requests": 1}', "requests")]:
            status, headers, said = self.call(place, "POST", "/v1/take", body)
            self.assertEqual(status, 400, body)
            self.assertEqual(headers["Content-Type"],
                             "application/problem+json")
            self.assertIn(says, said["detail"], body)
        # A text of any length, cut anywhere, is answered.
        for path in ("/v1/take", "/v1/enter", "/json"):
            for cut in range(4):
                body = json.dumps({cut * "a" + 200 * "\u20ac": 1},
                                  ensure_ascii=False)
                for text in (body, body[:-3]):
                    status, _, said = self.call(place, "POST", path,
                                                text.encode())
                    self.assertEqual((status, said["status"]), (400, 400),
                                     text)
        for method, path, status in [
                ("GET", "/v1/take", 405), ("POST", "/healthz", 405),
                ("GET", "/nothing", 404), ("OPTIONS", "*", 501)]:
            self.assertEqual(self.call(place, method, path)[0], status)
        self.assertEqual(self.call(place, "POST", "/v1/take",
                                   "a" * 70000)[0], 429)
        self.assertEqual(self.call(place, "POST", "/v1/leave",
                                   "a" * 70000)[0], 413)
        # A path that needs no credential gets no memory for a body.
        for path in "/healthz", "/readyz":
            self.assertEqual(self.call(place, "GET", path, "a")[0], 413)
        self.assertEqual(self.call(place, "GET", "/v1/status",
                                   host="evil.example")[0], 403)
        self.assertEqual(
            self.call(place, "GET", "/v1/status",
                      headers={"Origin": "https://evil.example"})[0], 403)

    def test_health(self):
        places = self.agent("--http", "127.0.0.1:0", "--http",
                            "unix:" + self.path("a.sock"))["http"]
        for place in places:
            self.assertEqual(self.call(place, "GET", "/healthz")[0], 200)
            self.assertEqual(self.call(place, "GET", "/readyz")[0], 200)
            _, _, said = self.call(place, "GET", "/v1/status")
            self.assertEqual((said["roots_up"], said["ready"]), (1, True))
            status, headers, body = self.call(place, "HEAD", "/healthz")
            self.assertEqual((status, body), (200, None))
        self.root.process.kill()
        self.root.process.wait()
        until("no root", lambda: self.call(place, "GET", "/v1/status")[2]
              ["roots_up"] == 0)
        # Decisions go on.
        self.assertEqual(self.take(place, name="x")[0], 200)

    def test_many_on_one_connection(self):
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        host, port = place.split(":")
        one = (b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\n"
               b"Content-Type: application/json\r\n"
               b"Content-Length: 12\r\n\r\n{\"name\":\"a\"}")
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            # Byte by byte, then a hundred at once.
            for i in range(len(one)):
                link.sendall(one[i:i + 1])
            link.sendall(one * 100 + b"GET /no HTTP/1.1\r\nHost: localhost\r\n"
                         b"Connection: close\r\n\r\n")
            got = b""
            while chunk := link.recv(65536):
                got += chunk
        self.assertEqual(got.count(b"HTTP/1.1 200 OK"), 101)
        self.assertEqual(got.count(b"HTTP/1.1 404"), 1)

    def test_strict(self):
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        raw_http.check_strictness(self, place)

    def test_expect(self):
        place, = self.agent("--http", "127.0.0.1:0")["http"]
        host, port = place.split(":")
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall(b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Expect: 100-continue\r\nContent-Length: 12\r\n\r\n")
            self.assertEqual(link.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            link.sendall(b'{"name":"a"}')
            self.assertIn(b"200 OK", link.recv(1000))


if __name__ == "__main__":
    unittest.main(verbosity=2)
