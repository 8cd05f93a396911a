/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_yaml.c - the text of a Doorman file.
 *
 *     mapping        "resources"               weir_doorman_yaml_read
 *       sequence                               read_entries
 *         mapping    glob, capacity, …         read_entry
 *           mapping  kind, lease_length, …     read_algorithm
 *             sequence of mappings             read_parameters
 *
 * The original turns YAML into JSON and that into its messages, so keys match
 * in any case, null is absence, and a type that doesn't fit is "cannot
 * unmarshal". */

#include "server/doorman/doorman_yaml.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota_text.h"

#define NESTING_MAX 16
#define WHOLE_MAX 0x1p53 /* up to here a double tells whole numbers apart */

void weir_doorman_yaml_warn(struct weir_doorman_yaml *yaml, uint32_t line,
                            const char *what, const char *shown,
                            const char *why)
{
    size_t at = (*yaml->warning_count)++;
    if (at >= WEIR_DOORMAN_WARNINGS_MAX)
        return;
    yaml->warnings[at].line = line;
    weir_diag_set(&yaml->warnings[at], 0, what, shown, why, NULL);
}

static int ignore_key(const struct weir_yaml_reading *reading,
                      const yaml_node_t *node)
{
    char shown[WEIR_SHOW_MAX];
    struct weir_text name = weir_yaml_scalar(node);
    if (weir_yaml_is_plain(node) && weir_text_equal(name, WEIR_TEXT("<<")))
        return weir_yaml_refuse_type(reading, node, "<<",
                                     "written out, or an alias");
    weir_doorman_yaml_warn(
        reading->context, (uint32_t)node->start_mark.line + 1,
        "no key is called ", weir_text_show(name, shown), ": it is ignored");
    return 0;
}

static const struct weir_yaml_dialect dialect = {
    .any_case = true,
    .null_is_empty = true,
    .before = "cannot unmarshal ",
    .after = ": it must be ",
    .unknown = ignore_key,
};

static int refuse_yaml_memory(struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM), NULL);
}

/* ---- The values of keys ---- */

/* "010" is 8 in YAML 1.1, but its author may mean 10. */
static bool is_octal(const char *digits)
{
    digits += *digits == '-' || *digits == '+';
    return digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9';
}

static bool parse_yaml_number(const yaml_node_t *node, double *out)
{
    if (!weir_yaml_is_plain(node))
        return false;
    struct weir_text text = weir_yaml_scalar(node);
    if (strspn(text.p, "+-.0123456789eE") != text.len || is_octal(text.p))
        return false;
    char *end;
    double value = strtod(text.p, &end);
    bool sound = text.len > 0 && end == text.p + text.len &&
                 value >= -DBL_MAX && value <= DBL_MAX;
    if (sound)
        *out = value;
    return sound;
}

static int read_yaml_number(const struct weir_yaml_reading *reading,
                            const yaml_node_t *node, const char *name, void *to)
{
    struct weir_doorman_number *number = to;
    if (!parse_yaml_number(node, &number->value))
        return weir_yaml_refuse_type(reading, node, name, "a number");
    number->given = true;
    return 0;
}

static bool is_whole_number(double x)
{
    return x >= -WHOLE_MAX && x <= WHOLE_MAX && x == (double)(int64_t)x;
}

static int read_seconds(const struct weir_yaml_reading *reading,
                        const yaml_node_t *node, const char *name, void *to)
{
    struct weir_doorman_number *number = to;
    if (!parse_yaml_number(node, &number->value) ||
        !is_whole_number(number->value))
        return weir_yaml_refuse_type(reading, node, name,
                                     "a whole number of seconds");
    number->given = true;
    return 0;
}

static int read_kind(const struct weir_yaml_reading *reading,
                     const yaml_node_t *node, const char *name, void *to)
{
    static const char *const kinds[] = {
        [WEIR_DOORMAN_NO_ALGORITHM] = "NO_ALGORITHM",
        [WEIR_DOORMAN_STATIC] = "STATIC",
        [WEIR_DOORMAN_PROPORTIONAL_SHARE] = "PROPORTIONAL_SHARE",
        [WEIR_DOORMAN_FAIR_SHARE] = "FAIR_SHARE",
    };
    struct weir_doorman_number *kind = to;
    kind->given = true;
    if (parse_yaml_number(node, &kind->value) && is_whole_number(kind->value))
        return 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(kinds); i++) {
        if (node->type == YAML_SCALAR_NODE &&
            weir_text_equal(weir_yaml_scalar(node), weir_text_of(kinds[i]))) {
            kind->value = (double)i;
            return 0;
        }
    }
    return weir_yaml_refuse_type(reading, node, name,
                                 "NO_ALGORITHM, STATIC, "
                                 "PROPORTIONAL_SHARE, FAIR_SHARE or a number");
}

