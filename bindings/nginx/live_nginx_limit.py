#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_nginx_limit.py - the habits of limit_req and limit_conn in a real nginx:
requests that wait for their turn, and requests in flight; and that no permit
leaks from workers that are killed."""

import http.client
import os
import re
import signal
import socket
import sys
import threading
import time
import unittest
from pathlib import Path

# nginx's freed memory is overwritten, so that any use of it shows.
os.environ["MALLOC_PERTURB_"] = "165"
sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test/live"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from live_fleet import MEAN, Fleet  # noqa: E402
from live_nginx import Case, Rooted  # noqa: E402
from patience import PATIENCE, until, until_equal  # noqa: E402

# An hour's leak is invisible to a test; local, so that the test needn't wait
# for other limiters' counts.
HOURLY = ["limit=1/h", "low_burst=1", "high_burst=1", "sharing=local"]
LIMIT = 40     # a second, of the nginx that share one
PART = 0.1     # of it: tolerance of a mean over MEAN seconds
CLIENTS = 8    # of each of them
WORKERS = 3    # of each nginx whose workers are killed
KILLS = 4      # rounds in which all workers of all nginx are killed
HELD = 5       # requests in flight at each nginx in a round

HTTP = """
    weir_roots {roots};
    weir_zone weir 8m;
    add_header X-Verdict "$weir_verdict" always;
    add_header X-Remaining "$weir_remaining" always;
    log_format told "$arg_k $status $msec $weir_verdict";
    server {{
        access_log @FOLDER@/told told;
        listen 127.0.0.1:@PORT@;
        location /peek {{ weir $arg_q peek; access_log off; empty_gif; }}
{server}
    }}
{more}
"""


class Backend:
    """A server that keeps each request until it is released."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        os.chmod(path, 0o666)
        self.socket.listen(64)
        self.held = []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                link, _ = self.socket.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                read = link.recv(4096)
                if not read:
                    break
                head += read
            self.held.append(link)

    def release(self):
        """Answers all requests that it has."""
        while self.held:
            link = self.held.pop()
            try:
                link.sendall(b"HTTP/1.0 200 OK\r\n\r\nserved")
            except OSError:
                pass    # nginx, or its worker, has gone
            link.close()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE)
        self.socket.close()
        self.release()


class Waiting:
    """A request without its answer yet."""

    def __init__(self, nginx, path, **headers):
        self.link = http.client.HTTPConnection("127.0.0.1", nginx.port,
                                               timeout=PATIENCE)
        self.link.request("GET", path, None, headers)

    def answer(self):
        """(status, headers, body)"""
        with self.link.getresponse() as answer:
            told = answer.status, answer.headers, answer.read()
        self.close()
        return told

    def close(self):
        self.link.close()


class Server(Rooted):
    def start(self, server, more="", **options):
        nginx = self.make(HTTP.format(roots=self.fleet.addresses(),
                                      server=server.replace("@DIR@",
                                                            self.folder),
                                      more=more.replace("@DIR@",
                                                        self.folder)),
                          **options)
        self.addCleanup(nginx.stop)
        return nginx.start().wait_ready()

    def wait(self, nginx, path, **headers):
        request = Waiting(nginx, path, **headers)
        self.addCleanup(request.close)
        return request

    def verdict(self, nginx, path, **headers):
        """(status, verdict)"""
        status, said, _ = nginx.get(path, **headers)
        return status, said["X-Verdict"]


def told(nginx):
    """The access log: (k, status, instant, verdict) of each request that has
    ended; the last line may be incomplete."""
    whole = (nginx.folder / "told").read_text().rpartition("\n")[0]
    return [(k, int(status), float(instant), verdict) for
            k, status, instant, verdict in
            (line.split() for line in whole.splitlines())]


def delays(nginx):
    return nginx.logged().count("delaying request, ")


