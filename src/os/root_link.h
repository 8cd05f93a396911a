/* SPDX-License-Identifier: MIT
 * os/root_link.h - the connection to one root: a gRPC call of Link that is
 * begun again, after a growing pause, whenever it ends. What a service's
 * limiter and a region's root have in common; knows no messages.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ROOT_LINK_H
#define WEIR_ROOT_LINK_H

#include "os/login.h"
#include "os/stream.h"

struct weir_root_link;

/* None may free the link. */
struct weir_root_link_handler {
    void *context;
    /* connected: a session may begin */
    void (*on_up)(void *context);
    /* A message. 0; or an error: the link goes down for it. */
    int (*on_bytes)(void *context, const void *bytes, size_t len);
    /* It is down, or didn't come up, and is tried again. 'why' for people,
     * NULL if that was told of already: nothing has been better since. */
    void (*on_down)(void *context, const char *why);
    /* A file of the login has changed and can't be used; what was read before
     * is in force. */
    void (*on_file)(void *context, const char *why);
};

struct weir_root_link_options {
    struct event_base *base;            /* borrowed */
    const struct weir_address *address; /* copied */
    struct weir_login *login;           /* borrowed */
    struct weir_root_link_handler handler;
};

/* NULL: no memory. */
struct weir_root_link *weir_root_link_new(
    const struct weir_root_link_options *options);
/* Closes. No callback comes after it. NULL inside is legal. */
void weir_root_link_free(struct weir_root_link **link);
/* Begins; from then on it keeps itself up. */
void weir_root_link_connect(struct weir_root_link *link);
/* A message, while it is up; otherwise nothing. */
void weir_root_link_send(struct weir_root_link *link, const void *bytes,
                         size_t len);
/* Bytes that weren't given to the system yet. */
size_t weir_root_link_queued(const struct weir_root_link *link);
/* "127.0.0.1:7077", for people. */
const char *weir_root_link_text(const struct weir_root_link *link);

#endif /* WEIR_ROOT_LINK_H */
