/* SPDX-License-Identifier: MIT
 * codec/rls_rules.c - reads the configuration of envoyproxy/ratelimit, and
 * finds a descriptor's rule.
 *
 * Theory of operation. A tree of nodes in one array: the children of a node are
 * adjacent: first those with a value, sorted, then those with a pattern, in the
 * order of the file, then those without a value, sorted. An exact value is
 * found by binary search, and patterns are tried in their order.
 *
 *     node  path=/cart*  --> [ user=ann, user=a*, user ]
 *
 * The search for a descriptor goes down one level per entry, never back up. The
 * node where it ends has the descriptor's limit, as in the original. In a walk
 * of the tree from left to right, the limit that the search finds comes before
 * all others whose patterns match the same entries. weir_rls_rules_all() has
 * that order, and quotas must be tried in it (rls_quotas.c).
 *
 * One function for each level reads the file:
 *
 *     mapping          domain, descriptors              read_top
 *       list
 *         mapping      key, value, rate_limit, …        read_written
 *           mapping    unit, requests_per_unit, …       read_limit
 *             list     replaces                         read_replaces
 *
 * Texts stay in libyaml's documents, which the rules keep. Aliases can make a
 * large tree of a short file, so the number of nodes is bounded, and so is the
 * depth, which ends a cycle. */

#include "codec/rls_rules.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "codec/yaml_nodes.h"
#include "core/quota/glob.h"
#include "core/quota/quota_text.h"

enum node_kind { VALUE, PATTERN, ANY };

#define NO_RULE UINT32_MAX
#define NESTING_MAX 64 /* of YAML */

struct node {
    struct weir_text key;
    struct weir_text value; /* for VALUE and PATTERN */
    enum node_kind kind;
    uint32_t file, line;
    uint32_t place;        /* position in its list */
    uint32_t first, count; /* its children */
    uint32_t rule;         /* index of its limit, or NO_RULE */
};

struct domain {
    struct weir_text name;
    uint32_t first, count; /* its outermost nodes */
};

struct weir_rls_rules {
    struct weir_diag *diag;        /* of the reading; may be NULL */
    uint32_t file;                 /* the one being read, for 'diag' */
    struct weir_yaml_nodes *files; /* owned; own the bytes of all texts */
    size_t file_count;
    struct domain *domains; /* owned; sorted by name */
    size_t domain_count;
    struct node *nodes; /* owned */
    uint32_t node_count, node_capacity;
    struct weir_rls_rule *rules; /* owned */
    size_t rule_count, rule_capacity;
    size_t metadata_room; /* bytes that the metadata may still have */
};

/* ---- Finding ---- */

static int compare_texts(const void *a, const void *b)
{
    const struct node *one = a;
    const struct node *other = b;
    int order = weir_text_compare(one->key, other->key);
    return order ? order : weir_text_compare(one->value, other->value);
}

/* Among 'count' nodes sorted by key and value. */
static const struct node *search_nodes(const struct node *nodes, uint32_t count,
                                       struct weir_text key,
                                       struct weir_text value)
{
    const struct node wanted = { .key = key, .value = value };
    return bsearch(&wanted, nodes, count, sizeof *nodes, compare_texts);
}

/* The index of the first node of this kind or a later one. */
static uint32_t begin_of(const struct node *nodes, uint32_t count,
                         enum node_kind kind)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (nodes[middle].kind < kind)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static const struct node *find_child(const struct node *nodes, uint32_t count,
                                     const struct weir_rls_entry *entry)
{
    uint32_t patterns = begin_of(nodes, count, PATTERN);
    const struct node *exact =
        search_nodes(nodes, patterns, entry->key, entry->value);
    /* An empty value matches no VALUE node. */
    if (exact && entry->value.len > 0)
        return exact;
    uint32_t any = begin_of(nodes, count, ANY);
    for (uint32_t i = patterns; i < any; i++)
        if (weir_text_equal(nodes[i].key, entry->key) &&
            weir_glob_match(nodes[i].value, entry->value, NULL))
            return &nodes[i];
    return search_nodes(nodes + any, count - any, entry->key,
                        (struct weir_text){ NULL, 0 });
}

static int compare_domains(const void *a, const void *b)
{
    const struct domain *one = a;
    const struct domain *other = b;
    return weir_text_compare(one->name, other->name);
}

