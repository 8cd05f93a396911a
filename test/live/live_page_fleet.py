#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_page_fleet.py - the page of a root, in a real browser (live_page.py),
with the limit that a fleet of real processes has in common."""

import subprocess
import unittest

from chromium import sees
from live_adaptive import BACKEND
from live_fleet import until
from live_page import Case


class OneForAll(Case):
    """The limit of a whole fleet, and the parts of its processes."""

    def start_process(self, name):
        process = subprocess.Popen(
            [BACKEND, self.root.listen, "db", "32", name],
            stdin=subprocess.PIPE, text=True)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def parts(self, page):
        """[name, part, is left out] of each process."""
        return page.run("""[...document.querySelectorAll(".members li")]
            .map((one) => [one.querySelector(".name").textContent,
              parseFloat(one.querySelector(".number").textContent),
              one.classList.contains("out")])""")

    def test_parts_and_an_outlier(self):
        self.fleet.set("own", "kind=concurrency", "sharing=adaptive")
        self.fleet.set("db", "kind=concurrency", "sharing=adaptive",
                       "scope=fleet", "target=180ms", "max=30")
        page = self.open("own")
        sees(page, "#why", "limit of its own")
        self.assertTrue(page.run("document.getElementById('fleet').hidden"))
        page.run("location.hash = 'db'")
        sees(page, "#fleet", "No process uses it")
        sees(page, "#why", "its part of the fleet's limit")
        self.keep(page, "fleet-empty")
        processes = {name: self.start_process(name)
                     for name in ("one", "two", "far")}
        until("equal parts", lambda: self.parts(page) == [
            ["far", 10, False], ["one", 10, False], ["two", 10, False]])
        page.until("its curves", "weir.detail.fleet.units.data[1].at(-1) === "
                   "30 && weir.detail.fleet.latency.data[1].at(-1) < 0.18 && "
                   "weir.detail.fleet.latency.data[2].at(-1) === 0.18")
        sees(page, ".figures", "30 in flight")
        sees(page, "#fleet .figures", "of 180 ms")
        self.keep(page, "fleet")
        processes["far"].stdin.write("slow 10\n")
        processes["far"].stdin.flush()
        until("the outlier is named", lambda: self.parts(page) == [
            ["far", 10, True], ["one", 10, False], ["two", 10, False]])
        sees(page, ".members", "left out")
        self.keep(page, "fleet-outlier")
        page.set_dark(True)
        self.keep(page, "fleet-dark")
        for process in processes.values():
            process.kill()
        until("no process is left", lambda: self.parts(page) == [])
        self.assertEqual(page.errors(), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
