#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_cli.py - `weir serve` and the command line as a newcomer uses them:
real processes, real ports (0: any), a home of their own. A test that waits
asks again until a deadline; none sleeps for a fixed time. Limits are per hour,
so that a bucket doesn't leak a unit during a test, however long that takes."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from patience import PATIENCE, until, until_equal

WEIR = os.environ.get("WEIR") or str(Path(os.environ["WEIR_BUILD"]) / "weir")


class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr


class Root:
    """A `weir serve` on ports of its own. With `ready`, it has read its
    quotas: before, it answers 503."""

    def __init__(self, case, *options, store=None, env=None, ready=True):
        self.case = case
        self.log_path = case.path(f"log{len(case.roots)}")
        self.ports_path = case.path(f"ports{len(case.roots)}")
        Path(self.ports_path).unlink(missing_ok=True)
        self.log = open(self.log_path, "w+")
        named = ["--store", store] if store else []
        self.process = subprocess.Popen(
            [WEIR, "serve", "--listen", "127.0.0.1:0", "--http",
             "127.0.0.1:0", "--port-file",
             self.ports_path, *named, *options],
            stderr=self.log, env=env or case.env)
        case.roots.append(self)
        until("the port file", self.has_ports)
        if ready:
            until("ready", lambda: "ready; quotas: " in self.logged())
        text = Path(self.ports_path).read_text()
        self.ports = dict(line.split("=") for line in text.split())
        self.address, self.http = self.ports["listen"], self.ports["http"]

    def has_ports(self):
        if self.process.poll() is not None:
            raise AssertionError("weir serve ended: " + self.logged())
        return os.path.exists(self.ports_path)

    def logged(self):
        return Path(self.log_path).read_text()

    def wait_awake(self):
        """Waits until its loop runs. ThreadSanitizer's runtime in clang 14
        loses a signal that comes while the first wait of a thread allocates
        the thread's signal context: the signal is recorded in a context that
        is then overwritten. Any answer, also an alert of TLS, comes later."""
        host, port = self.http.rsplit(":", 1)
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            try:
                link.recv(1)
            except ConnectionError:
                pass

    def stop(self):
        self.wait_awake()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def get(self, path, method="GET", body=None, headers=None):
        """(status, text) over HTTP."""
        request = urllib.request.Request(
            f"http://{self.http}{path}", method=method,
            data=body.encode() if body else None,
            headers={"Content-Type": "application/json"} | (headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-live-")
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("WEIR", "XDG"))}
        self.env["HOME"] = self.folder
        self.roots = []

    def tearDown(self):
        for root in self.roots:
            if root.process.poll() is None:
                root.process.kill()
                root.process.wait()
            elif root.process.returncode not in (0, -signal.SIGKILL):
                print("a root died by itself:\n" + root.logged(),
                      file=sys.stderr)
            root.log.close()
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def make_store(self, name="q.db"):
        url = "sqlite:" + self.path(name)
        self.assertEqual(self.run_weir("store", "init", url).status, 0)
        return url

    def run_weir(self, *arguments, root=None, stdin=None,
                 patience=PATIENCE):
        env = dict(self.env)
        if root:
            env["WEIR_ROOTS"] = root if isinstance(root, str) else \
                root.address
        if "take" in arguments[:1] and "--timeout" not in str(arguments):
            # The fleet's counts decide, on a busy machine too.
            arguments = (*arguments, f"--timeout={PATIENCE}s")
        return Result(subprocess.run(
            [WEIR, *arguments], env=env, input=stdin, text=True,
            capture_output=True, timeout=2 * patience))

    def ok(self, *arguments, root=None, stdin=None, patience=PATIENCE):
        result = self.run_weir(*arguments, root=root, stdin=stdin,
                               patience=patience)
        self.assertEqual(result.status, 0, result.err)
        return result.out

    def fails(self, pattern, *arguments, root=None, stdin=None):
        """The command ends with status 2, and its error matches 'pattern'."""
        result = self.run_weir(*arguments, root=root, stdin=stdin)
        self.assertEqual(result.status, 2, result.out + result.err)
        self.assertRegex(result.err, pattern)
        self.assertTrue(result.err.startswith("weir: "), result.err)
        return result.err