const struct weir_rls_rule *weir_rls_rules_find(
    const struct weir_rls_rules *rules, struct weir_text domain,
    const struct weir_rls_entry *entries, uint32_t count)
{
    const struct domain wanted = { .name = domain };
    const struct domain *in =
        bsearch(&wanted, rules->domains, rules->domain_count,
                sizeof *rules->domains, compare_domains);
    if (!in || in->count == 0 || count == 0)
        return NULL;
    uint32_t first = in->first;
    uint32_t children = in->count;
    const struct node *node = NULL;
    for (uint32_t i = 0; i < count; i++) {
        node = find_child(rules->nodes + first, children, &entries[i]);
        if (!node)
            return NULL;
        first = node->first;
        children = node->count;
    }
    return node->rule == NO_RULE ? NULL : &rules->rules[node->rule];
}

const struct weir_rls_rule *weir_rls_rules_all(
    const struct weir_rls_rules *rules, size_t *out_count)
{
    *out_count = rules->rule_count;
    return rules->rules;
}

void weir_rls_quota_name(const struct weir_rls_rule *rule,
                         const struct weir_rls_entry *entries, uint32_t count,
                         struct weir_rls_name *name)
{
    for (uint32_t i = 0; i < count; i++) {
        bool shared = rule && (rule->shared >> i & 1);
        weir_rls_name_add(name, entries[i].key,
                          shared ? rule->patterns[i].value : entries[i].value,
                          false);
    }
}

/* ---- The YAML as it is written: types are checked, values aren't ---- */

/* The top of a document. */
struct top {
    struct weir_text domain;
    const yaml_node_t *descriptors; /* a list; NULL: none */
};

/* A descriptor. */
struct written {
    struct weir_text key;
    struct weir_text value;
    const yaml_node_t *descriptors; /* nested ones, a list; NULL: none */
    const yaml_node_t *metadata;    /* a mapping; NULL: none */
    bool shadow, quota_mode, share_threshold, ignored;
    bool has_limit; /* the next six members are set */
    bool unlimited;
    bool units_given;
    uint32_t requests_per_unit;
    struct weir_text unit;
    struct weir_text name;
    uint32_t replace_count;
    struct weir_text replaces[WEIR_RLS_REPLACES_MAX];
};

#define MANY_DOCUMENTS "more than 1024 documents"

