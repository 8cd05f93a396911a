#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attack.py - runs one attack against a root or an agent of its own and prints
its effect.

    attack.py --list
    attack.py NAME [--variant V] [--against root|agent] [--listener L] [--tls]
        [--connections N] [--source ADDRESS] [--rate BYTES] [--seconds N]
        [--json]

It runs the programs that `ninja -C build weir test/live_load` builds;
WEIR_BUILD names another build directory. Its exit status is 1 if a bound is
broken that must hold while an attack runs: /healthz answers at p99 below 50 ms,
the quota passes its limit give or take 5 %, memory stays below a stated figure.
(The attack 'liar' may break the quota's bound, for max_debt.) Its exit status
is 2 if it can't run the attack. Attackers, prober and the attacked process
share this machine's processors: the figures need more than one or two."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("WEIR_SOURCE", str(Path(__file__).parents[2]))
os.environ.setdefault("WEIR_BUILD", os.environ["WEIR_SOURCE"] + "/build")

import attacks  # noqa: E402
from field import LIMIT, SLOW, Field  # noqa: E402
from live_fleet import BUILD, LOAD, WEIR  # noqa: E402

P99_MAX_MS = 50 * SLOW
PASSED_OFF = 0.05 * SLOW  # of the limit


def broken(said):
    """The bounds that the measurements break."""
    found = []
    if said["unanswered"] or said["p99_ms"] >= P99_MAX_MS:
        found.append(f"/healthz: p99 {said['p99_ms']} ms, "
                     f"{said['unanswered']} of {said['asked']} unanswered; "
                     f"expected less than {P99_MAX_MS} ms, and none")
    if abs(said["passed_mean"] - LIMIT) > PASSED_OFF * LIMIT:
        found.append(f"the quota passed {said['passed_mean']}/s; expected "
                     f"{LIMIT}/s give or take {PASSED_OFF:.0%}")
    if SLOW == 1 and said["rss_max_mb"] >= said["rss_bound_mb"]:
        found.append(f"memory: {said['rss_max_mb']} MB; expected less than "
                     f"{said['rss_bound_mb']} MB")
    return found


def measure(name, against, tls, seconds, variant=None, listener=None, **more):
    """Runs the attack for so long; returns the measurements."""
    field = Field(against, tls)
    try:
        start = field.mark()
        attackers = field.attack(name, variant, listener, **more)
        time.sleep(seconds)
        return field.measure(start, time.monotonic(), attackers) | {
            "rss_bound_mb": field.memory_max(name) >> 20}
    finally:
        field.close()


def listing():
    for name, attack in attacks.ATTACKS.items():
        print(f"{name}: {attack.about}\n    variants: "
              f"{', '.join(attack.variants)}\n    listeners: " + "; ".join(
                  f"{against}: {', '.join(listeners)}" for
                  against, listeners in attack.listeners.items()) + "\n")


def obstacle(asked):
    """Why the attack can't run, and a remedy; None: it can."""
    attack = attacks.ATTACKS[asked.name]
    listeners = attack.listeners.get(asked.against, [])
    for option, value, known in [
            ("against", asked.against, list(attack.listeners)),
            ("listener", asked.listener, listeners),
            ("variant", asked.variant, attack.variants)]:
        if value is not None and value not in known:
            return (f"{asked.name} has no --{option} {value}: use "
                    f"{' or '.join(known)}")
    for program in WEIR, LOAD:
        if not Path(program).exists():
            return (f"there is no {program}: build it by "
                    f"`ninja -C {BUILD} weir test/live_load`")
    return None


def main():
    parser = argparse.ArgumentParser(
        usage=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", nargs="?", choices=list(attacks.ATTACKS))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--variant")
    parser.add_argument("--against", choices=["root", "agent"],
                        default="root")
    parser.add_argument("--listener")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--connections", type=int)
    parser.add_argument("--source")
    parser.add_argument("--rate", type=int)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.list or not asked.name:
        listing()
        return 0
    if why := obstacle(asked):
        parser.exit(2, f"attack.py: {why}\n")
    more = {key: value for key, value in
            (("connections", asked.connections), ("source", asked.source),
             ("rate", asked.rate)) if value is not None}
    said = measure(asked.name, asked.against, asked.tls, asked.seconds,
                   asked.variant, asked.listener, **more)
    print(json.dumps(said) if asked.json else
          "\n".join(f"{key:14} {value}" for key, value in said.items()))
    found = broken(said)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