class Quickstart(Case):
    def test_first_minute(self):
        root = Root(self)
        self.assertTrue(os.path.exists(
            self.path(".local/share/weir/weir.db")))
        self.assertIn("no quotas yet",
                      self.run_weir("quota", "ls", root=root).err)
        self.assertIn("created", self.ok(
            "quota", "set", "hello", "limit=3/s", "high_burst=3", root=root))
        self.assertEqual(root.stop(), 0)
        again = Root(self)
        self.assertIn("3/s", self.ok("quota", "ls", root=again))
        self.assertEqual(again.stop(), 0)

    def test_data_folder_is_named(self):
        env = dict(self.env, XDG_DATA_HOME=self.path("data"))
        Root(self, env=env)
        self.assertTrue(os.path.exists(self.path("data/weir/weir.db")))

    def test_take_passes_and_is_limited(self):
        root = Root(self)
        self.ok("quota", "set", "hello", "limit=1/h", "low_burst=3",
                "high_burst=3", root=root)
        self.assertEqual(self.ok("take", "hello", root=root), "passed\n")
        result = self.run_weir("take", "-n", "5", "hello", root=root)
        self.assertEqual(result.status, 1)
        # The first process reported before the second one began.
        self.assertEqual(result.out, "passed 2, limited 3\n")
        result = self.run_weir("take", "hello", root=root)
        self.assertEqual(result.status, 1)
        self.assertRegex(result.out, r"limited by hello; try again in \d")
        self.assertEqual(self.ok("take", "--refund", "hello", root=root),
                         "refunded\n")
        self.assertEqual(self.ok("take", "hello", root=root), "passed\n")
        result = self.run_weir("take", "--peek", "--json", "hello", root=root)
        self.assertEqual(json.loads(result.out)["verdict"], "limited")
        result = self.run_weir("take", "-w", "9", "hello", root=root)
        self.assertRegex(result.out, "never lets 9 units through")
        result = self.run_weir("take", "-w", "9", "--json", "hello",
                               root=root)
        self.assertIsNone(json.loads(result.out)["retry_after_s"])
        result = self.run_weir("take", "--json", "nobody", root=root)
        self.assertIsNone(json.loads(result.out)["remaining"])
        result = self.run_weir("take", "nobody", root=root)
        self.assertEqual(result.status, 0)
        self.assertIn("no quota rules 'nobody'", result.err)
        top = json.loads(self.ok("top", "--once", "--json", "--interval",
                                 "100ms", root=root))
        self.assertEqual([q["name"] for q in top["quotas"]], ["hello"])
        self.assertIn("limiters", self.ok("status", root=root))

    def test_shadow_says_what_it_would_do(self):
        root = Root(self)
        self.ok("quota", "set", "ghost", "limit=0", "mode=shadow", root=root)
        self.assertEqual(self.ok("take", "ghost", root=root),
                         "passed (shadow: would be limited by ghost)\n")
        until_equal("the report", [("ghost", "shadow", 1)], lambda: [
            (q["name"], q["mode"], q["limited"]) for q in
            json.loads(root.get("/v1/usage")[1])["quotas"]])
        self.assertIn('weir_quota_limited_units_total{quota="ghost",'
                      'mode="shadow"} 1\n', root.get("/metrics")[1])
        self.assertRegex(self.ok("top", "--once", "--interval", "50ms",
                                 root=root), "ghost +shadow +0 ")
        top = json.loads(self.ok("top", "--once", "--json", "--interval",
                                 "50ms", root=root))
        self.assertEqual(top["quotas"][0]["mode"], "shadow")
        # The quota of the chain that is in shadow is named, here the parent.
        self.ok("quota", "set", "body", "parent=ghost", root=root)
        self.assertEqual(self.ok("take", "body", root=root),
                         "passed (shadow: would be limited by ghost)\n")
        self.assertEqual(self.ok("take", "-n", "2", "body", root=root),
                         "passed 2 (shadow: 2 would be limited), limited 0\n")
        self.ok("quota", "set", "g/*", "limit=0", "mode=shadow", root=root)
        self.assertIn("(shadow: would be limited",
                      self.ok("take", "g/1", root=root))

    def test_take_waits(self):
        root = Root(self)
        self.ok("quota", "set", "slow", "limit=20/s", "low_burst=1",
                "high_burst=1", root=root)
        self.assertEqual(self.ok("take", "--wait", "-n", "4", "slow",
                                 root=root), "passed 4, limited 0\n")
        self.ok("quota", "set", "never", "limit=0", root=root)
        self.assertEqual(self.run_weir("take", "--wait=50ms", "never",
                                       root=root).status, 1)

    def test_no_root(self):
        self.fails(r"no root answers at 127.0.0.1:1 \(.*\); start one with "
                   "`weir serve`", "quota", "ls", "--roots", "127.0.0.1:1")
        self.fails("no root sent its quotas within 100ms", "take", "a",
                   "--timeout", "100ms", "--roots", "127.0.0.1:1")
        self.fails("(?s)127.0.0.1:1 .*127.0.0.1:2", "status", "--roots",
                   "127.0.0.1:1,127.0.0.1:2")
        self.fails("--roots", "quota", "ls", "--roots", "nonsense")
        for words in ("quota", "ls"), ("take", "a"):
            self.fails("write HOST:PORT, without http://", *words, "--roots",
                       "http://127.0.0.1:1")


