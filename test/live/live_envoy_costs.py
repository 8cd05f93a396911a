#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_envoy_costs.py - Envoy's rate limit service by envoyproxy's Go client:
requests of several hits, and costs that are charged after a peek."""

import unittest

from live_envoy import WINDOWS, ClientCase, code, codes, entries


class Costs(ClientCase):
    def test_denied_hits(self):
        """Requests of two hits each, for more than the limit: what the bucket
        gains isn't used up by those that are denied."""
        self.set_quota("envoy/w/a=1", "limit=20/s", "high_burst=20",
                       "algorithm=token_bucket")
        client = self.client("--rls-headers", "none")
        passed = 0
        # A peek, as of a page, is no reason to charge all that is denied.
        self.assertEqual(code(client.ask(entries(("a", "1"), hits_addend=0),
                                         domain="w")), "OK")

        def ask():
            nonlocal passed
            passed += code(client.ask(entries(("a", "1"), hits_addend=2),
                                      domain="w")) == "OK"
            return passed >= 30
        self.until("three times the burst", ask)

    def test_costs(self):
        """The token quotas of the original's examples: two a minute."""
        service = [("service", "x")]

        def said(hits):
            answer = client.ask(entries(*service, hits_addend=hits),
                                domain="tokens")
            status = answer[0]["statuses"][0]
            return code(answer), status.get("limit_remaining", 0)

        limits = ("domain: tokens\ndescriptors:\n- key: service\n"
                  "  rate_limit: {unit: day, requests_per_unit: 2}\n")
        self.file.write_text(limits)
        for options in (), WINDOWS:
            made = self.weir("quota", "import", "--from", "envoy", *options,
                             self.file)
            self.assertEqual(made.returncode, 0, made.stderr)
            client = self.client()
            self.assertEqual([said(hits) for hits in (0, 1, 0, 1, 0, 1, 0, 1)],
                             [("OK", 2), ("OK", 1), ("OK", 1), ("OK", 0),
                              ("OK", 0), ("OVER_LIMIT", 0), ("OVER_LIMIT", 0),
                              ("OVER_LIMIT", 0)], options)
            self.agent.end()

    def test_costs_of_many_keys(self):
        """Each of a hundred sets of keys is remembered, and the hits may be
        the request's."""
        keys = [f"key{i}" for i in range(100)]
        self.file.write_text("domain: many\ndescriptors:\n" + "".join(
            f"- {{key: {key}, value: x, rate_limit: "
            "{unit: day, requests_per_unit: 100}}\n" for key in keys))
        made = self.weir("quota", "import", "--from", "envoy", self.file)
        self.assertEqual(made.returncode, 0, made.stderr)
        client = self.client()
        peeks = [entries((key, "x"), hits_addend=0) for key in keys]
        costs = [[(key, "x")] for key in keys]
        for verdict in "OK", "OK", "OVER_LIMIT":
            self.assertEqual(codes(client.ask(*peeks, domain="many")),
                             [verdict] * 100)
            client.ask(*costs, domain="many", hits_addend=60)


if __name__ == "__main__":
    unittest.main()
