#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_election.py - elections among real processes (elect_agent.c), by a real
etcd and by a lock on a file, with signals, restarts and a slow network.

Each agent checks every millisecond whether it holds the mastership. After
every test: the times for which two agents held it never overlap, and each new
mastership has a higher term.

How soon the next master follows, and that a mastership outlives a store that is
slow or restarts, is asserted in virtual time (test_candidate.c). Here the ttl
is short (SHORT) if the test doesn't need the mastership to stay. If it does,
the ttl is so long that no machine is late by it (LONG)."""

import base64
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import patience
from live_etcd import Etcd, Relay
from patience import PATIENCE, free_port

BUILD = Path(os.environ["WEIR_BUILD"])
AGENT = str(BUILD / "test" / "elect_agent")
WEIR = str(BUILD / "weir")
SHORT, LONG = 1, 60   # ttl in seconds
UNREAD = 2 ** 64 - 1  # in place of a kept number that couldn't be read


class Agent:
    """An elect_agent; its lines are read by a thread as they come."""

    def __init__(self, test, *words, name="", ttl=SHORT, files=()):
        self.name, self.holds, self.changes = name, [], []
        self.numbers = []  # (at, "found", "keep" or "kept", number)
        self.values, self.troubles = [], []
        self.seen = test.folder / f"seen-{len(test.agents)}"
        self.log = test.folder / f"log-{len(test.agents)}"
        if words[0] != "watch":
            words = [*words, name, str(ttl), self.seen, *files]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([AGENT, *words], stderr=log,
                                            stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        test.agents.append(self)

    def read(self):
        for line in self.process.stdout:
            word, at, *rest = line.rstrip("\n").split(" ", 4)
            at = int(at)
            if word == "change":
                self.changes.append((at, rest[0] == "1", int(rest[1]),
                                     rest[2]))
            elif word == "hold":
                self.holds.append([at, None, int(rest[0])])
            elif word == "end":
                self.holds[-1][1] = at
            elif word in ("found", "keep", "kept"):
                self.numbers.append((at, word, int(rest[0])))
            elif word == "value":
                self.values.append((int(rest[0]), rest[1] == "1", rest[2]))
            else:
                self.troubles.append(" ".join(rest))

    def is_holding(self):
        return bool(self.holds) and self.holds[-1][1] is None

    def master(self):
        return self.changes[-1][3] if self.changes else None

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """Kills it; reads from its file until when it held the mastership."""
        self.signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        last = self.seen.read_bytes() if self.seen.exists() else b""
        if self.is_holding() and len(last) == 8:
            self.holds[-1][1] = struct.unpack("q", last)[0]

    def logged(self):
        return self.log.read_text()

    def connections(self):
        """How often it has connected to an endpoint."""
        return self.logged().count("connected to")

    def endpoint(self):
        """The endpoint that it connected to last."""
        return re.findall(r"connected to etcd (\S+)", self.logged())[-1]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-election-"))
        self.agents, self.left = [], []
        self.is_forgotten = False  # the store of the numbers was lost
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.end_all)

    def end_all(self):
        for agent in self.agents:
            agent.end()

    def until(self, what, ask):
        """Waits until 'ask' is true; a failure shows the agents' logs."""
        try:
            return patience.until(what, ask)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None

    def told(self):
        return "\n".join(
            f"{agent.name or 'watch'}: held {agent.holds}, changes "
            f"{agent.changes}, values {agent.values[-3:]}\n{agent.logged()}"
            for agent in self.agents)

    def etcd(self, *more, **named):
        """An etcd that isn't started yet."""
        made = Etcd(self.folder, *more, **named)
        self.addCleanup(made.kill)
        return made

    def relay(self, etcd, delay):
        made = Relay(etcd.port, delay)
        self.addCleanup(made.close)
        return made

    def check(self):
        """Ends all agents and checks their masterships and terms."""
        self.end_all()
        held = sorted(h for agent in self.agents for h in agent.holds)
        for one, other in zip(held, held[1:]):
            self.assertLess(one[1], other[0], "two held the mastership")
            self.assertLess(one[2], other[2], "a term that doesn't rise")
        self.check_numbers()

    def check_numbers(self):
        """A new master finds the number that was kept last, or a number that
        was being kept at that time. It finds no older one, and none that an
        agent kept without being the master."""
        kept, under_way = 0, {0}
        for _, word, number in sorted(
                entry for agent in self.agents for entry in agent.numbers):
            if word == "keep":
                under_way.add(number)
            elif word == "kept":
                self.assertIn(number, under_way)
                kept = max(kept, number)
            elif number not in (kept, UNREAD) and \
                    not (number == 0 and self.is_forgotten):
                self.assertIn(number, under_way)
                self.assertGreater(number, kept)

    def holder(self):
        for agent in self.agents:
            if agent.is_holding() and agent not in self.left:
                return agent
        return None

    def settled(self):
        """The agent that holds the mastership, if all name it as the master."""
        holder = self.holder()
        if holder and all(agent.master() == holder.name
                          for agent in self.agents if agent not in self.left):
            return holder
        return None

    def agent(self, kind, where, **more):
        return Agent(self, kind, where, name=f"host-{len(self.agents)}:1",
                     **more)

    def stand(self, kind, where, count=3, **more):
        """Starts agents; returns the master once all know it."""
        for _ in range(count):
            self.agent(kind, where, **more)
        return self.until("a master that all know", self.settled)

    def follow(self, master, number):
        """Sends a signal to the master; returns the next one."""
        self.left.append(master)
        master.signal(number)
        return self.until("a next master that all know", self.settled)

    def assert_never_lost(self, master):
        """It is the master, and no other agent ever was."""
        self.assertTrue(master.is_holding(), self.told())
        self.assertEqual([len(agent.holds) for agent in self.agents],
                         [int(agent is master) for agent in self.agents],
                         self.told())


