/* SPDX-License-Identifier: MIT
 * front/port_file.h - writes a root's listen addresses into a file, for a
 * script that started the root with port 0. */

#ifndef WEIR_PORT_FILE_H
#define WEIR_PORT_FILE_H

#include "io/address.h"

/* Writes 'text'. A reader that waits for the file may read it as soon as it
 * exists. 0, or WEIR_ESYSTEM with 'diag' filled. */
int weir_port_file_put(const char *path, const char *text,
                       struct weir_diag *diag);

/* The same for a root: two addresses ("HOST:PORT", or "off"), and the listen
 * address for clients of Redis (NULL: none). */
int weir_port_file_write(const char *path, const char *listen, const char *http,
                         const struct weir_listen_address *resp,
                         struct weir_diag *diag);

#endif /* WEIR_PORT_FILE_H */
