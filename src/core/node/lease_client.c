/* SPDX-License-Identifier: MIT
 * node/lease_client.c - lease holders by name, and their messages.
 *
 * A place's life:
 *
 *     free --open()--> open --close()--> leaving --its release--> free
 *                       ^                   |      was sent, or it
 *                       '----- open() ------'      owes nothing
 *
 * A place owes the grants that the master may have made: by its last answer, or
 * by an ask not answered yet when the place is closed. The release follows that
 * ask to the master, and the late answer finds no place.
 *
 * One counter numbers the messages, over all links and sessions. An answer
 * names the lease holder and the number of the ask that it answers, so a late
 * one is recognized whichever way it came.
 *
 * Which root. A master is known by its term and its incarnation. Another
 * master, or the same address with another incarnation, has its own serials,
 * and may know nothing of us: each lease holder then forgets its serials and
 * asks at once, all in one message. The same master by a new link knows us, but
 * not the link to push by: it is asked at once, and nothing is forgotten.
 * Without a link to a master the roots are asked in turn, with the usual
 * patience for each ask: a new master that we were not told of answers, and the
 * answer says that it is master.
 *
 * An error doesn't change the lease holder: its lease runs out, and it asks
 * again, with growing patience. A root may not have our newest edit yet, or may
 * have room again later.
 *
 * Timing. Two arrays have the time when each place is next due, and when its
 * limit changes by time; two instants are their minima. So a wake-up walks over
 * eight bytes a place, and only when some place is due. Rejected: a heap, which
 * each answer changes twice; many places are due at once, since they are
 * gathered. */

#include "core/node/lease_client.h"

#include <string.h>

#include "core/base/hash.h"

#define NONE WEIR_LEASE_PLACE_NONE

enum place_state { FREE, OPEN, LEAVING };

struct place {
    struct weir_lease_holder holder;
    uint64_t ticket;
    int64_t priority;
    uint64_t hash;
    weir_instant owes_until; /* leaving: the place is freed then */
    double limit_returned;   /* limit last returned by changed(); below 0:
                              * none */
    uint32_t next;           /* in the list of its hash head, or of free places;
                              * + 1 */
    uint32_t next_changed;   /* + 1 */
    uint8_t state;           /* enum place_state */
    bool changed;            /* in the list of changed places */
    bool lapsed;             /* its lease was found to be over */
    enum weir_lease_error error;
    uint8_t name_len;
    char name[WEIR_NAME_MAX];
};

struct link {
    struct weir_lease_link state; /* its 'master' is in: */
    char master[WEIR_MASTER_MAX];
};

struct weir_lease_client {
    const struct weir_lease_speaker *speaker;
    const struct weir_lease_witness *witness;
    uint64_t seed;
    uint32_t capacity;
    uint32_t used;       /* places ever used */
    uint32_t free_first; /* + 1 */
    uint32_t head_mask;
    uint32_t message_max; /* wants in one message */
    uint32_t link_count;
    struct link link[WEIR_ROOTS_MAX];
    struct place *place;
    uint32_t *head; /* by hash: place + 1 */
    weir_instant *due_at, *end_at;
    struct weir_want *wants;          /* scratch of a message */
    struct weir_band *bands;          /* scratch of a message */
    struct weir_want_window *windows; /* scratch of a message … */
    struct weir_latency_count *bins;  /* … and their bins */
    struct weir_band *divided_bands; /* likewise, of wants that are divided … */
    uint32_t divided;                /* … which are so many */
    uint32_t bands_each;
    uint64_t number;                 /* of the last message */
    weir_instant due_from, end_from; /* minima of due_at and end_at */
    uint32_t changed_first;          /* + 1 */
    uint32_t master;                 /* link, or NONE */
    bool met;                        /* there was a master, of this … */
    uint64_t term, root;             /* … term and incarnation */
    uint32_t turn;                   /* the next link to ask if there is none */
};

/* ---- Memory ---- */

/* Of a process's wants, which its classes divide. */
#define DIVIDED_BANDS (WEIR_LEASE_GUARANTEES_MAX + 1)
#define DIVIDED_MAX WEIR_WINDOWS_MAX

