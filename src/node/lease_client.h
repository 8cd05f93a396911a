/* SPDX-License-Identifier: MIT
 * node/lease_client.h - the leased quotas that one machine has: a holder for
 * each (lease/holder.h), whom to ask for them, and the messages between. A
 * service's limiter has one, and so has a region's root towards those above.
 *
 * Pure; memory of the caller, no allocation; one thread at a time.
 *
 *     open() -> next() -> wants … take(grants) -> changed() -> limit()
 *        use(), want(), in_use() from time to time        close()
 *
 * After every call but next() and changed(), drain both and then sleep until
 * deadline(). */

#ifndef WEIR_LEASE_CLIENT_H
#define WEIR_LEASE_CLIENT_H

#include "count/message.h"
#include "lease/holder.h"

/* Quotas of one client, at most. */
#define WEIR_LEASE_PLACES_MAX (1u << 16)
/* What is due so soon goes with what is due now. */
#define WEIR_LEASE_GATHER (5 * WEIR_MILLISECOND)

#define WEIR_LEASE_PLACE_NONE UINT32_MAX

struct weir_lease_client;

/* For who asks on behalf of others. */
struct weir_lease_speaker {
    void *context;
    /* The quota of 'place' is asked for next. Brings what it wants and has in
     * use up to date (weir_lease_client_want(), _in_use()); says the bands, 1
     * .. WEIR_LEASE_BANDS_MAX with priorities strictly descending, and whether
     * it is learning. Returns how many bands; 0: nothing is wanted, as a band
     * of priority 0. */
    size_t (*speak)(void *context, uint32_t place, uint64_t ticket,
                    struct weir_band *out_bands, bool *out_learning,
                    weir_instant now);
};

struct weir_lease_client_options {
    uint32_t places; /* 0 .. WEIR_LEASE_PLACES_MAX */
    uint32_t links;  /* 0 .. WEIR_ROOTS_MAX */
    uint64_t seed;
    const struct weir_lease_speaker *speaker; /* outlives it; NULL: each quota
                                               * is wanted in one band, of one
                                               * client */
};

size_t weir_lease_client_size(const struct weir_lease_client_options *options);
/* 'block': 64-byte aligned, zeroed; that many bytes. */
struct weir_lease_client *weir_lease_client_init(
    void *block, const struct weir_lease_client_options *options);
/* A copy of a process's: it has nothing, and what it was asks no more. */
void weir_lease_client_forget(struct weir_lease_client *client);

/* ---- Whom to ask ----
 * Of the roots that say that they are master the one of the highest term. While
 * none does, or a higher term was heard of, the others in turn: whoever is it
 * by now will answer. */
struct weir_lease_link {
    bool up;       /* welcomed, and it has its quotas */
    bool leases;   /* it says that it is master … */
    uint64_t term; /* … of this term; else the highest it has heard of */
    uint64_t root; /* a hash of its incarnation: another has forgotten all */
    struct weir_text master; /* as in a welcome; copied */
};
void weir_lease_client_link(struct weir_lease_client *client, uint32_t link,
                            const struct weir_lease_link *state,
                            weir_instant now);
/* The link of the master; WEIR_LEASE_PLACE_NONE: none is known. */
uint32_t weir_lease_client_master(const struct weir_lease_client *client);
/* The address of one that no link leads to, as roots say; absent: none. What
 * they say isn't connected to: the roots are those that a service was given. */
struct weir_text weir_lease_client_elsewhere(
    const struct weir_lease_client *client);

/* ---- Messages ---- */

/* The next to send: wants, borrowed until the next call of any function here.
 * False: none for now. */
bool weir_lease_client_next(struct weir_lease_client *client,
                            uint32_t *out_link, struct weir_wants *out,
                            weir_instant now);
void weir_lease_client_take(struct weir_lease_client *client, uint32_t link,
                            const struct weir_grants *grants, weir_instant now);
