/* SPDX-License-Identifier: MIT
 * lab/scenario.h - a scenario as data: the content of a .weir file with its
 * settings put in. weir-scenario(5) is the grammar.
 *
 * A file is read once (weir_script_read) and built once for each of its
 * variants (weir_scenario_build): texts with "$key" replaced, units parsed,
 * names checked. Both back ends, the figures and the swarm's random scenarios
 * use this struct and nothing else. The scenario owns everything. Instants are
 * durations since its start. */

#ifndef WEIR_SCENARIO_H
#define WEIR_SCENARIO_H

#include "lab/fleet.h"

/* Bounds of a file. */
#define WEIR_SCENARIO_BYTES_MAX (256u << 10)
#define WEIR_SCENARIO_LINES_MAX 2000
#define WEIR_SCENARIO_VARIANTS_MAX 256
#define WEIR_SCENARIO_ITEMS_MAX 4096 /* of any kind in one scenario */
#define WEIR_SCENARIO_SPAN_MAX (24 * 3600 * WEIR_SECOND)
#define WEIR_SCENARIO_WORDS_MAX 256    /* of one line */
#define WEIR_SCENARIO_SETTING_MAX 1024 /* bytes of a setting's value */
#define WEIR_SCENARIO_RATE_MAX 1e12    /* a second, of a load */

struct weir_model; /* model.h */

/* A place in the file, for messages of later stages. */
struct weir_where {
    uint32_t line, column;
};

/* A selection of nodes: a range, or some of a range drawn from the seed. */
struct weir_selection {
    bool root;            /* else limiters */
    uint32_t first, last; /* from 0, both included */
    uint32_t count;       /* so many of them, at random; 0: all */
    struct weir_where where;
};

/* A limiter in 'limiters' of such entries links to the roots of these entries
 * only; a limiter in none of them links to all roots. */
struct weir_linkage {
    struct weir_selection limiters, roots;
};

/* ---- Load ---- */

enum weir_arrivals { WEIR_ARRIVALS_POISSON, WEIR_ARRIVALS_REGULAR };
enum weir_spread {
    WEIR_SPREAD_UNIFORM, /* a limiter drawn for each request */
    WEIR_SPREAD_ROUND_ROBIN,
    WEIR_SPREAD_STICKY, /* each key always goes to the same limiter */
    WEIR_SPREAD_ZIPF,   /* limiter k with weight 1 / k^skew */
};
/* From 'at' on: requests a second, over all limiters. */
struct weir_rate_step {
    weir_duration at;
    double per_s;
    bool times_limit; /* 'per_s' is a multiple of the quota's limit */
};

struct weir_load {
    char *name;
    char *quota; /* a '*' in it stands for the key */
    struct weir_rate_step *steps;
    size_t step_count;
    double sine_part;                    /* of the rate, 0 .. 1 … */
    weir_duration sine_period;           /* … 0: no sine */
    weir_duration burst_on, burst_every; /* on at the start of each 'every';
                                          * 0: always */
    char *log;                           /* path of an access log; NULL: none */
    double log_speed;                    /* 1: the log's own speed */
    enum weir_arrivals arrivals;
    enum weir_spread spread;
    double skew;                     /* of WEIR_SPREAD_ZIPF */
    uint32_t keys;                   /* 1: only the quota itself */
    double key_skew;                 /* 0: uniform; else Zipf */
    uint64_t weight_min, weight_max; /* uniform */
    struct weir_selection on;        /* limiters that get it */
    struct weir_where where;
};

/* ---- Actions ---- */

