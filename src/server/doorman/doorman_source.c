/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_source.c - a Doorman file in the place of a store.
 *
 * A limiter tells stores apart by identity, and states of one store by epoch. A
 * file has neither, so both are made from properties that are equal on all
 * servers of a fleet:
 *
 *   - the identity is a hash of the file's address, as the option gives it;
 *   - the epoch of a state is (revision << EPOCH_BITS) + EPOCHS_MAX: in etcd
 *     the revision of the key's last change, of a file the time at which it was
 *     last changed, in units of 2 ms. The changes that lead there have the
 *     epochs right below. So a server has the same epoch for a state that it
 *     reached by many small changes as for one that it read whole. 2^53 isn't
 *     reached (a double holds each) before 2037, or 2 * 10^11 changes of etcd.
 *
 * Copies of a file on several machines have times of their own. Limiters use
 * the newest until all have it; copies with the same contents do no harm.
 *
 * Changes are found by comparing the entries with the catalog in force, so
 * there is no second copy of the entries that were passed on.
 *
 * No memory. A state whose changes were handed over in part is kept, and the
 * rest handed over at the next look, before anything is read: so its epochs are
 * those of the other servers. A state that couldn't be read is read again. */

#include "server/doorman/doorman_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "io/clock.h"
#include "io/etcd_watch.h"
#include "io/file_stamp.h"

#define EPOCH_BITS 15
#define EPOCHS_MAX ((1u << EPOCH_BITS) - 1)
#define TIME_ORIGIN_S 1577836800 /* 2020 */

_Static_assert(EPOCHS_MAX >= 2 * WEIR_DOORMAN_TEMPLATES_MAX,
               "an epoch for each entry that goes, and each that comes");

struct weir_doorman_source {
    const struct weir_log *log; /* borrowed */
    struct weir_catalog *(*catalog)(void *context);
    void *context;
    struct weir_store_listener to;
    char text[WEIR_DOORMAN_LOCATION_TEXT_MAX];
    const char *path;                   /* in 'text'; NULL: etcd */
    struct weir_etcd_watch *watch;      /* owned; NULL: a file */
    struct weir_doorman_config *config; /* owned; in force; NULL: none yet */
    struct weir_doorman_config *coming; /* owned; the state that is being handed
                                         * over; NULL: none is … */
    struct weir_changes changes;        /* … its changes, … */
    size_t handed_over; /* … as many of them as were taken … */
    size_t changed;     /* … and those that aren't add_last()'s */
    struct weir_file_stamp stamp;
    uint64_t revision; /* in force, or coming */
    struct weir_store_id id;
    bool reported;            /* on_store has succeeded */
    bool again;               /* there was no memory to read the state */
    bool refused;             /* the file's present state isn't in force … */
    struct weir_diag refusal; /* … for this reason */
    bool away;                /* etcd can't be read … */
    struct weir_diag absence; /* … for this reason */
    uint64_t loads, failures;
};

/* ---- Errors ---- */

static const struct weir_diag *current_problem(
    const struct weir_doorman_source *source)
{
    return source->refused ? &source->refusal
           : source->away  ? &source->absence
                           : NULL;
}

static void report_problem(struct weir_doorman_source *source)
{
    const struct weir_diag *why = current_problem(source);
    source->to.on_trouble(source->to.context, why ? WEIR_ESTORE : 0,
                          why ? why->text : "");
}

/* "file:PATH, line 3: the original's message". */
static int refuse_state(struct weir_doorman_source *source, int error,
                        const struct weir_diag *inner, struct weir_diag *diag)
{
    char line[32] = "";
    if (inner->line > 0)
        snprintf(line, sizeof line, ", line %u", (unsigned)inner->line);
    weir_diag_set(&source->refusal, error, source->text, line, ": ",
                  inner->text, NULL);
    source->refused = true;
    source->failures++;
    if (diag)
        *diag = source->refusal;
    return error;
}

/* ---- From entries to changes ---- */

/* Of entries with the same glob the first rules; one without matches
 * nothing. */
static bool is_entry_used(const struct weir_doorman_config *config,
                          const struct weir_doorman_template *entry)
{
    return entry->glob.len > 0 &&
           weir_doorman_config_get(config, entry->glob) == entry;
}

