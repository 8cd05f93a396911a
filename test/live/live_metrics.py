#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_metrics.py - /metrics of `weir serve` (of a store, with TLS, of a
region, of a Doorman file) and of `weir agent` for Prometheus: promtool checks
the pages and the alert rules, by made-up series, and a real Prometheus that
scrapes real processes answers every query of the dashboard. Tests are skipped,
with a note, if their part of Prometheus isn't installed."""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

import yaml

from live_agent import Agents
from live_cli import Root
from patience import PATIENCE, until, until_equal

SOURCE = Path(os.environ["WEIR_SOURCE"])
DASHBOARD = SOURCE / "examples" / "grafana" / "weir.json"
ALERTS = SOURCE / "examples" / "prometheus" / "weir-alerts.yml"
ALERTS_TEST = SOURCE / "test/live/weir_alerts_test.yml"
TOKEN = "sixteen-bytes-or-more"
TOP_MAX = 200  # WEIR_METRICS_QUOTAS_MAX
DOORMAN = """resources:
- identifier_glob: "*"
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
"""
# Names of Doorman's, of which promtool complains.
DOORMANS = {"doorman_server_requests", "doorman_server_request_errors"}
# Panels of the dashboard without data in this fleet: it has no adaptive quota
# (live_adaptive has some).
QUIET = {"Limit: median over the processes", "In flight",
         "Why limits moved last", "Limit of the whole fleet",
         "Its latency, by the target", "Processes left out"}
NAME = re.compile(r"\b(?:weir|doorman)_[a-z_]+\b")


def names_of(page):
    """The metrics of a page, with samples or without."""
    return set(re.findall(r"^# TYPE (\S+) ", page, re.M))


def series_of(page, name):
    return re.findall(rf"^{name}(?:\{{.*\}})? \S+$", page, re.M)


def queries():
    """(panel, query) of the dashboard."""
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for note in board["annotations"]["list"]:
        yield note["name"], note["expr"]


def rules():
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from group["rules"]


class Alerts(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *arguments], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rules(self):
        self.promtool("check", "rules", str(ALERTS))
        self.promtool("test", "rules", str(ALERTS_TEST))

    def test_none_is_left_out(self):
        tests = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
        heard = {alert["alertname"] for test in tests
                 for alert in test["alert_rule_test"]
                 if alert.get("exp_alerts")}
        self.assertEqual(heard, {rule["alert"] for rule in rules()})


