#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_tenants.py - two tenants at one root and at one agent. Their credentials
may take only from quotas of their own names: at no listener can one tenant
charge the other's quota, or learn its fill. The answer is an error, which the
root and the agent count."""

import json
import struct
import subprocess
import unittest

from identities import TAKE, WEIR, Who, bearer
from live_agent import Resp
from live_agent_tls import HEALTH, LIMIT, PERMISSION_DENIED, Agent
from live_security import Case
from patience import PATIENCE, until, until_equal

A, B = "the-token-of-the-tenant-a", "the-token-of-the-tenant-b"
OTHER = "the-token-of-another-that-is-revoked"
DOORMAN = "/doorman.Capacity/"
QUOTAS = ("/envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
          "/StreamRateLimitQuotas")
OK = 0


def field(number, value):
    """A field of protobuf: text, bytes, a number or a double."""
    if isinstance(value, float):
        return bytes([number << 3 | 1]) + struct.pack("<d", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(value)]) + value


def get_capacity(*resources):
    return field(1, "client") + b"".join(
        field(2, field(1, name) + field(2, 1) + field(4, 5.0))
        for name in resources)


def release(name):
    return field(1, "client") + field(2, name)


def should_limit(domain, *values):
    return field(1, domain) + b"".join(
        field(2, field(1, field(1, "user") + field(2, value)))
        for value in values)


def usage(user):
    """A usage report: five requests passed in a bucket."""
    bucket = field(1, field(1, "user") + field(2, user))
    return field(2, field(1, bucket) + field(2, field(1, 1)) + field(3, 5))


def report(domain, *users):
    return field(1, domain) + b"".join(map(usage, users))


class Tenants:
    """Credentials and quotas of two tenants."""

    a = Who("a", {"take"}, header=bearer(A))
    b = Who("b", {"take"}, header=bearer(B))
    other = Who("other", {"take"}, header=bearer(OTHER))

    def write_credentials(self, of_b="", taker="take", other=""):
        made = self.folder / "credentials.new"
        made.write_text(
            "read,take,edit,root cert ops\n"
            f"{taker} token taker {TAKE}\n"
            "take:team-a/*,take:envoy/a/*,take:throttle:*:a/* "
            f"token tenant-a {A}\n"
            "take:team-b/*,take:envoy/b/*,take:throttle:*:b/*"
            f"{of_b} token tenant-b {B}\n{other}")
        made.chmod(0o600)
        made.rename(self.credentials)

    def reload(self, log, **roles):
        """Writes credentials; 'log' returns the log of the process that reloads
        them."""
        before = log().count("reloaded")
        self.write_credentials(**roles)
        until("the credentials", lambda: log().count("reloaded") > before)

    def add(self, name, **fields):
        """Adds a quota. The limit is low: a bucket stays full, so the root
        keeps it."""
        fields = fields or {"low_burst": "1000", "high_burst": "1000"}
        status, _, text = self.ask(self.ops, "PUT", f"/v1/quotas/{name}",
                                   json.dumps({"limit": "1000/day", **fields}))
        self.assertEqual(status, 201, text)

    def add_quotas(self):
        self.add("company")
        for team in "ab":
            self.add(f"team-{team}/*", parent="company", low_burst="1000",
                     high_burst="1000")
            self.add(f"team-{team}/leased", sharing="leased")
            self.add(f"team-{team}/exact", sharing="exact")
            self.add(f"envoy/{team}/*")

    def passed(self, name):
        """Units that the root has counted; 0 for an unknown name."""
        usage = json.loads(self.ask(self.ops, "GET", "/v1/usage")[2])
        return sum(quota["passed"] for quota in usage["quotas"]
                   if quota["name"] == name)


class Link(Tenants, Case):
    """Each tenant's limiter has a link of its own to the root."""

    def setUp(self):
        super().setUp()
        self.add_quotas()

    def take(self, token, name, count=1):
        """The errors of `weir take`, of 'count' units taken one by one."""
        file = self.folder / "token"
        file.write_text(token + "\n")
        done = subprocess.run(
            [WEIR, "take", name, "-n", str(count), "--roots",
             f"localhost:{self.root.grpc}", "--tls-ca",
             str(self.certificates.ca), "--token-file", str(file)],
            text=True, capture_output=True, timeout=PATIENCE)
        return done.stderr

    def test_each_charges_its_own(self):
        before = self.refused()
        self.take(A, "team-a/x", 5)
        self.take(B, "team-b/x", 7)
        until_equal("what a took", 5, lambda: self.passed("team-a/x"))
        until_equal("what b took", 7, lambda: self.passed("team-b/x"))
        until_equal("the sum", 12, lambda: self.passed("company"))
        self.assertEqual(before, self.refused())

    def test_b_cannot_charge_quotas_of_a(self):
        self.take(A, "team-a/x", 5)
        self.assertIn("may not take from", self.take(B, "team-a/x", 50))
        until("the refusal", lambda: self.refused()["grpc", "name"] > 0)
        self.assertEqual(self.passed("team-a/x"), 5)
        self.assertEqual(self.passed("company"), 5)
        # Either name may be denied first.
        self.assertRegex(self.root.logged(), "the credential of tenant-b may "
                         "not take from '(company|team-a/x)'")

    def test_exact_quotas_are_not_decided_for_another(self):
        self.assertIn("may not take from", self.take(B, "team-a/exact"))
        before = self.refused()["grpc", "name"]
        self.assertGreater(before, 0)
        self.assertEqual(self.take(A, "team-a/exact"), "")
        self.assertEqual(before, self.refused()["grpc", "name"])

    def test_credentials_that_change(self):
        """After a change, b's next link charges a quota that was denied."""
        self.take(B, "team-a/x", 3)
        until("the refusal", lambda: self.refused()["grpc", "name"] > 0)
        self.reload(self.root.logged, of_b=",take:team-a/*")
        self.take(B, "team-a/x", 4)
        until_equal("what b took", 4, lambda: self.passed("team-a/x"))

    def test_doorman(self):
        call = DOORMAN + "GetCapacity"
        before = self.refused()["grpc", "name"]
        self.assertEqual(self.call(self.a, call,
                                   get_capacity("team-a/leased"))[0], OK)
        status, why = self.call(self.b, call, get_capacity("team-a/leased"))
        self.assertEqual(status, PERMISSION_DENIED)
        self.assertIn("may not take from", why)
        # A resource without a quota is granted as asked, if its name is
        # allowed.
        self.assertEqual(self.call(self.b, call, get_capacity("nothing"))[0],
                         PERMISSION_DENIED)
        self.assertEqual(self.refused()["grpc", "name"], before + 2)
        # An allowed row is answered beside a denied one.
        self.assertEqual(self.call(self.b, call, get_capacity(
            "team-b/leased", "team-a/leased"))[0], OK)
        self.assertEqual(self.call(self.b, DOORMAN + "ReleaseCapacity",
                                   release("team-a/leased"))[0], OK)
        self.assertEqual(self.refused()["grpc", "name"], before + 4)

    def test_doorman_calls_whose_request_comes_after_a_reload(self):
        """The new credentials apply; a's credential is unchanged."""
        call = DOORMAN + "GetCapacity"
        before = self.refused()
        self.reload(self.root.logged, of_b=",take:team-a/*",
                    other=f"take token other {OTHER}\n")
        staying, narrowed, revoked = (
            self.begin(who, call) for who in (self.a, self.b, self.other))
        self.reload(self.root.logged)
        for begun, replies in ((staying, True), (narrowed, False),
                               (revoked, False)):
            begun.send(get_capacity("team-a/leased"))
            until("the end of the call", begun.look)
            self.assertEqual(bool(begun.replies), replies)
        self.assert_counted(before, grpc_name=1, grpc_credential=1)


