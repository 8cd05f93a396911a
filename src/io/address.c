/* SPDX-License-Identifier: MIT
 * io/address.c - addresses as people write them and as the system has them, and
 * listening sockets at them.
 *
 * A socket's path outlives its process. It is left over if a connection to it
 * is refused, since no process accepts there. Between that test and unlinking
 * the path another process may have taken it. Starting two processes with one
 * path at the same instant is the operator's mistake, and one of them would
 * have failed anyway. */

#include "io/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/quota/quota_text.h"

#define BACKLOG 1024 /* connections; the kernel has a bound too */
#define FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

/* ---- HOST:PORT ---- */

static bool is_address_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

static bool is_host_name(struct weir_text host)
{
    for (size_t i = 0; i < host.len; i++) {
        if (!is_address_byte(host.p[i]))
            return false;
    }
    return true;
}

/* Removes the brackets of an IPv6 address; false: there are none, or no
 * IPv6. */
static bool unwrap_v6(struct weir_text *host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    size_t len = host->len;
    if (len < 4 || host->p[0] != '[' || host->p[len - 1] != ']' ||
        len - 2 >= sizeof(text))
        return false;
    memcpy(text, host->p + 1, len - 2);
    text[len - 2] = '\0';
    if (inet_pton(AF_INET6, text, &ignored) != 1)
        return false;
    host->p++;
    host->len -= 2;
    return true;
}

/* 'unnamed': the host of ":PORT". */
static int parse_host_port(struct weir_text text, struct weir_text unnamed,
                           struct weir_address *out, struct weir_diag *diag)
{
    size_t colon = text.len;
    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    if (colon == 0)
        return weir_diag_put(
            diag, WEIR_ESYNTAX,
            "an address is HOST:PORT, for example 127.0.0.1:7077: the port is "
            "missing");
    struct weir_text host = { text.p, colon - 1 };
    struct weir_text port_text = { text.p + colon, text.len - colon };
    uint64_t port;
    if (port_text.len > 5 || !weir_number_parse(port_text, &port) ||
        port > UINT16_MAX)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a port is a number from 0 to 65535");
    if (host.len == 0)
        host = unnamed;
    if (host.len >= sizeof(out->host) ||
        (!is_host_name(host) && !unwrap_v6(&host)))
        return weir_diag_put(
            diag, WEIR_ESYNTAX,
            "a host is a name, 127.0.0.1, or an IPv6 address in brackets, as "
            "in [::1]:7077");
    struct weir_address address = { .port = (uint16_t)port };
    memcpy(address.host, host.p, host.len);
    *out = address;
    return 0;
}

int weir_address_parse(struct weir_text text, struct weir_address *out,
                       struct weir_diag *diag)
{
    return parse_host_port(text, WEIR_TEXT("127.0.0.1"), out, diag);
}

/* ---- Roots ---- */

#define SERVICE "_weir._tcp."
#define SERVICE_LEN (sizeof SERVICE - 1)

bool weir_address_is_service(const struct weir_address *address)
{
    return address->port == 0 &&
           strncasecmp(address->host, SERVICE, SERVICE_LEN) == 0;
}

const char *weir_address_certified(const struct weir_address *address)
{
    return address->host + (weir_address_is_service(address) ? SERVICE_LEN : 0);
}

static int parse_service(struct weir_text text, struct weir_address *out,
                         struct weir_diag *diag)
{
    struct weir_address address = { .port = 0 };
    if (memchr(text.p, ':', text.len))
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a name of SRV records, " SERVICE
                             "NAME, has no port: the records "
                             "have the ports");
    if (text.len == SERVICE_LEN || text.len >= sizeof address.host ||
        !is_host_name(text))
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a name of SRV records is " SERVICE
                             "NAME, for example " SERVICE "weir.example");
    memcpy(address.host, text.p, text.len);
    *out = address;
    return 0;
}

int weir_root_address_parse(struct weir_text text, struct weir_address *out,
                            struct weir_diag *diag)
{
    struct weir_address address;
    if (text.len >= SERVICE_LEN &&
        strncasecmp(text.p, SERVICE, SERVICE_LEN) == 0)
        return parse_service(text, out, diag);
    int error = weir_address_parse(text, &address, diag);
    if (error < 0)
        return error;
    if (address.port == 0)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "the port of a root is a number from 1 to 65535");
    *out = address;
    return 0;
}

bool weir_address_is_equal(const struct weir_address *a,
                           const struct weir_address *b)
{
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

bool weir_address_is_all(const struct weir_address *address)
{
    return !address->host[0] || strcmp(address->host, "0.0.0.0") == 0 ||
           strcmp(address->host, "::") == 0;
}

bool weir_address_is_loopback(const struct weir_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address->host, &v6) == 1)
        return memcmp(&v6, &in6addr_loopback, sizeof(v6)) == 0;
    return strcasecmp(address->host, "localhost") == 0;
}

bool weir_address_numeric(const struct weir_address *address,
                          struct sockaddr_storage *out, socklen_t *out_len)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET,
        .sin_port = htons(address->port),
    };
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6,
        .sin6_port = htons(address->port),
    };
    const char *host = address->host;
    if (strcasecmp(host, "localhost") == 0)
        host = "127.0.0.1";
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memcpy(out, &v4, sizeof(v4));
        *out_len = sizeof(v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(out, &v6, sizeof(v6));
        *out_len = sizeof(v6);
        return true;
    }
    return false;
}

