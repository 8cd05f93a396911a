/* SPDX-License-Identifier: MIT
 * quota/long_name.h - names over WEIR_NAME_MAX bytes: their stored form.
 *
 * A caller may give a name of WEIR_GIVEN_NAME_MAX bytes. Its template, its
 * place in the order and its parents follow from the whole name. In tables,
 * messages, views and stores it is a name of at most WEIR_NAME_MAX bytes:
 *
 *     template   envoy/shop/path=* /user=*
 *     given      envoy/shop/path=/a…(300 bytes)…/user=b…(200 bytes)…
 *     stored     envoy/shop/path=/a…/user=b…~0f3c…(32 hexadecimal digits)
 *
 * The texts that the template's stars matched are cut, the longest first, and
 * behind the last one that is cut stand '~' and the first 128 bits of the whole
 * name's SHA-256. So the same template matches the stored name too, and every
 * program that isn't a client treats it as an ordinary name.
 *
 * The hash has no seed: all processes and roots make one stored name of one
 * given name. Nobody can find a second name with the same hash. A given name
 * that itself has the form of a stored one is a long name too and is hashed
 * again, so that no client can name another name's bucket. Only names that
 * clients give are converted; a name in a report or a request to
 * administrators is a stored one. Pure. */

#ifndef WEIR_LONG_NAME_H
#define WEIR_LONG_NAME_H

#include "core/quota/glob.h"

/* The parent of a long name, before it is stored. */
#define WEIR_GIVEN_PARENT_MAX 4096

/* Units of work (glob.h) of the search for a long name's template: as many as
 * WEIR_TEMPLATES_MAX templates take for a name of 256 bytes. A name whose
 * search takes more is limited. */
#define WEIR_SEARCH_WORK_MAX (WEIR_TEMPLATES_MAX * 256u)

/* '~' and the digits. */
#define WEIR_NAME_HASH_DIGITS 32
#define WEIR_NAME_HASH_LEN (1 + WEIR_NAME_HASH_DIGITS)

/* A cut text loses at most 3 bytes to the end of a character, and 1 to the
 * division of the room among the texts. */
#define WEIR_STORED_LONG_MIN (WEIR_NAME_MAX - 4 * WEIR_RUNS_MAX)

/* Whether a name of any length has the form of a stored long name. */
bool weir_name_is_cut(struct weir_text name);

/* Whether a given name is stored in another form. */
static inline bool weir_name_is_long(struct weir_text name)
{
    return name.len >= WEIR_STORED_LONG_MIN &&
           (name.len > WEIR_NAME_MAX || weir_name_is_cut(name));
}

/* '~' and the hash of a given name. */
struct weir_name_hash {
    char text[WEIR_NAME_HASH_LEN];
};
void weir_long_name_hash(struct weir_text name, struct weir_name_hash *out);

/* The stored form of a long name with that hash, written to 'buf' of
 * WEIR_NAME_MAX bytes. 'runs': of its template, in 'name'; NULL: no template,
 * and the name's beginning is kept. Returns its length; 0: what isn't in 'runs'
 * leaves no room for the hash. */
size_t weir_long_name_store(struct weir_text name,
                            const struct weir_name_hash *hash,
                            const struct weir_runs *runs, char *buf);

/* What a name without a template is kept as: itself, or, if it is long, its
 * stored form in 'buf' of WEIR_NAME_MAX bytes. */
struct weir_text weir_name_kept(struct weir_text name, char *buf);

/* As weir_name_check(), for a name that a client gives: up to
 * WEIR_GIVEN_NAME_MAX bytes. WEIR_ETOOBIG: it is longer. */
int weir_given_name_check(struct weir_text name, struct weir_diag *diag);

#endif /* WEIR_LONG_NAME_H */
