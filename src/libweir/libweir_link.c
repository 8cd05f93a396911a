/* SPDX-License-Identifier: MIT
 * libweir/libweir_link.c - one root's link: passes messages between its
 * connection and the limiter node, and sends events about it. Background
 * thread only. */

#include "libweir/libweir_internal.h"

#include <stdio.h>
#include <string.h>

#include "io/clock.h"

/* The state for views (limiter_view.c). 'why' NULL: unchanged. */
static void note_link_state(struct weir_client_link *link, bool up,
                            const char *why)
{
    pthread_mutex_lock(&link->weir->mutex);
    link->seen.up = up;
    if (why)
        snprintf(link->seen.why, sizeof link->seen.why, "%s", why);
    pthread_mutex_unlock(&link->weir->mutex);
}

static void note_link_received(struct weir_client_link *link, weir_instant now)
{
    pthread_mutex_lock(&link->weir->mutex);
    link->seen.heard_at = now;
    pthread_mutex_unlock(&link->weir->mutex);
}

static void on_link_up(void *context)
{
    struct weir_client_link *link = context;
    note_link_state(link, true, "");
    weir_limiter_link(link->weir->limiter, link->index, true, weir_clock_now());
    link->on_moved(link->weir);
}

static int on_link_bytes(void *context, const void *bytes, size_t len)
{
    struct weir_client_link *link = context;
    struct weir *weir = link->weir;
    struct weir_message message;
    weir_instant now = weir_clock_now();
    int error = weir_v1_decode(bytes, len, false, &weir->arena, &message);
    if (error == 0)
        error = weir_limiter_receive(weir->limiter, link->index, &message, now);
    if (error < 0)
        return error;
    note_link_received(link, now);
    link->on_moved(weir);
    return 0;
}

static void on_link_down(void *context, const char *why)
{
    struct weir_client_link *link = context;
    weir_instant now = weir_clock_now();
    weir_limiter_link(link->weir->limiter, link->index, false, now);
    note_link_state(link, false, why);
    if (why) {
        struct weir_event event = weir_event_of(WEIR_EVENT_ROOT_DOWN, "");
        snprintf(event.text, sizeof(event.text), "%.100s: %.88s",
                 weir_root_link_text(link->link), why);
        weir_event_send(link->weir, &event);
    }
    link->on_moved(link->weir);
}

static void on_link_credential(void *context, const char *why)
{
    struct weir_client_link *link = context;
    struct weir_event event = weir_event_of(WEIR_EVENT_CREDENTIAL, why);
    weir_event_send(link->weir, &event);
}

int weir_client_link_init(struct weir *weir, uint32_t index,
                          weir_moved_fn *on_moved)
{
    struct weir_client_link *link = &weir->link[index];
    weir_assert(index < weir->link_count && !link->link && on_moved);
    link->weir = weir;
    link->on_moved = on_moved;
    link->index = index;
    struct weir_root_link_options options = {
        .base = weir->base,
        .address = &link->address,
        .login = weir->login,
        .handler = { .context = link,
                     .on_up = on_link_up,
                     .on_bytes = on_link_bytes,
                     .on_down = on_link_down,
                     .on_file = on_link_credential },
    };
    link->link = weir_root_link_new(&options);
    if (!link->link)
        return WEIR_ENOMEM;
    pthread_mutex_lock(&weir->mutex);
    link->seen = (struct weir_limiter_view_root){ .why = "not tried yet" };
    snprintf(link->seen.address, sizeof link->seen.address, "%s",
             weir_root_link_text(link->link));
    pthread_mutex_unlock(&weir->mutex);
    return WEIR_OK;
}

void weir_client_link_connect(struct weir_client_link *link)
{
    weir_root_link_connect(link->link);
}

void weir_client_link_send(struct weir_client_link *link,
                           const struct weir_message *message)
{
    struct weir *weir = link->weir;
    size_t size = weir_v1_size(message);
    char *out =
        weir_mem_grow(&weir_mem_system, weir->out, 1, &weir->out_size, size);
    if (!out)
        return; /* the limiter sends it again */
    weir->out = out;
    size_t len = weir_v1_encode(message, out, size);
    weir_assert(len == size);
    weir_root_link_send(link->link, out, len);
}

void weir_client_link_fini(struct weir_client_link *link)
{
    weir_root_link_free(&link->link);
    if (!link->weir) /* none was begun */
        return;
    pthread_mutex_lock(&link->weir->mutex);
    link->seen.address[0] = '\0';
    pthread_mutex_unlock(&link->weir->mutex);
}
