/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact_book.c - the stores of a limiter's exact quotas, one of
 * each address, and events about stores that don't answer.
 *
 * The background thread opens the stores that new quotas name, so that a
 * decision finds them open; a decision that comes earlier opens its store
 * itself. An entry is never removed or changed but for its state, so callers
 * may keep it, and finding takes no lock. If a store can't be opened the entry
 * has the reason, and its quotas go by their on_stale. So do those of a store
 * for which there is no room any more; that is reported once. */

#include "libweir/libweir_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
#include "io/clock.h"

/* Steps without answer in a row after which a store is away: a single late one
 * is nothing to report to an operator. */
#define AWAY_AT 3

/* False: no memory. An option that isn't set stays NULL. */
static bool keep_option(const char *said, char **out)
{
    if (!said || !*said)
        return true;
    *out = strdup(said);
    return *out != NULL;
}

/* By the stores' rule: no store is open yet to check it. */
static bool is_key_prefix(const char *prefix)
{
    size_t len = strlen(prefix);
    for (size_t i = 0; i < len; i++) {
        if (prefix[i] <= ' ' || prefix[i] >= 0x7f || prefix[i] == '{')
            return false;
    }
    return len >= 1 && len <= WEIR_EXACT_PREFIX_MAX;
}

int weir_exact_book_init(struct weir_exact_book *book,
                         const struct weir_options *options)
{
    pthread_mutex_init(&book->mutex, NULL);
    weir_entropy(&book->drawn, sizeof(book->drawn));
    book->functions = options->exact;
    book->root = weir_exact_root_new();
    if (!book->root)
        return WEIR_ENOMEM;
    if (book->functions && book->functions->version != WEIR_EXACT_VERSION)
        return WEIR_EINVAL;
    if (options->exact_prefix && !is_key_prefix(options->exact_prefix))
        return WEIR_EINVAL;
    const char *ca = options->tls_ca;
    if (ca && strcmp(ca, "system") == 0)
        ca = NULL;
    return keep_option(options->exact_secrets_file, &book->secrets_file) &&
                   keep_option(ca, &book->tls_ca) &&
                   keep_option(options->exact_prefix, &book->prefix)
               ? WEIR_OK
               : WEIR_ENOMEM;
}

void weir_exact_book_fini(struct weir_exact_book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        if (book->entry[i].store)
            book->functions->close(book->entry[i].store);
    }
    weir_exact_root_free(book->root);
    free(book->secrets_file);
    free(book->tls_ca);
    free(book->prefix);
    pthread_mutex_destroy(&book->mutex);
}

/* ---- Opening ---- */

static void open_entry(const struct weir_exact_book *book,
                       struct weir_exact_entry *entry)
{
    weir_assert(entry->uri[0] && entry < book->entry + WEIR_EXACT_STORES_MAX);
    struct weir_exact_options options = { .uri = entry->uri,
                                          .secrets_file = book->secrets_file,
                                          .tls_ca = book->tls_ca,
                                          .prefix = book->prefix };
    struct weir_diag diag = { .text = "" };
    entry->store = NULL;
    entry->failed = 0;
    if (book->shared) {
        snprintf(entry->why, sizeof(entry->why),
                 "exact quotas aren't decided in a shared table");
        entry->failed = AWAY_AT;
        return;
    }
    if (strcmp(entry->uri, "root") == 0) {
        entry->root = true;
        snprintf(entry->why, sizeof(entry->why), "no root answers");
        return;
    }
    if (!book->functions)
        snprintf(diag.text, sizeof(diag.text),
                 "link libweir-exact and set options.exact = weir_exact()");
    else if (book->functions->open(&options, &entry->store, &diag) == 0)
        return;
    snprintf(entry->why, sizeof(entry->why), "%.150s", diag.text);
    entry->failed = AWAY_AT;
}

static struct weir_exact_entry *find_entry(struct weir_exact_book *book,
                                           const char *uri)
{
    /* acquire: an entry is complete before it is counted. */
    uint32_t count = weir_load_acquire(&book->count);
    weir_assert(count <= WEIR_EXACT_STORES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(book->entry[i].uri, uri) == 0)
            return &book->entry[i];
    }
    return NULL;
}

