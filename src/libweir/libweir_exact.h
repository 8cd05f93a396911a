/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact.h - how libweir calls libweir-exact: stores, by a table
 * of functions. It is not installed: both libraries are built of one tree, and
 * 'version' shows whether they were. */

#ifndef WEIR_LIBWEIR_EXACT_H
#define WEIR_LIBWEIR_EXACT_H

#include "core/algorithm/algorithm.h"

#define WEIR_EXACT_VERSION 3
#define WEIR_EXACT_PREFIX_MAX 64 /* bytes, as the stores have it */

struct weir_shared; /* an open store */

struct weir_exact_options {
    const char *uri;
    const char *secrets_file; /* NULL: none */
    const char *tls_ca;       /* NULL: the system's */
    const char *prefix;       /* of keys; NULL: the default of store/shared.h */
};

/* See the functions in store/shared.h. */
struct weir_exact {
    uint32_t version; /* WEIR_EXACT_VERSION */
    int (*open)(const struct weir_exact_options *options,
                struct weir_shared **out_shared, struct weir_diag *diag);
    void (*close)(struct weir_shared *shared);
    int (*step)(struct weir_shared *shared, struct weir_text key,
                const struct weir_algorithm_rule *rule,
                const struct weir_algorithm_ask *ask,
                struct weir_algorithm_answer *out, weir_duration deadline);
    /* Why the store doesn't answer, for people; NUL-terminated, maybe empty. */
    void (*why)(struct weir_shared *shared, char *buf, size_t size);
};

#endif /* WEIR_LIBWEIR_EXACT_H */