static int load_files(const struct weir_text *texts, size_t count,
                      struct weir_rls_rules *rules)
{
    static const struct weir_yaml_bounds bounds = {
        .nesting = NESTING_MAX,
        .documents = WEIR_RLS_DOMAINS_MAX,
        .error = WEIR_ETOOBIG,
        .why = MANY_DOCUMENTS,
    };
    size_t bytes = 0;
    int error = 0;
    rules->files = calloc(count, sizeof *rules->files);
    if (!rules->files)
        return weir_yaml_refuse_memory(rules->diag);
    for (size_t i = 0; i < count && error == 0; i++) {
        struct weir_yaml_nodes *yaml = &rules->files[rules->file_count++];
        rules->file = (uint32_t)i;
        bytes += texts[i].len;
        if (texts[i].len > WEIR_RLS_CONFIG_BYTES_MAX ||
            bytes > WEIR_RLS_CONFIG_BYTES_MAX)
            return weir_diag_put(rules->diag, WEIR_ETOOBIG,
                                 "the file is over 16 MiB, or all of them are");
        yaml->diag = rules->diag;
        error = weir_yaml_nodes_load(texts[i], &bounds, yaml);
        yaml->diag = NULL;
    }
    return error;
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

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* The base that an integer's prefix names, which is dropped: as in YAML 1.1,
 * and 0o as in YAML 1.2. */
static int take_base(struct weir_text *text)
{
    char mark = text->len > 1 && text->p[0] == '0' ? text->p[1] : '\0';
    int base = mark == 'x' ? 16 : mark == 'b' ? 2 : mark == 'o' ? 8 : 0;
    if (base > 0)
        *text = weir_text_drop(*text, 2);
    return base > 0 ? base : mark != '\0' ? 8 : 10;
}

/* An integer of YAML 1.1, as the original's library reads it: 0100 is 64, and
 * 1_000 is 1000. */
static bool parse_yaml_units(struct weir_text text, uint32_t *out)
{
    uint64_t number = 0;
    bool any = false;
    if (text.len > 0 && text.p[0] == '+')
        text = weir_text_drop(text, 1);
    int base = take_base(&text);
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_value(text.p[i]);
        if (text.p[i] == '_')
            continue;
        if (digit < 0 || digit >= base)
            return false;
        any = true;
        number = number * (unsigned)base + (unsigned)digit;
        if (number > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)number;
    return any;
}

static int read_units(const struct weir_yaml_reading *reading,
                      const yaml_node_t *node, const char *name, void *to)
{
    struct written *written = to;
    if (!weir_yaml_is_plain(node) ||
        !parse_yaml_units(weir_yaml_scalar(node), &written->requests_per_unit))
        return weir_yaml_refuse_type(reading, node, name,
                                     "a whole number up to 4294967295 (with "
                                     "a leading 0, it is octal)");
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

static int read_yaml_mapping(const struct weir_yaml_reading *reading,
                             const yaml_node_t *node, const char *name,
                             void *to)
{
    if (node->type != YAML_MAPPING_NODE)
        return weir_yaml_refuse_type(reading, node, name, "a mapping");
    *(const yaml_node_t **)to = node;
    return 0;
}

static int read_replaces(const struct weir_yaml_reading *reading,
                         const yaml_node_t *node, const char *name, void *to)
{
    static const struct weir_yaml_key keys[] = { { "name", weir_yaml_read_text,
                                                   0 } };
    struct written *written = to;
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

#define AT(member) offsetof(struct written, member)

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
    struct written *written = to;
    written->has_limit = true;
    return weir_yaml_read_mapping(reading, node, name, keys,
                                  WEIR_COUNT_OF(keys), to);
}

static int read_written(yaml_document_t *document, const yaml_node_t *node,
                        struct written *out, struct weir_diag *diag)
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
        { "metadata", read_yaml_mapping, AT(metadata) },
    };
    const struct weir_yaml_reading reading = { &dialect, document, diag, NULL };
    memset(out, 0, sizeof *out);
    return weir_yaml_read_mapping(&reading, node, "a descriptor", keys,
                                  WEIR_COUNT_OF(keys), out);
}

static int read_top(yaml_document_t *document, struct top *out,
                    struct weir_diag *diag)
{
    static const struct weir_yaml_key keys[] = {
        /* Of the resource that Envoy Gateway made the file from. */
        { "name", ignore_value, 0 },
        { "domain", weir_yaml_read_text, offsetof(struct top, domain) },
        { "descriptors", read_yaml_list, offsetof(struct top, descriptors) },
    };
    const struct weir_yaml_reading reading = { &dialect, document, diag, NULL };
    memset(out, 0, sizeof *out);
    return weir_yaml_read_mapping(&reading,
                                  yaml_document_get_root_node(document),
                                  "the file", keys, WEIR_COUNT_OF(keys), out);
}

/* ---- A descriptor's values ---- */

static bool has_star(struct weir_text text)
{
    return text.len > 0 && memchr(text.p, '*', text.len);
}

static int read_rate_unit(struct weir_diag *diag, const yaml_node_t *node,
                          const struct written *written,
                          enum weir_rls_unit *out)
{
    static const char *const names[] = {
        [WEIR_RLS_SECOND] = "second", [WEIR_RLS_MINUTE] = "minute",
        [WEIR_RLS_HOUR] = "hour",     [WEIR_RLS_DAY] = "day",
        [WEIR_RLS_MONTH] = "month",   [WEIR_RLS_YEAR] = "year",
        [WEIR_RLS_WEEK] = "week",
    };
    char shown[WEIR_SHOW_MAX];
    if (written->unlimited && written->unit.len > 0)
        return weir_yaml_refuse(
            diag, node, WEIR_EINVAL,
            "should not specify rate limit unit when unlimited", "", "");
    *out = WEIR_RLS_NO_UNIT;
    if (written->unlimited)
        return 0;
    for (unsigned i = 1; i < WEIR_COUNT_OF(names); i++)
        if (strlen(names[i]) == written->unit.len &&
            strncasecmp(names[i], written->unit.p, written->unit.len) == 0)
            *out = (enum weir_rls_unit)i;
    if (*out != WEIR_RLS_NO_UNIT)
        return 0;
    weir_text_show(written->unit, shown);
    return weir_yaml_refuse(diag, node, WEIR_EINVAL, "invalid rate limit unit ",
                            shown,
                            ": second, minute, hour, day, week, month or year");
}

