/* SPDX-License-Identifier: MIT
 * server/upstream.c - messages between the links above and the region.
 *
 * Nothing is decided here. A link's messages go into the region, and on_news
 * asks for a turn; the region's messages are sent in that turn, once, however
 * many came: so counts that arrived in one turn leave in one report. */

#include "server/upstream.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "io/clock.h"

struct weir_upstream {
    struct weir_upstream_options options;
    struct weir_region *region; /* borrowed */
    struct weir_login *login;   /* owned, as all below */
    struct event *start;
    char *name;
    struct weir_root_links *links;
    bool up[WEIR_ROOTS_MAX]; /* by link */
    bool serving;            /* from the snapshot */
    char text[1024];
    struct weir_arena arena; /* of the decoder */
    char *out;               /* of the encoder */
    size_t out_size;
};

/* ---- The snapshot ---- */

static int restore_store(void *context, const struct weir_snapshot_info *info)
{
    struct weir_upstream *upstream = context;
    return weir_region_restore(upstream->region, &info->store, info->epoch,
                               info->features, weir_clock_now());
}

static int restore_change(void *context, const struct weir_change *change)
{
    struct weir_upstream *upstream = context;
    return weir_region_restore_change(upstream->region, change,
                                      weir_clock_now());
}

static int restore_snapshot(struct weir_upstream *upstream,
                            struct weir_diag *diag)
{
    struct weir_snapshot *snapshot = upstream->options.snapshot;
    struct weir_snapshot_sink sink = { upstream, restore_store,
                                       restore_change };
    if (!snapshot || !weir_snapshot_usable(snapshot))
        return 0;
    int error = weir_snapshot_load(snapshot, &sink, diag);
    if (error < 0)
        return error;
    struct weir_snapshot_state state;
    weir_region_restored(upstream->region, weir_clock_now());
    weir_snapshot_set_serving(snapshot, true);
    weir_snapshot_look(snapshot, &state);
    upstream->serving = true;
    weir_log(
        upstream->options.log, WEIR_LOG_INFO,
        "ready by the snapshot, at epoch %llu, until an upstream root answers",
        (unsigned long long)state.info.epoch);
    return 0;
}

static void leave_restored(struct weir_upstream *upstream)
{
    weir_assert(!upstream->serving || upstream->options.snapshot);
    if (!upstream->serving)
        return;
    upstream->serving = false;
    weir_snapshot_set_serving(upstream->options.snapshot, false);
    weir_log(upstream->options.log, WEIR_LOG_INFO,
             "an upstream root answers: its quotas replace the snapshot's");
}

/* ---- Events ---- */

/* The text of an event's line; "": none. The event's text follows. */
struct saying {
    enum weir_event_type type;
    enum weir_log_level level;
    const char *words;
};
static const struct saying sayings[] = {
    { WEIR_EVENT_ROOT_UP, WEIR_LOG_INFO, "upstream root is up: " },
    { WEIR_EVENT_ROOT_DOWN, WEIR_LOG_WARNING, "upstream root " },
    { WEIR_EVENT_READY, WEIR_LOG_INFO, "the quotas are complete" },
    { WEIR_EVENT_STALE, WEIR_LOG_WARNING,
      "the region is cut off: no topmost root answers, and each quota goes "
      "by its on_stale" },
    { WEIR_EVENT_FRESH, WEIR_LOG_INFO,
      "a topmost root answers again: the region shares the limits" },
    { WEIR_EVENT_TABLE_FULL, WEIR_LOG_WARNING,
      "no slot to count a quota for the upstream (see --slots): " },
    { WEIR_EVENT_STORE_CHANGED, WEIR_LOG_WARNING,
      "an upstream root has another quota store: " },
    { WEIR_EVENT_REPORT_BACKOFF, WEIR_LOG_INFO,
      "an upstream root asks for fewer reports: " },
    { WEIR_EVENT_CREDENTIAL, WEIR_LOG_WARNING, "" },
    { WEIR_EVENT_QUOTA_UNKNOWN, WEIR_LOG_WARNING,
      "a quota of a later version can't be decided here, and passes all for "
      "the whole region: " },
    { WEIR_EVENT_DENIED, WEIR_LOG_ERROR,
      "the credential shown upstream may not take from a quota, which the "
      "region counts alone: " },
    { WEIR_EVENT_FEW_ROOTS, WEIR_LOG_WARNING,
      "this region's root sees a part of the upstream roots: " },
    { WEIR_EVENT_LOST, WEIR_LOG_WARNING,
      "more events happened than can be logged" },
};

