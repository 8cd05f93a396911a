/* SPDX-License-Identifier: MIT
 * libweir/libweir_background.c - the background thread: a loop around the
 * limiter node, and the links that pass its messages to roots and back.
 *
 * It sleeps until the node's deadline, bytes from a root, or a kick: a write
 * to an eventfd by a decision that used up some slack. It blocks all signals
 * and touches nothing of the process but its own descriptors. */

#include "libweir/libweir_full.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "io/clock.h"

#define LAST_TURNS 4 /* of the loop, once all is closed */

/* ---- The reporter of a shared table ---- */

/* On the background thread, as it begins: makes the table's next limiter. */
static void begin_reporter(struct weir *weir)
{
    weir_assert(weir->block && weir->reporter);
    struct weir_block *block = weir->block;
    if (weir->limiter) /* a copy of the parent's */
        weir_pages_clear(weir->limiter_block, weir->limiter_size);
    weir_limiter_make(weir);
    weir_limiter_inherit(weir->limiter, &block->handover, weir_clock_now());
    pthread_mutex_lock(&weir->mutex);
    weir->sync_begun = weir->sync_done = weir_load(&block->sync_done);
    pthread_mutex_unlock(&weir->mutex);
    weir_pump_wake(weir); /* a caller may be waiting already */
    weir_event_report(weir, WEIR_EVENT_REPORTER, "%s", "");
}

/* On it: publishes the status for other members and the handover to a
 * successor. */
static void publish_reporter(struct weir *weir, bool changed)
{
    struct weir_block *block = weir->block;
    weir_limiter_hand_over(weir->limiter, &block->handover);
    /* Relaxed: a concurrent reader may see some of the previous figures. */
    weir_store_relaxed(&block->roots_up, weir->status.roots_up);
    weir_store_relaxed(&block->epoch, weir->status.epoch);
    weir_store_relaxed(&block->reports, weir->status.reports);
    weir_store(&block->sync_done, weir->sync_done);
    weir_store(&block->ready, weir->ready);
    if (changed)
        weir_block_signal_change(block);
}

/* ---- Published state ---- */

static void publish_status(struct weir *weir)
{
    const struct weir_limiter *limiter = weir->limiter;
    pthread_mutex_lock(&weir->mutex);
    weir->status.roots_up = weir_limiter_links_up(limiter);
    weir->status.epoch = weir_limiter_epoch(limiter);
    weir->status.reports = weir_limiter_reports(limiter);
    weir->status.roots_there =
        weir_limiter_roots(limiter, &weir->status.few_roots);
    for (uint32_t i = 0; i < weir->link_count; i++)
        weir->roots.view[i].epoch = weir_limiter_root_epoch(limiter, i);
    /* Relaxed: a decision beside it goes by the number before. */
    weir_store_relaxed(&weir->fleet, weir_limiter_fleet(limiter));
    weir_assert(weir->status.roots_up <= weir->link_count);
    bool ready = weir_limiter_ready(limiter);
    bool synced = weir->sync_done != weir->sync_begun && ready &&
                  weir->status.roots_up > 0 && weir_limiter_settled(limiter);
    if (synced)
        weir->sync_done = weir->sync_begun;
    bool changed = ready != weir->ready || synced;
    if (changed)
        pthread_cond_broadcast(&weir->changed);
    weir->ready = ready;
    pthread_mutex_unlock(&weir->mutex);
    if (weir->block)
        publish_reporter(weir, changed);
}

static void send_node_events(struct weir *weir)
{
    struct weir_event event;
    while (weir_limiter_event(weir->limiter, &event)) {
        if (event.type == WEIR_EVENT_TABLE_FULL)
            weir_full_describe(weir, &event);
        /* The link sends the event of its loss itself, with the reason. */
        if (event.type != WEIR_EVENT_ROOT_DOWN)
            weir_event_send(weir, &event);
    }
}

static bool is_pump_sending(const struct weir *weir)
{
    return weir->roots.links && weir_root_links_queued(weir->roots.links) > 0;
}

/* Lets in waiters that fit now. Returns when to do so again; not at once, or it
 * would be a spin. */