static int check_replaces(struct weir_diag *diag, const yaml_node_t *node,
                          const struct written *written)
{
    for (uint32_t i = 0; i < written->replace_count; i++)
        if (weir_text_equal(written->replaces[i], written->name))
            return weir_yaml_refuse(
                diag, node, WEIR_EINVAL,
                "replaces should not contain name of same descriptor", "", "");
    return 0;
}

static int check_limit(struct weir_diag *diag, const yaml_node_t *node,
                       const struct written *written)
{
    if (!written->has_limit)
        return 0;
    if (!written->unlimited && !written->units_given)
        return weir_yaml_refuse(diag, node, WEIR_EINVAL,
                                "rate_limit has no requests_per_unit "
                                "(0 refuses everything)",
                                "", "");
    if (written->name.len > WEIR_RLS_NAME_MAX)
        return weir_yaml_refuse(diag, node, WEIR_ETOOBIG,
                                "the name of the limit is over 128 bytes", "",
                                "");
    return check_replaces(diag, node, written);
}

static int check_descriptor_node(struct weir_diag *diag,
                                 const yaml_node_t *node,
                                 const struct written *written)
{
    char shown[WEIR_SHOW_MAX];
    if (written->key.len == 0)
        return weir_yaml_refuse(diag, node, WEIR_EINVAL,
                                "descriptor has empty key", "", "");
    if (written->share_threshold && !has_star(written->value)) {
        weir_text_show(written->key, shown);
        return weir_yaml_refuse(diag, node, WEIR_EINVAL,
                                "share_threshold can only be used with "
                                "wildcard values (containing '*'), but "
                                "found key ",
                                shown, "");
    }
    return check_limit(diag, node, written);
}

/* ---- Building ---- */

struct build {
    struct weir_rls_rules *rules;
    yaml_document_t *document;
    struct weir_text domain;
    struct weir_rls_entry path[WEIR_RLS_DEPTH_MAX];
    uint32_t shared; /* a bit for each entry of the path */
};

static int copy_texts(struct build *build, const struct written *from,
                      uint32_t depth, struct weir_rls_rule *rule)
{
    struct weir_rls_entry *patterns = calloc(depth, sizeof *patterns);
    struct weir_text *replaces =
        calloc(from->replace_count + 1, sizeof *replaces);
    if (!patterns || !replaces) {
        free(patterns);
        free(replaces);
        return weir_yaml_refuse_memory(build->rules->diag);
    }
    memcpy(patterns, build->path, depth * sizeof *patterns);
    memcpy(replaces, from->replaces, from->replace_count * sizeof *replaces);
    rule->patterns = patterns;
    rule->replaces = replaces;
    return 0;
}

/* Appends a limit; sort_rules() puts them in order at the end. */
static int add_written_rule(struct build *build, const yaml_node_t *node,
                            const struct written *written, uint32_t depth,
                            struct node *to)
{
    struct weir_rls_rules *rules = build->rules;
    enum weir_rls_unit unit;
    int error = read_rate_unit(rules->diag, node, written, &unit);
    if (error < 0)
        return error;
    if (rules->rule_count == rules->rule_capacity) {
        size_t capacity = rules->rule_capacity ? 2 * rules->rule_capacity : 64;
        struct weir_rls_rule *grown =
            realloc(rules->rules, capacity * sizeof *grown);
        if (!grown)
            return weir_yaml_refuse_memory(rules->diag);
        rules->rules = grown;
        rules->rule_capacity = capacity;
    }
    struct weir_rls_rule rule = {
        .file = to->file,
        .line = to->line,
        .requests_per_unit = written->requests_per_unit,
        .unit = unit,
        .shadow = written->shadow,
        .quota_mode = written->quota_mode,
        .shared = build->shared & ((1u << depth) - 1),
        .name = written->name,
        .replace_count = written->replace_count,
        .domain = build->domain,
        .depth = depth,
    };
    error = copy_texts(build, written, depth, &rule);
    if (error < 0)
        return error;
    if (written->metadata)
        rule.metadata = weir_rls_metadata_from_yaml(
            build->document, written->metadata, &rules->metadata_room);
    to->rule = (uint32_t)rules->rule_count;
    weir_assert(rules->rule_count < rules->rule_capacity);
    rules->rules[rules->rule_count++] = rule;
    if (written->metadata && !rule.metadata)
        return weir_yaml_refuse(rules->diag, written->metadata, WEIR_ETOOBIG,
                                "metadata has more than 1024 values, is nested "
                                "more than 32 deep, of all limits over 64 MiB, "
                                "or a key is no text",
                                "", "");
    return 0;
}