enum weir_action_kind {
    WEIR_ACTION_KILL,
    WEIR_ACTION_START,
    WEIR_ACTION_RESTART, /* killed, and started 'span' later */
    WEIR_ACTION_RESET,
    WEIR_ACTION_PAUSE,
    WEIR_ACTION_RESUME,
    WEIR_ACTION_CPU,    /* span: per message; span2: per item */
    WEIR_ACTION_CLOCK,  /* step, ppm */
    WEIR_ACTION_CUT,    /* between nodes and others; ways; span: noticed
                         * after */
    WEIR_ACTION_MEND,   /* nodes from others; 'some' false: every link */
    WEIR_ACTION_NET,    /* net, of the links between nodes and others; 'some'
                          * false: of every link */
    WEIR_ACTION_SET,    /* quota */
    WEIR_ACTION_REMOVE, /* name */
    WEIR_ACTION_STORE,  /* away: 'flag' */
    WEIR_ACTION_LOAD,   /* load 'name' has rate 'rate' from now on */
    WEIR_ACTION_EXPECT, /* condition holds within 'span' */
};

/* ---- Quantities and metrics ---- */

/* The state at an instant, known to both back ends. */
enum weir_quantity {
    WEIR_QUANTITY_FILL,      /* of a quota: the largest root's, units */
    WEIR_QUANTITY_SPREAD,    /* of a quota: (largest - smallest root's fill)
                              * / limit */
    WEIR_QUANTITY_OVER_HIGH, /* of a quota: units that the fleet passed, in one
                              * bucket, above high / limit; simulator */
    WEIR_QUANTITY_LIMIT,     /* of a quota: units/s, NaN while running limiters
                              * differ */
    WEIR_QUANTITY_READY,     /* limiters that have their quotas */
    WEIR_QUANTITY_LINKS,     /* root links that are up */
    WEIR_QUANTITY_ROOTS,     /* roots that run */
    WEIR_QUANTITY_EPOCHS,    /* newest less oldest epoch among limiters */
};
/* Computed over a window of the run; see metric.c. */
enum weir_metric {
    WEIR_METRIC_OFFERED_MEAN, /* per second / limit */
    WEIR_METRIC_PASSED_MEAN,
    WEIR_METRIC_PASSED_SD, /* over bins */
    WEIR_METRIC_PASSED_MIN,
    WEIR_METRIC_PASSED_MAX,
    WEIR_METRIC_PERIOD_S,           /* of the oscillation of the passing rate */
    WEIR_METRIC_REFUSED_SHARE,      /* refused / offered */
    WEIR_METRIC_MAX_FILL_OVER_HIGH, /* limit-seconds */
    WEIR_METRIC_ONSET_EXCESS, /* passed less ideal's passed, limit-seconds */
    WEIR_METRIC_ECHO,         /* refused, limit-seconds */
    WEIR_METRIC_ECHO_S,       /* time until the last refusal, seconds */
    WEIR_METRIC_IDEAL_MEAN,
    WEIR_METRIC_IDEAL_SD,
    WEIR_METRIC_IDEAL_ECHO,
    WEIR_METRIC_REPORTS,       /* per root link that is up, and second */
    WEIR_METRIC_MESSAGES,      /* both ways, the same */
    WEIR_METRIC_BYTES,         /* both ways, the same */
    WEIR_METRIC_DIVERGENCE,    /* mean |limiter's fill - true| / limit */
    WEIR_METRIC_WAITING_BYTES, /* most bytes that waited before any node */
    WEIR_METRIC_UNSEEN_SHARE,  /* most of the stated bound that was used */
};
#define WEIR_METRIC_COUNT (WEIR_METRIC_UNSEEN_SHARE + 1)

enum weir_comparison {
    WEIR_IS_LESS,
    WEIR_IS_AT_MOST,
    WEIR_IS_EQUAL,
    WEIR_IS_AT_LEAST,
    WEIR_IS_MORE,
    WEIR_IS_WITHIN, /* low .. high */
};

struct weir_interval {
    weir_duration from, to; /* to 0: the end */
};

/* "passed_mean of api over 15s..40s"; 'name' is the name that the scenario
 * gives it. */