static weir_instant serve_waiting(struct weir *weir, weir_instant now)
{
    weir_instant due = weir_waiting_look(weir, now);
    return due > now + WEIR_MILLISECOND ? due : now + WEIR_MILLISECOND;
}

static void sleep_till_due(struct weir *weir, weir_instant now)
{
    weir_instant due = weir_limiter_deadline(weir->limiter, now);
    weir_instant waiting = serve_waiting(weir, now);
    due = waiting < due ? waiting : due;
    if (weir->stopping && weir->stop_at < due)
        due = weir->stop_at;
    /* No event comes when all is sent. */
    if (weir->stopping && is_pump_sending(weir))
        due = now + WEIR_MILLISECOND;
    /* Never 0: a deadline of "now" lets the loop turn first. */
    weir_duration wait = due > now ? due - now : 1000;
    if (wait > 3600 * WEIR_SECOND)
        wait = 3600 * WEIR_SECOND;
    struct timeval tv = {
        .tv_sec = (time_t)(wait / WEIR_SECOND),
        .tv_usec = (suseconds_t)((wait % WEIR_SECOND + 999) / 1000),
    };
    evtimer_add(weir->timer, &tv);
}

/* Prepares zones and stores of new quotas before their first decision. */
static void prepare_quotas(struct weir *weir, weir_instant now)
{
    uint32_t rules_made = weir_table_rules_made(weir->table);
    bool anew = rules_made != weir->prepared;
    weir->prepared = rules_made;
    pthread_mutex_lock(&weir->defining);
    weir_zones_follow(weir, anew, now);
    if (anew)
        weir_exact_book_prepare(weir);
    pthread_mutex_unlock(&weir->defining);
}

/* A message without answer (a release) is sent when the system has it. */
static bool is_pump_idle(const struct weir *weir)
{
    /* A process that ends as soon as it has decided may have no link yet. */
    if (weir_limiter_links_up(weir->limiter) == 0)
        return weir_limiter_tried(weir->limiter);
    return weir_limiter_settled(weir->limiter) && !is_pump_sending(weir);
}

/* Sends a message; a link that can't is dropped. */
static void send_link_message(struct weir *weir, uint32_t link,
                              const struct weir_message *message)
{
    size_t size = weir_v1_size(message);
    char *out =
        weir_mem_grow(&weir_mem_system, weir->out, 1, &weir->out_size, size);
    if (!out)
        return; /* the limiter sends it again */
    weir->out = out;
    size_t len = weir_v1_encode(message, out, size);
    weir_assert(len == size);
    weir_root_links_send(weir->roots.links, link, out, len);
}

/* Drains the limiter's messages and events, sets the timer. */
static void run_pump(struct weir *weir)
{
    weir_instant now = weir_clock_now();
    uint32_t index;
    struct weir_message message;
    weir_exact_root_ask(weir, now);
    if (weir->roots.links)
        weir_limiter_set_others(weir->limiter,
                                weir_root_links_others(weir->roots.links));
    while (weir_limiter_next(weir->limiter, &index, &message, now))
        send_link_message(weir, index, &message);
    weir_exact_root_answer(weir);
    prepare_quotas(weir, now);
    weir_grow_ahead(weir, now);
    weir_unpin_late(weir);
    send_node_events(weir);
    weir_exact_book_send_events(weir);
    publish_status(weir);
    weir_adaptive_look(weir, now);
    weir_locks_heed(weir);
    if (weir->stopping && (is_pump_idle(weir) || now >= weir->stop_at))
        event_base_loopbreak(weir->base);
    sleep_till_due(weir, now);
}

/* ---- Links to roots ---- */

/* The state for views (limiter_view.h). 'why' NULL: unchanged. */
static void note_link_state(struct weir *weir, uint32_t link, bool up,
                            const char *why)
{
    struct weir_limiter_view_root *view = &weir->roots.view[link];
    pthread_mutex_lock(&weir->mutex);
    view->up = up;
    if (why)
        snprintf(view->why, sizeof view->why, "%s", why);
    pthread_mutex_unlock(&weir->mutex);
}

