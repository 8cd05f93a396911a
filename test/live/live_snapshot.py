#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_snapshot.py - a root that starts without its store: it uses its snapshot
until the store is there; and two stores behind one fleet.

Real roots and limiters; tests wait for events and check rates as live_roots.py
does."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
import unittest
import urllib.error

from live_fleet import WEIR, Fleet
from live_roots import PART, SMALL, Case, rest, say
from patience import PATIENCE, until, until_equal

STORE_CHANGED = 7   # enum weir_event_type


def move(before, after):
    """Moves a store, and the files that a killed root has left beside it."""
    for end in ("-wal", "-shm", ""):
        if os.path.exists(f"{before}{end}"):
            os.rename(f"{before}{end}", f"{after}{end}")


class Snapshot(Case):
    ROOTS = 1

    def setUp(self):
        super().setUp()
        self.root = self.fleet.roots[0]
        self.away = self.fleet.folder / "away.db"

    def snapshot(self):
        return self.root.status()["snapshot"]

    def is_written(self):
        status = self.root.status()
        snapshot = status["snapshot"]
        return (snapshot.get("epoch"), snapshot.get("store")) == \
            (status["epoch"], status["store"]["uuid"])

    def written(self):
        """Waits until the snapshot has the root's state. A root writes one in
        its first second, and then every ten: so the root is restarted."""
        if not self.is_written():
            self.root.kill()
            self.root.start()
        until("a snapshot of all", self.is_written)
        return self.snapshot()

    def ready(self):
        try:
            return self.root.read("/readyz") == "ready\n"
        except urllib.error.HTTPError:
            return False

    def edit(self, *arguments):
        return self.fleet.weir("quota", "set", *arguments)

    def leave_store(self):
        """Moves the store away and kills the root."""
        self.written()
        self.root.kill()
        move(self.fleet.db, self.away)

    def test_starts_without_its_store(self):
        self.fleet.set("q", "limit=3000/s", *SMALL)
        self.written()
        self.load("q=3000")
        self.leave_store()
        self.root.start()
        until("ready without a store", self.ready)
        self.fleet.wait_linked(1)
        status = self.root.status()
        self.assertTrue(status["snapshot"]["serving"])
        self.assertEqual(status["store"]["state"], "unreachable")
        self.assertIn("weir_snapshot_serving 1\n", self.root.read("/metrics"))
        self.assertRegex(self.root.logged(), "ready by the snapshot; quotas: "
                                             "1, .*edits fail")
        shown = self.fleet.weir("status")[1]
        self.assertRegex(shown, r"snapshot .*, IN USE")
        self.assertRegex(shown, "put it back")
        self.fleet.until_rate("q", 3000, PART)
        code, _, said = self.edit("q", "limit=1/s")
        self.assertEqual(code, 2)
        self.assertRegex(said, r"quotas\.db")
        say(f"without its store an edit says: {said.strip()}")
        self.assert_store_comes()

    def assert_store_comes(self):
        epoch = self.root.status()["epoch"]
        move(self.away, self.fleet.db)
        until("an edit", lambda: self.edit("q", "limit=6000/s",
                                           *SMALL)[0] == 0)
        status = self.root.status()
        self.assertEqual(status["epoch"], epoch + 1)
        self.assertFalse(status["snapshot"]["serving"])
        self.assertEqual(status["store"]["state"], "ok")
        self.assertRegex(self.root.logged(),
                         f"the snapshot at epoch {epoch} by epoch {epoch}")
        until_equal("the epoch of every limiter", {epoch + 1}, lambda: {
            limiter.seen()["epoch"] for limiter in self.fleet.limiters})
        self.fleet.until_rate("q", 6000, PART)
        self.assert_epochs_rise()
        self.assert_all_answered()

    def test_edits_of_another_root_meanwhile(self):
        """Quotas that were removed or changed while the root was dead are so
        when it has its store again."""
        for name in ("kept", "changed", "removed"):
            self.fleet.set(name, "limit=5/s")
        epoch = self.written()["epoch"]
        self.root.kill()
        self.fleet.add_roots(1)
        other = self.fleet.roots[1]
        self.fleet.set("changed", "limit=7/s", root=other)
        self.fleet.weir("quota", "rm", "removed", root=other)
        other.kill()
        move(self.fleet.db, self.away)
        self.root.start()
        until("ready without a store", self.ready)
        listed = self.fleet.weir("quota", "ls")[1]
        self.assertRegex(listed, "removed")
        move(self.away, self.fleet.db)
        other.start()
        until("the store's epoch", lambda: self.root.status()["epoch"] ==
              other.status()["epoch"] > epoch)
        self.assertEqual(self.fleet.weir("quota", "export")[1],
                         self.fleet.weir("quota", "export", root=other)[1])
        self.assertNotRegex(self.fleet.weir("quota", "ls")[1], "removed")

    def damage(self, name):
        """Damages a page of the store's file, in the row of a quota; returns
        the sound file's content."""
        store = sqlite3.connect(self.fleet.db)
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sound = self.fleet.db.read_bytes()
        with store:
            store.execute("UPDATE quotas SET fields = ? WHERE name = ?",
                          (100000 * "x", name))
        store.close()
        # A page of such a text: the number of the next page, then the text.
        file = bytearray(self.fleet.db.read_bytes())
        at = file.index(4000 * b"x") & ~4095
        file[at:at + 4] = b"\x7f\xff\xff\xf0"
        self.fleet.db.write_bytes(file)
        return sound

    def break_off(self, away):
        """The first read of a store ends amid the edits that are newer than the
        snapshot: none of them is served before all are, and none is missing
        then. 'away': the snapshot was served before."""
        self.fleet.set("old", "limit=5/s")
        self.written()
        self.root.kill()
        self.fleet.add_roots(1)
        other = self.fleet.roots[1]
        for name in ("early", "damaged", "late"):
            self.fleet.set(name, "limit=7/s", root=other)
        listed = self.fleet.weir("quota", "export", root=other)[1]
        other.kill()
        sound = self.damage("damaged")
        if away:
            move(self.fleet.db, self.away)
        self.root.start()
        until("ready without its store", self.ready)
        if away:
            move(self.away, self.fleet.db)
        # The problem is another than that of a missing store.
        problem = until("half of its store", lambda: re.search(
            "^(?!.*put it back).+",
            self.root.status()["store"].get("problem", "")))
        say(f"a store that breaks off: {problem.group()}")
        self.assertNotIn("early", self.fleet.weir("quota", "export")[1])
        self.assertTrue(self.snapshot()["serving"])
        self.fleet.db.write_bytes(sound)
        until("the store", lambda: not self.snapshot()["serving"] and
              self.root.status()["store"]["state"] == "ok")
        self.assertEqual(self.fleet.weir("quota", "export")[1], listed)

    def test_its_store_breaks_off(self):
        self.break_off(False)

    def test_its_store_comes_and_breaks_off(self):
        self.break_off(True)

    def test_older_snapshot_drops_no_quota(self):
        """A root with a snapshot from before the last edits doesn't remove
        their quotas from limiters that have them."""
        self.fleet.set("q", "limit=3000/s", *SMALL)
        path = self.written()["file"]
        older = self.fleet.folder / "older.snapshot"
        shutil.copy(path, older)
        self.fleet.set("late", "limit=1000/s", *SMALL)
        self.load("q=3000", "late=3000")
        epoch = self.root.status()["epoch"]
        self.root.kill()
        move(self.fleet.db, self.away)
        shutil.copy(older, path)
        self.root.start()
        until("ready without a store", self.ready)
        self.assertEqual(self.root.status()["epoch"], epoch - 1)
        self.fleet.wait_linked(1)
        # The root doesn't know 'late': each limiter uses its own counts.
        self.fleet.until_rates({"q": 3000, "late": 3 * 1000}, PART)
        move(self.away, self.fleet.db)
        until_equal("the store's epoch", epoch,
                    lambda: self.root.status()["epoch"])
        self.fleet.until_rates({"q": 3000, "late": 1000}, PART)
        for limiter in self.fleet.limiters:
            lines = limiter.told("seen")
            first = next(i for i, line in enumerate(lines)
                         if line["epoch"] == epoch)
            self.assertEqual({line["epoch"] for line in lines[first:]},
                             {epoch}, "a quota went")
        self.assert_all_answered()

    def test_another_store_comes(self):
        self.fleet.set("q", "limit=3000/s")
        self.leave_store()
        self.root.start()
        until("ready without a store", self.ready)
        self.fleet.weir("store", "init", self.fleet.store)
        until("the other store's set", lambda: not self.snapshot()["serving"]
              and self.root.status()["epoch"] == 0)
        self.assertEqual(self.fleet.weir("quota", "ls")[1].strip(), "")
        until("a warning", lambda: "isn't that of the snapshot" in
              self.root.logged())
        self.fleet.set("p", "limit=1/s")
        self.written()
        # From now on the snapshot is the other store's.
        self.root.kill()
        move(self.fleet.db, self.fleet.folder / "other.db")
        self.root.start()
        until("ready by the other's snapshot", self.ready)
        listed = self.fleet.weir("quota", "export")[1]
        self.assertIn("name: p", listed)
        self.assertNotIn("name: q", listed)

    def test_damaged_snapshot(self):
        self.fleet.set("q", "limit=3000/s")
        path = self.written()["file"]
        self.leave_store()
        size = os.path.getsize(path)
        os.truncate(path, size - 1)
        with self.assertRaisesRegex(AssertionError, "doesn't exist|init") \
                as caught:
            self.root.start()
        self.assertRegex(str(caught.exception), "cut short; it isn't used")
        say(str(caught.exception).splitlines()[-1])

    def test_graceful_stop_writes(self):
        path = self.written()["file"]
        before = os.stat(path).st_ino
        self.fleet.set("late", "limit=1/s")
        self.root.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.root.process.wait(PATIENCE), 0)
        self.assertNotEqual(os.stat(path).st_ino, before)
        move(self.fleet.db, self.away)
        self.root.start()
        until("ready without a store", self.ready)
        self.assertIn("name: late", self.fleet.weir("quota", "export")[1])


