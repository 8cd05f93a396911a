#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""postgres.py PROGRAM [ARGUMENT…] - runs a program beside a PostgreSQL server
of its own, which is removed afterwards; or, imported, gives other tests such a
server (Postgres).

The program finds
  WEIR_POSTGRES_URL      an empty database, by loopback and password
  WEIR_POSTGRES_CONTROL  a socket's descriptor. A byte sent there is answered
                         with the same byte once it is done: k kills the
                         server as a power cut does, s starts it again, z
                         stops all of its processes (SIGSTOP), c lets them
                         continue.
Exit status: the program's; 1 if there is no server to be started."""

import base64
import ctypes
import hashlib
import hmac
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from patience import PATIENCE, free_port, until

PASSWORD = "open-sesame"
PR_SET_PDEATHSIG = 1


def binaries():
    """The folder of the newest server's programs."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"),
                     key=lambda p: float(p.parts[-3]))
    found = str(folders[-1]) if folders else shutil.which("initdb")
    if not found:
        sys.exit("postgres.py: there is no PostgreSQL server here; install "
                 "the package 'postgresql' (tools/install-deps.sh check)")
    return Path(found).resolve().parent


def works_in(process, folder):
    """Whether a folder of /proc is of a process with that working directory;
    one that has ended has none."""
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


def verifier_of(password):
    """The server's stored form of a password (RFC 5803). It has one round, not
    4,096, because each client computes them for each of its connections, some
    hundreds."""
    salt, rounds = os.urandom(16), 1
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    client, server = (hmac.digest(salted, name, "sha256")
                      for name in (b"Client Key", b"Server Key"))
    salt, stored, server = (
        base64.b64encode(part).decode()
        for part in (salt, hashlib.sha256(client).digest(), server))
    return f"SCRAM-SHA-256${rounds}:{salt}${stored}:{server}"


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Postgres:
    """A server on a free port of loopback. Start it from a thread that lives
    as long as it should."""

    def __init__(self):
        self.bin = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="weir-postgres-")).resolve()
        self.process = None
        self.databases = 0
        self.as_user = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            names = {user.pw_name: user for user in pwd.getpwall()}
            user = names.get("postgres") or names["nobody"]
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid,
                            "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._make()

    @property
    def url(self):
        return f"postgres://weir:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def new_database(self):
        """The URL of an empty database, for one test of many."""
        self.databases += 1
        name = f"test_{self.databases}"
        made = subprocess.run(
            [self.bin / "psql", "--no-psqlrc", "--quiet", "--dbname",
             self.url, "--command", f"CREATE DATABASE {name}"], text=True,
            capture_output=True, timeout=PATIENCE)
        if made.returncode:
            raise AssertionError(f"CREATE DATABASE: {made.stderr}")
        return f"{self.url.removesuffix('postgres')}{name}"

    def _make(self):
        self.port = free_port()
        secret = self.folder / "password"
        secret.write_text(verifier_of(PASSWORD) + "\n")
        secret.chmod(0o644)  # the folder is closed to others
        made = subprocess.run(
            [self.bin / "initdb", "-D", self.folder / "data", "-U", "weir",
             "--no-sync", "--encoding=UTF8", "--locale=C",
             "--auth=scram-sha-256", "--pwfile", secret],
            cwd=self.folder, capture_output=True, text=True, **self.as_user)
        if made.returncode:
            raise AssertionError("initdb: " + made.stderr)

    def start(self):
        pid_file = self.folder / "data" / "postmaster.pid"
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.folder / "data",
                 "-p", str(self.port), "-k", self.folder,
                 "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                 "-c", "shared_buffers=32MB", "-c", "max_connections=50",
                 "-c", "log_line_prefix=%m [%p] "],
                cwd=self.folder, stdout=log, stderr=log,
                preexec_fn=die_with_parent, **self.as_user)

        def ready():
            if self.process.poll() is not None:
                raise AssertionError("postgres ended: " + self.logged())
            try:  # A file that a killed server left is replaced.
                lines = pid_file.read_text().split("\n")
            except FileNotFoundError:
                return False
            return len(lines) > 7 and lines[0] == str(self.process.pid) \
                and lines[7].strip() == "ready"
        until("a ready server", ready)

    def _signal(self, number):
        """To the server and its children; returns whether there were any."""
        data = self.folder / "data"
        pids = [int(process.name) for process in Path("/proc").iterdir()
                if process.name.isdigit() and works_in(process, data)]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        return bool(pids)

    def kill(self):
        """All at once, as a power cut does."""
        self._signal(signal.SIGSTOP)  # so that none of them forks
        until("dead servers", lambda: not self._signal(signal.SIGKILL))
        self.process.wait()
        self.process = None

    def freeze(self):
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self._signal(signal.SIGCONT)

    def stop(self):
        """Shuts down in order, and disconnects clients."""
        if self.process:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
            self.process = None

    def save(self):
        """Copies the folder of a stopped server."""
        shutil.rmtree(self.folder / "saved", ignore_errors=True)
        self._copy("data", "saved")

    def go_back(self):
        """Sets a dead server back to that copy, as a failover does that has
        lost commits."""
        shutil.rmtree(self.folder / "data")
        self._copy("saved", "data")

    def _copy(self, before, after):
        subprocess.run(["cp", "-a", before, after], cwd=self.folder,
                       check=True, **self.as_user)

    def logged(self):
        return (self.folder / "log").read_text()

    def close(self):
        if self.process:
            self.kill()
        shutil.rmtree(self.folder)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.close()


def serve(server, control):
    """Executes the program's bytes until its end of the socket closes."""
    verbs = {b"k": server.kill, b"s": server.start,
             b"z": server.freeze, b"c": server.thaw}
    for byte in iter(lambda: control.recv(1), b""):
        verbs[byte]()
        control.sendall(byte)


def main(arguments):
    if not arguments:
        sys.exit("postgres.py: which program?")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ours, theirs = socket.socketpair()
    with Postgres() as server, ours:
        program = subprocess.Popen(
            arguments, pass_fds=[theirs.fileno()],
            env=os.environ | {"WEIR_POSTGRES_URL": server.url,
                              "WEIR_POSTGRES_CONTROL": str(theirs.fileno())})
        theirs.close()
        try:
            serve(server, ours)
            return program.wait()
        finally:
            program.kill()
            program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
