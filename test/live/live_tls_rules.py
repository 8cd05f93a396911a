#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_tls_rules.py - the rules for TLS at every port and towards every server:
which cipher suites are agreed on with the openssl command, and certificates
that have expired or aren't valid yet, at the start and at a reload."""

import re
import subprocess
import unittest

from identities import WEIR, yesterday
from live_agent_tls import Agent
from live_security import Case
from patience import PATIENCE, until

# `weir cert` makes keys of P-256; test_tls_rules has all suites, and RSA.
LISTED = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
          "ECDHE-ECDSA-CHACHA20-POLY1305"]
REFUSED = ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA",
           "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384",
           "ECDHE-ECDSA-AES128-CCM", "ECDHE-ECDSA-CAMELLIA128-SHA256"]


def only(suite):
    return ["-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0"]


class Ports(Agent):
    def agreed(self, port, alpn, *options):
        """The suite that s_client and a port agree on, or None."""
        done = subprocess.run(
            ["openssl", "s_client", "-connect", f"localhost:{port}", "-CAfile",
             str(self.certificates.ca), *alpn, *options],
            text=True, errors="replace", capture_output=True,
            timeout=PATIENCE, stdin=subprocess.DEVNULL)
        suite = re.search(r"Cipher is (\S+)", done.stdout)[1]
        return None if suite == "(NONE)" else suite

    def test_suites(self):
        h2, http1 = ["-alpn", "h2"], ["-alpn", "http/1.1"]
        ports = [(self.root.grpc, h2), (self.root.http, http1),
                 (self.port("http"), http1), (self.port("rls"), h2),
                 (self.port("resp"), [])]
        for port, alpn in ports:
            for suite in LISTED:
                self.assertEqual(self.agreed(port, alpn, *only(suite)), suite)
            for suite in REFUSED:
                self.assertIsNone(self.agreed(port, alpn, *only(suite)), suite)
            self.assertRegex(self.agreed(port, alpn, "-tls1_3"), "^TLS_")
            self.assertIsNone(self.agreed(port, alpn, "-tls1_1", "-cipher",
                                          "ALL:@SECLEVEL=0"))


class Servers(Case):
    def visited(self, suite, *command):
        """Runs a command whose root is s_server with that suite; returns the
        output of both."""
        server = subprocess.Popen(
            ["openssl", "s_server", "-accept", "localhost:0", "-cert",
             str(self.cert), "-key", str(self.key), "-alpn", "h2", "-naccept",
             "1", *only(suite)],
            text=True, errors="replace", stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for line in server.stdout:
                if line.startswith("ACCEPT"):
                    break
            client = subprocess.Popen(
                [WEIR, *command, "--roots", "localhost:" +
                 line.rpartition(":")[2].strip(), "--tls-ca",
                 str(self.certificates.ca)],
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said = []
            for line in server.stdout:
                said.append(line)
                if "CIPHER is" in line or "no shared cipher" in line:
                    break
        finally:
            server.kill()
            server.communicate()
        return "".join(said), client.communicate(timeout=PATIENCE)[0]

    def test_suites(self):
        for command in ["quota", "ls"], ["take", "a", "--timeout=100ms"]:
            for suite in LISTED:
                said, _ = self.visited(suite, *command)
                self.assertIn(f"CIPHER is {suite}", said)
            for suite in REFUSED:
                said, answer = self.visited(suite, *command)
                self.assertIn("no shared cipher", said)
                if command[0] == "quota":
                    self.assertIn("it has no cipher that we have", answer)


class Days(Agent):
    """'early' is valid from tomorrow on, 'late' was valid until yesterday."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        good, day = cls.shared / "good", 86400
        cls.wrong = [
            (cls.certificates.by_openssl(cls.shared / "early", 30, good,
                                         yesterday(2 * day)),
             "early.pem: the certificate of 'ops' isn't valid before 20"),
            (cls.certificates.by_openssl(cls.shared / "late", -1, good),
             "late.pem: the certificate of 'ops' expired at 20")]

    def test_start(self):
        link = ["--roots", f"localhost:{self.root.grpc}", "--tls-ca",
                str(self.certificates.ca)]
        named = ["--credentials", str(self.credentials)]
        commands = [
            ("--tls", ["serve", "--store", f"sqlite:{self.folder}/q.db",
                       "--listen", "localhost:0", "--http", "off", *named]),
            ("--listener-tls", ["agent", *link, "--http", "127.0.0.1:0",
                                *named]),
            ("--tls", ["agent", *link, "--http", "127.0.0.1:0"]),
            ("--tls", ["take", "a", *link]),
            ("--tls", ["quota", "ls", *link])]
        for files, text in self.wrong:
            for prefix, words in commands:
                done = subprocess.run(
                    [WEIR, *words, f"{prefix}-cert={files}.pem",
                     f"{prefix}-key={files}.key"],
                    text=True, capture_output=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, done.stderr)
                self.assertIn("correct the clock", done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_reload(self):
        """The former certificate stays in use at root and agent."""
        for files, text in self.wrong:
            self.show_certificate(files)
            for log in self.root.log, self.log:
                until("a line in the log", lambda: re.search(
                    "aren't reloaded, the old ones stay: .*" +
                    re.escape(text.partition(": ")[2]), log.read_text()))
            self.assertEqual(self.sealed(self.ops).said, "+PONG")
            self.assertEqual(self.ask(self.ops, "GET", "/v1/status")[0], 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