class Fleet(Agents):
    """A fleet of every kind of root, an agent, and some load. It has no tests
    of its own; a class has one for all of its tests."""

    def setUp(self):
        super().setUp()
        self.verdicts = Counter()
        self.quota("full", "limit=1/h", "low_burst=1", "high_burst=1")
        self.quota("user/*", "limit=1000/s")
        self.quota("leased", "sharing=leased", "limit=5/s")
        self.region = self.serve("region", "--region", "eu", "--upstream",
                                 self.root.address, "--snapshot",
                                 self.path("eu.snapshot"))
        Path(self.path("doorman.yaml")).write_text(DOORMAN)
        self.doorman = self.serve("doorman", "--doorman-config",
                                  "file:" + self.path("doorman.yaml"))
        self.tls = self.serve_tls()
        self.places = self.agent("--http", "127.0.0.1:0")
        self.ask("leased", *["full"] * 10, "user/1", "nobody's")

    def serve(self, name, *options):
        root = Root(self, "--name", name, *options, ready=False)
        until(name + " is ready", lambda: root.get("/readyz")[0] == 200)
        return root

    def serve_tls(self):
        self.ok("cert", "ca", self.path("certs"))
        self.ok("cert", "server", self.path("certs"), "127.0.0.1")
        credentials = Path(self.path("credentials"))
        credentials.touch(0o600)
        credentials.write_text(f"read token prometheus {TOKEN}\n")
        Path(self.path("token")).write_text(TOKEN)
        return Root(self, "--tls-cert", self.path("certs/127.0.0.1.pem"),
                    "--tls-key", self.path("certs/127.0.0.1.key"),
                    "--tls-ca", self.path("certs/ca.pem"), "--credentials",
                    str(credentials), store=self.make_store("tls.db"))

    def ask(self, *names):
        place, = self.places["http"]
        body = json.dumps({"requests": [{"name": name} for name in names]})
        request = urllib.request.Request(
            f"http://{place}/v1/take", body.encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            self.verdicts.update(reply["verdict"] for reply in
                                 json.load(answer)["replies"])

    def page(self, address, scheme="http"):
        context = ssl.create_default_context(cafile=self.path(
            "certs/ca.pem")) if scheme == "https" else None
        request = urllib.request.Request(
            f"{scheme}://{address}/metrics",
            headers={"Authorization": "Bearer " + TOKEN})
        with urllib.request.urlopen(request, timeout=PATIENCE,
                                    context=context) as answer:
            self.assertRegex(answer.headers["Content-Type"],
                             "^text/plain; version=0.0.4")
            return answer.read().decode()

    def pages(self):
        return {"root": self.page(self.root.http),
                "region": self.page(self.region.http),
                "doorman": self.page(self.doorman.http),
                "tls": self.page(self.tls.http, "https"),
                "agent": self.page(self.places["http"][0])}


class OfFleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet()
        cls.addClassCleanup(cls.fleet.doCleanups)
        cls.fleet.setUp()
        cls.addClassCleanup(cls.fleet.tearDown)


class Metrics(OfFleet):
    def test_promtool_finds_nothing(self):
        for name, page in self.fleet.pages().items():
            done = subprocess.run(["promtool", "check", "metrics"],
                                  input=page, text=True, capture_output=True)
            said = done.stdout + done.stderr
            found = [line for line in said.splitlines()
                     if line.split()[0] not in DOORMANS]
            self.assertEqual(found, [], name)
            self.assertEqual(done.returncode == 0, not said, said)

    def test_every_name_is_told(self):
        told = set().union(*map(names_of, self.fleet.pages().values()))
        used = {name for _, query in queries() for name in NAME.findall(query)}
        used |= {name for rule in rules() for name in NAME.findall(
            rule["expr"])}
        self.assertGreater(len(used), 40)
        self.assertEqual(used - told, set())

    def test_a_page_has_an_end(self):
        """A page's length is bounded, however many names there are."""
        def lines(page):
            return len(page.splitlines())

        agent_before = lines(self.fleet.pages()["agent"])
        for start in range(0, 1000, 250):
            self.fleet.ask(*[f"user/{i}" for i in range(start, start + 250)])
        root = self.fleet.root.http
        until("all names are counted", lambda: int(float(re.search(
            r"^weir_quotas_used (\S+)$", self.fleet.page(root),
            re.M)[1])) >= 1000)
        pages = self.fleet.pages()
        for name in "passed_units_total", "limited_units_total", \
                "fill_units", "limit_units_per_second":
            self.assertEqual(len(series_of(pages["root"],
                                           "weir_quota_" + name)), TOP_MAX)
        self.assertEqual(lines(pages["agent"]), agent_before)
        # The quota that refused is among them.
        until("the refused units", lambda: (
            'weir_quota_limited_units_total{quota="full",mode="enforce"} 9\n'
            in self.fleet.page(root)))

    def test_agent_counts(self):
        page = self.fleet.pages()["agent"]
        self.assertGreaterEqual(self.fleet.verdicts["limited"], 9)
        for verdict in "passed", "limited":
            self.assertIn(f'weir_agent_decisions_total{{verdict="{verdict}"}} '
                          f"{self.fleet.verdicts[verdict]}\n", page)
        self.assertIn("weir_agent_unknown_requests_total 1\n", page)
        self.assertIn("weir_agent_roots_up 1\n", page)


class Dashboard(OfFleet):
    """A real Prometheus answers every query, and evaluates alerts."""

    def start_prometheus(self):
        path = self.fleet.path

        def job(name, address, **more):
            return {"job_name": name, **more,
                    "static_configs": [{"targets": [address]}]}

        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms",
                       "evaluation_interval": "500ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                job("weir-root", self.fleet.root.http),
                job("weir-root-eu", self.fleet.region.http),
                job("weir-root-doorman", self.fleet.doorman.http),
                job("weir-root-tls", self.fleet.tls.http, scheme="https",
                    authorization={"credentials_file": path("token")},
                    tls_config={"ca_file": path("certs/ca.pem")}),
                job("weir-agent", self.fleet.places["http"][0])]}
        Path(path("prometheus.yml")).write_text(yaml.safe_dump(config))
        log = open(path("prometheus.log"), "w+")
        self.addCleanup(log.close)
        self.prometheus = subprocess.Popen(
            ["prometheus", "--config.file=" + path("prometheus.yml"),
             "--storage.tsdb.path=" + path("tsdb"),
             "--web.listen-address=127.0.0.1:0", "--log.level=info"],
            stderr=log)

        def end():
            self.prometheus.terminate()
            self.prometheus.wait()
        self.addCleanup(end)

        def where():
            self.assertIsNone(self.prometheus.poll())
            text = Path(path("prometheus.log")).read_text()
            return re.search(r'Listening on" address=(127\.0\.0\.1:[1-9]\d*)',
                             text)
        self.prometheus_at = until("Prometheus listens", where)[1]

    def query(self, expression):
        """The samples; an error of Prometheus fails the test."""
        url = f"http://{self.prometheus_at}/api/v1/query?" + \
            urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is on its way up
                return []
            raise AssertionError(expression + ": " +
                                 error.read().decode()) from error

    def until_scraped(self):
        until_equal("all are scraped twice", ["5"], lambda: [
            sample["value"][1] for sample in self.query(
                "count(count_over_time(up[1m]) > 1 and up == 1)")])

    def check_queries(self):
        for panel, query in queries():
            query = query.replace('"$roots', '".*').replace('"$agents', '".*')
            query = query.replace("$__rate_interval", "1m")
            query = query.replace("$__interval", "1m")
            self.assertNotIn("$", query)
            if panel in QUIET or query.endswith("> 0"):
                self.query(query)
            else:
                until(f"{panel}: {query}", lambda: self.query(query))

    def check_alerts(self):
        """When a root dies, its alert and its agent's are pending at once;
        they fire after a while."""
        self.fleet.root.process.send_signal(signal.SIGKILL)
        for alert in "WeirAgentRootDown", "WeirRootDown":
            until(f"{alert} is on its way", lambda: self.query(
                f'ALERTS{{alertname="{alert}"}}'))

    def test_prometheus(self):
        if not shutil.which("prometheus"):
            self.skipTest("there is no prometheus in the PATH")
        self.start_prometheus()
        self.until_scraped()
        self.check_queries()
        self.assertEqual(self.query('ALERTS{alertstate="firing"}'), [])
        self.check_alerts()


if __name__ == "__main__":
    if not shutil.which("promtool"):
        print("skipped: there is no promtool in the PATH; Debian has it in "
              "prometheus (tools/install-deps.sh check)", file=sys.stderr)
        sys.exit(77)
    unittest.main()
