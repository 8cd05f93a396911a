/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_rls_rules.c - any bytes as a request of Envoy's in JSON, or as
 * a file of limits; the first byte chooses. Decoded inputs have sound names and
 * sound quotas. */

#include <string.h>

#include "codec/rls_json.h"
#include "codec/rls_rules.h"
#include "core/quota/long_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void name_it(const struct weir_rls_request *request)
{
    for (size_t i = 0; i < request->count; i++) {
        const struct weir_rls_descriptor *d = &request->descriptors[i];
        static char buf[WEIR_GIVEN_NAME_MAX];
        struct weir_rls_name name;
        weir_assert(d->entry_count > 0);
        weir_rls_name_begin(&name, buf, sizeof buf, request->domain);
        weir_rls_quota_name(NULL, d->entries, d->entry_count, &name);
        struct weir_text text = { name.buf, name.len };
        weir_assert(name.too_long || weir_given_name_check(text, NULL) == 0);
        (void)weir_rls_hits(request, d);
    }
}

static void read_json(const uint8_t *data, size_t size)
{
    static unsigned char memory[WEIR_RLS_ARENA_SIZE];
    struct weir_arena arena = { memory, sizeof memory, 0 };
    struct weir_rls_request request;
    struct weir_diag diag = { 0 };
    json_t *object =
        json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    if (!object)
        return;
    if (weir_rls_from_json(object, &arena, &request, &diag) == 0)
        name_it(&request);
    else
        weir_assert(diag.text[0] != '\0');
    json_decref(object);
}

/* Looks up a request that the rule matches, and a request without values. */
static void ask(const struct weir_rls_rules *rules,
                const struct weir_rls_rule *rule)
{
    struct weir_rls_entry entries[WEIR_RLS_DEPTH_MAX] = { 0 };
    for (uint32_t i = 0; i < rule->depth; i++)
        entries[i].key = rule->patterns[i].key;
    (void)weir_rls_rules_find(rules, rule->domain, rule->patterns, rule->depth);
    (void)weir_rls_rules_find(rules, rule->domain, entries, rule->depth);
}

static void read_limits(const uint8_t *data, size_t size)
{
    const struct weir_rls_quotas_options options = { .overflow = 1000 };
    struct weir_rls_rules *rules;
    struct weir_rls_quotas *made;
    const struct weir_quota *quotas;
    size_t count, file;
    struct weir_diag diag = { 0 };
    /* Two halves are two files. */
    const struct weir_text texts[] = {
        { (const char *)data, size / 2 },
        { (const char *)data + size / 2, size - size / 2 },
    };
    const struct weir_text whole = { (const char *)data, size };
    if (weir_rls_rules_parse(texts, 2, &rules, &file, NULL) == 0)
        weir_rls_rules_free(rules);
    if (weir_rls_rules_parse(&whole, 1, &rules, &file, &diag) < 0) {
        weir_assert(diag.text[0] != '\0');
        return;
    }
    size_t limits;
    const struct weir_rls_rule *all = weir_rls_rules_all(rules, &limits);
    for (size_t i = 0; i < limits; i++)
        ask(rules, &all[i]);
    if (weir_rls_quotas_new(rules, &options, &made, &quotas, &count, &file,
                            &diag) == 0) {
        weir_assert(count >= limits && count <= 2 * limits);
        weir_rls_quotas_free(made);
    }
    weir_rls_rules_free(rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 4)
        read_json(data + 1, size - 1);
    else
        read_limits(data + 1, size - 1);
    return 0;
}
