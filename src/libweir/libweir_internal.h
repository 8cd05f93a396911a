/* SPDX-License-Identifier: MIT
 * libweir/libweir_internal.h - the parts of a limiter in a process.
 *
 * Two sides that share only the table (lock-free), two atomics and a mutex for
 * blocking calls. The files, without "libweir_":
 *
 *     callers' threads                     the background thread
 *     ----------------                     ---------------------
 *     take_calls.c: take, peek, …     ->   table   <- background.c: node, links
 *     permit.c: enter, leave          ->   table
 *     contended.c: waits for its locks     (the thread never waits for one)
 *     unpin.c: closed handles              unpin.c: the same, late
 *     waiting.c: wait queues          <-   mutex, conditions ->
 *     adaptive.c: views of limits     <-   events and ticks
 *     stripe.c: a thread's stripe          zones.c: wall clock, time zones
 *     exact_decide.c: chains with          exact_stores.c: opens stores, sends
 *         exact quotas                         events
 *     exact_leave.c: their permits
 *     exact_stores.c: steps in them   <-   mutex, conditions ->
 *     open.c: open, close, ready      <-   mutex, condition ->
 *     block.c: the shared table's     <-   reporter.c: a watching thread
 *         memory
 *     grow.c: memory of the table          grow.c: the same, ahead
 *     event_queue.c: events           <-   mutex, eventfd ->
 *     kick.c: wakes the thread        ->   eventfd, or a word of the block
 *                                          snapshot.c: quotas in a file
 *
 * A child of fork() has the callers' side and a copy of the memory, but no
 * background thread. own.c detects that, and fork.c makes the child a limiter
 * of its own. No two files call each other: where a lower one must reach a
 * higher one it is given a pointer. */

#ifndef WEIR_LIBWEIR_INTERNAL_H
#define WEIR_LIBWEIR_INTERNAL_H

#include <pthread.h>

#include "codec/weir_v1.h"
#include "core/node/limiter.h"
#include "core/table/table_grow.h"
#include "core/table/table_permit.h"
#include "io/login.h"
#include "io/root_links.h"
#include "libweir/libweir_block.h"
#include "libweir/libweir_exact_internal.h"
#include "libweir/limiter_view.h"

#define WEIR_EVENT_QUEUE_MAX 64
/* Unused, it costs addresses only; some 800,000 slots with three roots. */
#define WEIR_MEMORY_DEFAULT ((uint64_t)1 << 30)
/* When a table without memory tries again to get some. */
#define WEIR_GROW_AGAIN (10 * WEIR_SECOND)
#define WEIR_STRIPES_DEFAULT 64
#define WEIR_LEASES_DEFAULT 1024
#define WEIR_GATE_SLOTS_DEFAULT 256
/* How long closing waits for answers to the last counts. */
#define WEIR_CLOSE_PATIENCE (100 * WEIR_MILLISECOND)
/* How long a decision waits for a lock, and any other call of a caller. */
#define WEIR_LOCK_WAIT_DEFAULT WEIR_MILLISECOND
#define WEIR_LOCK_WAIT_MAX WEIR_SECOND
#define WEIR_HANDLE_WAIT WEIR_SECOND

struct event;
struct event_base;
struct weir;
struct weir_kept;

/* The roots that it was given, and its links to them. */
struct weir_client_roots {
    struct weir_address given[WEIR_ROOTS_MAX];
    uint32_t count;
    struct weir_root_links *links; /* owned; the background thread's */
    /* By link, under the limiter's mutex. */
    struct weir_limiter_view_root view[WEIR_ROOTS_MAX];
};

#define WEIR_WAITING_BUCKETS 64
struct weir_waiting_line;
/* The threads that wait to enter (libweir_waiting.c). */
struct weir_waiting {
    pthread_mutex_t mutex; /* guards all below */
    uint32_t count;        /* threads that wait; atomic */
    uint32_t standing;     /* of them, those in a queue */
    uint64_t tickets;      /* drawn so far */
    uint64_t woken;        /* threads, ever */
    uint64_t rounds;       /* of serving, ever */
    weir_instant look_at;  /* when the thread serves again */
    struct weir_waiting_line *bucket[WEIR_WAITING_BUCKETS]; /* by slot; owned */
    struct weir_waiting_line *first_due, *last_due;
};

/* A request that may wait. */
struct weir_wish {
    struct weir_ref ref;
    uint64_t weight;
    int64_t priority;
    weir_instant until;
    struct weir_permit_record *record; /* borrowed: its class, then all */
    struct weir_reply *reply;          /* borrowed, never NULL */
    uint64_t ticket;                   /* 0: none yet */
};

