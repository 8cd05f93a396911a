#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_nginx.py - the module in a real nginx beside a real root: its
directives, its refusals, and the two examples."""

import atexit
import functools
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test/live"))
from live_fleet import Fleet  # noqa: E402
from nginx import Nginx, until  # noqa: E402
from patience import until_equal  # noqa: E402

MODULE = os.environ["WEIR_NGINX_MODULE"]
HERE = Path(__file__).resolve().parent
# Lua in nginx, and its dependencies; of Debian's libnginx-mod-http-lua.
LUA = [Path("/usr/lib/nginx/modules") / name
       for name in ("ndk_http_module.so", "ngx_http_lua_module.so")]
EXAMPLES = HERE / "examples"
# The leak of an hour is invisible to a test; local, so that the test needn't
# wait for other limiters' counts.
HOURLY = ["limit=3/h", "low_burst=3", "high_burst=3", "sharing=local"]

HTTP = """
    weir_roots {roots};
    weir_zone weir 8m;
    add_header X-Verdict "$weir_verdict" always;
    add_header X-Remaining "$weir_remaining" always;
    add_header X-Quota "$weir_quota" always;
    add_header X-After "$weir_retry_after" always;
    server {{
        listen 127.0.0.1:@PORT@;
{server}
    }}
{more}
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-nginx-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.made = 0

    def make(self, text, **more):
        self.made += 1
        return Nginx(f"{self.folder}/{self.made}", MODULE, text, **more)


@functools.cache
def shared_fleet():
    """One root for all tests: a zone knows a quota's count from its own
    decisions, and each test has a zone of its own."""
    fleet = Fleet()
    atexit.register(fleet.close)
    fleet.add_roots(1)
    return fleet


class Rooted(Case):
    @classmethod
    def setUpClass(cls):
        cls.fleet = shared_fleet()

    def start(self, server, more="", **options):
        nginx = self.make(HTTP.format(roots=self.fleet.addresses(),
                                      server=server, more=more), **options)
        self.addCleanup(nginx.stop)
        return nginx.start().wait_ready()

    def told(self, nginx, path, **headers):
        """(status, verdict, remaining)"""
        status, said, _ = nginx.get(path, **headers)
        return status, said["X-Verdict"], said["X-Remaining"]


