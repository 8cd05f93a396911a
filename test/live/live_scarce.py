#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_scarce.py - machines that are small, full or read-only: file systems of
a megabyte, in a mount namespace of the test's own; little address space; a
standard error that nothing reads.

Each program says in one sentence what is missing and what to do, and exits with
2, or goes on; an edit that was acknowledged is kept, and one that wasn't stored
is refused with 503. Without root, or in a container that may not mount, the
tests that mount are skipped."""

import fcntl
import json
import os
import resource
import subprocess
import unittest
from pathlib import Path

from live_cli import WEIR, Case, Root
from netns import call
from patience import PATIENCE, until

CLONE_NEWNS = 0x00020000
MIB = 1 << 20
F_SETPIPE_SZ = 1031


def own_mounts():
    """From here on mounts of this process are its own. The process ends with
    the test (live_run.py)."""
    try:
        call("unshare", CLONE_NEWNS)
    except OSError as error:
        raise unittest.SkipTest(f"no mount namespace here: {error}")
    done = subprocess.run(["mount", "--make-rprivate", "/"], text=True,
                          capture_output=True)
    if done.returncode != 0:
        raise unittest.SkipTest(f"can't mount here: {done.stderr.strip()}")


def mount(*words):
    subprocess.run(["mount", *words], check=True, capture_output=True)


class Mounts(Case):
    def setUp(self):
        own_mounts()
        super().setUp()
        self.disk = Path(self.path("disk"))
        self.disk.mkdir()
        mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(self.disk))

    def tearDown(self):
        # Lazily: roots that still run have files there.
        subprocess.run(["umount", "--lazy", str(self.disk)], check=True)
        super().tearDown()

    def fill(self):
        """Fills the disk to its last byte."""
        with open(self.disk / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)) == 4096:
                    pass
            except OSError:
                pass

    def empty(self):
        os.unlink(self.disk / "filler")

    def make_read_only(self):
        mount("-o", "remount,ro", str(self.disk))

    def refused(self, *arguments, root=None, reason="No space left on device"):
        """The command fails with 2 and one sentence that has the reason."""
        done = self.run_weir(*arguments, root=root)
        self.assertEqual(done.status, 2, (arguments, done.err))
        self.assertRegex(done.err, f"^weir: .*{reason}.*\n$")
        return done.err


class FullDisk(Mounts):
    def set_limit(self, root, limit):
        return root.get("/v1/quotas/q", "PATCH", json.dumps(
            {"limit": limit, "description": "x" * 1000}))

    def edit_until_refused(self, root):
        """Fills the disk and edits; returns the last acknowledged limit. The
        store's log may have room for some edits more."""
        self.fill()
        kept = None
        for number in range(1, 1000):
            status, said = self.set_limit(root, f"{number}/h")
            if status == 503:
                self.assertEqual(json.loads(said)["error"], "WEIR_ESTORE")
                self.assertRegex(said, "no room on the disk .* Make room")
                return kept
            self.assertIn(status, (200, 201), said)
            kept = f"{number}/h"
        self.fail("a full disk took a thousand edits")

    def limit(self, root):
        return json.loads(root.get("/v1/quotas/q")[1])["limit"]

    def test_store(self):
        store = self.make_store("disk/q.db")
        root = Root(self, store=store)
        self.assertEqual(self.set_limit(root, "7000/h")[0], 201)
        kept = self.edit_until_refused(root) or "7000/h"
        self.assertEqual(self.limit(root), kept)
        self.assertEqual(root.get("/readyz")[0], 200)
        # A root that is killed then has the same.
        root.process.kill()
        root.process.wait()
        again = Root(self, store=store)
        until("the quota", lambda: again.get("/v1/quotas/q")[0] == 200)
        self.assertEqual(self.limit(again), kept)
        # Room again: the root goes on by itself.
        self.empty()
        until("an edit", lambda: self.set_limit(again, "8000/h")[0] == 200)
        self.assertEqual(self.limit(again), "8000/h")

    def test_snapshot(self):
        """The one before is kept, and the next is written when there is
        room."""
        store = self.make_store()
        snapshot = self.disk / "snapshot"
        self.fill()
        root = Root(self, "--snapshot", str(snapshot), store=store)
        self.ok("quota", "set", "q", "limit=1/s", root=root)
        until("a line about it", lambda: "no new snapshot of the quotas, "
              "trying again" in root.logged())
        self.assertRegex(root.logged(), "No space left on device")
        self.empty()
        until("a snapshot", lambda: json.loads(root.get("/v1/status")[1])[
            "snapshot"].get("epoch") == 1)

    def test_files_of_a_start(self):
        """Nothing is left of a port file, and a store isn't made by half."""
        self.fill()
        self.refused("serve", "--listen", "127.0.0.1:0", "--http", "off",
                     "--store",
                     self.make_store(), "--port-file", str(self.disk / "ports"))
        self.refused("store", "init", f"sqlite:{self.disk}/q.db",
                     reason="no room")
        self.assertEqual(os.listdir(self.disk), ["filler"])

    def test_outputs(self):
        quotas = self.path("quotas.yaml")
        Path(quotas).write_text("weir: 1\nquotas:\n  - {name: q, limit: 1/s}\n")
        log = self.path("access.log")
        Path(log).write_text('1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] '
                             '"GET / HTTP/1.0" 200 23\n')
        replay = ["replay", "--quotas", quotas, "--key", "q", log]
        self.assertEqual(self.run_weir(*replay).status, 0)
        self.fill()
        self.refused(*replay, "--html", str(self.disk / "page.html"))
        self.refused("lab", "run", "weir-fleet", "--out",
                     str(self.disk / "figures"))

    def test_shared_table(self):
        self.refused(
            "agent", "--http", "127.0.0.1:0", "--table",
            str(self.disk / "table"),
            reason="no space is left for a table there: free some")
        mount("-o", "remount,size=256m", str(self.disk))
        # The same file does when there is room.
        agent = subprocess.Popen(
            [WEIR, "agent", "--http", "127.0.0.1:0", "--table",
             str(self.disk / "table"), "--port-file", self.path("ports")],
            env=self.env, stderr=subprocess.DEVNULL)
        until("the agent", lambda: os.path.exists(self.path("ports")))
        agent.terminate()
        self.assertEqual(agent.wait(PATIENCE), 0)


