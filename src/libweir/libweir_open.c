/* SPDX-License-Identifier: MIT
 * libweir/libweir_open.c - libweir's life cycle: open, ready, status, close;
 * and views of a limiter for the agent's page.
 * libweir_internal.h lists the parts. */

#include "libweir/libweir_full.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/atomic.h"
#include "core/base/hash.h"
#include "core/table/link_exact.h"
#include "core/table/table_grow.h"
#include "core/table/table_share.h"
#include "io/clock.h"
#include "libweir/libweir_decide.h"

/* ---- Options ---- */

/* A root knows one link of a limiter: a second would be taken for a move. */
static bool is_root_named_before(const struct weir *weir)
{
    const struct weir_client_roots *roots = &weir->roots;
    const struct weir_address *last = &roots->given[roots->count];
    for (uint32_t i = 0; i < roots->count; i++)
        if (weir_address_is_equal(&roots->given[i], last))
            return true;
    return false;
}

/* "HOST:PORT,_weir._tcp.NAME"; a name may need more links than one. */
static int parse_roots(struct weir *weir, const char *text)
{
    struct weir_client_roots *roots = &weir->roots;
    roots->count = 0;
    while (text && *text) {
        size_t len = strcspn(text, ",");
        if (roots->count == WEIR_ROOTS_MAX)
            return WEIR_EINVAL;
        struct weir_address *given = &roots->given[roots->count];
        struct weir_text one = { text, len };
        if (weir_root_address_parse(one, given, NULL) < 0 ||
            is_root_named_before(weir))
            return WEIR_EINVAL;
        roots->count++;
        text += len;
        text += *text == ',';
    }
    weir->link_count = weir_root_links_count(roots->given, roots->count);
    return WEIR_OK;
}

static int set_limiter_name(struct weir *weir, const char *name)
{
    weir->named = name && *name;
    if (!weir->named) {
        weir_name_limiter(weir);
        return WEIR_OK;
    }
    if (weir_name_check(weir_text_of(name), NULL) < 0)
        return WEIR_EINVAL;
    snprintf(weir->name, sizeof(weir->name), "%s", name);
    return WEIR_OK;
}

/* weir_open() returns only a number; an event has the reason. */
static void send_open_refused(const struct weir_options *options,
                              enum weir_event_type type, const char *why)
{
    struct weir_event event = { type, weir_clock_now(), 1, "" };
    snprintf(event.text, sizeof(event.text), "%s", why);
    if (options->on_event)
        options->on_event(options->event_context, &event);
}

static int check_login_options(const struct weir *weir,
                               const struct weir_login_options *login,
                               struct weir_diag *diag)
{
    int error = weir_login_check(login, diag);
    for (uint32_t i = 0; i < weir->roots.count && error == 0; i++)
        error = weir_login_check_address(login, &weir->roots.given[i], diag);
    return error == WEIR_ENOENT ? WEIR_ETLS : error;
}

static int read_login(struct weir *weir, const struct weir_options *options)
{
    struct weir_login_options login = {
        .tls_ca = options->tls_ca,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .token_file = options->token_file,
    };
    struct weir_diag diag = { .text = "" };
    int error = check_login_options(weir, &login, &diag);
    if (error < 0) {
        send_open_refused(options, WEIR_EVENT_CREDENTIAL, diag.text);
        return error;
    }
    weir->login = weir_login_new(&login);
    return weir->login ? 0 : WEIR_ENOMEM;
}