class Directives(Rooted):
    def test_a_limit(self):
        self.fleet.set("three", *HOURLY)
        nginx = self.start("""
            location / { weir three; empty_gif; }
            location /loud { weir three; weir_headers on; empty_gif; }
            location /gone { weir three status=503; empty_gif; }
            location /none { empty_gif; }
            location /unknown { weir nobody; empty_gif; }
            location /empty { weir $arg_none; empty_gif; }
        """)
        self.assertEqual(self.told(nginx, "/"), (200, "passed", "2"))
        _, said, _ = nginx.get("/loud")
        self.assertEqual(said["RateLimit-Policy"], '"three";q=3;w=3600')
        self.assertEqual(said["RateLimit"], '"three";r=1')
        self.assertIsNone(said["Retry-After"])
        self.assertEqual(self.told(nginx, "/"), (200, "passed", "0"))

        status, said, _ = nginx.get("/")
        self.assertEqual((status, said["X-Verdict"]), (429, "limited"))
        self.assertEqual(said["X-Quota"], "three")
        # The time of one unit, and up to a quarter more, as jitter.
        self.assertTrue(1100 < int(said["Retry-After"]) <= 1500, said)
        self.assertEqual(said["X-After"], said["Retry-After"])
        self.assertIsNone(said["RateLimit"])
        self.assertRegex(nginx.logged(), r'\[error\] .*limiting requests, '
                         r'excess: [01]\.000 of quota "three", client:')
        _, said, _ = nginx.get("/loud")
        self.assertEqual(said["RateLimit"],
                         f'"three";r=0;t={said["Retry-After"]}')
        self.assertEqual(self.told(nginx, "/gone")[0], 503)
        self.assertEqual(self.told(nginx, "/none"), (200, None, None))
        self.assertEqual(self.told(nginx, "/unknown"),
                         (200, "unknown", None))
        self.assertEqual(self.told(nginx, "/empty"), (200, None, None))

    def test_workers_share_what_is_counted(self):
        self.fleet.set("many", "limit=40/h", "low_burst=40", "high_burst=40",
                       "sharing=local")
        nginx = self.start("location / { weir many; empty_gif; }", workers=4)
        statuses = [nginx.get("/")[0] for _ in range(60)]
        self.assertEqual(statuses, 40 * [200] + 20 * [429])

    def test_weights(self):
        self.fleet.set("ten", "limit=10/h", "low_burst=10", "high_burst=10",
                       "sharing=local")
        nginx = self.start("""
            location / { weir ten weight=$arg_w; empty_gif; }
            location /four { weir ten weight=4; empty_gif; }
        """)
        self.assertEqual(self.told(nginx, "/four")[2], "6")
        self.assertEqual(self.told(nginx, "/?w=0")[2], "6")
        self.assertEqual(self.told(nginx, "/?w=2")[2], "4")
        # An invalid weight counts as 1, and is logged.
        for number, weight in enumerate(["", "-5", "1e9", "two"]):
            self.assertEqual(self.told(nginx, f"/?w={weight}")[2],
                             str(3 - number))
        self.assertIn('the value of the "$arg_w" weight is no number: "two"',
                      nginx.logged())
        # More than ever passes: waiting doesn't help.
        status, said, _ = nginx.get("/?w=4294967296")
        self.assertEqual((status, said["Retry-After"]), (429, None))

    def test_all_or_none(self):
        self.fleet.set("three", *HOURLY)
        self.fleet.set("one", "limit=1/h", "low_burst=1", "high_burst=1",
                       "sharing=local")
        nginx = self.start("""
            location / { weir three weight=2; weir one status=418;
                         empty_gif; }
            location /three { weir three peek; empty_gif; }
            location /one { weir one; empty_gif; }
        """)
        # A peek charges nothing.
        self.assertEqual(self.told(nginx, "/three")[2], "3")
        self.assertEqual(self.told(nginx, "/three")[2], "3")
        self.assertEqual(self.told(nginx, "/one")[0], 200)
        # The second refuses, so the first is given back.
        for _ in range(5):
            status, said, _ = nginx.get("/")
            self.assertEqual((status, said["X-Quota"]), (418, "one"))
        self.assertEqual(self.told(nginx, "/three")[2], "3")

    def test_inheritance(self):
        for name in ("outer", "inner"):
            self.fleet.set(name, *HOURLY)
        nginx = self.start("""
            weir outer;
            location / { empty_gif; }
            location /inner { weir inner; empty_gif; }
            location /inner/deep { empty_gif; }
        """)
        for path, quota in (("/", "outer"), ("/inner", "inner")):
            self.assertEqual(nginx.get(path)[1]["X-Quota"], quota)
        # A location of the server, not one below the location with that
        # prefix.
        self.assertEqual(nginx.get("/inner/deep")[1]["X-Quota"], "outer")

    def test_a_request_is_asked_once(self):
        self.fleet.set("three", *HOURLY)
        nginx = self.start("""
            weir three;
            error_page 404 429 /page;
            location / { return 404; }
            location /found { empty_gif; }
            location /lost { root /nowhere; }
            location /page { empty_gif; }
            location /moved { try_files /nowhere @there; }
            location @there { empty_gif; }
        """)
        self.assertEqual(self.told(nginx, "/lost"), (404, "passed", "2"))
        self.assertEqual(self.told(nginx, "/moved"), (200, "passed", "1"))
        self.assertEqual(self.told(nginx, "/found"), (200, "passed", "0"))
        # The page of the refusal isn't refused; the figures are of one
        # decision.
        status, said, body = nginx.get("/found")
        self.assertEqual((status, said["X-Verdict"]), (429, "limited"))
        self.assertTrue(body.startswith("GIF"), body[:80])
        self.assertTrue(said["Retry-After"])

    def test_dry_run(self):
        self.fleet.set("three", *HOURLY)
        nginx = self.start("""
            weir_dry_run on;
            weir_log_level warn;
            location / { weir three weight=2; empty_gif; }
        """)
        self.assertEqual(self.told(nginx, "/")[:2], (200, "passed"))
        status, said, _ = nginx.get("/")
        self.assertEqual((status, said["X-Verdict"]),
                         (200, "limited_dry_run"))
        self.assertIsNone(said["Retry-After"])
        self.assertRegex(nginx.logged(), r'\[warn\] .*limiting requests, '
                         r'dry run, excess: [01]\.000 of quota "three", '
                         r'client:')

    def test_names_that_nobody_can_have(self):
        self.fleet.set("user/*", *HOURLY)
        nginx = self.start(f"""
            location / {{ weir user/$http_x_user; empty_gif; }}
            location /long {{ weir user/{9 * "$http_x_user"}; empty_gif; }}
        """)
        self.assertEqual(self.told(nginx, "/", X_User="a")[:2],
                         (200, "passed"))
        # Otherwise a long name would be a way around the limit: over 255 bytes
        # …
        for left in "210":
            self.assertEqual(self.told(nginx, "/", X_User="a" * 251),
                             (200, "passed", left))
        status, said, _ = nginx.get("/", X_User="a" * 251)
        self.assertEqual((status, said["X-Verdict"]), (429, "limited"))
        self.assertRegex(said["X-Quota"], "^user/a{217}~[0-9a-f]{32}$")
        # … and over 64 KiB.
        status, said, _ = nginx.get("/long", X_User="a" * 7500)
        self.assertEqual((status, said["X-Verdict"], said["X-Quota"]),
                         (429, "limited", None))
        self.assertIsNone(said["Retry-After"])
        self.assertEqual(self.told(nginx, "/", X_User=b"\xff\xfe")[0], 429)
        self.assertIn('the value of "user/$http_x_user" can\'t be the name',
                      nginx.logged())

    def test_after_access_in_a_whole_server(self):
        """The subrequest of auth_request inherits the limit, before the
        customer is known."""
        self.fleet.set("customer/*", *HOURLY)
        self.fleet.set("all", "limit=9/h", "low_burst=9", "high_burst=9",
                       "sharing=local")
        nginx = self.start("""
            weir all;
            weir customer/$customer after_access;
            weir_headers on;
            location / {
                auth_request /check;
                auth_request_set $customer $upstream_http_x_customer;
                empty_gif;
            }
            location = /check {
                internal;
                proxy_pass http://unix:@FOLDER@/check:/;
                proxy_set_header X-Asked "$weir_remaining";
            }
        """, """
            server {
                listen unix:@FOLDER@/check;
                add_header X-Customer $http_authorization;
                location / { return 204; }
            }
        """)
        for left in "210":
            _, said, _ = nginx.get("/", Authorization="ann")
            self.assertEqual((said["X-Quota"], said["X-Remaining"]),
                             ("customer/ann", left))
            # Of both phases, and once.
            self.assertEqual(said.get_all("RateLimit"),
                             [f'"customer/ann";r={left}'])
        status, said, _ = nginx.get("/", Authorization="ann")
        self.assertEqual((status, said["X-Quota"]), (429, "customer/ann"))
        self.assertEqual(len(said.get_all("RateLimit")), 1)
        self.assertEqual(self.told(nginx, "/", Authorization="bob")[0], 200)

    def test_a_refused_one_is_not_asked_after_access(self):
        self.fleet.set("none", "limit=0")
        self.fleet.set("three", *HOURLY)
        nginx = self.start("""
            weir none;
            weir three after_access;
            error_page 429 /page;
            location / { empty_gif; }
            location /page { empty_gif; }
            location /three { weir three peek; empty_gif; }
        """)
        for _ in range(5):
            status, said, body = nginx.get("/")
            self.assertEqual((status, said["X-Quota"]), (429, "none"))
            self.assertTrue(body.startswith("GIF"), body[:80])
        self.assertEqual(self.told(nginx, "/three")[2], "3")

    def test_exact_is_refused(self):
        self.fleet.set("pass", "limit=3/h", "high_burst=3", "sharing=exact",
                       "store=root")
        self.fleet.set("limit", "limit=3/h", "high_burst=3",
                       "sharing=exact", "store=root", "on_stale=limit")
        # Otherwise the nginx of other tests would log it, too.
        for name in "pass", "limit":
            self.addCleanup(self.fleet.weir, "quota", "rm", name)
        nginx = self.start("""
            location /pass { weir pass; empty_gif; }
            location /limit { weir limit; empty_gif; }
        """)
        said = "quotas with sharing=exact are refused here"
        until("the error", lambda: any(
            "[error]" in line and said in line
            for line in nginx.logged().splitlines()))
        for _ in range(5):
            self.assertEqual(self.told(nginx, "/pass")[0], 200)
            self.assertEqual(self.told(nginx, "/limit")[0], 429)


