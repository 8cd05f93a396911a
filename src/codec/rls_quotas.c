/* SPDX-License-Identifier: MIT
 * codec/rls_quotas.c - the limits of envoyproxy/ratelimit as quotas.
 *
 * Theory of operation. A limit becomes a quota with the name of the descriptors
 * that it rules (rls_name.h). If an entry has a pattern or no value, the quota
 * is a template by paths, and each value has an instance with its own count. If
 * a pattern's values share one limit, the pattern itself is used as the value.
 *
 *     path=/cart, user (any)      envoy/shop/path=%2Fcart/user=*
 *     path=/cart*                 envoy/shop/path=%2Fcart*
 *     path=/cart*, shared         envoy/shop/path=%2Fcart%2A
 *
 * The template that rules a name is chosen by 'order', then by the more
 * specific name. The second criterion alone is nearly always right, and 'order'
 * stays 0. Only a template that would be tried before an earlier rule's
 * template, and may match the same name, gets a higher one. Quotas of other
 * names aren't touched.
 *
 * The original counts in windows of the clock, with a round trip to Redis for
 * each hit. Here a limit becomes a bucket, which all processes fill together
 * without a round trip: its burst is one unit's limit, and it refills at that
 * pace. In the unit after an idle time up to twice the limit may pass, as with
 * the original's windows across the edge of two. With a store ('exact') the
 * count is exactly the original's.
 *
 * A template has an instance for each value, and a limiter's memory has a
 * bound. Values that find no room there share the template's overflow quota
 * (rls_name.h): with the limit of so many values as options.overflow says. */

#include <stdlib.h>
#include <string.h>

#include "codec/rls_rules.h"
#include "core/quota/glob.h"
#include "core/quota/long_name.h"

struct weir_rls_quotas {
    struct weir_quota *quotas; /* owned */
    char *names;               /* owned; WEIR_NAME_MAX bytes each */
    size_t count;
};

/* Whether the n-th entry accepts any value, or a pattern, with a count for each
 * value. */
static bool is_glob(const struct weir_rls_rule *rule, uint32_t i)
{
    struct weir_text value = rule->patterns[i].value;
    if (rule->shared >> i & 1)
        return false;
    return value.len == 0 || memchr(value.p, '*', value.len);
}

static bool is_template_rule(const struct weir_rls_rule *rule)
{
    for (uint32_t i = 0; i < rule->depth; i++)
        if (is_glob(rule, i))
            return true;
    return false;
}

/* 'globs' false: the patterns are values. */
static void make_name(const struct weir_rls_rule *rule, bool globs,
                      struct weir_rls_name *out)
{
    for (uint32_t i = 0; i < rule->depth; i++) {
        struct weir_text value = rule->patterns[i].value;
        bool any = value.len == 0;
        weir_rls_name_add(out, rule->patterns[i].key,
                          any ? WEIR_TEXT("*") : value,
                          globs && is_glob(rule, i));
    }
}

/* ---- Orders ---- */

/* Whether two templates may match one name, judging by their keys. */
static bool may_meet(const struct weir_rls_rule *a,
                     const struct weir_rls_rule *b)
{
    if (a->depth != b->depth || !weir_text_equal(a->domain, b->domain))
        return false;
    for (uint32_t i = 0; i < a->depth; i++) {
        const struct weir_rls_entry *one = &a->patterns[i];
        const struct weir_rls_entry *other = &b->patterns[i];
        if (!weir_text_equal(one->key, other->key))
            return false;
        if (!is_glob(a, i) && !is_glob(b, i) &&
            !weir_text_equal(one->value, other->value))
            return false;
    }
    return true;
}

/* Rules stand in the order in which they are searched. Only WEIR_TEMPLATES_MAX
 * templates are put in order, since no root accepts more. */
static void set_orders(const struct weir_rls_rule *rules,
                       struct weir_quota *quotas, size_t count)
{
    size_t templates[WEIR_TEMPLATES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < count && n < WEIR_TEMPLATES_MAX; i++)
        if (is_template_rule(&rules[i]))
            templates[n++] = i;
    for (size_t i = 0; i < n; i++) {
        size_t at = templates[i];
        for (size_t k = 0; k < i; k++) {
            size_t before = templates[k];
            if (!may_meet(&rules[before], &rules[at]))
                continue;
            bool first =
                weir_glob_compare(quotas[before].name, quotas[at].name) < 0;
            uint32_t least = quotas[before].order + (first ? 0 : 1);
            if (quotas[at].order < least)
                quotas[at].order = least;
        }
    }
}

/* ---- A quota ---- */

