/* SPDX-License-Identifier: MIT
 * agent/agent_loop.h - runs the listeners of an agent in front of a limiter. */

#ifndef WEIR_AGENT_LOOP_H
#define WEIR_AGENT_LOOP_H

#include "agent/agent_rls.h"
#include "front/exposure.h"

/* All texts are borrowed; NULL: the option wasn't given. */
struct weir_agent_options {
    struct weir_agent_addresses http, resp;
    struct weir_agent_rls_options rls;
    const char *resp_keys, *resp_sharing;
    struct weir_exposure reach;
    const char *name, *port_file, *public_origin;
};

/* Opens the listeners and runs until SIGTERM or SIGINT; all is borrowed. 0, or
 * an error of the start, with 'diag' filled. */
int weir_agent_run(const struct weir_agent_options *options, struct weir *weir,
                   struct weir_log *log, struct weir_diag *diag);

#endif /* WEIR_AGENT_LOOP_H */