static uint32_t heads_for(uint32_t places)
{
    uint32_t heads = 1;
    while (heads < places)
        heads *= 2;
    weir_assert(heads >= places);
    return heads;
}

static size_t lay_out_client(struct weir_lease_client *c, char *block,
                             const struct weir_lease_client_options *options)
{
    size_t places = options->places;
    size_t message = places < WEIR_LEASES_MAX ? places : WEIR_LEASES_MAX;
    size_t bands = options->speaker ? WEIR_LEASE_BANDS_MAX : 1;
    size_t at = weir_aligned(sizeof(*c));
    c->message_max = (uint32_t)message;
    c->bands_each = (uint32_t)bands;
    c->head_mask = heads_for(options->places) - 1;
    c->place = weir_carve(block, &at, places * sizeof(struct place));
    c->due_at = weir_carve(block, &at, places * sizeof(weir_instant));
    c->end_at = weir_carve(block, &at, places * sizeof(weir_instant));
    c->head =
        weir_carve(block, &at, (c->head_mask + (size_t)1) * sizeof(uint32_t));
    c->wants = weir_carve(block, &at, message * sizeof(struct weir_want));
    c->bands =
        weir_carve(block, &at, message * bands * sizeof(struct weir_band));
    size_t windows = options->witness ? WEIR_WINDOWS_MAX : 0;
    c->windows =
        weir_carve(block, &at, windows * sizeof(struct weir_want_window));
    c->bins = weir_carve(block, &at,
                         windows * WEIR_WINDOW_BINS *
                             sizeof(struct weir_latency_count));
    size_t divided = options->witness ? DIVIDED_MAX : 0;
    c->divided_bands = weir_carve(
        block, &at, divided * DIVIDED_BANDS * sizeof(struct weir_band));
    weir_assert(c->message_max <= WEIR_LEASES_MAX);
    return at;
}

size_t weir_lease_client_size(const struct weir_lease_client_options *options)
{
    struct weir_lease_client shape;
    return lay_out_client(&shape, NULL, options);
}

struct weir_lease_client *weir_lease_client_init(
    void *block, const struct weir_lease_client_options *options)
{
    weir_assert(options->places <= WEIR_LEASE_PLACES_MAX &&
                options->links <= WEIR_ROOTS_MAX);
    struct weir_lease_client *c = block;
    c->speaker = options->speaker;
    c->witness = options->witness;
    c->seed = options->seed;
    c->capacity = options->places;
    c->link_count = options->links;
    c->due_from = c->end_from = WEIR_NEVER;
    c->master = NONE;
    lay_out_client(c, block, options);
    return c;
}

void weir_lease_client_forget(struct weir_lease_client *c)
{
    memset(c->head, 0, (c->head_mask + (size_t)1) * sizeof(*c->head));
    memset(c->place, 0, c->used * sizeof(*c->place));
    c->used = c->free_first = c->changed_first = 0;
    c->due_from = c->end_from = WEIR_NEVER;
    c->master = NONE;
    c->met = false;
    for (uint32_t i = 0; i < c->link_count; i++)
        c->link[i].state = (struct weir_lease_link){ .up = false };
}

/* ---- Places ---- */

static struct place *wanted_at(const struct weir_lease_client *c, uint32_t at)
{
    weir_assert(at < c->used && c->place[at].state != FREE);
    return &c->place[at];
}

static struct weir_text wanted_name(const struct place *p)
{
    return (struct weir_text){ p->name, p->name_len };
}

/* In any state but free. */
static uint32_t find_wanted(const struct weir_lease_client *c,
                            struct weir_text name)
{
    uint64_t hash = weir_hash(name, c->seed);
    uint32_t next = c->capacity > 0 ? c->head[hash & c->head_mask] : 0;
    for (; next != 0; next = c->place[next - 1].next) {
        const struct place *p = &c->place[next - 1];
        if (p->hash == hash && weir_text_equal(wanted_name(p), name))
            return next - 1;
    }
    return NONE;
}

