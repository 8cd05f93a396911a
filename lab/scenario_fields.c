/* SPDX-License-Identifier: MIT
 * lab/scenario_fields.c - lists of key=value, by tables: "network", "node".
 *
 * A row of a table has a field's name, offset, reader and printer. A field
 * isn't printed if it would be printed the same for the struct that the reader
 * starts from; so no other code needs to know defaults or compare values. */

#include <string.h>

#include "lab/memory.h"
#include "lab/scenario_internal.h"

/* ---- Any list ------------------------------------------------------- */

static int refuse_list_field(struct weir_builder *builder,
                             const struct weir_word *word,
                             const struct weir_script_field *fields,
                             size_t count)
{
    const char **names =
        weir_scenario_alloc(builder->scenario, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = fields[i].name;
    return weir_script_unknown(builder->diag, word, "field", names);
}

static int read_list_field(struct weir_builder *builder,
                           const struct weir_script_field *fields, size_t count,
                           void *object, uint32_t *given)
{
    const struct weir_word *word = weir_line_take(&builder->line);
    struct weir_word key;
    struct weir_word value;
    bool paired = weir_word_cut(word, "=", &key, &value);
    size_t i = 0;
    while (i < count &&
           !weir_text_equal(weir_text_of(fields[i].name), key.text))
        i++;
    if (i == count)
        return refuse_list_field(builder, &key, fields, count);
    if (!paired || value.text.len == 0)
        return WEIR_REFUSE(builder, &value, "%s needs a value: %s=…",
                           fields[i].name, fields[i].name);
    if (*given & 1u << i)
        return WEIR_REFUSE(builder, word, "%s is given twice", fields[i].name);
    *given |= 1u << i;
    return fields[i].read(builder, &value, (char *)object + fields[i].offset);
}

int weir_values_read(struct weir_builder *builder,
                     const struct weir_script_field *fields, size_t count,
                     void *object, uint32_t *out_given)
{
    uint32_t given = 0;
    weir_assert(count <= 32);
    while (weir_line_peek(&builder->line)) {
        int error = read_list_field(builder, fields, count, object, &given);
        if (error < 0)
            return error;
    }
    if (out_given)
        *out_given = given;
    return 0;
}

static char *text_of_field(const struct weir_scenario *scenario,
                           const struct weir_script_field *field,
                           const void *object)
{
    char *text = NULL;
    size_t len;
    FILE *out = weir_must(open_memstream(&text, &len));
    field->print(out, scenario, (const char *)object + field->offset);
    weir_must(fclose(out) == 0 ? text : NULL);
    return text;
}

void weir_fields_print(FILE *out, const struct weir_scenario *scenario,
                       const struct weir_script_field *fields, size_t count,
                       const void *object, const void *base)
{
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].print)
            continue;
        char *text = text_of_field(scenario, &fields[i], object);
        char *usual = text_of_field(scenario, &fields[i], base);
        if (strcmp(text, usual) != 0)
            fprintf(out, " %s=%s", fields[i].name, text);
        free(text);
        free(usual);
    }
}

int weir_field_duration(struct weir_builder *builder,
                        const struct weir_word *value, void *member)
{
    return weir_read_duration(value, member, builder->diag);
}

void weir_field_print_duration(FILE *out, const struct weir_scenario *scenario,
                               const void *member)
{
    (void)scenario;
    weir_print_duration(out, *(const weir_duration *)member);
}

static int read_share_field(struct weir_builder *builder,
                            const struct weir_word *value, void *member)
{
    return weir_read_share(value, member, builder->diag);
}

static void print_share_field(FILE *out, const struct weir_scenario *scenario,
                              const void *member)
{
    (void)scenario;
    weir_print_share(out, *(const double *)member);
}

/* ---- network -------------------------------------------------------- */

/* By enum weir_delay_shape. */
static const char *const shapes[] = { "fixed", "uniform", "exponential",
                                      "pareto", NULL };

static int read_rtt(struct weir_builder *builder, const struct weir_word *value,
                    void *member)
{
    weir_duration rtt;
    int error = weir_read_duration(value, &rtt, builder->diag);
    if (error == 0)
        *(weir_duration *)member = rtt / 2;
    return error;
}

static int read_shape(struct weir_builder *builder,
                      const struct weir_word *value, void *member)
{
    int shape;
    int error = weir_read_choice(value, "shape", shapes, &shape, builder->diag);
    if (error == 0)
        *(enum weir_delay_shape *)member = (enum weir_delay_shape)shape;
    return error;
}

static void print_shape(FILE *out, const struct weir_scenario *scenario,
                        const void *member)
{
    (void)scenario;
    fputs(shapes[*(const enum weir_delay_shape *)member], out);
}

static int read_width(struct weir_builder *builder,
                      const struct weir_word *value, void *member)
{
    double per_s;
    if (weir_word_is(value, "unlimited")) {
        *(uint64_t *)member = 0;
        return 0;
    }
    int error = weir_read_rate(value, &per_s, NULL, builder->diag);
    if (error < 0)
        return error;
    if (per_s < 1)
        return WEIR_REFUSE(builder, value,
                           "a link carries at least 1/s, in "
                           "bytes; to stop it, cut it");
    *(uint64_t *)member = (uint64_t)per_s;
    return 0;
}

static void print_width(FILE *out, const struct weir_scenario *scenario,
                        const void *member)
{
    uint64_t bytes_per_s = *(const uint64_t *)member;
    (void)scenario;
    if (bytes_per_s == 0)
        fputs("unlimited", out);
    else
        weir_print_rate(out, (double)bytes_per_s, false);
}

