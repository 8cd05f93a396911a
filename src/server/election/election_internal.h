/* SPDX-License-Identifier: MIT
 * server/election/election_internal.h - shared by the kinds of elections: each
 * is a part behind a few functions. */

#ifndef WEIR_ELECTION_INTERNAL_H
#define WEIR_ELECTION_INTERNAL_H

#include "server/election/election.h"

/* Each gets the part that 'make' made. */
struct weir_election_methods {
    bool (*holds)(void *part);
    void (*resign)(void *part); /* weir_election_resigned() follows, not in
                                 * it */
    void (*free)(void *part);
    /* NULL: there is no place for a number. weir_election_kept() follows. */
    void (*keep)(void *part, uint64_t number);
};

/* The part of an election that its kind may use; its options are copied, the
 * texts in them too. */
struct weir_election {
    struct weir_election_options options;
    const struct weir_election_methods *methods;
    void *part; /* owned, by its methods */
    bool has_reported;
    bool was_master; /* the last report */
    uint64_t last_term;
    char last_master[256];
    struct weir_address endpoints[WEIR_ETCD_ENDPOINTS_MAX];
    char *texts[6]; /* owned, the texts of the options */
};

/* The constructors of the kinds set the part and its methods. The errors of
 * weir_election_new(). */
int weir_election_make_file(struct weir_election *election,
                            struct weir_diag *diag);
int weir_election_make_etcd(struct weir_election *election,
                            struct weir_diag *diag);

/* The kinds' reports to the owner, from the loop only: the news, if they
 * differ; that the resignation is over; the result of methods.keep(). */
void weir_election_report(struct weir_election *election,
                          const struct weir_election_news *news);
void weir_election_resigned(struct weir_election *election);
void weir_election_kept(struct weir_election *election, uint64_t number,
                        int error, const char *why);

#endif /* WEIR_ELECTION_INTERNAL_H */