struct weir_measure {
    char *name;
    int metric;  /* enum weir_metric, or the model's */
    char *quota; /* NULL: the first */
    char *load;  /* of this load's requests alone, 'quota' is then its; NULL: of
                  * all */
    struct weir_interval over;
    double against_per_s; /* replaces the limit; 0: the quota's own */
    struct weir_where where;
};

/* Either a quantity now, or a measure at the end. */
struct weir_condition {
    bool at_end;
    enum weir_quantity quantity;
    char *quota; /* NULL: the first */
    struct weir_measure measure;
    enum weir_comparison comparison;
    double value, value2; /* WITHIN: value .. value2 */
    char *variant;        /* claims: of this variant; NULL: of each */
    char *text;           /* as written */
    struct weir_where where;
};

struct weir_action {
    weir_duration at;
    enum weir_action_kind kind;
    struct weir_selection nodes, others;
    bool some; /* 'nodes' is set; of a link: both, 'nodes' limiters and 'others'
                * roots, in either order in the file */
    enum weir_way ways;
    weir_duration span, span2;
    int64_t step;
    double ppm;
    struct weir_net net;
    struct weir_quota quota; /* whole, as it is after the edit */
    char *name;
    struct weir_rate_step rate;
    bool flag;
    struct weir_condition condition;
    char *text; /* as written, for the log of the run */
    struct weir_where where;
};

/* ---- Texts for people ---- */

/* "holds if": a claim made elsewhere, and the conditions under which the
 * scenario confirms it. A claim that doesn't hold is a result, not a
 * failure. */
struct weir_claim {
    char *text;
    struct weir_condition *conditions; /* of measures; all must hold */
    size_t condition_count;
};

enum weir_series {
    WEIR_SERIES_OFFERED,
    WEIR_SERIES_PASSED,
    WEIR_SERIES_REFUSED,      /* units/s */
    WEIR_SERIES_IDEAL,        /* passed by the ideal limiter, units/s */
    WEIR_SERIES_LIMIT,        /* units/s */
    WEIR_SERIES_FILL,         /* true, units */
    WEIR_SERIES_ROOT_FILL,    /* the largest root's */
    WEIR_SERIES_LIMITER_FILL, /* mean over limiters */
    WEIR_SERIES_REPORTS,      /* per root link and second */
    WEIR_SERIES_LIMITERS,     /* that run */
};
#define WEIR_SERIES_COUNT (WEIR_SERIES_LIMITERS + 1)

struct weir_figure {
    char *title;
    /* Over time: series of a quota or model, a panel for each variant … */
    int series[WEIR_SERIES_COUNT]; /* enum weir_series, or the model's */
    size_t series_count;
    char *quota;
    struct weir_interval over;
    /* … or a measure against a varied key, or against another measure if no key
     * has that name; 'by': a curve for each value of that key. */
    const char *measure, *against, *by; /* measure NULL: over time */
    struct weir_where where;
};

struct weir_setting {
    char *key, *value;
};

/* How the ideal limiter refuses in the band: the probability by the filled part
 * x of the band. The product has the linear curve only. */
enum weir_curve {
    WEIR_CURVE_LINEAR,    /* x */
    WEIR_CURVE_QUADRATIC, /* x^2 */
    WEIR_CURVE_SMOOTH,    /* x^2 (3 - 2 x) */
};

