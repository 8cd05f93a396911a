/* SPDX-License-Identifier: MIT
 * core/quota/quota_adaptive.c - makes a concurrency gate's options from an
 * adaptive quota's fields.
 *
 * The fields are few on purpose: an operator knows how long a request may take,
 * and the bounds within which the limit may move. All other numbers are the
 * controller's own (core/concurrency/controller.h), which operators should not
 * have to know.
 *
 * An unset bound is the controller's, and yields to one that is set, so that
 * setting one alone is no error; as with bursts. The fleet's bounds (with
 * scope=fleet min and max are such) are divided equally among the processes: it
 * is unknown which process will get more of the work, and only the sum protects
 * the storage. The controller of a whole fleet is one of one process. If a
 * process's part and its own bound differ, the tighter one holds, and max wins
 * over min: twenty processes that each insist on forty could overload the
 * storage.
 *
 * A class is identified by a number made from its name, not by its place in the
 * list. A service can use it before it has received the quota, and an edit that
 * puts another class in front doesn't confuse the two. Two names with the same
 * number are refused here, where a person reads the message; with a hash of 32
 * bits that is very unlikely. Source of the hash: FNV-1a, by G. Fowler, L. C.
 * Noll and K.-P. Vo. */

#include "core/quota/quota_adaptive.h"

#include <string.h>

#include "core/quota/quota_internal.h"
#include "core/quota/quota_text.h"

static double real(uint64_t decimal)
{
    return (double)decimal / WEIR_DECIMAL_ONE;
}

/* The controllers' values have at most four decimals, except the least limit,
 * 1/1024, which is rounded up. */
static uint64_t decimal_of(double value)
{
    weir_assert(value > 0);
    uint64_t decimal = (uint64_t)(value * WEIR_DECIMAL_ONE);
    return (double)decimal / WEIR_DECIMAL_ONE < value ? decimal + 1 : decimal;
}

uint64_t weir_quota_percentile(const struct weir_quota *quota)
{
    struct weir_controller_options options;
    weir_controller_defaults(&options, quota->controller);
    return quota->percentile ? quota->percentile
                             : decimal_of(options.percentile);
}

uint64_t weir_quota_bound(const struct weir_quota *quota, bool highest)
{
    struct weir_controller_options options;
    weir_controller_defaults(&options, quota->controller);
    uint64_t least = decimal_of(options.min);
    uint64_t most = decimal_of(options.max);
    weir_assert(least <= most);
    if (highest && quota->max > 0)
        return quota->max;
    if (highest)
        return quota->min > most ? quota->min : most;
    if (quota->min > 0)
        return quota->min;
    if (quota->max > 0 && quota->max < least)
        least = quota->max;
    if (quota->fleet_max > 0 && quota->fleet_max < least)
        least = quota->fleet_max;
    return least;
}

/* ---- Classes ---- */

uint32_t weir_class_number(struct weir_text name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        hash = (hash ^ (unsigned char)name.p[i]) * 16777619u;
    return hash ? hash : 1;
}

static bool is_class_name(struct weir_text name)
{
    static const char also[] = "_-.0123456789";
    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter && !memchr(also, c, sizeof(also) - 1))
            return false;
    }
    return name.len > 0 && name.len <= WEIR_CONCURRENCY_GATE_NAME_MAX;
}

static int refuse_class(struct weir_text part, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(part, shown),
                         " is no class; write NAME:observed, NAME:50% or NAME, "
                         "with commas between, a name of letters, digits and "
                         "._-, 31 at most",
                         NULL);
}

static int set_share(struct weir_text word,
                     struct weir_concurrency_gate_class *klass,
                     struct weir_diag *diag)
{
    uint64_t percent = 0;
    if (word.len < 2 || word.p[word.len - 1] != '%')
        return refuse_class(word, diag);
    word.len--;
    weir_assert(word.len > 0);
    int error = weir_decimal_parse(word, "percentage", &percent, diag);
    klass->share_percent = real(percent);
    return error;
}