/* The next quota whose limit may be another than when it was told here last:
 * a grant has come, or time has passed. Have new use keep to it first, then say
 * what a gauge has in use. */
bool weir_lease_client_changed(struct weir_lease_client *client,
                               uint32_t *out_place, weir_instant now);
/* Some quota was never answered for, and may be soon: it isn't given up yet,
 * and there is a root to ask. */
bool weir_lease_client_waits(const struct weir_lease_client *client);
/* When next() or changed() are wanted, at the latest. */
weir_instant weir_lease_client_deadline(const struct weir_lease_client *client,
                                        weir_instant now);

/* ---- Quotas ---- */

struct weir_lease_want {
    struct weir_text name; /* 1 .. WEIR_NAME_MAX bytes; copied */
    enum weir_on_stale on_stale;
    bool gauge;       /* as weir_holder_init() */
    int64_t priority; /* of its band, where there is no speaker */
    uint64_t ticket;  /* the caller's */
};
/* The quota is wanted from now on. One that was closed and not told so yet goes
 * on with what it has. Returns its place, which stays until it is closed;
 * WEIR_LEASE_PLACE_NONE: there is none left. */
uint32_t weir_lease_client_open(struct weir_lease_client *client,
                                const struct weir_lease_want *want,
                                weir_instant now);
/* Its place, or WEIR_LEASE_PLACE_NONE. */
uint32_t weir_lease_client_find(const struct weir_lease_client *client,
                                struct weir_text name);
/* It isn't wanted any more: what its master may have granted, also by an ask
 * that isn't answered yet, is given back with the next message to a master. */
void weir_lease_client_close(struct weir_lease_client *client, uint32_t place,
                             weir_instant now);
/* An edit; of the kind too. */
void weir_lease_client_edit(struct weir_lease_client *client, uint32_t place,
                            enum weir_on_stale on_stale, bool gauge,
                            int64_t priority, weir_instant now);

/* As weir_holder_want(), _use(), _hurry(). */
void weir_lease_client_want(struct weir_lease_client *client, uint32_t place,
                            double wants, weir_instant now);
void weir_lease_client_use(struct weir_lease_client *client, uint32_t place,
                           const struct weir_lease_use *use, weir_instant now);
void weir_lease_client_in_use(struct weir_lease_client *client, uint32_t place,
                              double in_use);
/* What a server between has handed out of it, as weir_holder_in_use(),
 * _promised() and _learning(); each at most WEIR_LEASE_UNITS_MAX. */
void weir_lease_client_leased_on(struct weir_lease_client *client,
                                 uint32_t place, double in_use, double promised,
                                 bool learning);
void weir_lease_client_hurry(struct weir_lease_client *client, uint32_t place,
                             weir_instant now);
/* As weir_holder_begin_with(); one that isn't new goes on as it is. */
void weir_lease_client_begin_with(struct weir_lease_client *client,
                                  uint32_t place, double capacity, double used,
                                  weir_instant now);

/* Its holder, to be read. */
const struct weir_holder *weir_lease_client_holder(
    const struct weir_lease_client *client, uint32_t place);
/* Borrowed until it is closed. */
struct weir_text weir_lease_client_name(const struct weir_lease_client *client,
                                        uint32_t place);
/* What the master said of it last: WEIR_LEASE_GRANTED, or why not. */
enum weir_lease_error weir_lease_client_error(
    const struct weir_lease_client *client, uint32_t place);
/* Walks the places in use: begin with '*cursor' 0; false at the end. */
bool weir_lease_client_each(const struct weir_lease_client *client,
                            uint32_t *cursor, uint32_t *out_place);

/* The number of its last message. A successor of who is gone goes on from
 * there. */
uint64_t weir_lease_client_number(const struct weir_lease_client *client);
void weir_lease_client_go_on(struct weir_lease_client *client, uint64_t number);

#endif /* WEIR_LEASE_CLIENT_H */