@unittest.skipUnless(all(path.exists() for path in LUA),
                     "nginx has no Lua here")
class Lua(Rooted):
    def start(self, server):
        return super().start(
            server, f'lua_package_path "{HERE}/?.lua;;";',
            before="\n".join(f"load_module {path};" for path in LUA))

    def test_names(self):
        for name in "three", "cost":
            self.fleet.set(name, *HOURLY)
        nginx = self.start("""
            location /check { access_by_lua_block {
                require("weir").check_by_name(ngx.var.arg_q)
            } empty_gif; }
            location /take { content_by_lua_block {
                local passed, why = require("weir").take_by_name(
                    ngx.var.arg_q:rep(tonumber(ngx.var.arg_times or 1)),
                    tonumber(ngx.var.arg_w))
                ngx.say(tostring(passed), " ",
                        why and why.quota or "-", " ",
                        why and tostring(why.never) or "-", " ",
                        why and why.retry_after and
                        why.retry_after > 1100 and "later" or "-")
            } }
            location /weir { weir three; empty_gif; }
            location /charge { content_by_lua_block {
                ngx.say(tostring(require("weir").charge_by_name(
                    ngx.var.arg_q, tonumber(ngx.var.arg_w))))
            } }
            location /settle { content_by_lua_block {
                ngx.say(string.format("%.0f", require("weir").settle_by_name(
                    ngx.var.arg_q, tonumber(ngx.var.arg_charged),
                    tonumber(ngx.var.arg_actual))))
            } }
        """)

        def take(name, weight=1, times=1):
            return nginx.get(
                f"/take?q={name}&w={weight}&times={times}")[2].split()

        # A check charges nothing.
        for _ in range(5):
            self.assertEqual(nginx.get("/check?q=three")[0], 200)
        # However large: LuaJIT converts 2^64 to an uint64_t of 0.
        for weight in 4, 2**32, 2**32 + 1, 2**63, 2**64, 2**65, 1e300:
            self.assertEqual(take("three", weight),
                             ["false", "three", "true", "-"], weight)
        self.assertEqual(take("three", 2), ["true", "-", "-", "-"])
        # Costs that are known afterwards; the bounds are those of the library.
        nginx.get("/take?q=cost&w=3")
        self.assertEqual(nginx.get("/settle?q=cost&charged=3&actual=1")[2],
                         "1\n")
        self.assertEqual(take("cost", 2), ["true", "-", "-", "-"])
        self.assertEqual(nginx.get("/charge?q=cost&w=1e300")[2], "true\n")
        self.assertEqual(nginx.get(
            f"/settle?q=cost&charged={2 ** 40}&actual=0")[2], "0\n")
        self.assertEqual(take("cost"), ["false", "cost", "false", "later"])
        self.assertEqual(nginx.get("/charge?q=nobody&w=1")[2], "false\n")
        self.assertEqual(nginx.get("/settle?q=nobody&charged=3&actual=4")[2],
                         "3\n")
        # The directive uses the same counts.
        self.assertEqual(nginx.get("/weir")[0], 200)
        self.assertEqual(nginx.get("/weir")[0], 429)
        self.assertEqual(take("three"), ["false", "three", "false", "later"])
        status, said, _ = nginx.get("/check?q=three")
        self.assertEqual(status, 429)
        self.assertTrue(1100 < int(said["Retry-After"]) <= 1500, said)
        # A name without a quota passes, an invalid one doesn't.
        self.assertEqual(take("nobody"), ["true", "-", "-", "-"])
        self.assertEqual(take("n", times=65536), ["true", "-", "-", "-"])
        self.assertEqual(take("n", times=65537), ["false", "-", "true", "-"])
        self.assertEqual(nginx.get("/check?q=shadow:n")[0], 429)
        self.assertEqual(nginx.get("/take?q=three&w=-1")[0], 500)
        self.assertIn("a weight is a whole number", nginx.logged())

    def test_peeks_hear_of_the_other_nginx(self):
        """Two nginx before an application that charges: each peeks at the
        quotas of a bucket. One bucket is hot at the other nginx, and this one
        never takes from it."""
        self.fleet.set("s3", "limit=unlimited")
        self.fleet.set("s3_*_write", "limit=5/h", "low_burst=5",
                       "high_burst=5", "parent=s3", "sharing=counted")
        front, other = (self.start("""
            location /directive { weir s3_${arg_bucket}_write peek;
                                  empty_gif; }
            location /lua { access_by_lua_block {
                require("weir").check_by_name(
                    "s3_" .. ngx.var.arg_bucket .. "_write")
            } empty_gif; }
            location /take { weir s3_${arg_bucket}_write; empty_gif; }
        """) for _ in range(2))
        for way in "directive", "lua":
            self.assertEqual(front.get(f"/{way}?bucket=cold")[0], 200)
            hot = f"hot_{way}"
            statuses = []

            # While the root is slow, a limiter refuses before the limit.
            def passed():
                statuses.append(other.get(f"/take?bucket={hot}")[0])
                return statuses.count(200)
            until_equal("units that passed at the other nginx", 5, passed)
            until("this one hears of it", lambda: front.get(
                f"/{way}?bucket={hot}")[0] == 429)
            self.assertEqual(front.get(f"/{way}?bucket=cold")[0], 200)


