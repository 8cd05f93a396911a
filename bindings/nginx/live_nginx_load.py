#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_nginx_load.py - three nginx processes under wrk keep one limit: as they
are, when a worker is killed, when all roots are, and through reloads.

What passed is counted by nginx's own access logs, a line a request with its
instant, so that any five seconds can be asked for. wrk waits between requests:
twice the limit is offered, and the machine isn't starved by it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test"))
from live_fleet import WINDOW, Fleet, wait_for  # noqa: E402
from live_witness import Measured  # noqa: E402
from nginx import Nginx, until  # noqa: E402

MODULE = os.environ["WEIR_NGINX_MODULE"]
PATIENCE = 60
LIMIT = 2000   # a second
LEARNT = 5     # seconds, before anything is measured
EXACT = 0.02   # of the limit
CONNECTIONS = 16
DELAY = 10     # ms between an answer and the next request

HTTP = """
    weir_roots {roots};
    weir_zone weir 8m;
    weir_log_level info;
    log_format counted "$msec $status $pid";
    server {{
        access_log @FOLDER@/counted counted;
        listen 127.0.0.1:@PORT@ backlog=4096;
        location / {{ weir q; empty_gif; }}
    }}
"""

WRK = f"""
delay = function() return {DELAY} end
done = function(summary, latency)
    io.write(string.format("p50 %d us, p99.9 %d us\\n",
                           latency:percentile(50), latency:percentile(99.9)))
end
"""


class Wrk:
    """One that asks until it is ended."""

    def __init__(self, folder, port, *more):
        script = Path(folder) / "wrk.lua"
        script.write_text(WRK)
        self.process = subprocess.Popen(
            ["wrk", "-t1", f"-c{CONNECTIONS}", "-d600s", "-s", str(script),
             *more, f"http://127.0.0.1:{port}/"],
            stdout=subprocess.PIPE, text=True)

    def end(self):
        """What it says of all its requests."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=PATIENCE)[0]

    def close(self):
        if self.process.returncode is None:
            self.end()


class Load(Measured):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-nginx-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(2)
        self.fleet.set("q", f"limit={LIMIT}/s")
        self.nginxes, self.wrks = [], []
        for number, workers in enumerate((2, 1, 1)):
            nginx = Nginx(f"{self.folder}/{number}", MODULE,
                          HTTP.format(roots=self.fleet.addresses()),
                          workers=workers)
            self.addCleanup(nginx.stop)
            self.nginxes.append(nginx.start().wait_ready())

    def load(self, *more):
        """Offers twice the limit, and lets all learn that."""
        for nginx in self.nginxes:
            wrk = Wrk(nginx.folder, nginx.port, *more)
            self.addCleanup(wrk.close)
            self.wrks.append(wrk)
        wait_for(LEARNT)

    def end_load(self):
        """What went wrong, as wrk has it, and the latencies."""
        said = [wrk.end() for wrk in self.wrks]
        self.wrks.clear()
        errors = re.findall("Socket errors.*", "\n".join(said))
        return errors, said

    def answers(self, nginxes=None):
        """(instant, status) of each answer so far."""
        for nginx in nginxes or self.nginxes:
            text = (nginx.folder / "counted").read_text()
            for line in text.splitlines():
                at, status, _ = line.split()
                yield float(at), int(status)

    def passed(self):
        return sum(status == 200 for _, status in self.answers())

    def measure(self, what):
        start = time.time()
        wait_for(WINDOW)
        end = time.time()
        seen = [status for at, status in self.answers() if start <= at < end]
        rate = seen.count(200) / (end - start)
        print(f"{what}: {len(seen) / (end - start):.0f}/s offered, "
              f"{rate:.1f}/s passed, limit {LIMIT}/s", file=sys.stderr)
        self.assert_steady(len(seen) / (end - start) > 1.2 * LIMIT,
                           f"{what}: too little was offered")
        self.assert_rate(rate, LIMIT, EXACT, what)

    def counted(self):
        """By each root that is up."""
        return [root.usage().get("q", {}).get("passed", 0)
                for root in self.fleet.roots if root.process.poll() is None]

    def assert_all_counted(self, missing=0):
        """Roots have counted what nginx has let through, but so many that
        were passed and not yet logged, or logged and not yet reported, when a
        worker was killed."""
        passed = self.passed()
        until(f"{passed} are counted, not {self.counted()}",
              lambda: all(abs(count - passed) <= missing
                          for count in self.counted()))

    def test_one_limit(self):
        self.load()
        self.measure("three nginx, four workers")
        errors, _ = self.end_load()
        self.assertEqual(errors, [])
        self.assert_all_counted()

    def test_worker_killed(self):
        """The one with the links: another takes over, and goes on as the same
        limiter, so that nothing is counted twice or lost."""
        self.load()
        nginx = self.nginxes[0]
        office = nginx.office()
        os.kill(office, signal.SIGKILL)
        until("another worker keeps the links",
              lambda: nginx.office() not in (None, office))
        wait_for(2)
        self.measure("a worker was killed")
        self.end_load()
        # What the dead one had decided and not answered.
        self.assert_all_counted(missing=CONNECTIONS)

    def test_roots_killed(self):
        """No request fails, nor waits."""
        self.load()
        errors, alive = self.end_load()
        self.assertEqual(errors, [])
        for root in self.fleet.roots:
            root.kill()
        self.load()
        errors, dead = self.end_load()
        self.assertEqual(errors, [])
        self.assertEqual({status for _, status in self.answers()} -
                         {200, 429}, set())
        for what, said in (("alive", alive[0]), ("dead", dead[0])):
            print(f"roots {what}: " + re.search("p50.*", said)[0],
                  file=sys.stderr)

    def test_reload(self):
        """Under load: no request fails, no count is lost. Each request has a
        connection of its own: one that is kept alive may be closed by an old
        worker just when a request is on its way, with any module."""
        nginx = self.nginxes[0]
        self.load("-H", "Connection: close")
        for _ in range(5):
            before = set(nginx.worker_pids())
            nginx.process.send_signal(signal.SIGHUP)
            until("the old workers have gone",
                  lambda: not before & set(nginx.worker_pids()))
            until("a new one keeps the links", nginx.office)
        wait_for(2)
        self.measure("after five reloads")
        errors, _ = self.end_load()
        self.assertEqual(errors, [])
        self.assertEqual({status for _, status in self.answers()},
                         {200, 429})
        self.assert_all_counted()


if __name__ == "__main__":
    unittest.main()