class ReadOnly(Mounts):
    REASON = "[Rr]ead-only file system"

    def test_store(self):
        """A root reads its quotas from the snapshot, and refuses edits."""
        store = self.make_store("disk/q.db")
        snapshot = self.path("snapshot")
        root = Root(self, "--snapshot", snapshot, store=store)
        self.ok("quota", "set", "q", "limit=5/s", root=root)
        self.assertEqual(root.stop(), 0)
        self.make_read_only()
        root = Root(self, "--snapshot", snapshot, store=store, ready=False)
        until("ready", lambda: root.get("/readyz")[0] == 200)
        status, said = root.get("/v1/quotas/q", "PATCH", '{"limit": "6/s"}')
        self.assertEqual(status, 503)
        self.assertRegex(said, self.REASON)
        self.assertRegex(root.logged(), self.REASON)
        self.assertEqual(json.loads(root.get("/v1/quotas/q")[1])["limit"],
                         "5/s")
        mount("-o", "remount,rw", str(self.disk))
        until("an edit", lambda: root.get("/v1/quotas/q", "PATCH",
                                          '{"limit": "6/s"}')[0] == 200)

    def test_files_of_a_start(self):
        self.make_read_only()
        self.refused("serve", "--listen", "127.0.0.1:0", "--http", "off",
                     "--store",
                     self.make_store(), "--port-file",
                     str(self.disk / "ports"), reason=self.REASON)
        self.refused("store", "init", f"sqlite:{self.disk}/q.db",
                     reason=self.REASON)
        self.refused("agent", "--http", "127.0.0.1:0", "--table",
                     str(self.disk / "table"), reason=self.REASON)