/* "sync:observed:unheard" */
static int parse_class(struct weir_text part,
                       struct weir_concurrency_gate_class *klass,
                       struct weir_diag *diag)
{
    struct weir_text rest = part;
    struct weir_text name = weir_text_trim(weir_text_cut(&rest, ':'));
    if (!is_class_name(name))
        return refuse_class(part, diag);
    *klass = (struct weir_concurrency_gate_class){ .observed = false };
    weir_assert(name.len < sizeof(klass->name));
    memcpy(klass->name, name.p, name.len);
    int error = 0;
    while (rest.p && error == 0) {
        struct weir_text word = weir_text_trim(weir_text_cut(&rest, ':'));
        if (weir_text_equal(word, WEIR_TEXT("observed")))
            klass->observed = true;
        else if (weir_text_equal(word, WEIR_TEXT("unheard")))
            klass->unheard = true;
        else
            error = set_share(word, klass, diag);
    }
    return error;
}

/* Whether a class before 'klass' has the same number, and so most likely the
 * same name. */
static bool is_numbered_before(
    const struct weir_concurrency_gate_options *options, uint32_t klass)
{
    weir_assert(klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX);
    struct weir_text name = weir_text_of(options->class_of[klass].name);
    for (uint32_t i = 0; i < klass; i++) {
        struct weir_text other = weir_text_of(options->class_of[i].name);
        if (weir_class_number(other) == weir_class_number(name))
            return true;
    }
    return false;
}

/* An empty text is one class without a name. */
static int parse_classes(struct weir_text text,
                         struct weir_concurrency_gate_options *options,
                         struct weir_diag *diag)
{
    uint32_t count = 0;
    int error = 0;
    if (text.len == 0)
        return 0;
    if (text.len > WEIR_CLASSES_TEXT_MAX)
        return weir_quota_fault("classes is too long; it may have 512 bytes",
                                diag);
    while (text.p && error == 0) {
        struct weir_text part = weir_text_trim(weir_text_cut(&text, ','));
        if (count == WEIR_CONCURRENCY_GATE_CLASSES_MAX)
            return weir_quota_fault("there may be 8 classes at most", diag);
        error = parse_class(part, &options->class_of[count], diag);
        char shown[WEIR_SHOW_MAX];
        if (error == 0 && is_numbered_before(options, count))
            return weir_diag_set(
                diag, WEIR_EQUOTA, "two classes are called ",
                weir_text_show(part, shown),
                ", or can't be told apart; give one another name", NULL);
        count++;
    }
    weir_assert(count > 0 && count <= WEIR_CONCURRENCY_GATE_CLASSES_MAX);
    options->classes = count;
    return error;
}

/* ---- The concurrency gate's options ---- */

/* 'least': the lowest value that the controller allows for any bound. */
static void set_controller_bounds(const struct weir_quota *quota,
                                  double processes, double least,
                                  struct weir_controller_options *out)
{
    weir_assert(processes >= 1 && least > 0);
    double initial = out->initial;
    double scope = quota->scope == WEIR_SCOPE_FLEET ? processes : 1;
    out->min = real(weir_quota_bound(quota, false)) / scope;
    out->max = real(weir_quota_bound(quota, true)) / scope;
    double part = real(quota->fleet_max) / processes;
    if (quota->fleet_max > 0)
        out->max = quota->max > 0 ? weir_smaller(out->max, part) : part;
    part = real(quota->fleet_min) / processes;
    if (quota->fleet_min > 0)
        out->min = quota->min > 0 ? weir_larger(out->min, part) : part;
    out->max = weir_larger(weir_smaller(out->max, WEIR_PERMITS_MAX), least);
    out->min = weir_smaller(weir_larger(out->min, least), out->max);
    out->initial = weir_smaller(weir_larger(initial, out->min), out->max);
    if (quota->controller == WEIR_CONTROLLER_NONE)
        out->initial = out->max;
    weir_assert(least <= out->min && out->min <= out->initial &&
                out->initial <= out->max && out->max <= WEIR_PERMITS_MAX);
}

void weir_quota_gate(const struct weir_quota *quota, uint32_t processes,
                     struct weir_concurrency_gate_options *out)
{
    bool fractions = quota->controller == WEIR_CONTROLLER_TARGET;
    weir_concurrency_gate_defaults(out, quota->controller);
    (void)parse_classes(quota->classes, out, NULL);
    struct weir_controller_options *options = &out->controller;
    options->target = quota->target;
    options->percentile = real(weir_quota_percentile(quota));
    out->lost_after = quota->permit_timeout;
    set_controller_bounds(quota, processes > 0 ? processes : 1,
                          fractions ? WEIR_PERMITS_MIN : 1, options);
}

