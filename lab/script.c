/* SPDX-License-Identifier: MIT
 * lab/script.c - a file as read: its lines, settings and variants.
 *
 * A script is the part common to all variants. Reading it parses the few
 * statements that must be known before a variant can be built: title, set,
 * variant, vary. All others wait, as text, for weir_scenario_build(), because
 * their words depend on the settings.
 *
 * Variants are the points of a grid. Each "vary" is an axis with a value for
 * each point; all "variant" lines together are one more axis; its points set
 * several keys at once. A variant's number counts through the grid, the last
 * axis fastest; its name joins the names of its points. A value from --set
 * leaves one point on the axis of its key, and takes away the named points that
 * give the key another value: their names would not be true. */

#include "lab/script.h"

#include <stdio.h>

#include "core/quota/quota_text.h"
#include "lab/memory.h"

/* ---- Names ---------------------------------------------------------- */

/* "lab/scenarios/x.weir" is called x. */
static char *name_of_path(struct weir_scenario *memory, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct weir_text name = weir_text_of(slash ? slash + 1 : path);
    static const char ending[] = ".weir";
    size_t len = sizeof ending - 1;
    if (name.len > len && memcmp(name.p + name.len - len, ending, len) == 0)
        name.len -= len;
    return weir_scenario_text(memory, name);
}

/* The index of a setting; setting_count: there is none. */
static size_t find_setting(const struct weir_lab_script *script,
                           struct weir_text key)
{
    size_t i = 0;
    while (i < script->setting_count &&
           !weir_text_equal(weir_text_of(script->settings[i].key), key))
        i++;
    return i;
}

/* The keys, for a message. */
static const char *const *keys_of(const struct weir_lab_script *script)
{
    const char **keys = weir_scenario_alloc(
        script->memory, (script->setting_count + 1) * sizeof *keys);
    for (size_t i = 0; i < script->setting_count; i++)
        keys[i] = script->settings[i].key;
    return keys;
}

/* ---- Statements known to a script ---- */

static int read_title(struct weir_lab_script *script, struct weir_line *line)
{
    const struct weir_word *word;
    int error = weir_line_want(line, "a title in quotes, one sentence", &word);
    if (error < 0)
        return error;
    if (script->title)
        return weir_script_refuse(line->diag, line->words[0].where,
                                  "there is "
                                  "a title already; a scenario has one");
    if (word->text.len == 0)
        return weir_script_refuse(line->diag, word->where,
                                  "the title is "
                                  "empty; say in one sentence what is shown");
    script->title = weir_scenario_text(script->memory, word->text);
    return weir_line_end(line, false);
}

static int check_value(const struct weir_word *word, struct weir_diag *diag)
{
    if (word->text.len > WEIR_SCENARIO_SETTING_MAX)
        return weir_script_refuse(diag, word->where,
                                  "a setting has at most %d bytes",
                                  WEIR_SCENARIO_SETTING_MAX);
    if (memchr(word->text.p, '$', word->text.len))
        return weir_script_refuse(diag, word->where,
                                  "a setting holds no '$': "
                                  "settings aren't made of settings");
    return 0;
}

/* Takes "KEY=VALUE" or "KEY = VALUE". */
static int take_assignment(struct weir_line *line, struct weir_word *out_key,
                           struct weir_word *out_value)
{
    const struct weir_word *word;
    int error = weir_line_want(line, "KEY=VALUE", &word);
    if (error < 0)
        return error;
    const struct weir_word *next = weir_line_peek(line);
    bool apart = next && weir_word_is(next, "=");
    if (apart) {
        *out_key = *word;
        weir_line_take(line);
        error = weir_line_want(line, "a value", &word);
        if (error < 0)
            return error;
        *out_value = *word;
    } else if (!weir_word_cut(word, "=", out_key, out_value)) {
        return weir_script_refuse(line->diag, word->where,
                                  "%s has no '='; write KEY=VALUE",
                                  WEIR_SHOWN(word));
    }
    return check_value(out_value, line->diag);
}

static bool is_setting_key(struct weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        bool sound =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        if (!sound)
            return false;
    }
    return text.len > 0 && text.len <= 32;
}