uint32_t weir_lease_client_find(const struct weir_lease_client *c,
                                struct weir_text name)
{
    uint32_t at = find_wanted(c, name);
    return at != NONE && c->place[at].state == OPEN ? at : NONE;
}

/* A release is sent once, so only to a master: any other root has nothing to
 * free, and the capacity would be unused until the lease is over. */
static weir_instant release_due(const struct weir_lease_client *c)
{
    return c->master != NONE ? 0 : WEIR_NEVER;
}

/* Something of the place changed: computes when it is due next. */
static void reckon(struct weir_lease_client *c, uint32_t at)
{
    weir_assert(at < c->used);
    const struct place *p = &c->place[at];
    c->due_at[at] =
        p->state == OPEN ? weir_lease_holder_due(&p->holder) : release_due(c);
    c->end_at[at] = p->lapsed ? WEIR_NEVER : p->holder.expiry;
    if (p->state == LEAVING)
        c->end_at[at] = p->owes_until;
    c->due_from = weir_earlier(c->due_from, c->due_at[at]);
    c->end_from = weir_earlier(c->end_from, c->end_at[at]);
}

static void note_changed(struct weir_lease_client *c, uint32_t at)
{
    weir_assert(at < c->used);
    struct place *p = &c->place[at];
    if (p->changed)
        return;
    p->changed = true;
    p->next_changed = c->changed_first;
    c->changed_first = at + 1;
    weir_assert(c->changed_first != 0);
}

static uint32_t take_wanted(struct weir_lease_client *c)
{
    uint32_t at = c->free_first;
    if (at != 0) {
        weir_assert(at <= c->used && c->place[at - 1].state == FREE);
        c->free_first = c->place[at - 1].next;
        return at - 1;
    }
    weir_assert(c->used <= c->capacity);
    return c->used < c->capacity ? c->used++ : NONE;
}

/* A place in the list of changed ones stays in it when free. */
static void free_wanted(struct weir_lease_client *c, uint32_t at)
{
    weir_assert(at < c->used && c->place[at].state != FREE);
    struct place *p = &c->place[at];
    uint32_t *link = &c->head[p->hash & c->head_mask];
    while (*link != at + 1)
        link = &c->place[*link - 1].next;
    *link = p->next;
    p->state = FREE;
    p->next = c->free_first;
    c->free_first = at + 1;
    c->due_at[at] = c->end_at[at] = WEIR_NEVER;
}

static void begin_wanted(struct weir_lease_client *c, uint32_t at,
                         const struct weir_lease_want *want, weir_instant now)
{
    weir_assert(at < c->used && c->place[at].state == FREE);
    struct place *p = &c->place[at];
    uint64_t hash = weir_hash(want->name, c->seed);
    weir_lease_holder_init(&p->holder, want->on_stale, want->inflight,
                           hash ^ ++c->number, now);
    p->hash = hash;
    p->state = OPEN;
    p->lapsed = false;
    p->error = WEIR_LEASE_GRANTED;
    p->name_len = (uint8_t)want->name.len;
    memcpy(p->name, want->name.p, want->name.len);
    p->next = c->head[hash & c->head_mask];
    c->head[hash & c->head_mask] = at + 1;
}

uint32_t weir_lease_client_open(struct weir_lease_client *c,
                                const struct weir_lease_want *want,
                                weir_instant now)
{
    weir_assert(want->name.len >= 1 && want->name.len <= WEIR_NAME_MAX);
    uint32_t at = find_wanted(c, want->name);
    if (at == NONE) {
        at = take_wanted(c);
        if (at == NONE)
            return NONE;
        begin_wanted(c, at, want, now);
    }
    struct place *p = &c->place[at];
    p->state = OPEN;
    p->ticket = want->ticket;
    p->limit_returned = -1;
    weir_lease_client_edit(c, at, want->on_stale, want->inflight,
                           want->priority, now);
    note_changed(c, at);
    return at;
}

