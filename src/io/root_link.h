/* SPDX-License-Identifier: MIT
 * io/root_link.h - the connection to one root: a gRPC call of Link that is
 * repeated, after a growing pause, whenever it ends. A service's limiter and a
 * region's root both use it; it doesn't know the messages.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ROOT_LINK_H
#define WEIR_ROOT_LINK_H

#include "io/login.h"
#include "io/stream.h"

/* A link that lasted so long was good: the next pause is short again. One that
 * ends soon after each welcome counts as one that can't be connected. */
#define WEIR_ROOT_LINK_GOOD_FOR WEIR_SECOND

struct weir_root_link;

/* No callback may free the link. */
struct weir_root_link_handler {
    void *context;
    /* connected: a session may begin */
    void (*on_up)(void *context);
    /* A message came. Returns 0, or an error that ends the link. */
    int (*on_bytes)(void *context, const void *bytes, size_t len);
    /* The link is down, or couldn't be made, and will be tried again. 'why': a
     * sentence; NULL: reported already, and no message has come since. */
    void (*on_down)(void *context, const char *why);
    /* A file of the login has changed and can't be used; its last good contents
     * stay in force. */
    void (*on_file)(void *context, const char *why);
};

struct weir_root_link_options {
    struct event_base *base;            /* borrowed */
    const struct weir_address *address; /* copied */
    const char *host; /* that the root's certificate is for; copied; NULL: that
                       * of 'address' */
    struct weir_login *login; /* borrowed */
    struct weir_root_link_handler handler;
};

/* NULL: no memory. */
struct weir_root_link *weir_root_link_new(
    const struct weir_root_link_options *options);
/* Closes. No callback comes after it. NULL inside is legal. */
void weir_root_link_free(struct weir_root_link **link);
/* Connects, and reconnects from then on. */
void weir_root_link_connect(struct weir_root_link *link);
/* Sends a message if the link is up; otherwise does nothing. */
void weir_root_link_send(struct weir_root_link *link, const void *bytes,
                         size_t len);
/* Bytes not yet given to the system. */
size_t weir_root_link_queued(const struct weir_root_link *link);

#endif /* WEIR_ROOT_LINK_H */
