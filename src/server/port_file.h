/* SPDX-License-Identifier: MIT
 * server/port_file.h - where a root listens, in a file: for whoever has
 * started it with a port of chance. */

#ifndef WEIR_PORT_FILE_H
#define WEIR_PORT_FILE_H

#include "os/place.h"

/* Writes 'text'. Whoever waits for the file may read it as soon as it is
 * there. 0, or WEIR_ESYSTEM with 'diag' filled. */
int weir_port_file_put(const char *path, const char *text,
                       struct weir_diag *diag);

/* The same, of a root: two addresses ("HOST:PORT", or "off"), and where clients
 * of Redis are heard (NULL: nowhere). */
int weir_port_file_write(const char *path, const char *listen, const char *http,
                         const struct weir_place *resp, struct weir_diag *diag);

#endif /* WEIR_PORT_FILE_H */