/* Slots of closed handles that couldn't be given back (libweir_unpin.c). */
struct weir_unpins {
    pthread_mutex_t mutex; /* guards all below */
    uint32_t count;        /* atomic */
    struct weir_ref *late; /* owned */
    size_t room;
    uint32_t parent; /* its pins are still to be inherited; atomic */
};

struct weir_event_queue {
    pthread_mutex_t mutex; /* guards all below but fd */
    int fd;                /* eventfd: readable while count > 0 */
    uint32_t first, count;
    uint64_t lost;
    weir_instant lost_at; /* the first of them */
    struct weir_event event[WEIR_EVENT_QUEUE_MAX];
};

/* On a page that the kernel wipes in children of fork(). */
struct weir_own {
    uint64_t id;      /* atomic: weir->id; 0: not this process's limiter yet */
    uint32_t forking; /* atomic: a thread is changing that */
};

typedef void weir_become_fn(struct weir *weir);

/* A stripe given to a thread; the thread's exit gives it back. */
struct weir_stripe_lease {
    struct weir *weir;
    uint32_t stripe;
};

struct weir {
    /* The callers' side. */
    struct weir_table *table;
    uint64_t id; /* random, > 1: no two limiters share it */
    pthread_key_t stripe_key;
    struct weir_stripe_lease *leases; /* owned; one a stripe */
    struct weir_own *own;             /* wiped in a child of fork() */
    weir_become_fn *become;
    uint32_t forks;           /* ancestors that were a limiter; constant
                                * once 'own' is this process's */
    int kick_fd;              /* eventfd: wakes the thread */
    uint32_t process;         /* number in a shared table; else 0 */
    struct weir_block *block; /* NULL: the table is this process's own */
    struct weir_exact_book exact;
    struct weir_waiting waiting;
    struct weir_unpins unpins;
    /* Yields to holders that may be stopped (libweir_contended.c); atomic. */
    uint32_t yields_skip, yields_vain;
    uint32_t fleet; /* limiters, as last received from roots; atomic */

    /* Memory. */
    void *table_block, *limiter_block, *arena_block; /* owned */
    size_t table_size, limiter_size;
    int table_fd;         /* owned: a shared table's file; -1: none */
    weir_instant grow_at; /* the thread's: when to try again to grow */

    /* Options, kept for a child. */
    char name[WEIR_NAME_MAX + 1];
    bool named;          /* by the caller */
    uint64_t memory_max; /* bytes for slots */
    enum weir_on_full on_full;
    bool narrow; /* memory_max is less than the option: few addresses */
    uint64_t overflowed_seen;   /* under the mutex; … */
    weir_instant overflowed_at; /* … when it was last seen to rise */
    uint32_t slots, stripes, leases_max, gate_slots;
    weir_duration lock_wait; /* 0: no call waits */
    uint8_t when_locked;     /* enum weir_when_locked */
    int64_t lease_priority;
    weir_event_fn *on_event;
    void *event_context;
    uint32_t link_count;
    enum weir_table_role role;
    uint64_t roots_hash;      /* of the roots that it names for a shared table;
                               * 0: none */
    bool unmaps;              /* the block was mapped here */
    struct weir_login *login; /* owned; its paths are fixed, the rest is the
                                * background thread's */

    /* Held by the thread that is the table's sync (table_sync.h): the
     * background thread, or a caller of weir_define(). Messages are received
     * without it, since a limiter with roots refuses weir_define(). */
    pthread_mutex_t defining;

    /* Between the sides: mutex guards those up to 'events'. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ready, closing;
    uint64_t sync_wanted; /* calls of weir_sync() */
    uint64_t sync_done;   /* of them, those answered */
    struct weir_status status;
    struct weir_event_queue events;

    /* Of a shared table: the thread that watches (libweir_reporter.c). */
    pthread_t watcher;
    bool watches;
    bool parting;  /* the watcher is to end; atomic */
    bool reporter; /* this process is the reporter: the watcher's while
                             * it runs */
    weir_instant reporter_at; /* don't try to become it before; likewise */
    uint32_t kicks_seen;      /* of the block's, before the watcher ran */

    struct weir_kept *kept; /* owned: the snapshot of the quotas; NULL: none */

