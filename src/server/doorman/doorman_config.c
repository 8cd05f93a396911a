/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_config.c - the resources of a Doorman file.
 *
 * Theory of operation. First the text is read, and the types are checked:
 *
 *     mapping        "resources"               read_doorman_yaml
 *       sequence                               read_doorman_entries
 *         mapping    glob, capacity, …         read_doorman_entry
 *           mapping  kind, lease_length, …     read_algorithm
 *             sequence of mappings             read_parameters
 *
 * The original turns YAML into JSON and that into its messages, so keys match
 * in any case, null is absence, and a type that doesn't fit is "cannot
 * unmarshal".
 *
 * Then the entries are checked: first as the original does, entry by entry and
 * with its messages, then for the errors that the original doesn't check and
 * crashes on. A file that passes both can't bring down a server. All of it
 * happens in a set of its own, so a bad file doesn't touch the one in force.
 *
 * The texts of the templates stay in libyaml's document. For names that are
 * literally in the file, the templates are also kept sorted by their globs. */

#include "server/doorman/doorman_config.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "codec/yaml_nodes.h"
#include "core/quota/glob.h"
#include "core/quota/quota_text.h"

#define NESTING_MAX 16
#define WHOLE_MAX 0x1p53 /* up to here a double tells whole numbers apart */

/* A number of the file, or its absence. Whole numbers are within 2^53. */
struct number {
    bool given;
    double value;
};

/* An entry of 'resources'; texts are in the document. */
struct entry {
    uint32_t line;
    struct weir_text glob;
    struct weir_text description;
    struct number capacity;
    struct number safe_capacity;
    bool has_algorithm;
    struct number kind;
    struct number lease_length;
    struct number refresh_interval;
    struct number learning;
    struct weir_doorman_parameter *parameters; /* owned; NULL: none */
    size_t parameter_count;
};

struct weir_doorman_config {
    struct weir_yaml_nodes nodes; /* owns the texts; its diag may be NULL */
    struct entry *entries;        /* owned */
    struct weir_doorman_template *templates;     /* owned: of the entries */
    const struct weir_doorman_template **sorted; /* owned; by glob, equal ones
                                                  * as in the file */
    size_t count;                                /* of each of the three */
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
    return weir_diag_put(diag, error, sentence);
}

static int refuse_for_memory(struct weir_diag *diag)
{
    return refuse_config(diag, 0, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
}

/* Adds the warning 'what' 'name' 'why' about a value that is accepted. 'name'
 * NULL: none. */
static void warn_of_entry(struct weir_doorman_config *config, uint32_t line,
                          const char *what, const struct weir_text *name,
                          const char *why)
{
    char shown[WEIR_SHOW_MAX];
    size_t at = config->warning_count++;
    if (at >= WEIR_DOORMAN_WARNINGS_MAX)
        return;
    config->warnings[at].line = line;
    weir_diag_set(&config->warnings[at], 0, what,
                  name ? weir_text_show(*name, shown) : "", why, NULL);
}

static int ignore_key(const struct weir_yaml_reading *reading,
                      const yaml_node_t *node)
{
    struct weir_text name = weir_yaml_scalar(node);
    if (weir_yaml_is_plain(node) && weir_text_equal(name, WEIR_TEXT("<<")))
        return weir_yaml_refuse_type(reading, node, "<<",
                                     "written out, or an alias");
    warn_of_entry(reading->context, (uint32_t)node->start_mark.line + 1,
                  "no key is called ", &name, ": it is ignored");
    return 0;
}

static const struct weir_yaml_dialect dialect = {
    .any_case = true,
    .null_is_empty = true,
    .before = "cannot unmarshal ",
    .after = ": it must be ",
    .unknown = ignore_key,
};

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
    struct number *number = to;
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
    struct number *number = to;
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
    struct number *kind = to;
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
    struct entry *entry = to;
    size_t count = 0;
    int error = weir_yaml_read_count(reading, node, name,
                                     WEIR_DOORMAN_PARAMETERS_MAX, &count);
    if (error < 0)
        return error;
    entry->parameters = calloc(count + 1, sizeof(*entry->parameters));
    if (!entry->parameters)
        return refuse_for_memory(reading->diag);
    entry->parameter_count = count;
    for (size_t i = 0; i < count && error == 0; i++)
        error = weir_yaml_read_mapping(
            reading, weir_yaml_item(reading->document, node, i), name, keys,
            WEIR_COUNT_OF(keys), &entry->parameters[i]);
    return error;
}

