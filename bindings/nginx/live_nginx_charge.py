#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_nginx_charge.py - costs that are known when a request has ended: what
nginx settles in its log phase, and the bytes of responses at their limit."""

import http.client
import os
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test/live"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from live_nginx import Rooted  # noqa: E402
from patience import PATIENCE, until  # noqa: E402

HOURLY = ["limit=10/h", "low_burst=10", "high_burst=10", "sharing=local"]
LIMIT = 600_000  # bytes a second of each user
SPAN = 10        # seconds over which it must hold
PART = 0.05      # … to this part
SIZES = 20_000, 300_000, 2_000_000


class Server(Rooted):
    def start(self, server, more="", **options):
        os.chmod(self.folder, 0o755)
        return super().start(server.replace("@DIR@", self.folder), more,
                             **options)

    def left(self, nginx, name):
        return nginx.get(f"/peek?q={name}")[1]["X-Remaining"]

    def until_left(self, nginx, name, units):
        """A client may have its answer before nginx logs the request."""
        until(f"{units} units left of {name}",
              lambda: self.left(nginx, name) == str(units))


class Costs(Server):
    def test_a_cost(self):
        self.fleet.set("cost", *HOURLY)
        self.fleet.set("each/*", *HOURLY)
        nginx = self.start("""
            location /peek { weir $arg_q peek; empty_gif; }
            location / { weir cost weight=2 charge=$arg_cost; empty_gif; }
            location /named { weir each/$arg_k charge=$arg_cost; empty_gif; }
            location /peeked { weir each/peeked peek charge=3; empty_gif; }
            location /page { weir each/page charge=4; error_page 404 /gif;
                             root /nowhere; }
            location /heavy { weir each/heavy weight=11 charge=9; empty_gif; }
            location /gif { empty_gif; }
        """)
        for cost, left in (("5", 5), ("1", 4), ("0", 4), ("", 2)):
            self.assertEqual(nginx.get(f"/?cost={cost}")[0], 200)
            self.until_left(nginx, "cost", left)
        # Into debt, and then refused.
        self.assertEqual(nginx.get("/?cost=8000000000")[0], 200)
        until("it is in debt", lambda: nginx.get("/?cost=1")[0] == 429)

        for name, units in (("a", 7), ("b", 1)):
            self.assertEqual(nginx.get(f"/named?k={name}&cost={units}")[0],
                             200)
            self.until_left(nginx, f"each/{name}", 10 - units)
        self.assertEqual(nginx.get("/named?k=c&cost=two")[0], 200)
        self.until_left(nginx, "each/c", 9)
        until("it is logged", lambda: 'the value of the "$arg_cost" charge is '
              'no number: "two"' in nginx.logged())
        self.assertEqual(nginx.get("/peeked")[0], 200)
        self.until_left(nginx, "each/peeked", 7)
        # A refused request costs nothing.
        self.assertEqual(nginx.get("/heavy")[0], 429)
        self.assertEqual(nginx.get("/named?k=heavy&cost=1")[0], 200)
        self.until_left(nginx, "each/heavy", 9)
        # Once, however often the request is redirected.
        self.assertEqual(nginx.get("/page")[0], 404)
        self.until_left(nginx, "each/page", 6)

    def test_a_dry_run_and_a_refusal_by_another(self):
        self.fleet.set("none", "limit=0")
        for name in "first", "dry":
            self.fleet.set(name, *HOURLY)
        nginx = self.start("""
            location /peek { weir $arg_q peek; empty_gif; }
            location / { weir first weight=3 charge=9; weir none; empty_gif; }
            location /dry { weir dry weight=11 charge=9; weir_dry_run on;
                            empty_gif; }
            location /mark { weir $arg_q charge=2; empty_gif; }
        """)
        self.assertEqual(nginx.get("/")[0], 429)
        self.assertEqual(nginx.get("/dry")[0], 200)
        # Of the same worker's connections the later one is logged later.
        for name in "first", "dry":
            self.assertEqual(nginx.get(f"/mark?q={name}")[0], 200)
            self.until_left(nginx, name, 8)

    def test_a_dry_run_in_an_earlier_phase(self):
        """What passes after a refusal that isn't one has its cost."""
        self.fleet.set("none", "limit=0")
        self.fleet.set("later", *HOURLY)
        nginx = self.start("""
            location /peek { weir $arg_q peek; empty_gif; }
            location / { weir none charge=7; weir_dry_run on;
                         weir later after_access charge=4; empty_gif; }
        """)
        self.assertEqual(nginx.get("/")[0], 200)
        self.until_left(nginx, "later", 6)

    def test_a_fragment_of_a_page(self):
        """A subrequest with a quota of its own doesn't undo the page's."""
        self.fleet.set("none", "limit=0")
        self.fleet.set("page", *HOURLY)
        nginx = self.start("""
            location /peek { weir $arg_q peek; empty_gif; }
            location / { weir page after_access charge=4; ssi on; root @DIR@; }
            location /part { weir none; empty_gif; }
        """)
        Path(self.folder, "page.html").write_text(
            '<!--#include virtual="/part" -->')
        self.assertEqual(nginx.get("/page.html")[0], 200)
        self.until_left(nginx, "page", 6)

    def test_a_client_that_gives_up_waiting(self):
        """Its units stay charged: else asking again and again is free."""
        self.fleet.set("one", "limit=1/h", "low_burst=1", "high_burst=1",
                       "sharing=local")
        nginx = self.start("""
            location / { weir one burst=2 charge=$bytes_sent;
                         empty_gif; }
            location /dry { weir one burst=2; weir_dry_run on; empty_gif; }
        """, workers=1, level="info")
        self.assertEqual(nginx.get("/dry")[0], 200)
        for number in range(2):
            link = http.client.HTTPConnection("127.0.0.1", nginx.port,
                                              timeout=PATIENCE)
            link.request("GET", "/")
            until("it waits", lambda: nginx.logged().count(
                "delaying request, ") == number + 1)
            link.close()
            until("its end", lambda: nginx.logged().count(
                "client prematurely closed connection") == number + 1)
        # The one worker has logged the others before it reads this one.
        self.assertEqual(nginx.get("/dry")[1]["X-Verdict"], "limited_dry_run")

    def test_a_client_that_goes_away(self):
        self.fleet.set("gone", "limit=1/h", "high_burst=1000000000",
                       "low_burst=1000000000", "sharing=local")
        nginx = self.start("""
            location /peek { weir $arg_q peek; empty_gif; }
            location / { root @DIR@; weir gone charge=$bytes_sent; }
        """)
        whole = 64 << 20
        with open(f"{self.folder}/long", "wb") as file:
            file.truncate(whole)
        link = http.client.HTTPConnection("127.0.0.1", nginx.port,
                                          timeout=PATIENCE)
        link.request("GET", "/long")
        answer = link.getresponse()
        answer.read(1 << 20)
        answer.close()
        link.close()

        def spent():
            return 1000000000 - int(self.left(nginx, "gone"))
        until("a part is charged", lambda: spent() > 1)
        self.assertTrue(1 << 20 < spent() < whole, spent())

    def test_mistakes(self):
        for value in "two", "-1":
            status, said = self.make(
                "weir_roots a:1; weir_zone z 8m; server { listen "
                "127.0.0.1:@PORT@; weir q charge=%s; }" % value).check()
            self.assertEqual(status, 1)
            self.assertIn(f'invalid charge "{value}"', said)