/* Room for 'count' nodes in a row. */
static int add_nodes(struct weir_rls_rules *rules, const yaml_node_t *where,
                     size_t count, uint32_t *out_first)
{
    if (count > WEIR_RLS_RULES_MAX - rules->node_count)
        return weir_yaml_refuse(rules->diag, where, WEIR_ETOOBIG,
                                "more than 100000 descriptors", "", "");
    uint32_t need = rules->node_count + (uint32_t)count;
    if (need > rules->node_capacity) {
        uint32_t capacity = need + need / 2 + 64;
        struct node *grown = realloc(rules->nodes, capacity * sizeof *grown);
        if (!grown)
            return weir_yaml_refuse_memory(rules->diag);
        rules->nodes = grown;
        rules->node_capacity = capacity;
    }
    weir_assert(need <= rules->node_capacity);
    *out_first = rules->node_count;
    rules->node_count = need;
    return 0;
}

static int read_rule_nodes(struct build *build, const yaml_node_t *list,
                           uint32_t depth, uint32_t *out_first,
                           uint32_t *out_count);

/* Reads the descriptor of node 'at', which is nested in 'depth' others. */
static int read_rule_node(struct build *build, const yaml_node_t *yaml_node,
                          uint32_t depth, uint32_t at)
{
    struct weir_diag *diag = build->rules->diag;
    struct written written;
    int error = read_written(build->document, yaml_node, &written, diag);
    if (error == 0)
        error = check_descriptor_node(diag, yaml_node, &written);
    if (error < 0)
        return error;
    struct node node = {
        .key = written.key,
        .value = written.value,
        .kind = written.value.len == 0    ? ANY
                : has_star(written.value) ? PATTERN
                                          : VALUE,
        .file = build->rules->file,
        .line = (uint32_t)yaml_node->start_mark.line + 1,
        .place = at,
        .rule = NO_RULE,
    };
    weir_assert(depth < WEIR_COUNT_OF(build->path));
    build->path[depth] = (struct weir_rls_entry){ node.key, node.value };
    build->shared &= ~(1u << depth);
    build->shared |= (uint32_t)written.share_threshold << depth;
    if (written.has_limit)
        error = add_written_rule(build, yaml_node, &written, depth + 1, &node);
    if (error == 0 && written.descriptors)
        error = read_rule_nodes(build, written.descriptors, depth + 1,
                                &node.first, &node.count);
    /* The array may have moved meanwhile. */
    weir_assert(at < build->rules->node_count);
    build->rules->nodes[at] = node;
    return error;
}

/* The order within one list: VALUE, then PATTERN as in the file, then ANY. */
static int compare_nodes(const void *a, const void *b)
{
    const struct node *one = a;
    const struct node *other = b;
    if (one->kind != other->kind)
        return one->kind < other->kind ? -1 : 1;
    if (one->kind == PATTERN)
        return (one->place > other->place) - (one->place < other->place);
    return compare_texts(one, other);
}

static int refuse_node_twice(struct build *build, const struct node *node)
{
    char shown[WEIR_SHOW_MAX];
    struct weir_diag *diag = build->rules->diag;
    build->rules->file = node->file;
    if (diag)
        diag->line = node->line;
    weir_text_show(node->value.len ? node->value : node->key, shown);
    return weir_diag_set(diag, WEIR_EEXIST,
                         "duplicate descriptor composite key ", shown, NULL);
}

static bool is_same_node(const struct node *a, const struct node *b)
{
    return a->kind == b->kind && compare_texts(a, b) == 0;
}