class WithEtcd(Case):
    def setUp(self):
        super().setUp()
        self.etcd = super().etcd()
        self.etcd.start()
        self.where = self.etcd.at + "/lock"

    def test_killed(self):
        master = self.stand("etcd", self.where)
        self.follow(master, signal.SIGKILL)
        self.check()

    def test_handed_over(self):
        """The ttl is longer than any patience, so no agent waits for its end.
        """
        master = self.stand("etcd", self.where, ttl=10 * LONG)
        self.follow(master, signal.SIGTERM)
        self.assertEqual(master.process.wait(PATIENCE), 0)
        self.check()

    def test_stopped(self):
        master = self.stand("etcd", self.where)
        self.follow(master, signal.SIGSTOP)
        self.left.clear()
        master.signal(signal.SIGCONT)
        self.until("the agent knows", self.settled)
        # If it held the mastership for a moment on waking, check() finds it.
        self.check()

    def test_a_restart_within_the_ttl(self):
        master = self.stand("etcd", self.where, ttl=LONG)
        self.etcd.kill()
        self.etcd.start()
        self.until("all agents are back", lambda: all(
            a.connections() == 2 for a in self.agents))
        # Each sends a keep-alive at once, and the next a third of a ttl later.
        self.until("each lease is renewed",
                   lambda: self.etcd.renewed() >= len(self.agents))
        self.assert_never_lost(master)
        self.assertEqual(len(master.changes), 1)
        self.check()

    def test_a_restart_beyond_the_ttl(self):
        self.stand("etcd", self.where)
        self.etcd.kill()
        killed = time.monotonic_ns()
        self.until("no agent holds", lambda: not self.holder())
        for agent in self.agents:
            for _, end, _ in agent.holds:
                self.assertLess(end, killed + SHORT * 10 ** 9)
        self.until("no master is known",
                   lambda: all(a.master() == "-" for a in self.agents))
        for words in "trying again", "no longer master":
            self.assertTrue(any(words in a.logged() for a in self.agents),
                            self.told())
        self.etcd.start()
        self.until("an agent holds", self.holder)
        self.check()

    def test_a_slow_etcd(self):
        """The mastership outlasts a ttl, so it lives by keep-alives. One each
        third of the ttl, confirmed by a second answer, leaves more than three
        seconds for a slow machine."""
        ttl = 8
        relay = self.relay(self.etcd, 0.5)
        master = self.stand("etcd", relay.at + "/lock", ttl=ttl)
        first = master.holds[0][0]
        self.until("the ttl is over", lambda:
                   time.monotonic_ns() > first + ttl * 10 ** 9)
        self.assert_never_lost(master)
        self.check()

    def test_away_at_the_start(self):
        self.etcd.kill()
        for _ in range(2):
            self.agent("etcd", self.where)
        self.until("the log", lambda: all(
            "trying again" in a.logged() for a in self.agents))
        self.assertIsNone(self.holder())
        self.etcd.start()
        self.until("an agent holds", self.holder)
        self.check()

    def test_the_first_endpoint_is_dead(self):
        dead = f"127.0.0.1:{free_port()}"
        self.stand("etcd", f"{dead},{self.where}", ttl=LONG)
        for agent in self.agents:
            self.assertIn(f"etcd {dead}: ", agent.logged())
        self.check()

    def test_an_endpoint_falls_silent(self):
        """The endpoint receives and answers nothing. The agents leave it at
        most two thirds of a ttl after the last keep-alive."""
        relay = self.relay(self.etcd, 0)
        master = self.stand("etcd", f"{relay.at},{self.where}", ttl=12)
        relay.delay = 1000
        before = self.etcd.renewed()
        self.until("all have left", lambda: all(
            a.endpoint() == self.etcd.at for a in self.agents))
        for agent in self.agents:
            self.assertIn("has answered nothing for a third of the ttl",
                          agent.logged())
        # The silent endpoint has passed on a keep-alive of each, too.
        self.until("each lease is renewed", lambda: self.etcd.renewed() >=
                   before + 2 * len(self.agents))
        self.assert_never_lost(master)
        self.check()

    def test_a_connection_that_breaks(self):
        relay = self.relay(self.etcd, 0)
        master = self.stand("etcd", relay.at + "/lock", ttl=LONG)
        for i in range(5):
            self.until("all relayed", lambda: len(relay.sockets) == 6)
            relay.cut()
            self.until("all agents are back", lambda: all(
                a.connections() >= i + 2 for a in self.agents))
        self.assert_never_lost(master)
        self.check()

    def test_a_meddler(self):
        """A lone agent notices when a foreign client writes to the key."""
        master = self.stand("etcd", self.where, count=1, ttl=LONG)
        self.etcd.put("lock", "by-hand:1")
        self.until("the agent stands down", lambda: not master.is_holding())
        self.until("the agent knows", lambda: master.master() == "by-hand:1")
        self.etcd.delete("lock")
        self.until("the agent holds again", master.is_holding)
        self.assertIn("leave it to Weir", master.logged())
        self.check()

    def test_the_key_is_as_doorman_has_it(self):
        master = self.stand("etcd", self.where, count=1, ttl=LONG)
        kv = self.etcd.ask("kv/range", key="lock")["kvs"][0]
        self.assertEqual(base64.b64decode(kv["value"]).decode(), master.name)
        self.assertEqual((1 << 50) + int(kv["create_revision"]),
                         master.holds[0][2])
        self.assertIn("lease", kv)
        self.check()

    def test_an_etcd_that_asks_for_a_password(self):
        self.etcd.ask("auth/user/add", name="root", password="root")
        self.etcd.ask("auth/role/add", name="root")
        self.etcd.ask("auth/user/grant", user="root", role="root")
        self.etcd.ask("auth/enable")
        agent = self.agent("etcd", self.where)
        self.until("the log",
                   lambda: "client certificate" in agent.logged())
        self.assertFalse(agent.is_holding())
        self.assertIn("user name is empty", agent.logged())

    def test_a_history_that_is_gone(self):
        """Between a read and its watch, etcd compacts the revisions that the
        watch asks for."""
        relay = self.relay(self.etcd, 0.3)
        agent = self.agent("etcd", relay.at + "/lock", ttl=LONG)
        watch = self.watch(relay.at)
        count, pause, cut = 0, 3, time.monotonic()

        def write():
            """Two changes after the read; etcd forgets the first one. If the
            machine is too slow for that, the agent has to connect and read
            again, with more time in each round."""
            nonlocal count, pause, cut
            for _ in range(2):
                count += 1
                revision = self.etcd.put("config", f"value {count}")
            self.etcd.ask("kv/compaction", revision=revision)
            if time.monotonic() > cut + pause:
                relay.cut()
                pause, cut = 2 * pause, time.monotonic()
            return "has dropped all before" in agent.logged()
        self.until("a watch that is cut", write)
        self.until("the value", lambda: watch.values and
                   watch.values[-1][2] == f"value {count}")
        self.until("a master", agent.is_holding)
        self.etcd.delete("lock")  # the agent watches it again
        self.until("another term", lambda: len(agent.holds) == 2)
        self.check()

    # ---- One key's value ----

    def watch(self, at):
        return Agent(self, "watch", at, "config")

    def test_a_value_and_its_changes(self):
        watch = self.watch(self.etcd.at)
        self.until("no value", lambda: watch.values)
        self.assertFalse(watch.values[0][1])
        for i in range(100):
            self.etcd.put("config", f"value {i}")
        self.until("the last", lambda: watch.values[-1][2] == "value 99")
        self.etcd.delete("config")
        self.until("no value", lambda: not watch.values[-1][1])
        revisions = [value[0] for value in watch.values]
        self.assertEqual(revisions, sorted(set(revisions)))

    def test_a_value_through_broken_connections(self):
        relay = self.relay(self.etcd, 0)
        self.etcd.put("config", "first")
        watch = self.watch(relay.at)
        self.until("a value", lambda: watch.values)
        for i in range(30):
            if i % 3 == 0:
                relay.cut()
            revision = self.etcd.put("config", f"value {i}")
            if i % 7 == 0:
                self.etcd.ask("kv/compaction", revision=revision)
            self.until("the value", lambda: watch.values[-1][2] == f"value {i}")
            self.assertEqual(watch.values[-1][0], revision)
        self.etcd.kill()
        self.until("trouble", lambda: watch.troubles and
                   watch.troubles[-1] != "-")
        self.etcd.start()
        self.until("no trouble", lambda: watch.troubles[-1] == "-")
        self.assertEqual(watch.values[-1][2], "value 29")
        revisions = [value[0] for value in watch.values]
        self.assertEqual(revisions, sorted(set(revisions)))


