/* SPDX-License-Identifier: MIT
 * server/election_private.h - what the kinds of elections have in common:
 * each is a part behind a few functions. */

#ifndef WEIR_ELECTION_PRIVATE_H
#define WEIR_ELECTION_PRIVATE_H

#include "server/election.h"

/* Each takes what its 'make' gave. */
struct weir_election_methods {
    bool (*holds)(void *part);
    void (*resign)(void *part); /* later weir_election_resigned(), not in it */
    void (*free)(void *part);
    /* NULL: there is no place for it. Then weir_election_kept(). */
    void (*keep)(void *part, uint64_t number);
};

/* What a part may look at and call; its options are copied, the texts in them
 * too. */
struct weir_election {
    struct weir_election_options options;
    const struct weir_election_methods *methods;
    void *part; /* owned, by its methods */
    bool is_told;
    bool was_master; /* what was told last */
    uint64_t last_term;
    char last_master[256];
    struct weir_address endpoints[WEIR_ETCD_ENDPOINTS_MAX];
    char *texts[6]; /* owned, what the options point to */
};

/* Makes of a kind: the part and its methods into the election. The errors of
 * weir_election_new(). */
int weir_election_make_file(struct weir_election *election,
                            struct weir_diag *diag);
int weir_election_make_etcd(struct weir_election *election,
                            struct weir_diag *diag);

/* Tells the owner, if it is news. From the loop only. */
void weir_election_tell(struct weir_election *election,
                        const struct weir_election_news *news);
void weir_election_resigned(struct weir_election *election);
void weir_election_kept(struct weir_election *election, uint64_t number,
                        int error, const char *why);

#endif /* WEIR_ELECTION_PRIVATE_H */