#define ENTRY(member) offsetof(struct entry, member)

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
    struct entry *entry = to;
    entry->has_algorithm = true;
    return weir_yaml_read_mapping(reading, node, name, keys,
                                  WEIR_COUNT_OF(keys), entry);
}

static int read_doorman_entry(const struct weir_yaml_reading *reading,
                              const yaml_node_t *node, struct entry *entry)
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
    struct weir_doorman_config *config = to;
    size_t count = 0;
    int error = weir_yaml_read_count(reading, node, name,
                                     WEIR_DOORMAN_TEMPLATES_MAX, &count);
    if (error < 0)
        return error;
    config->entries = calloc(count + 1, sizeof(*config->entries));
    if (!config->entries)
        return refuse_for_memory(reading->diag);
    config->count = count;
    for (size_t i = 0; i < count && error == 0; i++)
        error = read_doorman_entry(reading,
                                   weir_yaml_item(reading->document, node, i),
                                   &config->entries[i]);
    return error;
}

static int read_doorman_yaml(struct weir_text text,
                             struct weir_doorman_config *config)
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
    int error = weir_yaml_nodes_load(text, &bounds, &config->nodes);
    if (error < 0 || config->nodes.count == 0)
        return error;
    yaml_document_t *document = &config->nodes.documents[0];
    const struct weir_yaml_reading reading = { &dialect, document,
                                               config->nodes.diag, config };
    return weir_yaml_read_mapping(
        &reading, yaml_document_get_root_node(document), "the file", keys,
        WEIR_COUNT_OF(keys), config);
}

/* ---- The original's checks ---- */

static int check_lengths(const struct entry *entry, struct weir_diag *diag)
{
    const struct number *lease = &entry->lease_length;
    const struct number *interval = &entry->refresh_interval;
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

static bool is_star(const struct entry *entry)
{
    return weir_text_equal(entry->glob, WEIR_TEXT("*"));
}

static int check_star(const struct entry *entry, bool last,
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

static int check_entries(const struct weir_doorman_config *config,
                         struct weir_diag *diag)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct entry *entry = &config->entries[i];
        int error = 0;
        if (weir_glob_path_check(entry->glob, diag) < 0)
            error = refuse_config(diag, entry->line, WEIR_ESYNTAX,
                                  "syntax error in pattern");
        if (error == 0 && entry->has_algorithm)
            error = check_lengths(entry, diag);
        if (error == 0 && is_star(entry))
            error = check_star(entry, i + 1 == config->count, diag);
        if (error < 0)
            return error;
    }
    bool has_star =
        config->count > 0 && is_star(&config->entries[config->count - 1]);
    /* The original's spelling. */
    return has_star
               ? 0
               : refuse_config(diag, 0, WEIR_EINVAL,
                               "the resource respository must contain at least "
                               "an entry for \"*\"");
}

/* ---- Checks that the original lacks ---- */

static int set_texts(struct weir_doorman_config *config,
                     const struct entry *entry,
                     struct weir_doorman_template *out, struct weir_diag *diag)
{
    out->glob = entry->glob;
    out->description = entry->description;
    if (entry->glob.len == 0)
        warn_of_entry(config, entry->line, "an entry without identifier_glob",
                      NULL, " matches nothing");
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
    bool sound = fits_a_limit(out->capacity) &&
                 (!out->safe_given || out->safe_capacity <= 0 ||
                  fits_a_limit(out->safe_capacity));
    if (!sound)
        warn_of_entry(config, out->line, "the entry of ", &out->glob,
                      " has a capacity that a limit can't have: "
                      "it is 1e11 at most, and 0 if it is tiny");
}

static int set_entry_capacity(struct weir_doorman_config *config,
                              const struct entry *entry,
                              struct weir_doorman_template *out,
                              struct weir_diag *diag)
{
    bool safe = entry->safe_capacity.given;
    if (!entry->capacity.given && !safe)
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "the entry has no capacity");
    if (!(entry->capacity.value >= 0))
        return refuse_config(diag, entry->line, WEIR_EINVAL,
                             "the capacity must be 0 or more");
    if (!entry->capacity.given)
        warn_of_entry(config, entry->line, "the entry of ", &entry->glob,
                      " has no capacity: it is 0");
    out->capacity = entry->capacity.value;
    out->safe_given = safe;
    out->safe_capacity = entry->safe_capacity.value;
    warn_of_limit(config, out);
    return 0;
}

