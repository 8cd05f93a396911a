/* SPDX-License-Identifier: MIT
 * front/top_k.h - the top k of all quotas in use. */

#ifndef WEIR_TOP_K_H
#define WEIR_TOP_K_H

#include "core/counted/message.h"
#include "core/quota/quota.h"

/* A limiter that reported more units than it may (max_debt). */
struct weir_used_debtor {
    struct weir_text limiter; /* its name; may be empty */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t units;       /* that fill nothing; 0: there is no such limiter */
    weir_duration silent; /* since its last such report */
};

/* A quota in use. Texts are borrowed until the source's next call. */
struct weir_used_quota {
    struct weir_text name;
    const struct weir_quota *quota; /* its quota or template; NULL: removed */
    double fill;                    /* units */
    uint64_t passed, refused;       /* units since the source first saw it */
    uint32_t limiters;              /* limiters that use it */
    struct weir_used_debtor debtor; /* of of() alone */
};

/* All quotas in use: of a root, or of another source. */
struct weir_usages {
    void *context;
    /* How many there are, at most. */
    size_t (*count)(void *context);
    /* Walks them: start with '*cursor' 0; false at the end. */
    bool (*next)(void *context, size_t *cursor, struct weir_used_quota *out,
                 weir_instant now);
    /* The quota in use of that name; false: there is none. */
    bool (*of)(void *context, struct weir_text name,
               struct weir_used_quota *out, weir_instant now);
    /* Fills in a usage of next(), which may be a little old and without its
     * quota. Call it before the next next(). NULL: usages are complete. */
    void (*complete)(void *context, struct weir_used_quota *usage,
                     weir_instant now);
};

/* A quota in use, copied. */
struct weir_busy {
    char name[WEIR_NAME_MAX + 1]; /* NUL-terminated, as in its set */
    size_t name_len;
    double fill;      /* units */
    uint64_t passed;  /* units */
    uint64_t refused; /* units */
    uint32_t limiters;
    bool removed; /* the quota is gone: mode, limit and high are undefined */
    bool adaptive;
    enum weir_mode mode;
    struct weir_limit limit;
    uint64_t high; /* high_burst in units; 0: unlimited */
    uint64_t rank; /* the key of the choice */
};

enum weir_rank {
    WEIR_RANK_OFFERED, /* passed and refused together */
    WEIR_RANK_REFUSED, /* refused, then passed */
};

void weir_busy_of(const struct weir_used_quota *usage, struct weir_busy *out);
/* "shadow", as in quotas; static. NULL: not a mode. */
const char *weir_mode_word(enum weir_mode mode);
/* The same; NULL when the quota is gone. */
const char *weir_busy_mode(const struct weir_busy *busy);

struct weir_busy_query {
    enum weir_rank rank;
    struct weir_text match; /* absent: all */
    bool shadow;            /* the shadow set's, else the live one's */
    size_t max;
};
/* Fills 'out' with at most 'max' quotas of the set with matching names, highest
 * rank first. Returns how many; '*out_used' is how many of the set are in use.
 * O(used * log max). */
size_t weir_top_k(const struct weir_usages *usages,
                  const struct weir_busy_query *query, struct weir_busy *out,
                  size_t *out_used, weir_instant now);

/* One of several choices that one walk makes. */
struct weir_busy_choice {
    struct weir_busy_query query;
    struct weir_busy *out; /* query.max of them; borrowed */
    size_t count, used;    /* out: as weir_top_k() returns */
};
void weir_top_k_of_all(const struct weir_usages *usages,
                       struct weir_busy_choice *choices, size_t count,
                       weir_instant now);

#endif /* WEIR_TOP_K_H */