static void note_link_received(struct weir *weir, uint32_t link,
                               weir_instant now)
{
    pthread_mutex_lock(&weir->mutex);
    weir->roots.view[link].received_at = now;
    pthread_mutex_unlock(&weir->mutex);
}

/* The link has another address. */
static void on_link_address(void *context, uint32_t link)
{
    struct weir *weir = context;
    struct weir_limiter_view_root *view = &weir->roots.view[link];
    pthread_mutex_lock(&weir->mutex);
    *view = (struct weir_limiter_view_root){ .why = "not tried yet" };
    snprintf(view->address, sizeof view->address, "%s",
             weir_root_links_text(weir->roots.links, link));
    pthread_mutex_unlock(&weir->mutex);
}

static void on_link_up(void *context, uint32_t link)
{
    struct weir *weir = context;
    note_link_state(weir, link, true, "");
    weir_limiter_link(weir->limiter, link, true, weir_clock_now());
    run_pump(weir);
}

static int on_link_bytes(void *context, uint32_t link, const void *bytes,
                         size_t len)
{
    struct weir *weir = context;
    struct weir_message message;
    weir_instant now = weir_clock_now();
    int error = weir_v1_decode(bytes, len, false, &weir->arena, &message);
    if (error == 0)
        error = weir_limiter_receive(weir->limiter, link, &message, now);
    if (error < 0)
        return error;
    note_link_received(weir, link, now);
    const uint8_t *root = weir_limiter_root(weir->limiter, link);
    if (root)
        weir_root_links_meet(weir->roots.links, link, root);
    run_pump(weir);
    return 0;
}

static void on_link_down(void *context, uint32_t link, const char *why)
{
    struct weir *weir = context;
    weir_limiter_link(weir->limiter, link, false, weir_clock_now());
    note_link_state(weir, link, false, why);
    if (why)
        weir_event_report(weir, WEIR_EVENT_ROOT_DOWN, "%.100s: %.88s",
                          weir_root_links_text(weir->roots.links, link), why);
    run_pump(weir);
}

static void on_link_credential(void *context, const char *why)
{
    weir_event_report(context, WEIR_EVENT_CREDENTIAL, "%s", why);
}

static int make_links(struct weir *weir)
{
    weir_assert(!weir->roots.links);
    if (weir->roots.count == 0)
        return WEIR_OK;
    struct weir_root_links_options options = {
        .base = weir->base,
        .roots = weir->roots.given,
        .count = weir->roots.count,
        .login = weir->login,
        .handler = { .context = weir,
                     .on_address = on_link_address,
                     .on_up = on_link_up,
                     .on_bytes = on_link_bytes,
                     .on_down = on_link_down,
                     .on_file = on_link_credential },
    };
    weir->roots.links = weir_root_links_new(&options);
    if (!weir->roots.links)
        return WEIR_ENOMEM;
    for (uint32_t i = 0; i < weir->link_count; i++)
        on_link_address(weir, i);
    return WEIR_OK;
}

static void free_links(struct weir *weir)
{
    if (!weir->roots.links) /* none was begun */
        return;
    weir_root_links_free(&weir->roots.links);
    pthread_mutex_lock(&weir->mutex);
    for (uint32_t i = 0; i < weir->link_count; i++)
        weir->roots.view[i].address[0] = '\0';
    pthread_mutex_unlock(&weir->mutex);
}

/* ---- The loop ---- */

/* Serves blocked callers: weir_sync() waits for an answer to all counts,
 * weir_close() for the end. */
static void serve_callers(struct weir *weir, weir_instant now)
{
    pthread_mutex_lock(&weir->mutex);
    if (weir->block)
        weir->sync_wanted = weir_load(&weir->block->sync_wanted);
    bool stop = weir->closing && !weir->stopping;
    bool hurry = weir->sync_wanted != weir->sync_begun || stop;
    weir_assert(weir->block || weir->sync_begun <= weir->sync_wanted);
    weir->sync_begun = weir->sync_wanted;
    pthread_mutex_unlock(&weir->mutex);
    if (stop)
        weir_limiter_release(weir->limiter, now);
    if (hurry)
        weir_limiter_hurry(weir->limiter, now);
    if (!stop)
        return;
    weir->stopping = true;
    weir->stop_at = now + WEIR_CLOSE_PATIENCE;
}