class Mistakes(Case):
    """Each error of `nginx -t` names its cause."""

    ROOTS = "weir_roots 127.0.0.1:7077;"
    ZONE = "weir_zone weir 8m;"

    def expect(self, text, *said, ok=False):
        nginx = self.make(text)
        status, errors = nginx.check()
        self.assertEqual(status == 0, ok, errors)
        for part in said:
            self.assertIn(part, errors)

    def test_roots(self):
        for roots in ("127.0.0.1", "a:1,,b:1", "a:0", "a:1,a:1",
                      ",".join(f"a{i}:1" for i in range(9))):
            self.expect(f"weir_roots {roots}; {self.ZONE}",
                        f'invalid weir_roots "{roots}"', "nginx.conf:")
        self.expect(f"{self.ROOTS} {self.ROOTS} {self.ZONE}",
                    '"weir_roots" directive is duplicate')
        self.expect("weir_roots;", "invalid number of arguments")
        for option in ("tls=x", "key", "cert=", "=", "token_file"):
            self.expect(f"weir_roots a:1 {option}; {self.ZONE}",
                        f'invalid parameter "{option}"')
        self.expect(f"weir_roots a:1 tls_ca=no.crt; {self.ZONE}", "no.crt")
        self.expect(f"weir_roots a:1 token_file=no; {self.ZONE}",
                    "no: the token can't be read")
        self.expect(f"server {{ listen 127.0.0.1:@PORT@; {self.ROOTS} }}",
                    '"weir_roots" directive is not allowed here')

    def test_zones(self):
        self.expect(self.ROOTS, 'no "weir_zone" is defined')
        self.expect(self.ZONE, 'no "weir_roots" is defined')
        self.expect(f"{self.ROOTS} {self.ZONE} {self.ZONE}",
                    '"weir_zone" directive is duplicate')
        for size in ("x", "-1", "8q"):
            self.expect(f"{self.ROOTS} weir_zone weir {size};",
                        f'invalid zone size "{size}"')
        self.expect(f"{self.ROOTS} weir_zone weir 1k;", "is too small")
        self.expect(f"{self.ROOTS} weir_zone weir 64k;",
                    "is too small, it must have at least")
        self.expect(f"{self.ROOTS} weir_zone weir 8m; "
                    "limit_req_zone $uri zone=weir:8m rate=1r/s;",
                    '"weir" is already')
        self.expect(f"{self.ROOTS} {self.ZONE}", ok=True)

    def test_limits(self):
        head = f"{self.ROOTS} {self.ZONE}"
        self.expect(f"{head} weir;", "invalid number of arguments")
        self.expect(f"{head} weir q weight=x;", 'invalid weight "x"')
        self.expect(f"{head} weir q weight=;", 'invalid weight ""')
        self.expect(f"{head} weir q weight=$nothing;",
                    'unknown "nothing" variable')
        for status in ("200", "600", "x", ""):
            self.expect(f"{head} weir q status={status};",
                        f'invalid status "{status}"')
        self.expect(f"{head} weir q peeks;", 'invalid parameter "peeks"')
        for burst in ("0", "-1", "x", "", "4294967297"):
            self.expect(f"{head} weir q burst={burst};",
                        f'invalid burst "{burst}"')
        self.expect(f"{head} weir q burst=1 delay=x;", 'invalid delay "x"')
        for alone in ("delay=1", "nodelay"):
            self.expect(f"{head} weir q {alone};", 'needs "burst="')
        self.expect(f"{head} weir q burst=1 peek;", "a peek doesn't wait")
        self.expect(f'{head} weir "a\\nb";', "can't be the name")
        self.expect(f"{head} weir shadow:q;", "can't be the name")
        self.expect(head + 17 * " weir q;", "more than 16 times")
        self.expect(f"{head} weir_log_level loud;", "invalid value")
        self.expect(f"{head} weir_dry_run maybe;", "invalid value")
        self.expect("weir q;", 'no "weir_roots" is defined')
        self.expect(head + 16 * " weir q peek weight=$uri status=403;",
                    ok=True)


