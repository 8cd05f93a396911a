/* SPDX-License-Identifier: MIT
 * lab/scenario_load.c - "load NAME to QUOTA field=value …". */

#include "lab/memory.h"
#include "lab/scenario_internal.h"

/* By enum weir_arrivals, enum weir_spread. */
static const char *const arrivals[] = { "poisson", "regular", NULL };
static const char *const spreads[] = { "uniform", "round_robin", "sticky",
                                       "zipf", NULL };
#define SKEW_MAX 10
#define SPEED_MAX 1e6
#define KEYS_MAX 10000000

/* "0.5x,3x@10s,0.5x@40s" */
static int read_load_rate(struct weir_builder *builder,
                          const struct weir_word *value, void *member)
{
    struct weir_load *load = member;
    struct weir_word rest = *value;
    do {
        struct weir_word step;
        struct weir_word rate;
        struct weir_word at;
        weir_word_cut(&rest, ",", &step, &rest);
        bool timed = weir_word_cut(&step, "@", &rate, &at);
        struct weir_rate_step next = { 0 };
        int error = weir_build_room(builder, load->step_count);
        if (error == 0)
            error = weir_read_rate(&rate, &next.per_s, &next.times_limit,
                                   builder->diag);
        if (error == 0 && timed)
            error = weir_read_duration(&at, &next.at, builder->diag);
        if (error < 0)
            return error;
        bool first = load->step_count == 0;
        weir_duration last = first ? 0 : load->steps[load->step_count - 1].at;
        if (first ? next.at > 0 : next.at <= last)
            return WEIR_REFUSE(builder, &step,
                               "%s is out of order; the first rate has no @, "
                               "the others rise, as in 1x,3x@10s,1x@20s",
                               WEIR_SHOWN(&step));
        *WEIR_APPEND(builder, load->steps, load->step_count) = next;
    } while (rest.text.len > 0);
    return 0;
}

static void print_rate(FILE *out, const struct weir_scenario *scenario,
                       const void *member)
{
    const struct weir_load *load = member;
    (void)scenario;
    for (size_t i = 0; i < load->step_count; i++) {
        fputs(i > 0 ? "," : "", out);
        weir_print_rate(out, load->steps[i].per_s, load->steps[i].times_limit);
        if (load->steps[i].at == 0)
            continue;
        fputc('@', out);
        weir_print_duration(out, load->steps[i].at);
    }
}

/* "50%/10s" */
static int read_sine(struct weir_builder *builder,
                     const struct weir_word *value, void *member)
{
    struct weir_load *load = member;
    struct weir_word part;
    struct weir_word period;
    if (!weir_word_cut(value, "/", &part, &period))
        return WEIR_REFUSE(builder, value,
                           "a sine is written as part/period: 50%%/10s");
    int error = weir_read_share(&part, &load->sine_part, builder->diag);
    if (error == 0)
        error = weir_read_duration(&period, &load->sine_period, builder->diag);
    if (error == 0 && load->sine_period == 0)
        return WEIR_REFUSE(builder, &period, "the period of a sine can't be 0");
    return error;
}

static void print_sine(FILE *out, const struct weir_scenario *scenario,
                       const void *member)
{
    const struct weir_load *load = member;
    (void)scenario;
    weir_print_share(out, load->sine_part);
    fputc('/', out);
    weir_print_duration(out, load->sine_period);
}

/* "0.5s/5s" */
static int read_load_burst(struct weir_builder *builder,
                           const struct weir_word *value, void *member)
{
    struct weir_load *load = member;
    struct weir_word on;
    struct weir_word every;
    if (!weir_word_cut(value, "/", &on, &every))
        return WEIR_REFUSE(builder, value,
                           "bursts are written as on/every: 0.5s/5s");
    int error = weir_read_duration(&on, &load->burst_on, builder->diag);
    if (error == 0)
        error = weir_read_duration(&every, &load->burst_every, builder->diag);
    if (error == 0 &&
        (load->burst_on == 0 || load->burst_on >= load->burst_every))
        return WEIR_REFUSE(builder, value,
                           "a burst must be shorter than the "
                           "time from one to the next, and not 0");
    return error;
}

static void print_burst(FILE *out, const struct weir_scenario *scenario,
                        const void *member)
{
    const struct weir_load *load = member;
    (void)scenario;
    weir_print_duration(out, load->burst_on);
    fputc('/', out);
    weir_print_duration(out, load->burst_every);
}

