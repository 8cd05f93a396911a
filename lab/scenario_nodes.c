/* SPDX-License-Identifier: MIT
 * lab/scenario_nodes.c - selections of nodes: "root1", "l7", "l1..l30",
 * "limiters", "3 of limiters", "1% of l1..l500". */

#include <math.h>

#include "core/quota/quota_text.h"
#include "lab/scenario_internal.h"

struct weir_selection weir_nodes_all(const struct weir_scenario *scenario,
                                     bool root)
{
    uint32_t count = root ? scenario->roots : scenario->limiters;
    return (struct weir_selection){ .root = root, .last = count - 1 };
}

/* "root7": its kind, and its index from 0. */
static int read_node_name(struct weir_builder *builder,
                          const struct weir_word *word, bool *out_root,
                          uint32_t *out_index)
{
    static const struct {
        const char *prefix;
        bool root;
    } kinds[] = { { "root", true }, { "limiter", false }, { "l", false } };
    for (size_t i = 0; i < WEIR_COUNT_OF(kinds); i++) {
        size_t len = weir_text_of(kinds[i].prefix).len;
        struct weir_text head = { word->text.p, len };
        if (word->text.len <= len ||
            !weir_text_equal(head, weir_text_of(kinds[i].prefix)))
            continue;
        struct weir_text digits = { word->text.p + len, word->text.len - len };
        uint64_t number;
        if (!weir_number_parse(digits, &number))
            continue;
        const struct weir_scenario *scenario = builder->scenario;
        bool root = kinds[i].root;
        uint32_t count = root ? scenario->roots : scenario->limiters;
        if (number == 0 || number > count)
            return WEIR_REFUSE(builder, word,
                               "there is no %s; the %s are %s1 to %s%u",
                               WEIR_SHOWN(word), root ? "roots" : "limiters",
                               root ? "root" : "l", root ? "root" : "l", count);
        *out_root = root;
        *out_index = (uint32_t)number - 1;
        return 0;
    }
    return WEIR_REFUSE(builder, word,
                       "%s names no node; write root1, l7, "
                       "l1..l9, roots, limiters, or 3 of limiters",
                       WEIR_SHOWN(word));
}

static int read_node_range(struct weir_builder *builder,
                           const struct weir_word *word,
                           struct weir_selection *out)
{
    bool roots = weir_word_is(word, "roots");
    if (roots || weir_word_is(word, "limiters")) {
        *out = weir_nodes_all(builder->scenario, roots);
        out->where = word->where;
        return 0;
    }
    struct weir_word first;
    struct weir_word last;
    struct weir_selection nodes = { .where = word->where };
    bool ranged = weir_word_cut(word, "..", &first, &last);
    int error = read_node_name(builder, &first, &nodes.root, &nodes.first);
    nodes.last = nodes.first;
    bool root = nodes.root;
    if (error == 0 && ranged)
        error = read_node_name(builder, &last, &root, &nodes.last);
    if (error < 0)
        return error;
    if (root != nodes.root)
        return WEIR_REFUSE(builder, word,
                           "%s goes from a root to a limiter; "
                           "name both ends alike",
                           WEIR_SHOWN(word));
    if (nodes.last < nodes.first)
        return WEIR_REFUSE(builder, word,
                           "the range %s is empty; write the "
                           "smaller number first",
                           WEIR_SHOWN(word));
    *out = nodes;
    return 0;
}

/* "3" or "1%" of 'nodes'. */
static int draw_nodes(struct weir_builder *builder,
                      const struct weir_word *word,
                      struct weir_selection *nodes)
{
    uint32_t all = nodes->last - nodes->first + 1;
    uint64_t count = 0;
    bool percent =
        word->text.len > 0 && word->text.p[word->text.len - 1] == '%';
    double share = 0;
    int error = percent ? weir_read_share(word, &share, builder->diag)
                        : weir_read_count(word, 1, all, &count, builder->diag);
    if (error < 0)
        return error;
    if (percent)
        count = (uint64_t)fmax(1, round(share * all));
    nodes->count = count == all ? 0 : (uint32_t)count;
    return 0;
}

static int read_drawn(struct weir_builder *builder,
                      const struct weir_word *count,
                      const struct weir_word *range, struct weir_selection *out)
{
    struct weir_selection nodes;
    int error = read_node_range(builder, range, &nodes);
    if (error == 0)
        error = draw_nodes(builder, count, &nodes);
    if (error < 0)
        return error;
    nodes.where = count->where;
    *out = nodes;
    return 0;
}

int weir_build_nodes(struct weir_builder *builder, struct weir_selection *out)
{
    struct weir_line *line = &builder->line;
    const struct weir_word *word;
    const struct weir_word *range;
    int error =
        weir_line_want(line, "nodes, such as root1, l7 or limiters", &word);
    if (error < 0)
        return error;
    if (!weir_line_keyword(line, "of"))
        return read_node_range(builder, word, out);
    error = weir_line_want(line, "limiters, roots or a range of them", &range);
    return error < 0 ? error : read_drawn(builder, word, range, out);
}

int weir_build_nodes_word(struct weir_builder *builder,
                          const struct weir_word *word,
                          struct weir_selection *out)
{
    struct weir_word count;
    struct weir_word range;
    if (weir_word_cut(word, " of ", &count, &range))
        return read_drawn(builder, &count, &range, out);
    return read_node_range(builder, word, out);
}

int weir_build_pair(struct weir_builder *builder, const char *keyword,
                    struct weir_selection *out_limiters,
                    struct weir_selection *out_roots)
{
    struct weir_selection nodes[2];
    int error = weir_build_nodes(builder, &nodes[0]);
    if (error < 0)
        return error;
    if (!weir_line_keyword(&builder->line, keyword))
        return WEIR_REFUSE(builder, &nodes[0],
                           "a link has two ends; write NODES %s NODES",
                           keyword);
    error = weir_build_nodes(builder, &nodes[1]);
    if (error < 0)
        return error;
    if (nodes[0].root == nodes[1].root)
        return WEIR_REFUSE(builder, &nodes[1],
                           "links are between limiters "
                           "and roots; these are %s on both ends",
                           nodes[0].root ? "roots" : "limiters");
    *out_limiters = nodes[nodes[0].root];
    *out_roots = nodes[!nodes[0].root];
    return 0;
}

void weir_print_nodes(FILE *out, const struct weir_scenario *scenario,
                      const struct weir_selection *nodes)
{
    struct weir_selection all = weir_nodes_all(scenario, nodes->root);
    const char *prefix = nodes->root ? "root" : "l";
    if (nodes->count > 0)
        fprintf(out, "%u of ", nodes->count);
    if (nodes->first == nodes->last)
        fprintf(out, "%s%u", prefix, nodes->first + 1);
    else if (nodes->first == all.first && nodes->last == all.last)
        fputs(nodes->root ? "roots" : "limiters", out);
    else
        fprintf(out, "%s%u..%s%u", prefix, nodes->first + 1, prefix,
                nodes->last + 1);
}