class Off(unittest.TestCase):
    def test_off(self):
        fleet = Fleet()
        self.addCleanup(fleet.close)
        fleet.add_roots(1, "--snapshot", "off")
        self.assertIsNone(fleet.roots[0].status()["snapshot"])
        self.assertNotIn("weir_snapshot", fleet.roots[0].read("/metrics"))
        fleet.roots[0].kill()
        self.assertEqual([path for path in fleet.folder.iterdir()
                          if "snapshot" in path.name], [])
        fleet.db.unlink()
        with self.assertRaisesRegex(AssertionError, "weir store init"):
            fleet.roots[0].start()


class OwnStore(unittest.TestCase):
    """`weir serve` without --store."""

    def serve(self, fleet):
        """Runs it until it is ready or has ended; returns its log."""
        env = dict(os.environ, XDG_DATA_HOME=str(fleet.folder))
        log = fleet.folder / "log"
        with open(log, "w") as out:
            root = subprocess.Popen(
                [WEIR, "serve", "--listen", "127.0.0.1:0", "--http", "off",
                 "--name", "own/root"], env=env, stderr=out)
        until("ready or ended", lambda: root.poll() is not None or
              " ready" in log.read_text())
        root.terminate()
        root.wait(PATIENCE)
        return log.read_text()

    def test_gone(self):
        fleet = Fleet()
        self.addCleanup(fleet.close)
        self.assertIn("made the store", self.serve(fleet))
        folder = fleet.folder / "weir"
        snapshot = folder / "weir.db.own_root.snapshot"
        self.assertTrue(snapshot.exists())
        move(folder / "weir.db", fleet.folder / "kept.db")
        said = self.serve(fleet)
        self.assertNotIn("made the store", said)
        self.assertIn("ready by the snapshot", said)
        self.assertFalse((folder / "weir.db").exists())
        os.truncate(snapshot, 10)
        said = self.serve(fleet)
        self.assertRegex(said, "put the store back, or remove the snapshot")
        say(said.splitlines()[-1])