static int read_arrivals(struct weir_builder *builder,
                         const struct weir_word *value, void *member)
{
    int choice;
    int error = weir_read_choice(value, "kind of arrivals", arrivals, &choice,
                                 builder->diag);
    if (error == 0)
        *(enum weir_arrivals *)member = (enum weir_arrivals)choice;
    return error;
}

static void print_arrivals(FILE *out, const struct weir_scenario *scenario,
                           const void *member)
{
    (void)scenario;
    fputs(arrivals[*(const enum weir_arrivals *)member], out);
}

/* "sticky", "zipf", "zipf:1.2" */
static int read_spread(struct weir_builder *builder,
                       const struct weir_word *value, void *member)
{
    struct weir_load *load = member;
    struct weir_word word;
    struct weir_word skew;
    int choice;
    bool skewed = weir_word_cut(value, ":", &word, &skew);
    int error =
        weir_read_choice(&word, "spread", spreads, &choice, builder->diag);
    if (error < 0)
        return error;
    load->spread = (enum weir_spread)choice;
    load->skew = load->spread == WEIR_SPREAD_ZIPF;
    if (!skewed)
        return 0;
    if (load->spread != WEIR_SPREAD_ZIPF)
        return WEIR_REFUSE(builder, &skew,
                           "only zipf has a skew, as in zipf:1.2");
    return weir_read_real(&skew, 0, SKEW_MAX, &load->skew, builder->diag);
}

static void print_spread(FILE *out, const struct weir_scenario *scenario,
                         const void *member)
{
    const struct weir_load *load = member;
    (void)scenario;
    fputs(spreads[load->spread], out);
    if (load->spread != WEIR_SPREAD_ZIPF)
        return;
    fputc(':', out);
    weir_print_real(out, load->skew);
}

/* "1000", "1000:1.1" */
static int read_keys(struct weir_builder *builder,
                     const struct weir_word *value, void *member)
{
    struct weir_load *load = member;
    struct weir_word number;
    struct weir_word skew;
    uint64_t keys = 0;
    bool skewed = weir_word_cut(value, ":", &number, &skew);
    int error = weir_read_count(&number, 1, KEYS_MAX, &keys, builder->diag);
    load->keys = (uint32_t)keys;
    if (error == 0 && skewed)
        error =
            weir_read_real(&skew, 0, SKEW_MAX, &load->key_skew, builder->diag);
    return error;
}

static void print_keys(FILE *out, const struct weir_scenario *scenario,
                       const void *member)
{
    const struct weir_load *load = member;
    (void)scenario;
    fprintf(out, "%u", load->keys);
    if (load->key_skew == 0)
        return;
    fputc(':', out);
    weir_print_real(out, load->key_skew);
}

/* "4", "1..8" */
static int read_weight(struct weir_builder *builder,
                       const struct weir_word *value, void *member)
{
    struct weir_load *load = member;
    struct weir_word least;
    struct weir_word most;
    bool ranged = weir_word_cut(value, "..", &least, &most);
    int error = weir_read_count(&least, 1, WEIR_WEIGHT_MAX, &load->weight_min,
                                builder->diag);
    load->weight_max = load->weight_min;
    if (error == 0 && ranged)
        error = weir_read_count(&most, load->weight_min, WEIR_WEIGHT_MAX,
                                &load->weight_max, builder->diag);
    return error;
}

static void print_weight(FILE *out, const struct weir_scenario *scenario,
                         const void *member)
{
    const struct weir_load *load = member;
    (void)scenario;
    fprintf(out, "%llu", (unsigned long long)load->weight_min);
    if (load->weight_max > load->weight_min)
        fprintf(out, "..%llu", (unsigned long long)load->weight_max);
}

static int read_on(struct weir_builder *builder, const struct weir_word *value,
                   void *member)
{
    struct weir_selection *on = member;
    int error = weir_build_nodes_word(builder, value, on);
    if (error == 0 && on->root)
        return WEIR_REFUSE(builder, value,
                           "load comes to limiters; roots take no requests");
    return error;
}

static void print_on(FILE *out, const struct weir_scenario *scenario,
                     const void *member)
{
    const struct weir_selection *on = member;
    bool spaced = on->count > 0;
    fputs(spaced ? "\"" : "", out);
    weir_print_nodes(out, scenario, on);
    fputs(spaced ? "\"" : "", out);
}