/* ---- The levels ---- */

static int read_parameters(const struct weir_yaml_reading *reading,
                           const yaml_node_t *node, const char *name, void *to)
{
    static const struct weir_yaml_key keys[] = {
        { "name", weir_yaml_read_text,
          offsetof(struct weir_doorman_parameter, name) },
        { "value", weir_yaml_read_text,
          offsetof(struct weir_doorman_parameter, value) },
    };
    struct weir_doorman_entry *entry = to;
    size_t count = 0;
    int error = weir_yaml_read_count(reading, node, name,
                                     WEIR_DOORMAN_PARAMETERS_MAX, &count);
    if (error < 0)
        return error;
    entry->parameters = calloc(count + 1, sizeof(*entry->parameters));
    if (!entry->parameters)
        return refuse_yaml_memory(reading->diag);
    entry->parameter_count = count;
    for (size_t i = 0; i < count && error == 0; i++)
        error = weir_yaml_read_mapping(
            reading, weir_yaml_item(reading->document, node, i), name, keys,
            WEIR_COUNT_OF(keys), &entry->parameters[i]);
    return error;
}

#define ENTRY(member) offsetof(struct weir_doorman_entry, member)

static int read_algorithm(const struct weir_yaml_reading *reading,
                          const yaml_node_t *node, const char *name, void *to)
{
    static const struct weir_yaml_key keys[] = {
        { "kind", read_kind, ENTRY(kind) },
        { "lease_length", read_seconds, ENTRY(lease_length) },
        { "refresh_interval", read_seconds, ENTRY(refresh_interval) },
        { "learning_mode_duration", read_seconds, ENTRY(learning) },
        { "parameters", read_parameters, 0 },
    };
    struct weir_doorman_entry *entry = to;
    entry->has_algorithm = true;
    return weir_yaml_read_mapping(reading, node, name, keys,
                                  WEIR_COUNT_OF(keys), entry);
}

static int read_doorman_entry(const struct weir_yaml_reading *reading,
                              const yaml_node_t *node,
                              struct weir_doorman_entry *entry)
{
    static const struct weir_yaml_key keys[] = {
        { "identifier_glob", weir_yaml_read_text, ENTRY(glob) },
        { "capacity", read_yaml_number, ENTRY(capacity) },
        { "safe_capacity", read_yaml_number, ENTRY(safe_capacity) },
        { "description", weir_yaml_read_text, ENTRY(description) },
        { "algorithm", read_algorithm, 0 },
    };
    entry->line = (uint32_t)node->start_mark.line + 1;
    return weir_yaml_read_mapping(reading, node, "an entry of resources", keys,
                                  WEIR_COUNT_OF(keys), entry);
}

static int read_doorman_entries(const struct weir_yaml_reading *reading,
                                const yaml_node_t *node, const char *name,
                                void *to)
{
    struct weir_doorman_yaml *yaml = to;
    size_t count = 0;
    int error = weir_yaml_read_count(reading, node, name,
                                     WEIR_DOORMAN_TEMPLATES_MAX, &count);
    if (error < 0)
        return error;
    yaml->entries = calloc(count + 1, sizeof(*yaml->entries));
    if (!yaml->entries)
        return refuse_yaml_memory(reading->diag);
    yaml->count = count;
    for (size_t i = 0; i < count && error == 0; i++)
        error = read_doorman_entry(reading,
                                   weir_yaml_item(reading->document, node, i),
                                   &yaml->entries[i]);
    return error;
}

int weir_doorman_yaml_read(struct weir_text text,
                           struct weir_doorman_yaml *yaml)
{
    static const struct weir_yaml_bounds bounds = {
        .nesting = NESTING_MAX,
        .documents = 1,
        .error = WEIR_ESYNTAX,
        .why = "a second document isn't taken",
    };
    static const struct weir_yaml_key keys[] = {
        { "resources", read_doorman_entries, 0 },
    };
    int error = weir_yaml_nodes_load(text, &bounds, &yaml->nodes);
    if (error < 0 || yaml->nodes.count == 0)
        return error;
    yaml_document_t *document = &yaml->nodes.documents[0];
    const struct weir_yaml_reading reading = { &dialect, document,
                                               yaml->nodes.diag, yaml };
    return weir_yaml_read_mapping(&reading,
                                  yaml_document_get_root_node(document),
                                  "the file", keys, WEIR_COUNT_OF(keys), yaml);
}

void weir_doorman_yaml_fini(struct weir_doorman_yaml *yaml)
{
    for (size_t i = 0; i < yaml->count; i++)
        free(yaml->entries[i].parameters);
    free(yaml->entries);
    weir_yaml_nodes_fini(&yaml->nodes);
}