void weir_lease_client_edit(struct weir_lease_client *c, uint32_t at,
                            enum weir_on_stale on_stale, bool inflight,
                            int64_t priority, weir_instant now)
{
    struct place *p = wanted_at(c, at);
    if (p->holder.inflight != inflight)
        p->holder.in_use = p->holder.needed = 0;
    p->holder.inflight = inflight;
    if (p->priority != priority)
        weir_lease_holder_hurry(&p->holder, now);
    p->priority = priority;
    p->holder.on_stale = on_stale;
    if (weir_lease_holder_limit(&p->holder, now) != p->limit_returned)
        note_changed(c, at);
    reckon(c, at);
}

void weir_lease_client_close(struct weir_lease_client *c, uint32_t at,
                             weir_instant now)
{
    struct place *p = wanted_at(c, at);
    /* As the lease holder knows it now: when another master is found, the
     * holder forgets its asks, though that may be the root that was asked
     * last. */
    p->owes_until = weir_lease_holder_owes_until(&p->holder);
    if (p->owes_until <= now) {
        free_wanted(c, at);
        return;
    }
    p->state = LEAVING;
    reckon(c, at);
}

void weir_lease_client_want(struct weir_lease_client *c, uint32_t at,
                            double wants, weir_instant now)
{
    weir_lease_holder_want(&wanted_at(c, at)->holder, wants, now);
    reckon(c, at);
}

void weir_lease_client_use(struct weir_lease_client *c, uint32_t at,
                           const struct weir_lease_use *use, weir_instant now)
{
    weir_lease_holder_use(&wanted_at(c, at)->holder, use, now);
    reckon(c, at);
}

void weir_lease_client_in_use(struct weir_lease_client *c, uint32_t at,
                              double in_use)
{
    weir_lease_holder_in_use(&wanted_at(c, at)->holder, in_use);
    reckon(c, at);
}

void weir_lease_client_leased_on(struct weir_lease_client *c, uint32_t at,
                                 double in_use, double promised, bool learning)
{
    struct place *p = wanted_at(c, at);
    weir_lease_holder_promised(&p->holder, promised);
    weir_lease_holder_learning(&p->holder, learning);
    weir_lease_holder_in_use(&p->holder, in_use);
    reckon(c, at);
}

void weir_lease_client_goes_by(struct weir_lease_client *c, uint32_t at,
                               double capacity, weir_instant now)
{
    weir_lease_holder_goes_by(&wanted_at(c, at)->holder, capacity, now);
}

void weir_lease_client_hurry(struct weir_lease_client *c, uint32_t at,
                             weir_instant now)
{
    weir_lease_holder_hurry(&wanted_at(c, at)->holder, now);
    reckon(c, at);
}

void weir_lease_client_begin_with(struct weir_lease_client *c, uint32_t at,
                                  double capacity, double used,
                                  weir_instant now)
{
    struct weir_lease_holder *holder = &wanted_at(c, at)->holder;
    if (holder->number > 0 || holder->began != WEIR_NEVER)
        return;
    weir_lease_holder_begin_with(holder, capacity, used, now);
    note_changed(c, at);
    reckon(c, at);
}

const struct weir_lease_holder *weir_lease_client_holder(
    const struct weir_lease_client *c, uint32_t at)
{
    return &wanted_at(c, at)->holder;
}

struct weir_text weir_lease_client_name(const struct weir_lease_client *c,
                                        uint32_t at)
{
    return wanted_name(wanted_at(c, at));
}

enum weir_lease_error weir_lease_client_error(const struct weir_lease_client *c,
                                              uint32_t at)
{
    return wanted_at(c, at)->error;
}

bool weir_lease_client_each(const struct weir_lease_client *c, uint32_t *cursor,
                            uint32_t *out_at)
{
    while (*cursor < c->used && c->place[*cursor].state != OPEN)
        ++*cursor;
    if (*cursor >= c->used)
        return false;
    *out_at = (*cursor)++;
    return true;
}

/* ---- Which root to ask ---- */

