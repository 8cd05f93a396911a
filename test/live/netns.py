# SPDX-License-Identifier: MIT
"""netns.py - machines in a box: network namespaces, the wire between them, and
faults of that wire.

A Net is a switch (a bridge) with machines on it, each a network namespace
with a link of its own:

    machine "eu"           the test's own namespace
    eth0 10.77.0.2 ------- eu ---.
    eth0 10.77.0.3 ------- us ---+-- bridge "wire", which has no address
    eth0 10.77.0.1 ------ top ---'

A link is cut by taking its port down: no RST is sent, packets are lost, and
neither end is notified. A poor link delays every frame and drops some: the
port leaves the bridge, and a relay carries frames between both. The relay is
this file run as a program, so the kernel needs no netem; it reads and writes
real frames, and TCP reacts to delay and loss as on a real link:

    eth0 ------- eu <-- relay --> eu-far ------- eu-near -- bridge

To leave nothing behind, seclude() makes the program go on as the first process
of its own namespaces (network, processes, mounts). When it ends, also by
SIGKILL, the kernel ends all processes in them and removes the devices. A
machine's namespace has no name in the file system, just a descriptor here; a
thread enters it while it starts a process or opens a socket, both of which
stay there."""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
ETH_P_ALL = 3
FRAME_MAX = 2048      # an MTU of 1500, with room to detect longer frames
SECLUDED = "WEIR_TEST_SECLUDED"
SKIP = 77             # exit status of a skipped test, for Meson


def seclude():
    """Returns in namespaces of the program's own, as described above. Without
    root, or in a container without CAP_SYS_ADMIN, it can't make them: the test
    is skipped, and prints why."""
    if os.environ.get(SECLUDED):
        # The first process of a namespace has no default for this one.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        return
    if os.geteuid() != 0:
        print("skipped: network namespaces are made by root only; run it as "
              "root", file=sys.stderr)
        sys.exit(SKIP)
    words = ["unshare", "--net", "--pid", "--mount-proc", "--fork",
             "--kill-child"]
    tried = subprocess.run([*words, "true"], text=True, capture_output=True)
    if tried.returncode != 0:
        print("skipped: network namespaces can't be made here, though this is "
              "root (CAP_SYS_ADMIN is missing, it seems): "
              f"{tried.stderr.strip()}", file=sys.stderr)
        sys.exit(SKIP)
    os.execvpe(words[0], [*words, sys.executable, *sys.argv],
               {**os.environ, SECLUDED: "1"})


def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def here():
    """A descriptor of this thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def ip(*words):
    done = subprocess.run(["ip", *words], text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def checksum_here(device):
    """Makes the sender write checksums, which also ends offloading of segments:
    only whole frames of at most an MTU cross 'device'."""
    value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP8x", device.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


class Machine:
    """A network namespace with one link to the wire."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        outside = here()
        call("unshare", CLONE_NEWNET)
        self.namespace = here()
        call("setns", outside, CLONE_NEWNET)
        os.close(outside)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0",
           "netns", f"/proc/{os.getpid()}/fd/{self.namespace}")
        checksum_here(name)
        with self.inside():
            checksum_here("eth0")
            ip("addr", "add", f"{address}/24", "dev", "eth0")
            ip("link", "set", "lo", "up")
            ip("link", "set", "eth0", "up")

    @contextlib.contextmanager
    def inside(self):
        """This thread is in the machine meanwhile: processes that it starts
        and sockets that it opens stay there."""
        outside = here()
        call("setns", self.namespace, CLONE_NEWNET)
        try:
            yield self
        finally:
            call("setns", outside, CLONE_NEWNET)
            os.close(outside)