    /* The background thread's. */
    pthread_t thread;
    bool thread_runs;
    struct weir_limiter *limiter;
    struct event_base *base;
    struct event *kick_event, *timer;
    struct weir_client_roots roots;
    struct weir_arena arena;
    bool tell_forked; /* as the thread's first event */
    bool full_sent;   /* event sent: adaptive quotas found no room */
    char *out;        /* owned: a message being encoded */
    size_t out_size;
    uint64_t sync_begun; /* of sync_wanted: reports hurried for */
    bool stopping;
    weir_instant stop_at;
    uint32_t prepared;     /* zones and stores of so many rules of bucket states
                            * are known */
    weir_instant zones_at; /* … and when to check zones again */
};

/* ---- libweir_make.c ---- */
void weir_locks_init(struct weir *weir);
/* Sets the limiter's name: the caller's, or program and pid. */
void weir_name_limiter(struct weir *weir);
/* A table of this process's own. */
int weir_table_make(struct weir *weir);
/* The slots that memory_max is enough for; at least one. */
uint32_t weir_slots_within(const struct weir *weir, uint64_t memory_max);
/* The part of memory_max that so many slots are. */
uint64_t weir_slots_bytes(const struct weir *weir, uint32_t slots);
/* Memory for all that is over the table; in it the limiter node, unless the
 * table is shared: then the reporter makes the node. */
int weir_nodes_make(struct weir *weir);
/* Both of a table of this process's own; with fewer slots if the process may
 * not reserve address space for all of them. */
int weir_memory_make(struct weir *weir);
/* The limiter node over the table: in the memory reserved for it. */
void weir_limiter_make(struct weir *weir);
/* Frees the memory of all parts, and 'weir'. */
void weir_memory_free(struct weir *weir);

/* ---- libweir_grow.c ---- */
/* Any thread, after a call that found no room, before which 'had' slots were
 * committed: commits memory for more. Whether there are more now, also by
 * another thread; false: the table has all that it may have, the system has
 * none, or the call needs another kind of room. */
bool weir_grow(struct weir *weir, uint32_t had);
/* The background thread: grows before the table is full; tries again after a
 * failure. */
void weir_grow_ahead(struct weir *weir, weir_instant now);
/* This process's own table: its address space, with the first slots committed;
 * WEIR_ENOMEM. */
int weir_grow_reserve(struct weir *weir,
                      const struct weir_table_options *table);
void weir_grow_release(struct weir *weir);
/* The options that decide how large the limiter's records are. */
struct weir_limiter_options weir_records_shape(const struct weir *weir);
/* Commits the limiter's records of the slots from 'from' to below 'to'; from 0
 * on: and all of its block that isn't of slots. 0, or a negative errno. */
int weir_grow_records(const struct weir *weir, uint32_t from, uint32_t to);
/* Pages that cost nothing until they are used; NULL on failure. */
void *weir_pages_map(size_t size, int protection);
/* Makes them zero, and so unused. */
void weir_pages_clear(void *pages, size_t size);

/* ---- libweir_reporter.c: for a shared table ---- */
/* Joins, becomes the reporter if there is none, and begins to watch. */
int weir_reporter_open(struct weir *weir);
/* In two steps, neither of which does anything on a table of this process's
 * own: ends the watching; and when the background thread has ended, gives
 * everything back. */
void weir_reporter_part(struct weir *weir);
void weir_reporter_close(struct weir *weir);
/* In a child: joins the parent's table, or gets an empty one. */
void weir_reporter_forked(struct weir *weir);
/* Waits until the reporter is ready ('wanted' 0), or has answered the call of
 * weir_sync() with that number. Returns as weir_ready() or weir_sync(). */
int weir_reporter_wait(struct weir *weir, uint64_t wanted,
                       weir_duration timeout);
void weir_reporter_status(const struct weir *weir, struct weir_status *out);

/* ---- libweir_snapshot.c ---- */
/* 'path' NULL or "": none, and the other functions do nothing. 0 or
 * WEIR_ENOMEM. */
int weir_kept_init(struct weir *weir, const char *path);
void weir_kept_fini(struct weir *weir);
/* NULL: none. */
const struct weir_limiter_sink *weir_kept_sink(const struct weir *weir);
/* With the loop: reads the file, and begins to keep it. 0, WEIR_ENOMEM,
 * WEIR_ESYSTEM. */
int weir_kept_open(struct weir *weir);
void weir_kept_close(struct weir *weir);
/* On the background thread, before it connects to roots: puts the file's quotas
 * in force. */
void weir_kept_restore(struct weir *weir);
/* In a child of fork(). */
void weir_kept_forked(struct weir *weir);