class Quotas(Case):
    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())

    def test_set_changes_only_what_is_named(self):
        said = self.ok("quota", "set", "a", "limit=90000/s", "labels=b=2,a=1",
                       "description=what: it is", root=self.root)
        self.assertEqual(said, "created a: limit=90000/s labels=a=1,b=2 "
                               "description=what: it is\n")
        self.ok("quota", "set", "a", "mode=shadow", root=self.root)
        quota = json.loads(self.ok("quota", "get", "a", "--json",
                                   root=self.root))
        self.assertEqual(quota["limit"], "90000/s")
        self.assertEqual(quota["mode"], "shadow")
        self.assertEqual(quota["labels"], {"a": "1", "b": "2"})
        self.ok("quota", "set", "a", "mode=", root=self.root)
        self.assertRegex(self.ok("quota", "get", "a", root=self.root),
                         "mode +enforce")

    def test_units(self):
        for limit in ("90000/s", "100MiB/s", "100/min", "1/day", "0",
                      "unlimited", "3/10s"):
            self.ok("quota", "set", "u", "limit=" + limit, root=self.root)
            quota = json.loads(self.ok("quota", "get", "u", "--json",
                                       root=self.root))
            self.assertEqual(quota["limit"], limit)

    def test_ls_tree_rm(self):
        self.ok("quota", "import", "-", root=self.root, stdin="""
weir: 1
quotas:
  - {name: site, limit: 1000/s}
  - {name: client/*, limit: 50/s, parent: site}
  - {name: bucket/*, limit: 9/s}
  - {name: put/*, limit: 5/s, parent: 'bucket/{1}'}
""")
        names = [line.split()[0] for line in
                 self.ok("quota", "ls", root=self.root).splitlines()[1:]]
        self.assertEqual(names, ["bucket/*", "client/*", "put/*", "site"])
        self.assertNotIn("site", self.ok("quota", "ls", "c*",
                                         root=self.root).split("\n")[1][:5])
        self.assertEqual(self.ok("quota", "tree", root=self.root),
                         "bucket/*  9/s\n"
                         "└─ put/*  5/s\n"
                         "site  1000/s\n"
                         "└─ client/*  50/s\n")
        self.fails("'site' has children", "quota", "rm", "site",
                   root=self.root)
        self.assertEqual(self.ok("quota", "rm", "site", "client/*",
                                 root=self.root), "removed 2\n")
        self.assertEqual(len(json.loads(self.ok("quota", "ls", "--json",
                                                root=self.root))), 2)

    def test_round_trip(self):
        entries = [f"- {{name: q{i}, limit: {i + 1}/min, "
                   f"labels: {{n: '{i}'}}}}" for i in range(2500)]
        entries.append("- {name: child, parent: q7, high_burst: 3, "
                       "description: \"a: 'b' # c\"}")
        text = "weir: 1\nquotas:\n" + "\n".join(entries) + "\n"
        self.assertEqual(self.ok("quota", "import", "-", root=self.root,
                                 stdin=text),
                         "created 2501, changed 0, unchanged 0, removed 0\n")
        out = self.ok("quota", "export", root=self.root)
        self.assertEqual(self.ok("quota", "import", "--replace", "-",
                                 root=self.root, stdin=out),
                         "created 0, changed 0, unchanged 2501, removed 0\n")
        self.assertEqual(self.ok("quota", "export", root=self.root), out)
        file = self.path("two.yaml")
        Path(file).write_text("weir: 1\nquotas:\n  - name: q0\n"
                              "    limit: 7/s\n")
        self.assertEqual(self.ok("quota", "import", "--replace", file,
                                 root=self.root),
                         "created 0, changed 1, unchanged 0, removed 2500\n")

    def test_bad_quotas(self):
        self.ok("quota", "set", "a", "limit=5/s", root=self.root)
        self.ok("quota", "set", "b", "parent=a", root=self.root)
        for pattern, arguments in (
                ("parent 'nope' doesn't exist", ["c", "parent=nope"]),
                ("a -> b -> a", ["a", "parent=b"]),
                ("'a' exists already", ["--new", "a", "limit=1/s"]),
                ("too long", ["x" * 256, "limit=1/s"]),
                ("write limit=unlimited", ["c", "limit="]),
                ("negative", ["c", "limit=-1/s"]),
                ("NaN", ["c", "limit=NaN"]),
                ("low_burst 9 is above high_burst 8",
                 ["c", "limit=1/s", "low_burst=9", "high_burst=8"]),
                ("could be leased; write a limit", ["c", "sharing=leased"]),
                ("raise max or lower min",
                 ["c", "kind=concurrency", "sharing=adaptive", "min=9",
                  "max=3"]),
                ("did you mean 'limit'", ["c", "limt=1/s"]),
                ("no field 'foo'; see", ["c", "foo=bar"]),
                ("character 0x07 at byte 3; .*only tab and newline",
                 ["c", "description=a\n\a"]),
                ("character 0x85", ["c", "description=\x85"]),
                ("the store's to set", ["c", "id=1"]),
                ("has no value", ["c", "limit"]),
                ("twice", ["c", "limit=1/s", "limit=2/s"]),
                ("which quota", [])):
            with self.subTest(pattern):
                self.fails(pattern, "quota", "set", *arguments,
                           root=self.root)
        self.fails("no quota 'zz'", "quota", "get", "zz", root=self.root)
        self.fails("no quota 'zz'", "quota", "rm", "zz", root=self.root)
        result = self.run_weir("quota", "rm", "zz", "--json", root=self.root)
        self.assertEqual((result.status, result.out), (2, ""))
        self.assertEqual(self.run_weir("top", "--once", "--interval", "10ms",
                                       "nosuch", root=self.root).err,
                         "nothing in use matches 'nosuch'\n")
        listed = json.loads(self.ok("quota", "ls", "--json", root=self.root))
        self.assertEqual([q["name"] for q in listed], ["a", "b"])

    def test_bad_files(self):
        file = self.path("bad.yaml")
        for text, line, column, pattern in (
                ("weir: 1\nquotas:\n  - name: a\n    limitt: 3/s\n", 4, 5,
                 "did you mean 'limit'"),
                ("weir: 1\nquotas:\n  - name: a\n  - name: a\n", 4, None,
                 "twice|already|again"),
                ("weir: 1\nquotas: [\n", 3, None, "."),
                ("weir: 1\nquotas:\n\t- name: a\n", 3, None, "."),
                ("quotas: []\n", 2, 1, "weir: 1"),
                ("weir: 1\nquotas:\n  - name: a\n    limit: lots\n", 4, 12,
                 "lots"),
                ("weir: 1\nquotas:\n  - &x {name: a}\n", 3, None, "anchor")):
            with self.subTest(text):
                Path(file).write_text(text)
                said = self.fails(pattern, "quota", "import", file,
                                  root=self.root)
                place = re.match(rf"weir: {re.escape(file)}:(\d+):(\d+): ",
                                 said)
                self.assertTrue(place, said)
                self.assertEqual(int(place[1]), line, said)
                if column:
                    self.assertEqual(int(place[2]), column, said)
        self.fails("'x' doesn't exist.*nothing was changed", "quota",
                   "import", "-", root=self.root,
                   stdin="weir: 1\nquotas: [{name: a, parent: x}]\n")
        self.fails("No such file", "quota", "import", self.path("none"))
        self.assertEqual(json.loads(self.ok("quota", "ls", "--json",
                                            root=self.root)), [])

    def test_typos(self):
        self.fails("did you mean `weir quota`", "qouta")
        self.fails("did you mean `weir quota ls`", "quota", "lst")
        self.fails("did you mean --usage", "quota", "ls", "--usgae")
        self.fails("needs a value", "quota", "ls", "--roots")
        self.assertEqual(self.run_weir().status, 2)
        for words in ([], ["quota"], ["quota", "set"], ["take"], ["serve"],
                      ["top"], ["status"], ["store"]):
            text = self.ok("help", *words)
            self.assertIn("\n    weir ", text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, line)


