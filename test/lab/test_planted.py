#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_planted - checks the swarm's checkers: bugs planted in the product must
be caught by the swarm (test_swarm), each by the checker of its domain.

A bug is a substitution in one source file. That file alone is compiled, with
the build's command, and linked before the libraries that hold the sound one.
The swarm then runs seed after seed until the checker reports the bug. A bug
that survives fails the test, and so does a text that is no longer in its file:
then write the code's new text here.

    test_planted.py            all of them
    test_planted.py 3 7        these, numbered as printed
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(os.environ.get("WEIR_SOURCE", "."))
BUILD = Path(os.environ.get("WEIR_BUILD", "build"))
PROGRAM = "test/test_swarm"
# Seeds are tried in such spans; most bugs are caught in the first.
SPANS = ["1..5", "6..30", "31..100", "101..600", "601..1500"]

# Checkers of adaptive fleets; the others are of counted quotas.
ADAPTIVE = ["parts", "stops", "busy", "recovery"]

# Description, checker that must report it, file, text, replacement.
BUGS = [
    ("a report that comes again is counted again", "conservation",
     "src/core/node/root.c",
     "        root->stats.reports_repeated++;\n",
     "        root->stats.reports_repeated++;\n"
     "        take_report_counts(root, index, report, now);\n"),
    ("of many units one is lost in a root's bucket", "conservation",
     "src/core/counted/merge_bucket.c",
     "    root_quota->added += (uint64_t)units;\n",
     "    units -= units > 8;\n    root_quota->added += (uint64_t)units;\n"),
    ("units counted after the report are taken for answered",
     "conservation", "src/core/counted/tally_answer.c",
     "        cell->acked = cell->sent;\n",
     "        cell->acked = weir_table_count(tally->table, slot);\n"),
    ("a report is sent again with more in it", "conservation",
     "src/core/counted/tally_report.c",
     "    if (!again) {\n        draw_up(",
     "    if (again)\n        cell->sent = view.count;\n"
     "    if (!again) {\n        draw_up("),
    ("a limiter that comes back is counted from what it knows",
     "conservation", "src/core/counted/merge.c",
     "    if (!known || raises)\n",
     "    (void)raises;\n"),
    ("late counts put a fleet into debt", "conservation",
     "src/core/counted/merge_bucket.c",
     "    if (late) {\n", "    if (late && false) {\n"),
    ("an edit empties a root's bucket", "conservation",
     "src/core/counted/merge.c",
     "weir_fill_edited(weir_root_quota_rescaled(root_quota, fill, from)",
     "weir_fill_edited(weir_root_quota_rescaled(root_quota, 0, from)"),
    ("a limit that is lowered leaves all that is used", "conservation",
     "src/core/counted/merge.c",
     "root_quota->bucket.high);\n    /* Presumed",
     "WEIR_SCALED_MAX);\n    /* Presumed"),
    ("an edit leaves any debt", "conservation",
     "src/core/counted/merge.c",
     "weir_root_quota_edited_most(root_quota));",
     "weir_root_quota_fill_most(root_quota));"),
    ("a limiter has a hundredth of its debt", "conservation",
     "src/core/counted/merge.c",
     " root_quota->debt_most - debt -",
     " root_quota->debt_most / 100 - debt -"),
    ("roots give eight times the slack", "unseen_bound",
     "src/core/counted/slack.c", "(root_fill->room / 2 - ",
     "(root_fill->room * 4 - "),
    ("a root presumes no unit that passed while a report travelled",
     "unseen_bound", "src/core/node/root.c",
     "    taken.lead = since_echo(root, report->echo, now);\n",
     "    taken.lead = 0;\n"),
    ("limiters don't stop", "unseen_bound", "src/core/counted/tally_stop.c",
     "count + (uint64_t)in.stop_in",
     "count + (uint64_t)(in.stop_in < 0 ? 0 : WEIR_COUNT_FAR)"),
    ("a limiter takes the smallest fill", "agreement",
     "src/core/counted/tally_stop.c", "? fill <= most_fill",
     "? fill >= most_fill"),
    ("a fill is taken without the units counted since", "agreement",
     "src/core/counted/tally_stop.c", "(uint64_t)fill + own - leaked",
     "(uint64_t)fill + 0 * own - leaked"),
    ("an unanswered report is not sent again", "agreement",
     "src/core/node/limiter.c",
     "    if (limiter->tally.link[index].unanswered)\n"
     "        return link->sent_at + link->resend;\n",
     "    if (limiter->tally.link[index].unanswered)\n"
     "        return WEIR_NEVER;\n"),
    ("roots push nothing", "agreement", "src/core/counted/slack.c",
     "if (cell_moved(", "if (false && cell_moved("),
    ("an epoch goes back", "epochs", "src/core/node/limiter_quotas.c",
     "    if (quotas->epoch > limiter->epoch)\n        limiter->epoch",
     "    limiter->epoch"),
    ("a gap in the quotas is ignored", "epochs",
     "src/core/node/limiter_quotas.c",
     "    if (quotas->from > limiter->epoch)\n", "    if (false)\n"),
    ("a removed quota stays", "epochs", "src/core/node/limiter_quotas.c",
     "        error =\n"
     "            weir_table_drop_unruled(limiter->table,"
     " change->quota.name, now);\n",
     "        error = WEIR_OK;\n"),
    ("a chain charges all but its leaf", "verdicts",
     "src/core/table/link_bucket.c",
     "    if (WEIR_LIKELY(!(walk->skip >> i & 1))) {\n",
     "    if (!(walk->skip >> i & 1) && (i > 0 || walk->links == 1)) {\n"),
    ("the band refuses the more the emptier it is", "verdicts",
     "src/core/table/link_bucket.c", "!weir_band_refuses(",
     "weir_band_refuses("),
    ("a bucket may go one weight above high", "verdicts",
     "src/core/table/link_bucket.c",
     "    if (excess(read, ask) > 0)\n        return false;\n",
     "    if (filled(read) > read->high)\n        return false;\n"),
    ("a doubled message is refused", "bounds",
     "src/core/counted/tally_answer.c",
     "return WEIR_OK; /* doubled",
     "return WEIR_EPROTOCOL; /* doubled"),
    # Of adaptive fleets.
    ("a lease pool leases out what another holder has", "parts",
     "src/core/leased/lease_pool_share.c",
     "    double free = capacity_of(b, now) - (total(&b->out) - h->out);\n"
     "    return",
     "    double free = capacity_of(b, now);\n    return"),
    ("a gate ignores a lowered part", "parts",
     "src/core/node/limiter_lease.c",
     "                     : weir_table_set_lease(limiter->table, place->slot,"
     " limit,\n",
     "        : limit < holder->in_use ? true\n"
     "                     : weir_table_set_lease(limiter->table, place->slot,"
     " limit,\n"),
    ("a master leases out more than the controller found", "parts",
     "src/core/node/root_adaptive.c",
     "    return fleet->learning ? weir_larger(limit, fleet->shown) : limit;\n",
     "    return fleet->learning ? weir_larger(limit, fleet->shown)"
     " : limit + 1;\n"),
    ("a gate keeps its last permit back", "stops",
     "src/core/concurrency/concurrency_gate.c",
     "        if (in_flight + units <= limit >> FRACTION_BITS) {\n",
     "        if (in_flight + units < limit >> FRACTION_BITS) {\n"),
    ("a process that is rarely used has no part", "stops",
     "src/core/leased/lease_holder.c",
     "use->fractions ? WEIR_LEASE_HOLDER_LEAST : 0;", "0;"),
    ("a holder asks once", "recovery", "src/core/leased/lease_holder.c",
     "    holder->due_at ="
     " weir_after(now, spread_by_eighth(holder, refresh));\n",
     "    holder->due_at = weir_after(now, 9999 * WEIR_SECOND);\n"),
    ("a master learns nothing from windows", "recovery",
     "src/core/node/root_adaptive.c",
     "    (void)weir_fleet_limit_take(fleet->limit, grant->holder,"
     " grant->capacity,\n"
     "                                batch, now);\n",
     "    (void)batch, (void)grant;\n"),
    ("a limiter looks at its leases all the time", "busy",
     "src/core/node/limiter_lease.c",
     "        leases->look_at = now + LOOK_EVERY;\n",
     "        leases->look_at = now + 1000;\n"),
]


