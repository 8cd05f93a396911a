/* SPDX-License-Identifier: MIT
 * store/postgres_missing.c - replaces store_postgres.c in a build without
 * libpq, and returns an error that says so. */

#include "store/backend.h"

static int refuse_postgres(struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_EINVAL,
                         "this Weir was built without PostgreSQL; build it "
                         "where libpq is installed, or use sqlite:FILE",
                         NULL);
}

static int missing_postgres_open(const char *where, struct weir_backend **out,
                                 struct weir_diag *diag)
{
    (void)where;
    (void)out;
    return refuse_postgres(diag);
}

static int missing_postgres_upgrade(const char *where, unsigned *out_from,
                                    struct weir_diag *diag)
{
    (void)where;
    (void)out_from;
    return refuse_postgres(diag);
}

const struct weir_backend_type weir_backend_postgres = {
    .scheme = "postgres",
    .example = "postgres://HOST/DATABASE",
    .create = missing_postgres_open,
    .open = missing_postgres_open,
    .upgrade = missing_postgres_upgrade,
};
