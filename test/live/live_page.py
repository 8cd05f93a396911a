#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_page.py - the page of a root, in a real browser, beside real roots and
limiters.

Beyond the build it needs Chromium alone; without it the test is skipped, with a
note. There are two browsers, each for about half of the tests, since a start
takes two seconds of a processor. The times of painting are printed, not
asserted. WEIR_SCREENSHOTS=DIR keeps pictures of the pages under test,
WEIR_PAGE_QUOTAS is the number of quotas of the largest fleet here (the suite
"long" has 100,000)."""

import gzip
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import chromium
from chromium import sees
from live_fleet import PATIENCE, WEIR, Fleet, until

if not chromium.find():
    print("live_page: no Chromium here (Debian: chromium); skipped",
          file=sys.stderr)
    sys.exit(77)  # Meson's status for a skipped test

JSON = {"Content-Type": "application/json"}
PICTURES = os.environ.get("WEIR_SCREENSHOTS")
MANY = int(os.environ.get("WEIR_PAGE_QUOTAS", "20000"))
SECOND = "the second browser"  # The first is that of class Page.
EDIT, READ = "the-token-of-who-edits", "the-token-of-who-reads"


def say(text):
    print(f"page: {text}", file=sys.stderr)


def rounds(stops, seconds):
    """Yields once for each 'seconds' that have passed, until 'stops' is set.
    After a slow moment of the machine it yields the missed rounds, too."""
    start, done = time.monotonic(), 0
    while not stops.wait(seconds):
        due = int((time.monotonic() - start) / seconds)
        for _ in range(due - done):
            if stops.is_set():
                return
            yield
        done = due


class Case(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        """Makes live_run.py run these tests in one process."""

    def setUp(self):
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.prepare()
        self.fleet.add_roots(1, *self.OPTIONS)
        self.root = self.fleet.roots[0]

    def prepare(self):
        """Called before the root is started."""

    def open(self, name="", **options):
        page = chromium.Page(chromium.shared(),
                             f"http://{self.root.http}/#{name}", **options)
        self.addCleanup(page.close)
        page.until("the page's scripts", "globalThis.weir")
        return page

    def ready(self, page):
        """Waits until all quotas have arrived."""
        page.until("all quotas",
                   "document.documentElement.dataset.loaded === 'true'")

    def keep(self, page, name):
        if PICTURES:
            page.picture(f"{PICTURES}/{name}.png")

    def ask(self, path, method="GET", headers=None, body=None):
        """(status, headers, bytes), not decoded."""
        link = http.client.HTTPConnection(self.root.http, timeout=PATIENCE)
        link.request(method, path, body=body, headers=JSON | (headers or {}))
        answer = link.getresponse()
        said = (answer.status, answer.headers, answer.read())
        link.close()
        return said


def names(page):
    """The names in the rows on the screen, from the top."""
    return page.run("""[...document.querySelectorAll(
        "#rows .row:not([hidden])")].sort((a, b) =>
        a.dataset.index - b.dataset.index).map((row) =>
        row.querySelector(".name").textContent)""")


# ---- The files ----

class Files(Case):
    def test_as_they_are_sent(self):
        status, headers, plain = self.ask("/")
        self.assertEqual(status, 200)
        self.assertIn("text/html", headers["Content-Type"])
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        for path in ["/"] + re.findall(r'(?:src|href)="(/page/[^"]+)"',
                                       plain.decode()):
            self.check_file(path)

    def check_file(self, path):
        status, headers, plain = self.ask(path)
        self.assertEqual(status, 200, path)
        tag = headers["ETag"]
        _, packed_headers, packed = self.ask(
            path, headers={"Accept-Encoding": "gzip, br"})
        self.assertEqual(packed_headers["Content-Encoding"], "gzip", path)
        self.assertEqual(gzip.decompress(packed), plain, path)
        status, _, nothing = self.ask(path, headers={"If-None-Match": tag})
        self.assertEqual((status, nothing), (304, b""), path)
        status, _, nothing = self.ask(path, method="HEAD")
        self.assertEqual((status, nothing), (200, b""), path)

    def test_who_reads_nothing_is_not_heard(self):
        """Answers that the client doesn't read fill its socket, and the root
        reads no more of its requests. When the client reads, all requests are
        answered."""
        host, port = self.root.http.rsplit(":", 1)
        ask = (b"GET /page/page.css HTTP/1.1\r\nHost: localhost\r\n"
               b"X-More: " + 8000 * b"x" + b"\r\n\r\n")
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            link.connect((host, int(port)))
            # A root that the machine doesn't run looks the same; no matter.
            link.settimeout(1)
            asked, rest = 0, ask
            with self.assertRaises(TimeoutError):
                while asked < (256 << 20) // len(ask):
                    rest = rest[link.send(rest):]
                    if not rest:
                        asked, rest = asked + 1, ask
            self.assertGreater(asked, 0)
            # The end of a half-sent request follows once there is room.
            link.settimeout(PATIENCE)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            sender = threading.Thread(target=link.sendall, args=(rest,))
            sender.start()
            answered, tail, head = 0, b"", b"HTTP/1.1 200 OK\r\n"
            while answered < asked + 1:
                part = link.recv(1 << 20)
                self.assertTrue(part, f"{answered} of {asked + 1} answers")
                tail += part
                answered += tail.count(head)
                # A head may be cut in two; a whole head is counted once.
                tail = tail[tail.rfind(head) + len(head)
                            if head in tail else 0:][-len(head) + 1:]
            sender.join()

    def test_what_isnt_one(self):
        for path in ("/page/", "/page/x.js", "/page/../serve", "/index.html",
                     "/page/page.css/"):
            self.assertEqual(self.ask(path)[0], 404, path)
        self.assertEqual(self.ask("/", method="PUT")[0], 404)
        status, _, _ = self.ask("/", headers={"Host": "evil.example"})
        self.assertEqual(status, 403)


# ---- Streams of the API ----

class Streams(Case):
    PROCESS = SECOND

    def test_events_come_each_second(self):
        self.fleet.set("site", "limit=50/s")
        self.fleet.add_limiter(["site=100"])
        url = f"http://{self.root.http}/v1/events?watch=site%0Aother"
        with urllib.request.urlopen(url, timeout=PATIENCE) as stream:
            self.assertEqual(stream.headers["Content-Type"],
                             "text/event-stream")
            told = []
            while len(told) < 2:
                line = stream.readline().decode()
                self.assertRegex(line, r"^(data: \{.*\})?\n$")
                if line != "\n":
                    picture = json.loads(line[6:])
                    told += [one for one in [picture]
                             if one["watched"] and
                             one["watched"][0]["limited"] > 0]
        first, second = told
        self.assertGreater(second["at"], first["at"])
        self.assertEqual([one["name"] for one in second["watched"]], ["site"])
        self.assertGreaterEqual(second["watched"][0]["passed"],
                                first["watched"][0]["passed"])
        self.assertEqual(second["top_limited"][0]["name"], "site")

    def opened(self, headers=None, source=None):
        """Opens one more stream, which stays open; returns its status."""
        host, port = self.root.http.rsplit(":", 1)
        link = http.client.HTTPConnection(
            host, int(port), timeout=PATIENCE,
            source_address=(source, 0) if source else None)
        link.request("GET", "/v1/events", headers=headers or {})
        answer = link.getresponse()
        if answer.status == 200:
            self.assertTrue(answer.readline().startswith(b"data: {"))
            self.streams.append((link, answer))
            return 200
        said = json.loads(answer.read())
        self.assertEqual(said["error"], "WEIR_EFULL")
        link.close()
        return answer.status

    def test_there_are_so_many_and_no_more(self):
        """One reader has at most eight streams, all together thirty-two."""
        self.streams = []
        for last in range(1, 5):
            for _ in range(8):
                self.assertEqual(self.opened(source=f"127.0.0.{last}"), 200)
            if last < 4:
                self.assertEqual(self.opened(source=f"127.0.0.{last}"), 503)
        self.assertEqual(self.opened(source="127.0.0.5"), 503)
        for link, answer in self.streams[:8]:
            answer.close()
            link.close()
        until("room for another",
              lambda: self.opened(source="127.0.0.5") == 200)
        # Some streams stay to the end. If the ended ones left memory behind, a
        # sanitizer reports it.
        self.root.process.terminate()
        self.assertEqual(self.root.process.wait(PATIENCE), 0,
                         self.root.logged())
        for link, answer in self.streams:
            answer.close()
            link.close()

    def test_who_talks_is_not_kept(self):
        """A stream's client may send without end: the root doesn't read it, and
        goes on sending events."""
        host, port = self.root.http.rsplit(":", 1)
        with socket.create_connection((host, int(port)), PATIENCE) as link:
            link.sendall(b"GET /v1/events HTTP/1.1\r\n"
                         b"Host: localhost\r\n\r\n")
            said = link.recv(65536)
            self.assertIn(b"Connection: close\r\n", said)
            link.settimeout(1)
            sent = 0
            with self.assertRaises(TimeoutError):
                while sent < 256 << 20:  # far more than sockets hold
                    sent += link.send(bytes(1 << 20))
            link.settimeout(PATIENCE)
            until("a later event", lambda: b"data: " in link.recv(65536))

    def test_the_past(self):
        self.fleet.set("site", "limit=50/s")
        self.fleet.add_limiter(["site=100"])
        # A page that is opened only now has the samples from before.
        kept = until("some seconds of it", lambda: [
            kept for kept in [self.root.get("/v1/recent", name="site")]
            if len(kept["samples"]) > 2])
        times, passed, limited = zip(*kept[0]["samples"])
        for sums in times, passed, limited:
            self.assertEqual(list(sums), sorted(sums))
        self.assertGreater(passed[-1] + limited[-1], passed[0] + limited[0])
        page = self.open("site")
        page.until("a curve", "weir.detail.curves.data[0].length >= 3")
        page.until("of the past",
                   f"weir.samples.of('site')[0].at < {times[1]}")
        page.until("and of the present",
                   f"weir.samples.of('site').at(-1).at > {times[-1] + 1}")
        self.assertEqual(self.root.get("/v1/recent", name="b")["samples"], [])
        self.assertEqual(self.ask("/v1/recent?name=")[0], 400)

    def test_bad_questions(self):
        for query in ("watch=%zz", "watch=%01", "watch=" + "a%0A" * 101,
                      "watch=" + "a" * 256):
            status, _, said = self.ask(f"/v1/events?{query}")
            self.assertEqual(status, 400, query)
            self.assertIn("detail", json.loads(said))


class Why(Case):
    def why(self, name, weight=1):
        return self.root.get("/v1/why", name=name, weight=weight)

    def test_chain(self):
        self.fleet.set("site", "limit=1000/s")
        self.fleet.set("none", "limit=0", "parent=site")
        self.fleet.set("client/*", "limit=10/s", "parent=site")
        self.fleet.set("try", "limit=0", "mode=shadow", "parent=site")
        self.fleet.set("mine", "limit=5/s", "sharing=local")
        said = self.why("client/ann")
        self.assertEqual([link["name"] for link in said["chain"]],
                         ["client/ann", "site"])
        self.assertEqual(said["chain"][0]["quota"], "client/*")
        self.assertEqual(said["verdict"], "passed")
        self.assertEqual(self.why("none")["verdict"], "limited")
        self.assertEqual(self.why("try")["verdict"], "passed")
        self.assertEqual(self.why("try")["chain"][0]["chance"], 1)
        self.assertEqual(self.why("mine")["verdict"], "unknown")
        never = self.why("client/ann", weight=16)
        self.assertEqual(never["verdict"], "limited")
        self.assertIn("never", never["chain"][0]["why"])
        status, _, text = self.ask("/v1/why?name=nobody")
        self.assertEqual(status, 404)
        self.assertIn("no template", json.loads(text)["detail"])

    def test_parent_by_capture(self):
        self.fleet.set("team/a", "limit=7/s")
        self.fleet.set("user/*/*", "limit=3/s", "parent=team/{1}")
        said = self.why("user/a/x")
        self.assertEqual([link["name"] for link in said["chain"]],
                         ["user/a/x", "team/a"])
        self.assertIsNone(said["missing"])
        self.assertEqual(self.why("user/b/x")["missing"], "team/b")


class Preview(Case):
    def preview(self, offered, **quota):
        status, _, text = self.ask("/v1/preview", "POST", body=json.dumps(
            {"quota": quota, "offered": offered}))
        return status, json.loads(text)

    def test_algorithms(self):
        for algorithm in ("leaky", "token_bucket", "fixed_window",
                          "sliding_window", "sliding_log"):
            status, said = self.preview([200] * 60, limit="50/s",
                                        sharing="local",
                                        algorithm=algorithm)
            self.assertEqual(status, 200, said)
            late = said["passed"][10:]
            self.assertEqual(len(late), 50)
            self.assertAlmostEqual(sum(late) / 50, 50, delta=5,
                                   msg=algorithm)
            # A load under the limit passes completely.
            _, said = self.preview([20] * 30, limit="50/s",
                                   sharing="local", algorithm=algorithm)
            self.assertEqual(said["passed"], [20] * 30, algorithm)

    def test_an_edit_of_what_there_is(self):
        self.fleet.set("site", "limit=10/s", "low_burst=10",
                       "high_burst=10")
        _, said = self.preview([100], name="site")
        self.assertLessEqual(said["passed"][0], 20)
        _, said = self.preview([100], name="site", limit="unlimited",
                               low_burst=None, high_burst=None)
        self.assertEqual(said["passed"], [100])
        _, said = self.preview([100], name="site", limit="0",
                               low_burst=None, high_burst=None)
        self.assertEqual(said["passed"], [0])

    def test_bad_questions(self):
        for body in ("", "[]", "{}", '{"offered": []}',
                     '{"offered": [1.5], "quota": {}}',
                     '{"offered": [-1], "quota": {}}',
                     '{"offered": [1]}',
                     '{"offered": [1], "quota": {"limt": "1/s"}}',
                     '{"offered": [1], "quota": {}, "step": "1h"}',
                     '{"offered": [1], "quota": {}, "step": 1}',
                     json.dumps({"offered": [1] * 601, "quota": {}}),
                     '{"offered": [1], "quota": {"kind": "concurrency",'
                     ' "limit": "3"}}'):
            status, _, text = self.ask("/v1/preview", "POST", body=body)
            self.assertIn(status, (400, 422), body)
            self.assertGreater(len(json.loads(text)["detail"]), 10, body)


# ---- The page ----

class Page(Case):
    def prepare_fleet(self):
        self.fleet.set("site", "limit=900/s")
        self.fleet.set("site/write", "limit=200/s", "parent=site")
        self.fleet.set("client/*", "limit=50/s", "parent=site")
        self.fleet.add_limiter(["site/write=400", "client/ann=80",
                                "client/bob=20"])
        self.fleet.add_limiter(["site/write=200", "client/ann=40"])
        self.fleet.wait_linked()

    def passed(self, page):
        """The last value of the curve of passed units."""
        return page.run("weir.detail.curves.data[2].at(-1) ?? 0")

    def test_an_edit_bends_the_curve(self):
        self.prepare_fleet()
        page = self.open("site%2Fwrite")
        page.until("a curve at the limit",
                   "weir.detail.curves.data[0].length > 3 && "
                   "weir.detail.curves.data[2].at(-1) > 140 && "
                   "weir.detail.curves.data[2].at(-1) < 260 && "
                   "weir.detail.curves.data[3].at(-1) > 200")
        before = self.passed(page)
        page.click("#detail-edit")
        page.write("#field-limit", "40/s")
        sees(page, ".said", "would have passed")
        self.keep(page, "preview")
        # After the initial burst it is the new limit.
        page.until("a curve of what would have passed", "((dry) => "
                   "dry.length > 2 && Math.min(...dry) < 60)("
                   "weir.detail.curves.data[5].filter((v) => v !== null))")
        page.click(".edit button.main")
        page.until("the new limit in the figures",
                   "document.querySelector('.figures dd').textContent"
                   " === '40/s'")
        page.until("the curve bends",
                   "weir.detail.curves.data[2].at(-1) < 80")
        say(f"passed {before:.0f}/s, after the edit to 40/s "
            f"{self.passed(page):.0f}/s")
        self.assertEqual(
            self.root.get("/v1/quotas/site/write")["limit"], "40/s")
        page.until("the tree follows",
                   "weir.tree.nodes.get('site/write').quota.limit"
                   " === '40/s'")
        self.keep(page, "light")
        page.set_dark(True)
        self.keep(page, "dark")
        page.resize(400, 900)
        self.keep(page, "narrow")
        self.assertEqual(page.errors(), [])

    def test_why_history_and_undo(self):
        self.prepare_fleet()
        page = self.open("client%2Fann!why")
        sees(page, "#why", "by client/*")
        sees(page, "#why", "limited")
        self.keep(page, "why")
        page.press("#why .chain button")  # its template
        page.until("the template",
                   "decodeURIComponent(location.hash).startsWith('#client/*')")
        page.click("#detail-edit")
        page.write("#field-limit", "51/s")
        page.key("Enter")
        page.click("#detail-history")
        sees(page, ".log", "51/s")
        page.click("#tab-history")
        sees(page, "#history", "51/s")
        self.keep(page, "history")
        page.press("#history li button:not(.plain)")
        until("the undo", lambda: self.root.get(
            "/v1/quotas/client/*")["limit"] == "50/s")
        self.assertEqual(page.errors(), [])

    def test_lists(self):
        self.prepare_fleet()
        page = self.open()
        page.click("#tab-limited")
        sees(page, "#limited", "site/write")
        sees(page, "#limited", "client/ann")
        self.keep(page, "limited")
        page.click("#tab-limiters")
        sees(page, "#limiters", "limiter1")
        sees(page, "#limiters", "root0")
        self.keep(page, "limiters")
        page.click("#tab-quotas")
        page.until("instances under their template",
                   "[...document.querySelectorAll('.row.instance .name')]"
                   ".some((name) => name.textContent === 'client/bob')")
        self.assertEqual(page.errors(), [])

    def test_keys(self):
        for name in ("a", "b", "b/inner"):
            self.fleet.set(name, "limit=5/s", *(
                ["parent=b"] if "/" in name else []))
        page = self.open()
        self.ready(page)
        page.key("/")
        page.call("Input.insertText", text="inn")
        page.until("the quotas found", "weir.tree.shown.length === 2")
        page.until("the quota's row", "document.querySelector('#rows .row:not("
                   "[hidden]) .name').textContent === 'b/inner'")
        page.key("Enter")
        sees(page, "#detail h2", "b/inner")
        page.key("Escape")
        page.key("e")
        page.until("the form, to be written into",
                   "document.activeElement.id === 'field-limit'")
        page.key("Escape")
        page.key("h")
        sees(page, ".log", "5/s")
        page.until("all quotas again", "weir.tree.shown.length === 3")
        page.key("Home")
        for key in ("j", "j", "Enter"):
            page.key(key)
        sees(page, "#detail h2", "b/inner")
        for key in ("ArrowLeft", "ArrowLeft"):
            page.key(key)
        page.until("a closed row", "weir.tree.shown.length === 2")
        page.key("ArrowRight")
        page.until("an open row", "weir.tree.shown.length === 3")
        page.key("?")
        page.until("keys are shown",
                   "document.getElementById('keys-dialog').open")
        page.key("Escape")
        for theme in ("light", "dark", ""):
            page.key("t")
            self.assertEqual(
                page.run("document.documentElement.dataset.theme"), theme)
        for number, name in enumerate(("quotas", "limited", "limiters",
                                       "history"), 1):
            page.key(str(number))
            self.assertFalse(page.run(
                f"document.getElementById('{name}').hidden"), name)
        page.run("document.getElementById('tab-history').focus()")
        for key, name in (("ArrowRight", "quotas"), ("ArrowRight", "limited"),
                          ("ArrowLeft", "quotas"), ("ArrowLeft", "history")):
            page.key(key)
            self.assertEqual(page.run("document.activeElement.id"),
                             f"tab-{name}")
            self.assertFalse(page.run(
                f"document.getElementById('{name}').hidden"), name)
        self.assertEqual(page.errors(), [])

    def test_a_quota_comes_and_goes(self):
        page = self.open()
        self.ready(page)
        page.click("#new")
        page.write("#field-name", "fresh/<b>")
        page.write("#field-limit", "7/s")
        page.key("Enter")
        sees(page, "#tree", "fresh/<b>")
        self.assertEqual(self.root.get("/v1/quotas/fresh/%3Cb%3E")["limit"],
                         "7/s")
        self.fleet.set("second", "limit=1/s")  # by another client
        sees(page, "#tree", "second")
        page.run("window.confirm = () => true")
        page.click("#detail-edit")
        page.click(".edit .danger")
        page.until("the quota is gone", "!weir.tree.nodes.has('fresh/<b>')")
        until("only 'second'", lambda: names(page) == ["second"])
        self.assertEqual(page.errors(), [])

    def test_curves_without_uplot(self):
        self.prepare_fleet()
        page = self.open("site%2Fwrite")
        page.call("Network.setBlockedURLs", urls=["*/page/uplot.js"])
        page.call("Page.reload")
        page.until("plain curves", "!window.uPlot && [...document."
                   "querySelectorAll('svg.plain .passed, svg.plain .offered')]"
                   ".filter((one) => one.getAttribute('points')"
                   ".split(' ').length > 3).length === 2")
        self.keep(page, "plain")

    def test_bad_edits_are_told(self):
        self.fleet.set("site", "limit=5/s")
        page = self.open("site!edit")
        page.write("#field-limit", "many")
        page.key("Enter")
        sees(page, ".said.problem", "many")
        self.assertEqual(self.root.get("/v1/quotas/site")["limit"], "5/s")

    def test_markup_in_names(self):
        evil = "<img src=x onerror=alert(1)>"
        self.fleet.set(evil, "limit=5/s",
                       "description=<script>alert(2)</script>")
        page = self.open("%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E!edit")
        sees(page, "#detail h2", evil)
        sees(page, "#tree", evil)
        page.click("#tab-history")
        sees(page, "#history", evil)
        self.assertEqual(page.run(
            "document.querySelectorAll('img, main script').length"), 0)
        self.assertEqual(page.errors(), [])

    def test_addresses(self):
        """A '!' may belong to the name, or separate it from a tab."""
        for name in ("a", "a!edit", "50%"):
            self.fleet.set(name, "limit=5/s")
        page = self.open("50%")  # as typed by hand
        sees(page, "#detail h2", "50%")
        self.ready(page)
        until("three rows", lambda: len(names(page)) == 3)
        for name in ("a!edit", "50%", "a"):
            row = names(page).index(name) + 1
            page.key("Home")
            for key in ["ArrowDown"] * (row - 1) + ["Enter"]:
                page.key(key)
            page.until(f"'{name}'", "weir.detail.quota?.name === "
                       + json.dumps(name))
            self.assertEqual(page.run("weir.detail.tab"), "why")
        self.assertEqual(page.errors(), [])

    def test_the_root_goes_and_comes_back(self):
        self.fleet.set("site", "limit=5/s")
        page = self.open("site")
        sees(page, "#state", "well")
        self.root.kill()
        sees(page, "#state", "no link")
        self.root.start()
        sees(page, "#state", "well")


# ---- The page of an agent ----

class Agent(Case):
    """An agent that programs use without end, while a browser reads it."""
    PROCESS = SECOND
    ASKS = {"site/write": 8, "client/ann": 4, "client/bob": 1}  # each 20 ms

    def setUp(self):
        super().setUp()
        self.fleet.set("site", "limit=900/s")
        self.fleet.set("site/write", "limit=100/s", "parent=site")
        self.fleet.set("client/*", "limit=80/s", "parent=site")
        self.fleet.set("calls", "limit=30/min", "sharing=local",
                       "algorithm=fixed_window")
        self.fleet.set("part", "limit=40/s", "sharing=leased")
        ports = self.fleet.folder / "places"
        with open(self.fleet.folder / "agent", "w") as log:
            self.agent = subprocess.Popen(
                [WEIR, "agent", "--roots", self.root.listen, "--http",
                 "127.0.0.1:0", "--name", "agent0", "--port-file", ports],
                stderr=log)
        self.addCleanup(self.end)
        until("the agent's port", ports.exists)
        self.http = ports.read_text().split("=")[1].strip()
        until("the agent's quotas", lambda: self.get("/v1/status")["ready"])
        self.stops = threading.Event()
        self.load = threading.Thread(target=self.ask_on)
        self.load.start()

    def end(self):
        self.stops.set()
        self.load.join()
        self.agent.terminate()
        self.assertEqual(self.agent.wait(PATIENCE), 0,
                         (self.fleet.folder / "agent").read_text())

    def ask_on(self):
        link = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        for _ in rounds(self.stops, 0.02):
            for name, weight in self.ASKS.items():
                link.request("POST", "/v1/take", json.dumps(
                    {"name": name, "weight": weight}), JSON)
                link.getresponse().read()
        link.close()

    def get(self, path, status=200):
        link = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        link.request("GET", path)
        answer = link.getresponse()
        said = json.loads(answer.read())
        link.close()
        self.assertEqual(answer.status, status, said)
        return said

    def open(self, name="", **options):
        page = chromium.Page(chromium.shared(),
                             f"http://{self.http}/#{name}", **options)
        self.addCleanup(page.close)
        page.until("the page's scripts", "globalThis.weir")
        return page

    def test_a_curve_and_a_reason(self):
        page = self.open("site%2Fwrite")
        self.ready(page)
        sees(page, "#root", "agent0 · limiter")
        sees(page, "#state", "well")
        page.until("a curve at the limit",
                   "weir.detail.curves.data[0].length > 4 && "
                   "weir.detail.curves.data[2].at(-1) > 60 && "
                   "weir.detail.curves.data[2].at(-1) < 150 && "
                   "weir.detail.curves.data[3].at(-1) > 50")
        sees(page, "#why", "limited")
        sees(page, ".figures", "100/s")
        say("an agent's curve: passed "
            f"{page.run('weir.detail.curves.data[2].at(-1)'):.0f}/s, limited "
            f"{page.run('weir.detail.curves.data[3].at(-1)'):.0f}/s")
        self.keep(page, "agent-light")
        page.set_dark(True)
        self.keep(page, "agent-dark")
        # An edit at the root bends the agent's curve.
        self.fleet.set("site/write", "limit=40/s")
        page.until("the new limit", "weir.tree.nodes.get('site/write')"
                   ".quota.limit === '40/s'")
        page.until("the curve bends",
                   "weir.detail.curves.data[2].at(-1) < 70")
        page.click("#tab-limited")
        sees(page, "#limited", "site/write")
        self.keep(page, "agent-limited")
        # Instances of a template; its row has the sum of their use.
        page.click("#tab-quotas")
        page.until("instances under their template",
                   "[...document.querySelectorAll('.row.instance .name')]"
                   ".some((name) => name.textContent === 'client/bob')")
        page.until("the sum of instances",
                   "weir.samples.now('client/*')?.passed > 60")
        self.assertEqual(page.errors(), [])

    def test_what_only_a_root_has(self):
        page = self.open("site!edit")
        sees(page, ".panel", "Quotas aren't edited here")
        sees(page, ".panel", self.root.listen)
        self.keep(page, "agent-edit")
        self.assertTrue(page.run("document.getElementById('new').hidden"))
        page.key("n")
        self.assertFalse(page.run(
            "document.getElementById('field-name') !== null"))
        page.key("h")
        sees(page, ".panel", "No history of edits")
        page.key("4")
        sees(page, "#history", self.root.listen)
        page.key("3")
        sees(page, "#limiters", self.root.listen)
        sees(page, "#limiters", "all here")
        self.keep(page, "agent-roots")
        self.root.kill()
        sees(page, "#limiters tbody", "ago")
        page.until("the root is away", "document.querySelector("
                   "'#limiters .dot.bad') !== null")
        self.keep(page, "agent-alone")
        self.root.start()
        page.until("the root is back", "document.querySelector("
                   "'#limiters .dot.bad') === null")
        self.assertEqual(page.errors(), [])

    def test_what_it_answers(self):
        said = self.get("/v1/why?name=client/carl")
        self.assertEqual([link["name"] for link in said["chain"]],
                         ["client/carl", "site"])
        self.assertEqual(said["chain"][0]["quota"], "client/*")
        self.assertEqual(said["verdict"], "passed")
        never = self.get("/v1/why?name=client/carl&weight=1000")
        self.assertEqual(never["verdict"], "limited")
        self.assertIn("never", never["chain"][0]["why"])
        # Quotas that no bucket decides have reasons, too.
        def refused():
            """A take until the window is used up; a new one may begin at any
            instant."""
            self.take("calls")
            said = self.get("/v1/why?name=calls")
            return said if said["verdict"] == "limited" else None
        said = until("a window that is used up", refused)
        self.assertGreater(said["chain"][0]["retry_after_s"], 0)

        def granted():
            """A take until there is a grant; it may end, and is asked for
            anew."""
            self.take("part")
            said = self.get("/v1/why?name=part")
            return said if "granted" in said["chain"][0]["why"] else None
        said = until("a grant", granted)
        self.assertEqual(said["chain"][0]["limit"], "40/s")
        self.assertIn("only", self.get("/v1/why?name=nobody", 404)["detail"])
        for path in ("/v1/log", "/v1/quotas", "/v1/quotas/site",
                     "/v1/quotas:export"):
            self.assertIn(self.root.listen, self.get(path, 404)["detail"])
        for path in ("/v1/why?name=", "/v1/live?watch=%zz",
                     "/v1/events?watch=%zz", "/v1/usage?limit=0",
                     "/v1/quotas:brief?after=x"):
            self.get(path, 400)
        rows = self.get("/v1/quotas:brief")["quotas"]
        self.assertEqual(
            sorted(rows, key=lambda row: row[0]),
            [["calls", None, "30/min", "enforce"],
             ["client/*", "site", "80/s", "enforce"],
             ["part", None, "40/s", "enforce"],
             ["site", None, "900/s", "enforce"],
             ["site/write", "site", "100/s", "enforce"]])

    def test_limits_of_no_usual_period(self):
        for name, limit in ("rare", "3/7d"), ("odd", "100/101s"), \
                ("more", "10001/7s"):
            self.fleet.set(name, f"limit={limit}")
        rows = until("the edits", lambda: (rows := {
            row[0]: row[2] for row in
            self.get("/v1/quotas:brief")["quotas"]}).get("more") and rows)
        self.assertEqual([rows[name] for name in ("rare", "odd", "more")],
                         ["1/56h", "1/1010ms", "1428714/1000s"])
        self.assertEqual(self.get("/v1/why?name=rare")["verdict"], "passed")

    def take(self, name):
        link = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        link.request("POST", "/v1/take", json.dumps({"name": name}), JSON)
        answer = link.getresponse()
        answer.read()
        link.close()
        return answer.status

    def test_its_streams(self):
        url = f"http://{self.http}/v1/events?watch=site"
        streams = [urllib.request.urlopen(url, timeout=PATIENCE)
                   for _ in range(8)]
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=PATIENCE)
        self.assertEqual(refused.exception.code, 503)
        refused.exception.close()
        # They are one reader's; another reader has its own.
        host, port = self.http.rsplit(":", 1)
        other = http.client.HTTPConnection(host, int(port), timeout=PATIENCE,
                                           source_address=("127.0.0.2", 0))
        other.request("GET", "/v1/events")
        answer = other.getresponse()
        self.assertEqual(answer.status, 200)
        answer.close()
        other.close()
        at = []
        while len(at) < 3:
            line = streams[0].readline().decode()
            self.assertRegex(line, r"^(data: \{.*\})?\n$")
            if line != "\n":
                at.append(json.loads(line[6:])["at"])
        self.assertEqual(at, sorted(set(at)))
        for stream in streams:
            stream.close()

        def is_let_in():
            try:
                urllib.request.urlopen(url, timeout=PATIENCE).close()
                return True
            except urllib.error.HTTPError as error:
                error.close()
                return False
        until("room for another", is_let_in)

    def test_its_files(self):
        link = http.client.HTTPConnection(self.http, timeout=PATIENCE)

        def ask(path, method="GET", **headers):
            link.request(method, path, headers=headers)
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()
        _, _, start = ask("/")
        for path in ["/", "/?x"] + re.findall(r'(?:src|href)="(/page/[^"]+)"',
                                              start.decode()):
            status, headers, plain = ask(path)
            self.assertEqual(status, 200, path)
            self.assertIn("default-src 'none'",
                          headers["Content-Security-Policy"])
            _, _, packed = ask(path, **{"Accept-Encoding": "gzip"})
            self.assertEqual(gzip.decompress(packed), plain, path)
            status, _, nothing = ask(path,
                                     **{"If-None-Match": headers["ETag"]})
            self.assertEqual((status, nothing), (304, b""), path)
            status, _, nothing = ask(path, "HEAD")
            self.assertEqual((status, nothing), (200, b""), path)
        self.assertEqual(ask("/page/x.js")[0], 404)
        self.assertEqual(ask("/", Host="evil.example")[0], 403)
        link.close()


class Credentials(Case):
    """A root over TLS, with tokens."""
    PROCESS = SECOND

    def prepare(self):
        folder = self.fleet.folder
        self.fleet.weir("cert", "ca", str(folder / "ca"))
        self.fleet.weir("cert", "server", str(folder / "ca"), "localhost",
                        "127.0.0.1")
        tokens = folder / "tokens"
        tokens.write_text(f"edit token ann {EDIT}\n"
                          f"read token bob {READ}\n")
        tokens.chmod(0o600)
        own = str(folder / "ca" / "localhost")
        self.OPTIONS = ("--tls-cert", own + ".pem", "--tls-key",
                        own + ".key", "--credentials", str(tokens))

    def open_with(self, token):
        page = chromium.Page(chromium.shared(), f"https://{self.root.http}/")
        self.addCleanup(page.close)
        page.until("a question for a token",
                   "document.getElementById('token-dialog').open")
        page.write("#token", token)
        page.key("Enter")
        return page

    def make(self, page):
        self.ready(page)
        page.click("#new")
        page.write("#field-name", "site")
        page.write("#field-limit", "7/s")
        page.key("Enter")

    def test_who_may_edit(self):
        page = self.open_with(EDIT)
        self.make(page)
        sees(page, "#tree", "site")
        page.click("#tab-history")
        sees(page, "#history", "ann")
        self.assertEqual(page.run("Object.keys(sessionStorage).length"), 1)
        self.assertNotIn(EDIT, page.run("document.body.innerHTML"))

    def test_who_may_look(self):
        page = self.open_with(READ)
        self.make(page)
        sees(page, ".said.problem", "edit")
        self.assertEqual(names(page), [])

    def events(self, token):
        """(status, answer) of a stream."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(
            f"https://{self.root.http}/v1/events",
            headers={"Authorization": f"Bearer {token}"})
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE,
                                            context=context)
            return answer.status, answer
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, None

    def test_the_gate_comes_first(self):
        """Each credential has eight streams, from any address. An
        unauthenticated peer isn't told whether there is room."""
        streams = [self.events(READ) for _ in range(8)]
        self.assertEqual({status for status, _ in streams}, {200})
        self.assertEqual(self.events(READ)[0], 503)
        status, answer = self.events(EDIT)
        self.assertEqual(status, 200)
        for _ in range(2):
            self.assertEqual(self.events("not a token at all")[0], 401)
        for stream in [answer] + [one for _, one in streams]:
            stream.close()

    def test_who_may_nothing(self):
        page = self.open_with("not a token at all")
        sees(page, "#notice", "token")
        self.assertEqual(names(page), [])


