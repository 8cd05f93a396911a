/* SPDX-License-Identifier: MIT
 * io/address.h - addresses: of a server, HOST:PORT; to listen at, HOST:PORT or
 * the path of a socket. */

#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include <sys/socket.h>

#include "core/base/base.h"

/* "HOST:PORT", "[V6]:PORT" or, to connect to, ":PORT" (loopback). Names are
 * resolved when connecting. */
struct weir_address {
    char host[256]; /* "", only to listen at: all addresses of this host */
    uint16_t port;
};
int weir_address_parse(struct weir_text text, struct weir_address *out,
                       struct weir_diag *diag);
/* A limiter's root, or several: "HOST:PORT" as above with a port from 1 on, or
 * a service, "_weir._tcp.NAME" without a port: DNS has the hosts and ports of
 * its roots as SRV records (RFC 2782). A service's 'host' is all of its text,
 * and its port 0. 0 or WEIR_ESYNTAX. */
int weir_root_address_parse(struct weir_text text, struct weir_address *out,
                            struct weir_diag *diag);
bool weir_address_is_service(const struct weir_address *address);
/* The host that a certificate must be for: 'host', or the NAME of a service.
 * It lives as long as 'address'. */
const char *weir_address_certified(const struct weir_address *address);
/* Whether both have one port and one host, in any case. */
bool weir_address_is_equal(const struct weir_address *a,
                           const struct weir_address *b);
/* Whether it means all addresses of this host: "", 0.0.0.0 or ::. */
bool weir_address_is_all(const struct weir_address *address);
/* Whether it names the loopback range only (127/8, ::1, localhost). */
bool weir_address_is_loopback(const struct weir_address *address);

/* The numeric address of 'host' ("localhost" has one); false for a name that
 * needs a lookup. */
bool weir_address_numeric(const struct weir_address *address,
                          struct sockaddr_storage *out, socklen_t *out_len);
/* Writes "weir.example:7077", "[::1]:7077" or "_weir._tcp.example" into 'buf',
 * which has WEIR_LISTEN_ADDRESS_TEXT_MAX bytes. */
#define WEIR_LISTEN_ADDRESS_TEXT_MAX 300
void weir_address_text(const struct weir_address *address, char *buf);
/* Makes an IPv4 address of one that IPv6 maps (::ffff:10.0.0.1), as the peers
 * of a socket for both have. */
void weir_address_unmap(struct sockaddr_storage *address);
/* Writes "127.0.0.1:41234", "[::1]:41234", or "unix" for the peer of a path,
 * into 'buf' of WEIR_PEER_MAX bytes. */
#define WEIR_PEER_MAX 64
void weir_address_show(const struct sockaddr *address, char *buf);
/* The host in such a text, without brackets and port. */
struct weir_text weir_address_shown_host(const char *shown);

#define WEIR_LISTEN_ADDRESS_PATH_MAX 107 /* bytes; the system's bound */

struct weir_listen_address {
    /* of a unix socket; "": listen at 'address' */
    char path[WEIR_LISTEN_ADDRESS_PATH_MAX + 1];
    struct weir_address address; /* numeric, or all; port 0: any */
};

/* "HOST:PORT", ":PORT" (all addresses, of IPv6 and IPv4) or "unix:PATH". 0 or
 * WEIR_ESYNTAX. */
int weir_listen_address_parse(struct weir_text text,
                              struct weir_listen_address *out,
                              struct weir_diag *diag);
/* The address as it is written in options; 'buf' has
 * WEIR_LISTEN_ADDRESS_TEXT_MAX bytes. */
void weir_listen_address_show(const struct weir_listen_address *place,
                              char *buf);
/* Whether only processes of this host can reach it. */
bool weir_listen_address_is_local(const struct weir_listen_address *place);

/* Makes a listening socket, non-blocking and close-on-exec; the port that the
 * system chose is written to 'place'. A socket that a dead process has left at
 * the path is unlinked; one with a live listener isn't. The path's folder and
 * the umask control access to it. Returns the descriptor, or WEIR_EINVAL (no
 * numeric address) or WEIR_ESYSTEM, with 'diag' filled. Blocks on file
 * operations only. */
int weir_listen_address_listen(struct weir_listen_address *place,
                               struct weir_diag *diag);
/* Unlinks the path, if there is one. */
void weir_listen_address_leave(const struct weir_listen_address *place);

#endif /* WEIR_ADDRESS_H */
