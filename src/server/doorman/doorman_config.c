/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_config.c - the resources of a Doorman file.
 *
 * Theory of operation. doorman_yaml.c reads the text. This file checks it first
 * as the original does, entry by entry and with its messages, then for the
 * errors that the original doesn't check and crashes on: a file that passes
 * both can't bring down a server. All of it happens in a set of its own, so a
 * bad file doesn't touch the one in force.
 *
 * The texts of the templates stay in libyaml's document. For names that are
 * literally in the file, the templates are also kept sorted by their globs. */

#include "server/doorman/doorman_config.h"

#include <stdlib.h>
#include <string.h>

#include "core/quota/glob_path.h"
#include "core/quota/quota.h"
#include "core/quota/quota_text.h"
#include "server/doorman/doorman_yaml.h"

struct weir_doorman_config {
    struct weir_doorman_yaml yaml; /* owns the texts of the templates */
    struct weir_doorman_template *templates; /* owned */
    size_t count;
    const struct weir_doorman_template **sorted; /* owned; by glob, equal ones
                                                  * as in the file */
    struct weir_diag warnings[WEIR_DOORMAN_WARNINGS_MAX];
    size_t warning_count;
};

static int refuse_config(struct weir_diag *diag, uint32_t line, int error,
                         const char *sentence)
{
    if (diag) {
        diag->line = line;
        diag->column = 0;
    }
    return weir_diag_set(diag, error, sentence, NULL);
}

/* ---- The original's checks ---- */

static int check_lengths(const struct weir_doorman_entry *entry,
                         struct weir_diag *diag)
{
    const struct weir_doorman_number *lease = &entry->lease_length;
    const struct weir_doorman_number *interval = &entry->refresh_interval;
    const char *sentence = NULL;
    if (!interval->given || !lease->given)
        sentence = "must have a refresh interval and a lease length";
    else if (interval->value < 1)
        sentence = "invalid refresh interval, must be at least 1 second";
    else if (lease->value < 1)
        sentence = "Invalid lease length, must be at least 1 second";
    else if (lease->value < interval->value)
        sentence = "Lease length must be larger than the refresh interval";
    return sentence ? refuse_config(diag, entry->line, WEIR_EINVAL, sentence)
                    : 0;
}

static bool is_star(const struct weir_doorman_entry *entry)
{
    return weir_text_equal(entry->glob, WEIR_TEXT("*"));
}

static int check_star(const struct weir_doorman_entry *entry, bool last,
                      struct weir_diag *diag)
{
    if (!entry->has_algorithm)
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "the entry for * must specify an algorithm");
    if (!last)
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "the entry for \"*\" must be the last one");
    return 0;
}

static int check_entries(const struct weir_doorman_yaml *yaml,
                         struct weir_diag *diag)
{
    for (size_t i = 0; i < yaml->count; i++) {
        const struct weir_doorman_entry *entry = &yaml->entries[i];
        int error = 0;
        if (weir_glob_path_check(entry->glob, diag) < 0)
            error = refuse_config(diag, entry->line, WEIR_ESYNTAX,
                                  "syntax error in pattern");
        if (error == 0 && entry->has_algorithm)
            error = check_lengths(entry, diag);
        if (error == 0 && is_star(entry))
            error = check_star(entry, i + 1 == yaml->count, diag);
        if (error < 0)
            return error;
    }
    bool has_star = yaml->count > 0 && is_star(&yaml->entries[yaml->count - 1]);
    /* The original's spelling. */
    return has_star
               ? 0
               : refuse_config(diag, 0, WEIR_EINVAL,
                               "the resource respository must contain at least "
                               "an entry for \"*\"");
}

/* ---- Checks that the original lacks ---- */

static int set_texts(struct weir_doorman_config *config,
                     const struct weir_doorman_entry *entry,
                     struct weir_doorman_template *out, struct weir_diag *diag)
{
    out->glob = entry->glob;
    out->description = entry->description;
    if (entry->glob.len == 0)
        weir_doorman_yaml_warn(&config->yaml, entry->line,
                               "an entry without identifier_glob", "",
                               " matches nothing");
    if (entry->glob.len > 0 && weir_name_check(entry->glob, diag) < 0) {
        if (diag)
            diag->line = entry->line;
        return WEIR_ENAME;
    }
    if (entry->description.len > WEIR_DESCRIPTION_MAX)
        return refuse_config(diag, entry->line, WEIR_ETOOBIG,
                             "the description is longer than 1024 bytes");
    return 0;
}