static int read_set_statement(struct weir_lab_script *script,
                              struct weir_line *line)
{
    struct weir_word key;
    struct weir_word value;
    int error = take_assignment(line, &key, &value);
    if (error < 0)
        return error;
    if (!is_setting_key(key.text))
        return weir_script_refuse(line->diag, key.where,
                                  "a setting's name "
                                  "has 1 to 32 of a-z, 0-9 and _");
    size_t count = script->setting_count;
    if (find_setting(script, key.text) < count)
        return weir_script_refuse(
            line->diag, key.where,
            "%s is set already; a setting has one default", WEIR_SHOWN(&key));
    struct weir_scenario *memory = script->memory;
    script->settings = weir_scenario_grow(memory, script->settings, count,
                                          sizeof *script->settings);
    script->settings[count] = (struct weir_setting){
        weir_scenario_text(memory, key.text),
        weir_scenario_text(memory, value.text),
    };
    script->setting_count++;
    return weir_line_end(line, false);
}

/* The index of the setting that the word names. */
static int want_setting(struct weir_lab_script *script, struct weir_line *line,
                        const struct weir_word *key, size_t *out)
{
    size_t at = find_setting(script, key->text);
    if (at == script->setting_count)
        return weir_script_unknown(line->diag, key, "setting above here called",
                                   keys_of(script));
    *out = at;
    return 0;
}

/* The axis of that setting, or (SIZE_MAX) of the named variants. */
static struct weir_axis *axis_of(struct weir_lab_script *script, size_t setting)
{
    for (size_t i = 0; i < script->axis_count; i++) {
        if (script->axes[i].setting == setting)
            return &script->axes[i];
    }
    return NULL;
}

static struct weir_axis *add_axis(struct weir_lab_script *script,
                                  size_t setting)
{
    size_t count = script->axis_count++;
    script->axes = weir_scenario_grow(script->memory, script->axes, count,
                                      sizeof *script->axes);
    script->axes[count].setting = setting;
    return &script->axes[count];
}

/* Adds a point called 'name', unless the grid gets too large. */
static int add_point(struct weir_lab_script *script, struct weir_axis *axis,
                     const struct weir_word *name, struct weir_diag *diag)
{
    for (size_t i = 0; i < axis->count; i++) {
        if (weir_text_equal(weir_text_of(axis->points[i].name), name->text))
            return weir_script_refuse(
                diag, name->where, "%s stands here already", WEIR_SHOWN(name));
    }
    axis->points = weir_scenario_grow(script->memory, axis->points, axis->count,
                                      sizeof *axis->points);
    axis->points[axis->count++].name =
        weir_scenario_text(script->memory, name->text);
    if (weir_script_grid(script) > WEIR_SCENARIO_VARIANTS_MAX)
        return weir_script_refuse(diag, name->where,
                                  "there are more than %d variants; vary less",
                                  WEIR_SCENARIO_VARIANTS_MAX);
    return 0;
}

static int read_variant(struct weir_lab_script *script, struct weir_line *line)
{
    const struct weir_word *name;
    int error = weir_line_want(line, "the variant's name", &name);
    if (error < 0)
        return error;
    struct weir_axis *axis = axis_of(script, SIZE_MAX);
    axis = axis ? axis : add_axis(script, SIZE_MAX);
    error = add_point(script, axis, name, line->diag);
    if (error < 0)
        return error;
    struct weir_point *point = &axis->points[axis->count - 1];
    while (weir_line_peek(line)) {
        struct weir_word key;
        struct weir_word value;
        size_t setting = 0;
        error = take_assignment(line, &key, &value);
        if (error == 0)
            error = want_setting(script, line, &key, &setting);
        if (error < 0)
            return error;
        point->sets = weir_scenario_grow(script->memory, point->sets,
                                         point->set_count, sizeof *point->sets);
        point->sets[point->set_count++] = (struct weir_setting){
            script->settings[setting].key,
            weir_scenario_text(script->memory, value.text),
        };
    }
    return weir_line_end(line, false);
}

