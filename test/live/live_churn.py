#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_churn.py - a fleet in which everything comes and goes: quotas and
templates by the ten thousand, names by the million, limiters, connections,
certificates, credentials, and one of two roots. The processes that stay (a
root, an agent, services) must not grow, and no count may be lost.

A phase is the unit of the run. In each,

- limiters join and take from a name that is new; limiters that stay and an
  agent take from new names as well. When all rest, both roots have exactly the
  units that each of these groups saw pass;
- meanwhile quotas and templates are imported, used and removed, by either root;
- the limiters leave, a certificate and the credentials are replaced, and the
  second root is killed or ended, and started again. It is cold, so its counts
  are those of this phase alone.

Two services never stop taking from names that were never used before; a client
of the agent's Redis port does so as well.

WEIR_CHURN_MINUTES is how long the phases go on; without it there are
PHASES_SHORT of them, which show the mechanism and the counts. A run of
JUDGED_MINUTES or more is judged by its curves: after the first third the
slope (curves.py) of each process's resident memory stays below GROWTH_KB a
minute, and descriptors and threads stay as they were. The samples, the figure
and the slopes are in $WEIR_CHURN_OUT, if that is set."""

import json
import os
import random
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from curves import draw, last_part, slope
from live_agent import Resp
from live_fleet import BUILD, WEIR, Fleet, Limiter, Root
from patience import PATIENCE, free_port, until, until_equal

FLOOD = str(BUILD / "test" / "live_flood")
MINUTES = float(os.environ.get("WEIR_CHURN_MINUTES", "0"))
PHASES_SHORT = 3
PHASE = 20 if MINUTES else 2  # seconds
JUDGED_MINUTES = 20
PAUSE = 1 if MINUTES else 0     # after an edit, so that it runs for hours
SAMPLE = 5 if MINUTES else 0.5  # seconds between two samples
GROWTH_KB = 64      # a minute; 5 MB in the judged part of two hours
SPREAD = 2          # descriptors or threads by which medians may differ
JOINERS, STAYING = 4, 2
TAKES = 200         # a second, of a limiter that joins
ONCE = 20           # takes of a limiter that stays, in a phase
NAMES = 300         # new names a second, of each flooder
# Bytes of a flooder's table and of the agent's: some 4,000 and 16,000 names, so
# that older ones are evicted.
MEMORY = 4 << 20
AGENT_MEMORY = 16 << 20
ENDLESS = 10**12    # names
# Before the first phase, so that roots keep as many removals as they ever do.
REMOVED = 100000 if MINUTES else 0  # WEIR_TOMBSTONES_MAX
BATCH = 100         # quotas of an import; of them, templates:
TEMPLATES = 5
CLIENT = 100        # keys of a batch of the agent's client
# Parents of the quotas of a phase, one for each kind of taker: roots forget an
# instance, and its total, when no limiter has it in its table any more.
GROUPS = "joiners", "staying", "agents"
ROLES = "edit,read,take cert payments\n"


def say(text):
    print(text, file=sys.stderr, flush=True)


class Certificates:
    """An authority, a certificate of the roots, and one of all clients."""

    def __init__(self, folder):
        self.folder = folder
        self.make("ca")
        self.make("client", "payments")
        self.make("server", "127.0.0.1")
        self.ca = str(folder / "ca.pem")

    def make(self, kind, *names):
        """Makes one, in place of the former one of that name."""
        for name in names:
            for suffix in ".pem", ".key":
                (self.folder / f"{name}{suffix}").unlink(missing_ok=True)
        subprocess.run([WEIR, "cert", kind, self.folder, *names], check=True,
                       capture_output=True, timeout=PATIENCE)

    def of(self, name):
        return [str(self.folder / f"{name}{suffix}")
                for suffix in (".pem", ".key")]


class TlsRoot(Root):
    """A root with certificates and credentials."""

    def __init__(self, fleet, certificates, credentials):
        cert, key = certificates.of("127.0.0.1")
        self.certificates = certificates
        super().__init__(fleet, "--tls-cert", cert, "--tls-key", key,
                         "--tls-ca", certificates.ca, "--credentials",
                         str(credentials))

    def request(self, path, method="GET", body=None, **query):
        context = ssl.create_default_context(cafile=self.certificates.ca)
        context.load_cert_chain(*self.certificates.of("payments"))
        if query:
            path += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(
            f"https://{self.http}{path}", method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE,
                                    context=context) as answer:
            return answer.read().decode()

    def read(self, path, **query):
        return self.request(path, **query)

    def passed(self, name):
        return sum(quota["passed"] for quota in
                   self.get("/v1/usage", match=name)["quotas"])

    def metrics(self):
        return {line.split()[0]: float(line.split()[1])
                for line in self.read("/metrics").splitlines()
                if line and line[0] != "#"}


class Flooder(Limiter):
    """A live_flood; of its bins the last one is kept."""

    def __init__(self, roots, name, env):
        self.name, self.lines = name, []
        self.process = subprocess.Popen(
            [FLOOD, roots, name, str(MEMORY), "hot/tenant=500", "flood",
             str(ENDLESS), str(NAMES)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=env)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in map(json.loads, self.process.stdout):
            if "seen" in line:
                self.lines = [line]


class Client(threading.Thread):
    """A client of the agent: keys of Redis and names by HTTP, all new."""

    def __init__(self, resp, http):
        super().__init__(daemon=True)
        self.resp, self.http = resp, http
        self.keys, self.failed, self.ends = 0, None, threading.Event()

    def batch(self):
        link = Resp(self.resp)
        link.link.sendall(b"".join(
            link.line("CL.THROTTLE", f"user{self.keys + i}", 15, 30, 60, 1)
            for i in range(CLIENT)))
        for _ in range(CLIENT):
            link.read()
        link.close()
        self.keys += CLIENT
        body = {"requests": [{"name": f"flood/http/{self.keys + i}"}
                             for i in range(CLIENT)]}
        take(self.http, body)

    def run(self):
        try:
            while not self.ends.wait(0.5):
                self.batch()
        except Exception as error:  # The test reports it.
            self.failed = error


def take(http, body):
    """The replies of a POST /v1/take."""
    request = urllib.request.Request(
        f"http://{http}/v1/take", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["replies"]


def status_of(pid):
    """Memory, descriptors and threads of a process, as the kernel has them."""
    fields = dict(line.split(":", 1) for line in
                  Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"rss_kb": int(fields["VmRSS"].split()[0]),
            "anonymous_kb": int(fields["RssAnon"].split()[0]),
            "threads": int(fields["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


class Sampler(threading.Thread):
    """Samples the processes that stay, until it ends."""

    def __init__(self, test):
        super().__init__(daemon=True)
        self.test, self.samples, self.unanswered = test, [], 0
        self.began, self.ends = time.monotonic(), threading.Event()

    def sample(self):
        test = self.test
        got = {"minute": (time.monotonic() - self.began) / 60,
               "processes": {name: status_of(process.pid) for name, process
                             in test.staying.items()}}
        got["counts"] = {
            **dict(test.done), "keys of Redis": test.client.keys,
            "names": sum(flooder.seen()["flooded"] for flooder
                         in test.flooders if flooder.seen())}
        metrics = test.first.metrics()
        for key in ("weir_quotas", "weir_quotas_used", "weir_limiters_known",
                    "weir_limiters_connected", "weir_epoch",
                    "weir_reports_total"):
            got["counts"][key] = metrics[key]
        for flooder in test.flooders:
            if flooder.seen():
                got["counts"]["slots of " + flooder.name] = \
                    flooder.seen()["slots_used"]
        return got

    def run(self):
        while not self.ends.is_set():
            try:
                self.samples.append(self.sample())
            except OSError:  # A connection may end as credentials change.
                self.unanswered += 1
            self.ends.wait(SAMPLE)

    def end(self):
        self.ends.set()
        self.join(PATIENCE)

    def series(self, *keys, factor=1):
        """[(minute, value)] of a value of the samples."""
        out = []
        for sample in list(self.samples):
            value = sample
            for key in keys:
                value = value.get(key, {}) if isinstance(value, dict) else {}
            if value != {}:
                out.append((sample["minute"], value * factor))
        return out


class Churn(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("WEIR_SEED", time.time_ns()))
        say(f"WEIR_SEED={seed}")
        self.chance = random.Random(seed)
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.folder = self.fleet.folder
        certificates = self.folder / "certificates"
        certificates.mkdir()
        self.certificates = Certificates(certificates)
        self.credentials = self.folder / "credentials"
        self.generation = 0
        self.replace_credentials()
        for _ in range(2):
            self.fleet.roots.append(TlsRoot(
                self.fleet, self.certificates, self.credentials))
        self.first, self.second = self.fleet.roots
        self.done = {"phases": 0, "edits": 0, "quotas made": 0, "joins": 0,
                     "passed": 0, "starts of a root": 0}
        self.batches = []
        cert, key = self.certificates.of("payments")
        self.env = dict(os.environ, WEIR_TLS_CA=self.certificates.ca,
                        WEIR_TLS_CERT=cert, WEIR_TLS_KEY=key)
        self.make_quotas()
        self.start_those_that_stay()

    def make_quotas(self):
        self.edit(self.first, "/v1/quotas:import", {"quotas": [
            *({"name": group} for group in GROUPS),
            *({"name": group + "/*", "parent": group} for group in GROUPS),
            {"name": "hot/*", "limit": "2000/s"},
            {"name": "site", "limit": "unlimited"},
            {"name": "flood/*", "limit": "10/s", "parent": "site"},
            {"name": "throttle:*", "limit": "10/s"},
            {"name": "edited", "limit": "1000/s"}]})

    def start_agent(self):
        log = open(self.folder / "agent.log", "w")
        self.addCleanup(log.close)
        cert, key = self.certificates.of("payments")
        resp, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        ports = self.folder / "agent.ports"
        agent = subprocess.Popen(
            [WEIR, "agent", "--roots", self.fleet.addresses(), "--tls-ca",
             self.certificates.ca, "--tls-cert", cert, "--tls-key", key,
             "--resp", resp, "--http", http, "--port-file", ports,
             "--name", "agent",
             "--memory-max", str(AGENT_MEMORY)], stderr=log)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        until("the agent", lambda: agent.poll() is not None or ports.exists())
        self.assertIsNone(agent.poll())
        return agent, resp, http

    def start_those_that_stay(self):
        roots = self.fleet.addresses()
        agent, self.resp, self.http = self.start_agent()
        self.flooders = [Flooder(roots, f"flooder{i}", self.env)
                         for i in range(2)]
        self.limiters = [self.limiter(f"staying{i}", ["steady=100"])
                         for i in range(STAYING)]
        self.fleet.limiters = self.flooders + self.limiters
        self.client = Client(self.resp, self.http)
        self.staying = {"first root": self.first.process, "agent": agent}
        for limiter in self.fleet.limiters:
            self.staying[limiter.name] = limiter.process
        self.wait_linked()
        for flooder in self.flooders:
            flooder.tell("go")
        self.client.start()

    def status_of_agent(self):
        with urllib.request.urlopen(f"http://{self.http}/v1/status",
                                    timeout=PATIENCE) as answer:
            return json.load(answer)

    def limiter(self, name, loads):
        return Limiter(self.fleet.addresses(), name, loads, bin_ms=1000,
                       ready=True, env=self.env)

    def edit(self, root, path, body):
        self.done["edits"] += 1
        return json.loads(root.request(path, "POST", body))

    def wait_linked(self):
        """Waits until both roots have all that stay, and the quotas."""
        wanted = len(self.staying) - 1
        for root in self.fleet.roots:
            until("all that stay are linked", lambda: root.metrics()[
                "weir_limiters_connected"] >= wanted)

    # ---- Churn ----

    def batch(self, number):
        """The quotas of an import: a tree of two levels, and templates."""
        parent = f"batch{number}"
        made = [{"name": parent, "limit": "1000000/s"}]
        made += [{"name": f"{parent}/{i}", "limit": "1000/s",
                  "parent": parent, "description": "x" * i}
                 for i in range(BATCH - TEMPLATES - 1)]
        return made + [{"name": f"{parent}/{i}/*", "limit": "100/s",
                        "parent": parent} for i in range(TEMPLATES)]

    def edit_some(self):
        """Imports a batch, takes from it by the agent, and removes a former
        one."""
        root = self.chance.choice(self.fleet.roots)
        number = self.done["edits"]
        quotas = self.batch(number)
        self.edit(root, "/v1/quotas:import", {"quotas": quotas})
        self.batches.append([quota["name"] for quota in quotas])
        self.done["quotas made"] += len(quotas)
        names = [f"batch{number}/{i}" for i in range(0, 80, 4)]
        names += [f"batch{number}/{i}/{self.chance.randrange(10**9)}"
                  for i in range(TEMPLATES)]
        take(self.http, {"requests": [{"name": name} for name in names]})
        root.request("/v1/quotas/edited", "PATCH", {
            "limit": f"{self.chance.randrange(1000, 2000)}/s"})
        self.done["edits"] += 1
        if len(self.batches) > 3:
            self.edit(root, "/v1/quotas:remove", {
                "names": self.batches.pop(0)[::-1]})

    def replace_credentials(self):
        """Writes the file anew, with another token in it."""
        self.generation += 1
        made = self.folder / "credentials.new"
        made.touch(0o600)
        made.write_text(ROLES + "read token dash "
                        f"generation-{self.generation:08d}-of-it\n")
        made.rename(self.credentials)

    def replace_secrets(self):
        """The roots go over to them by themselves."""
        before = self.reloads()
        self.certificates.make("server", "127.0.0.1")
        self.replace_credentials()
        until("the first root's new secrets", lambda: all(
            now > then for now, then in zip(self.reloads(), before)))

    def reloads(self):
        log = self.first.logged()
        return [log.count("reloaded the certificate"),
                log.count("credentials of")]

    def restart_second(self):
        """It is cold afterwards."""
        if self.done["phases"] % 2:
            self.second.kill()
        else:
            self.second.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.second.process.wait(PATIENCE), 0)
        self.second.start()
        self.done["starts of a root"] += 1
        self.wait_linked()

    def take_by_agent(self, name):
        """Units that passed."""
        link, passed = Resp(self.resp), 0
        for _ in range(ONCE):
            passed += link.ask("WEIR.TAKE", name, 1)[0] == 0
        link.close()
        replies = take(self.http, {"requests": [{"name": name}] * ONCE})
        return passed + sum(reply["verdict"] == "passed" for reply in replies)

    def join(self, name):
        """Limiters that take from it."""
        joiners = [self.limiter(f"joiner{self.done['joins'] + i}",
                                [f"{name}={TAKES}"]) for i in range(JOINERS)]
        self.fleet.limiters += joiners
        self.done["joins"] += JOINERS
        until("the joiners' first takes", lambda: all(
            joiner.seen() for joiner in joiners))
        return joiners

    def rest(self, joiners, name):
        """Units that they saw pass in all."""
        passed = 0
        for joiner in joiners:
            joiner.tell("rest")
            until("its rest", lambda: joiner.told("rest"))
            passed += joiner.seen()["seen"][name][1]
        return passed

    def leave(self, joiners):
        for joiner in joiners:
            self.assertEqual(joiner.stop(), 0)
            self.fleet.limiters.remove(joiner)

    def passed(self, root):
        return {group: root.passed(group) for group in GROUPS}

    def count(self, passed, before):
        """Waits until both roots have exactly these units more than 'before':
        group -> units."""
        for root in self.fleet.roots:
            until_equal(f"the counts of {root.http}", passed, lambda: {
                group: units - before[root.number][group]
                for group, units in self.passed(root).items()})
        self.done["passed"] += sum(passed.values())

    def phase(self, seconds):
        end = time.monotonic() + seconds
        before = [self.passed(root) for root in self.fleet.roots]
        names = {group: f"{group}/{self.done['phases']}" for group in GROUPS}
        joiners = self.join(names["joiners"])
        while time.monotonic() < end:
            self.edit_some()
            time.sleep(PAUSE)
        for limiter in self.limiters:
            limiter.tell(f"once {names['staying']} {ONCE}")
        self.count({"agents": self.take_by_agent(names["agents"]),
                    "staying": ONCE * STAYING,
                    "joiners": self.rest(joiners, names["joiners"])}, before)
        self.leave(joiners)
        self.replace_secrets()
        self.restart_second()
        self.done["phases"] += 1
        self.assertIsNone(self.client.failed)
        for process in self.staying.values():
            self.assertIsNone(process.poll())

    def test_nothing_grows(self):
        while self.done["quotas made"] < REMOVED:
            self.edit_some()
        sampler = Sampler(self)
        sampler.start()
        end = time.monotonic() + MINUTES * 60
        while time.monotonic() < end or self.done["phases"] < PHASES_SHORT:
            self.phase(PHASE)
        sampler.end()
        self.client.ends.set()
        self.client.join(PATIENCE)
        self.assertLess(sampler.unanswered, len(sampler.samples) / 10 + 1)
        found = self.judge(sampler)
        self.report(sampler, found)
        say(", ".join(f"{count:,} {what}" for what, count
                      in sampler.samples[-1]["counts"].items()))
        if MINUTES >= JUDGED_MINUTES:
            self.assertEqual(found, [])

    # ---- The verdict ----

    def judge(self, sampler):
        """A sentence for each thing that grew; prints the slopes."""
        found = []
        for name in self.staying:
            def of(key):
                return last_part(sampler.series("processes", name, key), 2 / 3)
            grows = slope(of("rss_kb"))
            if MINUTES:
                say(f"{name}: {of('rss_kb')[-1][1]:,} kB, {grows:+.1f} kB a "
                    f"minute (anonymous {slope(of('anonymous_kb')):+.1f})")
            if grows > GROWTH_KB:
                found.append(f"{name}: {grows:.1f} kB a minute")
            for key in "descriptors", "threads":
                series = of(key)
                half = len(series) // 2
                early, late = (statistics.median(y for _, y in part) for part
                               in (series[:half or 1], series[half:]))
                if late - early > SPREAD:
                    found.append(f"{name}: {key} from {early} to {late}")
        return found

    def report(self, sampler, found):
        named = os.environ.get("WEIR_CHURN_OUT")
        folder = Path(named) if named else self.folder / "report"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "samples.json").write_text(json.dumps(
            {"grew": found, "samples": sampler.samples}, indent=1))
        figure = self.figure(folder, sampler)
        if shutil.which("gnuplot"):
            self.assertTrue(figure.read_text().startswith("<?xml"))
            say(f"curves: {figure}")

    def figure(self, folder, sampler):
        def each(key, factor=1):
            return {name: sampler.series("processes", name, key, factor=factor)
                    for name in self.staying}

        def counts(*names, factor=1):
            return {name: sampler.series("counts", name, factor=factor)
                    for name in names}
        done = self.done
        return draw(
            folder, "churn", "Processes that stay, while all else changes",
            f"{done['phases']} phases, {done['edits']:,} edits, "
            f"{done['quotas made']:,} quotas made and removed, "
            f"{done['joins']:,} limiters joined and left, "
            f"{done['starts of a root']} starts of the second root",
            "minutes", [
                ("resident memory, MB", each("rss_kb", 1 / 1024)),
                ("descriptors", each("descriptors")),
                ("threads", each("threads")),
                ("quotas at a root", counts(
                    "weir_quotas", "weir_quotas_used")),
                ("limiters at a root", counts(
                    "weir_limiters_known", "weir_limiters_connected")),
                ("slots in use", counts(
                    "slots of agent", *("slots of " + flooder.name
                                        for flooder in self.flooders))),
                ("so far, thousands", counts(
                    "names", "keys of Redis", "quotas made", factor=1e-3)),
                ("units counted exactly", counts("passed"))])


if __name__ == "__main__":
    unittest.main()
