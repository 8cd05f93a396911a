/* SPDX-License-Identifier: MIT
 * server/store_thread.h - a quota store on a thread of its own, so that a file
 * that is slow, locked or gone never stops the loop.
 *
 *     loop                                        thread
 *      | -- weir_store_thread_edit(changes) ---->  | weir_store_edit()
 *      |                                           | weir_store_read()
 *      | <------------ fd readable: news --------  |
 *      | weir_store_thread_turn():                 | every 25 ms:
 *      |     on_store, on_change …, on_settle,     |   weir_store_changed()
 *      |     on_done(context, ask, error, …)       |
 *
 * News comes in the order of the store: the changes of an edit are passed on
 * before the edit's on_done. */

#ifndef WEIR_STORE_THREAD_H
#define WEIR_STORE_THREAD_H

#include "core/quota/catalog.h"
#include "server/admin/changes.h"
#include "store/store.h"

#define WEIR_STORE_POLL_MS 25     /* interval of weir_store_changed() */
#define WEIR_STORE_LOOK_MS 1000   /* interval of checks of its identity */
#define WEIR_STORE_RETRY_MS 250   /* interval of tries to open the store */
#define WEIR_STORE_BATCH 1024     /* changes passed on at once */
#define WEIR_STORE_BATCHES_MAX 64 /* waiting for the loop; then reading waits */

struct weir_store_thread;

/* All called from weir_store_thread_turn(). Pointers are valid during the
 * call. After on_store or on_change has failed, nothing but the ends of
 * requests is passed on until the whole set is read again, after
 * WEIR_STORE_RETRY_MS. A change that was passed on before the failure, and not
 * settled, may be in force meanwhile. */
struct weir_store_listener {
    void *context;
    /* A store that can't be opened at the start is no error either: it is tried
     * until it opens (the root may serve from a snapshot). */
    bool patient;
    /* The newest change of a snapshot that the root may serve (epoch 0: none),
     * and its store: if the store has lost it, the loop is told. */
    struct weir_store_id snapshot_store;
    struct weir_lineage_entry snapshot;
    /* A whole set begins; all its changes follow up to the settle: of another
     * store than before, of an older state, or again after a reading broke off.
     * The former set may be served until then. 0 or WEIR_ENOMEM. */
    int (*on_store)(void *context, const struct weir_store_id *id,
                    uint64_t epoch, uint64_t floor, weir_instant now);
    /* 0 or WEIR_ENOMEM */
    int (*on_change)(void *context, const struct weir_change *change,
                     weir_instant now);
    /* A row that can't be read, in its place among the changes; of its name at
     * most WEIR_NAME_MAX bytes. */
    void (*on_bad_row)(void *context, const struct weir_bad_row *row,
                       weir_instant now);
    /* The store's history was replaced, and it lacks edits that were passed on.
     * A whole set follows. May be NULL. */
    void (*on_loss)(void *context, const struct weir_lineage_loss *loss);
    /* every change up to the newest was passed on */
    void (*on_settle)(void *context, const struct weir_lineage_entry *newest,
                      weir_instant now);
    /* The incarnation under which this root is present in the store, copied;
     * NULL: it isn't. on_roots is called with the number of roots
     * on the store when that changes; 0: not known. */
    const uint8_t *root;
    void (*on_roots)(void *context, uint32_t roots);
    /* the store can't be used (error < 0, 'why' for people), or can again (0);
     * called when that changes */
    void (*on_trouble)(void *context, int error, const char *why);
    /* a request is done; 'epoch' is the newest */
    void (*on_done)(void *context, void *ask, int error,
                    const struct weir_diag *diag, uint64_t epoch,
                    weir_instant now);
};

/* Opens the store at 'url' and starts the thread. A store that is locked is no
 * error: it is tried again. Otherwise as weir_store_open(), unless the listener
 * is patient. The thread blocks all signals. */
int weir_store_thread_new(const char *url,
                          const struct weir_store_listener *listener,
                          struct weir_store_thread **out,
                          struct weir_diag *diag);
/* Waits for the edit that runs (some 2 s at most). Requests that were not begun
 * are dropped unanswered. NULL inside is legal. */
void weir_store_thread_free(struct weir_store_thread **thread);

/* Readable while there is news. Owned by the thread object. */
int weir_store_thread_fd(const struct weir_store_thread *thread);
/* Calls the listener for news, a bounded part of it: if there is more, the
 * descriptor stays readable. */
void weir_store_thread_turn(struct weir_store_thread *thread, weir_instant now);

/* Requests the newest changes of the store, at once. 0 or WEIR_ENOMEM. */
int weir_store_thread_sync(struct weir_store_thread *thread, void *ask);
/* Requests weir_store_edit(): 'changes' is taken over (emptied), also on
 * failure; the other members of 'edit' are copied. 0 or WEIR_ENOMEM. */
int weir_store_thread_edit(struct weir_store_thread *thread,
                           struct weir_changes *changes,
                           const struct weir_edit *edit, void *ask);
/* Requests weir_store_undo(). 0 or WEIR_ENOMEM. */
int weir_store_thread_undo(struct weir_store_thread *thread, uint64_t epoch,
                           struct weir_text identity, void *ask);
/* Requests weir_store_take_never_leased(); 'on_mark' has its answer: false
 * after an error, with its text in 'why', which is NULL without one. The thread
 * then tries again until the mark is gone, and reports that no more. It is
 * called from weir_store_thread_turn(), in the order of the requests, and not
 * at all after a WEIR_ENOMEM. 0 or WEIR_ENOMEM. */
struct weir_store_mark_ask {
    void (*on_mark)(void *context, bool never, const char *why);
    void *context;
};
int weir_store_thread_take_mark(struct weir_store_thread *thread,
                                const struct weir_store_mark_ask *mark);
/* Requests weir_store_log(). 'each' is called on the store's thread, and no
 * other thread may touch 'context' before on_done. 'end' is called once with it
 * when the thread has done with it, on any thread, also if this fails. 0 or
 * WEIR_ENOMEM. */
struct weir_store_log_ask {
    uint64_t below;
    struct weir_text name; /* copied; WEIR_NAME_MAX bytes at most */
    size_t max;
    weir_store_log_each *each;
    void (*end)(void *context);
    void *context;
};
int weir_store_thread_log(struct weir_store_thread *thread,
                          const struct weir_store_log_ask *log, void *ask);

#endif /* WEIR_STORE_THREAD_H */
