/* SPDX-License-Identifier: MIT
 * wire/rls_name.h - how a descriptor of Envoy's is called as a quota.
 *
 *     domain "shop", [("path", "/cart"), ("user", "ann")]
 *     envoy/shop/path=%2Fcart/user=ann
 *
 * Each descriptor has one name, and different ones have different names: what
 * would be read as something else ('/', '%', '*', '?', '[', '\', '~', in keys
 * '=' too), control characters and bytes that aren't UTF-8 are %XX, as in a
 * URL. So a quota whose name is a glob of paths (glob=path) rules all values
 * of a key, and one level of '/' is one entry:
 *
 *     envoy/shop/path=*
 *
 * A domain or value of which that makes more than WEIR_RLS_VALUE_MAX bytes is
 * cut, and ends in '~' and 16 digits of the hash of all of it. */

#ifndef WEIR_RLS_NAME_H
#define WEIR_RLS_NAME_H

#include "quota/quota.h"
#include "wire/rls.h"

#define WEIR_RLS_PREFIX "envoy/"
#define WEIR_RLS_VALUE_MAX 64u

/* A name that is being written, from left to right. */
struct weir_rls_name {
    size_t len;
    bool too_long; /* over WEIR_NAME_MAX: not to be used */
    char buf[WEIR_NAME_MAX];
};

/* Begins it with the domain. */
void weir_rls_name_begin(struct weir_rls_name *name, struct weir_text domain);
/* Adds an entry. 'glob': the value is a pattern, in which '*' stays one. */
void weir_rls_name_add(struct weir_rls_name *name, struct weir_text key,
                       struct weir_text value, bool glob);

#endif /* WEIR_RLS_NAME_H */