class History(Case):
    """The log of edits, and undoing them."""

    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())

    def test_one_edit_of_two_quotas(self):
        """One entry in the log, one undo."""
        self.ok("quota", "set", "site", root=self.root)
        self.ok("quota", "set", "part", "parent=site", root=self.root)
        self.assertEqual(self.ok("quota", "rm", "site", "part",
                                 root=self.root), "removed 2\n")
        log = self.ok("quota", "log", "--max", "3", root=self.root)
        when = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  anonymous +"
        lines = log.splitlines()
        self.assertRegex(lines[1], when + "4  site +removed")
        self.assertRegex(lines[2], r"^ +3  part +removed")
        self.assertRegex(lines[3], when + "2  part +created")
        self.ok("quota", "undo", "3", root=self.root)
        self.assertEqual(len(json.loads(self.ok("quota", "ls", "--json",
                                                root=self.root))), 2)

    def test_log_and_undo(self):
        self.ok("quota", "set", "site", "limit=5/s", "labels=a=1,b=2",
                root=self.root)
        self.ok("quota", "set", "site", "limit=6/s", "mode=shadow",
                root=self.root)
        self.ok("quota", "set", "other", root=self.root)
        self.ok("quota", "rm", "other", root=self.root)
        log = self.ok("quota", "log", root=self.root).splitlines()
        self.assertRegex(log[0], "^WHEN +IDENTITY +EPOCH +QUOTA +CHANGE$")
        when = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  anonymous +"
        for line, said in zip(log[1:], (
                "4  other  removed", "3  other  created",
                "2  site   limit 5/s -> 6/s, mode enforce -> shadow",
                "1  site   created limit=5/s labels=a=1,b=2")):
            self.assertRegex(line, when + said + "$")
        self.assertEqual(len(log), 5)
        self.assertEqual(self.ok("quota", "log", "site", "--max", "1",
                                 root=self.root).count("\n"), 2)
        entries = json.loads(self.ok("quota", "log", "--json",
                                     root=self.root))
        self.assertEqual([e["epoch"] for e in entries], [4, 3, 2, 1])

        self.fails("changed since, by 'anonymous' on 20.*nothing was undone",
                   "quota", "undo", "1", root=self.root)
        self.assertEqual(self.ok("quota", "undo", "2", root=self.root),
                         "undone: the edit of epoch 2; the epoch is now 5\n")
        site = json.loads(self.ok("quota", "get", "site", "--json",
                                  root=self.root))
        self.assertEqual((site["limit"], site["mode"]), ("5/s", "enforce"))
        # An undo can be undone.
        self.ok("quota", "undo", "5", root=self.root)
        self.assertIn("6/s", self.ok("quota", "get", "site", root=self.root))
        self.fails("the log knows no edit of epoch 77", "quota", "undo",
                   "77", root=self.root)
        self.fails("one EPOCH, please", "quota", "undo", "last",
                   root=self.root)
        self.fails("--max", "quota", "log", "--max", "0", root=self.root)

    def test_log_of_more_than_a_page(self):
        text = "weir: 1\nquotas:\n" + "".join(
            f"- {{name: q{i}}}\n" for i in range(1500))
        self.ok("quota", "import", "-", root=self.root, stdin=text)
        entries = json.loads(self.ok("quota", "log", "--json", "--max",
                                     "5000", root=self.root))
        self.assertEqual([e["epoch"] for e in entries],
                         list(range(1500, 0, -1)))
        self.assertEqual({e["edit"] for e in entries}, {1500})
        self.ok("quota", "undo", "700", root=self.root)
        self.assertEqual(self.ok("quota", "ls", root=self.root), "")


