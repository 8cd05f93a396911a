#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""originals_redis.py - redis-py, the original's client for Python, held against
`weir agent --resp`: by RESP2 and RESP3, with keys that belong to the agent and
keys that the fleet counts. pip fetches it; README.md has the results of other
clients. Limits are per hour, so that no unit comes back during a test."""

import importlib
import importlib.util
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from build_once import build_once  # noqa: E402
from live_cli import Case, Root  # noqa: E402
from live_envoy import Started, run  # noqa: E402
from patience import PATIENCE, free_port, until  # noqa: E402

REDIS = "redis==8.1.0"
BUILD = Path(os.environ["WEIR_BUILD"])
MODES = [(sharing, protocol) for sharing in ("local", "counted")
         for protocol in (2, 3)]
# A redis-server without this subcommand answers the same, and the clients that
# ask for it go on without it.
UNKNOWN = "unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."


def fetched():
    """The package; None: there is no pip here."""
    if not importlib.util.find_spec("pip"):
        return None

    def install(folder):
        done = run(sys.executable, "-m", "pip", "install", "--quiet",
                   "--target", folder, REDIS, patience=5 * PATIENCE)
        if done.returncode:
            raise RuntimeError("redis-py can't be fetched: " + done.stderr)
    sys.path.insert(0, str(build_once(BUILD / "test" / REDIS, [], install)))
    return importlib.import_module("redis")


def pool_of(redis, port, protocol, refused):
    """Connections that add the errors that an agent answers to 'refused', those
    that the package ignores included."""
    class Connection(redis.Connection):
        def read_response(self, *args, **more):
            try:
                return super().read_response(*args, **more)
            except redis.ResponseError as error:
                refused.append(str(error))
                raise
    return redis.ConnectionPool(connection_class=Connection, port=port,
                                host="127.0.0.1", protocol=protocol,
                                socket_timeout=PATIENCE)


class Client(Case):
    @classmethod
    def setUpClass(cls):
        cls.redis = fetched()

    def setUp(self):
        if not self.redis:
            self.skipTest("redis-py can't be fetched: no pip")
        super().setUp()
        self.root = Root(self, store=self.make_store())
        # Local: the fill that a root reports would come between two commands.
        self.ok("quota", "set", "site", "limit=1/h", "low_burst=9",
                "high_burst=9", "sharing=local", root=self.root)

    def start(self, sharing, port):
        agent = Started(Path(self.folder), "agent", "agent", "--roots",
                        self.root.address, "--resp", f"127.0.0.1:{port}",
                        "--resp-sharing", sharing)
        until("the agent is ready", lambda: "ready:" in agent.log.read_text())
        return agent

    def each(self, hold):
        """Calls hold(client) in each mode; the agent is new each time."""
        for self.sharing, protocol in MODES:
            with self.subTest(sharing=self.sharing, protocol=protocol):
                self.port, self.refused = free_port(), []
                # Errors that a new connection is answered.
                self.greeting = [UNKNOWN] if protocol == 3 else []
                self.agent = self.start(self.sharing, self.port)
                pool = pool_of(self.redis, self.port, protocol, self.refused)
                try:
                    hold(self.redis.Redis(connection_pool=pool))
                finally:
                    pool.disconnect()
                    self.agent.end()

    def is_left(self, left, wanted):
        """Of a key that the fleet counts, the root may report more."""
        if self.sharing == "local":
            self.assertEqual(left, wanted)
        else:
            self.assertLessEqual(left, wanted)

    def test_commands(self):
        def hold(client):
            self.assertTrue(client.ping())
            self.assertEqual(self.refused, self.greeting)
            answer = client.execute_command("CL.THROTTLE", "key", 15, 30, 3600)
            self.assertEqual((answer[:2], answer[3]), ([0, 16], -1))
            self.is_left(answer[2], 15)
            self.assertEqual(client.execute_command("WEIR.TAKE", "site", 2),
                             [0, 7, 0, b"site"])
            self.assertEqual(client.execute_command("WEIR.TAKE", "site", 8)
                             [::3], [1, b"site"])
            with self.assertRaisesRegex(self.redis.ResponseError,
                                        "Zero rates are not supported"):
                client.execute_command("CL.THROTTLE", "key", 15, 0, 3600)
            with self.assertRaisesRegex(self.redis.ResponseError,
                                        "unknown command"):
                client.get("key")
            self.assertIsNone(client.client_getname())
            self.assertIn("cl.throttle", client.command())
        self.each(hold)

    def test_pipeline(self):
        def hold(client):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(100):
                    pipeline.execute_command("CL.THROTTLE", "key", 49, 1, 3600)
                answers = pipeline.execute()
            self.assertEqual({tuple(answer[1:2]) for answer in answers},
                             {(50,)})
            verdicts = [answer[0] for answer in answers]
            self.assertEqual(len(verdicts), 100)
            # First those that pass, then those that don't.
            self.assertEqual(verdicts, sorted(verdicts))
            self.is_left(verdicts.count(0), 50)
            self.assertGreater(verdicts.count(0), 0)
        self.each(hold)

    def test_transaction(self):
        def hold(client):
            with client.pipeline() as transaction:
                for _ in range(2):
                    transaction.execute_command("WEIR.TAKE", "site", 2)
                transaction.execute_command("CL.THROTTLE", "a", 9, 1, 3600, 3)
                answers = transaction.execute()
            self.assertEqual(answers[:2], [[0, 7, 0, b"site"],
                                           [0, 5, 0, b"site"]])
            self.assertEqual(answers[2][:2], [0, 10])
            self.is_left(answers[2][2], 7)
            # A command that can't be queued refuses them all.
            for bad in ("WEIR.TAKE", "site", -1), ("GET", "a"):
                with client.pipeline() as transaction:
                    transaction.execute_command("WEIR.TAKE", "site", 2)
                    transaction.execute_command("CL.THROTTLE", "b", 9, 1,
                                                3600, 3)
                    transaction.execute_command(*bad)
                    with self.assertRaises(self.redis.ResponseError):
                        transaction.execute()
                self.assertIn("Transaction discarded because of previous "
                              "errors.", self.refused)
                self.refused.clear()
            self.assertEqual(client.execute_command("WEIR.PEEK", "site"),
                             [0, 5, 0, b"site"])
            self.assertEqual(client.execute_command("CL.PROBE", "b", 9, 1,
                                                    3600, 10)[:3], [0, 10, 0])
        self.each(hold)

    def test_reconnect(self):
        def hold(client):
            self.assertEqual(client.execute_command("WEIR.TAKE", "site", 2),
                             [0, 7, 0, b"site"])
            self.agent.process.kill()
            self.agent.process.wait()
            self.agent = self.start(self.sharing, self.port)
            # Not even the first command fails. Local counts are gone.
            self.assertEqual(client.execute_command("WEIR.TAKE", "site", 1),
                             [0, 8, 0, b"site"])
            self.assertEqual(self.refused, 2 * self.greeting)
        self.each(hold)


if __name__ == "__main__":
    unittest.main()
