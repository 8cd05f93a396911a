/* SPDX-License-Identifier: MIT
 * io/root_links.h - a limiter's links to its roots: given by address, or by
 * names of hosts and services that are followed as DNS changes. A process's
 * limiter and a region's root both use it; it doesn't know the messages.
 *
 * A link leads to one address at a time (root_set.h). Two links that reach one
 * root become one. Several names, addresses or both may be given; a name that
 * resolves to several addresses means several roots.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ROOT_LINKS_H
#define WEIR_ROOT_LINKS_H

#include "core/counted/message.h"
#include "io/login.h"

/* The links of a limiter that is given a name: so many roots it may use. One
 * that is given more names and addresses has a link for each. */
#define WEIR_ROOTS_BY_NAME 4
/* A name is looked up again after this, ± a tenth … */
#define WEIR_NAMES_EVERY (10 * WEIR_SECOND)
/* … and after a link was lost: first after this, and twice as long each
 * time. */
#define WEIR_NAMES_SOON WEIR_SECOND
/* So often, when a name was looked up, addresses that could not be connected
 * are tried again before roots of a lower rank. */
#define WEIR_ROOTS_AGAIN (60 * WEIR_SECOND)

struct event_base;
struct weir_root_links;

/* 'link': 0 .. weir_root_links_count() - 1. No callback may free the links. */
struct weir_root_links_handler {
    void *context;
    /* The link has another address, or none any more; it is down. */
    void (*on_address)(void *context, uint32_t link);
    /* connected: a session may begin */
    void (*on_up)(void *context, uint32_t link);
    /* A message came. Returns 0, or an error that ends the link. */
    int (*on_bytes)(void *context, uint32_t link, const void *bytes,
                    size_t len);
    /* The link is down, or couldn't be made, and will be tried again; or it has
     * no address. 'why': a sentence; NULL: none is to be reported. */
    void (*on_down)(void *context, uint32_t link, const char *why);
    /* A file of the login has changed and can't be used; its last good contents
     * stay in force. */
    void (*on_file)(void *context, const char *why);
};

struct weir_root_links_options {
    struct event_base *base;          /* borrowed */
    const struct weir_address *roots; /* names and addresses; copied */
    uint32_t count;                   /* 1 .. WEIR_ROOTS_MAX */
    struct weir_login *login;         /* borrowed */
    struct weir_root_links_handler handler;
};

/* The links for so many names and addresses: 'count' .. WEIR_ROOTS_MAX. */
uint32_t weir_root_links_count(const struct weir_address *roots,
                               uint32_t count);
/* NULL: no memory. */
struct weir_root_links *weir_root_links_new(
    const struct weir_root_links_options *options);
/* Closes all. No callback comes after it. NULL inside is legal. */
void weir_root_links_free(struct weir_root_links **links);
/* Connects and looks names up, from now on. */
void weir_root_links_connect(struct weir_root_links *links);
/* The root at a link that is up has this incarnation; again is no harm. */
void weir_root_links_meet(struct weir_root_links *links, uint32_t link,
                          const uint8_t root[WEIR_INCARNATION_SIZE]);
/* Sends a message if the link is up; otherwise does nothing. */
void weir_root_links_send(struct weir_root_links *links, uint32_t link,
                          const void *bytes, size_t len);
/* Bytes of all links not yet given to the system. */
size_t weir_root_links_queued(const struct weir_root_links *links);
/* Addresses that are known and have no link, since there are more than
 * links. */
uint32_t weir_root_links_others(const struct weir_root_links *links);
/* The link's address, "127.0.0.1:7077"; "": it has none. */
const char *weir_root_links_text(const struct weir_root_links *links,
                                 uint32_t link);

#endif /* WEIR_ROOT_LINKS_H */