class Delays(Server):
    def test_order(self):
        """Each waits for the ones that came before, and no less."""
        self.fleet.set("four", "limit=4/s", "low_burst=1", "high_burst=1",
                       "sharing=local")
        nginx = self.start("location / { weir four burst=5; empty_gif; }",
                           workers=1)
        begun = time.time()
        requests = []
        for k in range(5):
            requests.append(self.wait(nginx, f"/?k={k}"))
            until("it is decided", lambda: delays(nginx) +
                  sum(line[3] == "passed" for line in told(nginx)) > k)
        for request in requests:
            self.assertEqual(request.answer()[0], 200)
        until("all are logged", lambda: len(told(nginx)) == 5)
        for number, (k, _, instant, _) in enumerate(told(nginx)):
            self.assertEqual(k, str(number))
            self.assertGreaterEqual(instant, begun + number / 4 - 0.01)

    def test_over_the_burst(self):
        self.fleet.set("one", *HOURLY)
        nginx = self.start("location / { weir one burst=2; empty_gif; }")
        self.assertEqual(self.verdict(nginx, "/"), (200, "passed"))
        waiting = []
        for k in range(2):
            waiting.append(self.wait(nginx, f"/?k={k}"))
            until("it waits", lambda: delays(nginx) == k + 1)
        status, said, _ = nginx.get("/")
        self.assertEqual((status, said["X-Verdict"]), (429, "limited"))
        # One of the three hours until its turn, and up to a quarter of all
        # three as jitter.
        self.assertTrue(3500 < int(said["Retry-After"]) <= 1.75 * 3600 + 1)
        self.assertRegex(nginx.logged(), r'\[warn\] .*delaying request, '
                         r'excess: (0\.99\d|1\.000) of quota "one", client:')
        self.assertRegex(nginx.logged(), r'\[error\] .*limiting requests, '
                         r'excess: (2\.99\d|3\.000) of quota "one", client:')
        # A client that goes away ends its request, and leaves its units.
        waiting.pop().close()
        until("the end of the request", lambda: any(
            line[:2] == ("1", 499) for line in told(nginx)))
        self.assertEqual(self.verdict(nginx, "/")[0], 429)

    def test_clients_that_give_up(self):
        """The end of their wait finds no request; the next ones wait for the
        turns that they left."""
        self.fleet.set("four", "limit=4/s", "low_burst=1", "high_burst=1",
                       "sharing=local")
        nginx = self.start("location / { weir four burst=9; empty_gif; }",
                           workers=1)
        sent = []

        def give_up():
            sent.append(self.wait(nginx, "/?k=gone").close())
            until("it is decided", lambda: delays(nginx) +
                  sum(line[3] == "passed" for line in told(nginx)) ==
                  len(sent))
            return delays(nginx) == 4
        until("some that wait", give_up)
        until("their ends", lambda: len(told(nginx)) == len(sent))
        self.assertEqual([line[1] for line in told(nginx)
                          if line[3] == "delayed"], 4 * [499])
        last = self.wait(nginx, "/?k=last")
        self.assertEqual(last.answer()[0], 200)
        until("the last", lambda: len(told(nginx)) == len(sent) + 1)
        self.assertNotRegex(nginx.logged(), r"\[(alert|emerg|crit)\]")

    def test_a_post_action_while_it_waits(self):
        """nginx runs it when the client has gone, as a redirect of the same
        request; the end of the wait doesn't run it once more."""
        self.fleet.set("one", "limit=1/s", "low_burst=1", "high_burst=1",
                       "sharing=local")
        os.chmod(self.folder, 0o755)
        backend = Backend(f"{self.folder}/backend")
        self.addCleanup(backend.close)
        nginx = self.start("""
            location / { weir one burst=9; post_action /after; empty_gif; }
            location /later { weir one burst=9; empty_gif; }
            location /after { proxy_pass http://unix:@DIR@/backend:/; }
        """, workers=1)
        first = self.wait(nginx, "/")
        until("its action", lambda: len(backend.held) == 1)
        self.assertEqual(first.answer()[0], 200)
        self.wait(nginx, "/").close()
        until("the action of one that waits", lambda: len(backend.held) == 2)
        # Its turn comes before this one's.
        self.assertEqual(nginx.get("/later")[0], 200)
        self.assertEqual(len(backend.held), 2)

    def test_parts_of_the_burst_are_not_delayed(self):
        for name in "one", "two":
            self.fleet.set(name, *HOURLY)
        nginx = self.start("""
            location / { weir one burst=3 delay=2; empty_gif; }
            location /two { weir two burst=3 nodelay; empty_gif; }
        """)
        for _ in range(3):
            self.assertEqual(self.verdict(nginx, "/"), (200, "passed"))
        self.wait(nginx, "/")
        until("it waits", lambda: delays(nginx) == 1)
        self.assertEqual(self.verdict(nginx, "/")[0], 429)
        for _ in range(4):
            self.assertEqual(self.verdict(nginx, "/two"), (200, "passed"))
        self.assertEqual(self.verdict(nginx, "/two"), (429, "limited"))
        self.assertEqual(delays(nginx), 1)

    def test_one_quota_with_several_bursts(self):
        self.fleet.set("one", *HOURLY)
        nginx = self.start("""
            weir_dry_run on;
            location / { weir one burst=2; empty_gif; }
            location /none { weir one; empty_gif; }
            location /hard { weir one; weir_dry_run off; empty_gif; }
        """)
        self.assertEqual(self.verdict(nginx, "/"), (200, "passed"))
        self.assertEqual(self.verdict(nginx, "/"), (200, "delayed_dry_run"))
        self.assertEqual(self.verdict(nginx, "/none"),
                         (200, "limited_dry_run"))
        self.assertEqual(self.verdict(nginx, "/hard"), (429, "limited"))
        self.assertRegex(nginx.logged(), "delaying request, dry run, "
                         r'excess: (0\.99\d|1\.000) of quota "one"')
        # Without burst=, in whole units.
        self.assertRegex(nginx.logged(), "limiting requests, dry run, "
                         r'excess: [12]\.000 of quota "one"')

    def test_algorithms(self):
        kinds = {
            # The queue is bounded by the quota, too.
            "queue": (["algorithm=leaky_queue", "limit=1/h", "high_burst=2"],
                      "passed delayed delayed limited"),
            "tokens": (["algorithm=token_bucket", "limit=1/h", "high_burst=1"],
                       "passed delayed delayed delayed limited"),
            # A reservation isn't refused at random.
            "band": (["limit=1/h", "low_burst=1", "high_burst=2"],
                     "passed passed delayed delayed delayed limited"),
            # Nothing can be reserved.
            "window": (["algorithm=fixed_window", "limit=2/h"],
                       "passed passed limited"),
        }
        for name, (fields, _) in kinds.items():
            self.fleet.set(name, *fields, "sharing=local")
        nginx = self.start("weir_dry_run on;" + "".join(
            f"location /{name} {{ weir {name} burst=3; empty_gif; }}"
            for name in kinds))
        for name, (_, verdicts) in kinds.items():
            self.assertEqual(
                [self.verdict(nginx, f"/{name}")[1].removesuffix("_dry_run")
                 for _ in verdicts.split()], verdicts.split(), name)

    def test_a_later_refusal_gives_the_turn_back(self):
        self.fleet.set("one", *HOURLY)
        self.fleet.set("none", "limit=0")
        nginx = self.start("""
            location / { weir one burst=5; weir none status=418; empty_gif; }
            location /one { weir one; empty_gif; }
        """)
        for _ in range(3):
            self.assertEqual(self.verdict(nginx, "/")[0], 418)
        self.assertEqual(delays(nginx), 0)
        self.assertEqual(self.verdict(nginx, "/one"), (200, "passed"))

    def test_names_with_variables(self):
        self.fleet.set("user/*", *HOURLY)
        nginx = self.start("""
            location / { weir user/$http_x_user burst=1; empty_gif; }
            location /empty { weir $arg_none burst=1; empty_gif; }
        """)
        for number, user in enumerate("ab"):
            self.assertEqual(self.verdict(nginx, "/", X_User=user),
                             (200, "passed"))
            self.wait(nginx, "/", **{"X-User": user})
            until("it waits", lambda: delays(nginx) == number + 1)
            self.assertEqual(self.verdict(nginx, "/", X_User=user)[0], 429)
        # A long name has no rate to wait by, but the limit.
        self.assertEqual(self.verdict(nginx, "/", X_User="a" * 251)[0], 200)
        self.assertEqual(self.verdict(nginx, "/", X_User="a" * 251)[0], 429)
        self.assertEqual(self.verdict(nginx, "/", X_User=b"\xff")[0], 429)
        self.assertIn('the value of "user/$http_x_user" can\'t be the name',
                      nginx.logged())
        for _ in range(3):
            self.assertEqual(self.verdict(nginx, "/empty"), (200, None))

    def until_delayed(self, nginx, path):
        """A request that waited; requests come faster than the limit, sooner
        or later. Returns its answer."""
        def ask():
            answer = nginx.get(path)
            self.assertEqual(answer[0], 200)
            return answer[1]["X-Verdict"] == "delayed" and answer
        return until("a delayed request", ask)

    def test_each_phase_and_subrequests(self):
        self.fleet.set("two/*", "limit=2/s", "low_burst=1", "high_burst=1",
                       "sharing=local")
        nginx = self.start("""
            location /before { weir two/before burst=9; empty_gif; }
            location /after { weir two/after after_access burst=9; empty_gif; }
            location /sub { auth_request /check; empty_gif; }
            location = /check {
                internal;
                weir two/sub burst=9;
                proxy_pass http://unix:@FOLDER@/check:/;
            }
        """, """
            server { listen unix:@FOLDER@/check; location / { return 204; } }
        """)
        for path in "/before", "/after", "/sub":
            self.until_delayed(nginx, path)

    def test_a_long_answer_is_whole(self):
        self.fleet.set("two", "limit=2/s", "low_burst=1", "high_burst=1",
                       "sharing=local")
        long = "1234567890\n" * (1 << 16)
        Path(self.folder, "long").write_text(long)
        os.chmod(self.folder, 0o755)
        nginx = self.start("location / { root @DIR@; weir two burst=9; }")
        self.assertEqual(self.until_delayed(nginx, "/long")[2], long)


