/* SPDX-License-Identifier: MIT
 * libweir/weir.c - libweir's life cycle: open, ready, status, close. client.h
 * lists the parts. */

#include "libweir/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/base/hash.h"
#include "core/table/table_share.h"
#include "io/clock.h"

#define ARENA_SIZE WEIR_DECODE_ARENA_SIZE

/* ---- Options ---- */

/* A root knows one link of a limiter: a second would be taken for a move. */
static bool is_named_before(const struct weir *weir)
{
    const struct weir_address *last = &weir->link[weir->link_count].address;
    for (uint32_t i = 0; i < weir->link_count; i++) {
        const struct weir_address *other = &weir->link[i].address;
        if (other->port == last->port &&
            strcasecmp(other->host, last->host) == 0)
            return true;
    }
    return false;
}

/* "HOST:PORT,HOST:PORT" into the links. */
static int parse_roots(struct weir *weir, const char *roots)
{
    weir->link_count = 0;
    while (roots && *roots) {
        size_t len = strcspn(roots, ",");
        if (weir->link_count == WEIR_ROOTS_MAX)
            return WEIR_EINVAL;
        struct weir_client_link *link = &weir->link[weir->link_count];
        struct weir_text text = { roots, len };
        if (weir_address_parse(text, &link->address, NULL) < 0 ||
            link->address.port == 0 || is_named_before(weir))
            return WEIR_EINVAL;
        weir->link_count++;
        roots += len;
        roots += *roots == ',';
    }
    return WEIR_OK;
}

void weir_name_limiter(struct weir *weir)
{
    if (weir->named)
        return;
    snprintf(weir->name, sizeof(weir->name), "%.200s/%ld",
             program_invocation_short_name, (long)getpid());
    /* A program's name may be any bytes; roots take text only. */
    if (weir_name_check(weir_text_of(weir->name), NULL) < 0)
        snprintf(weir->name, sizeof(weir->name), "process/%ld", (long)getpid());
}

static int set_name(struct weir *weir, const char *name)
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
static void tell_why(const struct weir_options *options, const char *why)
{
    struct weir_event event = { .type = WEIR_EVENT_CREDENTIAL,
                                .at = weir_clock_now(),
                                .count = 1 };
    snprintf(event.text, sizeof(event.text), "%.191s", why);
    if (options->on_event)
        options->on_event(options->event_context, &event);
}

static void tell_table(const struct weir_options *options, const char *why)
{
    struct weir_event event = { .type = WEIR_EVENT_TABLE,
                                .at = weir_clock_now(),
                                .count = 1 };
    snprintf(event.text, sizeof(event.text), "%.191s", why);
    if (options->on_event)
        options->on_event(options->event_context, &event);
}

static int check_login(const struct weir *weir,
                       const struct weir_login_options *login,
                       struct weir_diag *diag)
{
    int error = weir_login_check(login, diag);
    for (uint32_t i = 0; i < weir->link_count && error == 0; i++)
        error = weir_login_check_address(login, &weir->link[i].address, diag);
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
    int error = check_login(weir, &login, &diag);
    if (error < 0) {
        tell_why(options, diag.text);
        return error;
    }
    weir->login = weir_login_new(&login);
    return weir->login ? 0 : WEIR_ENOMEM;
}

static int read_options(struct weir *weir, const struct weir_options *options)
{
    if (options->struct_size < sizeof(*options) ||
        options->quotas_max > WEIR_SLOTS_MAX ||
        options->threads_max >= WEIR_STRIPES_MAX ||
        options->leases_max > WEIR_LEASE_PLACES_MAX ||
        options->adaptive_max > WEIR_GATE_SLOTS_MAX ||
        options->table_role < WEIR_TABLE_MAY_RUN ||
        options->table_role > WEIR_TABLE_DECIDES ||
        set_name(weir, options->name) < 0)
        return WEIR_EINVAL;
    weir->slots =
        options->quotas_max ? options->quotas_max : WEIR_SLOTS_DEFAULT;
    /* Stripe 0 is shared by threads beyond the number. */
    weir->stripes = 1 + (options->threads_max ? options->threads_max
                                              : WEIR_STRIPES_DEFAULT);
    weir->leases_max =
        options->leases_max ? options->leases_max : WEIR_LEASES_DEFAULT;
    weir->gate_slots =
        options->adaptive_max ? options->adaptive_max : WEIR_GATE_SLOTS_DEFAULT;
    weir->lease_priority = options->lease_priority;
    weir->role = options->table_role;
    if (options->roots && *options->roots && weir->role != WEIR_TABLE_DECIDES)
        weir->roots_hash = weir_hash(weir_text_of(options->roots), 0) | 1;
    weir->on_event = options->on_event;
    weir->event_context = options->event_context;
    int error = parse_roots(weir, options->roots);
    if (error == 0)
        error = read_login(weir, options);
    return error < 0 ? error : weir_exact_book_init(&weir->exact, options);
}

/* ---- Memory ---- */