void weir_address_text(const struct weir_address *address, char *buf)
{
    bool is_v6 = strchr(address->host, ':') != NULL;
    if (weir_address_is_service(address))
        snprintf(buf, WEIR_LISTEN_ADDRESS_TEXT_MAX, "%s", address->host);
    else
        snprintf(buf, WEIR_LISTEN_ADDRESS_TEXT_MAX, is_v6 ? "[%s]:%u" : "%s:%u",
                 address->host, (unsigned)address->port);
}

void weir_address_unmap(struct sockaddr_storage *address)
{
    struct sockaddr_in6 v6;
    if (address->ss_family != AF_INET6)
        return;
    memcpy(&v6, address, sizeof v6);
    if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return;
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = v6.sin6_port };
    memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof v4.sin_addr);
    memset(address, 0, sizeof *address);
    memcpy(address, &v4, sizeof v4);
}

void weir_address_show(const struct sockaddr *address, char *buf)
{
    char host[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    unsigned port = 0;
    bool is_v6 = address->sa_family == AF_INET6;
    if (is_v6) {
        memcpy(&v6, address, sizeof(v6));
        port = ntohs(v6.sin6_port);
        (void)inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
    } else if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof(v4));
        port = ntohs(v4.sin_port);
        (void)inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    } else {
        snprintf(buf, WEIR_PEER_MAX, "unix");
        return;
    }
    snprintf(buf, WEIR_PEER_MAX, is_v6 ? "[%s]:%u" : "%s:%u", host, port);
}

struct weir_text weir_address_shown_host(const char *shown)
{
    bool is_v6 = shown[0] == '[';
    const char *host = shown + is_v6;
    return (struct weir_text){ host, strcspn(host, is_v6 ? "]" : ":") };
}

/* ---- Listening ---- */

int weir_listen_address_parse(struct weir_text text,
                              struct weir_listen_address *out,
                              struct weir_diag *diag)
{
    struct weir_listen_address place = { .path = "" };
    if (text.len < 5 || memcmp(text.p, "unix:", 5) != 0) {
        int error = parse_host_port(text, WEIR_TEXT(""), &place.address, diag);
        if (error == 0)
            *out = place;
        return error;
    }
    size_t len = text.len - 5;
    if (len == 0 || len > WEIR_LISTEN_ADDRESS_PATH_MAX ||
        memchr(text.p + 5, '\0', len))
        return weir_diag_put(
            diag, WEIR_ESYNTAX,
            "a unix socket is unix:PATH, and the system takes a path of at "
            "most 107 bytes");
    memcpy(place.path, text.p + 5, len);
    *out = place;
    return 0;
}

void weir_listen_address_show(const struct weir_listen_address *place,
                              char *buf)
{
    if (place->path[0])
        snprintf(buf, WEIR_LISTEN_ADDRESS_TEXT_MAX, "unix:%s", place->path);
    else
        weir_address_text(&place->address, buf);
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

/* All addresses: by IPv6 a socket takes IPv4's peers too, and a host without
 * IPv6 makes no such socket. */
static int listen_at_all(uint16_t port, struct weir_diag *diag)
{
    const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                                     .sin6_port = htons(port),
                                     .sin6_addr = in6addr_any };
    const struct sockaddr_in v4 = { .sin_family = AF_INET,
                                    .sin_port = htons(port),
                                    .sin_addr = { htonl(INADDR_ANY) } };
    int on = 1, off = 0;
    int fd = socket(AF_INET6, FLAGS, 0);
    bool both = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off,
                                      sizeof off) == 0;
    if (fd >= 0 && !both)
        close(fd);
    if (!both)
        fd = socket(AF_INET, FLAGS, 0);
    if (fd < 0)
        return refuse_to_listen(diag, errno, NULL);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return both ? bind_and_listen(fd, (const struct sockaddr *)&v6, sizeof v6,
                                  diag)
                : bind_and_listen(fd, (const struct sockaddr *)&v4, sizeof v4,
                                  diag);
}

static int listen_at_one(const struct weir_address *address,
                         struct weir_diag *diag)
{
    struct sockaddr_storage at;
    socklen_t len;
    if (!weir_address_numeric(address, &at, &len))
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "an address to listen at is numeric, as 127.0.0.1 or [::1]");
    int fd = socket(at.ss_family, FLAGS, 0);
    if (fd < 0)
        return refuse_to_listen(diag, errno, NULL);
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind_and_listen(fd, (struct sockaddr *)&at, len, diag);
}

int weir_listen_address_listen(struct weir_listen_address *place,
                               struct weir_diag *diag)
{
    if (place->path[0])
        return listen_at_path(place, diag);
    const struct weir_address *address = &place->address;
    int fd = address->host[0] ? listen_at_one(address, diag)
                              : listen_at_all(address->port, diag);
    if (fd >= 0)
        place->address.port = port_of(fd);
    return fd;
}

void weir_listen_address_leave(const struct weir_listen_address *place)
{
    if (place->path[0])
        unlink(place->path);
}
