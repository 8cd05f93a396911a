/* SPDX-License-Identifier: MIT
 * agent/agent_page.h - the agent's own limiter, as a source of views
 * (front/view.h). One thread. */

#ifndef WEIR_CLI_AGENT_PAGE_H
#define WEIR_CLI_AGENT_PAGE_H

#include "protocol/http_take/http_take.h"

struct weir_agent_page;

/* 'weir' is borrowed. 'name', which is shown, is copied; NULL: the host's.
 * NULL: no memory. */
struct weir_agent_page *weir_agent_page_new(struct weir *weir, const char *name,
                                            weir_instant now);
/* NULL inside is legal. */
void weir_agent_page_free(struct weir_agent_page **page);
/* For weir_http_take_new(); lives as long as the page. */
const struct weir_http_take_views *weir_agent_page_views(
    const struct weir_agent_page *page);
/* Call it about each second. */
void weir_agent_page_tick(struct weir_agent_page *page, weir_instant now);

#endif /* WEIR_CLI_AGENT_PAGE_H */
