# SPDX-License-Identifier: MIT
"""live_etcd.py - a real etcd for live tests, and a slow network before it."""

import base64
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from patience import PATIENCE, free_port, until


class Etcd:
    """A cluster of one, or a member of a cluster; its elections are quick, so
    that it is back soon after a restart."""

    def __init__(self, folder, tls=None, name="default"):
        if not shutil.which("etcd"):
            sys.exit("there is no etcd here; install the package "
                     "'etcd-server' (tools/install-deps.sh check)")
        self.folder, self.tls, self.process = folder, tls, None
        self.port, self.peer = free_port(), free_port()
        self.at = f"127.0.0.1:{self.port}"
        self.name, self.cluster = name, [self]

    def start(self):
        scheme = "https" if self.tls else "http"
        url, peer = f"{scheme}://{self.at}", f"http://127.0.0.1:{self.peer}"
        more = []
        if self.tls:
            more = ["--cert-file", self.tls + "/127.0.0.1.pem", "--key-file",
                    self.tls + "/127.0.0.1.key", "--trusted-ca-file",
                    self.tls + "/ca.pem", "--client-cert-auth"]
        all_peers = ",".join(f"{e.name}=http://127.0.0.1:{e.peer}"
                             for e in self.cluster)
        with open(self.folder / "etcd.log", "a") as log:
            self.process = subprocess.Popen(
                ["etcd", "--name", self.name,
                 "--data-dir", self.folder / self.name,
                 "--listen-client-urls", url, "--advertise-client-urls", url,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                 peer, "--initial-cluster", all_peers,
                 "--heartbeat-interval", "20", "--election-timeout", "200",
                 *more], stdout=log, stderr=log)
        if not self.tls and self.cluster[-1] is self:
            until("etcd", self.is_ready)

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "etcd.log").read_text())
        try:
            self.ask("kv/range", key="lock")
            return True
        except OSError:
            return False

    def ask(self, path, patience=PATIENCE, **fields):
        """A request to its JSON gateway; keys and values are sent as bytes."""
        body = {name: base64.b64encode(value.encode()).decode()
                if name in ("key", "value") else value
                for name, value in fields.items()}
        request = urllib.request.Request(f"http://{self.at}/v3/{path}",
                                         json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=patience) as answer:
            return json.load(answer)

    def leads(self):
        """Whether this member believes that it is the leader."""
        status = self.ask("maintenance/status")
        return status.get("leader") == status["header"]["member_id"]

    def renewed(self):
        """The keep-alives of leases that it has granted as leader since its
        process was started."""
        with urllib.request.urlopen(f"http://{self.at}/metrics",
                                    timeout=PATIENCE) as answer:
            for line in answer.read().decode().splitlines():
                name, _, value = line.partition(" ")
                if name == "etcd_debugging_lease_renewed_total":
                    return float(value)
        raise AssertionError("etcd doesn't count the leases it renews")

    def put(self, key, value):
        return int(self.ask("kv/put", key=key,
                            value=value)["header"]["revision"])

    def delete(self, key):
        self.ask("kv/deleterange", key=key)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


class Relay:
    """Relays connections to a port, and delays the bytes that come back by
    'delay' seconds; the delay may be changed at any time."""

    def __init__(self, port, delay):
        self.port, self.delay = port, delay
        self.lock = threading.Lock()
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                near.close()
                continue
            with self.lock:
                self.sockets += [near, far]
            self.carry(near, far, lambda: 0)
            self.carry(far, near, lambda: self.delay)

    def carry(self, source, to, delay):
        """One thread reads pieces, another writes those that are due."""
        pieces = []
        come = threading.Condition()

        def read():
            data = b"x"
            while data:
                try:
                    data = source.recv(65536)
                except OSError:
                    data = b""
                with come:
                    pieces.append((time.monotonic() + delay(), data))
                    come.notify()

        def write():
            while True:
                with come:
                    come.wait_for(lambda: pieces)
                    at, data = pieces.pop(0)
                time.sleep(max(0, at - time.monotonic()))
                try:
                    if not data:
                        to.shutdown(socket.SHUT_RDWR)
                        return
                    to.sendall(data)
                except OSError:
                    return
        for work in read, write:
            threading.Thread(target=work, daemon=True).start()

    def cut(self):
        """Ends all present connections."""
        with self.lock:
            sockets, self.sockets = self.sockets, []
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def close(self):
        self.listener.close()
        self.cut()
