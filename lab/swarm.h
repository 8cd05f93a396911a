/* SPDX-License-Identifier: MIT
 * lab/swarm.h - random scenarios with random faults, each made from one number:
 * small fleets under every kind of fault and all checkers. */

#ifndef WEIR_SWARM_H
#define WEIR_SWARM_H

#include "lab/scenario.h"

/* The scenario of that seed: the same on any machine and compiler. Never
 * NULL. */
struct weir_scenario *weir_swarm_scenario(uint64_t seed);
/* Whether that is an adaptive fleet, as one of four is; else counted quotas. */
bool weir_swarm_is_adaptive(uint64_t seed);

#endif /* WEIR_SWARM_H */