class Client(threading.Thread):
    """A user that asks for one file again and again. Notes when each response
    ended, and its bytes; 0 for a refusal."""

    def __init__(self, nginx, path, ends):
        super().__init__()
        self.nginx, self.path, self.ends = nginx, path, ends
        self.told, self.error = [], None

    def run(self):
        try:
            self.ask()
        except Exception as error:      # for the test's thread
            self.error = error

    def ask(self):
        link = http.client.HTTPConnection("127.0.0.1", self.nginx.port,
                                          timeout=PATIENCE)
        while not self.ends.is_set():
            link.request("GET", self.path)
            answer = link.getresponse()
            body = answer.read()
            size = len(body) if answer.status == 200 else 0
            self.told.append((time.monotonic(), size))
            if size == 0:
                self.ends.wait(0.005)
        link.close()

    def rate(self):
        """The rate between two instants at which the bucket was full (a
        response had ended, and the next request was refused), SPAN or more
        apart; None: not yet. Other windows would cut a response in two."""
        if self.error:
            raise self.error
        told = list(self.told)
        whole, full = 0, []
        for (end, size), (_, then) in zip(told, told[1:]):
            whole += size
            if size > 0 and then == 0:
                full.append((end, whole))
        # At the first one the bucket began empty.
        del full[:1]
        if not full or full[-1][0] - full[0][0] < SPAN:
            return None
        return (full[-1][1] - full[0][1]) / (full[-1][0] - full[0][0])


class Bytes(Server):
    def test_bytes_a_second_of_each_user(self):
        """Small responses take 1 byte first, large ones as many as they are
        expected to have."""
        # Without a band: between two bursts requests are refused at random.
        self.fleet.set("bytes/*", f"limit={LIMIT}/s", "low_burst=4s",
                       "high_burst=4s")
        nginx = self.start("""
            location / { root @DIR@; weir bytes/$arg_user weight=$arg_expected
                                     charge=$bytes_sent; }
        """)
        ends = threading.Event()
        clients = {}
        for size in SIZES:
            Path(self.folder, str(size)).write_bytes(bytes(size))
            expected = size if size >= LIMIT else 1
            clients[size] = Client(
                nginx, f"/{size}?user=of{size}&expected={expected}", ends)
        try:
            for client in clients.values():
                client.start()
            for size, client in clients.items():
                rate = until(f"a full bucket for {SPAN} s, by {size} bytes",
                             client.rate)
                self.assertLessEqual(abs(rate - LIMIT), PART * LIMIT, size)
                print(f"{size} bytes: {rate:.0f} bytes/s", file=sys.stderr)
        finally:
            ends.set()
            for client in clients.values():
                client.join(PATIENCE)


if __name__ == "__main__":
    unittest.main()