static void set_entry_kind(struct weir_doorman_config *config,
                           const struct entry *entry,
                           struct weir_doorman_template *out)
{
    double kind = entry->kind.value; /* a whole number */
    bool known =
        kind >= WEIR_DOORMAN_NO_ALGORITHM && kind <= WEIR_DOORMAN_FAIR_SHARE;
    out->kind = WEIR_DOORMAN_NO_ALGORITHM;
    if (entry->has_algorithm && known) {
        out->kind = (enum weir_doorman_kind)kind;
        return;
    }
    warn_of_entry(config, entry->line, "the entry of ", &entry->glob,
                  entry->has_algorithm
                      ? " has an algorithm of an unknown kind: it is "
                        "NO_ALGORITHM"
                      : " has no algorithm: it is NO_ALGORITHM");
}

static weir_duration duration_of_seconds(double s)
{
    return (weir_duration)s * WEIR_SECOND;
}

static int set_lengths(const struct entry *entry,
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
                         const struct entry *entry,
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
    for (size_t i = 0; i < config->count; i++)
        config->sorted[i] = &config->templates[i];
    qsort(config->sorted, config->count, sizeof(*config->sorted),
          compare_globs);
    for (size_t i = 1; i < config->count; i++) {
        const struct weir_doorman_template *one = config->sorted[i];
        if (weir_text_equal(one->glob, config->sorted[i - 1]->glob))
            warn_of_entry(config, one->line, "there is an earlier entry of ",
                          &one->glob, ", which rules: this one is never used");
    }
}

static int make_templates(struct weir_doorman_config *config,
                          struct weir_diag *diag)
{
    size_t count = config->count;
    weir_assert(!config->templates && !config->sorted);
    config->templates = calloc(count, sizeof(*config->templates));
    config->sorted = calloc(count, sizeof(*config->sorted));
    if (!config->templates || !config->sorted)
        return refuse_for_memory(diag);
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++)
        error = make_template(config, &config->entries[i],
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
        return refuse_for_memory(diag);
    config->nodes.diag = diag;
    int error = read_doorman_yaml(text, config);
    if (error == 0)
        error = check_entries(config, diag);
    if (error == 0)
        error = make_templates(config, diag);
    config->nodes.diag = NULL;
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
    for (size_t i = 0; i < config->count; i++)
        free(config->entries[i].parameters);
    free(config->entries);
    weir_yaml_nodes_fini(&config->nodes);
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

/* ---- An entry as a quota ---- */

static enum weir_share_algorithm share_of_kind(enum weir_doorman_kind kind)
{
    switch (kind) {
    case WEIR_DOORMAN_NO_ALGORITHM:
        return WEIR_SHARE_NONE;
    case WEIR_DOORMAN_STATIC:
        return WEIR_SHARE_STATIC;
    case WEIR_DOORMAN_PROPORTIONAL_SHARE:
        return WEIR_SHARE_PROPORTIONAL;
    case WEIR_DOORMAN_FAIR_SHARE:
        return WEIR_SHARE_FAIR;
    }
    weir_assert(false);
}

/* Sets the fields for the time without a server, as in the original. */
static void set_safe(const struct weir_doorman_template *entry,
                     struct weir_quota *quota)
{
    bool is_unlimited = entry->safe_given && entry->safe_capacity < 0;
    quota->on_stale = is_unlimited ? WEIR_STALE_PASS : WEIR_STALE_SHARE;
    /* A rate above the largest limit becomes that limit. */
    if (entry->safe_given && !is_unlimited)
        (void)weir_limit_of_rate(entry->safe_capacity, &quota->safe_capacity);
}

int weir_doorman_quota(const struct weir_doorman_template *entry,
                       uint32_t place, struct weir_quota *out,
                       struct weir_diag *diag)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = entry->glob;
    quota.description = entry->description;
    quota.glob = WEIR_GLOB_PATH;
    bool is_template = weir_quota_is_template(&quota);
    quota.order = is_template ? place : 0;
    quota.sharing = WEIR_LEASED;
    quota.share_algorithm = share_of_kind(entry->kind);
    quota.lease = entry->lease;
    quota.refresh = entry->refresh;
    quota.learning =
        entry->learning_given ? entry->learning : WEIR_DURATION_UNSET;
    set_safe(entry, &quota);
    (void)weir_limit_of_rate(entry->capacity, &quota.limit);
    int error = weir_quota_check(&quota, diag);
    if (error < 0 && diag)
        diag->line = entry->line;
    if (error == 0)
        *out = quota;
    return error;
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
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "where is the Doorman file? Write file:PATH or etcd:KEY");
    *out = (struct weir_doorman_location){ .etcd = etcd, .path = text };
    return 0;
}
