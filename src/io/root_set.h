/* SPDX-License-Identifier: MIT
 * io/root_set.h - the addresses at which roots are known, and which of them a
 * limiter's links use.
 *
 * Pure: root_links.c has the sockets and asks for names; a test has neither.
 * docs/design/roots-by-name.md has the rules and their reasons. */

#ifndef WEIR_ROOT_SET_H
#define WEIR_ROOT_SET_H

#include "core/counted/message.h"
#include "io/address.h"

#define WEIR_ROOT_ADDRESSES_MAX 64 /* known at once; of more, the best ranked */
#define WEIR_ROOT_NONE UINT32_MAX

/* An address of a root. */
struct weir_root_place {
    struct weir_address address; /* numeric; or a name without answer yet */
    bool used;                   /* else the rest means nothing */
    bool is_name;
    uint32_t listed;  /* bits: the names, or addresses, given that mean it */
    uint32_t link;    /* that uses it; NONE: none does */
    uint32_t same_as; /* another link leads to the same root; NONE: none, as far
                       * as is known */
    uint64_t turn;    /* its last try, of all that failed; 0: none since it was
                       * connected, or since a retry */
    uint64_t rank;    /* a hash of the address: the higher, the sooner used */
};

struct weir_root_set {
    uint32_t links; /* 1 .. WEIR_ROOTS_MAX */
    uint64_t turns; /* tries that failed */
    struct weir_root_place place[WEIR_ROOT_ADDRESSES_MAX];
    struct {
        uint32_t place; /* NONE: unused */
        bool up;        /* connected … */
        bool met;       /* … now, or before and not failed since, to this
                         * root: */
        uint8_t root[WEIR_INCARNATION_SIZE];
    } link[WEIR_ROOTS_MAX];
};

void weir_root_set_init(struct weir_root_set *set, uint32_t links);

/* The names and addresses that a limiter was given have the numbers 0 .. 31.
 * Sets what number 'given' means: an address, or a name, which takes the place
 * of its addresses until the first answer. */
void weir_root_set_give(struct weir_root_set *set, uint32_t given,
                        const struct weir_address *address, bool is_name);
/* A name was answered: these are its addresses now, all numeric; at least
 * one. */
void weir_root_set_answer(struct weir_root_set *set, uint32_t given,
                          const struct weir_address *addresses, size_t count);

/* A link is connected, or is no longer. */
void weir_root_set_up(struct weir_root_set *set, uint32_t link, bool up);
/* A link could not be connected: the place goes behind the others, and which
 * root it led to is forgotten. */
void weir_root_set_failed(struct weir_root_set *set, uint32_t link);
/* A connected link's root has named its incarnation. Returns the other
 * connected link that leads to this root, or WEIR_ROOT_NONE. */
uint32_t weir_root_set_meet(struct weir_root_set *set, uint32_t link,
                            const uint8_t root[WEIR_INCARNATION_SIZE]);
/* Takes the place of 'link', which leads to the root of link 'other', from
 * it. */
void weir_root_set_merge(struct weir_root_set *set, uint32_t link,
                         uint32_t other);

/* Places that could not be connected count as those never tried: they may have
 * a root again. To be called now and then. */
void weir_root_set_retry(struct weir_root_set *set);

/* Gives places to links. Returns a bit for each link that has another place
 * than before, or none any more. A connected link loses its place only if all
 * links are connected, so one at a time: to a place that waits, if no name has
 * its own any more, or if the other has a higher rank and its last try didn't
 * fail. */
uint32_t weir_root_set_plan(struct weir_root_set *set);

/* Listed places that wait for a link. */
uint32_t weir_root_set_waiting(const struct weir_root_set *set);
/* The place of a link; NULL: it has none. */
const struct weir_root_place *weir_root_set_place(
    const struct weir_root_set *set, uint32_t link);

#endif /* WEIR_ROOT_SET_H */
