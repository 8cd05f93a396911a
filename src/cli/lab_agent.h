/* SPDX-License-Identifier: MIT
 * cli/lab_agent.h - `weir lab agent`: one limiter of a live run, and its load.
 * Not for people: `weir lab run --live` starts it (lab/live_fleet.c) and talks
 * to it over its standard input and output.
 *
 *     weir lab agent --roots HOST:PORT,… --name NAME --slots N --seed N
 *
 * It reads these lines, and ends when its input does:
 *
 *     load poisson|regular MIN MAX QUOTA   one more source of requests, which
 *                                          weigh MIN to MAX; at first silent
 *     rate I PER_S                         the I-th source (from 0) makes so
 *                                          many requests a second from now on
 *     start INSTANT STEP                   the scenario's begin, and the time
 *                                          between two samples
 *
 * and prints, besides errors (standard error):
 *
 *     ready ROOTS_UP EPOCH
 *                       all its roots are connected, the quotas here; once
 *     sample K ROOTS_UP EPOCH READY REPORTS
 *            {REQUESTS OFFERED PASSED LIMITED FILL}
 *                       the K-th step has ended; for each source its requests
 *                       and their units since it was named, and the fill of
 *                       its quota in the limiter ("nan": not known)
 *
 * Instants are nanoseconds of CLOCK_MONOTONIC, one clock for the whole
 * machine. */

#ifndef WEIR_LAB_AGENT_H
#define WEIR_LAB_AGENT_H

#define WEIR_AGENT_LINE_MAX 512 /* bytes of an input line */

/* argv[0] is "agent". Returns the exit status. */
int weir_cli_lab_agent(int argc, char **argv);

#endif /* WEIR_LAB_AGENT_H */