/* The highest term known to roots with a link that is up. */
static uint64_t newest_term(const struct weir_lease_client *c)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < c->link_count; i++) {
        const struct weir_lease_link *state = &c->link[i].state;
        if (state->up && state->term > newest)
            newest = state->term;
    }
    return newest;
}

static uint32_t find_master(const struct weir_lease_client *c)
{
    uint64_t newest = newest_term(c);
    for (uint32_t i = 0; i < c->link_count; i++) {
        const struct weir_lease_link *state = &c->link[i].state;
        if (state->up && state->leases && state->term == newest)
            return i;
    }
    return NONE;
}

static void request_all(struct weir_lease_client *c, bool lost,
                        weir_instant now)
{
    for (uint32_t at = 0; at < c->used; at++) {
        struct place *p = &c->place[at];
        if (p->state == FREE)
            continue;
        if (lost)
            weir_lease_holder_lost(&p->holder, now);
        else
            weir_lease_holder_hurry(&p->holder, now);
        reckon(c, at);
    }
}

static void hold_releases(struct weir_lease_client *c)
{
    for (uint32_t at = 0; at < c->used; at++) {
        if (c->place[at].state == LEAVING)
            reckon(c, at);
    }
}

/* A root's state has changed: looks for another master. */
static void review_master(struct weir_lease_client *c, weir_instant now)
{
    uint32_t before = c->master;
    c->master = find_master(c);
    if (c->master == NONE) {
        hold_releases(c);
        return;
    }
    weir_assert(c->master < c->link_count);
    const struct weir_lease_link *state = &c->link[c->master].state;
    bool same = c->met && state->term == c->term && state->root == c->root;
    if (same && before == c->master)
        return;
    c->met = true;
    c->term = state->term;
    c->root = state->root;
    request_all(c, !same, now);
}

struct weir_lease_link weir_lease_link_of(const struct weir_welcome *welcome)
{
    if (!welcome)
        return (struct weir_lease_link){ .up = false };
    struct weir_text root = { (const char *)welcome->incarnation,
                              WEIR_INCARNATION_SIZE };
    return (struct weir_lease_link){
        .up = welcome->ready,
        .leases = welcome->leases,
        .term = welcome->term,
        .root = weir_hash(root, 0),
        .master = welcome->master,
    };
}

static void keep_link_master(struct link *link, struct weir_text master)
{
    size_t len = master.len < WEIR_MASTER_MAX ? master.len : WEIR_MASTER_MAX;
    if (len > 0)
        memcpy(link->master, master.p, len);
    link->state.master = (struct weir_text){ link->master, len };
    weir_assert(len <= WEIR_MASTER_MAX);
}

void weir_lease_client_link(struct weir_lease_client *c, uint32_t index,
                            const struct weir_lease_link *state,
                            weir_instant now)
{
    weir_assert(index < c->link_count);
    struct link *link = &c->link[index];
    link->state = *state;
    keep_link_master(link, state->master);
    if (!state->up && c->master == index)
        c->master = NONE;
    review_master(c, now);
}

uint32_t weir_lease_client_master(const struct weir_lease_client *c)
{
    return c->master;
}

struct weir_text weir_lease_client_elsewhere(const struct weir_lease_client *c)
{
    struct weir_text none = { NULL, 0 };
    if (c->master != NONE)
        return none;
    uint64_t newest = newest_term(c);
    for (uint32_t i = 0; i < c->link_count; i++) {
        const struct weir_lease_link *state = &c->link[i].state;
        if (state->up && state->term == newest && state->master.len > 0)
            return state->master;
    }
    return none;
}

/* The master, or the next root in turn; NONE: none is up. */
static uint32_t link_to_ask(const struct weir_lease_client *c)
{
    if (c->master != NONE)
        return c->master;
    for (uint32_t i = 0; i < c->link_count; i++) {
        uint32_t index = (c->turn + i) % c->link_count;
        if (c->link[index].state.up)
            return index;
    }
    return NONE;
}

/* ---- Wants ---- */