static void on_pump_time(evutil_socket_t fd, short what, void *context)
{
    struct weir *weir = context;
    (void)fd;
    (void)what;
    pthread_mutex_lock(&weir->defining);
    weir_limiter_tick(weir->limiter, weir_clock_now());
    pthread_mutex_unlock(&weir->defining);
    run_pump(weir);
}

static void on_pump_kick(evutil_socket_t fd, short what, void *context)
{
    struct weir *weir = context;
    uint64_t kicks;
    (void)what;
    ssize_t done = read(fd, &kicks, sizeof(kicks));
    (void)done;
    serve_callers(weir, weir_clock_now());
    on_pump_time(-1, 0, weir);
}

static void *run_pump_thread(void *context)
{
    struct weir *weir = context;
    if (weir->block)
        begin_reporter(weir);
    if (weir->tell_forked) {
        weir->tell_forked = false;
        weir_event_report(weir, WEIR_EVENT_FORKED, "%s", "");
    }
    weir_kept_restore(weir);
    if (weir->roots.links)
        weir_root_links_connect(weir->roots.links);
    on_pump_time(-1, 0, weir);
    event_base_loop(weir->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

static struct event_base *make_pump_base(void)
{
    struct event_config *config = event_config_new();
    if (!config)
        return NULL;
    /* One thread uses the loop; it is woken by the eventfd. */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static int make_pump_loop(struct weir *weir)
{
    weir->stopping = false;
    weir->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (weir->kick_fd < 0)
        return WEIR_ESYSTEM;
    weir->base = make_pump_base();
    if (!weir->base)
        return WEIR_ENOMEM;
    weir->kick_event = event_new(weir->base, weir->kick_fd,
                                 EV_READ | EV_PERSIST, on_pump_kick, weir);
    weir->timer = evtimer_new(weir->base, on_pump_time, weir);
    if (!weir->kick_event || !weir->timer ||
        event_add(weir->kick_event, NULL) < 0)
        return WEIR_ENOMEM;
    int error = make_links(weir);
    return error < 0 ? error : weir_kept_open(weir);
}

static void free_pump_loop(struct weir *weir)
{
    free_links(weir);
    weir_assert(!weir->thread_runs);
    weir_kept_close(weir);
    if (weir->kick_event)
        event_free(weir->kick_event);
    if (weir->timer)
        event_free(weir->timer);
    weir->kick_event = weir->timer = NULL;
    /* Writes the rest of closing streams, at most, and ends lookups, which
     * takes a turn for each of their steps: nothing else is on the loop any
     * more. */
    if (weir->base) {
        for (int i = 0; i < LAST_TURNS; i++)
            event_base_loop(weir->base, EVLOOP_NONBLOCK);
        event_base_free(weir->base);
    }
    if (weir->kick_fd >= 0)
        close(weir->kick_fd);
    weir->base = NULL;
    weir->kick_fd = -1;
}

int weir_pump_start(struct weir *weir)
{
    weir_assert(!weir->thread_runs && !weir->base);
    weir_assert(weir->reporter == (weir->block != NULL));
    int error = make_pump_loop(weir);
    if (error == 0)
        weir->thread_runs =
            weir_client_thread(weir, "weir", run_pump_thread, &weir->thread);
    if (weir->thread_runs)
        return WEIR_OK;
    free_pump_loop(weir);
    return error < 0 ? error : WEIR_ESYSTEM;
}

void weir_pump_stop(struct weir *weir)
{
    if (weir->thread_runs) {
        pthread_mutex_lock(&weir->mutex);
        weir->closing = true;
        pthread_cond_broadcast(&weir->changed);
        pthread_mutex_unlock(&weir->mutex);
        weir_pump_wake(weir);
        pthread_join(weir->thread, NULL);
        weir->thread_runs = false;
    }
    free_pump_loop(weir);
}