static int add_missing_entries(struct weir_doorman_source *source,
                               const struct weir_doorman_config *config,
                               struct weir_changes *changes)
{
    struct weir_catalog *catalog = source->catalog(source->context);
    size_t count = source->reported ? weir_catalog_count(catalog) : 0;
    for (size_t i = 0; i < count; i++) {
        const struct weir_quota *quota = weir_catalog_at(catalog, i);
        if (!quota)
            return WEIR_ENOMEM;
        if (weir_doorman_config_get(config, quota->name))
            continue;
        struct weir_change change = { .removed = true };
        change.quota.name = quota->name;
        int error = weir_changes_add(changes, &change);
        if (error < 0)
            return error;
    }
    return 0;
}

static int add_doorman_entry(struct weir_doorman_source *source,
                             const struct weir_doorman_template *entry,
                             uint32_t place, struct weir_changes *changes,
                             uint32_t *templates, struct weir_diag *diag)
{
    struct weir_change change = { .removed = false };
    int error = weir_doorman_quota(entry, place, &change.quota, diag);
    if (error < 0)
        return error;
    *templates += weir_quota_is_template(&change.quota);
    const struct weir_quota *known =
        source->reported
            ? weir_catalog_get(source->catalog(source->context), entry->glob)
            : NULL;
    if (known && weir_quota_equal(known, &change.quota))
        return 0;
    /* A name that comes back is the same quota as before: its leases go on. */
    change.quota.created = 1;
    return weir_changes_add(changes, &change);
}

static int add_entries(struct weir_doorman_source *source,
                       const struct weir_doorman_config *config,
                       struct weir_changes *changes, struct weir_diag *diag)
{
    size_t count;
    const struct weir_doorman_template *entries =
        weir_doorman_config_templates(config, &count);
    uint32_t templates = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_entry_used(config, &entries[i]))
            continue;
        int error = add_doorman_entry(source, &entries[i], (uint32_t)i, changes,
                                      &templates, diag);
        if (error < 0)
            return error;
    }
    if (templates <= WEIR_TEMPLATES_MAX)
        return 0;
    return weir_diag_put(diag, WEIR_ETOOBIG,
                         "there are more than 1024 entries with globs");
}

/* Adds the last entry once more. If an edit changes nothing (a comment, for
 * example), this change has the epoch of the state. */
static int add_last(const struct weir_doorman_config *config,
                    struct weir_changes *changes, struct weir_diag *diag)
{
    size_t count;
    const struct weir_doorman_template *entries =
        weir_doorman_config_templates(config, &count);
    const struct weir_doorman_template *last =
        weir_doorman_config_get(config, WEIR_TEXT("*"));
    struct weir_change change = { .removed = false };
    int error = weir_doorman_quota(last, (uint32_t)(last - entries),
                                   &change.quota, diag);
    change.quota.created = 1;
    return error < 0 ? error : weir_changes_add(changes, &change);
}

/* The last change has the epoch of the state. */
static void number_changes(struct weir_changes *changes, uint64_t revision)
{
    weir_assert(changes->count <= EPOCHS_MAX);
    uint64_t last = (revision << EPOCH_BITS) + EPOCHS_MAX;
    for (size_t i = 0; i < changes->count; i++)
        changes->at[i].quota.epoch = last - (changes->count - 1 - i);
}

/* ---- A state of the file ---- */

static void log_loaded_state(const struct weir_doorman_source *source,
                             size_t changes)
{
    size_t entries;
    const struct weir_diag *warnings;
    weir_doorman_config_templates(source->config, &entries);
    size_t count = weir_doorman_config_warnings(source->config, &warnings);
    weir_log(source->log, WEIR_LOG_INFO,
             "read %zu entries of %s: %zu are new, other or gone", entries,
             source->text, changes);
    for (size_t i = 0; i < count && i < WEIR_DOORMAN_WARNINGS_MAX; i++)
        weir_log(source->log, WEIR_LOG_WARNING, "%s, line %u: %s", source->text,
                 (unsigned)warnings[i].line, warnings[i].text);
    if (count > WEIR_DOORMAN_WARNINGS_MAX)
        weir_log(source->log, WEIR_LOG_WARNING,
                 "%s: there are %zu more such remarks", source->text,
                 count - WEIR_DOORMAN_WARNINGS_MAX);
}

/* The coming state has been handed over. */
static void put_in_force(struct weir_doorman_source *source, weir_instant now)
{
    const struct weir_store_listener *to = &source->to;
    weir_assert(source->coming && source->reported);
    weir_assert(source->handed_over == source->changes.count);
    to->on_settle(to->context, &(struct weir_lineage_entry){ 0 }, now);
    weir_doorman_config_free(source->config);
    source->config = source->coming;
    source->coming = NULL;
    weir_changes_fini(&source->changes);
    source->refused = false;
    source->loads++;
    log_loaded_state(source, source->changed);
}

