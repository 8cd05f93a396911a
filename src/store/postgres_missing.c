/* SPDX-License-Identifier: MIT
 * store/postgres_missing.c - replaces store_postgres.c in a build without
 * libpq, and returns an error that says so. */

#include "store/backend.h"

static int missing_postgres_make(const char *where, struct weir_backend **out,
                                 struct weir_diag *diag)
{
    (void)where;
    (void)out;
    return weir_diag_put(diag, WEIR_EINVAL,
                         "this Weir was built without PostgreSQL; build it "
                         "where libpq is installed, or use sqlite:FILE");
}

const struct weir_backend_type weir_backend_postgres = {
    .scheme = "postgres",
    .example = "postgres://HOST/DATABASE",
    .make = missing_postgres_make,
};
