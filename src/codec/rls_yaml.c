/* SPDX-License-Identifier: MIT
 * codec/rls_yaml.c - the YAML of envoyproxy/ratelimit as it is written.
 *
 *     mapping          domain, descriptors              weir_rls_yaml_file
 *       list
 *         mapping      key, value, rate_limit, …        …_descriptor
 *           mapping    unit, requests_per_unit, …       read_limit
 *             list     replaces                         read_replaces
 *
 * Aliases can make a short file large: the callers that walk the lists bound
 * them (rls_rules.c counts descriptors). */

#include "codec/rls_yaml.h"

#include <string.h>

#include "core/quota/quota_text.h"

#define NESTING_MAX 64

int weir_rls_yaml_load(struct weir_text text, struct weir_yaml_nodes *yaml)
{
    static const struct weir_yaml_bounds bounds = {
        .nesting = NESTING_MAX,
        .documents = WEIR_RLS_DOMAINS_MAX,
        .error = WEIR_ETOOBIG,
        .why = "more than 1024 documents",
    };
    if (text.len > WEIR_RLS_CONFIG_BYTES_MAX)
        return weir_diag_set(yaml->diag, WEIR_ETOOBIG,
                             "the file is over 16 MiB", NULL);
    return weir_yaml_nodes_load(text, &bounds, yaml);
}

static int refuse_yaml_key(const struct weir_yaml_reading *reading,
                           const yaml_node_t *key)
{
    char shown[WEIR_SHOW_MAX];
    return weir_yaml_refuse(reading->diag, key, WEIR_ESYNTAX,
                            "config error, unknown key ",
                            weir_text_show(weir_yaml_scalar(key), shown), "");
}

static const struct weir_yaml_dialect dialect = { .before = "",
                                                  .after = " must be ",
                                                  .unknown = refuse_yaml_key };

/* ---- The values of keys ---- */

static int read_yaml_flag(const struct weir_yaml_reading *reading,
                          const yaml_node_t *node, const char *name, void *to)
{
    static const char *const yes[] = { "true", "yes", "on", "y" };
    static const char *const no[] = { "false", "no", "off", "n" };
    bool is_yes = weir_yaml_is_word(node, yes, WEIR_COUNT_OF(yes));
    if (!is_yes && !weir_yaml_is_word(node, no, WEIR_COUNT_OF(no)))
        return weir_yaml_refuse_type(reading, node, name, "true or false");
    *(bool *)to = is_yes;
    return 0;
}

static int read_units(const struct weir_yaml_reading *reading,
                      const yaml_node_t *node, const char *name, void *to)
{
    struct weir_rls_written *written = to;
    uint64_t number;
    if (!weir_yaml_is_plain(node) ||
        !weir_number_parse(weir_yaml_scalar(node), &number) ||
        number > UINT32_MAX)
        return weir_yaml_refuse_type(reading, node, name,
                                     "a whole number up to 4294967295");
    written->requests_per_unit = (uint32_t)number;
    written->units_given = true;
    return 0;
}

static int read_yaml_list(const struct weir_yaml_reading *reading,
                          const yaml_node_t *node, const char *name, void *to)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return weir_yaml_refuse_type(reading, node, name, "a list");
    *(const yaml_node_t **)to = node;
    return 0;
}

static int ignore_value(const struct weir_yaml_reading *reading,
                        const yaml_node_t *node, const char *name, void *to)
{
    (void)reading;
    (void)node;
    (void)name;
    (void)to;
    return 0;
}

/* ---- The levels ---- */

static int read_replaces(const struct weir_yaml_reading *reading,
                         const yaml_node_t *node, const char *name, void *to)
{
    static const struct weir_yaml_key keys[] = { { "name", weir_yaml_read_text,
                                                   0 } };
    struct weir_rls_written *written = to;
    size_t count = 0;
    int error = weir_yaml_read_count(reading, node, name, WEIR_RLS_REPLACES_MAX,
                                     &count);
    for (size_t i = 0; i < count && error == 0; i++) {
        const yaml_node_t *item = weir_yaml_item(reading->document, node, i);
        struct weir_text *to_name = &written->replaces[i];
        error = weir_yaml_read_mapping(reading, item, "an item of replaces",
                                       keys, WEIR_COUNT_OF(keys), to_name);
        if (error == 0 && to_name->len == 0)
            error = weir_yaml_refuse(reading->diag, item, WEIR_EINVAL,
                                     "should not have an empty replaces entry",
                                     "", "");
    }
    written->replace_count = (uint32_t)count;
    return error;
}

#define AT(member) offsetof(struct weir_rls_written, member)

static int read_limit(const struct weir_yaml_reading *reading,
                      const yaml_node_t *node, const char *name, void *to)
{
    static const struct weir_yaml_key keys[] = {
        { "unit", weir_yaml_read_text, AT(unit) },
        { "requests_per_unit", read_units, 0 },
        { "unlimited", read_yaml_flag, AT(unlimited) },
        { "name", weir_yaml_read_text, AT(name) },
        { "replaces", read_replaces, 0 },
    };
    struct weir_rls_written *written = to;
    written->has_limit = true;
    return weir_yaml_read_mapping(reading, node, name, keys,
                                  WEIR_COUNT_OF(keys), to);
}

int weir_rls_yaml_descriptor(yaml_document_t *document, const yaml_node_t *node,
                             struct weir_rls_written *out,
                             struct weir_diag *diag)
{
    static const struct weir_yaml_key keys[] = {
        { "key", weir_yaml_read_text, AT(key) },
        { "value", weir_yaml_read_text, AT(value) },
        { "rate_limit", read_limit, 0 },
        { "descriptors", read_yaml_list, AT(descriptors) },
        { "shadow_mode", read_yaml_flag, AT(shadow) },
        { "quota_mode", read_yaml_flag, AT(quota_mode) },
        { "share_threshold", read_yaml_flag, AT(share_threshold) },
        { "detailed_metric", read_yaml_flag, AT(ignored) },
        { "value_to_metric", read_yaml_flag, AT(ignored) },
        { "metadata", ignore_value, 0 },
    };
    const struct weir_yaml_reading reading = { &dialect, document, diag, NULL };
    memset(out, 0, sizeof *out);
    return weir_yaml_read_mapping(&reading, node, "a descriptor", keys,
                                  WEIR_COUNT_OF(keys), out);
}

int weir_rls_yaml_file(yaml_document_t *document, struct weir_rls_file *out,
                       struct weir_diag *diag)
{
    static const struct weir_yaml_key keys[] = {
        { "domain", weir_yaml_read_text,
          offsetof(struct weir_rls_file, domain) },
        { "descriptors", read_yaml_list,
          offsetof(struct weir_rls_file, descriptors) },
    };
    const struct weir_yaml_reading reading = { &dialect, document, diag, NULL };
    memset(out, 0, sizeof *out);
    return weir_yaml_read_mapping(&reading,
                                  yaml_document_get_root_node(document),
                                  "the file", keys, WEIR_COUNT_OF(keys), out);
}
