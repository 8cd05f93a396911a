/* SPDX-License-Identifier: MIT
 * libweir_exact/exact.c - libweir-exact: the stores of store/shared.h behind
 * the interface that libweir loads. */

#include "weir/exact.h"

#include <stdio.h>

#include "libweir/libweir_exact.h"
#include "store/shared.h"

static int open_exact_store(const struct weir_exact_options *options,
                            struct weir_shared **out_shared,
                            struct weir_diag *diag)
{
    struct weir_shared_options shared = {
        .uri = options->uri,
        .secrets_file = options->secrets_file,
        .tls_ca = options->tls_ca,
        .prefix = options->prefix,
    };
    return weir_shared_open(&shared, out_shared, diag);
}

static void exact_store_why(struct weir_shared *shared, char *buf, size_t size)
{
    struct weir_shared_status status;
    weir_shared_status(shared, &status);
    snprintf(buf, size, "%s", status.last_error);
}

const struct weir_exact *weir_exact(void)
{
    static const struct weir_exact exact = {
        .version = WEIR_EXACT_VERSION,
        .open = open_exact_store,
        .close = weir_shared_close,
        .step = weir_shared_step,
        .why = exact_store_why,
    };
    return &exact;
}
