#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_doorman.py - Doorman's old clients with real servers: generated code in
Python and in Go (test/doorman), a Doorman file that changes, and three servers
with a real etcd: their master is killed, the next one is stopped for a while.

The oracle knows each client's grant and expiry: the sum of grants never exceeds
the capacity. A client never uses more than its server counts: it ignores an
answer that is too late, and a server counts a grant until the client reports
that it has less."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path

import patience
from build_once import build_once
from live_etcd import Etcd
from patience import PATIENCE

BUILD = Path(os.environ["WEIR_BUILD"])
WEIR = str(BUILD / "weir")
TEST = Path(__file__).parents[1]
CAPACITY = 400
CLIENTS = 40  # which want more than a thousand together
LEASE = 4     # seconds: twice the ttl of a mastership, so that clients mostly
              # keep what they have; a new master learns for a bit more
FILE = """resources:
- identifier_glob: fleet_*
  capacity: {capacity}
  safe_capacity: 0
  algorithm: {{kind: FAIR_SHARE, lease_length: {lease}, refresh_interval: 1}}
- identifier_glob: quick
  capacity: 100
  safe_capacity: 2.5
  algorithm: {{kind: PROPORTIONAL_SHARE, lease_length: 60,
              refresh_interval: 15, learning_mode_duration: 0}}
- identifier_glob: below_*
  capacity: 100
  algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 15,
              learning_mode_duration: 7,
              parameters: [{{name: variant, value: fast}}, {{name: flag}}]}}
- identifier_glob: "*"
  capacity: 10
  algorithm: {{kind: STATIC, lease_length: 60, refresh_interval: 5,
              learning_mode_duration: 0}}
"""


def file_text(capacity=CAPACITY):
    return FILE.format(capacity=capacity, lease=LEASE)


