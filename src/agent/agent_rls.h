/* SPDX-License-Identifier: MIT
 * agent/agent_rls.h - Envoy's rate limit service of `weir agent`: its options,
 * the file of limits, read again as it changes, and its own listeners; the HTTP
 * listener has it at /json. One thread, that of the loop. */

#ifndef WEIR_AGENT_RLS_H
#define WEIR_AGENT_RLS_H

#include "front/log.h"
#include "protocol/rls/rls_listener.h"

#define WEIR_AGENT_ADDRESSES_MAX 4 /* listen addresses of one protocol */

/* As the command line has them, "HOST:PORT" or "unix:PATH"; borrowed. */
struct weir_agent_addresses {
    const char *items[WEIR_AGENT_ADDRESSES_MAX];
    size_t count;
};

struct weir_agent_rls_options {
    struct weir_agent_addresses addresses;
    const char *config;  /* NULL: none */
    const char *headers; /* NULL: none; "limit", "ietf", "none" */
    bool shadow;
};

struct weir_agent_rls;

/* Whether the options have more than listen addresses. */
bool weir_agent_rls_is_asked(const struct weir_agent_rls_options *options);
/* Opens the listeners at 'places', as many as the options have, perhaps none.
 * All is borrowed. 0, or an error with 'diag' filled. */
int weir_agent_rls_open(const struct weir_protocol_host *host,
                        const struct weir_agent_rls_options *options,
                        const struct weir_listen_address *places,
                        const struct weir_log *log, struct weir_agent_rls **out,
                        struct weir_diag *diag);
/* The service that answers; NULL if 'rls' is. */
struct weir_rls_service *weir_agent_rls_service(struct weir_agent_rls *rls);
/* Call it each second; 'all': reads unchanged files too. A file that can't be
 * read is logged, and the previous limits stay. NULL is legal. */
void weir_agent_rls_look(struct weir_agent_rls *rls, bool all);
/* Credentials were read again. NULL is legal. */
void weir_agent_rls_recheck(struct weir_agent_rls *rls);
/* The listen address of the i-th listener; NULL: there is none. */
const struct weir_listen_address *weir_agent_rls_address(
    const struct weir_agent_rls *rls, size_t i);
/* NULL inside is legal. */
void weir_agent_rls_close(struct weir_agent_rls **rls);

#endif /* WEIR_AGENT_RLS_H */