static void log_upstream_event(struct weir_upstream *upstream,
                               const struct weir_event *event)
{
    if (event->type == WEIR_EVENT_ROOT_UP)
        leave_restored(upstream);
    for (size_t i = 0; i < WEIR_COUNT_OF(sayings); i++)
        if (sayings[i].type == event->type)
            weir_log_limited(upstream->options.log,
                             WEIR_LOG_EVENT + event->type, sayings[i].level,
                             "%s%s", sayings[i].words, event->text);
}

/* The link logs its loss itself, with the reason. */
static void log_upstream_events(struct weir_upstream *upstream)
{
    struct weir_event event;
    while (weir_region_up_event(upstream->region, &event))
        if (event.type != WEIR_EVENT_ROOT_DOWN)
            log_upstream_event(upstream, &event);
}

static void wake_root_loop(struct weir_upstream *upstream)
{
    upstream->options.on_news(upstream->options.context);
}

/* ---- A link ---- */

static void on_upstream_up(void *context, uint32_t link)
{
    struct weir_upstream *upstream = context;
    upstream->up[link] = true;
    weir_region_up_link(upstream->region, link, true, weir_clock_now());
    wake_root_loop(upstream);
}

static int on_upstream_bytes(void *context, uint32_t link, const void *bytes,
                             size_t len)
{
    struct weir_upstream *upstream = context;
    struct weir_message message;
    upstream->arena.used = 0;
    int error = weir_v1_decode(bytes, len, false, &upstream->arena, &message);
    if (error == 0)
        error = weir_region_up_receive(upstream->region, link, &message,
                                       weir_clock_now());
    const uint8_t *root =
        error == 0 ? weir_region_up_root(upstream->region, link) : NULL;
    if (root)
        weir_root_links_meet(upstream->links, link, root);
    wake_root_loop(upstream);
    return error;
}

static void on_upstream_down(void *context, uint32_t link, const char *why)
{
    struct weir_upstream *upstream = context;
    bool was_up = upstream->up[link];
    upstream->up[link] = false;
    weir_region_up_link(upstream->region, link, false, weir_clock_now());
    wake_root_loop(upstream);
    if (!why)
        return;
    const char *misplaced = weir_region_misplaced(upstream->region, link);
    if (misplaced && was_up)
        why = misplaced; /* else it keeps the reason from before */
    struct weir_event event = { .type = WEIR_EVENT_ROOT_DOWN };
    snprintf(event.text, sizeof event.text, "%.100s: %.88s",
             weir_root_links_text(upstream->links, link), why);
    log_upstream_event(upstream, &event);
}

static void on_upstream_address(void *context, uint32_t link)
{
    (void)context;
    (void)link;
}

static void on_upstream_file(void *context, const char *why)
{
    struct weir_event event = { .type = WEIR_EVENT_CREDENTIAL };
    snprintf(event.text, sizeof event.text, "%.191s", why);
    log_upstream_event(context, &event);
}

/* ---- The loop's turn ---- */

static bool fit_out(struct weir_upstream *upstream, size_t size)
{
    char *out = weir_mem_grow(&weir_mem_system, upstream->out, 1,
                              &upstream->out_size, size);
    if (!out)
        return false; /* the region makes it again */
    upstream->out = out;
    return true;
}

void weir_upstream_flush(struct weir_upstream *upstream, weir_instant now)
{
    uint32_t index;
    struct weir_message message;
    weir_region_up_others(upstream->region,
                          weir_root_links_others(upstream->links));
    while (weir_region_up_next(upstream->region, &index, &message, now)) {
        size_t size = weir_v1_size(&message);
        if (!fit_out(upstream, size))
            continue;
        size_t len = weir_v1_encode(&message, upstream->out, size);
        weir_root_links_send(upstream->links, index, upstream->out, len);
    }
    log_upstream_events(upstream);
}