class Shared(Server):
    def test_a_fleet_waits_for_one_limit(self):
        """Clients of two nginx that send again when they are answered are
        delayed to the limit, and never refused."""
        self.fleet.set("shared", f"limit={LIMIT}/s", "low_burst=1",
                       "high_burst=1")
        nginxes = [self.start(f"""
            location / {{ weir shared burst={4 * CLIENTS}; empty_gif; }}
        """) for _ in range(2)]
        loaders = [Loader(nginx, "/") for nginx in nginxes
                   for _ in range(CLIENTS)]
        for loader in loaders:
            loader.start()
            self.addCleanup(loader.end)
        start = time.time()

        def settled():
            """The mean over a window; the windows follow each other."""
            nonlocal start
            if time.time() < start + MEAN:
                return False
            answers = [line for nginx in nginxes for line in told(nginx)
                       if start <= line[2] < start + MEAN]
            start += MEAN
            return abs(len(answers) / MEAN - LIMIT) <= PART * LIMIT and \
                {line[3] for line in answers} == {"delayed"}
        until("the limit, by delays alone", settled)
        for loader in loaders:
            loader.end()
            self.assertEqual(set(loader.statuses), {200})


class InFlight(Server):
    def serve(self, server, more="", **options):
        """nginx with the quotas single and triple, before a backend."""
        self.fleet.set("single", "kind=concurrency", "limit=1", "sharing=local")
        self.fleet.set("triple", "kind=concurrency", "limit=3",
                       "sharing=local")
        self.backend = Backend(f"{self.folder}/backend")
        self.addCleanup(self.backend.close)
        server = server.replace(
            "@HOLD@", "proxy_pass http://unix:@DIR@/backend;")
        return self.start(server, more, **options)

    def hold(self, nginx, path, **headers):
        """A request that has come to the backend."""
        before = len(self.backend.held)
        request = self.wait(nginx, path, **headers)
        until("a request at the backend",
              lambda: len(self.backend.held) > before)
        return request

    def free(self, nginx, name):
        return nginx.get(f"/peek?q={name}")[1]["X-Remaining"]

    def until_free(self, nginx, name, units):
        until_equal(f"units of {name}", str(units),
                    lambda: self.free(nginx, name))

    def test_a_limit(self):
        nginx = self.serve("""
            location / { weir single; @HOLD@ }
            location /quick { weir single status=503; empty_gif; }
            location /other { weir triple; empty_gif; }
            location /dry { weir single; weir_dry_run on; empty_gif; }
        """)
        held = self.hold(nginx, "/")
        self.assertEqual(self.verdict(nginx, "/"), (429, "limited"))
        self.assertEqual(self.verdict(nginx, "/quick"), (503, "limited"))
        self.assertEqual(self.verdict(nginx, "/other"), (200, "passed"))
        self.assertEqual(self.verdict(nginx, "/dry"),
                         (200, "limited_dry_run"))
        for said in "", ", dry run":
            self.assertRegex(nginx.logged(), r"\[error\] .*limiting "
                             rf'connections{said}, in flight: 1 of quota '
                             '"single", client:')
        self.backend.release()
        status, said, body = held.answer()
        self.assertEqual((status, said["X-Verdict"], body),
                         (200, "passed", b"served"))
        self.until_free(nginx, "single", 1)
        self.assertEqual(self.verdict(nginx, "/quick"), (200, "passed"))

    def test_clients_that_go_away(self):
        nginx = self.serve("location / { weir triple; @HOLD@ }")
        held = [self.hold(nginx, "/") for _ in range(3)]
        self.assertEqual(self.verdict(nginx, "/")[0], 429)
        for request in held:
            request.close()
        self.until_free(nginx, "triple", 3)

    def test_one_permit_a_request(self):
        """Through internal redirects and subrequests, of which each could take
        one."""
        nginx = self.serve("""
            weir triple;
            error_page 404 = /page;
            location /lost { root /nowhere; }
            location /page { @HOLD@ }
            location /moved { try_files /nowhere @there; }
            location @there { @HOLD@ }
            location /asked { auth_request /check; @HOLD@ }
            location = /check { internal; proxy_pass http://unix:@DIR@/c:/; }
            location /mirrored { mirror /copy; @HOLD@ }
            location = /copy { internal; @HOLD@ }
        """, """
            server { listen unix:@DIR@/c; location / { return 204; } }
        """)
        for path in "/lost", "/moved", "/asked", "/mirrored":
            held = self.hold(nginx, path)
            self.assertEqual(self.free(nginx, "triple"), "2", path)
            # Both the request and its copy.
            until("the end", lambda: self.backend.release() or
                  self.free(nginx, "triple") == "3")
            self.assertEqual(held.answer()[0], 200, path)

    def test_a_connection_that_is_kept(self):
        nginx = self.serve("location / { weir single; empty_gif; }")
        link = http.client.HTTPConnection("127.0.0.1", nginx.port,
                                          timeout=PATIENCE)
        self.addCleanup(link.close)
        for _ in range(5):
            link.request("GET", "/")
            answer = link.getresponse()
            answer.read()
            self.assertEqual(answer.status, 200)
        # The connection is open, and holds nothing.
        self.until_free(nginx, "single", 1)

    def test_a_refused_request_holds_nothing(self):
        self.fleet.set("none", "limit=0")
        nginx = self.serve("""
            error_page 429 /page;
            location / { weir triple weight=2; weir none; empty_gif; }
            location /late { weir triple; weir none after_access; empty_gif; }
            location /page { @HOLD@ }
        """)
        for path in "/", "/late":
            self.hold(nginx, path)
            self.assertEqual(self.free(nginx, "triple"), "3", path)

    def test_weights_names_and_parents(self):
        self.fleet.set("guest/*", "kind=concurrency", "limit=2",
                       "sharing=local", "parent=triple")
        nginx = self.serve(
            "location / { weir guest/$http_x_user weight=$arg_w; @HOLD@ }")
        held = [self.hold(nginx, "/", **{"X-User": "ann"}) for _ in range(2)]
        self.assertEqual(self.verdict(nginx, "/", X_User="ann")[0], 429)
        held.append(self.hold(nginx, "/", **{"X-User": "bob"}))
        self.assertEqual(self.verdict(nginx, "/", X_User="eve")[0], 429)
        self.assertRegex(nginx.logged(), 'in flight: 2 of quota "guest/ann"')
        self.assertRegex(nginx.logged(), 'in flight: 3 of quota "triple"')
        self.backend.release()
        self.until_free(nginx, "triple", 3)
        self.hold(nginx, "/?w=2", **{"X-User": "ann"})
        self.assertEqual(self.free(nginx, "guest/ann"), "0")
        self.assertEqual(self.free(nginx, "triple"), "1")

    def test_a_waiting_request_holds_its_permit(self):
        self.fleet.set("hour", *HOURLY)
        nginx = self.serve(
            "location / { weir triple; weir hour burst=9; empty_gif; }")
        self.assertEqual(self.verdict(nginx, "/")[0], 200)
        self.until_free(nginx, "triple", 3)
        waiting = self.wait(nginx, "/")
        until("it waits", lambda: delays(nginx) == 1)
        self.assertEqual(self.free(nginx, "triple"), "2")
        waiting.close()
        self.until_free(nginx, "triple", 3)

    def test_a_reload_and_a_worker_that_is_told_to_end(self):
        """Requests of old workers are in flight until they end; a worker that
        ends at once leaves nothing."""
        nginx = self.serve("location / { weir triple; @HOLD@ }")
        held = self.hold(nginx, "/")
        old = set(nginx.worker_pids())
        nginx.process.send_signal(signal.SIGHUP)
        until("new workers", lambda: len(set(nginx.worker_pids()) - old) == 2)
        self.until_free(nginx, "triple", 2)
        self.backend.release()
        self.assertEqual(held.answer()[0], 200)
        self.until_free(nginx, "triple", 3)
        until("the old workers have gone",
              lambda: not old & set(nginx.worker_pids()))
        for _ in range(2):
            self.hold(nginx, "/")
        self.assertEqual(self.free(nginx, "triple"), "1")
        old = set(nginx.worker_pids())
        for pid in old:
            os.kill(pid, signal.SIGTERM)
        until("new workers", lambda: len(set(nginx.worker_pids()) - old) == 2)
        self.until_free(nginx, "triple", 3)