static size_t write_bands(struct weir_lease_client *c, uint32_t at,
                          struct weir_band *bands, bool *out_learning,
                          weir_instant now)
{
    *out_learning = false;
    bands[0] = (struct weir_band){ .clients = 1 };
    if (!c->speaker)
        return 1;
    size_t count = c->speaker->speak(
        c->speaker->context, at, c->place[at].ticket, bands, out_learning, now);
    weir_assert(count <= c->bands_each);
    return count > 0 ? count : 1;
}

/* Latencies that were measured go with the want. */
static void write_window(struct weir_lease_client *c, uint32_t at,
                         struct weir_wants *message, weir_instant now)
{
    weir_assert(message->count > 0);
    size_t next = message->window_count;
    if (!c->witness)
        return;
    weir_assert(next < WEIR_WINDOWS_MAX);
    struct weir_want_window *row = &c->windows[next];
    if (c->witness->collect(c->witness->context, at, c->place[at].ticket,
                            c->bins + next * WEIR_WINDOW_BINS, &row->batch,
                            now)) {
        row->want = (uint32_t)message->count - 1;
        message->window_count++;
    }
}

/* Wants without room for more bands are one. */
static void divide_wants(struct weir_lease_client *c, uint32_t at,
                         struct weir_wants *message, weir_instant now)
{
    struct weir_want *want = &c->wants[message->count - 1];
    if (!c->witness || !c->witness->divide || c->divided == DIVIDED_MAX)
        return;
    struct weir_band *bands = c->divided_bands + c->divided * DIVIDED_BANDS;
    size_t count =
        c->witness->divide(c->witness->context, at, c->place[at].ticket,
                           want->bands[0].wants, bands, now);
    weir_assert(count <= DIVIDED_BANDS && count != 1);
    if (count == 0)
        return;
    want->bands = bands;
    want->band_count = count;
    c->divided++;
}

static void write_want(struct weir_lease_client *c, uint32_t at,
                       struct weir_wants *message, weir_instant now)
{
    weir_assert(message->count < c->message_max);
    weir_assert(c->place[at].state != FREE);
    struct place *p = &c->place[at];
    struct weir_want *want = &c->wants[message->count];
    struct weir_band *bands = &c->bands[(size_t)message->count * c->bands_each];
    message->count++;
    *want = (struct weir_want){ .name = wanted_name(p) };
    if (p->state == LEAVING) {
        want->release = true;
        want->taken = p->holder.taken;
        free_wanted(c, at); /* its name stays until the next open() */
        return;
    }
    struct weir_lease_holder_ask ask;
    want->band_count = write_bands(c, at, bands, &want->learning, now);
    want->bands = bands;
    weir_lease_holder_ask(&p->holder, message->number, &ask, now);
    want->has = ask.has;
    want->safe = ask.safe;
    want->taken = ask.taken;
    want->roster_token = ask.roster_token;
    if (!c->speaker) {
        bands[0].priority = p->priority;
        bands[0].wants = ask.wants;
        divide_wants(c, at, message, now);
    }
    write_window(c, at, message, now);
    reckon(c, at);
}

static weir_instant earliest_due(const struct weir_lease_client *c)
{
    weir_instant due = WEIR_NEVER;
    for (uint32_t at = 0; at < c->used; at++)
        due = weir_earlier(due, c->due_at[at]);
    return due;
}

bool weir_lease_client_next(struct weir_lease_client *c, uint32_t *out_link,
                            struct weir_wants *out, weir_instant now)
{
    uint32_t link = link_to_ask(c);
    if (link == NONE || now < c->due_from)
        return false;
    c->due_from = earliest_due(c);
    if (now < c->due_from)
        return false;
    c->divided = 0;
    weir_assert(link < c->link_count && c->link[link].state.up);
    *out = (struct weir_wants){ .number = ++c->number,
                                .term = c->link[link].state.term,
                                .wants = c->wants,
                                .windows = c->windows };
    for (uint32_t at = 0; at < c->used && out->count < c->message_max &&
                          out->window_count < WEIR_WINDOWS_MAX;
         at++) {
        if (c->due_at[at] <= now + WEIR_LEASE_GATHER)
            write_want(c, at, out, now);
    }
    c->due_from = earliest_due(c);
    c->turn = link + 1;
    *out_link = link;
    return true;
}