static void set_limit(const struct weir_rls_rule *rule,
                      const struct weir_rls_quotas_options *options,
                      struct weir_quota *quota)
{
    quota->limit = (struct weir_limit){
        .units = rule->requests_per_unit,
        .per = weir_rls_unit_length(rule->unit),
    };
    if (options->exact.len > 0) {
        quota->sharing = WEIR_EXACT;
        quota->algorithm = WEIR_FIXED_WINDOW;
        quota->store = weir_text_equal(options->exact, WEIR_TEXT("root"))
                           ? (struct weir_text){ NULL, 0 }
                           : options->exact;
        quota->count_limited = true;
        if (options->deadline > 0)
            quota->deadline = options->deadline;
        if (options->on_stale != 0)
            quota->on_stale = options->on_stale;
        return;
    }
    quota->algorithm = WEIR_TOKEN_BUCKET;
    /* As a time, so that it follows an edit of the limit. */
    if (rule->requests_per_unit > 0)
        quota->high_burst =
            (struct weir_burst){ .amount = quota->limit.per, .in_time = true };
}

/* A long name is stored as one of a client would be. A template has to be
 * written out, and its literal bytes leave room for a hash. Returns the bytes
 * in 'to'; 0: it is too long. */
static size_t store_name(const struct weir_rls_rule *rule,
                         const struct weir_rls_name *name, char *to)
{
    struct weir_text text = { name->buf, name->len };
    if (name->too_long || (is_template_rule(rule) &&
                           text.len > WEIR_NAME_MAX - WEIR_NAME_HASH_LEN))
        return 0;
    struct weir_text kept = weir_name_kept(text, to);
    if (kept.p != to)
        memcpy(to, kept.p, kept.len);
    return kept.len;
}

/* Whether a pattern matches its own key, which as a value is '~' in a name
 * (rls_name.h): such a request would have no quota. */
static bool misses_its_key(const struct weir_rls_rule *rule)
{
    for (uint32_t i = 0; i < rule->depth; i++) {
        const struct weir_rls_entry *entry = &rule->patterns[i];
        if (is_glob(rule, i) && entry->value.len > 0 &&
            !weir_glob_match(entry->value, WEIR_TEXT("~"), NULL) &&
            weir_rls_name_is_cut(entry->key) &&
            weir_glob_match(entry->value, entry->key, NULL))
            return true;
    }
    return false;
}

/* 'scratch': of WEIR_GIVEN_NAME_MAX bytes. */
static int make_quota(const struct weir_rls_rule *rule,
                      const struct weir_rls_quotas_options *options,
                      char *scratch, char *name_to, struct weir_quota *quota,
                      struct weir_diag *diag)
{
    struct weir_rls_name name;
    if (misses_its_key(rule))
        return weir_diag_put(
            diag, WEIR_ENAME,
            "the value's pattern matches its own key, which is over 64 bytes: "
            "it would miss that value; use a shorter key, or share_threshold");
    weir_rls_name_begin(&name, scratch, WEIR_GIVEN_NAME_MAX, rule->domain);
    make_name(rule, true, &name);
    size_t len = store_name(rule, &name, name_to);
    if (len == 0)
        return weir_diag_put(
            diag, WEIR_ENAME,
            "the descriptor's keys and values are too long for a quota's name: "
            "222 bytes with a pattern, 65536 without");
    weir_quota_init(quota);
    quota->name = (struct weir_text){ name_to, len };
    quota->description = rule->name;
    quota->mode = rule->shadow ? WEIR_SHADOW : WEIR_ENFORCE;
    if (is_template_rule(rule))
        quota->glob = WEIR_GLOB_PATH;
    if (rule->unit == WEIR_RLS_NO_UNIT)
        quota->limit.unlimited = true;
    else
        set_limit(rule, options, quota);
    return weir_quota_check(quota, diag);
}

/* Up to the highest limit and burst that a quota may have; the burst, a time,
 * follows. */
static void raise_limit(struct weir_quota *quota, uint32_t factor)
{
    weir_u128 most = (weir_u128)WEIR_LIMIT_MAX * quota->limit.per / WEIR_SECOND;
    weir_u128 units = (weir_u128)quota->limit.units * factor;
    if (most > WEIR_BURST_MAX)
        most = WEIR_BURST_MAX;
    quota->limit.units = (uint64_t)(units < most ? units : most);
}

