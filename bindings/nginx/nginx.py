# SPDX-License-Identifier: MIT
"""nginx.py - a real nginx with the module, in a folder of its own, for tests
and for bench/nginx."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "test/live"))
from patience import PATIENCE, until  # noqa: E402

NGINX = os.environ.get("WEIR_NGINX", "nginx")
# The module finds libweir in the build folder.
ENV = dict(os.environ, LD_LIBRARY_PATH=os.environ["WEIR_BUILD"])

FRAME = """
load_module {module};
{before}
daemon off;
{user}
worker_processes {workers};
pid {folder}/pid;
error_log {folder}/error.log {level};
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
{http}
}}
"""


class Nginx:
    """Its configuration is FRAME around 'http', in which @PORT@ and @FOLDER@
    are replaced. No workers: the started process itself answers. 'under': a
    command that runs it, such as valgrind's.

    The port is never free for other processes: it is bound here, and nginx
    inherits the socket as in a binary upgrade (in $NGINX). Otherwise, one port
    in some thousands would be taken by another process first."""

    def __init__(self, folder, module, http_text, workers=2, level="notice",
                 before="", under=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        self.module, self.workers, self.level = module, workers, level
        self.before, self.under = before, list(under)
        if workers == 0:
            self.before += "\nmaster_process off;"
        self.socket = socket.socket()
        # nginx leaves an inherited socket as it is: of two workers that are
        # woken for one connection, the later one would wait in accept().
        self.socket.setblocking(False)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.process = None
        self.write(http_text)

    def write(self, http_text):
        text = FRAME.format(
            module=self.module, workers=max(self.workers, 1), level=self.level,
            folder=self.folder, before=self.before,
            user="user root;" if os.geteuid() == 0 else "",
            http=http_text.replace("@PORT@", str(self.port))
            .replace("@FOLDER@", str(self.folder)))
        (self.folder / "nginx.conf").write_text(text)

    def command(self, *more):
        return [*self.under, NGINX, "-p", str(self.folder), "-e",
                str(self.folder / "error.log"), "-c",
                str(self.folder / "nginx.conf"), *more]

    def check(self):
        """Output of `nginx -t`; (status, text)."""
        done = subprocess.run(self.command("-t"), text=True, env=ENV,
                              capture_output=True, timeout=PATIENCE)
        return done.returncode, done.stderr

    def start(self, **more):
        self.socket.listen(511)
        passed = self.socket.fileno()
        with open(self.folder / "stderr", "a") as said:
            self.process = subprocess.Popen(
                self.command(), stderr=said, pass_fds=[passed],
                env={**ENV, "NGINX": f"{passed};"}, **more)
        # When nginx ends, its port refuses.
        self.socket.close()
        until("nginx has its workers", self.has_workers)
        return self

    def has_workers(self):
        """From then on it answers: earlier connections wait in the socket."""
        if self.process.poll() is not None:
            raise AssertionError("nginx ended: " + self.logged() +
                                 (self.folder / "stderr").read_text())
        return len(self.worker_pids()) >= self.workers

    def worker_pids(self):
        pid = self.process.pid
        if self.workers == 0:
            return [pid]
        path = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(child) for child in path.read_text().split()]

    def logged(self):
        log = self.folder / "error.log"
        return log.read_text() if log.exists() else ""

    def office(self):
        """The worker that keeps the links to the roots, by its log."""
        said = re.findall(r"(\d+)#\d+: weir: this worker keeps", self.logged())
        alive = [int(pid) for pid in said if int(pid) in self.worker_pids()]
        return alive[-1] if alive else None

    def wait_ready(self):
        until("a worker with the links to the roots", self.office)
        until("quotas", lambda: "weir: the quotas of a root are complete"
              in self.logged())
        return self

    def get(self, path, method="GET", body=None, **headers):
        """(status, headers, body)"""
        link = http.client.HTTPConnection("127.0.0.1", self.port,
                                          timeout=PATIENCE)
        try:
            named = {key.replace("_", "-"): value
                     for key, value in headers.items()}
            link.request(method, path, body, named)
            answer = link.getresponse()
            return (answer.status, answer.headers,
                    answer.read().decode(errors="replace"))
        finally:
            link.close()

    def stop(self):
        self.socket.close()
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