/* ---- Grants ---- */

static void take_lease_grant(struct weir_lease_client *c, uint64_t answer,
                             const struct weir_lease_grant *row,
                             weir_instant now)
{
    uint32_t at = weir_lease_client_find(c, row->name);
    if (at == NONE)
        return;
    struct place *p = &c->place[at];
    weir_assert(p->state == OPEN);
    p->error = row->error;
    if (row->error != WEIR_LEASE_GRANTED)
        return;
    if (!weir_lease_holder_granted(&p->holder, answer, c->term, &row->grant,
                                   now))
        return;
    p->lapsed = false;
    if (c->witness && c->witness->guaranteed)
        c->witness->guaranteed(c->witness->context, at, p->ticket,
                               row->guarantees, row->guarantee_count, now);
    if (p->holder.inflight ||
        weir_lease_holder_limit(&p->holder, now) != p->limit_returned)
        note_changed(c, at);
    reckon(c, at);
}

void weir_lease_client_take(struct weir_lease_client *c, uint32_t index,
                            const struct weir_grants *grants, weir_instant now)
{
    weir_assert(index < c->link_count);
    struct link *link = &c->link[index];
    if (!link->state.up || grants->term < link->state.term)
        return;
    link->state.term = grants->term;
    link->state.leases = !grants->elsewhere;
    keep_link_master(link, grants->master);
    review_master(c, now);
    if (c->master != index)
        return;
    for (size_t i = 0; i < grants->count; i++)
        take_lease_grant(c, grants->answer, &grants->grants[i], now);
}

/* ---- Time ---- */

/* Ends leases by time: their use goes by 'on_stale' now, and places that aren't
 * wanted any more are freed. */
static void end_leases(struct weir_lease_client *c, weir_instant now)
{
    if (now < c->end_from)
        return;
    c->end_from = WEIR_NEVER;
    for (uint32_t at = 0; at < c->used; at++) {
        struct place *p = &c->place[at];
        if (c->end_at[at] > now) {
            c->end_from = weir_earlier(c->end_from, c->end_at[at]);
            continue;
        }
        weir_assert(p->state != FREE);
        if (p->state == LEAVING) {
            free_wanted(c, at);
            continue;
        }
        p->lapsed = true;
        c->end_at[at] = WEIR_NEVER;
        note_changed(c, at);
    }
}

bool weir_lease_client_changed(struct weir_lease_client *c, uint32_t *out_at,
                               weir_instant now)
{
    end_leases(c, now);
    while (c->changed_first != 0) {
        uint32_t at = c->changed_first - 1;
        struct place *p = &c->place[at];
        weir_assert(at < c->used && p->changed);
        c->changed_first = p->next_changed;
        p->changed = false;
        if (p->state != OPEN)
            continue;
        p->limit_returned = weir_lease_holder_limit(&p->holder, now);
        *out_at = at;
        return true;
    }
    return false;
}

bool weir_lease_client_waits(const struct weir_lease_client *c)
{
    bool asks = link_to_ask(c) != NONE;
    for (uint32_t at = 0; asks && at < c->used; at++) {
        const struct place *p = &c->place[at];
        if (p->state == OPEN && p->holder.serial == 0 && !p->lapsed &&
            p->error == WEIR_LEASE_GRANTED)
            return true;
    }
    return false;
}

weir_instant weir_lease_client_deadline(const struct weir_lease_client *c,
                                        weir_instant now)
{
    weir_instant at = c->end_from;
    if (c->changed_first != 0)
        at = now;
    if (link_to_ask(c) != NONE)
        at = weir_earlier(at, c->due_from);
    return weir_later(at, now);
}

uint64_t weir_lease_client_number(const struct weir_lease_client *c)
{
    return c->number;
}

void weir_lease_client_go_on(struct weir_lease_client *c, uint64_t number)
{
    weir_assert(number >= c->number);
    c->number = number;
}
