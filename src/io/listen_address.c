/* SPDX-License-Identifier: MIT
 * io/listen_address.c - listening sockets, by address or by path.
 *
 * A socket's path outlives its process. It is left over if a connection to it
 * is refused, since no process accepts there. Between that test and unlinking
 * the path another process may have taken it. Starting two processes with one
 * path at the same instant is the operator's mistake, and one of them would
 * have failed anyway. */

#include "io/listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/stream_internal.h"

#define BACKLOG 1024 /* connections; the kernel has a bound too */
#define FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

int weir_listen_address_parse(struct weir_text text,
                              struct weir_listen_address *out,
                              struct weir_diag *diag)
{
    struct weir_listen_address place = { .path = "" };
    if (text.len < 5 || memcmp(text.p, "unix:", 5) != 0) {
        int error = weir_address_parse(text, &place.address, diag);
        if (error == 0)
            *out = place;
        return error;
    }
    size_t len = text.len - 5;
    if (len == 0 || len > WEIR_LISTEN_ADDRESS_PATH_MAX ||
        memchr(text.p + 5, '\0', len))
        return weir_diag_set(diag, WEIR_ESYNTAX,
                             "a unix socket is unix:PATH, and the "
                             "system takes a path of at most 107 bytes",
                             NULL);
    memcpy(place.path, text.p + 5, len);
    *out = place;
    return 0;
}

void weir_listen_address_show(const struct weir_listen_address *place,
                              char *buf)
{
    const struct weir_address *at = &place->address;
    bool is_v6 = strchr(at->host, ':') != NULL;
    if (place->path[0])
        snprintf(buf, WEIR_LISTEN_ADDRESS_TEXT_MAX, "unix:%s", place->path);
    else
        snprintf(buf, WEIR_LISTEN_ADDRESS_TEXT_MAX, is_v6 ? "[%s]:%u" : "%s:%u",
                 at->host, (unsigned)at->port);
}

bool weir_listen_address_is_local(const struct weir_listen_address *place)
{
    return place->path[0] || weir_address_is_loopback(&place->address);
}

static struct sockaddr_un path_address(const struct weir_listen_address *place)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    memcpy(at.sun_path, place->path, sizeof place->path);
    return at;
}

/* Whether no process listens at the socket any more. */
static bool is_left_over(const struct weir_listen_address *place)
{
    struct sockaddr_un at = path_address(place);
    int fd = socket(AF_UNIX, FLAGS, 0);
    if (fd < 0)
        return false;
    int result = connect(fd, (struct sockaddr *)&at, sizeof at);
    bool refused = result < 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

static int refuse_to_listen(struct weir_diag *diag, int why, const char *kind)
{
    if (why != EADDRINUSE)
        kind = NULL; /* ends the list of kinds */
    return weir_diag_set(diag, WEIR_ESYSTEM, "can't listen: ", strerror(why),
                         kind ? "; another process has this " : "", kind,
                         ": stop it or take another", NULL);
}

/* Closes the socket if this fails. */
static int bind_and_listen(int fd, const struct sockaddr *at, socklen_t len,
                           struct weir_diag *diag)
{
    if (bind(fd, at, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    return refuse_to_listen(diag, why,
                            at->sa_family == AF_UNIX ? "path" : "port");
}

static int listen_at_path(const struct weir_listen_address *place,
                          struct weir_diag *diag)
{
    struct sockaddr_un at = path_address(place);
    if (is_left_over(place))
        unlink(place->path);
    int fd = socket(AF_UNIX, FLAGS, 0);
    if (fd < 0)
        return refuse_to_listen(diag, errno, NULL);
    return bind_and_listen(fd, (struct sockaddr *)&at, sizeof at, diag);
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return 0;
    return ntohs(at.ss_family == AF_INET6
                     ? ((struct sockaddr_in6 *)&at)->sin6_port
                     : ((struct sockaddr_in *)&at)->sin_port);
}

int weir_listen_address_listen(struct weir_listen_address *place,
                               struct weir_diag *diag)
{
    struct sockaddr_storage at;
    socklen_t len;
    if (place->path[0])
        return listen_at_path(place, diag);
    if (!weir_address_numeric(&place->address, &at, &len))
        return weir_diag_set(
            diag, WEIR_EINVAL,
            "an address to listen at is numeric, as 127.0.0.1 or [::1]", NULL);
    int fd = socket(at.ss_family, FLAGS, 0);
    if (fd < 0)
        return refuse_to_listen(diag, errno, NULL);
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    fd = bind_and_listen(fd, (struct sockaddr *)&at, len, diag);
    if (fd >= 0)
        place->address.port = port_of(fd);
    return fd;
}

void weir_listen_address_leave(const struct weir_listen_address *place)
{
    if (place->path[0])
        unlink(place->path);
}