static int read_load_log(struct weir_builder *builder,
                         const struct weir_word *value, void *member)
{
    *(char **)member = weir_scenario_text(builder->scenario, value->text);
    return 0;
}

static void print_load_log(FILE *out, const struct weir_scenario *scenario,
                           const void *member)
{
    const char *log = *(char *const *)member;
    (void)scenario;
    if (log)
        weir_print_word(out, weir_text_of(log));
}

static int read_speed(struct weir_builder *builder,
                      const struct weir_word *value, void *member)
{
    return weir_read_real(value, 1 / SPEED_MAX, SPEED_MAX, member,
                          builder->diag);
}

static void print_speed(FILE *out, const struct weir_scenario *scenario,
                        const void *member)
{
    (void)scenario;
    weir_print_real(out, *(const double *)member);
}

enum { LOAD_RATE, LOAD_LOG, LOAD_SPEED };
static const struct weir_script_field fields[] = {
    [LOAD_RATE] = { "rate", 0, read_load_rate, print_rate },
    [LOAD_LOG] = { "log", offsetof(struct weir_load, log), read_load_log,
                   print_load_log },
    [LOAD_SPEED] = { "speed", offsetof(struct weir_load, log_speed), read_speed,
                     print_speed },
    { "sine", 0, read_sine, print_sine },
    { "burst", 0, read_load_burst, print_burst },
    { "arrivals", offsetof(struct weir_load, arrivals), read_arrivals,
      print_arrivals },
    { "spread", 0, read_spread, print_spread },
    { "keys", 0, read_keys, print_keys },
    { "weight", 0, read_weight, print_weight },
    { "on", offsetof(struct weir_load, on), read_on, print_on },
};

static struct weir_load usual(const struct weir_scenario *scenario)
{
    return (struct weir_load){
        .log_speed = 1,
        .keys = 1,
        .weight_min = 1,
        .weight_max = 1,
        .on = weir_nodes_all(scenario, false),
    };
}

static int check_load_fields(struct weir_builder *builder,
                             const struct weir_word *name,
                             const struct weir_load *load, uint32_t given)
{
    bool rated = given & 1u << LOAD_RATE;
    bool logged = given & 1u << LOAD_LOG;
    if (rated == logged)
        return WEIR_REFUSE(builder, name,
                           "a load has either a rate= or a "
                           "log=; give one of them");
    if (given & 1u << LOAD_SPEED && !logged)
        return WEIR_REFUSE(builder, name, "speed= is that of a log=");
    for (size_t i = 0; i < builder->scenario->load_count; i++) {
        if (strcmp(builder->scenario->loads[i].name, load->name) == 0)
            return WEIR_REFUSE(builder, name, "there is a load %s already",
                               WEIR_SHOWN(name));
    }
    return 0;
}

int weir_build_load(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_line *line = &builder->line;
    const struct weir_word *name;
    const struct weir_word *quota;
    int error = weir_line_want(line, "the load's name", &name);
    if (error < 0)
        return error;
    if (!weir_line_keyword(line, "to"))
        return WEIR_REFUSE(builder, name,
                           "say what the load goes to: load "
                           "NAME to QUOTA rate=…");
    error = weir_line_want(line, "the name of a quota", &quota);
    if (error == 0)
        error = weir_build_room(builder, scenario->load_count);
    if (error < 0)
        return error;
    struct weir_load load = usual(scenario);
    uint32_t given = 0;
    load.name = weir_scenario_text(scenario, name->text);
    load.quota = weir_build_mention(builder, quota);
    load.where = name->where;
    error =
        weir_values_read(builder, fields, WEIR_COUNT_OF(fields), &load, &given);
    if (error == 0)
        error = check_load_fields(builder, name, &load, given);
    if (error == 0)
        *WEIR_APPEND(builder, scenario->loads, scenario->load_count) = load;
    return error;
}

void weir_print_load(FILE *out, const struct weir_scenario *scenario,
                     const struct weir_load *load)
{
    struct weir_load base = usual(scenario);
    fputs("load ", out);
    weir_print_word(out, weir_text_of(load->name));
    fputs(" to ", out);
    weir_print_word(out, weir_text_of(load->quota));
    weir_fields_print(out, scenario, fields, WEIR_COUNT_OF(fields), load,
                      &base);
    fputc('\n', out);
}