static int read_vary(struct weir_lab_script *script, struct weir_line *line)
{
    const struct weir_word *word;
    size_t setting = 0;
    int error =
        weir_line_want(line, "the setting to vary, and its values", &word);
    if (error == 0)
        error = want_setting(script, line, word, &setting);
    if (error < 0)
        return error;
    if (axis_of(script, setting))
        return weir_script_refuse(line->diag, word->where,
                                  "%s is varied already", WEIR_SHOWN(word));
    struct weir_axis *axis = add_axis(script, setting);
    if (!weir_line_peek(line))
        return weir_line_want(line, "the values", &word);
    while (weir_line_peek(line)) {
        word = weir_line_take(line);
        error = check_value(word, line->diag);
        if (error == 0)
            error = add_point(script, axis, word, line->diag);
        if (error < 0)
            return error;
        struct weir_point *point = &axis->points[axis->count - 1];
        point->sets = weir_scenario_alloc(script->memory, sizeof *point->sets);
        *point->sets =
            (struct weir_setting){ script->settings[setting].key, point->name };
        point->set_count = 1;
    }
    return weir_line_end(line, false);
}

static const struct {
    const char *word;
    int (*read)(struct weir_lab_script *script, struct weir_line *line);
} statements[] = {
    { "title", read_title },
    { "set", read_set_statement },
    { "variant", read_variant },
    { "vary", read_vary },
};

static int read_script_line(struct weir_lab_script *script, size_t number,
                            struct weir_diag *diag)
{
    struct weir_line line = { .memory = script->memory, .diag = diag };
    if (number > 0 && weir_line_goes_on(script->lines[number]))
        return 0;
    int error = weir_line_cut(&line, script->lines, script->line_count,
                              (uint32_t)number + 1, NULL, 0);
    if (error < 0 || line.count == 0)
        return error;
    const struct weir_word *first = weir_line_take(&line);
    for (size_t i = 0; first && i < WEIR_COUNT_OF(statements); i++) {
        if (weir_word_is(first, statements[i].word))
            return statements[i].read(script, &line);
    }
    return 0;
}

/* ---- Lines ---------------------------------------------------------- */

static int check_script_text(struct weir_text text, struct weir_diag *diag)
{
    if (text.len > WEIR_SCENARIO_BYTES_MAX)
        return weir_script_refuse(
            diag, (struct weir_where){ 0, 0 },
            "the file is longer than %u KiB, the most that a scenario may be",
            WEIR_SCENARIO_BYTES_MAX >> 10);
    size_t clean = weir_utf8_clean(text, "\t\r\n");
    if (clean == text.len)
        return 0;
    struct weir_where where = { 1, 1 };
    for (size_t i = 0; i < clean; i++) {
        bool feed = text.p[i] == '\n';
        where.line += feed;
        where.column =
            feed ? 1
                 : where.column + (((unsigned char)text.p[i] & 0xC0) != 0x80);
    }
    return weir_script_refuse(diag, where,
                              "here is a byte that isn't clean "
                              "UTF-8, or a control character; write the file "
                              "as plain text");
}

static int split_lines(struct weir_lab_script *script, struct weir_text text,
                       struct weir_diag *diag)
{
    text.p = weir_scenario_text(script->memory, text);
    while (text.len > 0) {
        if (script->line_count == WEIR_SCENARIO_LINES_MAX)
            return weir_script_refuse(
                diag, (struct weir_where){ WEIR_SCENARIO_LINES_MAX, 1 },
                "a scenario has at most %d lines, and this isn't the last",
                WEIR_SCENARIO_LINES_MAX);
        const char *feed = memchr(text.p, '\n', text.len);
        size_t len = feed ? (size_t)(feed - text.p) : text.len;
        script->lines =
            weir_scenario_grow(script->memory, script->lines,
                               script->line_count, sizeof *script->lines);
        script->lines[script->line_count++] = (struct weir_text){ text.p, len };
        text.p += len + (feed != NULL);
        text.len -= len + (feed != NULL);
    }
    return 0;
}

static int read_script(struct weir_lab_script *script, struct weir_text text,
                       struct weir_diag *diag)
{
    int error = check_script_text(text, diag);
    if (error == 0)
        error = split_lines(script, text, diag);
    for (size_t i = 0; error == 0 && i < script->line_count; i++)
        error = read_script_line(script, i, diag);
    if (error == 0 && !script->title)
        error = weir_script_refuse(diag, weir_script_last(script),
                                   "the title is missing; begin with: title "
                                   "\"what this scenario shows\"");
    return error;
}

