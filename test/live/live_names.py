#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_names.py - roots that are found by names: a DNS server (dnsmasq) on
loopback, roots on addresses of loopback, and limiters that know one name.

The test has namespaces of its own (netns.py): in them /etc/resolv.conf names
this DNS server, and each root has an address with the usual port."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import unittest
import urllib.request
from pathlib import Path

import netns
from live_fleet import WEIR, Fleet, Root
from patience import PATIENCE, until, until_equal

NAME = "weir.test"
ROOTS = f"{NAME}:7077"
SERVICE = f"_weir._tcp.{NAME}"
ROOT_DOWN, FEW_ROOTS = 2, 22   # enum weir_event_type
BY_NAME = 4                # WEIR_ROOTS_BY_NAME
TARGETS_MAX = 64           # WEIR_NAME_ADDRESSES_MAX
LOAD = "q=200"


class Dns:
    """A DNS server with the addresses of names in a file, the SRV records of
    SERVICE, and a log of the questions."""

    def __init__(self, folder):
        self.records = []
        self.hosts, self.log = folder / "hosts", folder / "dns.log"
        self.resolv = folder / "resolv.conf"
        self.resolv.write_text("nameserver 127.0.0.1\n")
        subprocess.run(["mount", "--bind", self.resolv, "/etc/resolv.conf"],
                       check=True)
        self.hosts.write_text("")
        self.start()

    def start(self):
        reads = self.logged().count("read ")
        self.process = subprocess.Popen(
            ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null",
             "--user=root", "--pid-file=", "--no-resolv", "--no-hosts",
             "--local=/test/", f"--addn-hosts={self.hosts}", "--local-ttl=0",
             "--listen-address=127.0.0.1", "--bind-interfaces",
             "--log-queries", f"--log-facility={self.log}",
             *(f"--srv-host={SERVICE}{record}" for record in self.records)],
            start_new_session=True)
        until("the DNS server", lambda:
              self.logged().count("read ") > reads)

    def logged(self):
        return self.log.read_text() if self.log.exists() else ""

    def set(self, *addresses, name=NAME):
        """From the next question on the name has these addresses."""
        others = [line for line in self.hosts.read_text().splitlines()
                  if line.split()[1] != name]
        lines = others + [f"{address} {name}" for address in addresses]
        reads = self.logged().count("read ")
        self.hosts.write_text("".join(line + "\n" for line in lines))
        self.process.send_signal(signal.SIGHUP)
        until("the DNS server has read it",
              lambda: self.logged().count("read ") > reads)

    def set_service(self, *targets):
        """From the next question on SERVICE has these targets, NAME:PORT;
        "" is the target '.'."""
        self.stop()
        self.records = ["," + target.replace(":", ",") if target else ""
                        for target in targets]
        self.start()

    def asked(self, name=NAME):
        """Questions so far; a client may write the name in any case."""
        kind = "srv" if name == SERVICE else "a"
        return self.logged().lower().count(f"query[{kind}] {name} ")

    def until_asked(self, times, name=NAME):
        """Waits for so many more questions."""
        wanted = self.asked(name) + times
        until(f"{times} more questions", lambda: self.asked(name) >= wanted)

    def stop(self):
        """With its children, which answer by TCP: they have its port."""
        with contextlib.suppress(ProcessLookupError):   # stopped before
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Placed(Root):
    """A root at an address with the usual ports."""

    def __init__(self, fleet, address, *options, listen=None):
        self.fleet, self.options, self.env = fleet, options, None
        self.listen = listen or f"{address}:7077"
        self.http = f"{address}:7078"
        self.number = len(fleet.roots)
        fleet.roots.append(self)
        self.start()

    def limiters(self):
        """The names of the limiters that are connected."""
        return sorted(limiter["name"] for limiter in self.status()["limiters"]
                      if limiter["connected"])