SHADOW = """weir: 1
quotas:
  - {name: site, limit: 1000/s}
  - {name: client/*, limit: 1/h, low_burst: 3, high_burst: 3, parent: site}
  - {name: extra, limit: 0/s}
"""


class Shadow(Case):
    """A whole shadow set beside the live one."""

    def setUp(self):
        super().setUp()
        self.root = Root(self, store=self.make_store())
        self.ok("quota", "set", "site", "limit=1000/s", root=self.root)
        self.ok("quota", "set", "client/*", "limit=50/s", "parent=site",
                root=self.root)
        self.file = self.path("new.yaml")
        Path(self.file).write_text(SHADOW)

    def usage(self, query):
        quotas = json.loads(self.root.get("/v1/usage" + query)[1])["quotas"]
        return {q["name"]: (q["passed"], q["limited"]) for q in quotas}

    def test_what_it_would_do_is_seen(self):
        before = self.ok("quota", "export", root=self.root)
        self.assertEqual(self.ok("quota", "import", "--shadow", self.file,
                                 root=self.root),
                         "created 3, changed 0, unchanged 0, removed 0\n")
        self.assertEqual(self.ok("quota", "export", root=self.root), before)
        self.assertIn("name: extra", self.ok("quota", "export", "--shadow",
                                             root=self.root))
        self.assertEqual(self.ok("take", "-n", "10", "client/1",
                                 root=self.root), "passed 10, limited 0\n")
        self.assertEqual(self.ok("take", "-n", "4", "extra",
                                 root=self.root), "passed 4, limited 0\n")
        until_equal("the reports", {
            "client/1": (3, 7), "site": (3, 0), "extra": (0, 4)},
            lambda: self.usage("?shadow=1"))
        self.assertEqual(self.usage(""), {"client/1": (10, 0),
                                          "site": (10, 0)})
        self.assertNotIn("shadow:", self.root.get("/metrics")[1])
        self.assertNotIn("shadow:", self.root.get("/v1/quotas?usage=1")[1])

        diff = self.ok("quota", "diff", root=self.root)
        self.assertEqual([line.split() for line in diff.splitlines()], [
            ["QUOTA", "FIELD", "LIVE", "SHADOW", "LIMITED", "WOULD", "BE"],
            ["client/*", "limit", "50/s", "1/h", "0", "(0.0%)", "7",
             "(70.0%)"],
            ["low_burst", "1s", "3"],
            ["high_burst", "1.5s", "3"],
            ["extra", "limit", "(no", "quota)", "0", "-", "4", "(100.0%)"]])
        self.assertRegex(self.ok("quota", "diff", self.file, root=self.root),
                         r"QUOTA +FIELD +LIVE +FILE +LIMITED\n"
                         r"client/\* +limit +50/s +1/h +0 \(0.0%\)\n")
        top = json.loads(self.ok("top", "--shadow", "--once", "--json",
                                 "--interval", "50ms", root=self.root))
        shadow = {q["name"]: q["shadow"]["limit"] for q in top["quotas"]}
        self.assertEqual(shadow, {"client/1": "1/h", "site": "1000/s",
                                  "extra": "0"})
        self.assertRegex(self.ok("top", "--shadow", "--once", "--interval",
                                 "50ms", root=self.root),
                         r"(?s)WOULD BE.*client/1 +50/s.* 1/h ")

    def test_processes_that_follow_each_other(self):
        """Each process begins with the fleet's counts, in the chain and in the
        shadow set."""
        tight = "limit=1/h low_burst=3 high_burst=3".split()
        self.ok("quota", "set", "top", *tight, root=self.root)
        self.ok("quota", "set", "job/*", "limit=100/s", "parent=top",
                root=self.root)
        results = [self.run_weir("take", "job/1", root=self.root)
                   for _ in range(5)]
        self.assertEqual([r.status for r in results], [0, 0, 0, 1, 1])
        Path(self.file).write_text(
            "weir: 1\nquotas:\n"
            "  - {name: over, limit: 1/h, low_burst: 3, high_burst: 3}\n"
            "  - {name: client/*, parent: over}\n")
        self.ok("quota", "import", "--shadow", self.file, root=self.root)
        for _ in range(5):
            self.ok("take", "client/1", root=self.root)
        until_equal("the reports", {"client/1": (3, 2), "over": (3, 2)},
                    lambda: self.usage("?shadow=1"))

    def test_promote_undo_discard(self):
        self.fails("there is no shadow set; `weir quota import FILE "
                   "--shadow`", "quota", "promote", root=self.root)
        self.fails("there is no shadow set", "quota", "diff", root=self.root)
        self.ok("quota", "set", "goes", root=self.root)
        before = self.ok("quota", "export", root=self.root)
        self.ok("quota", "import", "--shadow", self.file, root=self.root)
        shadow = self.ok("quota", "export", "--shadow", root=self.root)
        self.assertEqual(self.ok("quota", "promote", root=self.root),
                         "created 1, changed 1, unchanged 1, removed 1\n")
        self.assertEqual(self.ok("quota", "export", root=self.root), shadow)
        newest = json.loads(self.ok("quota", "log", "--json", "--max", "1",
                                    root=self.root))[0]
        self.ok("quota", "undo", str(newest["epoch"]), root=self.root)
        self.assertEqual(self.ok("quota", "export", root=self.root), before)
        self.assertEqual(self.ok("quota", "export", "--shadow",
                                 root=self.root), shadow)
        self.assertEqual(self.ok("quota", "discard", root=self.root),
                         "removed 3 from the shadow set\n")
        self.assertEqual(self.ok("quota", "export", root=self.root), before)

    def test_a_set_in_parts(self):
        """A root accepts 64 MiB at once, and is sent 16. Here children come
        before their parents, so the set can't be cut anywhere. It is exported
        in more than one message."""
        count = 4000
        more = f"description: {'x' * 1000}, labels: {{a: {'y' * 3500}}}"
        with open(self.file, "w") as file:
            file.write("weir: 1\nquotas:\n")
            for i in range(count):
                parent = f"parent: q{i + 10}, " \
                    if i % 20 < 10 and i + 10 < count else ""
                file.write(f"  - {{name: q{i}, {parent}{more}}}\n")
        self.ok("quota", "import", "--shadow", "-", root=self.root,
                stdin="weir: 1\nquotas:\n  - {name: before}\n")
        self.assertEqual(self.ok("quota", "import", "--shadow", self.file,
                                 root=self.root),
                         f"created {count}, changed 0, unchanged 0, "
                         "removed 1\n")
        out = self.ok("quota", "export", "--shadow", root=self.root)
        self.assertEqual(out.count("- name: q"), count)
        listed = json.loads(self.root.get("/v1/quotas?shadow=1")[1])
        self.assertEqual(listed["total"], count)
        # The undo reverts the last part alone.
        self.ok("quota", "undo", str(listed["epoch"]), root=self.root)
        listed = json.loads(self.root.get("/v1/quotas?shadow=1")[1])
        self.assertTrue(0 < listed["total"] < count, listed["total"])

    def test_a_root_that_goes_away_may_have_taken_it(self):
        """A root that accepts the connection, and ends it at the first call."""
        def lose(listener):
            connection, _ = listener.accept()
            connection.sendall(b"\0\0\0\4\0\0\0\0\0")
            seen = b""
            while b"ones" not in seen:
                part = connection.recv(65536)
                seen += part
                if not part:
                    break  # the command has ended, with an error
            connection.close()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            loser = threading.Thread(target=lose, args=(listener,))
            loser.start()
            root = f"127.0.0.1:{listener.getsockname()[1]}"
            said = self.fails("went away.*look whether the change was made",
                              "quota", "import", "--shadow", "-", root=root,
                              stdin="weir: 1\nquotas:\n  - {name: ones}\n")
            loser.join()
        self.assertNotIn("nothing was changed", said)

    def test_its_names_are_its_own(self):
        self.ok("quota", "import", "--shadow", self.file, root=self.root)
        for command in ("set", "get", "rm"):
            self.fails("'shadow:x'? begins with", "quota", command,
                       "shadow:x", root=self.root)
        self.fails("begins with \"shadow:\"", "quota", "set", "a",
                   "parent=shadow:site", root=self.root)
        # A take of such a name finds no quota, though the shadow set has one.
        result = self.run_weir("take", "shadow:extra", root=self.root)
        self.assertIn(result.status, (0, 2))
        self.assertNotIn("limited", result.out)


