/* SPDX-License-Identifier: MIT
 * libweir/libweir_event_queue.c - events for the program: a ring and an eventfd
 * that is readable while the ring isn't empty. A full ring drops the new event
 * and reports the loss, behind those it holds, when the next one is taken. */

#include "libweir/libweir_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/clock.h"

int weir_event_queue_init(struct weir_event_queue *queue)
{
    queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->fd < 0)
        return WEIR_ESYSTEM;
    pthread_mutex_init(&queue->mutex, NULL);
    queue->first = queue->count = 0;
    queue->lost = 0;
    return WEIR_OK;
}

void weir_event_queue_fini(struct weir_event_queue *queue)
{
    close(queue->fd);
    pthread_mutex_destroy(&queue->mutex);
}

static void push_event(struct weir_event_queue *queue,
                       const struct weir_event *event)
{
    weir_assert(queue->count < WEIR_EVENT_QUEUE_MAX);
    uint32_t at = (queue->first + queue->count++) % WEIR_EVENT_QUEUE_MAX;
    queue->event[at] = *event;
}

static void set_events_readable(struct weir_event_queue *queue, bool readable)
{
    uint64_t one = 1;
    ssize_t done = readable ? write(queue->fd, &one, sizeof(one))
                            : read(queue->fd, &one, sizeof(one));
    /* EAGAIN: it is already as it should be. */
    weir_assert(done == sizeof(one) || errno == EAGAIN);
}

/* Reports dropped events as soon as there is room: their place in the order is
 * behind all that were kept. */
static void push_lost_event(struct weir_event_queue *queue)
{
    if (queue->lost == 0 || queue->count == WEIR_EVENT_QUEUE_MAX)
        return;
    struct weir_event lost = { .type = WEIR_EVENT_LOST,
                               .at = queue->lost_at,
                               .count = queue->lost };
    push_event(queue, &lost);
    queue->lost = 0;
}

void weir_event_send(struct weir *weir, const struct weir_event *event)
{
    struct weir_event_queue *queue = &weir->events;
    pthread_mutex_lock(&queue->mutex);
    if (queue->count < WEIR_EVENT_QUEUE_MAX)
        push_event(queue, event);
    else if (queue->lost++ == 0)
        queue->lost_at = event->at;
    set_events_readable(queue, true);
    pthread_mutex_unlock(&queue->mutex);
    if (weir->on_event)
        weir->on_event(weir->event_context, event);
}

void weir_event_report(struct weir *weir, enum weir_event_type type,
                       const char *format, ...)
{
    struct weir_event event = { type, weir_clock_now(), 1, "" };
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(event.text, sizeof(event.text), format, arguments);
    va_end(arguments);
    weir_event_send(weir, &event);
}

int weir_event_fd(struct weir *weir)
{
    weir_own_ensure(weir);
    return weir->events.fd;
}

bool weir_event_next(struct weir *weir, struct weir_event *out)
{
    weir_own_ensure(weir);
    struct weir_event_queue *queue = &weir->events;
    pthread_mutex_lock(&queue->mutex);
    bool some = queue->count > 0;
    if (some) {
        *out = queue->event[queue->first];
        queue->first = (queue->first + 1) % WEIR_EVENT_QUEUE_MAX;
        queue->count--;
        push_lost_event(queue);
        weir_assert(queue->lost == 0); /* there was room to report it */
    }
    if (queue->count == 0)
        set_events_readable(queue, false);
    pthread_mutex_unlock(&queue->mutex);
    return some;
}
