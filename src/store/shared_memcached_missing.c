/* SPDX-License-Identifier: MIT
 * store/shared_memcached_missing.c - replaces shared_memcached.c in a build
 * without libmemcached, and returns an error that says so. */

#include "store/shared_internal.h"

static int missing_memcached_open(struct weir_shared *shared,
                                  struct weir_diag *diag)
{
    (void)shared;
    return weir_diag_put(diag, WEIR_EINVAL,
                         "this Weir was built without libmemcached; build it "
                         "where that is installed, or use redis://HOST:PORT");
}

const struct weir_shared_type weir_shared_memcached = {
    .open = missing_memcached_open,
};