class Relay:
    """The relay of a poor link: it delays every frame by 'delay' seconds in
    both directions, and drops the part 'drop' of them (0 to 1)."""

    def __init__(self, near, far, delay, drop, seed):
        self.process = subprocess.Popen(
            [sys.executable, __file__, near, far, str(delay), str(drop),
             str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)
        self.process.stdout.readline()   # it listens

    def end(self):
        """Ends it; returns (frames carried, frames dropped)."""
        said, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError("the relay failed")
        return tuple(int(word) for word in said.split())


class Net:
    """The wire and its machines; a secluded process has one at most."""

    def __init__(self):
        self.machines = {}
        self.relays = {}
        ip("link", "set", "lo", "up")
        ip("link", "add", "wire", "type", "bridge")
        ip("link", "set", "wire", "up")

    def add(self, name):
        machine = Machine(name, f"10.77.0.{len(self.machines) + 1}")
        self.machines[name] = machine
        ip("link", "set", name, "master", "wire", "up")
        return machine

    def cut(self, machine):
        ip("link", "set", machine.name, "down")

    def mend(self, machine):
        ip("link", "set", machine.name, "up")

    def worsen(self, machine, delay, drop, seed=1):
        """From now on the link of 'machine' is a poor one."""
        near, far = f"{machine.name}-near", f"{machine.name}-far"
        ip("link", "add", near, "type", "veth", "peer", "name", far)
        checksum_here(near)
        checksum_here(far)
        ip("link", "set", far, "up")
        ip("link", "set", machine.name, "nomaster")
        self.relays[machine.name] = Relay(machine.name, far, delay, drop,
                                          seed)
        ip("link", "set", near, "master", "wire", "up")

    def better(self, machine):
        """Reverts worsen(); frames under way are lost. Returns the relay's
        (carried, dropped)."""
        counts = self.relays.pop(machine.name).end()
        ip("link", "del", f"{machine.name}-near")
        ip("link", "set", machine.name, "master", "wire")
        return counts

    def close(self):
        """Removes all of it; another net may be made afterwards. A namespace
        ends with the last process in it."""
        for name, relay in self.relays.items():
            relay.end()
            ip("link", "del", f"{name}-near")
        for machine in self.machines.values():
            ip("link", "del", machine.name)
            os.close(machine.namespace)
        ip("link", "del", "wire")
        self.relays, self.machines = {}, {}


# ---- The relay, a program ----


def listen(device):
    """A socket that sees the frames that came in by 'device'."""
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    frames.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    frames.bind((device, ETH_P_ALL))
    frames.setblocking(False)
    return frames


class Carrier:
    def __init__(self, ends, delay, drop, seed):
        self.ends, self.delay, self.drop = ends, delay, drop
        self.chance = random.Random(seed)
        self.due = []    # (instant, number, where to, frame)
        self.carried = self.dropped = 0

    def take(self, end):
        """Reads the frames that wait at an end, up to 64."""
        for _ in range(64):
            try:
                frame = end.recv(FRAME_MAX)
            except OSError:     # no more; or the device is down just now
                return
            if len(frame) > 1514:
                raise SystemExit(f"relay: a frame of {len(frame)} bytes")
            if self.chance.random() < self.drop:
                self.dropped += 1
                continue
            self.carried += 1
            far = self.ends[1] if end is self.ends[0] else self.ends[0]
            heapq.heappush(self.due, (time.monotonic() + self.delay,
                                      self.carried, far, frame))

    def give(self):
        """Sends the frames that are due; returns the seconds until the next
        one is, or None."""
        while self.due:
            left = self.due[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, far, frame = heapq.heappop(self.due)
            with contextlib.suppress(OSError):   # down: it is lost
                far.send(frame)
        return None

    def run(self):
        """Runs until standard input ends."""
        while True:
            left = self.give()
            ready, _, _ = select.select([sys.stdin, *self.ends], [], [], left)
            if sys.stdin in ready:
                return
            for end in ready:
                self.take(end)


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    near, far, delay, drop, seed = sys.argv[1:]
    carrier = Carrier([listen(near), listen(far)], float(delay), float(drop),
                      int(seed))
    print("ready", flush=True)
    carrier.run()
    print(carrier.carried, carrier.dropped)


if __name__ == "__main__":
    main()
