/* SPDX-License-Identifier: MIT
 * test/client_world.h - what the tests of libweir share: real roots, edits
 * and looks over HTTP, events that were told, and roots that misbehave.
 *
 * Nothing sleeps to synchronise: UNTIL() asks again until it is so. Every
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

#include "base/base.h"
#include "patience.h"

/* Of calls that have a time-out; a busy machine needs less. */
#define GUARD (60 * WEIR_SECOND)

/* A sanitizer's allocator is not made whole in a child of fork(), as the C
 * library's is. If another thread was inside it at the fork, the child waits
 * for its lock for ever. So, under a sanitizer, a test whose child goes on
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
    char address[32]; /* of the limiters' door, once started */
    char http[32];
    const char *stale_after; /* of its limiters */
    int reserved[2];         /* sockets that hold its ports while it is dead */
};

/* Its limiters don't become stale by accident: only after ten seconds without
 * an answer. (Nor is it longer: for a third of that a root that finds itself
 * overloaded may ask them not to report.) */
void root_make(struct root *root);
/* Its limiters become stale after a second without an answer, be it that the
 * machine is busy: a test that asks for that must bear it at any time. */
void root_make_soon_stale(struct root *root);
/* Another one, on the first one's store. */
void root_make_beside(struct root *root, const struct root *first);
/* Again on the same ports, after root_kill(). */
void root_start(struct root *root);
void root_kill(struct root *root, int signal);
void root_free(struct root *root);
/* The store as it is now, kept aside and put back; of a dead root. */
void root_save(const struct root *root);
void root_restore(const struct root *root);

/* Returns the HTTP status; the body is cut to 'size'. */
int root_ask(const struct root *root, const char *method, const char *path,
             const char *body, char *out, size_t size);
void root_set(const struct root *root, const char *name, const char *fields);
void root_remove(const struct root *root, const char *name);
/* Units of 'name' that passed, as the root counts them; 0: not in use. */
uint64_t root_passed(const struct root *root, const char *name);
/* A figure of /metrics, a whole number without labels. */
uint64_t root_metric(const struct root *root, const char *name);
/* Limiters connected now. */
unsigned root_limiters(const struct root *root);

/* ---- Limiters ---- */

struct seen {
    pthread_mutex_t mutex;
    unsigned count[24];
    char text[24][192]; /* of the last one of a type */
};

/* An on_event whose context is a 'seen', of zeros and with its mutex made. */
void seen_event(void *context, const struct weir_event *event);
struct weir *limiter_open(const char *roots, struct seen *seen);
/* The same, ready. */
struct weir *limiter_ready(const char *roots, struct seen *seen);
unsigned seen_count(struct seen *seen, enum weir_event_type type);
void seen_text(struct seen *seen, enum weir_event_type type, char *out);
struct weir_handle handle_open(struct weir *weir, const char *name);

/* ---- Roots that misbehave ---- */

enum vice {
    VICE_CLOSES,   /* at once */
    VICE_SILENT,   /* accepts, and that was it */
    VICE_GARBAGE,  /* isn't HTTP/2 */
    VICE_JUNK,     /* a message that isn't one */
    VICE_TOO_LONG, /* a message of 2 GiB */
    VICE_VERSION,  /* speaks another version */
    VICE_STATUS,   /* ends the call: UNAVAILABLE */
    VICE_FLAPS,    /* ends the call after the welcome */
    VICE_NONE,     /* says its welcome, as it should */
};

struct fake;
struct fake *fake_new(enum vice vice);
/* The same over TLS: "root" is root.crt and root.key in 'folder', which is
 * where ca.crt is that clients must be signed by. */
struct fake *fake_new_tls(enum vice vice, const char *folder, const char *who);
/* Ends its connections. */
void fake_cut(struct fake *fake);
/* What the last call was shown by: "NAME of the certificate|authorization". */
void fake_shown(struct fake *fake, char *out, size_t size);
void fake_free(struct fake *fake);
const char *fake_address(const struct fake *fake);
unsigned fake_accepted(const struct fake *fake);

#endif /* CLIENT_WORLD_H */