/* ---- The check ---- */

static int refuse_above(const char *low, uint64_t low_value, const char *high,
                        uint64_t high_value, struct weir_diag *diag)
{
    weir_assert(low_value > high_value && high_value > 0);
    char low_text[32], high_text[32];
    low_text[weir_decimal_format(low_value, low_text, 31)] = '\0';
    high_text[weir_decimal_format(high_value, high_text, 31)] = '\0';
    return weir_diag_set(diag, WEIR_EQUOTA, low, " ", low_text, " is above ",
                         high, " ", high_text, "; raise ", high, " or lower ",
                         low, NULL);
}

/* Checks a bound that was set; 0: unset. */
static int check_bound(const struct weir_quota *quota, const char *what,
                       uint64_t bound, struct weir_diag *diag)
{
    bool fractions = quota->controller == WEIR_CONTROLLER_TARGET;
    double least = fractions ? WEIR_PERMITS_MIN : 1;
    if (bound == 0 || (real(bound) >= least && real(bound) <= WEIR_PERMITS_MAX))
        return 0;
    return weir_diag_set(diag, WEIR_EQUOTA, what,
                         fractions ? " may be 0.001 to 1048576"
                                   : " may be 1 to 1048576 with this "
                                     "controller; only controller=target "
                                     "finds limits below one",
                         NULL);
}

static int check_limit_bounds(const struct weir_quota *quota,
                              struct weir_diag *diag)
{
    int error = check_bound(quota, "min", quota->min, diag);
    if (error == 0)
        error = check_bound(quota, "max", quota->max, diag);
    if (error == 0)
        error = check_bound(quota, "fleet_min", quota->fleet_min, diag);
    if (error == 0)
        error = check_bound(quota, "fleet_max", quota->fleet_max, diag);
    if (error < 0)
        return error;
    if (quota->max > 0 && quota->min > quota->max)
        return refuse_above("min", quota->min, "max", quota->max, diag);
    if (quota->fleet_max > 0 && quota->fleet_min > quota->fleet_max)
        return refuse_above("fleet_min", quota->fleet_min, "fleet_max",
                            quota->fleet_max, diag);
    if (quota->fleet_max > 0 && quota->min > quota->fleet_max)
        return refuse_above("min", quota->min, "fleet_max", quota->fleet_max,
                            diag);
    /* Both are of all processes together. */
    if (quota->scope == WEIR_SCOPE_FLEET && quota->max > 0 &&
        quota->fleet_min > quota->max)
        return refuse_above("fleet_min", quota->fleet_min, "max", quota->max,
                            diag);
    bool nothing = quota->max == 0 && quota->fleet_max == 0;
    if (quota->controller == WEIR_CONTROLLER_NONE && nothing)
        return weir_quota_fault("controller=none doesn't move the limit: the "
                                "limit is max; write it as max=40",
                                diag);
    return 0;
}

int weir_quota_check_adaptive(const struct weir_quota *quota,
                              struct weir_diag *diag)
{
    if (quota->sharing != WEIR_ADAPTIVE)
        return 0;
    if (quota->target == 0 || quota->target > WEIR_LATENCY_MAX)
        return weir_quota_fault("target may be above 0 and up to 9min; write "
                                "it as target=200ms",
                                diag);
    if (quota->percentile > 100 * WEIR_DECIMAL_ONE)
        return weir_quota_fault("percentile may be above 0 and up to 100; "
                                "write it as percentile=95",
                                diag);
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, quota->controller);
    int error = check_limit_bounds(quota, diag);
    if (error == 0)
        error = parse_classes(quota->classes, &options, diag);
    if (error < 0)
        return error;
    /* The remaining checks of classes, and a safety net for options added here
     * later. */
    weir_quota_gate(quota, 1, &options);
    return weir_concurrency_gate_check(&options, diag) < 0 ? WEIR_EQUOTA : 0;
}
