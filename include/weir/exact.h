/* SPDX-License-Identifier: MIT
 * exact.h - exact quotas: a Redis, a Valkey or a memcached counts them.
 *
 * libweir speaks to roots only, so that a service without exact quotas loads no
 * library of a store. A service with exact quotas also links libweir-exact
 * (pkg-config: weir-exact) and sets
 *
 *     struct weir_options options = WEIR_OPTIONS_INIT;
 *     options.exact = weir_exact();
 *     options.exact_secrets_file = "/etc/weir/stores";
 *
 * Without it an exact quota goes by its on_stale, and an event says so. */

#ifndef WEIR_EXACT_H
#define WEIR_EXACT_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For options.exact; never NULL, and the same at each call. Both libraries must
 * be of one version: weir_open() refuses any other with WEIR_EINVAL.
 * Wait-free. */
WEIR_API const struct weir_exact *weir_exact(void);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_EXACT_H */