static int read_options(struct weir *weir, const struct weir_options *options)
{
    if (options->struct_size < sizeof(*options) ||
        options->on_full < WEIR_ON_FULL_REFUSE ||
        options->on_full > WEIR_ON_FULL_PASS ||
        options->threads_max >= WEIR_STRIPES_MAX ||
        options->leases_max > WEIR_LEASE_PLACES_MAX ||
        options->adaptive_max > WEIR_GATE_SLOTS_MAX ||
        options->lock_wait > WEIR_LOCK_WAIT_MAX ||
        options->when_locked > WEIR_LOCKED_PASSES ||
        options->table_role < WEIR_TABLE_MAY_RUN ||
        options->table_role > WEIR_TABLE_DECIDES ||
        (options->snapshot && *options->snapshot && options->table &&
         *options->table) ||
        set_limiter_name(weir, options->name) < 0)
        return WEIR_EINVAL;
    weir->memory_max =
        options->memory_max ? options->memory_max : WEIR_MEMORY_DEFAULT;
    weir->on_full = options->on_full;
    /* Stripe 0 is shared by threads beyond the number. */
    weir->stripes = 1 + (options->threads_max ? options->threads_max
                                              : WEIR_STRIPES_DEFAULT);
    weir->leases_max =
        options->leases_max ? options->leases_max : WEIR_LEASES_DEFAULT;
    weir->gate_slots =
        options->adaptive_max ? options->adaptive_max : WEIR_GATE_SLOTS_DEFAULT;
    weir->lease_priority = options->lease_priority;
    weir->lock_wait =
        options->lock_wait ? options->lock_wait : WEIR_LOCK_WAIT_DEFAULT;
    if (options->lock_wait == WEIR_NO_LOCK_WAIT)
        weir->lock_wait = 0;
    weir->when_locked = (uint8_t)options->when_locked;
    weir->role = options->table_role;
    if (options->roots && *options->roots && weir->role != WEIR_TABLE_DECIDES)
        weir->roots_hash = weir_hash(weir_text_of(options->roots), 0) | 1;
    weir->on_event = options->on_event;
    weir->event_context = options->event_context;
    int error = parse_roots(weir, options->roots);
    if (error == 0)
        error = read_login(weir, options);
    if (error == 0)
        error = weir_exact_book_init(&weir->exact, options);
    return error < 0 ? error : weir_kept_init(weir, options->snapshot);
}

/* ---- Open and close ---- */

#define NO_ADDRESSES                                                   \
    "this process may not reserve the addresses of memory_max: set a " \
    "smaller memory_max, or allow more (ulimit -v)"

/* Each step is undone in reverse when a later one fails. */
static int start_limiter(struct weir *weir)
{
    int error = weir_stripes_init(weir);
    if (error < 0)
        return error;
    error = weir_event_queue_init(&weir->events);
    if (error < 0)
        goto no_queue;
    error = weir_own_init(weir, weir_fork_become);
    if (error < 0)
        goto no_watch;
    error = weir->block ? weir_reporter_open(weir) : weir_pump_start(weir);
    if (error == 0)
        return WEIR_OK;
    weir_own_fini(weir);
no_watch:
    weir_event_queue_fini(&weir->events);
no_queue:
    weir_stripes_fini(weir);
    return error;
}

/* ---- Shared tables ---- */

static struct weir_block_shape shape_of(const struct weir_options *options)
{
    return (struct weir_block_shape){ .memory_max = options->memory_max,
                                      .stripes = options->threads_max };
}

static void use_block(struct weir *weir)
{
    weir_assert(weir->block);
    struct weir_table_options shape;
    weir->table = weir_block_table(weir->block);
    weir_table_shape(weir->table, &shape);
    weir->slots = shape.slots;
    weir->memory_max = weir_slots_bytes(weir, weir->slots);
    weir->stripes = shape.stripes;
    weir->gate_slots = 0; /* none of an adaptive quota in a shared table, yet */
    weir->exact.shared = true;
}

/* The shared table in the named file, or in 'memory'. */
static int find_table(struct weir *weir, const struct weir_options *options,
                      void *memory, size_t size)
{
    struct weir_block_shape shape = shape_of(options);
    struct weir_diag diag = { .text = "" };
    bool file = !memory && options->table && *options->table;
    int error;
    if (file)
        error = weir_block_open(options->table, &shape, &weir->block,
                                &weir->table_fd, &diag);
    else
        error = weir_block_enter(memory, size, &shape, &weir->block, &diag);
    weir->unmaps = file && error == 0;
    if (error == 0)
        use_block(weir);
    else
        send_open_refused(options, WEIR_EVENT_TABLE, diag.text);
    return error;
}