/* Hands over the coming state, or the rest of it. On failure it is still
 * coming. */
static int hand_over(struct weir_doorman_source *source, struct weir_diag *diag)
{
    const struct weir_store_listener *to = &source->to;
    const struct weir_changes *changes = &source->changes;
    weir_instant now = weir_clock_now();
    uint64_t floor = source->revision << EPOCH_BITS;
    int error = 0;
    if (!source->reported)
        error = to->on_store(to->context, &source->id, floor + EPOCHS_MAX,
                             floor, now);
    source->reported = error == 0;
    while (error == 0 && source->handed_over < changes->count) {
        error =
            to->on_change(to->context, &changes->at[source->handed_over], now);
        source->handed_over += error == 0;
    }
    if (error < 0)
        return weir_diag_put(diag, error,
                             "there is no memory for its changes; it is tried "
                             "again each second");
    put_in_force(source, now);
    return 0;
}

static int take_state(struct weir_doorman_source *source,
                      struct weir_text bytes, uint64_t revision,
                      struct weir_diag *diag)
{
    struct weir_doorman_config *config = NULL;
    struct weir_changes changes = { 0 };
    bool rises = revision > source->revision;
    weir_assert(!source->coming);
    int error = weir_doorman_config_parse(bytes, &config, diag);
    if (error == 0)
        error = add_missing_entries(source, config, &changes);
    if (error == 0)
        error = add_entries(source, config, &changes, diag);
    source->changed = changes.count;
    if (error == 0 && changes.count == 0 && rises)
        error = add_last(config, &changes, diag);
    if (error < 0) {
        weir_doorman_config_free(config);
        weir_changes_fini(&changes);
        return error;
    }
    /* If the revision doesn't rise, there were two changes within 2 ms, or a
     * clock was set back; or nothing has changed. */
    source->revision =
        rises ? revision : source->revision + (changes.count > 0);
    number_changes(&changes, source->revision);
    source->coming = config;
    source->changes = changes;
    source->handed_over = 0;
    return hand_over(source, diag);
}

/* Handles a reading: 'error' of it, or the 'bytes' that were read. */
static int consider_reading(struct weir_doorman_source *source, int error,
                            struct weir_text bytes, uint64_t revision,
                            struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    int before = source->coming ? hand_over(source, &inner) : 0;
    if (before < 0)
        error = before;
    else if (error == 0)
        error = take_state(source, bytes, revision, &inner);
    else
        inner = *diag;
    source->again = error == WEIR_ENOMEM;
    if (error == 0)
        return 0;
    if (!inner.text[0])
        weir_diag_put(&inner, error, NULL);
    return refuse_state(source, error, &inner, diag);
}

/* ---- A file ---- */

static uint64_t revision_of(const struct stat *file)
{
    int64_t s = (int64_t)file->st_mtim.tv_sec - TIME_ORIGIN_S;
    return s <= 0
               ? 1
               : (uint64_t)s * 500 + (uint64_t)file->st_mtim.tv_nsec / 2000000;
}