/* Whether the limit is the rate but for one part in a million: a rounding needs
 * no warning. */
static bool fits_a_limit(double rate)
{
    struct weir_limit limit;
    if (weir_limit_of_rate(rate, &limit) <= 0)
        return true;
    double most = rate * (1 + 1e-6), least = rate * (1 - 1e-6);
    double got = weir_limit_rate(&limit);
    return got >= least && got <= most;
}

static void warn_of_limit(struct weir_doorman_config *config,
                          const struct weir_doorman_template *out)
{
    char shown[WEIR_SHOW_MAX];
    bool sound = fits_a_limit(out->capacity) &&
                 (!out->safe_given || out->safe_capacity <= 0 ||
                  fits_a_limit(out->safe_capacity));
    if (!sound)
        weir_doorman_yaml_warn(&config->yaml, out->line, "the entry of ",
                               weir_text_show(out->glob, shown),
                               " has a capacity that a limit can't have: "
                               "it is 1e11 at most, and 0 if it is tiny");
}

static int set_entry_capacity(struct weir_doorman_config *config,
                              const struct weir_doorman_entry *entry,
                              struct weir_doorman_template *out,
                              struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    bool safe = entry->safe_capacity.given;
    if (!entry->capacity.given && !safe)
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "the entry has no capacity");
    if (!(entry->capacity.value >= 0))
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "the capacity must be 0 or more");
    if (!entry->capacity.given)
        weir_doorman_yaml_warn(&config->yaml, entry->line, "the entry of ",
                               weir_text_show(entry->glob, shown),
                               " has no capacity: it is 0");
    out->capacity = entry->capacity.value;
    out->safe_given = safe;
    out->safe_capacity = entry->safe_capacity.value;
    warn_of_limit(config, out);
    return 0;
}

static void set_entry_kind(struct weir_doorman_config *config,
                           const struct weir_doorman_entry *entry,
                           struct weir_doorman_template *out)
{
    char shown[WEIR_SHOW_MAX];
    double kind = entry->kind.value; /* a whole number */
    bool known =
        kind >= WEIR_DOORMAN_NO_ALGORITHM && kind <= WEIR_DOORMAN_FAIR_SHARE;
    out->kind = WEIR_DOORMAN_NO_ALGORITHM;
    if (entry->has_algorithm && known) {
        out->kind = (enum weir_doorman_kind)kind;
        return;
    }
    weir_doorman_yaml_warn(&config->yaml, entry->line, "the entry of ",
                           weir_text_show(entry->glob, shown),
                           entry->has_algorithm
                               ? " has an algorithm of an unknown kind: it is "
                                 "NO_ALGORITHM"
                               : " has no algorithm: it is NO_ALGORITHM");
}

static weir_duration duration_of_seconds(double s)
{
    return (weir_duration)s * WEIR_SECOND;
}

static int set_lengths(const struct weir_doorman_entry *entry,
                       struct weir_doorman_template *out,
                       struct weir_diag *diag)
{
    out->lease = out->learning = WEIR_DOORMAN_LEASE_DEFAULT;
    out->refresh = WEIR_DOORMAN_REFRESH_DEFAULT;
    if (!entry->has_algorithm)
        return 0;
    const double most = (double)WEIR_PERIOD_MAX / (double)WEIR_SECOND;
    double learning = entry->learning.value;
    if (!entry->learning.given)
        learning = entry->lease_length.value;
    /* The refresh interval is not above the lease, so it needs no check. */
    if (entry->lease_length.value > most || learning > most)
        return refuse_config(
            diag, entry->line, WEIR_EINVAL,
            "lease_length and learning_mode_duration must be at most 366 days");
    if (entry->lease_length.value >
        (double)WEIR_LEASE_MAX / (double)WEIR_SECOND)
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "lease_length must be at most 24 hours");
    out->lease = duration_of_seconds(entry->lease_length.value);
    out->refresh = duration_of_seconds(entry->refresh_interval.value);
    out->learning_given = entry->learning.given;
    out->learning = learning > 0 ? duration_of_seconds(learning) : 0;
    return 0;
}

static int make_template(struct weir_doorman_config *config,
                         const struct weir_doorman_entry *entry,
                         struct weir_doorman_template *out,
                         struct weir_diag *diag)
{
    out->line = entry->line;
    out->parameters = entry->parameters;
    out->parameter_count = entry->parameter_count;
    set_entry_kind(config, entry, out);
    int error = set_texts(config, entry, out, diag);
    if (error == 0)
        error = set_entry_capacity(config, entry, out, diag);
    if (error == 0)
        error = set_lengths(entry, out, diag);
    return error;
}

