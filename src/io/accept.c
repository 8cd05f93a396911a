/* SPDX-License-Identifier: MIT
 * io/accept.c - accepts connections, also when descriptors run out. */

#include "io/accept.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct weir_acceptor {
    struct weir_acceptor_options options;
    struct event *readable, *rest; /* owned */
    int reserve;                   /* a spare descriptor; -1: none could be
                                    * opened */
    uint64_t unheard;              /* connections closed and not reported yet */
    bool open, rests;
};

static void watch_socket(struct weir_acceptor *acceptor)
{
    if (acceptor->open && !acceptor->rests)
        (void)event_add(acceptor->readable, NULL);
    else
        (void)event_del(acceptor->readable);
}

static void fill_reserve(struct weir_acceptor *acceptor)
{
    if (acceptor->reserve < 0)
        acceptor->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool is_descriptor_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS ||
           error == ENOMEM;
}

/* Accepts a connection with the reserve and closes it. False: accept() failed
 * again. */
static bool close_unaccepted(struct weir_acceptor *acceptor)
{
    if (acceptor->reserve < 0)
        return false;
    close(acceptor->reserve);
    acceptor->reserve = -1;
    int fd = accept4(acceptor->options.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    acceptor->unheard += fd >= 0;
    fill_reserve(acceptor);
    return fd >= 0;
}

static void rest_acceptor(struct weir_acceptor *acceptor, int error)
{
    const struct timeval delay = { .tv_usec = WEIR_ACCEPT_REST / 1000 };
    const struct weir_acceptor_options *options = &acceptor->options;
    for (int i = 0; i < WEIR_ACCEPTS_MAX && close_unaccepted(acceptor); i++)
        continue;
    if (options->on_short.tell)
        options->on_short.tell(options->on_short.context, acceptor->unheard,
                               strerror(error));
    weir_assert(!acceptor->rests);
    acceptor->unheard = 0;
    acceptor->rests = true;
    watch_socket(acceptor);
    (void)event_add(acceptor->rest, &delay);
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_acceptor *acceptor = context;
    weir_assert(acceptor->rests);
    acceptor->rests = false;
    fill_reserve(acceptor);
    watch_socket(acceptor);
}

static void on_connections(evutil_socket_t listening, short what, void *context)
{
    (void)what;
    struct weir_acceptor *acceptor = context;
    const struct weir_acceptor_options *options = &acceptor->options;
    for (int i = 0; i < WEIR_ACCEPTS_MAX && acceptor->open; i++) {
        struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };
        socklen_t len = sizeof peer;
        int fd = accept4(listening, (struct sockaddr *)&peer, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            options->on_socket(options->context, fd, (struct sockaddr *)&peer);
            continue;
        }
        int error = errno;
        if (!is_descriptor_shortage(error))
            return;
        if (options->make_room && options->make_room(options->context))
            continue;
        rest_acceptor(acceptor, error);
        return;
    }
}

int weir_acceptor_new(const struct weir_acceptor_options *options,
                      struct weir_acceptor **out)
{
    weir_assert(options->fd >= 0 && options->on_socket);
    struct weir_acceptor *acceptor = calloc(1, sizeof *acceptor);
    if (!acceptor)
        return WEIR_ENOMEM;
    acceptor->options = *options;
    acceptor->options.fd = -1; /* the caller keeps the socket on failure */
    acceptor->reserve = -1;
    acceptor->open = true;
    fill_reserve(acceptor);
    acceptor->readable =
        event_new(options->base, options->fd, EV_READ | EV_PERSIST,
                  on_connections, acceptor);
    acceptor->rest = event_new(options->base, -1, 0, on_rested, acceptor);
    int error = !acceptor->readable || !acceptor->rest ||
                        event_add(acceptor->readable, NULL) < 0
                    ? WEIR_ENOMEM
                : acceptor->reserve < 0 ? WEIR_ESYSTEM
                                        : 0;
    if (error < 0) {
        weir_acceptor_free(&acceptor);
        return error;
    }
    acceptor->options.fd = options->fd;
    *out = acceptor;
    return 0;
}

void weir_acceptor_set_open(struct weir_acceptor *acceptor, bool open)
{
    if (acceptor->open == open)
        return;
    acceptor->open = open;
    watch_socket(acceptor);
}

void weir_acceptor_free(struct weir_acceptor **acceptor)
{
    struct weir_acceptor *self = *acceptor;
    if (!self)
        return;
    *acceptor = NULL;
    if (self->readable)
        event_free(self->readable);
    if (self->rest)
        event_free(self->rest);
    if (self->reserve >= 0)
        close(self->reserve);
    if (self->options.fd >= 0)
        close(self->options.fd);
    free(self);
}
