/* SPDX-License-Identifier: MIT
 * lab/swarm.c - random scenarios; see swarm.h.
 *
 * A seed is turned into a file of the scenario's language, which is built as
 * any other, so a random scenario can be read, kept and replayed.
 *
 * Each scenario has only a few kinds of trouble, drawn first: if all kinds met,
 * the checkers would have to allow for so much that little would be judged
 * (swarm testing: Groce et al., ISSTA 2012). In time:
 *
 *     0        quotas, load
 *     0 .. T   trouble: kills, cuts, edits, … each at a random instant
 *     T .. +1  all is mended, bit by bit, in another order
 *     +1 .. +3 light load: every limiter uses every quota once more
 *     then     one limiter alone makes requests; the others must be told
 *     to +16   nothing; then all must agree
 *
 * Half of the limits leak next to nothing within a run, so that a bucket is the
 * sum of the units passed, and every single unit matters. */

#include "lab/swarm.h"

#include <stdarg.h>
#include <stdio.h>

#include "lab/memory.h"

#define MENDING WEIR_SECOND
#define LIGHT (2 * WEIR_SECOND)
#define SOLO (WEIR_SECOND / 2)
#define QUIET (13 * WEIR_SECOND)
#define ADAPTIVE_SETTLE (60 * WEIR_SECOND)
#define ADAPTIVE_JUDGED (40 * WEIR_SECOND)

/* Kinds of trouble, as bits. */
enum trouble {
    LOSSES = 1,
    CUTS = 2,
    DEATHS = 4,
    CLOCKS = 8,
    SLOWNESS = 16,
    EDITS = 32,
    STORE = 64,
    TROUBLES = 7,
};

struct swarm {
    struct weir_rng rng;
    FILE *out;
    unsigned troubles;
    uint32_t limiters, roots;
    bool parented[6]; /* by index in 'names' */
    bool gone[6];     /* removed by now */
    bool away;        /* the store is away now: edits are refused */
    uint32_t quotas;
    weir_duration trouble_end; /* T */
};

/* In the order of creation; each scenario has a first part of them. */
static const struct {
    const char *name, *parent, *load; /* 'load': the name requested */
    bool may_go;                      /* it is no parent */
} names[] = {
    { "all", NULL, "all", false },    { "all/some", "all", "all/some", true },
    { "t/*", "all", "t/*", false },   { "u/*/*", "t/{1}", "u/1/*", true },
    { "alone", NULL, "alone", true }, { "w/*", NULL, "w/*", true },
};
#define NAMES WEIR_COUNT_OF(names)

/* One draw a call or expression: compilers evaluate two draws in different
 * orders, and the same seed would give two scenarios. */
static uint64_t below(struct swarm *s, uint64_t bound)
{
    return weir_rng_below(&s->rng, bound);
}

static bool one_in(struct swarm *s, uint64_t count)
{
    return below(s, count) == 0;
}

/* Rather small, sometimes large: a random power of two, then within it. */
static uint64_t about(struct swarm *s, unsigned bits_least, unsigned bits_most)
{
    uint64_t one = (uint64_t)1
                   << (bits_least + below(s, bits_most - bits_least));
    return one + below(s, one);
}

static const char *pick_word(struct swarm *s, const char *const *words,
                             size_t count)
{
    return words[below(s, count)];
}
#define PICK(s, ...)                                     \
    pick_word((s), (const char *const[]){ __VA_ARGS__ }, \
              WEIR_COUNT_OF(((const char *const[]){ __VA_ARGS__ })))

