#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nginx_tests.py CHECKOUT [FILE.t …] - runs the tests of limit_req and
limit_conn from a checkout of nginx-tests against the weir module.

WEIR_SOURCE, WEIR_BUILD and WEIR_NGINX_MODULE are as for live tests. A root
serves the quotas. Each test is copied with its directives translated:

    limit_req_zone $k zone=z:1m rate=2r/s;   quota z/* limit=2/s, burst 1
    limit_conn_zone $k zone=z:1m;            (the limit is the directive's)
    limit_req zone=z burst=5 delay=1;        weir $weir_z burst=5 delay=1;
    limit_conn z 1;                          weir $weir_z_1;
    limit_req_status 501;                    status=501; 503 otherwise

$weir_z is z/$k, and empty if $k is. If a zone has several limits for
limit_conn, the quota of a lower one has that of the next one as parent. The
assertions stay, with the verdicts and the words of the log in place of
limit_req's. Prints what prove prints."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["WEIR_SOURCE"]) / "test/live"))
from live_fleet import Fleet  # noqa: E402

# Tests of the directives, and others that use them.
FILES = ["limit_req.t", "limit_req2.t", "limit_req_delay.t",
         "limit_req_dry_run.t", "limit_conn.t", "limit_conn_complex.t",
         "limit_conn_dry_run.t", "h2_limit_req.t", "h2_limit_conn.t",
         "error_log.t", "h2_request_body_preread.t",
         "http_keepalive_shutdown.t", "mirror_proxy.t",
         "proxy_cache_lock_ssi.t", "proxy_cache_use_stale.t", "syslog.t"]

ZONE = re.compile(r"limit_(req|conn)_zone\s+(\S+)\s+zone=(\w+):\S+?"
                  r"(?:\s+rate=(\d+)r/([sm]))?;")
LIMIT = re.compile(r"limit_req\s+zone=(\w+)([^;]*);|limit_conn\s+(\w+) (\d+);")
BLOCK = re.compile(r"location [^{]*\{[^}]*\}")
STATUS = re.compile(r"\s*limit_(?:req|conn)_status\s+(\d+);")
LISTEN = re.compile(r"listen +\S+:(\d+)(?=;)")
# The words of assertions, and of directives with one counterpart.
WORDS = [
    (r"\blimit_(?:req|conn)_(dry_run|log_level)", r"weir_\1"),
    (r"\$limit_(?:req|conn)_status", "$weir_verdict"),
    ("DELAYED", "delayed"), ("REJECTED", "limited"), ("PASSED", "passed"),
    ("_DRY_RUN", "_dry_run"),
    ('limiting connections by zone "custom"',
     'limiting connections, in flight: 1 of quota "custom_1.'),
]
# Debian's nginx is built with modules that may not be installed.
READY = r"""
{ no warnings 'redefine'; sub Test::Nginx::test_globals_modules() { '' } }
sub ready {
    my ($t) = @_;
    for (1 .. 1200) {
        return $t if $t->read_file('error.log')
            =~ /the quotas of a root are complete/;
        select undef, undef, undef, 0.05;
    }
    die "no quotas";
}
"""


def name_map(variable, quota, key):
    key = key.replace("$binary_remote_addr", "$remote_addr")
    return (f'map "{key}" $weir_{variable} '
            f'{{ "" ""; default "{quota}/{key}"; }}')


class Translation:
    """A test's text, and the quotas that it needs: name -> fields."""

    def __init__(self, text):
        self.zones = {zone: (kind, key, rate, period)
                      for kind, key, zone, rate, period in ZONE.findall(text)}
        self.quotas, self.maps = {}, {}
        text = BLOCK.sub(self.block, text)
        text = LIMIT.sub(lambda limit: self.limit(limit, "503"), text)
        text = ZONE.sub("", text)
        for pattern, word in WORDS:
            text = re.sub(pattern, word, text)
        # As before nginx 1.25.1, where such a port doesn't speak HTTP/1.
        if "http2 on;" in text:
            text = LISTEN.sub(lambda listen: listen[0] + (
                "" if f"proxy_pass http://127.0.0.1:{listen[1]}" in text
                else " http2"), text.replace("http2 on;", ""))
        text = re.sub(r"\$t->run\(\)", "ready($t->run())", text)
        text = text.replace("%%TEST_GLOBALS_HTTP%%", "\n".join(
            ["%%TEST_GLOBALS_HTTP%%", *self.maps.values()]))
        self.text = text + READY
        self.set_parents()

    def block(self, found):
        block = found[0]
        status = STATUS.search(block)
        code = status[1] if status else "503"
        return LIMIT.sub(lambda limit: self.limit(limit, code),
                         STATUS.sub("", block))

    def limit(self, found, code):
        zone, more = found[1] or found[3], found[2] or ""
        kind, key, rate, period = self.zones[zone]
        if kind == "req":
            name = zone
            per = {"s": "s", "m": "min"}[period]
            fields = [f"limit={rate}/{per}", "low_burst=1", "high_burst=1"]
            if "burst=" not in more:
                more = ""
        else:
            name = f"{zone}_{found[4]}"
            fields = ["kind=concurrency", f"limit={found[4]}"]
        self.quotas[f"{name}/*"] = fields + ["sharing=local"]
        self.maps[name] = name_map(name, name, key)
        return f"weir $weir_{name}{more} status={code};"

    def set_parents(self):
        limits = {}
        for zone, (kind, *_) in self.zones.items():
            if kind == "conn":
                limits[zone] = sorted(int(name.rpartition("_")[2].rstrip("/*"))
                                      for name in self.quotas
                                      if name.startswith(f"{zone}_"))
        for zone, ladder in limits.items():
            for lower, upper in zip(ladder, ladder[1:]):
                self.quotas[f"{zone}_{lower}/*"].append(
                    f"parent={zone}_{upper}/{{1}}")


def run(fleet, checkout, folder, file):
    translation = Translation((checkout / file).read_text())
    # Upper quotas first: a parent must exist.
    for name in sorted(translation.quotas, key=lambda name: "parent" in
                       " ".join(translation.quotas[name])):
        fleet.set(name, *translation.quotas[name])
    copy = folder / file
    copy.write_text(translation.text)
    env = dict(
        os.environ, PERL5LIB=str(checkout / "lib"), LC_ALL="C",
        LD_LIBRARY_PATH=os.environ["WEIR_BUILD"],
        TEST_NGINX_BINARY=os.environ.get("WEIR_NGINX", "/usr/sbin/nginx"),
        TEST_NGINX_GLOBALS=f"load_module {os.environ['WEIR_NGINX_MODULE']};" +
        ("user root;" if os.geteuid() == 0 else ""),
        TEST_NGINX_GLOBALS_HTTP=f"weir_roots {fleet.addresses()};"
                                "weir_zone weir 8m;")
    status = subprocess.run(["prove", "-v", str(copy)], env=env,
                            cwd=folder).returncode
    for name in sorted(translation.quotas, key=lambda name: "parent" not in
                       " ".join(translation.quotas[name])):
        fleet.weir("quota", "rm", name)
    return status


def main():
    if len(sys.argv) < 2:
        sys.exit("nginx_tests.py: name a checkout of nginx-tests; "
                 "README.md beside it says which")
    checkout = Path(sys.argv[1]).resolve()
    fleet = Fleet()
    try:
        fleet.add_roots(1)
        with tempfile.TemporaryDirectory(prefix="weir-originals-") as folder:
            failed = [file for file in sys.argv[2:] or FILES
                      if run(fleet, checkout, Path(folder), file) != 0]
    finally:
        fleet.close()
    print("failed:", *(failed or ["none"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