/* Under the mutex. */
static void note_book_full(struct weir *weir, const char *uri)
{
    struct weir_exact_book *book = &weir->exact;
    if (weir_load_relaxed(&book->full) != 0) /* written under the mutex, or by
                                              * the thread that has read 1 */
        return;
    snprintf(book->lost, sizeof(book->lost), "%s", uri);
    weir_store_release(&book->full, 1);
    weir_pump_kick(weir);
}

struct weir_exact_entry *weir_exact_book_find(struct weir *weir,
                                              const char *uri)
{
    struct weir_exact_book *book = &weir->exact;
    struct weir_exact_entry *entry = find_entry(book, uri);
    if (entry || weir_load_acquire(&book->full) != 0)
        return entry;
    pthread_mutex_lock(&book->mutex);
    entry = find_entry(book, uri);
    if (!entry && book->count < WEIR_EXACT_STORES_MAX) {
        entry = &book->entry[book->count];
        snprintf(entry->uri, sizeof(entry->uri), "%s", uri);
        open_entry(book, entry);
        weir_store_release(&book->count, book->count + 1);
        if (entry->failed)
            weir_pump_kick(weir);
    } else if (!entry) {
        note_book_full(weir, uri);
    }
    pthread_mutex_unlock(&book->mutex);
    return entry;
}

void weir_exact_book_prepare(struct weir *weir)
{
    uint32_t used = weir_table_used(weir->table);
    char uri[WEIR_STORE_MAX + 1];
    for (uint32_t slot = 0; slot < used; slot++) {
        if (weir_table_store_of(weir->table, slot, uri))
            weir_exact_book_find(weir, uri);
    }
}

/* The parent's connections and threads stayed with the parent, and so does
 * their memory. */
void weir_exact_book_forked(struct weir_exact_book *book)
{
    pthread_mutex_init(&book->mutex, NULL);
    weir_exact_root_forked(book->root);
    weir_entropy(&book->drawn, sizeof(book->drawn));
    for (uint32_t i = 0; i < book->count; i++) {
        book->entry[i].told = false;
        open_entry(book, &book->entry[i]);
    }
}

/* ---- Events ---- */

void weir_exact_note(struct weir *weir, struct weir_exact_entry *entry,
                     int error)
{
    /* Relaxed: two threads may count one failure; all of it is a hint. */
    uint32_t before = weir_load_relaxed(&entry->failed);
    uint32_t failed = error == WEIR_ECONNECT ? AWAY_AT : before + 1;
    if (error == 0)
        failed = 0;
    if (failed > AWAY_AT)
        failed = AWAY_AT;
    if (failed == before)
        return;
    weir_store_relaxed(&entry->failed, failed);
    if ((failed == AWAY_AT) != (before == AWAY_AT))
        weir_pump_kick(weir);
}

static void send_store_event(struct weir *weir, struct weir_exact_entry *entry,
                             bool away)
{
    char why[100];
    snprintf(why, sizeof(why), "%.99s", entry->why);
    if (away && entry->store)
        weir->exact.functions->why(entry->store, why, sizeof(why));
    weir_event_report(
        weir, away ? WEIR_EVENT_EXACT_AWAY : WEIR_EVENT_EXACT_BACK, "%.80s%s%s",
        entry->uri, away ? ": " : "", away ? (why[0] ? why : "no answer") : "");
}

void weir_exact_book_send_events(struct weir *weir)
{
    /* acquire: 'lost' was written before. */
    if (weir_load_acquire(&weir->exact.full) == 1) {
        weir_store_relaxed(&weir->exact.full, 2);
        weir_event_report(weir, WEIR_EVENT_EXACT_AWAY,
                          "%.80s: no room for this store; a limiter keeps at "
                          "most %d until it is opened again",
                          weir->exact.lost, WEIR_EXACT_STORES_MAX);
    }
    uint32_t count = weir_load_acquire(&weir->exact.count);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_exact_entry *entry = &weir->exact.entry[i];
        bool away = weir_load_relaxed(&entry->failed) >= AWAY_AT;
        if (away == entry->told)
            continue;
        entry->told = away;
        send_store_event(weir, entry, away);
    }
}
