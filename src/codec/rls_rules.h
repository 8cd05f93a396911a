/* SPDX-License-Identifier: MIT
 * codec/rls_rules.h - the configuration of envoyproxy/ratelimit: the limits of
 * its YAML files, the limit that rules a descriptor, and the quotas that the
 * limits become.
 *
 *     domain: shop
 *     descriptors:
 *       - key: path
 *         value: /cart*
 *         rate_limit: {unit: second, requests_per_unit: 50}
 *         descriptors:
 *           - key: user
 *             rate_limit: {unit: minute, requests_per_unit: 10}
 *
 * A text may hold several documents ("---"), and there may be several texts;
 * documents of one domain are one, as with the original's MERGE_DOMAIN_CONFIG.
 * Differences from the original: a file may have any size up to the bounds
 * below; a number as "key" or "value" is taken as it is written; duplicate keys
 * of a mapping, tags, and numbers with a fraction or an exponent are refused;
 * `detailed_metric`, `value_to_metric` and the `name` of a document are
 * accepted and ignored.
 *
 * Rules never change once they are read: a reload makes new ones. Threads may
 * share them. Knows no sockets and no files. */

#ifndef WEIR_RLS_RULES_H
#define WEIR_RLS_RULES_H

#include "codec/rls_metadata.h"
#include "codec/rls_name.h"

#define WEIR_RLS_CONFIG_BYTES_MAX (16u << 20) /* of all texts together */
#define WEIR_RLS_FILES_MAX 1024u
#define WEIR_RLS_RULES_MAX 100000u  /* descriptors of all domains */
#define WEIR_RLS_DEPTH_MAX 16u      /* of nested descriptors */
#define WEIR_RLS_PATTERNS_MAX 1024u /* values with a '*' in one list */
#define WEIR_RLS_DOMAINS_MAX 1024u
#define WEIR_RLS_REPLACES_MAX 16u /* of one limit */

/* A limit; texts belong to the rules. */
struct weir_rls_rule {
    uint32_t file, line;        /* of its descriptor: the index of the text,
                                 * and the line in it */
    uint32_t requests_per_unit; /* 0: nothing is allowed */
    enum weir_rls_unit unit;    /* NO_UNIT: unlimited */
    bool shadow;     /* limits no request, but reports what would be left */
    bool quota_mode; /* refuses only together with all others of the request
                      * that have it */
    uint32_t shared; /* a bit for each entry with a pattern that is one limit
                      * for all its values (share_threshold) */
    struct weir_text name; /* of the limit; may be empty */
    uint32_t replace_count;
    const struct weir_text *replaces; /* names of limits that don't count if
                                       * this one rules */
    const json_t *metadata;           /* an object; NULL: none */
    struct weir_text domain;
    uint32_t depth;                        /* entries, from the outermost on */
    const struct weir_rls_entry *patterns; /* one for each entry; value empty:
                                            * any */
};

struct weir_rls_rules;

/* Reads the bytes of 'count' files, 1 .. WEIR_RLS_FILES_MAX; they needn't
 * outlive the call. On failure '*out' is unchanged, '*out_file' is the index of
 * the file, and 'diag' (may be NULL) has line, column and sentence:
 * WEIR_ESYNTAX (no YAML, an unknown key, a value of another type), WEIR_EINVAL
 * (it contradicts itself), WEIR_EEXIST (a descriptor twice), WEIR_ETOOBIG,
 * WEIR_ENOMEM. */
int weir_rls_rules_parse(const struct weir_text *texts, size_t count,
                         struct weir_rls_rules **out, size_t *out_file,
                         struct weir_diag *diag);
/* NULL is legal. */
void weir_rls_rules_free(struct weir_rls_rules *rules);

/* All limits, in the order in which they are searched. */
const struct weir_rls_rule *weir_rls_rules_all(
    const struct weir_rls_rules *rules, size_t *out_count);

/* The limit that rules the entries. At each level the descriptor with that very
 * value is chosen, else the first whose pattern matches it, else the one
 * without value; there is no backtracking. NULL: none. O(patterns + log
 * descriptors) per entry. */
const struct weir_rls_rule *weir_rls_rules_find(
    const struct weir_rls_rules *rules, struct weir_text domain,
    const struct weir_rls_entry *entries, uint32_t count);

/* Adds the entries to the name of the quota that counts them, which was begun
 * with their domain: as 'rule', which rules them, has them, or if 'rule' is
 * NULL as they are. */
void weir_rls_quota_name(const struct weir_rls_rule *rule,
                         const struct weir_rls_entry *entries, uint32_t count,
                         struct weir_rls_name *name);

/* ---- As quotas ---- */

struct weir_rls_quotas_options {
    /* The store ("redis://…", or "root") in which to count as the original
     * does: in windows of the clock, refused hits included. Absent: buckets
     * that all processes fill together, and that hold as much as passes in a
     * unit. */
    struct weir_text exact;
    weir_duration deadline;      /* with 'exact': of each call to the store; 0:
                                   * the quota's default */
    enum weir_on_stale on_stale; /* likewise: without it; 0: likewise */
    /* Each template gets an overflow quota, for values that find no room in a
     * limiter's memory: they share as much as so many values may. 0: none. */
    uint32_t overflow;
};
#define WEIR_RLS_OVERFLOW_DEFAULT 1000

struct weir_rls_quotas;
/* Converts the rules to quotas. 'rules' must outlive them. '*out' owns
 * '*quotas'. WEIR_ENAME (a name would be too long), WEIR_EQUOTA, WEIR_EEXIST
 * (two of one name), WEIR_ENOMEM, with the line in 'diag' and its file in
 * '*out_file'. */
int weir_rls_quotas_new(const struct weir_rls_rules *rules,
                        const struct weir_rls_quotas_options *options,
                        struct weir_rls_quotas **out,
                        const struct weir_quota **quotas, size_t *count,
                        size_t *out_file, struct weir_diag *diag);
/* NULL is legal. */
void weir_rls_quotas_free(struct weir_rls_quotas *quotas);

#endif /* WEIR_RLS_RULES_H */