/* Pages that cost nothing until they are used; NULL on failure. */
static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *p, size_t size)
{
    if (p)
        munmap(p, size);
}

static struct weir_limiter_options limiter_options(const struct weir *weir)
{
    return (struct weir_limiter_options){
        .table = weir->table,
        .slots = weir->slots,
        .links = weir->link_count,
        .asks = WEIR_ASKS_MAX,
        .leases = weir->leases_max,
        .limits = weir->gate_slots < WEIR_LIMITS_MAX ? weir->gate_slots
                                                     : WEIR_LIMITS_MAX,
        .lease_priority = weir->lease_priority,
        .name = weir_text_of(weir->name),
    };
}

void weir_limiter_make(struct weir *weir)
{
    struct weir_limiter_options options = limiter_options(weir);
    weir_entropy(&options.seed, sizeof(options.seed));
    if (weir->block)
        memcpy(options.incarnation, weir->block->handover.incarnation,
               WEIR_INCARNATION_SIZE);
    else
        weir_entropy(options.incarnation, sizeof(options.incarnation));
    weir->limiter =
        weir_limiter_init(weir->limiter_block, &options, weir_clock_now());
}

int weir_table_make(struct weir *weir)
{
    struct weir_table_options table = { .slots = weir->slots,
                                        .stripes = weir->stripes,
                                        .gate_slots = weir->gate_slots };
    weir_instant now = weir_clock_now();
    weir_entropy(&table.seed, sizeof(table.seed));
    weir->table_size = weir_table_size(&table);
    weir->table_block = map(weir->table_size);
    if (!weir->table_block)
        return WEIR_ENOMEM;
    /* A cold decision costs three misses; with huge pages only of the cache
     * and not also of the TLB. A refusal is no harm. */
    madvise(weir->table_block, weir->table_size, MADV_HUGEPAGE);
    weir->table = weir_table_init(weir->table_block, &table, now);
    weir_zones_follow(weir, false, now);
    return WEIR_OK;
}

/* Over the table; on a shared one the reporter makes the limiter. */
static int make_nodes(struct weir *weir)
{
    struct weir_limiter_options options = limiter_options(weir);
    weir_entropy(&weir->id, sizeof(weir->id));
    weir->id |= 2; /* 0 and 1 mean something else */
    weir->limiter_size = weir_limiter_size(&options);
    weir->limiter_block = map(weir->limiter_size);
    weir->arena_block = map(ARENA_SIZE);
    if (!weir->limiter_block || !weir->arena_block)
        return WEIR_ENOMEM;
    weir->arena = (struct weir_arena){ weir->arena_block, ARENA_SIZE, 0 };
    if (!weir->block)
        weir_limiter_make(weir);
    return WEIR_OK;
}

static void free_memory(struct weir *weir)
{
    weir_exact_book_fini(&weir->exact);
    unmap(weir->table_block, weir->table_size);
    if (weir->unmaps)
        weir_block_unmap(weir->block);
    unmap(weir->limiter_block, weir->limiter_size);
    unmap(weir->arena_block, ARENA_SIZE);
    weir_login_free(&weir->login);
    weir_mem_system.free(NULL, weir->out, weir->out_size);
    weir_mem_system.free(NULL, weir, sizeof(*weir));
}

/* ---- Open and close ---- */

void weir_locks_init(struct weir *weir)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&weir->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&weir->mutex, NULL);
}

/* Each step is undone in reverse when a later one fails. */
static int bring_up(struct weir *weir)
{
    int error = weir_stripes_init(weir);
    if (error < 0)
        return error;
    error = weir_event_queue_init(&weir->events);
    if (error < 0)
        goto no_queue;
    error = weir_fork_watch(weir);
    if (error < 0)
        goto no_watch;
    error = weir->block ? weir_reporter_open(weir) : weir_pump_start(weir);
    if (error == 0)
        return WEIR_OK;
    weir_fork_unwatch(weir);
no_watch:
    weir_event_queue_fini(&weir->events);
no_queue:
    weir_stripes_fini(weir);
    return error;
}

/* ---- Shared tables ---- */

static struct weir_block_shape shape_of(const struct weir_options *options)
{
    return (struct weir_block_shape){ .slots = options->quotas_max,
                                      .stripes = options->threads_max };
}

static void use_block(struct weir *weir)
{
    struct weir_table_options shape;
    weir->table = weir_block_table(weir->block);
    weir_table_shape(weir->table, &shape);
    weir->slots = shape.slots;
    weir->stripes = shape.stripes;
    weir->gate_slots = 0; /* none of an adaptive quota in a shared table, yet */
    weir->exact.shared = true;
}

/* The table: this process's own, in the named file, or in 'memory'. */
static int find_table(struct weir *weir, const struct weir_options *options,
                      void *memory, size_t size)
{
    struct weir_block_shape shape = shape_of(options);
    struct weir_diag diag = { .text = "" };
    bool file = !memory && options->table && *options->table;
    int error;
    if (file)
        error = weir_block_open(options->table, &shape, &weir->block, &diag);
    else if (memory)
        error = weir_block_enter(memory, size, &shape, &weir->block, &diag);
    else
        return weir_table_make(weir);
    weir->unmaps = file && error == 0;
    if (error == 0)
        use_block(weir);
    else
        tell_table(options, diag.text);
    return error;
}