class Examples(Rooted):
    def test_s3(self):
        """Bucket and kind of request by two forms of URL."""
        for kind, limit in (("write", 2), ("read", 3)):
            self.fleet.set(f"s3_*_{kind}", f"limit={limit}/h",
                           f"low_burst={limit}", f"high_burst={limit}",
                           "sharing=local")
        nginx = self.start(
            """
            location / { weir $s3_quota peek; empty_gif; }
            # The application, which knows the kind of request.
            location /charge/ { internal; }
            location = /put_object { weir s3_photos_write; empty_gif; }
            """, (EXAMPLES / "s3.conf").read_text())

        def ask(method, host, path):
            status, said, _ = nginx.get(path, method, Host=host)
            return status, said["X-Quota"], said["X-Remaining"]

        write, read = "s3_photos_write", "s3_photos_read"
        for host, path in (("s3.example.net", "/photos/cat.jpg"),
                           ("photos.s3.example.net", "/cat.jpg")):
            # empty_gif accepts GET and HEAD only; the limit was checked
            # before.
            for method in ("PUT", "POST", "DELETE"):
                self.assertEqual(ask(method, host, path), (405, write, "2"))
            for method, status in (("GET", 200), ("HEAD", 200),
                                   ("OPTIONS", 405)):
                self.assertEqual(ask(method, host, path),
                                 (status, read, "3"))
        self.assertEqual(ask("GET", "s3.example.net", "/"),
                         (200, None, None))
        self.assertEqual(ask("PATCH", "s3.example.net", "/photos/cat.jpg"),
                         (405, None, None))
        # Peeks have charged nothing; they see the application's charges.
        for _ in range(2):
            self.assertEqual(nginx.get("/put_object")[0], 200)
        host, path = "photos.s3.example.net", "/cat.jpg"
        self.assertEqual(ask("PUT", host, path), (429, write, "0"))
        self.assertEqual(ask("GET", host, path), (200, read, "3"))
        self.assertEqual(ask("PUT", "cats.s3.example.net", path),
                         (405, "s3_cats_write", "2"))

    def test_credential(self):
        """A limit for each customer with a credential."""
        self.fleet.set("customer/*", *HOURLY)
        text = (EXAMPLES / "credential.conf").read_text()
        nginx = self.start(text, """
            upstream check { server unix:@FOLDER@/check; }
            upstream application { server unix:@FOLDER@/application; }
            server {
                listen unix:@FOLDER@/check;
                location / {
                    if ($http_authorization = "") { return 401; }
                    add_header X-Customer $http_authorization;
                    return 204;
                }
            }
            server {
                listen unix:@FOLDER@/application;
                location / { empty_gif; }
            }
        """)
        self.assertEqual(self.told(nginx, "/"), (401, None, None))
        for left in "210":
            self.assertEqual(self.told(nginx, "/", Authorization="ann"),
                             (200, "passed", left))
        status, said, _ = nginx.get("/", Authorization="ann")
        self.assertEqual((status, said["X-Quota"]), (429, "customer/ann"))
        self.assertEqual(self.told(nginx, "/", Authorization="bob"),
                         (200, "passed", "2"))


if __name__ == "__main__":
    unittest.main()
