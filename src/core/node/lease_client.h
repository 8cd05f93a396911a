/* SPDX-License-Identifier: MIT
 * node/lease_client.h - the leased quotas of one machine: a lease holder for
 * each (leased/lease_holder.h), the choice of the root to ask, and the
 * messages. A service's limiter has one, and so has a region's root for the
 * roots above.
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

#include "core/counted/message.h"
#include "core/leased/lease_holder.h"

/* Most quotas of one client. */
#define WEIR_LEASE_PLACES_MAX (1u << 16)
/* Wants due within this time go with those due now. */
#define WEIR_LEASE_GATHER (5 * WEIR_MILLISECOND)

#define WEIR_LEASE_PLACE_NONE UINT32_MAX

struct weir_lease_client;

/* Implemented by a server that wants capacity for its own clients. */
struct weir_lease_speaker {
    void *context;
    /* Called before wants for the quota of 'place' are sent. Updates its wants
     * and use (weir_lease_client_want(), _in_use()); writes the bands, 1 ..
     * WEIR_LEASE_BANDS_MAX with priorities strictly descending, and whether the
     * server is learning. Returns the number of bands; 0: no wants, sent as a
     * band of priority 0. */
    size_t (*speak)(void *context, uint32_t place, uint64_t ticket,
                    struct weir_band *out_bands, bool *out_learning,
                    weir_instant now);
};

/* Implemented by the owner of adaptive limits of a fleet. */
struct weir_lease_witness {
    void *context;
    /* Called when wants for the quota of 'place' are being written: what was
     * measured since the last call. 'bins': room for WEIR_WINDOW_BINS, which
     * 'out' may borrow. False: nothing is sent. */
    bool (*collect)(void *context, uint32_t place, uint64_t ticket,
                    struct weir_latency_count *bins,
                    struct weir_latency_batch *out, weir_instant now);
    /* Called before that, of a client without a speaker, to divide the wants
     * among bands: 2 .. WEIR_LEASE_GUARANTEES_MAX + 1 of one client each, with
     * priorities strictly descending. Returns how many; 0: they are one. NULL:
     * they always are. */
    size_t (*divide)(void *context, uint32_t place, uint64_t ticket,
                     double wants, struct weir_band *out_bands,
                     weir_instant now);
    /* Called when a grant was taken: what is guaranteed to bands of it.
     * NULL: it doesn't matter. */
    void (*guaranteed)(void *context, uint32_t place, uint64_t ticket,
                       const struct weir_guarantee *guarantees, size_t count,
                       weir_instant now);
};

struct weir_lease_client_options {
    uint32_t places; /* 0 .. WEIR_LEASE_PLACES_MAX */
    uint32_t links;  /* 0 .. WEIR_ROOTS_MAX */
    uint64_t seed;
    const struct weir_lease_witness *witness; /* outlives it; NULL: none */
    const struct weir_lease_speaker *speaker; /* outlives it; NULL: each quota
                                               * is wanted in one band, of one
                                               * client */
};

size_t weir_lease_client_size(const struct weir_lease_client_options *options);
/* 'block': 64-byte aligned, zeroed; that many bytes. */
struct weir_lease_client *weir_lease_client_init(
    void *block, const struct weir_lease_client_options *options);
/* For a forked copy: drops all places; the parent has the leases. */
void weir_lease_client_forget(struct weir_lease_client *client);

/* ---- Which root to ask ----
 * Of the roots that report to be master, the one with the highest term. If none
 * does, or a higher term is known, the other roots in turn: the present master
 * will answer. */
struct weir_lease_link {
    bool up;       /* welcomed, and it has its quotas */
    bool leases;   /* it reports to be master … */
    uint64_t term; /* … of this term; else the highest term it knows */
    uint64_t root; /* a hash of its incarnation: a new one has forgotten all
                    * leases */
    struct weir_text master; /* as in a welcome; copied */
};
/* By a root's welcome; its 'master' is borrowed. NULL: the link is down. */
struct weir_lease_link weir_lease_link_of(const struct weir_welcome *welcome);
void weir_lease_client_link(struct weir_lease_client *client, uint32_t link,
                            const struct weir_lease_link *state,
                            weir_instant now);
/* The link of the master; WEIR_LEASE_PLACE_NONE: none is known. */
uint32_t weir_lease_client_master(const struct weir_lease_client *client);
/* The address of a master without a link, as roots report it; absent: none. It
 * is not connected to: only the roots that a service was given are. */
struct weir_text weir_lease_client_elsewhere(
    const struct weir_lease_client *client);

