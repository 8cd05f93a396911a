/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_config.h - the resources of a Doorman file, in the
 * original's YAML.
 *
 *     resources:
 *     - identifier_glob: db_*
 *       capacity: 500
 *       safe_capacity: 2
 *       algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 15}
 *     - identifier_glob: "*"
 *       capacity: 10
 *       algorithm: {kind: NO_ALGORITHM, lease_length: 60,
 *                   refresh_interval: 5}
 *
 * Weir accepts the files that Doorman accepted, and refuses others with the
 * same messages; but a file that Doorman accepted and that crashed it at the
 * first request is refused, or mended with a warning. The differences:
 *   - refused: a capacity below 0 or, without a safe capacity, none; a key
 *     twice in one mapping; "<<"; numbers in octal and hexadecimal; a second
 *     document; a pattern that is broken after the place where Go stops to
 *     look; a lease of more than 24 hours; more than 1024 entries with globs
 *     (doorman_source.c says so); anything over the bounds below;
 *   - mended: an entry without an algorithm, or with one of an unknown number,
 *     has NO_ALGORITHM; one without capacity but with a safe capacity has 0;
 *     a capacity above 1e11 is 1e11, and one that is next to nothing is 0.
 *
 * A set never changes once it was read: a reload makes a new one. Threads may
 * share a set that they only read. Knows no sockets and no files. */

#ifndef WEIR_DOORMAN_CONFIG_H
#define WEIR_DOORMAN_CONFIG_H

#include "codec/doorman.h"
#include "core/quota/quota.h"

#define WEIR_DOORMAN_CONFIG_BYTES_MAX (4u << 20)
#define WEIR_DOORMAN_TEMPLATES_MAX 10000u
#define WEIR_DOORMAN_WARNINGS_MAX 16u /* that are kept, of those counted */

/* The lengths of an entry without an algorithm. */
#define WEIR_DOORMAN_LEASE_DEFAULT (300 * WEIR_SECOND)
#define WEIR_DOORMAN_REFRESH_DEFAULT (5 * WEIR_SECOND)

/* An entry; texts belong to the set. */
struct weir_doorman_template {
    struct weir_text glob;        /* quota/glob.h; may be empty */
    double capacity;              /* finite, >= 0 */
    bool safe_given;              /* else dynamic: capacity / clients */
    double safe_capacity;         /* finite; below 0: no limit */
    struct weir_text description; /* may be empty */
    enum weir_doorman_kind kind;
    weir_duration lease;    /* >= 1 s and >= refresh, whole seconds, at most
                             * WEIR_PERIOD_MAX */
    weir_duration refresh;  /* >= 1 s, likewise */
    bool learning_given;    /* else learning is the lease */
    weir_duration learning; /* 0: no learning mode */
    size_t parameter_count; /* at most WEIR_DOORMAN_PARAMETERS_MAX; they are
                             * only sent to servers below */
    const struct weir_doorman_parameter *parameters;
    uint32_t line; /* where the entry begins */
};

struct weir_doorman_config;

/* Reads the bytes of a file; they needn't outlive the call. On failure '*out'
 * is as it was and 'diag' (may be NULL) has line and sentence: WEIR_ESYNTAX (no
 * YAML, a value of another type, a broken glob), WEIR_EINVAL (values that
 * contradict each other), WEIR_ENAME (a glob that can't be a quota's name),
 * WEIR_ETOOBIG, WEIR_ENOMEM. */
int weir_doorman_config_parse(struct weir_text text,
                              struct weir_doorman_config **out,
                              struct weir_diag *diag);
/* NULL is legal. */
void weir_doorman_config_free(struct weir_doorman_config *config);

/* The entries in the order of the file, at least one; the last is "*". */
const struct weir_doorman_template *weir_doorman_config_templates(
    const struct weir_doorman_config *config, size_t *out_count);

/* The warnings: unknown keys, mended entries. '*out' gets the first
 * WEIR_DOORMAN_WARNINGS_MAX of them; returns how many there were. */
size_t weir_doorman_config_warnings(const struct weir_doorman_config *config,
                                    const struct weir_diag **out);

/* The entry with exactly that glob, the first of several; or NULL. O(log
 * templates). */
const struct weir_doorman_template *weir_doorman_config_get(
    const struct weir_doorman_config *config, struct weir_text glob);

/* The quota of an entry: leased, found by Go's globs, tried at its place in the
 * file. Texts are borrowed from the entry. Returns 0, or the error of
 * weir_quota_check(), with the entry's line. */
int weir_doorman_quota(const struct weir_doorman_template *entry,
                       uint32_t place, struct weir_quota *out,
                       struct weir_diag *diag);

/* ---- The address of the file ---- */

struct weir_doorman_location {
    bool etcd;             /* else a file */
    struct weir_text path; /* a path or key, within the text parsed */
};

/* "file:PATH", "etcd:KEY"; any other text is a path, with colons or without. 0,
 * or WEIR_EINVAL: the path or key is empty. */
int weir_doorman_location_parse(struct weir_text text,
                                struct weir_doorman_location *out,
                                struct weir_diag *diag);

#endif /* WEIR_DOORMAN_CONFIG_H */
