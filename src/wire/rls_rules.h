/* SPDX-License-Identifier: MIT
 * wire/rls_rules.h - the configuration of envoyproxy/ratelimit: which limits
 * there are, as its YAML says it, which of them rules a descriptor, and the
 * quotas that they are.
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
 * A text may hold several documents ("---"), one a domain. Differences in what
 * is taken: a file may be of any size up to the bounds below; "key" and
 * "value" of a number are taken as they are written; a key twice in a mapping
 * and tags are refused; `detailed_metric`, `value_to_metric` and `metadata`
 * are read and mean nothing here.
 *
 * Rules never change once they were read: a reload makes others. Threads may
 * share what they only read. Knows no sockets and no files. */

#ifndef WEIR_RLS_RULES_H
#define WEIR_RLS_RULES_H

#include "wire/rls_name.h"

#define WEIR_RLS_CONFIG_BYTES_MAX (16u << 20)
#define WEIR_RLS_RULES_MAX 100000u  /* descriptors of all domains */
#define WEIR_RLS_DEPTH_MAX 16u      /* of nested descriptors */
#define WEIR_RLS_PATTERNS_MAX 1024u /* values with a '*' in one list */
#define WEIR_RLS_DOMAINS_MAX 1024u
#define WEIR_RLS_REPLACES_MAX 16u /* of one limit */

/* A limit; texts belong to the rules. */
struct weir_rls_rule {
    uint32_t line;              /* of its descriptor, in the text */
    uint32_t requests_per_unit; /* 0: nothing passes */
    enum weir_rls_unit unit;    /* NO_UNIT: unlimited */
    bool shadow;     /* refuses nobody, but says what it would have left */
    bool quota_mode; /* one of those that must all be over */
    uint32_t shared; /* bits: entries whose pattern stands for all its values
                      * (share_threshold) */
    struct weir_text name; /* of the limit; may be empty */
    uint32_t replace_count;
    const struct weir_text *replaces; /* names of limits that don't count where
                                       * this one rules */
    struct weir_text domain;
    uint32_t depth;                        /* entries, from the outermost on */
    const struct weir_rls_entry *patterns; /* of each; value empty: any */
};

struct weir_rls_rules;

/* Reads the bytes of a file; they needn't outlive the call. On failure '*out'
 * is as it was and 'diag' (may be NULL) has line, column and sentence:
 * WEIR_ESYNTAX (no YAML, a key that isn't known, a value of another type),
 * WEIR_EINVAL (it contradicts itself), WEIR_EEXIST (a descriptor or domain
 * twice), WEIR_ETOOBIG, WEIR_ENOMEM. */
int weir_rls_rules_parse(struct weir_text text, struct weir_rls_rules **out,
                         struct weir_diag *diag);
/* NULL is legal. */
void weir_rls_rules_free(struct weir_rls_rules *rules);

/* All limits, in the order in which they are looked for. */
const struct weir_rls_rule *weir_rls_rules_all(
    const struct weir_rls_rules *rules, size_t *out_count);

/* The limit that rules the entries: from the outermost on the descriptor of
 * that very value, else the first whose pattern matches it, else the one
 * without value; and no way back. NULL: none does. O(entries x (patterns + log
 * descriptors)) of each level. */
const struct weir_rls_rule *weir_rls_rules_find(
    const struct weir_rls_rules *rules, struct weir_text domain,
    const struct weir_rls_entry *entries, uint32_t count);

/* The name of the quota that counts for such entries; by 'rule', which rules
 * them, or by themselves where that is NULL. */
void weir_rls_quota_name(const struct weir_rls_rule *rule,
                         struct weir_text domain,
                         const struct weir_rls_entry *entries, uint32_t count,
                         struct weir_rls_name *out);

/* ---- As quotas ---- */

struct weir_rls_quotas_options {
    /* As the original counts, in windows of the clock and refused hits too:
     * in this store ("redis://…", or "root"). Absent: buckets that all
     * processes fill together, which hold as much as passes in a unit. */
    struct weir_text exact;
};

struct weir_rls_quotas;
/* The quotas that the rules are. 'rules' must outlive them. '*quotas' and
 * '*count' are owned by '*out'. WEIR_ENAME (a name would be too long),
 * WEIR_EQUOTA, WEIR_EEXIST (two of one name), WEIR_ENOMEM, with the line in
 * 'diag'. */
int weir_rls_quotas_new(const struct weir_rls_rules *rules,
                        const struct weir_rls_quotas_options *options,
                        struct weir_rls_quotas **out,
                        const struct weir_quota **quotas, size_t *count,
                        struct weir_diag *diag);
/* NULL is legal. */
void weir_rls_quotas_free(struct weir_rls_quotas *quotas);

#endif /* WEIR_RLS_RULES_H */