/* ---- The set ---- */

static int compare_globs(const void *a, const void *b)
{
    const struct weir_doorman_template *one =
        *(const struct weir_doorman_template *const *)a;
    const struct weir_doorman_template *other =
        *(const struct weir_doorman_template *const *)b;
    int order = weir_text_compare(one->glob, other->glob);
    return order != 0 ? order : (one > other) - (one < other);
}

static void sort_templates(struct weir_doorman_config *config)
{
    char shown[WEIR_SHOW_MAX];
    for (size_t i = 0; i < config->count; i++)
        config->sorted[i] = &config->templates[i];
    qsort(config->sorted, config->count, sizeof(*config->sorted),
          compare_globs);
    for (size_t i = 1; i < config->count; i++) {
        const struct weir_doorman_template *one = config->sorted[i];
        if (weir_text_equal(one->glob, config->sorted[i - 1]->glob))
            weir_doorman_yaml_warn(&config->yaml, one->line,
                                   "there is an earlier entry of ",
                                   weir_text_show(one->glob, shown),
                                   ", which rules: this one is never used");
    }
}

static int make_templates(struct weir_doorman_config *config,
                          struct weir_diag *diag)
{
    size_t count = config->yaml.count;
    config->templates = calloc(count, sizeof(*config->templates));
    config->sorted = calloc(count, sizeof(*config->sorted));
    if (!config->templates || !config->sorted)
        return refuse_config(diag, 0, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    config->count = count;
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++)
        error = make_template(config, &config->yaml.entries[i],
                              &config->templates[i], diag);
    if (error == 0)
        sort_templates(config);
    return error;
}

int weir_doorman_config_parse(struct weir_text text,
                              struct weir_doorman_config **out,
                              struct weir_diag *diag)
{
    if (text.len > WEIR_DOORMAN_CONFIG_BYTES_MAX)
        return refuse_config(diag, 0, WEIR_ETOOBIG,
                             "the file is larger than 4 MiB");
    struct weir_doorman_config *config = calloc(1, sizeof(*config));
    if (!config)
        return refuse_config(diag, 0, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    config->yaml.warnings = config->warnings;
    config->yaml.warning_count = &config->warning_count;
    config->yaml.nodes.diag = diag;
    int error = weir_doorman_yaml_read(text, &config->yaml);
    if (error == 0)
        error = check_entries(&config->yaml, diag);
    if (error == 0)
        error = make_templates(config, diag);
    config->yaml.nodes.diag = NULL;
    if (error == 0)
        *out = config;
    else
        weir_doorman_config_free(config);
    return error;
}

void weir_doorman_config_free(struct weir_doorman_config *config)
{
    if (!config)
        return;
    weir_doorman_yaml_fini(&config->yaml);
    free(config->templates);
    free(config->sorted);
    free(config);
}

const struct weir_doorman_template *weir_doorman_config_templates(
    const struct weir_doorman_config *config, size_t *out_count)
{
    *out_count = config->count;
    return config->templates;
}

size_t weir_doorman_config_warnings(const struct weir_doorman_config *config,
                                    const struct weir_diag **out)
{
    *out = config->warnings;
    return config->warning_count;
}

const struct weir_doorman_template *weir_doorman_config_get(
    const struct weir_doorman_config *config, struct weir_text glob)
{
    size_t from = 0;
    size_t to = config->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (weir_text_compare(config->sorted[middle]->glob, glob) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    bool found = from < config->count &&
                 weir_text_equal(config->sorted[from]->glob, glob);
    return found ? config->sorted[from] : NULL;
}

/* ---- The address of the file ---- */

/* Takes 'prefix' from the start of '*text'. */
static bool skip_prefix(struct weir_text *text, struct weir_text prefix)
{
    if (text->len < prefix.len || memcmp(text->p, prefix.p, prefix.len) != 0)
        return false;
    text->p += prefix.len;
    text->len -= prefix.len;
    return true;
}

int weir_doorman_location_parse(struct weir_text text,
                                struct weir_doorman_location *out,
                                struct weir_diag *diag)
{
    bool etcd = skip_prefix(&text, WEIR_TEXT("etcd:"));
    if (!etcd)
        skip_prefix(&text, WEIR_TEXT("file:"));
    if (text.len == 0)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "where is the Doorman file? "
                             "Write file:PATH or etcd:KEY",
                             NULL);
    *out = (struct weir_doorman_location){ .etcd = etcd, .path = text };
    return 0;
}
