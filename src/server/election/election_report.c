/* SPDX-License-Identifier: MIT
 * server/election/election_report.c - the reports of an election to its owner,
 * by whichever kind. */

#include <string.h>

#include "server/election/election_internal.h"

void weir_election_kept(struct weir_election *election, uint64_t number,
                        int error, const char *why)
{
    if (election->options.on_kept)
        election->options.on_kept(election->options.context, number, error,
                                  why);
}

void weir_election_report(struct weir_election *election,
                          const struct weir_election_news *news)
{
    weir_assert(!news->is_master || news->term > 0);
    if (election->has_reported && election->was_master == news->is_master &&
        election->last_term == news->term &&
        strcmp(election->last_master, news->master) == 0)
        return;
    weir_assert(strlen(news->master) < sizeof election->last_master);
    election->has_reported = true;
    election->was_master = news->is_master;
    election->last_term = news->term;
    strcpy(election->last_master, news->master);
    struct weir_election_news kept = *news;
    kept.master = election->last_master;
    election->options.on_change(election->options.context, &kept);
}

void weir_election_resigned(struct weir_election *election)
{
    if (election->options.on_resigned)
        election->options.on_resigned(election->options.context);
}