class Case(unittest.TestCase):
    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.dns = Dns(self.fleet.folder)
        self.addCleanup(subprocess.run, ["umount", "/etc/resolv.conf"])
        self.addCleanup(self.dns.stop)

    def place(self, *numbers):
        return [Placed(self.fleet, f"127.0.0.{number}") for number in numbers]

    def agent(self, roots=ROOTS):
        """An agent; returns a function that reads its /v1/roots."""
        ports = self.fleet.folder / "agent.ports"
        log = open(self.fleet.folder / "agent.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [WEIR, "agent", "--roots", roots, "--http", "127.0.0.1:0",
             "--port-file", ports], stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until("the agent's port", ports.exists)
        place = ports.read_text().strip().split("=")[1]

        def read(path="/v1/roots"):
            with urllib.request.urlopen(f"http://{place}{path}",
                                        timeout=PATIENCE) as answer:
                return answer.read().decode()
        return read

    def until_up(self, read, *addresses):
        """Waits until the agent is connected to these, and knows no other."""
        wanted = sorted((f"{address}:7077", True) for address in addresses)
        until_equal("the agent's roots", wanted, lambda: sorted(
            (root["address"], root["up"])
            for root in json.loads(read())["roots"]))

    def until_counted(self, roots, name, passed):
        until_equal(f"the roots' counts of {name}", [passed] * len(roots),
                    lambda: [root.usage().get(name, {}).get("passed")
                             for root in roots])


