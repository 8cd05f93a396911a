/* SPDX-License-Identifier: MIT
 * libweir_exact/exact.c - libweir-exact: the stores of store/shared.h behind
 * the interface that libweir loads. */

#include "weir/exact.h"

#include <stdio.h>

#include "libweir/libweir_exact.h"
#include "store/shared.h"

static struct weir_shared *shared_of(struct weir_exact_store *store)
{
    return (struct weir_shared *)store;
}

static int open_exact_store(const struct weir_exact_options *options,
                            struct weir_exact_store **out_store,
                            struct weir_diag *diag)
{
    struct weir_shared_options shared = {
        .uri = options->uri,
        .secrets_file = options->secrets_file,
        .tls_ca = options->tls_ca,
        .prefix = options->prefix,
    };
    struct weir_shared *opened;
    int error = weir_shared_open(&shared, &opened, diag);
    if (error == 0)
        *out_store = (struct weir_exact_store *)opened;
    return error;
}

static void close_exact_store(struct weir_exact_store *store)
{
    weir_shared_close(shared_of(store));
}

static int step_exact_store(struct weir_exact_store *store,
                            struct weir_text key,
                            const struct weir_algorithm_rule *rule,
                            const struct weir_algorithm_ask *ask,
                            struct weir_algorithm_answer *out,
                            weir_duration deadline)
{
    return weir_shared_step(shared_of(store), key, rule, ask, out, deadline);
}

static void exact_store_why(struct weir_exact_store *store, char *buf,
                            size_t size)
{
    struct weir_shared_status status;
    weir_shared_status(shared_of(store), &status);
    snprintf(buf, size, "%s", status.last_error);
}

const struct weir_exact *weir_exact(void)
{
    static const struct weir_exact exact = {
        .version = WEIR_EXACT_VERSION,
        .open = open_exact_store,
        .close = close_exact_store,
        .step = step_exact_store,
        .why = exact_store_why,
    };
    return &exact;
}