size_t weir_table_bytes(const struct weir_options *options)
{
    if (!options || options->quotas_max > WEIR_SLOTS_MAX ||
        options->threads_max > WEIR_STRIPES_MAX - WEIR_BLOCK_MEMBERS)
        return 0;
    struct weir_block_shape shape = shape_of(options);
    return weir_block_size(&shape);
}

static int open_with(const struct weir_options *options, void *memory,
                     size_t size, struct weir **out_weir)
{
    struct weir *weir = weir_mem_system.alloc(NULL, sizeof(*weir));
    if (!weir)
        return WEIR_ENOMEM;
    weir->kick_fd = -1;
    int error = read_options(weir, options);
    if (error == 0)
        error = find_table(weir, options, memory, size);
    if (error == 0)
        error = make_nodes(weir);
    if (error == 0) {
        weir_locks_init(weir);
        weir_waiting_init(&weir->waiting);
        error = bring_up(weir);
        if (error == WEIR_ETABLE)
            tell_table(options,
                       "the table's running processes name other roots, "
                       "or in another order: end them first, or name "
                       "theirs");
    }
    if (error < 0) {
        free_memory(weir);
        return error;
    }
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
    if (!memory || !options || !out_weir || weir_table_bytes(options) == 0)
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
    int error = read_options(weir, options);
    free_memory(weir);
    return error;
}

void weir_close(struct weir *weir)
{
    if (!weir)
        return;
    weir_fork_check(weir);
    weir_reporter_part(weir);
    weir_pump_stop(weir);
    weir_fork_unwatch(weir);
    weir_event_queue_fini(&weir->events);
    weir_stripes_fini(weir);
    weir_reporter_close(weir);
    pthread_cond_destroy(&weir->changed);
    pthread_mutex_destroy(&weir->mutex);
    weir_waiting_fini(&weir->waiting);
    free_memory(weir);
}

/* ---- Ready, sync, status ---- */

static struct timespec deadline_of(weir_duration timeout)
{
    weir_instant until =
        timeout > WEIR_NEVER / 4 ? WEIR_NEVER / 4 : weir_clock_now() + timeout;
    return (struct timespec){ .tv_sec = (time_t)(until / WEIR_SECOND),
                              .tv_nsec = (long)(until % WEIR_SECOND) };
}

/* Under the mutex: waits for 'holds'. */
static int wait_for(struct weir *weir, weir_duration timeout,
                    bool (*holds)(const struct weir *, uint64_t),
                    uint64_t argument)
{
    struct timespec deadline = deadline_of(timeout);
    int timed_out = 0;
    while (!holds(weir, argument) && !weir->closing && timed_out == 0)
        timed_out =
            pthread_cond_timedwait(&weir->changed, &weir->mutex, &deadline);
    if (holds(weir, argument))
        return WEIR_OK;
    return weir->closing ? WEIR_ECLOSED : WEIR_ETIMEOUT;
}

static bool is_ready(const struct weir *weir, uint64_t argument)
{
    (void)argument;
    return weir->ready;
}

static bool is_synced(const struct weir *weir, uint64_t wanted)
{
    return weir->sync_done >= wanted;
}

int weir_ready(struct weir *weir, weir_duration timeout)
{
    weir_fork_check(weir);
    if (weir->block)
        return weir_reporter_ready(weir, timeout);
    pthread_mutex_lock(&weir->mutex);
    int error = wait_for(weir, timeout, is_ready, 0);
    pthread_mutex_unlock(&weir->mutex);
    return error;
}

int weir_sync(struct weir *weir, weir_duration timeout)
{
    weir_fork_check(weir);
    if (weir->block)
        return weir_reporter_sync(weir, timeout);
    pthread_mutex_lock(&weir->mutex);
    uint64_t wanted = ++weir->sync_wanted;
    weir_pump_kick(weir);
    int error = wait_for(weir, timeout, is_synced, wanted);
    pthread_mutex_unlock(&weir->mutex);
    return error;
}

void weir_status(struct weir *weir, struct weir_status *out)
{
    weir_fork_check(weir);
    pthread_mutex_lock(&weir->mutex);
    *out = weir->status;
    out->ready = weir->ready;
    pthread_mutex_unlock(&weir->mutex);
    if (weir->block)
        weir_reporter_status(weir, out);
    out->roots = weir->link_count;
    out->slots = weir->slots;
    out->slots_used = weir_table_live(weir->table);
    out->stale = weir_table_is_stale(weir->table);
    out->unknown = weir_table_unknown(weir->table);
    out->overflowed = weir_table_overflowed(weir->table);
    out->adaptive =
        weir_table_adaptives(weir->table, &out->adaptive_overflowed);
    /* Relaxed: of a moment ago. */
    out->waiting = weir_load_relaxed(&weir->waiting.count);
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}