/* Nodes with patterns aren't sorted; there are few. */
static int check_patterns(struct build *build, const struct node *nodes,
                          uint32_t count)
{
    if (count > WEIR_RLS_PATTERNS_MAX)
        return weir_diag_put(build->rules->diag, WEIR_ETOOBIG,
                             "more than 1024 values with a '*' in one list");
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (is_same_node(&nodes[k], &nodes[i]))
                return refuse_node_twice(build, &nodes[i]);
    return 0;
}

static int check_twice(struct build *build, const struct node *nodes,
                       uint32_t count)
{
    uint32_t patterns = begin_of(nodes, count, PATTERN);
    uint32_t any = begin_of(nodes, count, ANY);
    for (uint32_t i = 1; i < count; i++)
        if (is_same_node(&nodes[i - 1], &nodes[i]))
            return refuse_node_twice(build, &nodes[i]);
    return check_patterns(build, nodes + patterns, any - patterns);
}

/* Reads the items of a list into the nodes from 'first' on. */
static int read_items(struct build *build, const yaml_node_t *list,
                      uint32_t depth, uint32_t first)
{
    size_t count = weir_yaml_items(list);
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++)
        error = read_rule_node(build, weir_yaml_item(build->document, list, i),
                               depth, first + (uint32_t)i);
    return error;
}

static int order_list(struct build *build, uint32_t first, uint32_t count)
{
    struct node *nodes = build->rules->nodes + first;
    qsort(nodes, count, sizeof *nodes, compare_nodes);
    return check_twice(build, nodes, count);
}

static int read_rule_nodes(struct build *build, const yaml_node_t *list,
                           uint32_t depth, uint32_t *out_first,
                           uint32_t *out_count)
{
    struct weir_rls_rules *rules = build->rules;
    size_t count = weir_yaml_items(list);
    if (depth >= WEIR_RLS_DEPTH_MAX)
        return weir_yaml_refuse(rules->diag, list, WEIR_ETOOBIG,
                                "descriptors are nested more than 16 deep", "",
                                "");
    /* A list may be empty: then there is no array of nodes. */
    if (count == 0)
        return 0;
    int error = add_nodes(rules, list, count, out_first);
    if (error == 0)
        error = read_items(build, list, depth, *out_first);
    if (error < 0)
        return error;
    *out_count = (uint32_t)count;
    return order_list(build, *out_first, *out_count);
}

/* ---- Domains ----
 *
 * Several documents may have one domain: its outermost list is then all of
 * theirs, in the order of the files. */

struct part {
    struct top top;
    yaml_document_t *document;
    uint32_t file;
    size_t place; /* among all documents */
};

static int compare_parts(const void *a, const void *b)
{
    const struct part *one = a;
    const struct part *other = b;
    int order = weir_text_compare(one->top.domain, other->top.domain);
    return order ? order
                 : (one->place > other->place) - (one->place < other->place);
}

static int read_tops(struct weir_rls_rules *rules, struct part *parts)
{
    size_t place = 0;
    for (size_t file = 0; file < rules->file_count; file++) {
        const struct weir_yaml_nodes *yaml = &rules->files[file];
        rules->file = (uint32_t)file;
        for (size_t i = 0; i < yaml->count; i++, place++) {
            struct part *part = &parts[place];
            part->document = &yaml->documents[i];
            part->file = (uint32_t)file;
            part->place = place;
            int error = read_top(part->document, &part->top, rules->diag);
            if (error < 0)
                return error;
            if (part->top.domain.len == 0)
                return weir_yaml_refuse(
                    rules->diag, yaml_document_get_root_node(part->document),
                    WEIR_EINVAL, "config file cannot have empty domain", "",
                    "");
        }
    }
    return 0;
}

/* Reads one domain's parts. */
static int read_domain(struct weir_rls_rules *rules, const struct part *parts,
                       size_t count, struct domain *out)
{
    struct build build = { .rules = rules, .domain = parts->top.domain };
    size_t total = 0;
    out->name = parts->top.domain;
    for (size_t i = 0; i < count; i++)
        if (parts[i].top.descriptors)
            total += weir_yaml_items(parts[i].top.descriptors);
    if (total == 0)
        return 0;
    rules->file = parts->file;
    int error = add_nodes(rules, NULL, total, &out->first);
    uint32_t at = out->first;
    for (size_t i = 0; i < count && error == 0; i++) {
        const yaml_node_t *list = parts[i].top.descriptors;
        if (!list)
            continue;
        build.document = parts[i].document;
        rules->file = parts[i].file;
        error = read_items(&build, list, 0, at);
        at += (uint32_t)weir_yaml_items(list);
    }
    if (error < 0)
        return error;
    out->count = (uint32_t)total;
    return order_list(&build, out->first, out->count);
}