enum { NET_RTT, NET_DELAY, NET_JITTER, NET_SHAPE };
#define NET(NAME, MEMBER, READ, PRINT)                       \
    {                                                        \
        NAME, offsetof(struct weir_net, MEMBER), READ, PRINT \
    }
static const struct weir_script_field net_fields[] = {
    [NET_RTT] = NET("rtt", delay, read_rtt, NULL),
    [NET_DELAY] =
        NET("delay", delay, weir_field_duration, weir_field_print_duration),
    [NET_JITTER] =
        NET("jitter", spread, weir_field_duration, weir_field_print_duration),
    [NET_SHAPE] = NET("shape", shape, read_shape, print_shape),
    NET("loss", loss, read_share_field, print_share_field),
    NET("twice", twice, read_share_field, print_share_field),
    NET("reorder", reorder, read_share_field, print_share_field),
    NET("replay", replay, read_share_field, print_share_field),
    NET("rate", bytes_per_s, read_width, print_width),
};

int weir_build_net(struct weir_builder *builder, struct weir_net *net)
{
    struct weir_where where = builder->line.words[builder->line.next - 1].where;
    uint32_t given = 0;
    if (!weir_line_peek(&builder->line))
        return weir_script_refuse(builder->diag, where,
                                  "say how the network is: rtt=, jitter=, "
                                  "loss= … (see weir-scenario(5))");
    int error = weir_values_read(builder, net_fields, WEIR_COUNT_OF(net_fields),
                                 net, &given);
    if (error < 0)
        return error;
    if (given & 1u << NET_RTT && given & 1u << NET_DELAY)
        return weir_script_refuse(builder->diag, where,
                                  "rtt= is twice delay=; give one of them");
    if (net->spread == 0 && net->shape != WEIR_DELAY_FIXED &&
        given & 1u << NET_SHAPE)
        return weir_script_refuse(builder->diag, where,
                                  "a shape needs a jitter=");
    if (net->spread > 0 && net->shape == WEIR_DELAY_FIXED)
        net->shape = WEIR_DELAY_UNIFORM;
    if (net->spread == 0)
        net->shape = WEIR_DELAY_FIXED;
    if (net->shape == WEIR_DELAY_UNIFORM && net->spread > net->delay)
        return weir_script_refuse(builder->diag, where,
                                  "a uniform jitter "
                                  "can't be above the delay of one way");
    return 0;
}

void weir_print_net(FILE *out, const struct weir_scenario *scenario,
                    const struct weir_net *net, const struct weir_net *base)
{
    weir_fields_print(out, scenario, net_fields, WEIR_COUNT_OF(net_fields), net,
                      base);
}

/* ---- node ----------------------------------------------------------- */

static int read_flag_field(struct weir_builder *builder,
                           const struct weir_word *value, void *member)
{
    static const char *const words[] = { "off", "on", NULL };
    int flag;
    int error = weir_read_choice(value, "choice", words, &flag, builder->diag);
    if (error == 0)
        *(bool *)member = flag == 1;
    return error;
}

static void print_flag(FILE *out, const struct weir_scenario *scenario,
                       const void *member)
{
    (void)scenario;
    fputs(*(const bool *)member ? "on" : "off", out);
}

static int read_correction(struct weir_builder *builder,
                           const struct weir_word *value, void *member)
{
    struct weir_settings *settings = member;
    double ratio = 0;
    bool automatic = weir_word_is(value, "auto");
    int error =
        automatic ? 0 : weir_read_real(value, 0, 1000, &ratio, builder->diag);
    if (error < 0)
        return error;
    settings->correction_auto = automatic;
    settings->correction_ppm = (uint32_t)(ratio * 1e6 + 0.5);
    return 0;
}

static void print_correction(FILE *out, const struct weir_scenario *scenario,
                             const void *member)
{
    const struct weir_settings *settings = member;
    (void)scenario;
    if (settings->correction_auto)
        fputs("auto", out);
    else
        weir_print_real(out, settings->correction_ppm / 1e6);
}

static const struct weir_script_field node_fields[] = {
    { "report_interval", offsetof(struct weir_settings, report_interval),
      weir_field_duration, weir_field_print_duration },
    { "stale_after", offsetof(struct weir_settings, stale_after),
      weir_field_duration, weir_field_print_duration },
    { "slack", offsetof(struct weir_settings, slack), read_flag_field,
      print_flag },
    { "correction_ratio", 0, read_correction, print_correction },
};

int weir_build_settings(struct weir_builder *builder)
{
    struct weir_settings *node = &builder->scenario->node;
    const struct weir_word *first = &builder->line.words[0];
    int error = weir_values_read(builder, node_fields,
                                 WEIR_COUNT_OF(node_fields), node, NULL);
    if (error < 0)
        return error;
    if (node->report_interval < WEIR_SECOND / 100 ||
        node->report_interval > 3600 * WEIR_SECOND)
        return WEIR_REFUSE(builder, first,
                           "report_interval must be 10ms to 1h");
    if (node->stale_after < node->report_interval)
        return WEIR_REFUSE(builder, first,
                           "stale_after can't be shorter than report_interval");
    return 0;
}

void weir_print_settings(FILE *out, const struct weir_scenario *scenario)
{
    struct weir_scenario *fresh = weir_scenario_new("");
    char *text = NULL;
    size_t len;
    FILE *fields = weir_must(open_memstream(&text, &len));
    weir_fields_print(fields, scenario, node_fields, WEIR_COUNT_OF(node_fields),
                      &scenario->node, &fresh->node);
    weir_must(fclose(fields) == 0 ? text : NULL);
    if (len > 0)
        fprintf(out, "node%s\n", text);
    free(text);
    weir_scenario_free(fresh);
}