size_t weir_table_bytes(const struct weir_options *options)
{
    if (!options ||
        options->threads_max > WEIR_STRIPES_MAX - WEIR_BLOCK_MEMBERS)
        return 0;
    struct weir_block_shape shape = shape_of(options);
    shape.fixed = true;
    return weir_block_size(&shape);
}

static int make_shared(struct weir *weir, const struct weir_options *options,
                       void *memory, size_t size)
{
    int error = find_table(weir, options, memory, size);
    if (error < 0)
        return error;
    error = weir_nodes_make(weir);
    if (error == WEIR_ENOMEM)
        send_open_refused(options, WEIR_EVENT_TABLE, NO_ADDRESSES);
    return error;
}

static int make_private(struct weir *weir, const struct weir_options *options)
{
    uint32_t wanted = weir_slots_within(weir, weir->memory_max);
    weir->slots = wanted;
    int error = weir_memory_make(weir);
    if (error < 0)
        send_open_refused(options, WEIR_EVENT_TABLE, NO_ADDRESSES);
    weir->memory_max = weir_slots_bytes(weir, weir->slots);
    weir->narrow = weir->slots < wanted;
    return error;
}

/* An embedder finds it in the queue, too. */
static void report_narrow(struct weir *weir)
{
    weir_event_report(weir, WEIR_EVENT_TABLE,
                      "memory_max is %" PRIu64
                      " MB: this process may not reserve the addresses of more "
                      "(ulimit -v)",
                      weir->memory_max / 1000000);
}

static int open_with(const struct weir_options *options, void *memory,
                     size_t size, struct weir **out_weir)
{
    struct weir *weir = weir_mem_system.alloc(NULL, sizeof(*weir));
    if (!weir)
        return WEIR_ENOMEM;
    weir->kick_fd = -1;
    weir->table_fd = -1;
    int error = read_options(weir, options);
    bool shared = memory || (options->table && *options->table);
    if (error == 0)
        error = shared ? make_shared(weir, options, memory, size)
                       : make_private(weir, options);
    if (error == 0) {
        weir_locks_init(weir);
        weir_waiting_init(&weir->waiting);
        error = start_limiter(weir);
        if (error == WEIR_ETABLE)
            send_open_refused(options, WEIR_EVENT_TABLE,
                              "the table's running processes name other roots, "
                              "or in another order: end them first, or name "
                              "theirs");
    }
    if (error < 0) {
        weir_memory_free(weir);
        return error;
    }
    if (weir->narrow)
        report_narrow(weir);
    *out_weir = weir;
    return WEIR_OK;
}

int weir_open(const struct weir_options *options, struct weir **out_weir)
{
    if (!options || !out_weir)
        return WEIR_EINVAL;
    return open_with(options, NULL, 0, out_weir);
}

int weir_open_in(void *memory, size_t size, const struct weir_options *options,
                 struct weir **out_weir)
{
    if (!memory || !options || !out_weir || weir_table_bytes(options) == 0 ||
        (options->snapshot && *options->snapshot))
        return WEIR_EINVAL;
    return open_with(options, memory, size, out_weir);
}

int weir_check(const struct weir_options *options)
{
    if (!options)
        return WEIR_EINVAL;
    struct weir *weir = weir_mem_system.alloc(NULL, sizeof(*weir));
    if (!weir)
        return WEIR_ENOMEM;
    weir->table_fd = -1;
    int error = read_options(weir, options);
    weir_memory_free(weir);
    return error;
}