/* Makes the overflow quota of a template, if it is to have one. */
static int make_overflow(const struct weir_rls_rule *rule,
                         const struct weir_rls_quotas_options *options,
                         struct weir_quota *template, char *name_to,
                         struct weir_quota *quota, struct weir_diag *diag)
{
    struct weir_rls_name name;
    weir_rls_name_begin(&name, name_to, WEIR_NAME_MAX, rule->domain);
    make_name(rule, false, &name);
    weir_rls_name_overflow(&name);
    if (name.too_long)
        return weir_diag_put(diag, WEIR_ENAME,
                             "the name of the quota for values without room "
                             "is over 255 bytes: import with --overflow 0, or "
                             "shorten the descriptor's keys");
    weir_quota_init(quota);
    quota->name = (struct weir_text){ name.buf, name.len };
    quota->description = WEIR_TEXT("values for which there is no room");
    quota->mode = template->mode;
    set_limit(rule, options, quota);
    raise_limit(quota, options->overflow);
    template->overflow = quota->name;
    return weir_quota_check(quota, diag);
}

static int compare_name_texts(const void *a, const void *b)
{
    const struct weir_quota *const *one = a;
    const struct weir_quota *const *other = b;
    return weir_text_compare((*one)->name, (*other)->name);
}

/* Two limits have one name. */
static int check_made_names(const struct weir_rls_rule *rules,
                            const struct weir_rls_quotas *made,
                            size_t *out_file, struct weir_diag *diag)
{
    const struct weir_quota **sorted =
        malloc((made->count + 1) * sizeof *sorted);
    if (!sorted)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    int error = 0;
    for (size_t i = 0; i < made->count; i++)
        sorted[i] = &made->quotas[i];
    qsort(sorted, made->count, sizeof *sorted, compare_name_texts);
    for (size_t i = 1; i < made->count && error == 0; i++) {
        if (!weir_text_equal(sorted[i - 1]->name, sorted[i]->name))
            continue;
        const struct weir_rls_rule *rule = &rules[sorted[i] - made->quotas];
        *out_file = rule->file;
        if (diag)
            diag->line = rule->line;
        error = weir_diag_put(
            diag, WEIR_EEXIST,
            "another descriptor has the same quota: a value of '*' is as good "
            "as none");
    }
    free(sorted);
    return error;
}

static int add_overflow(const struct weir_rls_rule *rule,
                        const struct weir_rls_quotas_options *options,
                        size_t at, struct weir_rls_quotas *made,
                        struct weir_diag *diag)
{
    if (options->overflow == 0 || !is_template_rule(rule) ||
        rule->unit == WEIR_RLS_NO_UNIT)
        return 0;
    int error = make_overflow(rule, options, &made->quotas[at],
                              made->names + made->count * WEIR_NAME_MAX,
                              &made->quotas[made->count], diag);
    made->count++;
    if (error < 0 && diag)
        diag->line = rule->line;
    return error;
}

int weir_rls_quotas_new(const struct weir_rls_rules *from,
                        const struct weir_rls_quotas_options *options,
                        struct weir_rls_quotas **out,
                        const struct weir_quota **quotas, size_t *count,
                        size_t *out_file, struct weir_diag *diag)
{
    size_t n;
    *out_file = 0;
    const struct weir_rls_rule *rules = weir_rls_rules_all(from, &n);
    struct weir_rls_quotas *made = calloc(1, sizeof *made);
    int error = 0;
    if (made) {
        made->quotas = calloc(2 * n + 1, sizeof *made->quotas);
        made->names = malloc((2 * n + 1) * WEIR_NAME_MAX);
    }
    char *scratch = malloc(WEIR_GIVEN_NAME_MAX);
    if (!made || !made->quotas || !made->names || !scratch)
        error = weir_diag_put(diag, WEIR_ENOMEM, NULL);
    for (size_t i = 0; i < n && error == 0; i++) {
        error =
            make_quota(&rules[i], options, scratch,
                       made->names + i * WEIR_NAME_MAX, &made->quotas[i], diag);
        made->count++;
        *out_file = rules[i].file;
        if (error < 0 && diag)
            diag->line = rules[i].line;
    }
    free(scratch);
    if (error == 0)
        error = check_made_names(rules, made, out_file, diag);
    for (size_t i = 0; i < n && error == 0; i++) {
        *out_file = rules[i].file;
        error = add_overflow(&rules[i], options, i, made, diag);
    }
    if (error < 0) {
        weir_rls_quotas_free(made);
        return error;
    }
    weir_assert(made->count >= n);
    set_orders(rules, made->quotas, n);
    *out = made;
    *quotas = made->quotas;
    *count = made->count;
    return 0;
}

void weir_rls_quotas_free(struct weir_rls_quotas *quotas)
{
    if (!quotas)
        return;
    free(quotas->quotas);
    free(quotas->names);
    free(quotas);
}