class Screen(Case):
    """`weir top` on a terminal."""

    def setUp(self):
        super().setUp()
        self.root = Root(self)
        for i in range(9):
            self.root.get(f"/v1/quotas/quota{i}", "PUT", '{"limit": "5/s"}')
            self.ok("take", f"quota{i}", root=self.root)
        self.text = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))

    def start(self, interval, rows, columns):
        """Starts on a new terminal; returns the terminal's modes before."""
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        before = termios.tcgetattr(self.slave)
        env = dict(self.env, WEIR_ROOTS=self.root.address)
        self.top = subprocess.Popen(
            [WEIR, "top", "--interval", interval], env=env,
            stdin=self.slave, stdout=self.slave, stderr=self.slave)
        self.addCleanup(self.top.wait)
        self.addCleanup(self.top.kill)
        return before

    def hang_up(self):
        os.close(self.slave)
        os.close(self.master)

    def read(self):
        """All output to the terminal so far."""
        if select.select([self.master], [], [], 0.05)[0]:
            self.text += os.read(self.master, 1 << 16)
        return self.text

    def painted(self):
        """The lines of the newest whole paint, without colours."""
        paints = self.read().split(b"\033[H\033[J")[1:]
        if not paints or b" more" not in paints[-1]:
            return None
        return re.sub(rb"\033\[\d*m", b"", paints[-1]).decode().split("\r\n")

    def is_painted(self, rows, columns):
        lines = self.painted()
        return lines and (len(lines), len(lines[0])) == (rows, columns)

    def repaint(self, rows, columns):
        """Resizes the window, and waits until it is filled."""
        self.resize(rows, columns)
        self.top.send_signal(signal.SIGWINCH)
        until(f"{rows} x {columns}", lambda: self.is_painted(rows, columns))

    def test_a_window(self):
        """The window is filled exactly, and again when it is resized; a key
        ends `weir top`, and so does the end of the terminal."""
        before = self.start("100ms", 5, 30)
        lines = until("a paint", self.painted)
        self.assertEqual(len(lines), 5, lines)
        self.assertLessEqual(max(map(len, lines)), 30, lines)
        self.assertEqual(len(lines[0]), 30)
        self.assertEqual(lines[4], "… and 8 more")
        os.write(self.master, b"\x1aq")  # ^Z stops nothing
        self.assertEqual(self.top.wait(PATIENCE), 0)
        self.assertEqual(termios.tcgetattr(self.slave), before)
        self.hang_up()

        # No interval ends while the test runs: only a key or a new size of the
        # window causes a paint.
        self.text = b""
        self.start("1h", 4, 20)
        until("a first line", lambda: b"weir top: measuring" in self.read())
        os.write(self.master, b" ")
        until("a paint", lambda: self.is_painted(4, 20))
        for size in (8, 40), (6, 30), (7, 35):
            self.repaint(*size)
        self.hang_up()
        self.assertEqual(self.top.wait(PATIENCE), 0)