struct weir_where weir_script_last(const struct weir_lab_script *script)
{
    return (struct weir_where){ (uint32_t)script->line_count,
                                script->line_count > 0 };
}

struct weir_lab_script *weir_script_read(const char *path,
                                         struct weir_text text,
                                         struct weir_diag *diag)
{
    struct weir_lab_script *script = weir_must_zeroed(1, sizeof *script);
    script->memory = weir_scenario_new("");
    script->name = name_of_path(script->memory, path);
    if (read_script(script, text, diag) == 0)
        return script;
    weir_script_free(script);
    return NULL;
}

void weir_script_free(struct weir_lab_script *script)
{
    if (!script)
        return;
    weir_scenario_free(script->memory);
    free(script);
}

const char *weir_script_name(const struct weir_lab_script *script)
{
    return script->name;
}

const char *weir_script_title(const struct weir_lab_script *script)
{
    return script->title;
}

/* ---- Settings and variants ------------------------------------------ */

static int refuse_setting(const struct weir_lab_script *script,
                          const char *assignment, struct weir_diag *diag)
{
    struct weir_text typed = { assignment, strcspn(assignment, "=") };
    char shown[WEIR_SHOW_MAX];
    weir_text_show(typed, shown);
    if (script->setting_count == 0) {
        weir_script_refuse(diag, (struct weir_where){ 0, 0 },
                           "there is no setting %s in %s, nor any other", shown,
                           script->name);
        return WEIR_ENOENT;
    }
    char list[WEIR_DIAG_MAX] = "";
    size_t len = 0;
    for (size_t i = 0; i < script->setting_count && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                i > 0 ? ", " : "", script->settings[i].key);
    weir_script_refuse(diag, (struct weir_where){ 0, 0 },
                       "there is no setting %s in %s; those there are: %s",
                       shown, script->name, list);
    return WEIR_ENOENT;
}

static bool is_forced(const struct weir_lab_script *script, size_t setting)
{
    for (size_t i = 0; i < script->forced_count; i++) {
        if (script->forced[i] == setting)
            return true;
    }
    return false;
}

/* Whether the point gives a key another value than --set. */
static bool contradicts(const struct weir_lab_script *script,
                        const struct weir_point *point)
{
    for (size_t i = 0; i < point->set_count; i++) {
        const struct weir_setting *set = &point->sets[i];
        size_t at = find_setting(script, weir_text_of(set->key));
        if (is_forced(script, at) &&
            strcmp(script->settings[at].value, set->value) != 0)
            return true;
    }
    return false;
}

/* Whether --set has left the point on the axis. */
static bool is_left(const struct weir_lab_script *script,
                    const struct weir_point *point, bool as_set)
{
    return !as_set || !contradicts(script, point);
}

/* The number of points left on the axis. */
static size_t points_of(const struct weir_lab_script *script,
                        const struct weir_axis *axis, bool as_set)
{
    if (as_set && is_forced(script, axis->setting))
        return 1;
    size_t count = 0;
    for (size_t i = 0; i < axis->count; i++)
        count += is_left(script, &axis->points[i], as_set);
    return count;
}

/* The value leaves no named variant. */
static int refuse_all(const struct weir_lab_script *script,
                      const struct weir_axis *named, size_t setting,
                      struct weir_diag *diag)
{
    char list[WEIR_DIAG_MAX] = "";
    size_t len = 0;
    for (size_t i = 0; i < named->count && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                i > 0 ? ", " : "", named->points[i].name);
    const struct weir_setting *set = &script->settings[setting];
    weir_script_refuse(diag, (struct weir_where){ 0, 0 },
                       "no variant of %s is left with %s=%s, for each has "
                       "values of its own; choose one with --variant: %s",
                       script->name, set->key, set->value, list);
    return WEIR_EINVAL;
}