static void emit(struct swarm *s, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

static void emit(struct swarm *s, const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    vfprintf(s->out, what, arguments);
    va_end(arguments);
}

/* ---- Network and quotas ---- */

static void write_network(struct swarm *s)
{
    uint64_t delay_us = one_in(s, 4) ? 0 : about(s, 4, 16);
    emit(s, " delay=%lluus", (unsigned long long)delay_us);
    if (delay_us > 0 && one_in(s, 2)) {
        emit(s, " jitter=%lluus", (unsigned long long)(1 + below(s, delay_us)));
        emit(s, " shape=%s", PICK(s, "uniform", "exponential", "pareto"));
    }
    if (!(s->troubles & LOSSES))
        return;
    static const char *const kinds[] = { "loss", "twice", "reorder", "replay" };
    for (size_t i = 0; i < WEIR_COUNT_OF(kinds); i++) {
        if (one_in(s, 2))
            emit(s, " %s=%llu%%", kinds[i],
                 (unsigned long long)(1 + below(s, 30)));
    }
}

static void write_fleet(struct swarm *s)
{
    emit(s, "roots %u\nlimiters %u\nslots 32\nnetwork", s->roots, s->limiters);
    write_network(s);
    emit(s, "\nnode report_interval=%llums",
         (unsigned long long)(100 * (1 + below(s, 10))));
    emit(s, " stale_after=%llus", (unsigned long long)(1 + below(s, 10)));
    emit(s, " slack=%s", one_in(s, 6) ? "off" : "on");
    if (one_in(s, 10))
        emit(s, " correction_ratio=%s", PICK(s, "0.5", "1", "auto"));
    emit(s, "\n");
}

/* A limit, its bursts, and now and then another mode. */
static void write_rule(struct swarm *s)
{
    uint64_t high = about(s, 3, 10);
    if (one_in(s, 2))
        emit(s, " limit=%llu/day", (unsigned long long)(1 + below(s, 100)));
    else
        emit(s, " limit=%llu/s", (unsigned long long)about(s, 2, 9));
    emit(s, " high_burst=%llu low_burst=%llu", (unsigned long long)high,
         (unsigned long long)(one_in(s, 2) ? high : high / 2));
    if (one_in(s, 6))
        emit(s, " on_stale=%s", PICK(s, "limit", "share", "hold"));
    if (one_in(s, 12))
        emit(s, " mode=%s", PICK(s, "shadow", "off"));
    if (one_in(s, 16))
        emit(s, " sharing=local");
}

static void write_parent(struct swarm *s, size_t name)
{
    if (names[name].parent && s->parented[name])
        emit(s, " parent=%s", names[name].parent);
}

static void write_quotas(struct swarm *s)
{
    s->quotas = 1 + (uint32_t)below(s, NAMES);
    for (size_t i = 0; i < s->quotas; i++) {
        s->parented[i] = !one_in(s, 4);
        emit(s, "quota %s", names[i].name);
        write_rule(s);
        write_parent(s, i);
        emit(s, "\n");
    }
}

/* ---- Load ---- */

static unsigned long long ms(weir_duration span)
{
    return span / WEIR_MILLISECOND;
}

static void write_load(struct swarm *s, size_t name)
{
    weir_duration half = s->trouble_end / 2;
    uint64_t first = about(s, 2, 8);
    uint64_t then = about(s, 2, 9);
    emit(s, "load on%zu to %s rate=%llu/s,%llu/s@%llums,0/s@%llums", name + 1,
         names[name].load, (unsigned long long)first, (unsigned long long)then,
         ms(half), ms(s->trouble_end));
    if (strchr(names[name].load, '*'))
        emit(s, " keys=%llu", (unsigned long long)(1 + below(s, 3)));
    if (one_in(s, 3))
        emit(s, " weight=1..%llu", (unsigned long long)(1 + below(s, 9)));
    if (one_in(s, 4))
        emit(s, " sine=80%%/2s");
    if (one_in(s, 4))
        emit(s, " burst=200ms/1s");
    if (one_in(s, 3))
        emit(s, " arrivals=regular");
    emit(s, " spread=%s\n",
         PICK(s, "uniform", "round_robin", "sticky", "zipf"));
}

/* A flood at once, which slack and stop must limit. */
static void write_flood(struct swarm *s)
{
    weir_duration from = below(s, s->trouble_end);
    weir_duration until =
        from + 100 * WEIR_MILLISECOND + below(s, 300 * WEIR_MILLISECOND);
    const char *name = names[below(s, s->quotas)].load;
    emit(s, "load flood to %s rate=0/s,%llu/s@%llums,0/s@%llums\n", name,
         (unsigned long long)about(s, 9, 13), ms(from) + 1, ms(until) + 1);
}

/* One limiter alone makes requests, of which the others must be told. */
static void write_solo(struct swarm *s)
{
    weir_duration from = s->trouble_end + MENDING + LIGHT;
    const char *name = names[below(s, s->quotas)].load;
    uint64_t per_s = about(s, 5, 9);
    emit(s,
         "load solo to %s rate=0/s,%llu/s@%llums,0/s@%llums on=l%llu "
         "arrivals=regular\n",
         name, (unsigned long long)per_s, ms(from), ms(from + SOLO),
         1 + (unsigned long long)below(s, s->limiters));
}

/* Every limiter uses every quota, so that all fills are sent again. */
static void write_light_load(struct swarm *s, size_t name)
{
    weir_duration from = s->trouble_end + MENDING;
    emit(s,
         "load light%zu to %s rate=0/s,%u/s@%llums,0/s@%llums "
         "spread=round_robin arrivals=regular",
         name + 1, names[name].load, 3 * s->limiters, ms(from),
         ms(from + LIGHT));
    if (strchr(names[name].load, '*'))
        emit(s, " keys=1");
    emit(s, "\n");
}

/* ---- Trouble ---- */

static void write_node(struct swarm *s, bool root)
{
    emit(s, root ? " root%llu" : " l%llu",
         (unsigned long long)(1 + below(s, root ? s->roots : s->limiters)));
}

static void write_any_node(struct swarm *s)
{
    write_node(s, one_in(s, 3));
}

static void write_link(struct swarm *s, const char *word)
{
    write_node(s, false);
    emit(s, " %s", word);
    write_node(s, true);
}

static void write_cut(struct swarm *s)
{
    emit(s, "cut");
    write_link(s, "from");
    if (one_in(s, 2))
        emit(s, " %s", PICK(s, "up", "down"));
    else if (one_in(s, 2))
        emit(s, " noticed after %llums", (unsigned long long)below(s, 2000));
}

static void write_mend(struct swarm *s)
{
    emit(s, "mend");
    write_link(s, "from");
}

static void write_death(struct swarm *s)
{
    if (one_in(s, 3)) {
        emit(s, "kill");
        write_any_node(s);
        return;
    }
    emit(s, "restart");
    write_any_node(s);
    if (one_in(s, 2))
        emit(s, " after %llums", (unsigned long long)(1 + below(s, 3000)));
}

static void write_start(struct swarm *s)
{
    emit(s, "start");
    write_any_node(s);
}

static void write_reset(struct swarm *s)
{
    emit(s, "reset");
    write_any_node(s);
}

static void set_clock(struct swarm *s)
{
    emit(s, "clock");
    write_any_node(s);
    const char *sign = one_in(s, 2) ? "-" : "";
    if (one_in(s, 2))
        emit(s, " drift=%s%lluppm", sign,
             (unsigned long long)(1 + below(s, 500)));
    else
        emit(s, " step=%s%llums", sign,
             (unsigned long long)(1 + below(s, 2000)));
}

static void write_slowness(struct swarm *s)
{
    if (one_in(s, 2)) {
        emit(s, "cpu");
        write_any_node(s);
        emit(s, " message=%lluus", (unsigned long long)below(s, 20000));
        emit(s, " item=%lluus", (unsigned long long)below(s, 500));
        return;
    }
    emit(s, "network");
    write_link(s, "to");
    emit(s, " rate=%llu/s", (unsigned long long)about(s, 10, 15));
}

static void pause_or_go_on(struct swarm *s)
{
    emit(s, one_in(s, 2) ? "pause" : "resume");
    write_any_node(s);
}

static void write_edit(struct swarm *s)
{
    size_t name = below(s, s->quotas);
    bool goes = names[name].may_go && !s->gone[name] && one_in(s, 4);
    if (!s->away)
        s->gone[name] = goes;
    if (goes) {
        emit(s, "remove %s", names[name].name);
        return;
    }
    emit(s, "set %s", names[name].name);
    write_rule(s);
    if (names[name].parent)
        emit(s, " parent=%s", one_in(s, 3) ? "" : names[name].parent);
}

static void move_store(struct swarm *s)
{
    s->away = !s->away;
    emit(s, "store %s", s->away ? "away" : "back");
}

/* Actions of each kind of trouble. */
static const struct {
    enum trouble trouble;
    void (*happen)(struct swarm *s);
} menu[] = {
    { CUTS, write_cut },          { CUTS, write_cut },
    { CUTS, write_mend },         { CUTS, write_reset },
    { DEATHS, write_death },      { DEATHS, write_start },
    { CLOCKS, set_clock },        { SLOWNESS, write_slowness },
    { SLOWNESS, pause_or_go_on }, { EDITS, write_edit },
    { EDITS, write_edit },        { STORE, move_store },
};

/* A random action of the drawn troubles; at least one is drawn. */
static void happen(struct swarm *s)
{
    size_t what;
    do {
        what = below(s, WEIR_COUNT_OF(menu));
    } while (!(s->troubles & menu[what].trouble));
    menu[what].happen(s);
}

/* In the order of time, because the removable quotas depend on it. */
static void write_trouble(struct swarm *s)
{
    if (!(s->troubles & ~(unsigned)LOSSES))
        return;
    weir_duration at = 0;
    for (uint64_t left = 1 + below(s, 12); left > 0; left--) {
        if (at < s->trouble_end)
            at += 1 + below(s, 2 * (s->trouble_end - at) / (left + 1));
        /* Often some come at once, and overtake each other. */
        uint64_t times = one_in(s, 3) ? 3 : 1;
        for (uint64_t i = 0; i < times; i++) {
            at += below(s, 30 * WEIR_MILLISECOND);
            if (at >= s->trouble_end)
                return;
            emit(s, "at %lluus ", (unsigned long long)(at / 1000));
            happen(s);
            emit(s, "\n");
        }
    }
}

/* Ends all faults, in a random order. */
static void write_mending(struct swarm *s)
{
    static const char *const all[] = {
        "mend",
        "network loss=0% twice=0% reorder=0% replay=0% rate=unlimited",
        "start limiters",
        "start roots",
        "resume limiters",
        "resume roots",
        "cpu limiters message=0s item=0s",
        "cpu roots message=0s item=0s",
        "clock limiters drift=0ppm",
        "clock roots drift=0ppm",
        "store back",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++)
        emit(s, "at %llums %s\n", ms(s->trouble_end) + below(s, ms(MENDING)),
             all[i]);
}

/* ---- An adaptive fleet ---- */

static unsigned long long us(weir_duration span)
{
    return span / (WEIR_MILLISECOND / 1000);
}

/* Before a pool of workers that answers 'per_s' at most. */
static void write_storage(struct swarm *s, uint64_t per_s)
{
    uint64_t workers = 4 + below(s, 13);
    weir_duration latency = workers * WEIR_SECOND / per_s;
    weir_duration target = latency * (40 + below(s, 61)) / 10;
    weir_duration timeout = target * (15 + below(s, 86)) / 10;
    emit(s, " workers=%llu latency=%lluus target=%lluus timeout=%lluus",
         (unsigned long long)workers, us(latency), us(target), us(timeout));
    emit(s, " cancel=%u", one_in(s, 2));
    if (one_in(s, 4))
        emit(s, " min=%llu", (unsigned long long)(1 + below(s, 3)));
    if (one_in(s, 3))
        emit(s, " classes=%s", PICK(s, "observed", "share"));
}

/* Less or more than the storage can do, but not just as much: then the limit is
 * hardly used and grows, and a surge by chance fills the queue for a window or
 * two before the limit falls. No controller's target holds at such a load. */
static void write_rate(struct swarm *s, uint64_t per_s)
{
    uint64_t tenths = one_in(s, 3) ? 4 + below(s, 4) : 13 + below(s, 18);
    uint64_t light = one_in(s, 4) ? below(s, s->limiters) : 0;
    /* Of the requests for 'light' processes one of a hundred is made. */
    uint64_t all = per_s * tenths * s->limiters * 10;
    emit(s, " rate=%llu/s light=%llu",
         (unsigned long long)(all / (100 * s->limiters - 99 * light)),
         (unsigned long long)light);
}

/* The storage becomes slow, or stands still, for a while. */
static void write_storage_trouble(struct swarm *s)
{
    weir_duration half = s->trouble_end / 2;
    if (one_in(s, 3)) {
        weir_duration at = 1 + below(s, half);
        weir_duration span = below(s, half);
        emit(s, " slowness=%llu slow_at=%lluus slow_for=%lluus",
             (unsigned long long)(2 + below(s, 4)), us(at), us(span));
    }
    if (one_in(s, 3)) {
        weir_duration at = 1 + below(s, half);
        emit(s, " hang_at=%lluus hang_for=%lluus", us(at), us(below(s, half)));
    }
}

static void write_adaptive_trouble(struct swarm *s)
{
    static const char *const losses[] = { "loss", "twice", "reorder",
                                          "replay" };
    static const char *const flags[] = { "cuts",   "deaths", "masters",
                                         "clocks", "pauses", "cpu",
                                         "edits",  "store",  "loads" };
    bool lossy = one_in(s, 3);
    for (size_t i = 0; i < WEIR_COUNT_OF(losses) && lossy; i++)
        if (one_in(s, 2))
            emit(s, " %s=%llu%%", losses[i],
                 (unsigned long long)(1 + below(s, 30)));
    for (size_t i = 0; i < WEIR_COUNT_OF(flags); i++)
        if (one_in(s, 3))
            emit(s, " %s=1", flags[i]);
}

/* See model_swarm.c. */
static void write_adaptive(struct swarm *s, uint64_t seed)
{
    uint64_t per_s = 60 + below(s, 190);
    s->limiters = 1 + (uint32_t)below(s, 12);
    s->roots = 1 + (uint32_t)below(s, 3);
    s->trouble_end = 5 * WEIR_SECOND + below(s, 15 * WEIR_SECOND);
    uint64_t started = 1 + below(s, s->limiters);
    emit(s, "title \"Swarm %llu: an adaptive fleet\"\n",
         (unsigned long long)seed);
    emit(s, "model swarm limiters=%u started=%llu roots=%u trouble=%lluus",
         s->limiters, (unsigned long long)started, s->roots,
         us(s->trouble_end));
    write_storage(s, per_s);
    write_rate(s, per_s);
    emit(s, " delay=%lluus", (unsigned long long)about(s, 4, 16));
    if (one_in(s, 2))
        emit(s, " jitter=%lluus", (unsigned long long)about(s, 4, 15));
    write_storage_trouble(s);
    write_adaptive_trouble(s);
    emit(s, " settle=%llus\nrun %lluus\n", ADAPTIVE_SETTLE / WEIR_SECOND,
         us(s->trouble_end + MENDING + ADAPTIVE_SETTLE + ADAPTIVE_JUDGED));
    emit(s, "measure goodput\nmeasure windows_over\nmeasure worst_window\n"
            "measure share_min\nmeasure share_max\nmeasure messages\n"
            "measure turns\nmeasure pause_s\n");
}

bool weir_swarm_is_adaptive(uint64_t seed)
{
    return seed % 4 == 2;
}

/* ---- The scenario ---- */

static void write_scenario(struct swarm *s, uint64_t seed)
{
    emit(s, "title \"Swarm %llu\"\n", (unsigned long long)seed);
    write_fleet(s);
    write_quotas(s);
    s->trouble_end = WEIR_MILLISECOND * (2000 + below(s, 10000));
    for (size_t i = 0; i < s->quotas; i++) {
        write_load(s, i);
        write_light_load(s, i);
    }
    if (one_in(s, 2))
        write_flood(s);
    write_solo(s);
    emit(s, "run %llums\n",
         ms(s->trouble_end + MENDING + LIGHT + SOLO + QUIET));
    write_trouble(s);
    write_mending(s);
}

struct weir_scenario *weir_swarm_scenario(uint64_t seed)
{
    char *text = NULL;
    size_t len = 0;
    struct swarm s = { .rng = { weir_rng_mix(seed) } };
    s.out = weir_must(open_memstream(&text, &len));
    /* Each with a probability of 3/8. */
    uint64_t some = below(&s, 1u << TROUBLES);
    some |= below(&s, 1u << TROUBLES);
    s.troubles = (unsigned)(some & below(&s, 1u << TROUBLES));
    s.roots = 1 + (uint32_t)below(&s, 4);
    s.limiters = 1 + (uint32_t)below(&s, 8);
    if (weir_swarm_is_adaptive(seed))
        write_adaptive(&s, seed);
    else
        write_scenario(&s, seed);
    if (fclose(s.out) != 0)
        weir_no_memory();
    char path[64];
    snprintf(path, sizeof(path), "swarm-%llu.weir", (unsigned long long)seed);
    struct weir_diag diag = { 0 };
    struct weir_text file = { text, len };
    struct weir_lab_script *script = weir_script_read(path, file, &diag);
    struct weir_scenario *scenario =
        script ? weir_scenario_build(script, 0, &diag) : NULL;
    if (!scenario) {
        char why[1024];
        weir_script_show(path, file, &diag, why, sizeof(why));
        fputs(why, stderr);
    }
    weir_must(scenario);
    weir_script_free(script);
    free(text);
    return scenario;
}