class WithTls(Case):
    def test_certificates(self):
        ours = str(self.folder / "ours")
        for words in (("ca", ours), ("client", ours, "root"),
                      ("server", ours, "127.0.0.1")):
            subprocess.run([WEIR, "cert", *words], check=True,
                           stdout=subprocess.DEVNULL)
        etcd = self.etcd(ours)
        etcd.start()
        files = [f"{ours}/ca.pem", f"{ours}/root.pem", f"{ours}/root.key"]
        master = self.stand("etcd", etcd.at + "/lock", count=2, files=files,
                            ttl=LONG)
        stranger = self.agent("etcd", etcd.at + "/lock", files=files[:1],
                              ttl=LONG)
        self.until("the log", lambda: "trying again" in stranger.logged())
        self.assertIsNone(stranger.master())
        self.assertTrue(master.is_holding(), self.told())
        self.check()


class WithThree(Case):
    """A cluster of three members; one may be down."""

    def setUp(self):
        super().setUp()
        self.members = [self.etcd(name=name) for name in "abc"]
        for member in self.members:
            member.cluster = self.members
            member.start()
        self.away = None  # the member that is down

    def leader(self):
        for member in self.members:
            try:
                if member is not self.away and member.leads():
                    return member
            except OSError:
                pass
        return None

    def renewed(self):
        """Keep-alives granted by all living members: each leader counts its
        own."""
        return sum(member.renewed() for member in self.members
                   if member is not self.away)

    def endpoints(self, first):
        """The endpoints of all members, 'first' in front."""
        rest = [m for m in self.members if m is not first]
        return ",".join(m.at for m in [first, *rest]) + "/lock"

    def test_nine_of_three_zones(self):
        for i in range(9):
            self.agent("etcd", self.endpoints(self.members[i % 3]))
        for _ in range(2):
            master = self.until("a master that all know", self.settled)
            self.follow(master, signal.SIGKILL)
        self.check()

    def outlive(self, member, master):
        """A member is killed: each agent that was connected to it goes to
        another, each lease is renewed, and the master stays."""
        self.away = member
        member.kill()
        self.until("a leader", self.leader)
        before = self.renewed()
        self.until("all have other members", lambda: all(
            a.endpoint() != member.at for a in self.agents))
        self.until("each lease is renewed", lambda: self.renewed() >=
                   before + len(self.agents))
        self.assert_never_lost(master)
        member.start()
        self.until("the member is back", member.is_ready)
        self.away = None

    def test_a_member_dies(self):
        """First a follower dies, then the leader; two agents are connected to
        each. An agent at a living member sends the next keep-alive within a
        third of a ttl. By then there is a new leader: an election of etcd
        takes less than half a second."""
        leader = self.until("a leader", self.leader)
        member = next(m for m in self.members if m is not leader)
        for first in leader, member, leader, member:
            self.agent("etcd", self.endpoints(first), ttl=12)
        master = self.until("a master that all know", self.settled)
        self.outlive(member, master)
        self.outlive(self.until("a leader", self.leader), master)
        self.check()

    def test_a_leader_is_stopped(self):
        """A stopped leader that goes on believes that it leads. It answers the
        keep-alives that agents had sent to it before, or since, as they go
        from one endpoint to the next."""
        for member in [*self.members, self.members[0]]:
            self.agent("etcd", self.endpoints(member))
        self.until("a master that all know", self.settled)
        for i in range(6):
            self.away = self.until("a leader", self.leader)
            self.away.signal(signal.SIGSTOP)
            self.until("another leader", self.leader)
            if i % 2 == 0:
                self.until("an agent holds", self.settled)
            self.away.signal(signal.SIGCONT)
            self.away = None
            self.until("an agent holds", self.settled)
        self.check()