class Sessions(Tenants, Agent):
    """Both tenants use one agent; its own credential has all names."""

    def session(self, token):
        link = Resp(self.unix)
        self.addCleanup(link.close)
        self.assertEqual(link.ask("AUTH", token), "+OK")
        return link

    def give_b(self, more):
        self.write_credentials(of_b=more)
        until("the credentials", lambda: "reloaded" in self.log.read_text())

    def assert_denied(self, session, *words):
        said = str(session.ask(*words))
        self.assertTrue(said.startswith("-NOPERM"), f"{words}: {said}")


class Doors(Sessions):
    def setUp(self):
        super().setUp()
        self.add_quotas()
        # The other quotas were sent before this one. Without its quota a name
        # would pass uncounted.
        peek = {"name": "envoy/b/none", "peek": True}
        until("the last quota at the agent", lambda: "unknown" not in
              self.post(self.b, "/v1/take", peek)[1])

    def denied(self):
        return self.log.read_text().count("may not take from")

    def post(self, who, path, body):
        status, _, text = self.ask(who, "POST", path, json.dumps(body),
                                   port=self.port("http"))
        return status, text

    def test_http(self):
        for path in ("/v1/take", "/v1/enter"):
            self.assertEqual(self.post(self.b, path, {"name": "team-b/x"})[0],
                             200)
            status, text = self.post(self.b, path, {"name": "team-a/x"})
            self.assertEqual(status, 403, text)
            self.assertIn("may not take from 'team-a/x'", text)
        # A peek is refused, too, and so is a list as a whole.
        self.assertEqual(self.post(self.b, "/v1/take", {
            "name": "team-a/x", "peek": True})[0], 403)
        self.assertEqual(self.post(self.b, "/v1/take", {"requests": [
            {"name": "team-b/x"}, {"name": "team-a/x"}]})[0], 403)
        # Descriptors are denied by the names of their quotas.
        body = {"domain": "a", "descriptors": [
            {"entries": [{"key": "user", "value": "ann"}]}]}
        self.assertEqual(self.post(self.a, "/json", body)[0], 200)
        self.assertEqual(self.post(self.b, "/json", body)[0], 403)
        until_equal("what b took", 2, lambda: self.passed("team-b/x"))
        self.assertEqual(self.passed("team-a/x"), 0)
        self.assertGreater(self.denied(), 0)

    def test_permits_of_one_connection(self):
        """A proxy may send requests of both tenants on one connection."""
        self.add("team-a/db", kind="concurrency", sharing="local", limit="1")
        name = {"name": "team-a/db"}
        until("the quota at the agent", lambda: '"team-a/db"' in self.post(
            self.a, "/v1/take", {**name, "peek": True})[1])
        link = self.connection(self.a, self.port("http"))
        self.addCleanup(link.close)

        def post(who, path, body):
            status, _, text = self.ask_on(link, who, "POST", path,
                                          json.dumps(body))
            return status, json.loads(text)
        # The agent waits for no lock: one may be held just then.
        permit = {"permit": until("a permit", lambda: post(
            self.a, "/v1/enter", name)[1].get("permit"))}
        unknown = post(self.a, "/v1/leave", {"permit": permit["permit"] + 1})
        self.assertEqual(unknown[0], 404)
        self.assertEqual(post(self.b, "/v1/leave", permit), unknown)
        self.assertEqual(post(self.a, "/v1/enter", name)[0], 429)
        self.assertEqual(post(self.a, "/v1/leave", permit)[0], 200)
        self.assertEqual(post(self.a, "/v1/enter", name)[0], 200)

    def test_keys_by_another_rate(self):
        """A key has one count in the agent, which all rates charge: a
        credential's glob with a rate in it matches no key."""
        self.give_b(",take:throttle:5:5/3600s:*")
        a, b = self.session(A), self.session(B)
        self.assertEqual(a.ask("CL.THROTTLE", "a/k", 9, 10, 60)[2], 9)
        for words in (("CL.THROTTLE", "a/k", 4, 5, 3600, 4),
                      ("CL.THROTTLE", "a/k", 4, 5, 3600, -1000),
                      ("CL.PROBE", "a/k", 4, 5, 3600),
                      ("CL.PROBE", "a/\r\n+k", 4, 5, 3600)):
            self.assert_denied(b, *words)
        self.assertEqual(a.ask("CL.THROTTLE", "a/k", 9, 10, 60)[2], 8)
        # A tenant's own keys may be as long as those of any client.
        longest = "b/" + 5000 * "k"
        self.assertEqual(b.ask("CL.THROTTLE", longest, 4, 5, 3600)[2], 4)
        self.assertEqual(b.ask("CL.THROTTLE", longest, 4, 5, 3600)[2], 3)

    def test_resp(self):
        a, b = self.session(A), self.session(B)
        self.assertEqual(a.ask("WEIR.TAKE", "team-a/x", 5)[0], 0)
        for command in ("WEIR.TAKE", "WEIR.PEEK"):
            self.assert_denied(b, command, "team-a/x", 50)
        self.assert_denied(b, "WEIR.CHARGE", "team-a/x", 50)
        self.assert_denied(b, "WEIR.SETTLE", "team-a/x", 5, 0)
        self.assertEqual(b.ask("WEIR.TAKE", "team-b/x", 7)[0], 0)
        self.assertEqual(a.ask("CL.THROTTLE", "a/k", 9, 10, 60)[2], 9)
        for words in (("CL.THROTTLE", "a/k", 9, 10, 60),
                      ("CL.PROBE", "a/k", 9, 10, 60),
                      ("CL.THROTTLE", "a/k", 9, 10, 60, -5),
                      ("DEL", "a/k")):
            self.assert_denied(b, *words)
        self.assertEqual(a.ask("CL.THROTTLE", "a/k", 9, 10, 60)[2], 8)
        until_equal("what a took", 5, lambda: self.passed("team-a/x"))
        # New credentials apply to an existing session.
        self.write_credentials(of_b=",take:team-a/*")
        until("b may", lambda: b.ask("WEIR.TAKE", "team-a/x", 1) !=
              None and not str(b.ask("WEIR.PEEK", "team-a/x")).startswith(
                  "-NOPERM"))
        self.write_credentials()
        until("b may not", lambda: str(b.ask("WEIR.PEEK", "team-a/x"))
              .startswith("-NOPERM"))
        # After another AUTH a session has the new credential alone.
        self.assertEqual(b.ask("AUTH", A), "+OK")
        self.assertTrue(b.ask("WEIR.PEEK", "team-b/x").startswith("-NOPERM"))
        self.assertEqual(b.ask("AUTH", TAKE), "+OK")
        self.assertEqual(b.ask("WEIR.PEEK", "team-a/x")[0], 0)

    def test_the_link_of_an_agent_that_may_less_now(self):
        """The agent's link begins anew, and names that it had announced before
        are charged no more."""
        a = self.session(A)
        self.assertEqual(a.ask("WEIR.TAKE", "team-a/x", 5)[0], 0)
        until_equal("what a took", 5, lambda: self.passed("team-a/x"))
        self.write_credentials(taker="take:team-b/*")
        # Only names in use are announced, however late the new link comes.
        until("the agent is told", lambda: a.ask("WEIR.TAKE", "team-a/x", 0) and
              "the credential may not take from a quota" in
              self.log.read_text())
        self.assertEqual(a.ask("WEIR.TAKE", "team-a/x", 50)[0], 0)
        b = self.session(B)
        self.assertEqual(b.ask("WEIR.TAKE", "team-b/x", 7)[0], 0)
        until_equal("what b took", 7, lambda: self.passed("team-b/x"))
        self.assertEqual(self.passed("team-a/x"), 5)

    def test_rls(self):
        port = self.port("rls")
        ask = should_limit("a", "ann")
        self.assertEqual(self.call(self.a, LIMIT, ask, port)[0], OK)
        status, why = self.call(self.b, LIMIT, ask, port)
        self.assertEqual(status, PERMISSION_DENIED)
        self.assertIn("may not take from", why)
        self.assertEqual(self.call(self.b, LIMIT, should_limit("b", "ann"),
                                   port)[0], OK)
        until_equal("what a took", 1, lambda: self.passed("envoy/a/user=ann"))

    def test_calls_whose_message_comes_after_a_reload(self):
        """A call that began before its credential was narrowed or revoked
        charges nothing."""
        port = self.port("rls")
        self.reload(self.log.read_text, of_b=",take:envoy/a/*",
                    other=f"take token other {OTHER}\n")
        begun = [self.begin(who, path, port) for path in (LIMIT, QUOTAS)
                 for who in (self.b, self.other)]
        health = self.begin(self.b, HEALTH, port)
        self.reload(self.log.read_text)
        health.send(b"")
        until("the end of the call", health.look)
        self.assertNotEqual(health.replies, b"")
        for call, message in zip(begun, 2 * [should_limit("a", "ann")] +
                                 2 * [report("a", "ann")]):
            call.send(message)
            until("the end of the call", call.look)
            self.assertEqual(call.replies, b"")
        self.assertEqual(self.call(self.a, LIMIT, should_limit("a", "ann"),
                                   port)[0], OK)
        until_equal("what a took", 1, lambda: self.passed("envoy/a/user=ann"))

    def test_rlqs(self):
        port = self.port("rls")
        self.assertEqual(self.call(self.b, QUOTAS, report("b", "ann"),
                                   port)[0], OK)
        self.assertEqual(self.call(self.b, QUOTAS, report("a", "ann"),
                                   port)[0], PERMISSION_DENIED)
        until_equal("what b took", 5, lambda: self.passed("envoy/b/user=ann"))
        self.assertEqual(self.passed("envoy/a/user=ann"), 0)
        # A report with a denied bucket charges none, in either order. The root
        # receives the last bucket's counts after those of the first.
        self.reload(self.log.read_text, of_b=",take:*/user=may*")
        for users in (("may", "eve"), ("eve", "may")):
            self.assertEqual(self.call(self.b, QUOTAS, report("a", *users),
                                       port)[0], PERMISSION_DENIED)
        self.assertEqual(self.call(self.b, QUOTAS, report("a", "may", "maya"),
                                   port)[0], OK)
        until_equal("the last bucket", 5, lambda:
                    self.passed("envoy/a/user=maya"))
        self.assertEqual(self.passed("envoy/a/user=may"), 5)


class Counted(Sessions):
    """The fleet counts each key with its rate: two rates have two counts."""

    def agent(self, *options):
        return super().agent(*options, "--resp-sharing", "counted")

    def test_keys_by_another_rate(self):
        self.give_b(",take:throttle:5:5/3600s:*")
        a, b = self.session(A), self.session(B)
        self.assertEqual(a.ask("CL.THROTTLE", "a/k", 9, 10, 3600)[2], 9)
        self.assert_denied(b, "CL.THROTTLE", "a/k", 9, 10, 3600)
        self.assertEqual(b.ask("CL.THROTTLE", "a/k", 4, 5, 3600, 4)[2], 1)
        self.assertEqual(a.ask("CL.THROTTLE", "a/k", 9, 10, 3600)[2], 8)
        self.assertIn("out of range",
                      b.ask("CL.THROTTLE", "b/k", 4, 5, 367 * 86400))


if __name__ == "__main__":
    unittest.main(verbosity=2)
