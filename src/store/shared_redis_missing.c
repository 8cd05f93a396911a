/* SPDX-License-Identifier: MIT
 * store/shared_redis_missing.c - replaces shared_redis.c in a build without
 * hiredis, and returns an error that says so. */

#include "store/shared_internal.h"

static int missing_redis_open(struct weir_shared *shared,
                              struct weir_diag *diag)
{
    (void)shared;
    return weir_diag_put(diag, WEIR_EINVAL,
                         "this Weir was built without hiredis; build it where "
                         "that is installed, or use memcached://HOST:PORT");
}

const struct weir_shared_type weir_shared_redis = {
    .open = missing_redis_open,
};