/* ---- Messages ---- */

/* The next wants to send, borrowed until the next call of any function here.
 * False: none now. */
bool weir_lease_client_next(struct weir_lease_client *client,
                            uint32_t *out_link, struct weir_wants *out,
                            weir_instant now);
void weir_lease_client_take(struct weir_lease_client *client, uint32_t link,
                            const struct weir_grants *grants, weir_instant now);
/* The next quota with a limit that may have changed since the last call, by a
 * grant or by time. First apply the limit to new use, then report the units in
 * flight of an in-flight counter. */
bool weir_lease_client_changed(struct weir_lease_client *client,
                               uint32_t *out_place, weir_instant now);
/* Whether some quota has had no answer yet, and may have one soon: it isn't
 * given up, and there is a root to ask. */
bool weir_lease_client_waits(const struct weir_lease_client *client);
/* The latest time for the next call of next() or changed(). */
weir_instant weir_lease_client_deadline(const struct weir_lease_client *client,
                                        weir_instant now);

/* ---- Quotas ---- */

struct weir_lease_want {
    struct weir_text name; /* 1 .. WEIR_NAME_MAX bytes; copied */
    enum weir_on_stale on_stale;
    bool inflight;    /* as weir_lease_holder_init() */
    int64_t priority; /* of its band, without a speaker */
    uint64_t ticket;  /* the caller's */
};
/* Wants the quota from now on. If it was closed and its release isn't sent yet,
 * it keeps its grant. Returns its place, valid until close();
 * WEIR_LEASE_PLACE_NONE: all are taken. */
uint32_t weir_lease_client_open(struct weir_lease_client *client,
                                const struct weir_lease_want *want,
                                weir_instant now);
/* Its place, or WEIR_LEASE_PLACE_NONE. */
uint32_t weir_lease_client_find(const struct weir_lease_client *client,
                                struct weir_text name);
/* Ends the want: any grant of the master, also by an ask that isn't answered
 * yet, is given back with the next message to a master. */
void weir_lease_client_close(struct weir_lease_client *client, uint32_t place,
                             weir_instant now);
/* Applies an edit, also of the kind. */
void weir_lease_client_edit(struct weir_lease_client *client, uint32_t place,
                            enum weir_on_stale on_stale, bool inflight,
                            int64_t priority, weir_instant now);

/* As weir_lease_holder_want(), _use(), _hurry(). */
void weir_lease_client_want(struct weir_lease_client *client, uint32_t place,
                            double wants, weir_instant now);
void weir_lease_client_use(struct weir_lease_client *client, uint32_t place,
                           const struct weir_lease_use *use, weir_instant now);
void weir_lease_client_in_use(struct weir_lease_client *client, uint32_t place,
                              double in_use);
/* The part that a server has leased to its own clients, as
 * weir_lease_holder_in_use(), _promised() and _learning(); each at most
 * WEIR_LEASE_UNITS_MAX. */
void weir_lease_client_leased_on(struct weir_lease_client *client,
                                 uint32_t place, double in_use, double promised,
                                 bool learning);
/* As weir_lease_holder_goes_by(). */
void weir_lease_client_goes_by(struct weir_lease_client *client, uint32_t place,
                               double capacity, weir_instant now);
void weir_lease_client_hurry(struct weir_lease_client *client, uint32_t place,
                             weir_instant now);
/* As weir_lease_holder_begin_with(); no effect if it isn't new. */
void weir_lease_client_begin_with(struct weir_lease_client *client,
                                  uint32_t place, double capacity, double used,
                                  weir_instant now);

/* Its lease holder, read-only. */
const struct weir_lease_holder *weir_lease_client_holder(
    const struct weir_lease_client *client, uint32_t place);
/* Its name, borrowed until it is closed. */
struct weir_text weir_lease_client_name(const struct weir_lease_client *client,
                                        uint32_t place);
/* The master's last answer: WEIR_LEASE_GRANTED, or an error. */
enum weir_lease_error weir_lease_client_error(
    const struct weir_lease_client *client, uint32_t place);
/* Walks the places in use: begin with '*cursor' 0; false at the end. */
bool weir_lease_client_each(const struct weir_lease_client *client,
                            uint32_t *cursor, uint32_t *out_place);

/* The number of the last message sent. A successor of a dead client goes on
 * from it. */
uint64_t weir_lease_client_number(const struct weir_lease_client *client);
void weir_lease_client_go_on(struct weir_lease_client *client, uint64_t number);

#endif /* WEIR_LEASE_CLIENT_H */