/* ---- libweir_event_queue.c ---- */
int weir_event_queue_init(struct weir_event_queue *queue);
void weir_event_queue_fini(struct weir_event_queue *queue);
/* To the queue and to the callback. Background thread. */
void weir_event_send(struct weir *weir, const struct weir_event *event);
/* The same for one event of now; its text is cut to the room for it. */
void weir_event_report(struct weir *weir, enum weir_event_type type,
                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- libweir_stripe.c ---- */
int weir_stripes_init(struct weir *weir);
void weir_stripes_fini(struct weir *weir);
/* The calling thread's stripe. In a child of fork() the first such call makes
 * the limiter the child's own. */
uint32_t weir_stripe_mine(struct weir *weir);
/* In a child: no thread of it has a stripe; those of its own table are free. */
void weir_stripes_forked(struct weir *weir);

/* ---- libweir_contended.c: locks of the table ---- */
/* A lock was released for which threads wait, here or in another process. */
void weir_locks_wake(struct weir *weir);
/* The same if it is so: after calls that take the writer lock. */
void weir_locks_heed(struct weir *weir);

/* ---- libweir_unpin.c ---- */
/* Memory that is zeroed at first. In a child of fork(): again; it forgets its
 * parent's list. */
void weir_unpins_init(struct weir_unpins *unpins);
void weir_unpins_fini(struct weir_unpins *unpins);
/* Gives the slot back, at once or later. */
void weir_unpin(struct weir *weir, struct weir_ref ref);
/* In a child of fork() on a shared table: pins what its parent, the process of
 * that number, has pinned, at once or later. */
void weir_pins_inherit(struct weir *weir, uint32_t parent);
/* Pins and gives back those that are late, if the lock is free. */
void weir_unpin_late(struct weir *weir);

/* ---- libweir_waiting.c ---- */
void weir_waiting_init(struct weir_waiting *waiting);
/* No thread may be waiting. In a child of fork(), where none is: init alone. */
void weir_waiting_fini(struct weir_waiting *waiting);
/* Enters, or waits for it. Returns an outcome; LIMITED: it was too late, or too
 * many wait already. Blocks until 'until' at most. */
unsigned weir_waiting_enter(struct weir *weir, struct weir_wish *wish);
/* Units came free at these slots: hands them to the next waiters. Any
 * thread. */
void weir_waiting_left(struct weir *weir, const uint32_t *slots, uint32_t count,
                       weir_instant now);
/* On the thread: the same for all slots. Returns when to serve again even if no
 * permit leaves, or WEIR_NEVER. */
weir_instant weir_waiting_look(struct weir *weir, weir_instant now);

/* ---- libweir_adaptive.c ---- */
/* On the thread, when it is awake: does the work due on limits; sends an event
 * if limits found no room. */
void weir_adaptive_look(struct weir *weir, weir_instant now);

/* ---- libweir_zones.c ---- */
/* On the thread: updates wall clock and zones. 'anew': quotas may name other
 * zones than before. */
void weir_zones_follow(struct weir *weir, bool anew, weir_instant now);

/* ---- libweir_kick.c ---- */
/* Begins a thread of the library: it blocks all signals, and tools show 'name'.
 * false: the system has none. */
bool weir_client_thread(struct weir *weir, const char *name,
                        void *(*run)(void *), pthread_t *out);
/* From a callers' thread: there is work to do. Async-signal-safe. */
void weir_pump_kick(struct weir *weir);
/* The same within the process of that thread. */
void weir_pump_wake(struct weir *weir);

/* ---- libweir_background.c ---- */
/* Makes the loop and its links and starts the thread; on a shared table, of the
 * reporter. */
int weir_pump_start(struct weir *weir);
/* Asks the thread to end, waits for it, frees loop and links. */
void weir_pump_stop(struct weir *weir);

/* ---- libweir_own.c ---- */
/* 'become': makes the limiter this process's own; once in each child. */
int weir_own_init(struct weir *weir, weir_become_fn *become);
void weir_own_fini(struct weir *weir);
/* Whether the limiter is this process's own (and not a parent's). */
bool weir_own_is_set(const struct weir *weir);
/* If it isn't, makes it so, unless another thread does. */
void weir_own_try(struct weir *weir);
/* The same, and waits for the other thread: before a lock is taken. */
void weir_own_ensure(struct weir *weir);

/* ---- libweir_fork.c ---- */
void weir_fork_become(struct weir *weir);

#endif /* WEIR_LIBWEIR_INTERNAL_H */