class Names(Case):
    def test_all_addresses_are_used_and_followed(self):
        """Two roots by one name; one is killed, and another takes its place
        under another address. Each count is at each living root once."""
        first, second = self.place(2, 3)
        self.fleet.set("q", "limit=100000/s")
        self.dns.set("127.0.0.2", "127.0.0.3")
        limiter = self.fleet.add_limiter([LOAD], roots=ROOTS, ready=True)
        self.fleet.wait_linked(2)
        first.kill()
        self.fleet.wait_linked(1)
        third, = self.place(4)
        self.dns.set("127.0.0.3", "127.0.0.4")
        until("the new root has the limiter", third.limiters)
        self.fleet.wait_linked(2)
        # Killed again, and back at its address.
        second.kill()
        self.fleet.wait_linked(1)
        second.start()
        self.fleet.wait_linked(2)
        limiter.tell("rest")
        until("the last bin", lambda: limiter.told("rest"))
        passed = limiter.seen()["seen"]["q"][1]
        self.assertGreater(passed, 0)
        until("the fill of both", lambda: all(
            root.usage().get("q") for root in (second, third)))
        self.assertEqual(limiter.seen()["roots_up"], 2)

    def test_counts_are_exact_at_each(self):
        roots = self.place(2, 3, 4)
        self.fleet.set("q", "limit=100000/s")
        self.dns.set("127.0.0.2", "127.0.0.3", "127.0.0.4")
        limiter = self.fleet.add_limiter([LOAD], roots=ROOTS, ready=True)
        self.fleet.wait_linked(3)
        limiter.tell("rest")
        until("the last bin", lambda: limiter.told("rest"))
        self.until_counted(roots, "q", limiter.seen()["seen"]["q"][1])

    def test_two_addresses_of_one_root(self):
        """IPv4 and IPv6 of one root are one root: one link, and each count is
        there once."""
        both = Placed(self.fleet, "127.0.0.2", "--insecure", listen=":7077")
        self.fleet.set("q", "limit=100000/s")
        self.dns.set("127.0.0.2", "::1")
        read = self.agent()

        def is_one():
            known = json.loads(read())["roots"]
            return len(known) == 1 and known[0]["up"]
        until("one link", is_one)
        self.dns.until_asked(2)
        until("still one link", is_one)
        limiter = self.fleet.add_limiter([LOAD], roots=ROOTS, ready=True)
        self.fleet.wait_linked(1)
        limiter.tell("rest")
        until("the last bin", lambda: limiter.told("rest"))
        self.until_counted([both], "q", limiter.seen()["seen"]["q"][1])
        # The other address takes over when the first can't be reached.
        both.kill()
        both.options = ()
        both.listen = "[::1]:7077"
        both.start()
        until("the other address", lambda: {
            root["address"]: root["up"]
            for root in json.loads(read())["roots"]} == {
                "[::1]:7077": True, "127.0.0.2:7077": False})

    def test_two_names_of_one_root(self):
        self.place(2)
        self.dns.set("127.0.0.2")
        self.dns.set("127.0.0.2", name="also.test")
        read = self.agent(f"{ROOTS},also.test:7077,127.0.0.2:7077")
        self.until_up(read, "127.0.0.2")

    def test_without_an_answer_that_which_is_known_stays(self):
        self.place(2, 3)
        self.dns.set("127.0.0.2", "127.0.0.3")
        read = self.agent()
        self.until_up(read, "127.0.0.2", "127.0.0.3")
        self.dns.set()   # the name is gone
        self.dns.until_asked(2)
        self.until_up(read, "127.0.0.2", "127.0.0.3")
        self.dns.stop()  # no server
        self.fleet.roots[0].kill()
        until("a link is lost", lambda: any(
            not root["up"] for root in json.loads(read())["roots"]))
        self.fleet.roots[0].start()
        self.until_up(read, "127.0.0.2", "127.0.0.3")
        self.dns.start()
        self.dns.set("127.0.0.3")
        self.fleet.roots[0].kill()
        self.until_up(read, "127.0.0.3")

    def test_a_name_that_comes_later(self):
        self.place(2)
        limiter = self.fleet.add_limiter([LOAD], roots=ROOTS)
        until("the reason", lambda: [
            line for line in limiter.told("event")
            if line["event"] == ROOT_DOWN and ROOTS in line["text"]])
        self.dns.set("127.0.0.2")
        self.fleet.wait_linked(1)

    def test_more_roots_than_links(self):
        """All limiters choose the same."""
        numbers = range(2, 2 + BY_NAME + 2)
        roots = self.place(*numbers)
        self.dns.set(*(f"127.0.0.{number}" for number in numbers))
        for _ in range(3):
            self.fleet.add_limiter([LOAD], roots=ROOTS)
        self.fleet.wait_linked(BY_NAME)
        until_equal("limiters of each root", [0, 0] + [3] * BY_NAME,
                    lambda: sorted(len(root.limiters()) for root in roots))

    def test_limiters_meet_again(self):
        """The roots that a limiter uses are away for a while. It and one that
        starts later use the same."""
        numbers = range(2, 2 + 2 * BY_NAME)
        roots = self.place(*numbers)
        self.dns.set(*(f"127.0.0.{number}" for number in numbers))
        self.fleet.add_limiter([LOAD], roots=ROOTS)
        self.fleet.wait_linked(BY_NAME)
        best = [root for root in roots if root.limiters()]
        rest = [root for root in roots if root not in best]
        for root in best:
            root.kill()
        until("the others are used", lambda: all(
            root.limiters() for root in rest))
        for root in best:
            root.start()
        self.fleet.add_limiter([LOAD], roots=ROOTS)
        until_equal("limiters of each root", [2] * BY_NAME + [0] * BY_NAME,
                    lambda: [len(root.limiters()) for root in best + rest],
                    patience=3 * PATIENCE)

    def test_a_long_answer(self):
        """Over 512 bytes an answer comes by TCP: here 60 addresses, all of
        one root."""
        root = Placed(self.fleet, "127.0.0.9", "--insecure", listen=":7077")
        self.dns.set(*(f"127.0.1.{number}" for number in range(1, 61)))
        self.fleet.add_limiter([LOAD], roots=ROOTS)
        until("the root", root.limiters)

    def test_certificates_are_for_the_name(self):
        """Not for the addresses that DNS says it has."""
        folder = self.fleet.folder
        self.fleet.weir("cert", "ca", str(folder / "certs"))
        for host in (NAME, "other.test"):
            self.fleet.weir("cert", "server", str(folder / "certs"), host)

        def place(number, host):
            return Placed(self.fleet, f"127.0.0.{number}", "--tls-cert",
                          str(folder / "certs" / f"{host}.pem"), "--tls-key",
                          str(folder / "certs" / f"{host}.key"))
        place(2, NAME)
        place(3, NAME)
        place(4, "other.test")
        self.dns.set("127.0.0.2", "127.0.0.3", "127.0.0.4")
        limiter = self.fleet.add_limiter(
            [LOAD], roots=ROOTS, env={
                **os.environ, "WEIR_TLS_CA": str(folder / "certs/ca.pem")})
        self.fleet.wait_linked(2)
        until("the refusal", lambda: [
            line for line in limiter.told("event")
            if line["event"] == ROOT_DOWN and "127.0.0.4" in line["text"]])
        self.fleet.wait_linked(2)

    def test_a_region_follows_too(self):
        first, second = self.place(2, 3)
        self.dns.set("127.0.0.2")
        log = open(self.fleet.folder / "region.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [WEIR, "serve", "--region", "eu", "--upstream", ROOTS, "--listen",
             "127.0.0.9:7077", "--http", "127.0.0.9:7078", "--snapshot",
             "off"], stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until("the first root has it", first.limiters)
        self.dns.set("127.0.0.3")
        first.kill()
        until("the second root has it", second.limiters)