/* One variant, ready to be run. */
struct weir_scenario {
    char *name;                    /* of the file, without path and ".weir" */
    char *title;                   /* one sentence */
    char *variant;                 /* NULL: the only one */
    struct weir_setting *settings; /* with their values in this variant */
    size_t setting_count;
    uint32_t limiters, limiters_started, roots, slots;
    struct weir_net net; /* of every link; other network, cpu and clock
                          * statements are actions at 0 */
    struct weir_where net_where;
    struct weir_linkage *linkages;
    size_t linkage_count;
    enum weir_curve ideal_curve;
    struct weir_settings node;      /* the settings that roots send to
                                     * limiters */
    const struct weir_model *model; /* runs instead of a fleet; NULL: none */
    double *model_values;           /* by its fields */
    weir_duration span, bin;        /* bin: of measures over time, 1 s */
    struct weir_quota *quotas;      /* parents first */
    size_t quota_count;
    struct weir_load *loads;
    size_t load_count;
    struct weir_action *actions; /* in the order of 'at' */
    size_t action_count;
    struct weir_condition *always;
    size_t always_count;
    struct weir_condition *expects; /* at the end */
    size_t expect_count;
    struct weir_measure *measures;
    size_t measure_count;
    struct weir_claim *claims;
    size_t claim_count;
    struct weir_figure *figures;
    size_t figure_count;
    bool live;   /* "live": the tests run it in both back ends */
    void *arena; /* owns all of the above */
};

/* ---- Reading ---- */

/* A file as read: lines, settings with their defaults, variants. */
struct weir_lab_script;

/* 'text' of the file 'path' (for messages and the name). NULL with 'diag'
 * (line, column and text) filled. 'text' isn't used afterwards. */
struct weir_lab_script *weir_script_read(const char *path,
                                         struct weir_text text,
                                         struct weir_diag *diag);
void weir_script_free(struct weir_lab_script *script);
const char *weir_script_name(const struct weir_lab_script *script);
/* Its title, as written ("$key" not replaced). */
const char *weir_script_title(const struct weir_lab_script *script);
/* Writes a refusal for people into 'buf', cut at 'size', with a NUL:
 *
 *     lab/x.weir:3:7: there is no statement 'rots'; did you mean 'roots'?
 *         rots 3
 *         ^
 *
 * 'text' is the file's; without a line in 'diag', or if 'text' has no such
 * line, only the first line is written. Ends with a line feed. */
void weir_script_show(const char *path, struct weir_text text,
                      const struct weir_diag *diag, char *buf, size_t size);

/* "key=value" from --set. WEIR_ENOENT: no "set key" in the file ('diag' names
 * its keys); WEIR_EINVAL: no '=', an invalid value, or one that leaves no
 * variant; the script is then of no use. */
int weir_script_set(struct weir_lab_script *script, const char *assignment,
                    struct weir_diag *diag);
/* 1 or more. A value from --set takes away the variants of "variant" that give
 * the key another value; of those of "vary" one is left, with that value. */
size_t weir_script_variants(const struct weir_lab_script *script);
/* NULL with 'diag' filled. Claims about variants that --set has taken away
 * are left out. */
struct weir_scenario *weir_scenario_build(const struct weir_lab_script *script,
                                          size_t variant,
                                          struct weir_diag *diag);

/* ---- Making and printing ---- */

/* An empty scenario with the language's defaults; no title, no run. */
struct weir_scenario *weir_scenario_new(const char *name);
void weir_scenario_free(struct weir_scenario *scenario);
/* Zeroed memory that the scenario owns. */
void *weir_scenario_alloc(struct weir_scenario *scenario, size_t size);
/* A copy that the scenario owns. */
char *weir_scenario_text(struct weir_scenario *scenario, struct weir_text text);
/* Grows a scenario's array of 'count' items of 'size' bytes by one zeroed item.
 * Returns the array, which may have moved. */
void *weir_scenario_grow(struct weir_scenario *scenario, void *array,
                         size_t count, size_t size);
/* Inserts an action by its time, after those of the same instant. */
void weir_scenario_act(struct weir_scenario *scenario,
                       const struct weir_action *action);
/* The scenario as a .weir file that builds to the same scenario (the swarm
 * prints its random ones), with the settings' values and without variants.
 * Owned by the caller. */
char *weir_scenario_print(const struct weir_scenario *scenario);

/* ---- The scenarios that come with the program ---- */

struct weir_builtin {
    const char *name;
    const char *text;
};
extern const struct weir_builtin weir_builtins[]; /* ends with NULL name */

#endif /* WEIR_SCENARIO_H */
