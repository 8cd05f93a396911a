/* SPDX-License-Identifier: MIT
 * test/client_world.h - shared by the tests of libweir: real roots, edits and
 * views over HTTP, events, and roots that misbehave.
 *
 * No sleeps to synchronise: UNTIL() repeats a check until it holds. Every
 * failure of the world itself fails the test. */

#ifndef CLIENT_WORLD_H
#define CLIENT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/types.h>

#include <weir/weir.h>

#include "core/base/base.h"
#include "patience.h"

/* For calls with a time-out; even a busy machine needs less. */
#define GUARD (60 * WEIR_SECOND)

/* A sanitizer's allocator isn't repaired in a child of fork(), as the C
 * library's is. If another thread was in it at the fork, the child waits for
 * its lock for ever. So, under a sanitizer, a test with a child that goes on
 * without exec() is skipped if the parent has threads at the fork. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORLD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WORLD_SANITIZED 1
#endif
#endif

weir_instant world_now(void);
void world_pause(void);
/* Entries of a folder of /proc/self. */
unsigned world_count(const char *folder);

/* ---- Roots: `weir serve` with a store of its own ---- */

struct root {
    pid_t pid; /* 0: not running */
    char folder[64];
    char store[96];   /* its URL */
    char address[32]; /* of the limiters' listener, once started */
    char http[32];
    const char *stale_after; /* setting for its limiters */
    int reserved[2];         /* reserve its ports while it is dead */
};

/* Its limiters don't become stale by accident: only after ten seconds without
 * an answer. (It isn't longer, as for a third of that an overloaded root may
 * ask them not to report.) */
void root_make(struct root *root);
/* Its limiters become stale after a second without an answer, even if the
 * machine is only busy: a test that uses it must expect this at any time. */
void root_make_soon_stale(struct root *root);
/* Another root, on the first one's store. */
void root_make_beside(struct root *root, const struct root *first);
/* Again on the same ports, after root_kill(). */
void root_start(struct root *root);
void root_kill(struct root *root, int signal);
void root_free(struct root *root);
/* Keeps a copy of the store; puts it back. Only for a dead root. */
void root_save(const struct root *root);
void root_restore(const struct root *root);

/* Returns the HTTP status; the body is cut to 'size'. */
int root_ask(const struct root *root, const char *method, const char *path,
             const char *body, char *out, size_t size);
void root_set(const struct root *root, const char *name, const char *fields);
void root_remove(const struct root *root, const char *name);
/* Units of 'name' that passed, by the root's count; 0: not in use. */
uint64_t root_passed(const struct root *root, const char *name);
/* A figure of /metrics, a whole number without labels. */
uint64_t root_metric(const struct root *root, const char *name);
/* Limiters connected now. */
unsigned root_limiters(const struct root *root);

/* ---- Limiters ---- */

struct seen {
    pthread_mutex_t mutex;
    unsigned count[24];
    char text[24][192]; /* of the last event of each type */
};

/* An on_event; its context is a 'seen', zeroed and with an initialized
 * mutex. */
void seen_event(void *context, const struct weir_event *event);
struct weir *limiter_open(const char *roots, struct seen *seen);
/* The same, ready. */
struct weir *limiter_ready(const char *roots, struct seen *seen);
unsigned seen_count(struct seen *seen, enum weir_event_type type);
void seen_text(struct seen *seen, enum weir_event_type type, char *out);
struct weir_handle handle_open(struct weir *weir, const char *name);
struct weir_status limiter_status(struct weir *weir);
/* True: the limiter has the quota 'name'. */
bool limiter_knows(struct weir *weir, const char *name);

/* ---- Roots that misbehave ---- */

enum vice {
    VICE_CLOSES,   /* closes at once */
    VICE_SILENT,   /* accepts, and does nothing more */
    VICE_GARBAGE,  /* isn't HTTP/2 */
    VICE_JUNK,     /* sends an invalid message */
    VICE_TOO_LONG, /* sends a message of 2 GiB */
    VICE_VERSION,  /* speaks another version */
    VICE_STATUS,   /* ends the call: UNAVAILABLE */
    VICE_FLAPS,    /* ends the call after the welcome */
    VICE_NONE,     /* sends its welcome, as it should */
};

struct fake;
/* A root with an incarnation of its own. */
struct fake *fake_new(enum vice vice);
/* The same over TLS: "root" stands for root.crt and root.key in 'folder'.
 * ca.crt there must have signed the clients' certificates. */
struct fake *fake_new_tls(enum vice vice, const char *folder, const char *who);
/* Ends its connections. */
void fake_cut(struct fake *fake);
/* Credentials of the last call: "NAME of the certificate|authorization". */
void fake_shown(struct fake *fake, char *out, size_t size);
void fake_free(struct fake *fake);
const char *fake_address(const struct fake *fake);
unsigned fake_accepted(const struct fake *fake);

#endif /* CLIENT_WORLD_H */