class WithFile(Case):
    def setUp(self):
        super().setUp()
        self.where = str(self.folder / "lock")

    def test_killed_and_handed_over(self):
        master = self.stand("file", self.where)
        master = self.follow(master, signal.SIGKILL)
        last = self.follow(master, signal.SIGTERM)
        self.assertEqual(master.process.wait(PATIENCE), 0)
        # The term is a time, or one more than the last term.
        self.assertGreater(last.holds[-1][2], 1 << 40)
        self.assertEqual(Path(self.where).read_text().split()[:2],
                         [str(last.holds[-1][2]), last.name])
        self.check()

    def test_a_stopped_master_keeps_it(self):
        master = self.stand("file", self.where)
        master.signal(signal.SIGSTOP)
        # An agent that starts now asks for the lock, and doesn't get it.
        late = self.agent("file", self.where)
        self.until("the agent knows", lambda: late.master() == master.name)
        self.assert_never_lost(master)
        master.signal(signal.SIGCONT)
        self.follow(master, signal.SIGTERM)
        self.check()

    def test_removed(self):
        """An agent stands down when the lock's path no longer leads to the file
        that it has locked."""
        master = self.stand("file", self.where, count=1)
        Path(self.where).unlink()
        self.until("the agent stands down", lambda: master.holds[0][1])
        self.until("the agent holds the new file", master.is_holding)
        self.assertIn("the file was removed", master.logged())
        self.is_forgotten = True
        self.check()

    def test_a_file_that_is_no_lock(self):
        for text in "[server]\n", "1 two three\n", "-1 a\n", "5 a":
            Path(self.where).write_text(text)
            agent = self.agent("file", self.where)
            self.assertEqual(agent.process.wait(PATIENCE), 2)
            self.assertIn("isn't the lock of an election", agent.logged())
            self.assertEqual(Path(self.where).read_text(), text)

    def test_alone(self):
        first = self.stand("none", "-", count=1)
        first.signal(signal.SIGTERM)
        self.assertEqual(first.process.wait(PATIENCE), 0)
        self.until("the end of its hold", lambda: first.holds[-1][1])
        self.left.append(first)
        self.stand("none", "-", count=1)
        self.check()


if __name__ == "__main__":
    unittest.main(verbosity=1)
