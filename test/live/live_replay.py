#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_replay.py - `weir replay` on a real log, checked by a slow oracle that
shares no code with Weir: buckets as fractions, in the order of time.

Only the command itself is started, and time is virtual."""

import gzip
import json
import os
import pty
import re
import shutil
import subprocess
import tempfile
import unittest
from calendar import timegm
from fractions import Fraction
from pathlib import Path

WEIR = os.environ.get("WEIR") or str(Path(os.environ["WEIR_BUILD"]) / "weir")
SOURCE = Path(os.environ["WEIR_SOURCE"])
LOG = SOURCE / "test/data/access.log.gz"

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
# A browser's name may have quotes: only the beginning of a line is matched.
LINE = re.compile(r'(\S+) \S+ \S+ \[(\d+)/(\w+)/(\d+):(\d+):(\d+):(\d+) '
                  r'\+0000\] "(\S+) [^"]*" (\d+) (\d+|-)')

TWO = """\
weir: 1
quotas:
  - name: site
    limit: 30/min
    low_burst: 60
    high_burst: 60
  - name: "*/GET"
    parent: site
    limit: 10/min
    low_burst: 20
    high_burst: 20
"""


class Bucket:
    def __init__(self, per_second, high):
        self.rate, self.high = Fraction(per_second), high
        self.fill, self.at = Fraction(0), None

    def leak(self, now):
        if self.at is not None:
            self.fill = max(Fraction(0),
                            self.fill - self.rate * (now - self.at))
        self.at = now


class Oracle:
    """The two quotas above: one bucket for all, one for each GETter."""

    def __init__(self, site=Fraction(30, 60), each=Fraction(10, 60),
                 bursts=(60, 20)):
        self.site, self.each = site, each
        self.bursts = bursts
        self.refused = {"site": 0, "*/GET": 0}
        self.clients = {}

    def run(self, requests):
        site = Bucket(self.site, self.bursts[0])
        buckets = {}
        for now, client, method, weight in requests:
            if method != "GET":
                continue
            own = buckets.setdefault(client,
                                     Bucket(self.each, self.bursts[1]))
            site.leak(now)
            own.leak(now)
            if own.fill + weight > own.high:
                self.refuse("*/GET", client)
            elif site.fill + weight > site.high:
                self.refuse("site", client)
            else:
                own.fill += weight
                site.fill += weight
        return self

    def refuse(self, quota, client):
        self.refused[quota] += 1
        self.clients[client] = self.clients.get(client, 0) + 1


def read_requests(by_bytes=False):
    """(instant, client, method, weight), in order; a second's requests are
    spread over it, to the nanosecond."""
    lines = []
    for line in gzip.decompress(LOG.read_bytes()).decode().splitlines():
        found = LINE.match(line)
        client, day, month, year, hour, minute, second = found.groups()[:7]
        at = timegm((int(year), MONTHS.index(month) + 1, int(day), int(hour),
                     int(minute), int(second)))
        size = 0 if found[10] == "-" else int(found[10])
        lines.append((at, client, found[8], size if by_bytes else 1))
    lines.sort(key=lambda line: line[0])
    requests, begin = [], 0
    while begin < len(lines):
        end = begin
        while end < len(lines) and lines[end][0] == lines[begin][0]:
            end += 1
        for i in range(begin, end):
            part = (i - begin) * 10**9 // (end - begin)
            requests.append((lines[i][0] + Fraction(part, 10**9),
                             *lines[i][1:]))
        begin = end
    return requests


class Case(unittest.TestCase):
    def setUp(self):
        self.home = Path(tempfile.mkdtemp(prefix="live_replay."))
        self.addCleanup(shutil.rmtree, self.home)
        self.two = self.write("two.yaml", TWO)

    def write(self, name, text):
        path = self.home / name
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return str(path)

    def replay(self, *options, status=0, input=None):
        done = subprocess.run([WEIR, "replay", *options], input=input,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def result(self, *options, **more):
        out, _ = self.replay("--json", *options, **more)
        return json.loads(out)

    @staticmethod
    def refused(result):
        return {quota["name"]: quota["limited"]
                for quota in result["quotas"]}


class Real(Case):
    def test_as_the_slow_script_says(self):
        found = self.result("--quotas", self.two, "--key",
                            "{client}/{method}", "--top", "10000", str(LOG))
        oracle = Oracle().run(read_requests())
        result = found["result"]
        print(f"refused: {self.refused(result)}")
        self.assertEqual(found["requests"], 10000)
        self.assertEqual(found["malformed"], 0)
        self.assertEqual(self.refused(result), oracle.refused)
        self.assertGreater(min(oracle.refused.values()), 100)
        self.assertEqual({client["client"]: client["limited"]
                          for client in result["clients"]}, oracle.clients)
        for quota in result["quotas"]:
            self.assertEqual(sum(quota["limited_over_time"]),
                             quota["limited"])
            self.assertEqual(sum(quota["offered_over_time"]), quota["offered"])
        self.assertEqual(result["offered"] - result["unknown"],
                         result["quotas"][0]["offered"])

    def test_by_bytes(self):
        text = TWO.replace("30/min", "100k/min").replace("10/min", "5MB/min")
        text = text.replace("burst: 60", "burst: 22M")
        text = text.replace("burst: 20", "burst: 20M")
        result = self.result("--quotas", self.write("bytes.yaml", text),
                             "--weight", "bytes", "-k", "{client}/{method}",
                             str(LOG))["result"]
        oracle = Oracle(Fraction(100000, 60), Fraction(5 * 10**6, 60),
                        (22 * 10**6, 20 * 10**6))
        oracle.run(read_requests(by_bytes=True))
        print(f"refused by bytes: {self.refused(result)}")
        self.assertEqual(self.refused(result), oracle.refused)
        self.assertGreater(min(oracle.refused.values()), 20)

    def test_in_any_order_and_from_anywhere(self):
        options = ["--quotas", self.two, "-k", "{client}/{method}"]
        whole = self.result(*options, str(LOG))
        text = gzip.decompress(LOG.read_bytes())
        lines = text.splitlines(True)
        first = self.write("a.log", b"".join(lines[:5000]))
        second = self.write("b.log.gz",
                            gzip.compress(b"".join(lines[5000:])))
        self.assertEqual(self.result(*options, second, first)["result"]
                         ["limited"], whole["result"]["limited"])
        self.assertEqual(self.result(*options, "-", input=text), whole)
        self.assertEqual(self.result(*options, "-",
                                     input=LOG.read_bytes()), whole)

    def test_compared(self):
        other = self.write("other.yaml", TWO.replace("10/min", "20/min"))
        found = self.result("--quotas", self.two, "--compare", other, "-k",
                            "{client}/{method}", str(LOG))
        a, b = found["result"], found["compared"]
        oracle = Oracle(each=Fraction(20, 60)).run(read_requests())
        self.assertEqual(self.refused(b), oracle.refused)
        self.assertEqual(a["limited"] - b["only_there"],
                         b["limited"] - b["only_here"])
        self.assertGreater(b["only_there"], 0)
        out, _ = self.replay("--quotas", self.two, "--compare", other, "-k",
                             "{client}/{method}", str(LOG))
        self.assertIn("LIMIT B", out)
        self.assertIn("by A only", out)

    def test_suggested(self):
        options = ["-k", "{client}/{method}", "--suggest", "0.1%", str(LOG)]
        found = self.result("--quotas", self.two, *options)
        limits = {quota["name"]: quota for quota in found["suggested"]}
        print("suggested:", {name: quota["limit"]
                             for name, quota in limits.items()})
        requests = read_requests()
        for name, quota in limits.items():
            units = int(quota["limit"].split("/")[0])
            self.assertEqual(self.alone(requests, name, units),
                             quota["limited"])
            self.assertLessEqual(quota["limited"], quota["offered"] // 1000)
            # With a unit less it refuses too much: it is the smallest limit.
            self.assertGreater(self.alone(requests, name, units - 1),
                               quota["offered"] // 1000)
        text = TWO.replace("30/min", limits["site"]["limit"])
        text = text.replace("10/min", limits["*/GET"]["limit"])
        again = self.result("--quotas", self.write("again.yaml", text), "-k",
                            "{client}/{method}", str(LOG))
        self.assertEqual(again["result"]["limited"],
                         found["suggested_together"])

    def suggest(self, name, fields, count, per_s):
        """A suggestion for 'count' requests at an even pace of per_s."""
        start = 1431856800
        text = "".join(json.dumps({"ip": "a", "ts": start + i / per_s}) + "\n"
                       for i in range(count))
        quotas = self.write(name + ".yaml", "weir: 1\nquotas:\n  - {name: a, "
                            + fields + "}\n")
        options = ["--quotas", quotas, "--suggest", "0%",
                   self.write(name + ".log", text)]
        found = self.result(*options)["suggested"][0]
        return found, self.replay(*options)[0]

    def test_a_limit_just_below_the_highest_that_it_may_have(self):
        """Such a quota can't have twice the limit, but limits between."""
        log = "algorithm: sliding_log, limit: 600/min, sharing: local"
        found, _ = self.suggest("log", log, 3000, 15)
        self.assertEqual(found["limit"], "900/min")
        found, _ = self.suggest("full", log, 3000, 1000 / 60)
        self.assertEqual(found["limit"], "1000/min")
        found, said = self.suggest("more", log, 3000, 20)
        self.assertIsNone(found["limit"])
        self.assertIn("a sliding log remembers", found["why"])
        self.assertIn("a sliding log remembers", said)
        low = "limit: 60/s, low_burst: 1s, high_burst: 100"
        found, _ = self.suggest("low", low, 3000, 90)
        self.assertRegex(found["limit"], "^(8[0-9]|90)/s$")
        self.assertEqual(found["limited"], 0)

    def test_many_quotas(self):
        """A quota for each client, in one log: the result of each is the same
        as for its requests alone."""
        count = 1000
        lines, quotas = [], []
        for i in range(count):
            quotas.append(f"  - {{name: c{i}, limit: 1/min, low_burst: 2, "
                          "high_burst: 2}\n")
            # Every other client asks for two more than its burst in a minute.
            for k in range(4 if i % 2 else 2):
                lines.append(json.dumps({"ip": f"c{i}",
                                         "ts": 1431856800 + 15 * k}) + "\n")
        found = self.result("--suggest", "0%", "--quotas",
                            self.write("many.yaml", "weir: 1\nquotas:\n" +
                                       "".join(quotas)),
                            self.write("many.log", "".join(lines)))
        limits = [quota["limit"] for quota in found["suggested"]]
        self.assertEqual(limits, ["1/min", "3/min"] * (count // 2))
        self.assertEqual(found["suggested_together"], 0)

    @staticmethod
    def alone(requests, name, units):
        """The units that one of the two quotas would refuse without the other.
        """
        endless = 10**12
        oracle = (Oracle(site=Fraction(units, 60), bursts=(60, endless))
                  if name == "site" else
                  Oracle(each=Fraction(units, 60), bursts=(endless, 20)))
        return oracle.run(requests).refused[name]

    def test_days_of_a_calendar_anywhere(self):
        """1,000 a day, with days in the quota's time zone; decided by a process
        or, outside of a replay, by a store."""
        for zone, east in (("UTC", 0), ('"+03:00"', 3), ('"-05:30"', -5.5)):
            days = {}
            for at, *_ in read_requests():
                day = (at + int(east * 3600)) // 86400
                days[day] = days.get(day, 0) + 1
            wanted = sum(max(0, count - 1000) for count in days.values())
            for sharing in ("local", "exact, store: 'redis://a:6379'"):
                quotas = self.write("day.yaml", "weir: 1\nquotas:\n  - {name: "
                                    "site, limit: 1000/day, algorithm: "
                                    "fixed_window, window: day, tz: "
                                    f"{zone}, sharing: {sharing}}}\n")
                result = self.result("--quotas", quotas, "-k", "site",
                                     str(LOG))["result"]
                self.assertEqual(result["limited"], wanted, (zone, sharing))

    def test_what_people_see(self):
        page = str(self.home / "page.html")
        out, _ = self.replay("--quotas", self.two, "-k", "{client}/{method}",
                             "--html", page, str(LOG))
        self.assertIn("10000 requests of 1753 clients, 17 May 2015 10:05:00",
                      out)
        self.assertIn("WORST MINUTE", out)
        self.assertRegex(out, r"site +[·▁▂▃▄▅▆▇█]{60}\n")
        self.assertIn("MOSTLY BY", out)
        html = Path(page).read_text()
        self.assertIn("<svg", html)
        self.assertTrue(html.endswith("</html>\n"))
        self.assertNotIn("http", html)

    def on_terminal(self, *options, **env):
        """The output to a terminal."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        replay = subprocess.Popen([WEIR, "replay", *options], stdout=slave,
                                  env={**os.environ, "NO_COLOR": "", **env})
        os.close(slave)
        out = b""
        while True:
            try:
                out += os.read(master, 1 << 16)
            except OSError:  # the other end was closed
                self.assertEqual(replay.wait(), 0)
                return out

    def test_colours(self):
        """Heads of tables stand out on a terminal, unless $NO_COLOR is set."""
        other = self.write("other.yaml", TWO.replace("10/min", "20/min"))
        options = ["--quotas", self.two, "--compare", other, "--suggest", "1%",
                   "-k", "{client}/{method}", str(LOG)]
        out = self.on_terminal(*options)
        for head in (b"WORST MINUTE", b"MOSTLY BY", b"LIMITED B", b"SHARE"):
            self.assertRegex(out, rb"\033\[1m[^\n]*" + head +
                             rb"\r\n\033\[0m")
        self.assertNotIn(b"\033", self.on_terminal(*options, NO_COLOR="1"))


class Bad(Case):
    def test_lines_that_cant_be_read_are_counted_and_shown(self):
        good = gzip.decompress(LOG.read_bytes()).splitlines(True)[:50]
        bad = [b"\x00\x01\xff" * 400000 + b"\n",  # a megabyte
               b"what is this?\n",
               b"1.2.3.4 - - [99/Foo/2015:10:05:03 +0000] \"GET /\" 200 1\n",
               b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / 200 1\n',
               b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /" x\n']
        lines = b"".join(good[:20] + bad + good[20:])
        found = self.result("--quotas", self.two, "-k", "{client}/{method}",
                            self.write("mixed.log", lines))
        self.assertEqual(found["requests"], 50)
        self.assertEqual(found["malformed"], 5)
        self.assertEqual([shown["line"]
                          for shown in found["malformed_first"]],
                         [21, 22, 23])
        out, _ = self.replay("--quotas", self.two,
                             self.write("mixed.log", lines))
        self.assertIn("5 of 55 lines can't be read", out)
        self.assertIn("mixed.log:22", out)

    def test_a_log_that_is_no_log(self):
        for text in (b"", b"\n\n", b"hello\n" * 1000, os.urandom(3000000),
                     b"{}\n", b"[1, 2]\n", b"\0" * 1000000):
            path = self.write("no.log", text)
            _, said = self.replay("--quotas", self.two, path, status=2)
            self.assertRegex(said, "no access log|there is no line")
        cut = self.write("cut.gz", LOG.read_bytes()[:100000])
        _, said = self.replay("--quotas", self.two, cut, status=2)
        self.assertIn("cut.gz", said)

    def test_words(self):
        quotas = ["--quotas", self.two]
        for options, wanted in (
                ([str(LOG)], "which quotas"),
                (quotas, "which log"),
                (quotas + ["/nowhere/x.log"], "No such file"),
                (quotas + ["-k", "{who}", str(LOG)], "no {who}"),
                (quotas + ["-k", "{client", str(LOG)], "without its }"),
                (quotas + ["-k", "", str(LOG)], "--key"),
                (quotas + ["--weight", "rows", str(LOG)], "--weight"),
                (quotas + ["--format", "xml", str(LOG)], "--format"),
                (quotas + ["--suggest", "200%", str(LOG)], "--suggest"),
                (quotas + ["--suggest", "some", str(LOG)], "--suggest"),
                (quotas + ["--html", "/nowhere/p", str(LOG)], "--html"),
                (["--quotas", "/nowhere/q", str(LOG)], "/nowhere/q"),
                (["--quotas", self.write("e.yaml", "weir: 1\nquotas:\n"
                  " - name: a\n   limit: fast\n"), str(LOG)], "e.yaml:4"),
                (["--quotas", self.write("p.yaml", "weir: 1\nquotas:\n"
                  " - name: a\n   parent: b\n"), str(LOG)], "b")):
            _, said = self.replay(*options, status=2)
            self.assertIn(wanted, said, options)


class Formats(Case):
    def test_json_lines(self):
        lines = [
            {"remote_addr": "a", "time_local": "17/May/2015:10:00:00 +0000",
             "request_method": "GET", "status": 200, "body_bytes_sent": 5},
            {"client_ip": "a", "@timestamp": "2015-05-17T12:00:01.500+02:00",
             "method": "GET", "bytes": "7"},
            {"ts": 1431856802.25, "request": {"remote_ip": "a",
             "method": "GET", "uri": "/x?y=1"}, "size": 9},
            {"ip": "b", "msec": 1431856803000, "method": "POST"},
            {"ip": "b"}, {"time": "2015-05-17T12:00:01Z"},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        quotas = self.write("one.yaml", "weir: 1\nquotas:\n"
                            "  - {name: a/GET, limit: 1/h, low_burst: 2, "
                            "high_burst: 2}\n")
        found = self.result("--quotas", quotas, "-k", "{client}/{method}",
                            self.write("j.log", text))
        self.assertEqual(found["requests"], 4)
        self.assertEqual(found["malformed"], 2)
        self.assertEqual(found["begin"], 1431856800.0)
        self.assertEqual(found["end"], 1431856803.0)
        self.assertEqual(self.refused(found["result"]), {"a/GET": 1})
        self.assertEqual(found["result"]["unknown"], 1)

    def test_times_as_far_apart_as_they_can_be(self):
        """The sort uses all 64 bits of nanoseconds; a sanitizer would report a
        shift that is too far."""
        lines = [{"ip": "b", "ts": 9.2e9}, {"ip": "a", "ts": 0.5}]
        found = self.result("--quotas", self.two, self.write("f.log", "".join(
            json.dumps(line) + "\n" for line in lines)))
        self.assertEqual(found["requests"], 2)
        self.assertEqual((found["begin"], found["end"]), (0.5, 9.2e9))

    def test_sizes_that_are_no_size(self):
        """Sizes of 5, 1e300, 5 GiB and less than 0 bytes."""
        text = "".join('{"ip": "a", "ts": %d, "bytes": %s}\n' % (i, size)
                       for i, size in enumerate(
                           ("5", "1e300", str(5 << 30), "-7", '"-7"')))
        quotas = self.write("b.yaml", "weir: 1\nquotas:\n  - {name: a, limit: "
                            "0}\n")
        options = ["--quotas", quotas, "--weight", "bytes",
                   self.write("b.log", text)]
        found = self.result(*options)
        self.assertEqual(found["clipped"], 2)
        self.assertEqual(found["result"]["quotas"][0]["limited_units"],
                         5 + 2 * (2**32 - 1))
        self.assertIn("2 answers of 4 GiB and more", self.replay(*options)[0])

    def test_a_host_before_the_client(self):
        """A host before the client is refused, unless --format says so."""
        log = self.write("v.log", "www.example.org:443 a - ann "
                         '[17/May/2015:12:00:00 +0200] "GET / HTTP/1.1" '
                         '200 5 "-" "agent"\n')
        _, said = self.replay("--quotas", self.two, log, status=2)
        self.assertIn("--format vhost", said)
        quotas = self.write("a.yaml", "weir: 1\nquotas:\n  - {name: a-ann, "
                            "limit: 0}\n")
        found = self.result("--quotas", quotas, "--format", "vhost", "-k",
                            "{client}-{user}", log)
        self.assertEqual(self.refused(found["result"]), {"a-ann": 1})

    def test_a_burst_of_one_is_told(self):
        text = TWO.replace("    low_burst: 20\n    high_burst: 20\n", "")
        out, _ = self.replay("--quotas", self.write("one.yaml", text), str(LOG))
        self.assertIn("high_burst of */GET comes to 1 unit", out)
        out, _ = self.replay("--quotas", self.two, str(LOG))
        self.assertNotIn("comes to 1 unit", out)

    def test_common_format_and_time_zones(self):
        text = ('a - ann [17/May/2015:12:00:00 +0200] "GET /b/c?d HTTP/1.0" '
                '200 -\n'
                'a - - [17/May/2015:10:00:01 +0000] "GET /b/" 404 3\r\n'
                'a - - [17/May/2015:10:00:02 +0000] "\\"\\x16" 400 0\n')
        quotas = self.write("dirs.yaml", "weir: 1\nquotas:\n"
                            "  - {name: dir-*, limit: 0}\n")
        found = self.result("--quotas", quotas, "-k", "dir-{dir}",
                            "--format", "common",
                            self.write("c.log", text))
        self.assertEqual(found["requests"], 3)
        self.assertEqual(found["names"], 2)
        self.assertEqual(found["end"] - found["begin"], 2.0)
        self.assertEqual(self.refused(found["result"]), {"dir-*": 3})


if __name__ == "__main__":
    unittest.main(verbosity=2)