class Serve(Case):
    def test_bad_starts(self):
        url = "sqlite:" + self.path("none.db")
        for pattern, arguments in (
                ("weir store init", ["--store", url]),
                ("--credentials are missing", ["--listen", "0.0.0.0:7077"]),
                ("--credentials are missing", ["--http", "192.0.2.1:80"]),
                ("--listen", ["--listen", "nonsense"]),
                ("10ms to 1h", ["--report-interval", "1ms"]),
                ("shorter", ["--stale-after", "500ms"]),
                ("on or off", ["--slack", "maybe"]),
                ("0 to 1000", ["--correction-ratio", "nan"]),
                ("no option --lsten", ["--lsten", ":1"]),
                ("options only", ["now"])):
            with self.subTest(pattern):
                self.fails(pattern, "serve", *arguments)
        self.assertFalse(os.path.exists(self.path("none.db")))

    def test_store_init(self):
        url = self.make_store()
        self.fails("already; remove it or choose", "store", "init", url)
        self.fails("weir store init", "store", "int", url)
        self.fails("sqlite:", "store", "init", self.path("x"))
        none = self.path("none")
        self.fails(f"there is no folder {none}; make it", "store", "init",
                   f"sqlite:{none}/q.db")
        self.fails("q.db is no folder", "store", "init",
                   url + "/q.db")
        two = "sqlite:" + self.path("two.db")
        self.assertEqual(json.loads(self.ok("store", "init", two, "--json")),
                         {"made": two})
        self.assertIn(json.loads(self.ok("version", "--json"))["version"],
                      self.ok("--version"))

    def test_store_that_all_users_may_read(self):
        """A root logs it once, and doesn't change the file's mode."""
        root = Root(self, store=self.make_store("own.db"))
        self.assertNotIn("may read", root.logged())
        url = self.make_store("wide.db")
        os.chmod(self.path("wide.db"), 0o644)
        root = Root(self, store=url)
        self.assertEqual(root.stop(), 0)
        self.assertEqual(root.logged().count("may read the quota store"), 1)
        self.assertEqual(os.stat(self.path("wide.db")).st_mode & 0o777, 0o644)

    def test_store_kept(self):
        url, two = self.make_store(), "sqlite:" + self.path("two.db")
        self.assertIn("up to date", self.ok("store", "upgrade", url))
        root = Root(self, store=url)
        self.ok("quota", "set", "a", "limit=5/s", root=root)
        self.assertEqual(root.stop(), 0)
        self.fails("two stores", "store", "migrate", url)
        said = json.loads(self.ok("store", "migrate", url, two, "--json"))
        self.assertEqual(said, {"made": two, "quotas": 1})
        self.fails("already", "store", "migrate", url, two)
        self.assertIn("begin anew", self.ok("store", "restored", two))
        said = json.loads(self.ok("store", "restored", two, "--json"))
        self.assertEqual(said, {"store": two, "restores": 2})
        root = Root(self, store=two)
        self.assertIn("5/s", self.ok("quota", "get", "a", root=root))
        self.fails("there is no quota store", "store", "restored",
                   "sqlite:" + self.path("none.db"))

    def test_no_password_is_shown(self):
        url = "postgres://weir:sesame@127.0.0.1:1/weir"
        for verb in ("init", "upgrade", "restored"):
            said = self.fails("127.0.0.1", "store", verb, url)
            self.assertNotIn("sesame", said)

    def test_newer_schema(self):
        url = self.make_store()
        with sqlite3.connect(self.path("q.db")) as db:
            db.execute("PRAGMA user_version = 999")
        db.close()
        self.fails("schema 999.*upgrade Weir", "serve", "--store", url)

    def test_port_in_use(self):
        root = Root(self)
        for option, address, others in (
                ("--listen", root.address, ["--http", "off"]),
                ("--http", root.http, ["--listen", "127.0.0.1:0"])):
            said = self.fails(f"{option} {address}: .*has this port", "serve",
                              option, address, *others)
            self.assertEqual(said.count("can't listen"), 1, said)

    def test_stop_with_everybody_connected(self):
        root = Root(self)
        self.ok("quota", "set", "a", "limit=5/s", root=root)
        env = dict(self.env, WEIR_ROOTS=root.address)
        top = subprocess.Popen([WEIR, "top", "--interval", "50ms", "--json"],
                               env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        top.stdout.readline()
        idle = []
        for address in (root.http, root.address):
            host, port = address.split(":")
            idle.append(socket.create_connection((host, int(port))))
        self.assertEqual(root.stop(), 0)
        self.assertIn("stopped", root.logged())
        top.terminate()
        top.communicate()
        self.assertEqual(top.returncode, 0)
        for connection in idle:
            connection.close()

    def test_stop_answers_the_edit_that_was_begun(self):
        root = Root(self, store=self.make_store())
        other = sqlite3.connect(self.path("q.db"), isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        edit = None

        def waits():
            """An edit waits for the lock for 2 s; if it ends before the
            metrics show it, another one follows."""
            nonlocal edit
            if edit and edit.poll() is not None:
                edit.communicate()
                edit = None
            edit = edit or subprocess.Popen(
                [WEIR, "quota", "set", "a", "limit=5/s"],
                stderr=subprocess.PIPE, text=True,
                env=dict(self.env, WEIR_ROOTS=root.address))
            return "weir_edits_waiting 1" in root.get("/metrics")[1]
        until("the edit", waits)
        self.assertEqual(root.stop(), 0)
        _, said = edit.communicate()
        other.close()
        self.assertEqual(edit.returncode, 2)
        self.assertIn("locked", said)

    def test_second_signal_and_hup(self):
        root = Root(self)
        root.wait_awake()
        root.process.send_signal(signal.SIGHUP)
        until("the log", lambda: "nothing to reload" in root.logged())
        self.assertEqual(root.stop(), 0)


class Trouble(Case):
    def test_locked_store(self):
        root = Root(self, store=self.make_store())
        self.ok("quota", "set", "a", "limit=5/s", root=root)
        other = sqlite3.connect(self.path("q.db"), isolation_level=None,
                                timeout=PATIENCE)
        other.execute("BEGIN EXCLUSIVE")
        self.fails("locked", "quota", "set", "a", "limit=6/s", root=root)
        self.assertIn("5/s", self.ok("quota", "ls", root=root))
        self.assertEqual(root.get("/readyz")[0], 200)
        other.execute("ROLLBACK")
        other.close()
        self.ok("quota", "set", "a", "limit=6/s", root=root)
        self.assertIn("6/s", self.ok("quota", "ls", root=root))

    def test_locked_at_the_start(self):
        store = self.make_store()
        other = sqlite3.connect(self.path("q.db"), isolation_level=None,
                                timeout=PATIENCE)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        root = Root(self, store=store, ready=False)
        # Whether a locked file can be read depends on its journal: the root
        # runs, and /readyz answers either way.
        status = until("an answer", lambda: root.get("/readyz")[0])
        self.assertIn(status, (200, 503))
        other.close()
        until("ready", lambda: root.get("/readyz")[0] == 200)
        self.ok("quota", "set", "a", "limit=6/s", root=root)

    def test_store_moved_away(self):
        root = Root(self, store=self.make_store())
        self.ok("quota", "set", "a", "limit=5/s", root=root)
        shutil.move(self.path("q.db"), self.path("away.db"))
        self.fails(".", "quota", "set", "a", "limit=6/s", root=root)
        self.assertIn("5/s", self.ok("quota", "ls", root=root))
        until("status says so", lambda: "unreachable" in
              self.ok("status", root=root))
        shutil.move(self.path("away.db"), self.path("q.db"))
        until("an edit", lambda: self.run_weir(
            "quota", "set", "a", "limit=6/s", root=root).status == 0)

    def test_two_roots_on_one_file(self):
        store = self.make_store()
        one, two = Root(self, store=store), Root(self, store=store)
        self.ok("quota", "set", "a", "limit=1/s", root=one)
        until("the other root", lambda: two.get("/v1/quotas/a")[0] == 200)
        for limit in range(2, 12):
            status, _ = one.get("/v1/quotas/a", "PATCH",
                                f'{{"limit": "{limit}/s"}}')
            self.assertEqual(status, 200)
            until_equal("the other root", f"{limit}/s", lambda: json.loads(
                two.get("/v1/quotas/a")[1])["limit"])
        both = f"{one.address},{two.address}"
        one.process.kill()
        one.process.wait()
        self.ok("quota", "set", "a", "limit=99/s", root=both)
        self.assertIn("99/s", self.ok("quota", "ls", root=both))
        self.assertEqual(two.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
