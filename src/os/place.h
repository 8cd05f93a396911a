/* SPDX-License-Identifier: MIT
 * os/place.h - where a door stands: an address, or a socket in a folder. */

#ifndef WEIR_PLACE_H
#define WEIR_PLACE_H

#include "os/stream.h"

#define WEIR_PLACE_PATH_MAX 107 /* bytes; the system's bound */
#define WEIR_PLACE_TEXT_MAX 300 /* bytes of one as text, and the NUL */

struct weir_place {
    char path[WEIR_PLACE_PATH_MAX + 1]; /* of a unix socket; "": none, but: */
    struct weir_address address;        /* numeric; port 0: any */
};

/* "HOST:PORT", ":PORT" (loopback) or "unix:PATH". 0 or WEIR_ESYNTAX. */
int weir_place_parse(struct weir_text text, struct weir_place *out,
                     struct weir_diag *diag);
/* As it is written; 'buf' has WEIR_PLACE_TEXT_MAX bytes. */
void weir_place_show(const struct weir_place *place, char *buf);
/* Whether nobody but processes of this host can reach it. */
bool weir_place_is_local(const struct weir_place *place);

/* A listening socket, not blocking and close-on-exec; the port that the
 * system chose is written to 'place'. A socket that a dead process has left
 * at the path is taken away; one at which somebody answers isn't. Who may
 * connect to a path is a matter of its folder and of the umask. Returns the
 * descriptor, or WEIR_EINVAL (no numeric address) or WEIR_ESYSTEM, with
 * 'diag' filled. Blocking, as far as files are. */
int weir_place_listen(struct weir_place *place, struct weir_diag *diag);
/* Takes the path away, if there is one. */
void weir_place_leave(const struct weir_place *place);

#endif /* WEIR_PLACE_H */