static int read_parts(struct weir_rls_rules *rules, struct part *parts,
                      size_t count)
{
    int error = read_tops(rules, parts);
    if (error < 0)
        return error;
    qsort(parts, count, sizeof *parts, compare_parts);
    for (size_t i = 0, next; i < count && error == 0; i = next) {
        for (next = i + 1; next < count; next++)
            if (!weir_text_equal(parts[next].top.domain, parts[i].top.domain))
                break;
        error = read_domain(rules, &parts[i], next - i,
                            &rules->domains[rules->domain_count++]);
    }
    return error;
}

static int read_domains(struct weir_rls_rules *rules)
{
    size_t count = 0;
    for (size_t i = 0; i < rules->file_count; i++)
        count += rules->files[i].count;
    if (count == 0)
        return weir_yaml_refuse(rules->diag, NULL, WEIR_EINVAL,
                                "the file is empty", "", "");
    if (count > WEIR_RLS_DOMAINS_MAX)
        return weir_yaml_refuse(rules->diag, NULL, WEIR_ETOOBIG, MANY_DOCUMENTS,
                                "", "");
    struct part *parts = calloc(count, sizeof *parts);
    rules->domains = calloc(count, sizeof *rules->domains);
    int error = parts && rules->domains ? read_parts(rules, parts, count)
                                        : weir_yaml_refuse_memory(rules->diag);
    free(parts);
    return error;
}

/* ---- The order of limits ---- */

/* Moves the rules of these nodes and of all below them into 'sorted'. */
static void sort_rules(struct weir_rls_rules *rules, uint32_t first,
                       uint32_t count, struct weir_rls_rule *sorted,
                       uint32_t *at)
{
    for (uint32_t i = first; i < first + count; i++) {
        struct node *node = &rules->nodes[i];
        if (node->rule != NO_RULE) {
            sorted[*at] = rules->rules[node->rule];
            node->rule = (*at)++;
        }
        sort_rules(rules, node->first, node->count, sorted, at);
    }
}

static int put_nodes_in_order(struct weir_rls_rules *rules)
{
    uint32_t at = 0;
    struct weir_rls_rule *sorted =
        calloc(rules->rule_count + 1, sizeof *sorted);
    if (!sorted)
        return weir_yaml_refuse_memory(rules->diag);
    for (size_t i = 0; i < rules->domain_count; i++)
        sort_rules(rules, rules->domains[i].first, rules->domains[i].count,
                   sorted, &at);
    weir_assert(at == rules->rule_count);
    free(rules->rules);
    rules->rules = sorted;
    return 0;
}

/* ---- Life ---- */

int weir_rls_rules_parse(const struct weir_text *texts, size_t count,
                         struct weir_rls_rules **out, size_t *out_file,
                         struct weir_diag *diag)
{
    weir_assert(count > 0 && count <= WEIR_RLS_FILES_MAX);
    struct weir_rls_rules *rules = calloc(1, sizeof *rules);
    *out_file = 0;
    if (!rules)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    rules->diag = diag;
    rules->metadata_room = WEIR_RLS_METADATA_ALL_MAX;
    int error = load_files(texts, count, rules);
    if (error == 0)
        error = read_domains(rules);
    if (error == 0)
        error = put_nodes_in_order(rules);
    *out_file = rules->file;
    rules->diag = NULL;
    if (error < 0) {
        weir_rls_rules_free(rules);
        return error;
    }
    *out = rules;
    return 0;
}

void weir_rls_rules_free(struct weir_rls_rules *rules)
{
    if (!rules)
        return;
    for (size_t i = 0; i < rules->rule_count; i++) {
        free((void *)rules->rules[i].patterns);
        free((void *)rules->rules[i].replaces);
        json_decref((json_t *)rules->rules[i].metadata);
    }
    free(rules->rules);
    free(rules->nodes);
    free(rules->domains);
    for (size_t i = 0; i < rules->file_count; i++)
        weir_yaml_nodes_fini(&rules->files[i]);
    free(rules->files);
    free(rules);
}