class Services(Case):
    """Roots by SRV records: each has a port of its own."""

    def place_at(self, number, port):
        """A root that only a target's record tells, n2.test and so on."""
        self.dns.set(f"127.0.0.{number}", name=f"n{number}.test")
        return Placed(self.fleet, f"127.0.0.{number}",
                      listen=f"127.0.0.{number}:{port}")

    def until_up(self, read, *addresses):
        until_equal("the agent's roots", sorted((a, True) for a in addresses),
                    lambda: sorted((root["address"], root["up"])
                                   for root in json.loads(read())["roots"]))

    def test_all_targets_are_used_and_followed(self):
        """Two targets with different ports; one is killed, and another record
        takes its place."""
        first = self.place_at(2, 7071)
        self.place_at(3, 7072)
        self.fleet.set("q", "limit=100000/s")
        self.dns.set_service("n2.test:7071", "n3.test:7072")
        read = self.agent(SERVICE)
        self.until_up(read, "127.0.0.2:7071", "127.0.0.3:7072")
        first.kill()
        third = self.place_at(4, 7073)
        self.dns.set_service("n4.test:7073", "n3.test:7072")
        self.until_up(read, "127.0.0.3:7072", "127.0.0.4:7073")
        limiter = self.fleet.add_limiter([LOAD], roots=SERVICE, ready=True)
        until("both have the limiter", lambda: all(
            len(root.limiters()) == 2
            for root in (third, self.fleet.roots[1])))
        limiter.tell("rest")
        until("the last bin", lambda: limiter.told("rest"))
        self.until_counted([third, self.fleet.roots[1]], "q",
                           limiter.seen()["seen"]["q"][1])

    def test_without_targets_that_which_is_known_stays(self):
        """The target '.', no record, and no server."""
        self.place_at(2, 7071)
        self.dns.set_service("n2.test:7071")
        read = self.agent(SERVICE)
        self.until_up(read, "127.0.0.2:7071")
        for targets in ([""], []):
            self.dns.set_service(*targets)
            self.dns.until_asked(2, SERVICE)
            self.until_up(read, "127.0.0.2:7071")
        # A target without an address.
        self.dns.set_service("nowhere.test:7071")
        self.dns.until_asked(2, "nowhere.test")
        self.until_up(read, "127.0.0.2:7071")
        self.dns.stop()
        self.fleet.roots[0].kill()
        until("the link is lost", lambda: not any(
            root["up"] for root in json.loads(read())["roots"]))
        self.fleet.roots[0].start()
        self.until_up(read, "127.0.0.2:7071")

    def test_a_service_that_comes_later(self):
        """The reasons name it: no record, and a record that says '.'."""
        self.place_at(2, 7071)
        limiter = self.fleet.add_limiter([LOAD], roots=SERVICE)
        self.dns.set_service("")
        late = self.fleet.add_limiter([LOAD], roots=SERVICE)
        for one, why in (limiter, ""), (late, "the target '.'"):
            until("the reason", lambda one=one, why=why: [
                line for line in one.told("event")
                if line["event"] == ROOT_DOWN and SERVICE in line["text"]
                and why in line["text"]])
        self.dns.set_service("n2.test:7071")
        self.fleet.wait_linked(1)

    def test_a_long_answer(self):
        """Over 512 bytes an answer comes by TCP."""
        both = self.place_at(2, 7071), self.place_at(3, 7072)
        gone = [f"{number}-{'x' * 40}.test:7077" for number in range(40)]
        self.dns.set_service(*gone, "n2.test:7071", "n3.test:7072")
        self.fleet.add_limiter([LOAD], roots=SERVICE)
        until("both roots", lambda: all(root.limiters() for root in both))

    def test_more_targets_than_the_bound(self):
        """The same are chosen in any order: no others are asked for."""
        targets = [f"t{number}.test:7071" for number in range(2 * TARGETS_MAX)]
        chosen = []
        for order in targets, targets[::-1]:
            self.dns.set_service(*order)
            begun = len(self.dns.logged())
            if not chosen:
                self.agent(SERVICE)
            # At the third answer all targets of the second were asked for.
            self.dns.until_asked(3, SERVICE)
            chosen.append(set(re.findall(r"query\[A\] (t\d+)\.test",
                                         self.dns.logged()[begun:])))
        self.assertEqual(len(chosen[0]), TARGETS_MAX)
        self.assertEqual(chosen[0], chosen[1])

    def test_certificates_are_for_the_name(self):
        """Not for the targets that DNS says it has."""
        folder = self.fleet.folder
        self.fleet.weir("cert", "ca", str(folder / "certs"))
        for number, host in (2, NAME), (3, "n3.test"):
            self.fleet.weir("cert", "server", str(folder / "certs"), host)
            self.dns.set(f"127.0.0.{number}", name=f"n{number}.test")
            Placed(self.fleet, f"127.0.0.{number}", "--tls-cert",
                   str(folder / "certs" / f"{host}.pem"), "--tls-key",
                   str(folder / "certs" / f"{host}.key"))
        self.dns.set_service("n2.test:7077", "n3.test:7077")
        limiter = self.fleet.add_limiter(
            [LOAD], roots=SERVICE, env={
                **os.environ, "WEIR_TLS_CA": str(folder / "certs/ca.pem")})
        self.fleet.wait_linked(1)
        until("the refusal", lambda: [
            line for line in limiter.told("event")
            if line["event"] == ROOT_DOWN and "127.0.0.3" in line["text"]])
        self.fleet.wait_linked(1)

    def test_a_region_follows_too(self):
        first, second = self.place_at(2, 7071), self.place_at(3, 7072)
        self.dns.set_service("n2.test:7071", "n3.test:7072")
        log = open(self.fleet.folder / "region.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [WEIR, "serve", "--region", "eu", "--upstream", SERVICE,
             "--listen", "127.0.0.9:7077", "--http", "127.0.0.9:7078",
             "--snapshot", "off"], stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until("both roots have it",
              lambda: first.limiters() and second.limiters())


    def test_a_server_that_is_silent(self):
        """The next one is asked within the time of a lookup."""
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(silent.close)
        silent.bind(("127.0.0.66", 53))
        self.dns.resolv.write_text(
            "nameserver 127.0.0.66\nnameserver 127.0.0.1\n")
        self.place_at(2, 7071)
        self.dns.set_service("n2.test:7071")
        read = self.agent(SERVICE)
        self.until_up(read, "127.0.0.2:7071")
        self.assertTrue(silent.recv(512))

    def test_commands(self):
        """They ask one of the roots; and a port is refused with a reason."""
        self.place_at(2, 7071)

        def run(*arguments):
            done = subprocess.run([WEIR, *arguments], text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=PATIENCE)
            return done.returncode, done.stdout + done.stderr
        code, said = run("status", "--roots", SERVICE)
        self.assertNotEqual(code, 0)
        self.assertIn(SERVICE, said)
        self.dns.set_service("n2.test:7071")
        code, said = run("status", "--roots", SERVICE)
        self.assertEqual(code, 0, said)
        self.assertIn("127.0.0.2:7071", said)
        for command in (["status", "--roots"], ["agent", "--roots"],
                        ["take", "q", "--roots"],
                        ["serve", "--region", "eu", "--upstream"]):
            code, said = run(*command, f"{SERVICE}:7077")
            self.assertNotEqual(code, 0)
            self.assertIn("has no port", said)