void weir_close(struct weir *weir)
{
    if (!weir)
        return;
    weir_own_ensure(weir);
    weir_reporter_part(weir);
    weir_pump_stop(weir);
    weir_own_fini(weir);
    weir_event_queue_fini(&weir->events);
    weir_stripes_fini(weir);
    weir_reporter_close(weir);
    pthread_cond_destroy(&weir->changed);
    pthread_mutex_destroy(&weir->mutex);
    pthread_mutex_destroy(&weir->defining);
    weir_waiting_fini(&weir->waiting);
    weir_memory_free(weir);
}

/* ---- Ready, sync, status ---- */

/* Whether the limiter is ready ('wanted' 0), or the call of weir_sync() with
 * that number is answered. */
static bool is_status_reached(const struct weir *weir, uint64_t wanted)
{
    return wanted == 0 ? weir->ready : weir->sync_done >= wanted;
}

static int wait_for_status(struct weir *weir, uint64_t wanted,
                           weir_duration timeout)
{
    struct timespec deadline =
        weir_timespec_of(weir_after(weir_clock_now(), timeout));
    int timed_out = 0;
    pthread_mutex_lock(&weir->mutex);
    while (!is_status_reached(weir, wanted) && !weir->closing && timed_out == 0)
        timed_out =
            pthread_cond_timedwait(&weir->changed, &weir->mutex, &deadline);
    bool reached = is_status_reached(weir, wanted);
    int error = weir->closing ? WEIR_ECLOSED : WEIR_ETIMEOUT;
    pthread_mutex_unlock(&weir->mutex);
    return reached ? WEIR_OK : error;
}

int weir_ready(struct weir *weir, weir_duration timeout)
{
    weir_own_ensure(weir);
    return weir->block ? weir_reporter_wait(weir, 0, timeout)
                       : wait_for_status(weir, 0, timeout);
}

int weir_sync(struct weir *weir, weir_duration timeout)
{
    weir_own_ensure(weir);
    if (weir->block) {
        uint64_t number = weir_fetch_add(&weir->block->sync_wanted, 1) + 1;
        weir_pump_kick(weir);
        return weir_reporter_wait(weir, number, timeout);
    }
    pthread_mutex_lock(&weir->mutex);
    uint64_t wanted = ++weir->sync_wanted;
    pthread_mutex_unlock(&weir->mutex);
    weir_pump_kick(weir);
    return wait_for_status(weir, wanted, timeout);
}

/* Those that have an address, or none yet. On a shared table with the reporter
 * in another process: those that were given. */
static uint32_t count_roots(struct weir *weir)
{
    uint32_t count = 0;
    pthread_mutex_lock(&weir->mutex);
    for (uint32_t i = 0; i < weir->link_count; i++)
        count += weir->roots.view[i].address[0] != '\0';
    pthread_mutex_unlock(&weir->mutex);
    return count > 0 ? count : weir->roots.count;
}

void weir_status(struct weir *weir, struct weir_status *out)
{
    weir_own_ensure(weir);
    uint64_t overflowed = weir_table_overflowed(weir->table);
    pthread_mutex_lock(&weir->mutex);
    *out = weir->status;
    out->ready = weir->ready;
    out->overflowed = overflowed;
    out->overflowed_age = weir_full_age(weir, overflowed, weir_clock_now());
    pthread_mutex_unlock(&weir->mutex);
    if (weir->block)
        weir_reporter_status(weir, out);
    out->roots = count_roots(weir);
    out->slots = weir->slots;
    out->memory_max = weir->memory_max;
    out->memory = weir_slots_bytes(weir, weir_table_committed(weir->table));
    out->lacking = weir_table_lacking(weir->table);
    out->on_full = weir->on_full;
    out->slots_used = weir_table_live(weir->table);
    out->stale = weir_table_is_stale(weir->table);
    out->unknown = weir_table_unknown(weir->table);
    out->growth_failed = weir_table_growth_failed(weir->table);
    out->contended = weir_table_contended(weir->table);
    out->adaptive =
        weir_table_adaptives(weir->table, &out->adaptive_overflowed);
    /* Relaxed: of a moment ago. */
    out->waiting = weir_load_relaxed(&weir->waiting.count);
}