class Many(Case):
    PROCESS = SECOND

    def load(self):
        quotas = [{"name": f"group{i:03}", "limit": "1000/s"}
                  for i in range(100)]
        quotas += [{"name": f"group{i % 100:03}/quota{i:06}",
                    "parent": f"group{i % 100:03}", "limit": f"{i % 90}/s"}
                   for i in range(MANY - len(quotas))]
        self.last = quotas[-1]["name"]
        quotas[-1]["limit"] = "89/s"
        for first in range(0, MANY, MANY // 5):
            part = quotas[first:first + MANY // 5]
            status, _, text = self.ask("/v1/quotas:import", "POST",
                                       body=json.dumps(part))
            self.assertEqual(status, 200, text[:200])

    def test_many_quotas(self):
        self.load()
        self.fleet.add_limiter([f"{self.last}=500"])
        self.fleet.wait_linked()
        page = self.open(self.last.replace("/", "%2F"))
        page.until("the first rows", "document.querySelectorAll("
                   "'#rows .row:not([hidden])').length > 5")
        rows = page.run("performance.now()")
        paint = page.run("Object.fromEntries(performance.getEntriesByType("
                         "'paint').map((one) => [one.name, one.startTime]))")
        self.ready(page)
        whole = page.run("performance.now()")
        say(f"{MANY} quotas: first contentful paint "
            f"{paint.get('first-contentful-paint', 0):.0f} ms, first rows "
            f"within {rows:.0f} ms, all {whole:.0f} ms; "
            f"{os.getloadavg()[0]:.1f} runnable on {os.cpu_count()} "
            "processors")
        self.assertEqual(page.run("weir.tree.nodes.size"), MANY)
        page.run("document.getElementById('tree').focus()")
        page.key("End")
        page.key("ArrowRight")
        page.key("End")
        page.until("the last row", "[...document.querySelectorAll("
                   "'#rows .name')].some((name) => name.textContent === "
                   f"'{self.last}')")
        self.assertLess(page.run(
            "document.querySelectorAll('#rows .row').length"), 80)
        page.until("last fill", f"weir.samples.now('{self.last}')?.passed > 20")
        # A hundred, one in each group; only the last group is open.
        page.write("#search", self.last.split("/")[1][:-2])
        page.until("the quotas found", "weir.tree.shown.length === 101")
        self.keep(page, "many")
        start = page.run("performance.now()")
        page.run("weir.tree.find('9'); document.body.offsetHeight")
        took = page.run("performance.now()") - start
        say(f"a search through all of them: {took:.0f} ms")
        self.assertEqual(page.errors(), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