int weir_script_set(struct weir_lab_script *script, const char *assignment,
                    struct weir_diag *diag)
{
    const struct weir_where nowhere = { 0, 0 };
    struct weir_word word = { .text = weir_text_of(assignment) };
    struct weir_word key;
    struct weir_word value;
    if (!weir_word_cut(&word, "=", &key, &value)) {
        weir_script_refuse(diag, nowhere,
                           "%s has no '='; write --set KEY=VALUE",
                           WEIR_SHOWN(&word));
        return WEIR_EINVAL;
    }
    size_t at = find_setting(script, key.text);
    if (at == script->setting_count)
        return refuse_setting(script, assignment, diag);
    bool clean = weir_utf8_clean(value.text, "") == value.text.len;
    if (!clean)
        weir_script_refuse(diag, nowhere, "the value of %s isn't clean UTF-8",
                           WEIR_SHOWN(&key));
    if (!clean || check_value(&value, diag) < 0)
        return WEIR_EINVAL;
    struct weir_setting *setting = &script->settings[at];
    setting->value = weir_scenario_text(script->memory, value.text);
    script->forced =
        weir_scenario_grow(script->memory, script->forced, script->forced_count,
                           sizeof *script->forced);
    script->forced[script->forced_count++] = at;
    struct weir_axis *named = axis_of(script, SIZE_MAX);
    return named && points_of(script, named, true) == 0
               ? refuse_all(script, named, at, diag)
               : 0;
}

size_t weir_script_grid(const struct weir_lab_script *script)
{
    size_t count = 1;
    for (size_t i = 0; i < script->axis_count; i++)
        count *= script->axes[i].count > 0 ? script->axes[i].count : 1;
    return count;
}

size_t weir_script_variants(const struct weir_lab_script *script)
{
    size_t count = 1;
    for (size_t i = 0; i < script->axis_count; i++)
        count *= points_of(script, &script->axes[i], true);
    return count;
}

/* The axis' point in the variant of that number; the quotient that is left
 * belongs to the axes before. */
static const struct weir_point *point_of(const struct weir_lab_script *script,
                                         const struct weir_axis *axis,
                                         size_t *number, bool as_set)
{
    size_t count = points_of(script, axis, as_set);
    size_t left = *number % count;
    *number /= count;
    if (as_set && is_forced(script, axis->setting))
        return NULL;
    size_t at = 0;
    while (!is_left(script, &axis->points[at], as_set) || left-- > 0)
        at++;
    return &axis->points[at];
}

char *weir_script_variant_name(const struct weir_lab_script *script,
                               size_t variant, bool as_set,
                               struct weir_scenario *memory)
{
    if (script->axis_count == 0)
        return NULL;
    struct weir_text name = { "", 0 };
    for (size_t i = script->axis_count; i > 0; i--) {
        const struct weir_axis *axis = &script->axes[i - 1];
        const struct weir_point *point =
            point_of(script, axis, &variant, as_set);
        bool named = axis->setting == SIZE_MAX;
        const struct weir_setting *setting =
            named ? NULL : &script->settings[axis->setting];
        const char *value = point ? point->name : setting->value;
        char *joined = NULL;
        int len =
            asprintf(&joined, "%s%s%s%s%s", named ? "" : setting->key,
                     named ? "" : "=", value, name.len > 0 ? "," : "", name.p);
        weir_must(len < 0 ? NULL : joined);
        name.p = weir_scenario_text(memory, weir_text_of(joined));
        name.len = (size_t)len;
        free(joined);
    }
    return weir_scenario_text(memory, name);
}

void weir_script_settle(const struct weir_lab_script *script, size_t variant,
                        struct weir_scenario *scenario)
{
    size_t count = script->setting_count;
    scenario->setting_count = count;
    scenario->settings = weir_scenario_alloc(
        scenario, (count > 0 ? count : 1) * sizeof *scenario->settings);
    for (size_t i = 0; i < count; i++)
        scenario->settings[i] = (struct weir_setting){
            weir_scenario_text(scenario, weir_text_of(script->settings[i].key)),
            weir_scenario_text(scenario,
                               weir_text_of(script->settings[i].value)),
        };
    for (size_t i = script->axis_count; i > 0; i--) {
        const struct weir_point *point =
            point_of(script, &script->axes[i - 1], &variant, true);
        for (size_t j = 0; point && j < point->set_count; j++) {
            const struct weir_setting *set = &point->sets[j];
            size_t at = find_setting(script, weir_text_of(set->key));
            if (!is_forced(script, at))
                scenario->settings[at].value =
                    weir_scenario_text(scenario, weir_text_of(set->value));
        }
    }
}
