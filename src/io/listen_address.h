/* SPDX-License-Identifier: MIT
 * io/listen_address.h - a listen address: HOST:PORT, or the path of a
 * socket. */

#ifndef WEIR_LISTEN_ADDRESS_H
#define WEIR_LISTEN_ADDRESS_H

#include "io/stream.h"

#define WEIR_LISTEN_ADDRESS_PATH_MAX 107 /* bytes; the system's bound */
#define WEIR_LISTEN_ADDRESS_TEXT_MAX \
    300 /* bytes of an address as text, with the NUL */

struct weir_listen_address {
    char path[WEIR_LISTEN_ADDRESS_PATH_MAX +
              1];                /* of a unix socket; "": listen at
                                         * 'address' */
    struct weir_address address; /* numeric; port 0: any */
};

/* "HOST:PORT", ":PORT" (loopback) or "unix:PATH". 0 or WEIR_ESYNTAX. */
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

#endif /* WEIR_LISTEN_ADDRESS_H */