class Balancer(threading.Thread):
    """One address before several roots: connections go to them in turn."""

    def __init__(self, address, targets):
        super().__init__(daemon=True)
        self.targets = itertools.cycle(targets)
        self.listener = socket.create_server(address)

    def run(self):
        with contextlib.suppress(OSError):   # closed
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self.carry, args=(near,),
                                 daemon=True).start()

    def carry(self, near):
        with near, contextlib.suppress(OSError), \
                socket.create_connection(next(self.targets)) as far:
            back = threading.Thread(target=self.copy, args=(far, near))
            back.start()
            self.copy(near, far)
            back.join()

    @staticmethod
    def copy(one, other):
        with contextlib.suppress(OSError):
            while part := one.recv(65536):
                other.sendall(part)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Balanced(Case):
    def test_a_load_balancer_is_noticed(self):
        """Two limiters behind one address, each with another root: they say
        so, after a minute. A limiter that knows both roots doesn't."""
        first, second = self.place(2, 3)
        balancer = Balancer(("127.0.0.9", 7077),
                            [("127.0.0.2", 7077), ("127.0.0.3", 7077)])
        balancer.start()
        self.addCleanup(balancer.close)
        self.dns.set("127.0.0.2", "127.0.0.3")
        sound = self.fleet.add_limiter([LOAD], roots=ROOTS)
        read = self.agent("127.0.0.9:7077")
        beside = self.fleet.add_limiter([LOAD], roots="127.0.0.9:7077")
        until_equal("roots of the store", [2, 2], lambda: [
            root.status()["stats"]["roots"] for root in (first, second)])
        until("the agent notices it",
              lambda: "weir_agent_few_roots 1\n" in read("/metrics"),
              patience=2 * PATIENCE)
        self.assertIn("weir_agent_roots_there 2\n", read("/metrics"))
        log = (self.fleet.folder / "agent.log").read_text()
        self.assertIn("there are more roots: connected to 1 of 2 roots", log)
        until("an event of the other", lambda: [
            line for line in beside.told("event")
            if line["event"] == FEW_ROOTS])
        self.assertFalse([line for line in sound.told("event")
                          if line["event"] == FEW_ROOTS])
        until_equal("limiters with few roots", [1, 1], lambda: [
            root.status()["stats"]["limiters_few_roots"]
            for root in (first, second)], patience=2 * PATIENCE)
        said = self.fleet.weir("status")[1]
        self.assertIn("roots     2 on this store", said)
        self.assertIn("is connected to 1 of 2 roots", said)
        self.assertIn("weir_limiters_few_roots 1\n", first.read("/metrics"))
        # A root that stops leaves at once, and all is well.
        second.process.terminate()
        second.process.wait()
        until("the agent is content",
              lambda: "weir_agent_few_roots 0\n" in read("/metrics"))


def main():
    netns.seclude()
    netns.ip("link", "set", "lo", "up")
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