/* ---- Views (limiter_view.h) ----
 *
 * Consistent copies: slots under the table's writer lock (a view for the answer
 * to a request takes none); roots under the limiter's mutex, where the
 * background thread publishes their state. */

uint32_t weir_limiter_view_slots(const struct weir *weir)
{
    return weir_table_used(weir->table);
}

bool weir_limiter_view_at(struct weir *weir, uint32_t slot,
                          struct weir_slot_details *out, weir_instant now)
{
    weir_own_ensure(weir);
    return weir_table_details(weir->table, weir->process, slot, out, now);
}

size_t weir_limiter_view_name(const struct weir *weir, uint32_t slot, char *buf)
{
    return weir_table_name(weir->table, slot, buf);
}

bool weir_limiter_view_find(struct weir *weir, struct weir_text name, bool make,
                            struct weir_slot_details *out, uint32_t *out_slot,
                            weir_instant now)
{
    struct weir_ref ref;
    bool found =
        weir_table_find(weir->table, name, &ref) ||
        (make && weir_table_resolve_as(weir->table, weir->process, name, false,
                                       &ref, now) == WEIR_RESOLVED);
    weir_locks_heed(weir);
    if (!found || !weir_limiter_view_at(weir, ref.slot, out, now))
        return false;
    *out_slot = ref.slot;
    /* The slot may have changed hands in between. */
    return weir_text_equal(name,
                           (struct weir_text){ out->name, out->name_len });
}

/* The rule of an exact quota is here, its count in the store. The store's clock
 * may differ from this machine's. */
static bool view_window(struct weir *weir, uint32_t slot,
                        struct weir_limiter_view_reset *out, weir_instant now)
{
    struct weir_away away;
    weir_instant start;
    weir_instant end;
    unsigned wake = 0;
    int error = weir_table_away_record(weir->table, weir_stripe_mine(weir),
                                       slot, &away, &wake);
    (void)weir_verdict_of(weir, wake);
    if (error < 0 || away.rule.algorithm != WEIR_FIXED_WINDOW)
        return false;
    weir_instant wall = now + weir_clock_wall_offset();
    (void)weir_algorithm_window(&away.rule, &start, &end, wall);
    out->has_window = true;
    out->window_end = end > wall ? end - wall : 1;
    return true;
}

bool weir_limiter_view_reset(struct weir *weir, struct weir_text name,
                             struct weir_limiter_view_reset *out,
                             weir_instant now)
{
    struct weir_slot_details details;
    uint32_t slot;
    weir_own_ensure(weir);
    if (!weir_table_rule_view(weir->table, name, &details, &slot, now))
        return false;
    *out = (struct weir_limiter_view_reset){ .mode = details.mode };
    if (details.sharing == WEIR_EXACT)
        return view_window(weir, slot, out, now);
    if (details.elsewhere || details.inflight || details.mode == WEIR_OFF ||
        !(details.granted > 0) || isinf(details.high))
        return false;
    out->fill = details.fill;
    out->low = details.low;
    out->high = details.high;
    out->per_s = details.granted;
    return true;
}

uint32_t weir_limiter_view_roots(struct weir *weir,
                                 struct weir_limiter_view_root *out)
{
    weir_own_ensure(weir);
    pthread_mutex_lock(&weir->mutex);
    uint32_t count = 0;
    for (uint32_t i = 0; i < weir->link_count; i++)
        if (weir->roots.view[i].address[0])
            out[count++] = weir->roots.view[i];
    pthread_mutex_unlock(&weir->mutex);
    return count;
}

uint32_t weir_limiter_view_fleet(const struct weir *weir)
{
    return weir_load_relaxed(&weir->fleet); /* of a moment ago */
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}
