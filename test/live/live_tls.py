#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_tls.py - the command line towards a root that uses TLS: options and
environment, refusals and their texts."""

import unittest
from pathlib import Path

from live_cli import Case, Root
from patience import until

TOKEN = "sixteen-bytes-or-more"
FLAGS = {"ca": "tls-ca", "cert": "tls-cert", "key": "tls-key",
         "token": "token-file"}
NAMES = {"ca": "WEIR_TLS_CA", "cert": "WEIR_TLS_CERT", "key": "WEIR_TLS_KEY",
         "token": "WEIR_TOKEN_FILE"}


class Tls(Case):
    def setUp(self):
        super().setUp()
        for authority in "ours", "other":
            self.ok("cert", "ca", self.path(authority))
            self.ok("cert", "client", self.path(authority), "payments")
        self.ok("cert", "server", self.path("ours"), "127.0.0.1")
        self.write("credentials", "edit,take cert payments\n"
                                  f"read token dash {TOKEN}\n")
        self.write("token", TOKEN + "\n")
        self.root = Root(
            self, "--tls-cert", self.path("ours/127.0.0.1.pem"), "--tls-key",
            self.path("ours/127.0.0.1.key"), "--tls-ca",
            self.path("ours/ca.pem"), "--credentials",
            self.path("credentials"), store=self.make_store())

    def write(self, name, text):
        path = Path(self.path(name))
        path.touch(0o600)
        path.write_text(text)

    def files(self, authority="ours", who="ours", token=False):
        """The files to present: a certificate by the authority 'who'; and the
        trusted 'authority'."""
        files = {"ca": self.path(authority + "/ca.pem")} if authority else {}
        if who:
            files["cert"] = self.path(who + "/payments.pem")
            files["key"] = self.path(who + "/payments.key")
        if token:
            files["token"] = self.path("token")
        return files

    def weir(self, *words, **files):
        options = [f"--{FLAGS[k]}={v}" for k, v in self.files(**files).items()]
        return self.run_weir(*words, *options, root=self.root)

    def passes(self, *words, **files):
        result = self.weir(*words, **files)
        self.assertEqual(result.status, 0, result.err)

    def refused(self, text, *words, **files):
        """Runs a command that must fail with 'text'; returns its error."""
        result = self.weir(*words, **files)
        self.assertEqual(result.status, 2, result.out + result.err)
        self.assertIn(text, result.err)
        self.assertNotIn(TOKEN, result.err)
        return result.err

    def refused_to_take(self, text, **files):
        """The same for a limiter. It tries again until its time is over, and
        its error is that of the last try. The time is extended until one try
        fits."""
        seconds = 0.1
        results = []

        def says_why():
            nonlocal seconds
            results.append(self.weir("take", "a", f"--timeout={seconds:g}s",
                                     **files))
            seconds *= 2
            return text in results[-1].err
        until(f"a limiter that says: {text}", says_why)
        for result in results:
            self.assertEqual(result.status, 2, result.out + result.err)
            self.assertNotIn(TOKEN, result.err)
        self.assertNotIn("start one with", results[-1].err)
        return results[-1].err

    def test_options_and_environment(self):
        self.passes("quota", "set", "a", "limit=1/h")
        self.passes("take", "a")
        self.assertEqual(self.weir("take", "a").status, 1)
        self.passes("status")
        self.passes("top", "--once", "--interval=50ms")
        for kind, path in self.files(who=None, token=True).items():
            self.env[NAMES[kind]] = path
        self.ok("quota", "get", "a", root=self.root)
        # An option overrides the environment.
        result = self.run_weir("quota", "get", "a", "--tls-ca",
                               self.path("other/ca.pem"), root=self.root)
        self.assertIn("no authority that we trust", result.err)
        self.assertIn("--tls-ca", self.ok("take", "--help"))

    def test_wrong_credentials(self):
        """Each error is a sentence, the same for a read, an edit and a limiter.
        After a refused handshake an edit's error doesn't say that the edit may
        have arrived."""
        wrongs = [
            ("does it want TLS?", dict(authority=None, who=None)),
            ("from no authority that we trust", dict(authority="other")),
            ("it doesn't know its authority", dict(who="other")),
            ("a credential is required", dict(who=None)),
        ]
        for text, files in wrongs:
            with self.subTest(text):
                self.refused(text, "quota", "ls", **files)
                self.refused_to_take(text, **files)
                said = self.refused(text, "quota", "set", "a", "limit=1/s",
                                    **files)
                if "ca" in self.files(**files):
                    self.assertNotIn("look whether", said)
                    self.assertNotIn("start one with", said)
        token = dict(who=None, token=True)
        self.passes("quota", "ls", **token)
        self.refused("role 'edit'", "quota", "set", "a", "limit=1/s", **token)
        said = self.refused_to_take("role 'take'", **token)
        self.assertIn("give it that role in the root's", said)
        self.assertEqual(self.ok("quota", "ls", "--json", *[
            f"--{FLAGS[k]}={v}" for k, v in self.files().items()],
            root=self.root).strip(), "[]")

    def test_files_that_cannot_be_used(self):
        for words in ("quota", "ls"), ("take", "a"):
            for option, text in (
                    ("--tls-ca=nothing", "nothing: it can't be read: No such"),
                    (f"--tls-ca={self.path('token')}", "no whole PEM file"),
                    ("--tls-cert=a.pem", "named together"),
                    ("--token-file=nothing", "the token can't be read")):
                with self.subTest(option):
                    result = self.run_weir(*words, option, root=self.root)
                    self.assertEqual(result.status, 2)
                    self.assertIn(text, result.err)
                    self.assertNotIn(TOKEN, result.err)

    def test_no_token_in_plain_text(self):
        for words in ("quota", "ls"), ("take", "a"):
            result = self.run_weir(*words, "--token-file", self.path("token"),
                                   root="192.0.2.1:7077")
            self.assertEqual(result.status, 2)
            self.assertIn("a token isn't sent to 192.0.2.1 in plain text",
                          result.err)


if __name__ == "__main__":
    unittest.main()
