/* SPDX-License-Identifier: MIT
 * io/root_links.c - sockets and lookups for a set of roots' addresses.
 *
 *     lookups --answers--> root_set --plan--> root_link, one a link
 *                             ^                   |
 *                             '--up, down, root --'
 *
 * A root_link can't be freed within its callbacks. So they only note what came,
 * and the event 'settle' acts on it in the next turn of the loop.
 *
 * Two links to one root. A root keeps one link of a limiter: with the hello on
 * the second it has left the first. When the second welcome names the
 * incarnation of the first, the second link is closed and its place is
 * remembered as leading to the same root; the first link is connected again,
 * which makes it the limiter's for the root. It is the first that stays, since
 * it has the counts that the root has answered.
 *
 * If both hellos are under way at once, the root may read the later one first,
 * and takes the other for one of the past: it never answers. So a link that is
 * connected and hears nothing, while another link does, is connected anew. */

#include "io/root_links.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "io/clock.h"
#include "io/name_lookup.h"
#include "io/process.h"
#include "io/root_link.h"
#include "io/root_set.h"

/* A connected link that has heard nothing for so long is connected anew; twice
 * as long each time, since the root may only be slow. */
#define QUIET_FIRST WEIR_SECOND
#define QUIET_MOST (16 * WEIR_SECOND)

/* A name that is followed. */
struct name {
    struct weir_root_links *links;
    uint32_t given;                  /* its number */
    bool answered;                   /* ever */
    bool told;                       /* that it isn't found */
    struct weir_name_lookup *lookup; /* owned; NULL: none is under way */
};

struct link {
    struct weir_root_links *links;
    uint32_t index;
    struct weir_root_link *link; /* owned; NULL: it has no address */
    uint32_t same_as;   /* to be closed: another link leads to its root; NONE */
    bool again;         /* to be connected anew */
    bool heard;         /* a message came since it is connected */
    weir_instant up_at; /* when it was connected */
    weir_duration quiet; /* how long it may hear nothing */
};

struct weir_root_links {
    struct weir_root_links_options options;
    struct weir_address given[WEIR_ROOTS_MAX];
    struct weir_root_set set;
    struct link link[WEIR_ROOTS_MAX];
    char text[WEIR_ROOTS_MAX][WEIR_LISTEN_ADDRESS_TEXT_MAX];
    uint32_t names;
    struct name name[WEIR_ROOTS_MAX];
    struct event *settle, *look; /* owned */
    weir_duration every;         /* until the next lookup */
    weir_instant retried_at;     /* when failed places counted as new */
    uint32_t others;             /* places that wait, as of the last plan */
    struct weir_rng rng;         /* of the times of lookups */
};

static bool is_name(const struct weir_address *address)
{
    struct sockaddr_storage at;
    socklen_t len;
    return !weir_address_numeric(address, &at, &len);
}

uint32_t weir_root_links_count(const struct weir_address *roots, uint32_t count)
{
    weir_assert(count <= WEIR_ROOTS_MAX);
    bool named = false;
    for (uint32_t i = 0; i < count; i++)
        named = named || is_name(&roots[i]);
    return named && count < WEIR_ROOTS_BY_NAME ? WEIR_ROOTS_BY_NAME : count;
}

/* ---- Links ---- */

static void settle_later(struct weir_root_links *links);
static void look_soon(struct weir_root_links *links);

static void on_one_up(void *context)
{
    struct link *link = context;
    const struct weir_root_links_handler *handler =
        &link->links->options.handler;
    weir_root_set_up(&link->links->set, link->index, true);
    link->heard = false;
    link->up_at = weir_clock_now();
    settle_later(link->links);
    handler->on_up(handler->context, link->index);
}

static int on_one_bytes(void *context, const void *bytes, size_t len)
{
    struct link *link = context;
    const struct weir_root_links_handler *handler =
        &link->links->options.handler;
    link->heard = true;
    link->quiet = QUIET_FIRST;
    return handler->on_bytes(handler->context, link->index, bytes, len);
}

/* Other places may get the link. Not at once: places that refuse would take
 * turns without end. */
static void settle_later(struct weir_root_links *links)
{
    const struct timeval later = { .tv_sec = 1 };
    if (!event_pending(links->settle, EV_TIMEOUT, NULL))
        event_add(links->settle, &later);
}

static void on_one_down(void *context, const char *why)
{
    struct link *link = context;
    struct weir_root_links *links = link->links;
    const struct weir_root_links_handler *handler = &links->options.handler;
    bool was_good =
        links->set.link[link->index].up &&
        weir_since(link->up_at, weir_clock_now()) >= WEIR_ROOT_LINK_GOOD_FOR;
    weir_root_set_up(&links->set, link->index, false);
    if (was_good)
        look_soon(links);
    else
        weir_root_set_failed(&links->set, link->index);
    settle_later(links);
    handler->on_down(handler->context, link->index, why);
}

static void on_one_file(void *context, const char *why)
{
    struct link *link = context;
    const struct weir_root_links_handler *handler =
        &link->links->options.handler;
    handler->on_file(handler->context, why);
}

/* The host that a root's certificate is for: as it was given, not what DNS says
 * of it. */