def commands():
    """(file -> command that compiles it, command that links the program)"""
    compiles = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = (Path(entry["directory"]) / entry["file"]).resolve()
        compiles[path] = entry["command"]
    printed = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", PROGRAM],
                             check=True, capture_output=True, text=True)
    return compiles, printed.stdout.rstrip().splitlines()[-1]


COMPILES, LINK = commands()


def build(bug, folder):
    _, _, name, text, becomes = bug
    path = (SOURCE / name).resolve()
    sound = path.read_text()
    if sound.count(text) != 1:
        return f"{name}: this is there {sound.count(text)} times:\n{text}"
    planted = folder / path.name
    planted.write_text(sound.replace(text, becomes))
    command = shlex.split(COMPILES[path])
    command[command.index("-o") + 1] = str(folder / "planted.o")
    command[-1] = str(planted)
    # Compiling the file takes longer than running it.
    command += ["-w", "-O0", "-g0", "-I", str(path.parent)]
    run = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
    if run.returncode == 0:
        link = shlex.split(LINK)
        at = link.index("-o")
        link[at + 1] = str(folder / "swarm")
        link.insert(at + 2, str(folder / "planted.o"))
        run = subprocess.run(link, cwd=BUILD, capture_output=True, text=True)
    return run.stderr if run.returncode != 0 else None


def judge(bug):
    """(a line for people, whether the bug's checker caught it)"""
    what, checker = bug[0], bug[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trouble = build(bug, folder)
        if trouble:
            return f"{what}: can't be planted\n{trouble}", False
        others = set()
        for span in SPANS:
            kind = "adaptive" if checker in ADAPTIVE else "counted"
            swarm = subprocess.run(
                [folder / "swarm"], capture_output=True, text=True,
                errors="replace",
                env=os.environ | {"WEIR_SEEDS": span, "WEIR_SWARM": kind})
            said = re.findall(r"^seed (\d+), event \d+: (\w+): (.*)",
                              swarm.stdout + swarm.stderr, re.MULTILINE)
            for seed, by, why in said:
                if by == checker:
                    return f"{what}: caught by {by}, seed {seed}: {why}", True
                others.add(by)
        return (f"{what}: SURVIVES {checker}"
                f" (caught by: {', '.join(sorted(others)) or 'nobody'})",
                False)


def main():
    chosen = [int(number) for number in sys.argv[1:]]
    bugs = [(i, bug) for i, bug in enumerate(BUGS, 1)
            if not chosen or i in chosen]
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(judge, [bug for _, bug in bugs])
        for (number, _), (line, well) in zip(bugs, results):
            print(f"{number:2} {line}", flush=True)
            survivors += not well
    print(f"{len(bugs) - survivors} of {len(bugs)} planted bugs were caught")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