class Output(Case):
    """Standard output that takes nothing."""

    def run_into(self, path, *arguments):
        with open(path, "w") as output:
            return subprocess.run([WEIR, *arguments], stdout=output, text=True,
                                  stderr=subprocess.PIPE, env=self.env,
                                  timeout=PATIENCE)

    def test_full(self):
        root = Root(self, store=self.make_store())
        self.ok("quota", "set", "q", "limit=5/s", root=root)
        self.env["WEIR_ROOTS"] = root.address
        for words in (["quota", "export"], ["quota", "ls"],
                      ["quota", "ls", "--json"], ["quota", "log"], ["status"],
                      ["lab", "list"], ["help"], ["--version"]):
            done = self.run_into("/dev/full", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertRegex(done.stderr, "^weir: can't write.*No space left",
                             words)

    def test_reader_that_left(self):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([WEIR, "lab", "show", "weir-fleet"],
                              stdout=writing, stderr=subprocess.PIPE,
                              env=self.env, timeout=PATIENCE)
        os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_closed_input(self):
        done = subprocess.run(f"{WEIR} pace --rate 10/s <&-", shell=True,
                              text=True, capture_output=True, env=self.env,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "^weir: .*Bad file descriptor")


class Pipe(Case):
    """A root whose standard error is a pipe that nothing reads."""

    def test_root_goes_on(self):
        reading, writing = os.pipe()
        fcntl.fcntl(writing, F_SETPIPE_SZ, 4096)
        fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)
        try:
            while os.write(writing, b"x" * 512):
                pass
        except BlockingIOError:
            pass
        fcntl.fcntl(writing, fcntl.F_SETFL, 0)
        ports = self.path("ports")
        root = subprocess.Popen(
            [WEIR, "serve", "--store", self.make_store(), "--listen",
             "127.0.0.1:0",
             "--http", "127.0.0.1:0", "--port-file", ports], stderr=writing,
            env=self.env)
        self.addCleanup(root.wait)
        self.addCleanup(root.kill)
        os.close(writing)
        until("the port file", lambda: os.path.exists(ports))
        at = dict(line.split("=") for line in
                  Path(ports).read_text().split())["listen"]
        self.ok("quota", "set", "q", "limit=5/s", root=at)
        # What was dropped is counted, once there is a reader.
        with open(reading, "rb") as log:
            self.assertEqual(log.read(4096).strip(b"x"), b"")
            root.terminate()
            said = log.read().decode()
        self.assertEqual(root.wait(PATIENCE), 0)
        self.assertRegex(said, "warning: [0-9]+ lines are missing here")


class AddressSpace(Case):
    """ulimit -v: a sentence, or it works. 2 GB are enough for all."""

    def check(self, *arguments):
        worked = False
        for size in (*range(30, 200, 10), 2000):
            try:
                done = subprocess.run(
                    [WEIR, *arguments], env=self.env, text=True,
                    capture_output=True, timeout=1 if worked else PATIENCE,
                    preexec_fn=lambda: resource.setrlimit(
                        resource.RLIMIT_AS, (size * MIB, size * MIB)))
            except subprocess.TimeoutExpired:
                worked = True
                continue
            if done.returncode == 127:  # the system's loader
                continue
            worked = done.returncode == 0
            if not worked:
                self.assertEqual(done.returncode, 2, (size, done.stderr))
                self.assertRegex(done.stderr, "weir: .*(memory|ulimit)")
        self.assertTrue(worked)

    def test_lab(self):
        self.check("lab", "run", "weir-fleet")

    def test_export(self):
        root = Root(self, store=self.make_store())
        self.ok("quota", "set", "q", "limit=5/s", root=root)
        self.env["WEIR_ROOTS"] = root.address
        self.check("quota", "export")

    def test_take(self):
        """A program with libweir."""
        root = Root(self, store=self.make_store())
        self.ok("quota", "set", "q", "limit=5000/s", root=root)
        self.env["WEIR_ROOTS"] = root.address
        self.check("take", "q")


if __name__ == "__main__":
    unittest.main(verbosity=2)