static const char *host_of(const struct weir_root_links *links,
                           const struct weir_root_place *place)
{
    for (uint32_t i = 0; i < links->options.count; i++)
        if (place->listed >> i & 1)
            return weir_address_certified(&links->given[i]);
    return place->address.host;
}

/* Makes the link to its place; without memory, or at a name, it has none. */
static void make_one(struct weir_root_links *links, uint32_t index)
{
    struct link *link = &links->link[index];
    const struct weir_root_place *place =
        weir_root_set_place(&links->set, index);
    weir_assert(!link->link);
    links->text[index][0] = '\0';
    if (!place)
        return;
    weir_address_text(&place->address, links->text[index]);
    if (place->is_name)
        return;
    struct weir_root_link_options options = {
        .base = links->options.base,
        .address = &place->address,
        .host = host_of(links, place),
        .login = links->options.login,
        .handler = { .context = link,
                     .on_up = on_one_up,
                     .on_bytes = on_one_bytes,
                     .on_down = on_one_down,
                     .on_file = on_one_file },
    };
    link->link = weir_root_link_new(&options);
}

/* Closes what the link was, and connects what it is now. */
static void remake(struct weir_root_links *links, uint32_t index)
{
    const struct weir_root_links_handler *handler = &links->options.handler;
    struct link *link = &links->link[index];
    link->same_as = WEIR_ROOT_NONE;
    link->again = false;
    weir_root_set_up(&links->set, index, false);
    weir_root_link_free(&link->link);
    handler->on_down(handler->context, index, NULL);
    make_one(links, index);
    handler->on_address(handler->context, index);
    if (link->link)
        weir_root_link_connect(link->link);
}

static void follow_plan(struct weir_root_links *links)
{
    uint32_t changed = weir_root_set_plan(&links->set);
    links->others = weir_root_set_waiting(&links->set);
    for (uint32_t i = 0; i < links->set.links; i++)
        if (changed >> i & 1)
            remake(links, i);
}

/* ---- Two links to one root ---- */

void weir_root_links_meet(struct weir_root_links *links, uint32_t index,
                          const uint8_t root[WEIR_INCARNATION_SIZE])
{
    weir_assert(index < links->set.links);
    struct link *link = &links->link[index];
    if (!links->set.link[index].up || link->same_as != WEIR_ROOT_NONE)
        return;
    uint32_t other = weir_root_set_meet(&links->set, index, root);
    if (other == WEIR_ROOT_NONE || links->link[other].same_as != WEIR_ROOT_NONE)
        return;
    link->same_as = other;
    event_active(links->settle, EV_TIMEOUT, 1);
}

static bool is_heard(const struct weir_root_links *links)
{
    for (uint32_t i = 0; i < links->set.links; i++)
        if (links->set.link[i].up && links->link[i].heard)
            return true;
    return false;
}

/* Has a link that has heard nothing for too long connected anew. */
static void check_quiet(struct weir_root_links *links, uint32_t index)
{
    struct link *link = &links->link[index];
    if (!links->set.link[index].up || link->heard)
        return;
    settle_later(links);
    if (!is_heard(links) || weir_clock_now() - link->up_at < link->quiet)
        return;
    link->again = true;
    if (link->quiet < QUIET_MOST)
        link->quiet *= 2;
}

/* Unless one of the two was lost in between. */
static void merge_one(struct weir_root_links *links, uint32_t index)
{
    uint32_t other = links->link[index].same_as;
    links->link[index].same_as = WEIR_ROOT_NONE;
    if (!links->set.link[index].up || !links->set.link[other].up)
        return;
    weir_root_set_merge(&links->set, index, other);
    links->link[other].again = true;
    remake(links, index);
}

static void on_settle(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_root_links *links = context;
    for (uint32_t i = 0; i < links->set.links; i++)
        if (links->link[i].same_as != WEIR_ROOT_NONE)
            merge_one(links, i);
    for (uint32_t i = 0; i < links->set.links; i++)
        check_quiet(links, i);
    for (uint32_t i = 0; i < links->set.links; i++)
        if (links->link[i].again)
            remake(links, i);
    follow_plan(links);
}

/* ---- Names ---- */

static bool is_looking(const struct weir_root_links *links)
{
    for (uint32_t i = 0; i < links->names; i++)
        if (links->name[i].lookup)
            return true;
    return false;
}

/* A tenth more or less: limiters that were started together, or lost a root
 * together, don't ask together. */
static void look_after(struct weir_root_links *links, weir_duration wait)
{
    weir_duration part = weir_rng_below(&links->rng, wait / 5 + 1);
    struct timeval at = weir_timeval_of(wait - wait / 10 + part);
    evtimer_add(links->look, &at);
}

static void look_next(struct weir_root_links *links)
{
    look_after(links, links->every);
    links->every = 2 * links->every < WEIR_NAMES_EVERY ? 2 * links->every
                                                       : WEIR_NAMES_EVERY;
}

static void look_soon(struct weir_root_links *links)
{
    if (links->names == 0)
        return;
    links->every = WEIR_NAMES_SOON;
    if (!is_looking(links))
        look_next(links);
}

