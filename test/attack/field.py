# SPDX-License-Identifier: MIT
"""field.py - the processes of an attack: a root, perhaps an agent beside it, a
limiter that takes twice the limit of a quota, a prober that asks whether the
process lives; and their measurements.

The attacked process ('victim') is the root or the agent. Over TLS it asks for
client certificates, of which attackers have none. The limiter and the prober
come from 127.0.0.1, attackers from 127.0.0.2 unless a test chooses another
address: a ration by address can tell them apart, as in a real attack."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))
from identities import WEIR, run  # noqa: E402
from live_fleet import Limiter  # noqa: E402
from patience import PATIENCE, free_port, until  # noqa: E402

import attacks  # noqa: E402
from probe import EVERY  # noqa: E402
from taker import CONNECTIONS  # noqa: E402

HERE = Path(__file__).parent
QUOTA, LIMIT = "guarded", 100    # a second
# Low, so that the limit and not the burst decides within seconds.
LOW_BURST, HIGH_BURST = 10, 15   # units
OFFERED = 2 * LIMIT
BIN_MS = 100
ATTACKER = "127.0.0.2"
RATE = 25_000_000                # bytes a second of all attackers; more
                                 # measures the loopback interface alone
STALE = 4                        # enum weir_event_type
SAMPLE = 0.02                    # seconds between samples of memory
# A sanitizer's shadow memory and quarantine are no memory of Weir's, and it
# makes all programs several times as slow.
SLOW = int(os.environ.get("WEIR_ATTACK_SLOW", "1"))
RSS_MAX = 128 << 20              # bytes, of a root or an agent attacked
BODIES_MAX = 128 << 20           # WEIR_HTTP_BODIES_MAX, of those with a role


class Process:
    """A process that prints JSON lines until its standard input ends."""

    def __init__(self, *command):
        self.lines = []
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def last(self):
        return self.lines[-1] if self.lines else None

    def stop(self):
        if self.process.stdin.closed:
            return
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(PATIENCE)
        self.process.stdout.close()


class Taker(Limiter):
    """Takes through an agent; prints the lines of a limiter."""

    def __init__(self, place, cert, per_s):
        self.name, self.lines = "taker", []
        self.process = subprocess.Popen(
            [sys.executable, HERE / "taker.py", *place.rsplit(":", 1),
             cert or "", QUOTA, str(per_s)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()


class Attackers:
    """The processes of one attack."""

    def __init__(self, field, name, variant=None, listener=None, **more):
        self.attack = attacks.ATTACKS[name]
        variant = variant or self.attack.variants[0]
        listener = listener or self.attack.listeners[field.against][0]
        host, port = field.places[listener].rsplit(":", 1)
        spec = {
            "attack": name, "variant": variant, "against": field.against,
            "listener": listener, "host": host, "port": int(port),
            "tls": field.tls and variant not in self.attack.raw,
            "cert": field.cert(self.attack.cert) if self.attack.cert
            else None, "source": ATTACKER, "again": True,
            "patience": PATIENCE, "quota": QUOTA,
            "created": field.created} | more
        count = more.get("connections") or self.attack.connections
        width = more.get("processes") or min(self.attack.processes, count)
        shares = [count // width + (i < count % width) for i in range(width)]
        rate = more.get("rate", RATE) // width
        self.processes = [
            Process(sys.executable, HERE / "attacker.py",
                    json.dumps(spec | {"connections": share, "rate": rate}))
            for share in shares]

    def total(self, key):
        return sum(process.last()[key] for process in self.processes
                   if process.last())

    def totals(self):
        return {key: self.total(key) for key in (
            "made", "failed", "ended", "closed", "standing", "sent",
            "received")}

    def last_words(self):
        """The last words of the victim to connections that it ended."""
        return sorted({line["last"] for process in self.processes
                       for line in process.lines if line["last"]})

    def stop(self):
        for process in self.processes:
            process.stop()


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


class Field:
    def __init__(self, against="root", tls=False, descriptors=None,
                 resp=False, options=()):
        self.against, self.tls = against, tls
        self.folder = Path(tempfile.mkdtemp(prefix="weir-attack-"))
        self.started, self.attackers = [], []
        self.root = self.agent = self.probe = self.limiter = None
        self.rss_max, self.sampling = 0, True
        self.under_way = 1      # units that pass while a bin is printed
        self.logged_before = 0  # bytes of the log before the attack
        self.sampler = None
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("WEIR_ROOTS", "WEIR_T", "XDG"))}
        self.env["HOME"] = str(self.folder)
        try:
            self.build(descriptors, resp, options)
        except BaseException:
            self.close()
            raise

    def build(self, descriptors, resp, options):
        if self.tls:
            self.make_identities()
        run(WEIR, "store", "init", f"sqlite:{self.folder}/q.db")
        # A root that is started again has the same ports.
        self.listen, self.http = (f"127.0.0.1:{free_port()}"
                                  for _ in range(2))
        self.root_options = [*self.tls_options("--", "root"),
                             *(["--resp", "127.0.0.1:0"] if resp else []),
                             *options]
        self.descriptors = descriptors
        self.start_root()
        self.weir("quota", "set", QUOTA, f"limit={LIMIT}/s",
                  f"low_burst={LOW_BURST}", f"high_burst={HIGH_BURST}")
        self.created = json.loads(self.weir("quota", "get", QUOTA, "--json"))[
            "created"]
        self.log = self.folder / "root.log"
        self.places = self.root_places
        if self.against == "agent":
            self.start_agent()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()
        self.start_witnesses()

    # ---- Credentials ----

    def make_identities(self):
        certs = self.folder / "certs"
        run(WEIR, "cert", "ca", certs)
        run(WEIR, "cert", "server", certs, "localhost", "127.0.0.1")
        for name in "ops", "limiter":
            run(WEIR, "cert", "client", certs, name)
        self.credentials = self.folder / "credentials"
        self.credentials.write_text("read,edit,take,root cert ops\n"
                                    "take cert limiter\n")
        self.credentials.chmod(0o600)
        if self.against != "root":
            return  # The root of an attacked agent has no TLS.
        self.env |= {"WEIR_TLS_CA": str(certs / "ca.pem"),
                     "WEIR_TLS_CERT": str(certs / "ops.pem"),
                     "WEIR_TLS_KEY": str(certs / "ops.key")}

    def cert(self, name):
        """FILE without .pem and .key; None in plain text."""
        return str(self.folder / "certs" / name) if self.tls else None

    def limiter_env(self):
        if not self.tls:
            return self.env
        return self.env | {"WEIR_TLS_CERT": self.cert("limiter") + ".pem",
                           "WEIR_TLS_KEY": self.cert("limiter") + ".key"}

    def tls_options(self, prefix, of):
        """Options of the victim; the root of an attacked agent has none."""
        if not self.tls or self.against != of:
            return []
        server = self.cert("localhost")
        return [f"{prefix}tls-cert", server + ".pem",
                f"{prefix}tls-key", server + ".key",
                f"{prefix}tls-ca", self.folder / "certs" / "ca.pem",
                "--credentials", self.credentials]

    # ---- Processes ----

    def start(self, name, words, ports):
        """Starts a process of Weir: (process, listener -> address)."""
        ports.unlink(missing_ok=True)
        if self.descriptors and name == self.against:
            words = ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"',
                     "sh", *words]
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen([str(word) for word in words],
                                       stderr=log, env=self.env)
        self.started.append(process)
        until("the port file", lambda: ports.exists() or
              process.poll() is not None)
        if process.poll() is not None:
            raise AssertionError((self.folder / f"{name}.log").read_text())
        return process, dict(line.split("=", 1)
                             for line in ports.read_text().split())

    def start_root(self):
        ports = self.folder / "root.ports"
        self.root, self.root_places = self.start("root", [
            WEIR, "serve", "--store", f"sqlite:{self.folder}/q.db",
            "--listen", self.listen, "--http", self.http, "--port-file",
            ports, *self.root_options], ports)

        if self.against == "root":
            self.victim = self.root

    def kill_root(self):
        self.root.kill()
        self.root.wait()

    def restart_root(self):
        self.kill_root()
        self.start_root()

    def start_agent(self):
        ports = self.folder / "agent.ports"
        self.agent, self.places = self.start("agent", [
            WEIR, "agent", "--roots", self.listen, "--port-file", ports,
            "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rls",
            "127.0.0.1:0",
            *self.tls_options("--listener-", "agent")], ports)
        self.victim, self.log = self.agent, self.folder / "agent.log"
        until("ready", lambda: "ready: the quotas" in self.logged())

    def start_witnesses(self):
        if self.against == "root":
            self.limiter = Limiter(self.listen, "limiter",
                                   [f"{QUOTA}={OFFERED}"], BIN_MS, ready=True,
                                   env=self.limiter_env())
        else:
            self.limiter = Taker(self.places["resp"], self.cert("limiter"),
                                 OFFERED)
            self.under_way = CONNECTIONS
        until("a limiter at work", lambda: self.passed() > LIMIT)
        self.probe = Process(
            sys.executable, HERE / "probe.py",
            *self.places["http"].rsplit(":", 1),
            "tls" if self.tls else "plain", PATIENCE)
        until("the first answer", self.answered)

    def sample(self):
        while self.sampling:
            try:
                with open(f"/proc/{self.victim.pid}/statm") as statm:
                    pages = int(statm.read().split()[1])
                self.rss_max = max(self.rss_max,
                                   pages * os.sysconf("SC_PAGESIZE"))
            except (OSError, IndexError):
                pass  # The process is being started again.
            time.sleep(SAMPLE)

    def weir(self, *words):
        """Runs the command line, with all roles."""
        done = subprocess.run([WEIR, *words], text=True, capture_output=True,
                              timeout=PATIENCE,
                              env=self.env | {"WEIR_ROOTS": self.listen})
        if done.returncode != 0:
            raise AssertionError(f"weir {words}: {done.stderr}")
        return done.stdout

    def attack(self, name, variant=None, listener=None, **more):
        self.attackers.append(Attackers(self, name, variant, listener,
                                        **more))
        return self.attackers[-1]

    # ---- Observations ----

    def logged(self):
        return self.log.read_text(errors="replace")

    def bins(self, start=0):
        """(instant, units passed) of the limiter, since an instant."""
        return [(line["at"], line["seen"][QUOTA][1])
                for line in list(self.limiter.lines)
                if "seen" in line and line["at"] >= start]

    def passed(self, start=0):
        bins = self.bins(start)
        return bins[-1][1] - (bins[0][1] if start else 0) if bins else 0

    def asked(self, start=0):
        return [line for line in list(self.probe.lines)
                if line["at"] >= start]

    def answered(self, start=0):
        return sum(line["status"] in (200, 503)
                   for line in self.asked(start))

    def stale(self, start=0):
        """How often the limiter had no root that answers (STALE)."""
        return sum(line["event"] == STALE and line["at"] >= start
                   for line in self.limiter.told("event"))

    def over(self, start):
        """The units beyond those that a bucket lets through, in the span in
        which they are most. The units of a bin passed no sooner than the
        bin's instant, and before the next bin's."""
        bins = self.bins(start)
        worst, least = 0, float("inf")
        for (at, passed), (after, _) in zip(bins, bins[1:]):
            worst = max(worst, passed - LIMIT * after - least - HIGH_BURST)
            least = min(least, passed - LIMIT * at)
        return worst

    def waits(self, start, end):
        """Seconds that each answer took, or has taken by now. The prober waits
        for an answer before it asks again. The answers that were due meanwhile
        are counted with the time that they would have taken: else a process
        that hangs for a second would be one slow answer among many."""
        asked = [(line["at"], line["took"]) for line in self.asked(start)
                 if line["at"] <= end]
        last = self.probe.last()
        waiting = last["at"] + last["took"] + EVERY
        if waiting < end:
            asked.append((waiting, end - waiting))
        return [took - late * EVERY for _, took in asked
                for late in range(1 + int(took / EVERY))]

    def memory_max(self, *attacks):
        """The bound on memory, bytes. Without credentials each peer has all
        roles, and may send bodies."""
        return RSS_MAX + (BODIES_MAX if "bodies" in attacks and not self.tls
                          else 0)

    def measure(self, start, end, attackers):
        """The measurements of an attack between two instants."""
        asked = [line for line in self.asked(start) if line["at"] <= end]
        took = self.waits(start, end)
        bins = [bin for bin in self.bins(start) if bin[0] <= end]
        rates = []
        for first in bins[::1000 // BIN_MS]:
            last = next((bin for bin in bins if bin[0] >= first[0] + 1), None)
            if last:
                rates.append((last[1] - first[1]) / (last[0] - first[0]))
        mean = (bins[-1][1] - bins[0][1]) / (bins[-1][0] - bins[0][0]) \
            if len(bins) > 1 else 0
        text = self.logged()[self.logged_before:]
        return {
            "seconds": round(end - start, 1),
            "asked": len(asked),
            "unanswered": sum(line["status"] is None for line in asked),
            "p50_ms": round(1000 * quantile(took, 0.5), 1),
            "p99_ms": round(1000 * quantile(took, 0.99), 1),
            "max_ms": round(1000 * max(took), 1),
            "passed_mean": round(mean, 1),
            "passed_min": round(min(rates, default=0), 1),
            "passed_max": round(max(rates, default=0), 1),
            "limit": LIMIT,
            "stale": self.stale(start),
            "rss_max_mb": round(self.rss_max / (1 << 20), 1),
            "log_lines": text.count("\n"), "log_bytes": len(text),
            **(attackers.totals() if attackers else {}),
            "last": attackers.last_words()[:3] if attackers else [],
        }

    def mark(self):
        """Begins to count the log and the memory of an attack; returns now."""
        self.logged_before = len(self.logged())
        self.rss_max = 0
        return time.monotonic()

    def close(self):
        self.sampling = False
        if self.sampler:
            self.sampler.join()
        for each in [*self.attackers, self.probe, self.limiter]:
            if each:
                each.stop()
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder)