/* ---- Life ---- */

static void on_start(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_upstream *upstream = context;
    weir_root_links_connect(upstream->links);
}

/* The roots as they were given, for people. */
static void write_text(struct weir_upstream *upstream)
{
    size_t len = 0;
    for (uint32_t i = 0; i < upstream->options.count; i++) {
        char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
        weir_address_text(&upstream->options.addresses[i], shown);
        snprintf(upstream->text + len, sizeof upstream->text - len, "%s%s",
                 i > 0 ? ", " : "", shown);
        len = strlen(upstream->text);
    }
}

static bool make_links(struct weir_upstream *upstream)
{
    const struct weir_root_links_options options = {
        .base = upstream->options.base,
        .roots = upstream->options.addresses,
        .count = upstream->options.count,
        .login = upstream->login,
        .handler = { .context = upstream,
                     .on_address = on_upstream_address,
                     .on_up = on_upstream_up,
                     .on_bytes = on_upstream_bytes,
                     .on_down = on_upstream_down,
                     .on_file = on_upstream_file },
    };
    upstream->links = weir_root_links_new(&options);
    return upstream->links != NULL;
}

static bool make_upstream_parts(struct weir_upstream *upstream)
{
    const struct weir_upstream_options *options = &upstream->options;
    upstream->name = strdup(options->name);
    upstream->login = weir_login_new(&options->login);
    upstream->arena.size = WEIR_DECODE_ARENA_SIZE;
    upstream->arena.base = malloc(upstream->arena.size);
    upstream->start = evtimer_new(options->base, on_start, upstream);
    if (!upstream->name || !upstream->login || !upstream->arena.base ||
        !upstream->start)
        return false;
    write_text(upstream);
    return make_links(upstream);
}

int weir_upstream_new(const struct weir_upstream_options *options,
                      struct weir_upstream **out, struct weir_diag *diag)
{
    int error = weir_login_check(&options->login, diag);
    for (uint32_t i = 0; error == 0 && i < options->count; i++)
        error = weir_login_check_address(&options->login,
                                         &options->addresses[i], diag);
    if (error < 0)
        return error;
    struct weir_upstream *upstream = calloc(1, sizeof *upstream);
    if (upstream) {
        upstream->options = *options;
        upstream->region = options->region;
    }
    if (!upstream || !make_upstream_parts(upstream)) {
        weir_upstream_free(&upstream);
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    }
    error = restore_snapshot(upstream, diag);
    if (error < 0) {
        weir_upstream_free(&upstream);
        return error;
    }
    event_active(upstream->start, EV_TIMEOUT, 0);
    *out = upstream;
    return 0;
}

void weir_upstream_free(struct weir_upstream **upstream)
{
    struct weir_upstream *u = *upstream;
    if (!u)
        return;
    weir_root_links_free(&u->links);
    if (u->start)
        event_free(u->start);
    weir_login_free(&u->login);
    free(u->arena.base);
    free(u->out);
    free(u->name);
    free(u);
    *upstream = NULL;
}

/* ---- State for people ---- */

void weir_upstream_look(const struct weir_upstream *upstream,
                        struct weir_upstream_state *out, weir_instant now)
{
    *out = (struct weir_upstream_state){ .name = upstream->name };
    uint32_t links = weir_root_links_count(upstream->options.addresses,
                                           upstream->options.count);
    for (uint32_t i = 0; i < links; i++) {
        const char *text = weir_root_links_text(upstream->links, i);
        if (!text[0])
            continue;
        uint32_t at = out->count++;
        out->addresses[at] = text;
        out->problems[at] = weir_region_misplaced(upstream->region, i);
        /* A link that was refused is tried again, and counts as connected each
         * time until it is refused once more. */
        out->up[at] = upstream->up[i] && !out->problems[at];
    }
    weir_region_look(upstream->region, &out->region, now);
}

const char *weir_upstream_text(const struct weir_upstream *upstream)
{
    return upstream->text;
}