class TwoStores(unittest.TestCase):
    def test_two_stores_behind_one_fleet(self):
        """A limiter keeps to the store that it knew first, and an event says
        so."""
        limits = {"first": 3000, "second": 9000}
        fleets = {name: Fleet() for name in limits}
        for name, fleet in fleets.items():
            self.addCleanup(fleet.close)
            fleet.add_roots(1, *Case.OPTIONS)
            fleet.set("q", f"limit={limits[name]}/s", *SMALL)
        fleet = fleets["first"]
        both = ",".join(each.addresses() for each in fleets.values())
        limiter = fleet.add_limiter(["q=20000"], roots=both)
        event = until("an event about it", lambda: [
            line for line in limiter.told("event")
            if line["event"] == STORE_CHANGED])[0]
        until("one link only", lambda: limiter.up() == 1)
        start = limiter.seen()["at"]
        passed = []

        def kept():
            """The fleets with a limit that the next window's rate meets."""
            passed.append(fleet.means(["q"], time.monotonic())["q"][1])
            return [name for name, limit in limits.items()
                    if abs(passed[-1] - limit) <= PART * limit]
        name, = until("one store's limit", kept)
        other, = fleets.keys() - {name}
        rest([limiter])
        until("its root has counted", lambda: fleets[name].roots[0].usage()
              .get("q", {}).get("passed", 0) > 0)
        self.assertEqual({line["roots_up"] for line in limiter.told("seen")
                          if line["at"] > start}, {1})
        self.assertEqual(fleets[other].roots[0].usage()
                         .get("q", {}).get("passed", 0), 0)
        say(f"two stores: the limiter says {event['text']!r}, keeps to the "
            f"{name} ({passed[-1]:.0f}/s)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