/* Until its first answer a name has the link of its addresses. */
static void tell_not_found(struct weir_root_links *links, struct name *name,
                           const char *why)
{
    const struct weir_root_links_handler *handler = &links->options.handler;
    for (uint32_t i = 0; i < links->set.links && !name->answered; i++) {
        const struct weir_root_place *place =
            weir_root_set_place(&links->set, i);
        if (place && place->is_name && place->listed >> name->given & 1)
            handler->on_down(handler->context, i, name->told ? NULL : why);
    }
    name->told = true;
}

static void on_found(void *context, const struct weir_address *found,
                     size_t count, const char *why)
{
    struct name *name = context;
    struct weir_root_links *links = name->links;
    /* Without an answer, or an empty one, that which is known stays. */
    if (count > 0) {
        name->answered = true;
        weir_root_set_answer(&links->set, name->given, found, count);
    } else {
        tell_not_found(links, name, why);
        if (!name->answered)
            links->every = WEIR_NAMES_SOON;
    }
    weir_name_lookup_free(&name->lookup);
    if (weir_clock_now() - links->retried_at >= WEIR_ROOTS_AGAIN) {
        links->retried_at = weir_clock_now();
        weir_root_set_retry(&links->set);
    }
    follow_plan(links);
    if (!is_looking(links))
        look_next(links);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_root_links *links = context;
    for (uint32_t i = 0; i < links->names; i++) {
        struct name *name = &links->name[i];
        if (!name->lookup)
            name->lookup = weir_name_lookup_new(links->options.base,
                                                &links->given[name->given],
                                                on_found, name);
    }
    if (!is_looking(links))
        look_next(links); /* no memory */
}

/* ---- Life ---- */

static void give_all(struct weir_root_links *links)
{
    for (uint32_t i = 0; i < links->options.count; i++) {
        links->given[i] = links->options.roots[i];
        bool named = is_name(&links->given[i]);
        weir_root_set_give(&links->set, i, &links->given[i], named);
        if (named)
            links->name[links->names++] =
                (struct name){ .links = links, .given = i };
    }
    links->options.roots = NULL;
    (void)weir_root_set_plan(&links->set);
}

struct weir_root_links *weir_root_links_new(
    const struct weir_root_links_options *options)
{
    weir_assert(options->count >= 1 && options->count <= WEIR_ROOTS_MAX);
    struct weir_root_links *links = calloc(1, sizeof *links);
    if (!links)
        return NULL;
    links->options = *options;
    links->every = WEIR_NAMES_EVERY;
    weir_entropy(&links->rng, sizeof links->rng);
    weir_root_set_init(&links->set,
                       weir_root_links_count(options->roots, options->count));
    give_all(links);
    links->settle = event_new(options->base, -1, 0, on_settle, links);
    links->look = evtimer_new(options->base, on_look, links);
    bool made = links->settle && links->look;
    for (uint32_t i = 0; made && i < links->set.links; i++) {
        const struct weir_root_place *place =
            weir_root_set_place(&links->set, i);
        links->link[i] = (struct link){ .links = links,
                                        .index = i,
                                        .same_as = WEIR_ROOT_NONE,
                                        .quiet = QUIET_FIRST };
        make_one(links, i);
        made = !place || place->is_name || links->link[i].link;
    }
    if (!made)
        weir_root_links_free(&links);
    return links;
}

void weir_root_links_free(struct weir_root_links **links)
{
    struct weir_root_links *self = *links;
    if (!self)
        return;
    *links = NULL;
    for (uint32_t i = 0; i < self->set.links; i++)
        weir_root_link_free(&self->link[i].link);
    for (uint32_t i = 0; i < self->names; i++)
        weir_name_lookup_free(&self->name[i].lookup);
    if (self->settle)
        event_free(self->settle);
    if (self->look)
        event_free(self->look);
    free(self);
}

void weir_root_links_connect(struct weir_root_links *links)
{
    const struct weir_root_links_handler *handler = &links->options.handler;
    for (uint32_t i = 0; i < links->set.links; i++) {
        if (links->link[i].link)
            weir_root_link_connect(links->link[i].link);
        else if (!weir_root_set_place(&links->set, i))
            handler->on_down(handler->context, i, NULL);
    }
    if (links->names > 0)
        on_look(-1, 0, links);
}

/* ---- Messages ---- */

void weir_root_links_send(struct weir_root_links *links, uint32_t link,
                          const void *bytes, size_t len)
{
    weir_assert(link < links->set.links);
    if (links->link[link].link)
        weir_root_link_send(links->link[link].link, bytes, len);
}

size_t weir_root_links_queued(const struct weir_root_links *links)
{
    size_t queued = 0;
    for (uint32_t i = 0; i < links->set.links; i++)
        if (links->link[i].link)
            queued += weir_root_link_queued(links->link[i].link);
    return queued;
}

uint32_t weir_root_links_others(const struct weir_root_links *links)
{
    return links->others;
}

const char *weir_root_links_text(const struct weir_root_links *links,
                                 uint32_t link)
{
    weir_assert(link < links->set.links);
    return links->text[link];
}
