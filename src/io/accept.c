/* SPDX-License-Identifier: MIT
 * io/accept.c - accepts connections, also when descriptors run out.
 *
 * A listener may be freed before its connections: they leave the acceptor one
 * by one, and the last of them frees it. The ration has the same life. */

#include "io/accept.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TAILQ_HEAD(connections, weir_accepted);

struct weir_acceptor {
    struct weir_acceptor_options options;
    struct weir_ration *ration;    /* owned */
    struct event *readable, *rest; /* owned; NULL: stopped */
    struct connections all;        /* oldest first */
    size_t count;
    uint64_t opened, refused;
    uint64_t unheard; /* connections closed and not reported yet */
    int fd;           /* listening; -1: stopped */
    int reserve;      /* a spare descriptor; -1: none could be opened */
    bool full, rests; /* reasons to pause */
    bool doomed;      /* the owner has freed it */
};

/* ---- The socket ---- */

/* Without memory to watch the socket it stays unwatched until the next
 * connection ends. */
static void watch_socket(struct weir_acceptor *acceptor)
{
    if (!acceptor->readable)
        return;
    if (!acceptor->full && !acceptor->rests)
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
    int fd = accept4(acceptor->fd, NULL, NULL, SOCK_CLOEXEC);
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
    /* Without memory for the timer it goes on at once. */
    acceptor->rests = event_add(acceptor->rest, &delay) == 0;
    watch_socket(acceptor);
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

/* ---- Bounds ---- */

static void refuse_socket(struct weir_acceptor *acceptor, int fd)
{
    const struct weir_acceptor_options *options = &acceptor->options;
    acceptor->refused++;
    if (!options->tls)
        (void)!send(fd, options->crowded.p, options->crowded.len,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

/* An acceptor that pauses keeps one place free as long as there are members:
 * it couldn't evict one for a connection that it doesn't accept. */
static void take_socket(struct weir_acceptor *acceptor, int fd,
                        const struct sockaddr *peer)
{
    static const char why[] = "too many peers are connected";
    const struct weir_acceptor_options *options = &acceptor->options;
    if (acceptor->count + options->pauses >= options->max) {
        bool evicted = weir_ration_evict(acceptor->ration, why);
        if (!options->pauses && !evicted) {
            refuse_socket(acceptor, fd);
            return;
        }
    }
    options->on_socket(options->context, fd, peer);
    acceptor->full = options->pauses && acceptor->count >= options->max;
    watch_socket(acceptor);
}

static void on_connections(evutil_socket_t listening, short what, void *context)
{
    (void)what;
    struct weir_acceptor *acceptor = context;
    for (int i = 0; i < WEIR_ACCEPTS_MAX && !acceptor->full; i++) {
        struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };
        socklen_t len = sizeof peer;
        int fd = accept4(listening, (struct sockaddr *)&peer, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            weir_address_unmap(&peer);
            take_socket(acceptor, fd, (struct sockaddr *)&peer);
            continue;
        }
        int error = errno;
        if (!is_descriptor_shortage(error))
            return;
        if (weir_ration_evict(acceptor->ration,
                              "no descriptor is left, and this connection was "
                              "the oldest without a credential of the "
                              "address with most of them"))
            continue;
        rest_acceptor(acceptor, error);
        return;
    }
}

void weir_acceptor_join(struct weir_acceptor *acceptor,
                        struct weir_accepted *accepted,
                        const struct sockaddr *peer)
{
    weir_assert(!accepted->acceptor && !acceptor->doomed);
    accepted->acceptor = acceptor;
    acceptor->count++;
    acceptor->opened++;
    TAILQ_INSERT_TAIL(&acceptor->all, accepted, among);
    weir_ration_join(acceptor->ration, &accepted->member, peer);
}

static void free_if_unused(struct weir_acceptor *acceptor)
{
    if (!acceptor->doomed || acceptor->count > 0)
        return;
    weir_ration_free(&acceptor->ration);
    free(acceptor);
}

void weir_acceptor_leave(struct weir_accepted *accepted)
{
    struct weir_acceptor *acceptor = accepted->acceptor;
    if (!acceptor)
        return;
    weir_assert(acceptor->count > 0);
    weir_ration_leave(&accepted->member);
    accepted->acceptor = NULL;
    acceptor->count--;
    TAILQ_REMOVE(&acceptor->all, accepted, among);
    acceptor->full = false;
    watch_socket(acceptor);
    free_if_unused(acceptor);
}

void weir_acceptor_each(struct weir_acceptor *acceptor,
                        void (*fn)(void *context, void *connection),
                        void *context)
{
    struct weir_accepted *next;
    for (struct weir_accepted *at = TAILQ_FIRST(&acceptor->all); at;
         at = next) {
        next = TAILQ_NEXT(at, among);
        fn(context, at->member.context);
    }
}

struct weir_acceptor_view weir_acceptor_look(
    const struct weir_acceptor *acceptor)
{
    return (struct weir_acceptor_view){
        .count = acceptor->count,
        .opened = acceptor->opened,
        .crowded =
            acceptor->refused + weir_ration_look(acceptor->ration).evicted,
    };
}

/* ---- Life ---- */

static int start_acceptor(struct weir_acceptor *acceptor,
                          struct weir_diag *diag)
{
    struct weir_acceptor_options *options = &acceptor->options;
    const struct weir_ration_options ration = { .base = options->base,
                                                .places = options->places };
    acceptor->ration = weir_ration_new(&ration);
    if (!acceptor->ration)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    int fd = weir_listen_address_listen(&options->place, diag);
    if (fd < 0)
        return fd;
    acceptor->fd = fd;
    acceptor->readable = event_new(options->base, fd, EV_READ | EV_PERSIST,
                                   on_connections, acceptor);
    acceptor->rest = event_new(options->base, -1, 0, on_rested, acceptor);
    if (!acceptor->readable || !acceptor->rest ||
        event_add(acceptor->readable, NULL) < 0)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    fill_reserve(acceptor);
    return acceptor->reserve < 0 ? weir_diag_put(diag, WEIR_ESYSTEM, NULL) : 0;
}

int weir_acceptor_new(const struct weir_acceptor_options *options,
                      struct weir_acceptor **out, struct weir_diag *diag)
{
    weir_assert(options->max > 0 && options->places > 0 && options->on_socket);
    struct weir_acceptor *acceptor = calloc(1, sizeof *acceptor);
    if (!acceptor)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    acceptor->options = *options;
    if (options->place.path[0])
        acceptor->options.tls = NULL;
    acceptor->fd = acceptor->reserve = -1;
    TAILQ_INIT(&acceptor->all);
    int error = start_acceptor(acceptor, diag);
    if (error < 0) {
        weir_acceptor_free(&acceptor);
        return error;
    }
    *out = acceptor;
    return 0;
}

const struct weir_listen_address *weir_acceptor_address(
    const struct weir_acceptor *acceptor)
{
    return &acceptor->options.place;
}

struct weir_tls *weir_acceptor_tls(const struct weir_acceptor *acceptor)
{
    return acceptor->options.tls;
}

void weir_acceptor_stop(struct weir_acceptor *acceptor)
{
    if (acceptor->readable)
        event_free(acceptor->readable);
    if (acceptor->rest)
        event_free(acceptor->rest);
    acceptor->readable = acceptor->rest = NULL;
    if (acceptor->reserve >= 0)
        close(acceptor->reserve);
    if (acceptor->fd >= 0) {
        close(acceptor->fd);
        weir_listen_address_leave(&acceptor->options.place);
    }
    acceptor->fd = acceptor->reserve = -1;
}

void weir_acceptor_free(struct weir_acceptor **acceptor)
{
    struct weir_acceptor *self = *acceptor;
    if (!self)
        return;
    *acceptor = NULL;
    weir_acceptor_stop(self);
    self->doomed = true;
    free_if_unused(self);
}