static int read_whole(int fd, char *buf, size_t size, size_t *out_len)
{
    size_t len = 0;
    while (len < size) {
        ssize_t got = read(fd, buf + len, size - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return WEIR_ESYSTEM;
        if (got == 0)
            break;
        len += (size_t)got;
    }
    *out_len = len;
    return 0;
}

/* '*out_bytes' is to be freed. Reads one byte more than the bound, so that the
 * parser refuses a file that is too long. */
static int read_doorman_file(struct weir_doorman_source *source,
                             char **out_bytes, size_t *out_len,
                             struct stat *out_file, struct weir_diag *diag)
{
    /* Also of a file that can't be opened: else it would look changed
     * forever. */
    source->stamp = weir_file_stamp_at(source->path);
    /* O_NONBLOCK: a pipe must not stop the loop. */
    int fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool found = fd >= 0 && fstat(fd, out_file) == 0;
    if (found)
        source->stamp = weir_file_stamp_of(out_file);
    size_t size = WEIR_DOORMAN_CONFIG_BYTES_MAX + 1;
    char *bytes = found ? malloc(size) : NULL;
    int error = bytes   ? read_whole(fd, bytes, size, out_len)
                : found ? WEIR_ENOMEM
                        : WEIR_ESYSTEM;
    if (error < 0)
        error = weir_diag_put(diag, errno == ENOENT ? WEIR_ENOENT : error,
                              strerror(errno));
    if (fd >= 0)
        close(fd);
    if (error == 0)
        *out_bytes = bytes;
    else
        free(bytes);
    return error;
}

static int load_doorman_file(struct weir_doorman_source *source,
                             struct weir_diag *diag)
{
    char *bytes = NULL;
    size_t len = 0;
    struct stat file;
    int error = read_doorman_file(source, &bytes, &len, &file, diag);
    uint64_t revision = error == 0 ? revision_of(&file) : 0;
    error = consider_reading(source, error, (struct weir_text){ bytes, len },
                             revision, diag);
    free(bytes);
    return error;
}

void weir_doorman_source_look(struct weir_doorman_source *source, bool always)
{
    always |= source->again;
    if (source->watch && always)
        weir_etcd_watch_read(source->watch);
    if (!source->path ||
        !(always || weir_file_stamp_differs(source->path, &source->stamp)))
        return;
    struct weir_diag diag = { 0 };
    (void)load_doorman_file(source, &diag);
    report_problem(source);
}

/* ---- A key of etcd ---- */

static void on_value(void *context, const struct weir_etcd_value *value)
{
    struct weir_doorman_source *source = context;
    struct weir_diag diag = { 0 };
    int error = 0;
    if (!value->found)
        error = weir_diag_put(
            &diag, WEIR_ENOENT,
            "there is no such key; `etcdctl put KEY < FILE` makes one");
    (void)consider_reading(source, error, value->bytes,
                           (uint64_t)value->revision, &diag);
    report_problem(source);
}

static void note_etcd_trouble(void *context, const char *why)
{
    struct weir_doorman_source *source = context;
    source->away = why != NULL;
    if (why)
        weir_diag_set(&source->absence, WEIR_ESTORE, source->text, ": ", why,
                      NULL);
    report_problem(source);
}

static int watch_etcd_key(struct weir_doorman_source *source,
                          const struct weir_doorman_source_options *options,
                          struct weir_diag *diag)
{
    struct weir_etcd_watch_options etcd = {
        .base = options->base,
        .endpoints = options->endpoints,
        .count = options->count,
        .login = options->login,
        .key = source->text + strlen("etcd:"),
        .on_value = on_value,
        .on_trouble = note_etcd_trouble,
        .context = source,
    };
    return weir_etcd_watch_new(&etcd, &source->watch, diag);
}

/* ---- Life ---- */

static void name_source(struct weir_doorman_source *source,
                        const struct weir_doorman_location *place)
{
    int len = snprintf(source->text, sizeof source->text, "%s:%.*s",
                       place->etcd ? "etcd" : "file", (int)place->path.len,
                       place->path.p);
    source->path = place->etcd ? NULL : source->text + strlen("file:");
    struct weir_text text = { source->text, (size_t)len };
    for (uint64_t half = 0; half < 2; half++) {
        uint64_t hash = weir_hash(text, half);
        memcpy(source->id.uuid + 8 * half, &hash, sizeof hash);
    }
}

int weir_doorman_source_new(const struct weir_doorman_source_options *options,
                            struct weir_doorman_source **out,
                            struct weir_diag *diag)
{
    if (options->place.path.len > WEIR_DOORMAN_LOCATION_TEXT_MAX - 8)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "--doorman-config: the path is too long");
    struct weir_doorman_source *source = calloc(1, sizeof *source);
    if (!source)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    source->log = options->log;
    source->catalog = options->catalog;
    source->context = options->context;
    source->to = options->to;
    name_source(source, &options->place);
    int error = source->path ? load_doorman_file(source, diag)
                             : watch_etcd_key(source, options, diag);
    if (error < 0)
        weir_doorman_source_free(&source);
    else
        *out = source;
    return error;
}

void weir_doorman_source_free(struct weir_doorman_source **source)
{
    if (!*source)
        return;
    weir_etcd_watch_free(&(*source)->watch);
    weir_doorman_config_free((*source)->config);
    weir_doorman_config_free((*source)->coming);
    weir_changes_fini(&(*source)->changes);
    free(*source);
    *source = NULL;
}

void weir_doorman_source_state(const struct weir_doorman_source *source,
                               struct weir_doorman_source_state *out)
{
    const struct weir_diag *why = current_problem(source);
    *out = (struct weir_doorman_source_state){
        .text = source->text,
        .problem = why ? why->text : "",
        .config = source->config,
        .loads = source->loads,
        .failures = source->failures,
    };
}