class Server:
    def __init__(self, folder, name, *args, env=None):
        self.folder, self.name, self.args = folder, name, args
        self.log = folder / f"{name}.log"
        self.ports = folder / f"{name}.ports"
        self.process, self.env = None, env
        self.port = patience.free_port()

    def start(self):
        self.ports.unlink(missing_ok=True)
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [WEIR, "serve", "--listen", f"127.0.0.1:{self.port}",
                 "--http", "127.0.0.1:0", "--name", self.name,
                 "--port-file", self.ports, *self.args],
                stdout=log, stderr=log, env=self.env)
        patience.until(f"{self.name} starts", self.has_started)
        ports = dict(line.split("=") for line in
                     self.ports.read_text().split())
        self.at, self.http = ports["listen"], ports["http"]
        return self

    def has_started(self):
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        return self.ports.exists()

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}",
                                    timeout=PATIENCE) as answer:
            return answer.read().decode()

    def status(self):
        return json.loads(self.get("/v1/status"))

    def says(self, text):
        return text in self.log.read_text()

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class Client:
    """A process of generated code; one call at a time."""

    def __init__(self, program, at):
        self.process = subprocess.Popen([*program, at], text=True,
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def send(self, call, **fields):
        """Sends the request; receive() returns its answer."""
        line = json.dumps({"call": call, "timeout": PATIENCE, **fields})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.process.stdout.readline())

    def call(self, call, **fields):
        self.send(call, **fields)
        return self.receive()

    def get(self, client, resource, wants, **more):
        answer = self.call("GetCapacity", client=client, resources=[
            {"id": resource, "wants": wants, **more}])
        return (answer.get("resources") or [answer])[0]

    def end(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Oracle:
    """The grants of all clients, by their answers."""

    def __init__(self):
        self.lock = threading.Lock()
        self.told = {}  # client -> (capacity, expiry, instant of the request)
        self.worst = 0

    def has(self, client):
        capacity, expiry, _ = self.told.get(client, (0, 0, 0))
        return capacity if time.time() < expiry else 0

    def sum(self):
        now = time.time()
        return sum(capacity for capacity, expiry, _ in
                   list(self.told.values()) if now < expiry)

    def tell(self, client, capacity, expiry, asked):
        with self.lock:
            self.told[client] = (capacity, expiry, asked)
            self.worst = max(self.worst, self.sum())

    def is_full(self, since):
        """Each client has asked since the instant, and together they have
        nearly all of the capacity."""
        told = list(self.told.values())
        return len(told) == CLIENTS and self.sum() > 0.95 * CAPACITY and \
            all(asked > since for _, _, asked in told)


class Fleet(threading.Thread):
    """Some clients, with one process to each server. All ask four times a
    second, at the server that was named last as the master."""

    def __init__(self, program, servers, oracle, names):
        super().__init__(daemon=True)
        self.clients = [Client(program, server.at) for server in servers]
        self.addresses = [server.at for server in servers]
        self.oracle, self.names = oracle, names
        self.at, self.stopped = 0, threading.Event()

    def ask(self, name):
        lease = {"capacity": self.oracle.has(name)}
        wants = 5 + 7 * (hash_of(name) % 7)
        asked = time.monotonic()
        answer = self.clients[self.at].call(
            "GetCapacity", client=name, timeout=0.5, resources=[
                {"id": "fleet_1", "wants": wants, "has": lease}])
        if answer.get("resources"):
            grant = answer["resources"][0]
            self.oracle.tell(name, grant["capacity"], grant["expiry"], asked)
            return True
        master = answer.get("master")
        known = master in self.addresses
        self.at = self.addresses.index(master) if known else \
            (self.at + 1) % len(self.clients)
        return False

    def run(self):
        while not self.stopped.is_set():
            began = time.monotonic()
            for name in self.names:
                tries = 0
                while not self.stopped.is_set() and tries < 3 and \
                        not self.ask(name):
                    tries += 1
            self.stopped.wait(max(0, 0.25 - (time.monotonic() - began)))

    def end(self):
        self.stopped.set()
        self.join()
        for client in self.clients:
            client.end()


def hash_of(name):
    return sum(name.encode()) * 31


def client_of(name, *what):
    """A folder with the client programs that build.sh generates."""
    def build(folder):
        subprocess.run(["sh", TEST / "doorman" / "build.sh", folder, *what],
                       check=True, stdout=subprocess.DEVNULL)
    return build_once(
        BUILD / "test" / name,
        [*(TEST / "doorman").iterdir(), TEST.parent / "proto/doorman.proto"],
        build)


def python_client():
    """The command of the client in Python."""
    return ["/usr/bin/python3",
            client_of("doorman-python", "python") / "client.py"]


def go_client():
    return [client_of("doorman-go") / "client-go"]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-doorman."))
        self.file = self.folder / "resources.yml"
        self.file.write_text(file_text())
        self.servers_started = []
        self.addCleanup(shutil.rmtree, self.folder)

    def until(self, what, ask):
        """Waits until 'ask' is true; a failure shows the servers' logs."""
        try:
            return patience.until(what, ask)
        except AssertionError as error:
            logs = [f"{one.name}: {one.log.read_text()[-3000:]}"
                    for one in self.servers_started]
            raise AssertionError("\n".join([str(error), *logs])) from None

    def serve(self, name, *args, env=None):
        server = Server(self.folder, name, *args, env=env)
        self.addCleanup(server.end)
        self.servers_started.append(server)
        return server.start()

    def etcd(self):
        etcd = Etcd(self.folder)
        self.addCleanup(etcd.kill)
        return etcd

    def serve_file(self):
        return self.serve("one", "--doorman-config", f"file:{self.file}")

    def client(self, program, server):
        client = Client(program, server.at)
        self.addCleanup(client.end)
        return client


class OneServer(Case):
    @classmethod
    def setUpClass(cls):
        cls.python = python_client()

    def get_refresh_release(self, program):
        server = self.serve_file()
        client = self.client(program, server)
        answer = client.call("Discovery")
        self.assertEqual((answer["is_master"], answer["master"]),
                         (True, server.at))
        before = time.time()
        first = client.get("a", "quick", 70)
        after = time.time()
        self.assertEqual((first["capacity"], first["refresh"],
                          first["safe"]), (70, 15, 2.5))
        # in whole seconds
        self.assertGreater(first["expiry"], before + 60 - 1)
        self.assertLess(first["expiry"], after + 60 + 1)
        # The capacity of client a stays a's until a reports less.
        self.assertEqual(client.get("b", "quick", 70)["capacity"], 30)
        self.assertEqual(client.get("a", "quick", 70, has={
            "capacity": 70})["capacity"], 50)
        self.assertEqual(client.get("b", "quick", 70, has={
            "capacity": 30})["capacity"], 30)
        client.get("a", "quick", 70, has={"capacity": 50})
        self.assertEqual(client.get("b", "quick", 70, has={
            "capacity": 30})["capacity"], 50)
        client.call("ReleaseCapacity", client="a", resources=["quick", "?"])
        self.assertEqual(client.get("b", "quick", 70, has={
            "capacity": 50})["capacity"], 70)
        # A "*" matches no '/': the file has no template for this resource.
        strange = client.get("a", "a/b", 30)
        self.assertEqual((strange["capacity"], strange["safe"]), (30, -1))
        self.assertTrue(server.says("a asks for a/b, which has no quota"))
        refused = client.get("a", "", 1)
        self.assertEqual(refused["error"], 3, refused)
        self.pages(server, client)
        both = client.call("GetCapacity", client="c", resources=[
            {"id": "s1", "wants": 7}, {"id": "s2", "wants": 70}])
        self.assertEqual([r["capacity"] for r in both["resources"]], [7, 10])
        # An id of any length is a client.
        self.assertEqual(client.get("e" * 300, "s1", 7)["capacity"], 7)
        # Bad rows don't silence the others, and amounts are answered.
        mixed = client.call("GetCapacity", client="d", resources=[
            {"id": "s1", "wants": -5}, {"id": "", "wants": 1},
            {"id": "s" * 256, "wants": 1}, {"id": "s2", "wants": 7},
            {"id": "s3", "wants": 2e18}])
        self.assertEqual({r["id"]: r["capacity"] for r in mixed["resources"]},
                         {"s1": 0, "s2": 7, "s3": 10})
        self.assertTrue(server.says("a bad row: resource_id is empty; from "
                                    "client a"))
        self.assertIn("weir_doorman_bad_rows_total 5", server.get("/metrics"))

    def pages(self, server, client):
        client.get("<b>", "quick", 1)
        page = server.get("/debug/resources?resource=quick")
        self.assertIn("<td>&lt;b&gt;</td>", page)
        self.assertNotIn("<b>", page)
        page = server.get("/debug/status")
        self.assertIn("This <b>is</b> the master", page)
        self.assertIn('identifier_glob: "fleet_*"', page)
        client.call("ReleaseCapacity", client="<b>", resources=["quick"])
        metrics = server.get("/metrics")
        self.assertIn('doorman_server_wants{resource="quick"} 70', metrics)
        self.assertIn('doorman_server_request_errors{method="GetCapacity"} 1',
                      metrics)

    def test_python_gets_refreshes_releases(self):
        self.get_refresh_release(self.python)

    def test_go_gets_refreshes_releases(self):
        self.get_refresh_release(go_client())

    def close_of_the_go_client(self, program):
        """The original's client in Go releases all that it has when it is
        closed: an empty id for each of its resources, and then the ids. It
        repeats the call until the server accepts it."""
        client = self.client(program, self.serve_file())
        have = ["quick", "s1", "s2"]
        client.call("GetCapacity", client="a", resources=[
            {"id": name, "wants": 70} for name in have])
        self.assertEqual(client.get("b", "quick", 100)["capacity"], 30)
        answer = client.call("ReleaseCapacity", client="a",
                             resources=[""] * len(have) + have)
        self.assertNotIn("error", answer)
        self.assertEqual(client.get("b", "quick", 100, has={
            "capacity": 30})["capacity"], 100)

    def test_python_releases_like_the_go_client(self):
        self.close_of_the_go_client(self.python)

    def test_go_releases_like_the_go_client(self):
        self.close_of_the_go_client(go_client())

    def serve_a_server(self, program):
        """A server below receives the algorithm as the file has it."""
        client = self.client(program, self.serve_file())
        answer = client.call("GetServerCapacity", client="s:1", resources=[
            {"id": "below_1", "clients": 3, "wants": 30},
            {"id": "", "clients": 3, "wants": 30},
            {"id": "fleet_1", "clients": 3, "wants": 30}])
        below, fleet = answer["resources"]
        self.assertEqual((below["id"], fleet["id"]), ("below_1", "fleet_1"))
        self.assertEqual(below["algorithm"], {
            "kind": 3, "lease": 60, "refresh": 15, "learning": 7,
            "parameters": [{"name": "variant", "value": "fast"},
                           {"name": "flag", "value": None}]})
        # Without a duration of its own it is the lease's.
        self.assertEqual(fleet["algorithm"], {
            "kind": 3, "lease": LEASE, "refresh": 1, "learning": LEASE,
            "parameters": []})
        # As in the original: a row without subclients fails the call.
        refused = client.call("GetServerCapacity", client="s:1", resources=[
            {"id": "below_1", "clients": 3, "wants": 30},
            {"id": "quick", "clients": 0, "wants": 30}])
        self.assertEqual((refused["error"], refused["text"]),
                         (3, "subclients should be > 0"))

    def test_python_is_a_server_below(self):
        self.serve_a_server(self.python)

    def test_go_is_a_server_below(self):
        self.serve_a_server(go_client())

    def test_credentials_and_strangers(self):
        credentials = self.folder / "credentials"
        credentials.write_text("edit token ops 0123456789abcdef0123\n")
        credentials.chmod(0o600)
        shut = self.serve("shut", "--doorman-config", f"file:{self.file}",
                          "--credentials", credentials)
        refused = self.client(self.python, shut).get("a", "quick", 1)
        self.assertEqual(refused["error"], 16, refused)
        open_ = self.serve("open", "--doorman-config", f"file:{self.file}",
                           "--credentials", credentials,
                           "--doorman-insecure")
        client = self.client(self.python, open_)
        self.assertEqual(client.get("a", "quick", 1)["capacity"], 1)
        # Only that is open: the command line is refused.
        said = subprocess.run([WEIR, "quota", "ls", "--root", open_.at],
                              capture_output=True, text=True)
        self.assertNotEqual(said.returncode, 0)

    # ---- The file ----

    def test_reload(self):
        server = self.serve_file()
        client = self.client(self.python, server)
        self.assertEqual(client.get("a", "quick", 70)["capacity"], 70)
        epoch = server.status()["epoch"]
        text = file_text()
        self.file.write_text(text.replace("capacity: 100\n",
                                          "capacity: 60\n"))
        server.signal(signal.SIGHUP)
        self.until("the reload", lambda: server.status()["epoch"] > epoch)
        self.assertEqual(client.get("a", "quick", 70, has={
            "capacity": 70})["capacity"], 60)
        # A change is read without a signal too, within a second or so.
        self.file.write_text(text)
        self.until("the reload", lambda: client.get("a", "quick", 70, has={
            "capacity": 60})["capacity"] == 70)
        # Files that are refused, in Doorman's words: the old one stays.
        epoch = server.status()["epoch"]
        for bad, words in (
                (text.replace('"*"', '"**"'),
                 'the resource respository must contain at least an entry '
                 'for "*"'),
                (text.replace("lease_length: 60", "lease_length: 0"),
                 "Invalid lease length, must be at least 1 second"),
                (text.replace("quick", "a["), "syntax error in pattern"),
                ("resources: [", "this is no YAML")):
            self.file.write_text(bad)
            server.signal(signal.SIGHUP)
            self.until(words, lambda: words in
                       server.status()["store"].get("problem", ""))
            self.assertTrue(server.says(words))
            self.assertIn("weir_store_up 0", server.get("/metrics"))
        self.file.unlink()
        server.signal(signal.SIGHUP)
        self.until("the file's loss", lambda: "No such file" in
                   server.status()["store"].get("problem", ""))
        self.assertEqual(server.status()["epoch"], epoch)
        self.assertEqual(client.get("a", "quick", 70, has={
            "capacity": 70})["capacity"], 70)
        self.file.write_text(text)
        self.until("a store without problem", lambda: "problem" not in
                   server.status()["store"])

    def test_alone(self):
        """A root that is told that nothing is out doesn't wait; another one
        does, and grants what is certain to be free after a lease."""
        alone = self.serve("alone", "--doorman-config", f"file:{self.file}",
                           "--alone")
        self.assertEqual(self.client(self.python, alone).get(
            "a", "fleet_1", 400)["capacity"], CAPACITY)
        self.assertTrue(alone.says("none is out, as --alone says"))
        other = self.client(self.python, self.serve_file())
        self.assertEqual(other.get("a", "fleet_1", 400)["capacity"], 0)
        self.until("the lease is over", lambda: other.get(
            "a", "fleet_1", 400)["capacity"] == CAPACITY)

    def test_a_new_store(self):
        """The first master of a store's roots knows that nothing is out, though
        roots are elected; the next one learns, also after a kill."""
        store = f"sqlite:{self.folder}/q.db"
        subprocess.run([WEIR, "store", "init", store], check=True,
                       capture_output=True)
        options = ("--store", store, "--election",
                   f"file:{self.folder}/lock")
        first = self.serve("first", *options)
        self.until("it took the mark", lambda: first.says(
            "no root of this store was ever master: no lease is out"))
        subprocess.run([WEIR, "quota", "set", "q", "sharing=leased",
                        "limit=100/s", "lease=2s", "refresh=1s", "--root",
                        first.at], check=True, capture_output=True)
        client = self.client(self.python, first)
        self.assertEqual(client.get("a", "q", 100)["capacity"], 100)

        first.end()
        client = self.client(self.python, self.serve("next", *options))
        self.until("it is master", lambda: client.call(
            "Discovery")["is_master"])
        self.assertEqual(client.get("b", "q", 100)["capacity"], 0)
        self.until("the first one's lease is over", lambda: client.get(
            "b", "q", 100)["capacity"] == 100)

    def test_the_mark_is_gone_after_a_root_without_an_election(self):
        """A root that was told that nothing is out leaves no mark to a root
        that is elected, in whose election there is no trace of it."""
        store = f"sqlite:{self.folder}/q.db"
        subprocess.run([WEIR, "store", "init", store], check=True,
                       capture_output=True)
        alone = self.serve("alone", "--store", store, "--alone")
        subprocess.run([WEIR, "quota", "set", "q", "sharing=leased",
                        "limit=100/s", "lease=60s", "refresh=5s", "--root",
                        alone.at], check=True, capture_output=True)
        client = self.client(self.python, alone)
        self.assertEqual(client.get("a", "q", 100)["capacity"], 100)
        with sqlite3.connect(self.folder / "q.db") as rows:
            self.until("it took the mark", lambda: rows.execute(
                "SELECT count(*) FROM never_leased").fetchone() == (0,))
        rows.close()
        alone.end()
        elected = self.serve("elected", "--store", store, "--election",
                             f"file:{self.folder}/lock")
        client = self.client(self.python, elected)
        self.until("it is master", lambda: client.call(
            "Discovery")["is_master"])
        self.assertEqual(client.get("b", "q", 100)["capacity"], 0)

    def test_a_mark_that_could_not_be_taken(self):
        """The store's lock is another's for longer than a root waits for it:
        this root learns, and takes the mark later."""
        store = f"sqlite:{self.folder}/q.db"
        subprocess.run([WEIR, "store", "init", store], check=True,
                       capture_output=True)
        rows = sqlite3.connect(self.folder / "q.db", isolation_level=None)
        self.addCleanup(rows.close)
        rows.execute("BEGIN IMMEDIATE")
        root = self.serve("root", "--store", store, "--election",
                          f"file:{self.folder}/lock")
        self.until("the mark isn't taken", lambda: root.says(
            "the mark of the store isn't taken yet"))
        rows.execute("COMMIT")
        self.until("the mark is taken", lambda: rows.execute(
            "SELECT count(*) FROM never_leased").fetchone() == (0,))
        self.assertFalse(root.says("was ever master"))

    def test_edits_are_refused(self):
        server = self.serve_file()
        said = subprocess.run([WEIR, "quota", "set", "quick", "limit=1/s",
                               "--root", server.at], capture_output=True,
                              text=True)
        self.assertIn(f"quotas come from file:{self.file}; edit that file",
                      said.stderr)
        said = subprocess.run([WEIR, "quota", "get", "quick", "--root",
                               server.at], capture_output=True, text=True)
        self.assertIn("leased", said.stdout + said.stderr)

    def test_no_file_no_start(self):
        self.file.write_text("resources: []\n")
        said = subprocess.run([WEIR, "serve", "--doorman-config", self.file],
                              capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual(said.returncode, 2)
        self.assertIn("the resource respository must contain", said.stderr)

    def test_environment(self):
        env = {**os.environ, "DOORMAN_CONFIG": str(self.file),
               "DOORMAN_PORT": "tcp://10.0.0.1:80", "DOORMAN_TLS": "false",
               "DOORMAN_HOSTNAME": "elsewhere.example", "DOORMAN_X": "y"}
        server = self.serve("one", "-hostname=here.example", env=env)
        answer = self.client(self.python, server).call("Discovery")
        self.assertEqual(answer["master"], f"here.example:{server.port}")
        self.assertTrue(server.says("DOORMAN_X is no variable"))
        self.assertTrue(server.says("DOORMAN_PORT is an address"))

    # ---- etcd ----

    def test_the_file_in_etcd(self):
        etcd = self.etcd()
        server = self.serve("one", "--doorman-config", "etcd:doorman.yml",
                            "--etcd-endpoints", etcd.at)
        client = self.client(self.python, server)
        self.until("a log that etcd is away", lambda: server.says(etcd.at))
        self.assertFalse(server.status()["ready"])
        self.assertEqual(client.call("GetCapacity", client="a", resources=[
            {"id": "quick", "wants": 1}])["master"], "")
        # A server without quotas doesn't stand for election.
        self.assertFalse(client.call("Discovery").get("is_master"))
        etcd.start()
        self.until("no key", lambda: server.says("there is no such key"))
        etcd.put("doorman.yml", file_text())
        self.until("ready", lambda: server.status()["ready"])
        self.until("master",
                   lambda: client.call("Discovery").get("is_master"))
        self.assertEqual(client.get("a", "quick", 70)["capacity"], 70)
        epoch = server.status()["epoch"]
        etcd.put("doorman.yml", "resources: []")
        self.until("refused", lambda: server.says("the resource respository"))
        etcd.put("doorman.yml", file_text().replace("capacity: 100\n",
                                                    "capacity: 60\n"))
        self.until("changed", lambda: server.status()["epoch"] > epoch)
        etcd.kill()
        self.until("away", lambda: "problem" in server.status()["store"])
        self.assertEqual(client.get("a", "quick", 70, has={
            "capacity": 70})["capacity"], 60)


class ThreeServers(Case):
    @classmethod
    def setUpClass(cls):
        cls.go = go_client()

    def setUp(self):
        super().setUp()
        etcd = self.etcd()
        etcd.start()
        self.servers = [
            self.serve(f"root-{i}", "--doorman-config", self.file,
                       "--election", "etcd", "--election-ttl", "2s",
                       "--etcd-endpoints", etcd.at) for i in range(3)]
        # A client for each server, to ask which one is the master.
        self.askers = {server: self.client(self.go, server)
                       for server in self.servers}
        self.oracle = Oracle()

    def start_clients(self):
        for i in range(2):
            names = [f"c{n}" for n in range(i, CLIENTS, 2)]
            fleet = Fleet(self.go, self.servers, self.oracle, names)
            self.addCleanup(fleet.end)
            fleet.start()

    def master(self, *but):
        for server in self.servers:
            if server not in but and self.askers[server].call(
                    "Discovery", timeout=0.5).get("is_master"):
                return server
        return None

    def names(self, server, master):
        """Whether 'server' names 'master' as the master."""
        said = self.askers[server].call("Discovery")
        return master and said.get("master") == master.at

    def until_master(self, what, *but):
        return self.until(what, lambda: self.master(*but))

    def until_full(self, what):
        """Waits until all clients are served, from now on, and have nearly all
        of the capacity."""
        now = time.monotonic()
        try:
            self.until(what, lambda: self.oracle.is_full(now))
        except AssertionError as error:
            raise AssertionError(
                f"{what}: expected all of {CLIENTS} clients served and above "
                f"95 % of {CAPACITY}, got {self.oracle.sum():.1f} out; client:"
                f" (capacity, expiry, asked at): {self.oracle.told}, now "
                f"{time.time():.1f}, since {now:.1f}; {error}") from None

    def test_masters_are_lost(self):
        self.start_clients()
        self.until_full("all begin")

        killed = self.until_master("the first master")
        killed.signal(signal.SIGKILL)
        killed.process.wait()
        self.until_master("the next master", killed)
        self.until_full("killed, the next elected")

        stopped = self.until_master("the master of now", killed)
        stopped.signal(signal.SIGSTOP)
        killed.start()
        self.until_master("another master", stopped)
        # This call waits until the stopped server goes on, which has lost the
        # mastership by then.
        late = self.client(self.go, stopped)
        late.send("GetCapacity", client="late", resources=[
            {"id": "fleet_1", "wants": 50}])
        self.until_full("stopped, the next elected")
        stopped.signal(signal.SIGCONT)
        answer = late.receive()
        self.assertFalse(answer.get("resources"), answer)
        self.assertIn("master", answer)
        self.until("it knows the master", lambda: self.names(
            stopped, self.master()))

        # The master hands over: the next one needn't wait for the ttl
        # (asserted by live_election).
        last = self.until_master("the master of now")
        last.signal(signal.SIGTERM)
        self.assertEqual(last.process.wait(PATIENCE), 0,
                         last.log.read_text())
        self.until_master("the third master", last)
        self.until_full("handed over")
        self.assertLessEqual(self.oracle.worst, CAPACITY * (1 + 1e-9))


if __name__ == "__main__":
    unittest.main()
