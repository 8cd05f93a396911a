/* SPDX-License-Identifier: MIT
 * agent/agent_events.h - the events of an agent's limiter, for its log. */

#ifndef WEIR_AGENT_EVENTS_H
#define WEIR_AGENT_EVENTS_H

#include "front/log.h"

struct weir;

/* Logs the events that wait. */
void weir_agent_log_events(struct weir *weir, struct weir_log *log);

#endif /* WEIR_AGENT_EVENTS_H */