class Loader(threading.Thread):
    """Sends requests, one after the other, until it is ended."""

    def __init__(self, nginx, path):
        super().__init__(daemon=True)
        self.nginx, self.path = nginx, path
        self.over, self.statuses = threading.Event(), []

    def run(self):
        while not self.over.wait(0.005):
            try:
                self.statuses.append(self.nginx.get(self.path)[0])
            except (OSError, http.client.HTTPException):
                pass    # its worker was killed

    def end(self):
        self.over.set()
        self.join(PATIENCE)


class Killed(Case):
    """Three nginx share a limit, and all their workers are killed, again and
    again, under load and with requests in flight."""

    def setUp(self):
        super().setUp()
        self.fleet = Fleet()
        self.addCleanup(self.fleet.close)
        self.fleet.add_roots(1)
        self.limit = 10 * HELD
        self.fleet.set("served", "kind=concurrency", f"limit={self.limit}")
        self.backend = Backend(f"{self.folder}/backend")
        self.addCleanup(self.backend.close)
        text = HTTP.format(
            roots=self.fleet.addresses(), more="", server=f"""
                location / {{
                    weir served;
                    proxy_pass http://unix:{self.folder}/backend;
                }}
                location /quick {{ weir served weight=2; empty_gif; }}
            """)
        self.nginxes = [self.make(text, workers=WORKERS) for _ in range(3)]
        for nginx in self.nginxes:
            self.addCleanup(nginx.stop)
            nginx.start()
        for nginx in self.nginxes:
            nginx.wait_ready()

    def in_flight(self):
        """At the root, and as each nginx sees it."""
        usage = self.fleet.roots[0].usage().get("served", {})
        return [usage.get("fill")] + [
            self.limit - int(nginx.get("/peek?q=served")[1]["X-Remaining"])
            for nginx in self.nginxes]

    def hold_some(self):
        requests = [Waiting(nginx, "/") for nginx in self.nginxes
                    for _ in range(HELD)]
        until("requests at the backend",
              lambda: len(self.backend.held) >= len(requests))
        return requests

    def kill_workers(self):
        for nginx in self.nginxes:
            killed = nginx.worker_pids()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            until("new workers", lambda: len(
                set(nginx.worker_pids()) - set(killed)) == WORKERS)

    def test_no_permit_leaks(self):
        loaders = [Loader(nginx, "/quick") for nginx in self.nginxes
                   for _ in range(2)]
        for loader in loaders:
            loader.start()
            self.addCleanup(loader.end)
        for _ in range(KILLS):
            requests = self.hold_some()
            # The load's own requests come and go on top of these.
            until("all know of them", lambda: all(
                units >= 3 * HELD for units in self.in_flight()))
            self.kill_workers()
            for request in requests:
                request.close()
            self.backend.release()
        for loader in loaders:
            loader.end()
            self.assertIn(200, loader.statuses)
        until_equal("in flight at the root and each nginx", [0, 0, 0, 0],
                    self.in_flight)
        alerts = [line for nginx in self.nginxes
                  for line in nginx.logged().splitlines()
                  if re.search(r"\[(alert|emerg|crit)\]", line)
                  and not re.search(r"exited on signal 9\b", line)]
        self.assertEqual(alerts, [])


if __name__ == "__main__":
    unittest.main()
