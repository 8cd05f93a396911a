/* SPDX-License-Identifier: MIT
 * codec/rls_name.h - the quota's name of a descriptor of Envoy's.
 *
 *     domain "shop", [("path", "/cart"), ("user", "ann")]
 *     envoy/shop/path=%2Fcart/user=ann
 *
 * Each descriptor has one name, and different ones have different names. Bytes
 * with another meaning in a name ('/', '%', '*', '?', '[', '\', '~', in keys
 * '=' too), control characters and bytes that aren't UTF-8 are %XX, as in a
 * URL. Therefore a quota named by a glob of paths (glob=path) rules all values
 * of a key, and one level of '/' is one entry:
 *
 *     envoy/shop/path=*
 *
 * A key or domain of more than WEIR_RLS_WORD_MAX bytes is cut and ends in '~'
 * and a hash; a value that equals such a key is '~'. Envoy Gateway makes a
 * route's name, which may have hundreds of bytes, both key and value, and a
 * template's name has to leave room for its values. (A pattern other than '*'
 * therefore doesn't match such a value, and is refused if it should.)
 *
 * Other values of any length are whole here: a name over WEIR_NAME_MAX bytes is
 * a long name (core/quota/long_name.h).
 *
 * A name that ends in WEIR_RLS_OVERFLOW is no descriptor's: '~' is escaped, and
 * 'v' is no digit of a hash. */

#ifndef WEIR_RLS_NAME_H
#define WEIR_RLS_NAME_H

#include "codec/rls.h"
#include "core/quota/quota.h"

#define WEIR_RLS_PREFIX "envoy/"
#define WEIR_RLS_OVERFLOW "~overflow"
#define WEIR_RLS_WORD_MAX 64u /* bytes of a key or a domain in a name */

/* A name that is being written, from left to right. */
struct weir_rls_name {
    char *buf; /* borrowed, of 'size' bytes */
    size_t size;
    size_t len;
    bool too_long; /* over 'size' bytes: don't use it */
};

/* Begins the name with the domain, in 'buf' of 'size' bytes. */
void weir_rls_name_begin(struct weir_rls_name *name, char *buf, size_t size,
                         struct weir_text domain);
/* Adds an entry. 'glob': the value is a pattern, and its '*' aren't escaped. */
void weir_rls_name_add(struct weir_rls_name *name, struct weir_text key,
                       struct weir_text value, bool glob);
/* Whether a key or a domain is cut. */
bool weir_rls_name_is_cut(struct weir_text word);
/* Ends the name of the overflow quota of the template so far: added without
 * patterns ('*' is a value). */
void weir_rls_name_overflow(struct weir_rls_name *name);

#endif /* WEIR_RLS_NAME_H */
