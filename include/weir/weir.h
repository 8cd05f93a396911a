/* SPDX-License-Identifier: MIT
 * weir.h - keep a fleet of processes within shared quotas. */

#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ====================================================================
 * Weir in a page.
 *
 * Several processes share a quota ("1,000 requests per second into the
 * store"). Each opens a limiter, which decides in this process's own memory:
 *
 *     struct weir_options options = WEIR_OPTIONS_INIT;
 *     options.roots = "10.0.0.1:7077,10.0.0.2:7077";
 *     struct weir *weir;
 *     if (weir_open(&options, &weir) < 0) ...
 *
 *     struct weir_handle put;
 *     weir_handle_open(weir, "s3/put", 6, &put);
 *     ...
 *     if (weir_take(put, 1, NULL, 0) == WEIR_LIMITED)
 *         return 429;
 *
 * A background thread exchanges counts with the roots (`weir serve`), which
 * know the quotas. No call below but weir_ready(), weir_sync(), weir_wait()
 * and weir_close() ever waits for the network or the background thread.
 * Plain decisions take no lock; what makes a name's place in the table spins
 * for one that is held for microseconds (or for as long as the system lets
 * its holder wait). With all roots dead the decisions go on as each quota's
 * `on_stale` says.
 *
 * Units. A quota counts units: requests, bytes, rows. A weight is how many
 * units one request costs, 0 to WEIR_WEIGHT_MAX. Durations are nanoseconds.
 *
 * Time. Every call that decides takes `now`, an instant of CLOCK_MONOTONIC in
 * nanoseconds; 0 lets the library read the clock (some 20-30 ns). An instant
 * earlier than one seen before is safe: it sees a fuller bucket. One of the
 * future is not (CLOCK_REALTIME, say): the bucket then refuses until that
 * time has come, or a root says better.
 *
 * Threads. Every function may be called from any thread at any time, unless
 * its comment says otherwise. After fork() a child may go on calling; it
 * becomes a limiter of its own (see weir_open()).
 * ==================================================================== */

/* Symbols of the shared library. */
#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#define WEIR_MUST_USE __attribute__((warn_unused_result))
#else
#define WEIR_API
#define WEIR_MUST_USE
#endif

/* CLOCK_MONOTONIC, nanoseconds. As an argument, 0 means "read the clock". */
typedef uint64_t weir_instant;
/* Nanoseconds. */
typedef uint64_t weir_duration;

/* "Never", for an instant and for a duration. */
#define WEIR_NEVER UINT64_MAX
#define WEIR_SECOND 1000000000ull
#define WEIR_MILLISECOND 1000000ull

/* Bounds. */
#define WEIR_NAME_MAX 255             /* bytes of a quota's name, no NUL */
#define WEIR_WEIGHT_MAX (1ull << 32)  /* units one call may ask for */
#define WEIR_DEPTH_MAX 16             /* quotas in a chain */
#define WEIR_ROOTS_MAX 8              /* roots of one limiter */
#define WEIR_DEBT_MAX (1ull << 40)    /* units above high_burst that charges,
                                       * reservations and late counts reach */

/* ---- Errors --------------------------------------------------------
 * An operating error is negative; 0 is success. Being limited is no error
 * but a verdict. weir_strerror() gives a sentence that says what to do. */
enum weir_error {
    WEIR_OK = 0,
    WEIR_EINVAL = -1,    /* an argument is outside its stated range */
    WEIR_ENOMEM = -2,    /* the system gave no memory */
    WEIR_ENAME = -3,     /* a name is empty, too long or not clean UTF-8 */
    WEIR_EQUOTA = -4,    /* a quota's fields contradict each other */
    WEIR_EPARENT = -5,   /* a parent doesn't exist */
    WEIR_ECYCLE = -6,    /* a quota would be its own ancestor */
    WEIR_EDEPTH = -7,    /* a chain would be longer than WEIR_DEPTH_MAX */
    WEIR_EEXIST = -8,    /* there is such a thing already */
    WEIR_ENOENT = -9,    /* there is no such thing */
    WEIR_ECHILDREN = -10, /* a quota with children can't be removed */
    WEIR_EFULL = -11,    /* a bounded table has no room */
    WEIR_ETIMEOUT = -12, /* the time given was not enough */
    WEIR_ESYNTAX = -13,  /* text or bytes can't be parsed */
    WEIR_ETOOBIG = -14,  /* a message or value is over its bound */
    WEIR_EPROTOCOL = -15, /* a peer broke the protocol */
    WEIR_ESTORE = -16,   /* the quota store can't be used */
    WEIR_ELOCKED = -17,  /* the quota store is locked by another process */
    WEIR_ESCHEMA = -18,  /* the store was made by another version of Weir */
    WEIR_ESYSTEM = -19,  /* a system call failed; errno says more */
    WEIR_ECONNECT = -20, /* no root can be reached */
    WEIR_ECLOSED = -21,  /* the limiter was closed */
    WEIR_ENOTREADY = -22, /* a root has not read its quotas yet */
    WEIR_ECREDENTIAL = -23, /* no credential, or one that isn't known */
    WEIR_EDENIED = -24,  /* the credential's role doesn't allow it */
    WEIR_ECHANGED = -25, /* it has been changed since */
    WEIR_ETLS = -26      /* a certificate or key can't be used, or TLS failed */
};

/* A static sentence for 'error', never NULL. Wait-free. */
WEIR_API const char *weir_strerror(int error);

/* ---- Verdicts ------------------------------------------------------ */

enum weir_verdict {
    WEIR_PASS = 0,
    WEIR_LIMITED = 1,
};

/* What a decision knows. Filled on request (a NULL reply costs nothing). */
struct weir_reply {
    enum weir_verdict verdict;
    bool unknown;       /* the name has no quota: it passes */
    bool never;         /* the weight is above high_burst: it never passes */
    bool stale;         /* no root was heard for stale_after */
    bool shadow;        /* a quota in mode shadow would have refused */
    int64_t fill;       /* units in the deciding bucket: of the quota that
                         * refused, or of the one nearest to its limit */
    uint64_t remaining; /* units that would still pass, over the chain */
    weir_duration retry_after; /* 0 when passed; WEIR_NEVER when 'never' */
    weir_duration wait; /* of weir_reserve(): how long to wait */
    uint8_t quota_len;  /* of 'quota'; 0 when there is none */
    char quota[WEIR_NAME_MAX + 1]; /* the deciding quota, NUL-terminated */
};

/* ---- Events --------------------------------------------------------
 * The library never logs. What an operator may want to know is an event. */
enum weir_event_type {
    WEIR_EVENT_ROOT_UP = 1,   /* a root link is established */
    WEIR_EVENT_ROOT_DOWN,     /* a root link was lost; 'text' says why */
    WEIR_EVENT_READY,         /* the quotas of a root are complete here */
    WEIR_EVENT_STALE,         /* no root for stale_after: on_stale rules */
    WEIR_EVENT_FRESH,         /* a root is heard again */
    WEIR_EVENT_TABLE_FULL,    /* an instance found no room */
    WEIR_EVENT_STORE_CHANGED, /* a root speaks for another quota store */
    WEIR_EVENT_ROOT_STRETCH,  /* an overloaded root asks for fewer reports */
    WEIR_EVENT_FORKED,        /* this is a child: a limiter of its own now */
    WEIR_EVENT_LOST,          /* events were dropped: the queue was full */
    WEIR_EVENT_CREDENTIAL     /* a file of tls_… or token_file can't be used:
                               * 'text' says which, why, what to do */
};

struct weir_event {
    enum weir_event_type type;
    weir_instant at;
    uint64_t count;   /* how often since last told (TABLE_FULL, LOST);
                       * ms between reports (ROOT_STRETCH) */
    char text[192];   /* for people: root, quota, reason */
};

/* Called from the background thread; must return quickly and must not call
 * weir_close(). 'event' is valid during the call. Also from within a
 * weir_open() that fails for a file: WEIR_EVENT_CREDENTIAL says which. */
typedef void weir_event_fn(void *context, const struct weir_event *event);

/* ---- Life ---------------------------------------------------------- */

struct weir; /* one limiter: a table and its background thread */

/* Options of weir_open(). Zero means the default. */
struct weir_options {
    size_t struct_size;   /* set by WEIR_OPTIONS_INIT */
    const char *roots;    /* "HOST:PORT,…", up to WEIR_ROOTS_MAX, each named
                           * once; NULL: none, every name is then unknown and
                           * passes */
    const char *name;     /* how this process is called in `weir top`, up to
                           * 255 bytes of clean UTF-8; NULL or "": program
                           * name and process id */
    uint32_t quotas_max;  /* slots of the table, quotas and instances
                           * together; 0: 65,536; up to 16,777,216 */
    uint32_t threads_max; /* threads that count refusals without sharing a
                           * cache line; 0: 64; more threads still work */
    weir_event_fn *on_event; /* NULL: use weir_event_fd() or ignore */
    void *event_context;
    /* How to speak to the roots; NULL or "": as said. The files are read by
     * weir_open(), which fails if one can't be used, and again whenever they
     * have changed and a connection begins; those that can't be used then are
     * an event, and what was read before stays in force. */
    const char *tls_ca;     /* PEM file of the authorities to trust, "system"
                             * for the system's; NULL: plain text. A root must
                             * show a certificate for its HOST */
    const char *tls_cert;   /* PEM file of a certificate to show, with its
                             * chain; NULL: none */
    const char *tls_key;    /* PEM file of its key, not encrypted */
    const char *token_file; /* its first line goes along as bearer token; read
                             * for every connection; NULL: none. Not without
                             * tls_ca, but to this host itself */
};
#define WEIR_OPTIONS_INIT { sizeof(struct weir_options) }

/* Opens a limiter and starts its thread. Never waits for a root and never
 * fails because none answers or takes its credentials (that is
 * WEIR_EVENT_ROOT_DOWN). 'out_weir' is untouched on failure. Strings in
 * 'options' are copied.
 *
 * A child of fork() that uses a limiter of its parent gets an incarnation
 * and a thread of its own at its first call: that one allocates, and may
 * take some hundred microseconds. It decides at once, by the quotas and fills
 * that it inherited; what was counted before is the parent's to report. The
 * parent's sockets are left alone; the files above are read anew.
 *
 * The thread blocks all signals, installs no handler, and every descriptor
 * is close-on-exec.
 *
 * Returns 0, WEIR_EINVAL (an option outside its range, roots that can't be
 * parsed, tls_… that contradict each other, a token that would go in plain
 * text to another host), WEIR_ETLS (a file of tls_… can't be read or used),
 * WEIR_ECREDENTIAL (that of the token), WEIR_ENOMEM or WEIR_ESYSTEM. Blocking
 * (allocates, reads files). */
WEIR_API WEIR_MUST_USE int weir_open(const struct weir_options *options,
                                     struct weir **out_weir);

/* Waits until the quotas of some root are complete here, at most 'timeout'.
 * Returns 0 or WEIR_ETIMEOUT; WEIR_ECLOSED. Blocking. */
WEIR_API WEIR_MUST_USE int weir_ready(struct weir *weir,
                                      weir_duration timeout);

/* Waits until every connected root has answered for all that happened here
 * so far (handles opened, units taken), at most 'timeout': from then on the
 * decisions stand on the whole fleet's counts. For processes too short-lived
 * to wait for the next report; a service needs no such call. Returns 0,
 * WEIR_ETIMEOUT (also when no root is connected) or WEIR_ECLOSED.
 * Blocking. */
WEIR_API WEIR_MUST_USE int weir_sync(struct weir *weir,
                                     weir_duration timeout);

/* Sends what is still to be reported (at most 100 ms), stops the thread and
 * frees everything. No other call on 'weir' or its handles may be running or
 * follow. NULL is legal. Blocking. */
WEIR_API void weir_close(struct weir *weir);

/* ---- Handles ------------------------------------------------------- */

/* A quota, found once and used often. A plain value: copy it freely. It
 * stays valid until weir_handle_close(), through edits, removal and
 * re-creation of the quota of that name. A zeroed handle is legal: it stands
 * for a name without quota and passes. */
struct weir_handle {
    struct weir *weir;
    uint32_t slot;
    uint32_t generation;
};

/* Finds 'name' (of 'len' bytes, no NUL needed) and keeps its place in the
 * table. A name that has no quota yet gets a handle too: it passes until
 * there is one. Returns 0, WEIR_ENAME (also for "shadow:…", the names of a
 * set that is tried and not in force), or WEIR_EFULL when the table has no
 * room: the handle then decides by the rest of the name's chain and by its
 * template's overflow quota, and can be used all the same. Not wait-free:
 * may take the table's writer lock for some microseconds. */
WEIR_API WEIR_MUST_USE int weir_handle_open(struct weir *weir,
                                            const char *name, size_t len,
                                            struct weir_handle *out_handle);

/* Gives the place back. The handle must not be used afterwards. */
WEIR_API void weir_handle_close(struct weir_handle quota);

/* ---- Decisions -----------------------------------------------------
 *
 * Each decides on the whole chain of a quota (itself and its ancestors):
 * passes only if all pass, charges all or none. 'reply' may be NULL.
 * A weight above WEIR_WEIGHT_MAX counts as WEIR_WEIGHT_MAX.
 * Lock-free; no allocation; at most one clock read as system call. */

/* Asks for 'weight' units and charges them if they pass. */
WEIR_API enum weir_verdict weir_take(struct weir_handle quota,
                                     uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now);

/* The same by name. The first use of a name that matches a template makes
 * its instance (that once, the writer lock is taken). */
WEIR_API enum weir_verdict weir_take_by_name(struct weir *weir,
                                             const char *name, size_t len,
                                             uint64_t weight,
                                             struct weir_reply *reply,
                                             weir_instant now);

/* One question of weir_take_many(). */
struct weir_ask {
    const char *name;
    size_t len;
    uint64_t weight;
    enum weir_verdict verdict; /* the answer */
};

/* Takes 'count' asks in order, each on its own, their memory fetched
 * together. Returns how many passed. */
WEIR_API size_t weir_take_many(struct weir *weir, struct weir_ask *asks,
                               size_t count, weir_instant now);

/* Decides as weir_take() would and charges nothing. */
WEIR_API enum weir_verdict weir_peek(struct weir_handle quota,
                                     uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now);

/* Counts 'weight' units without asking: for a cost known afterwards. May go
 * into debt, up to WEIR_DEBT_MAX above high_burst, where it saturates. */
WEIR_API void weir_charge(struct weir_handle quota, uint64_t weight,
                          weir_instant now);

/* Gives 'weight' units back, never below an empty bucket. */
WEIR_API void weir_refund(struct weir_handle quota, uint64_t weight,
                          weir_instant now);

/* Charges now and says in reply->wait how long to wait before going on, so
 * that those who wait come in order. Refuses, and charges nothing, if that
 * were longer than 'wait_max' or the debt were above WEIR_DEBT_MAX.
 * 'reply' must not be NULL. */
WEIR_API enum weir_verdict weir_reserve(struct weir_handle quota,
                                        uint64_t weight,
                                        weir_duration wait_max,
                                        struct weir_reply *reply,
                                        weir_instant now);

/* weir_reserve(), then sleeps for that long. Blocking. */
WEIR_API enum weir_verdict weir_wait(struct weir_handle quota,
                                     uint64_t weight,
                                     weir_duration wait_max,
                                     struct weir_reply *reply);

/* ---- What goes on -------------------------------------------------- */

/* A descriptor that is readable while events wait; owned by the limiter. */
WEIR_API int weir_event_fd(struct weir *weir);

/* Takes the oldest event. Returns false when there is none. */
WEIR_API bool weir_event_next(struct weir *weir, struct weir_event *out);

/* How the limiter stands. */
struct weir_status {
    uint32_t roots;        /* named in the options */
    uint32_t roots_up;     /* connected */
    uint64_t epoch;        /* of the quotas here */
    uint32_t slots;        /* of the table */
    uint32_t slots_used;   /* quotas, templates and instances */
    bool ready;            /* the quotas of a root are complete here */
    bool stale;            /* no root was heard for stale_after */
    uint64_t unknown;      /* requests by names without quota */
    uint64_t overflowed;   /* requests by instances without room */
    uint64_t reports;      /* sent to all roots */
};
WEIR_API void weir_status(struct weir *weir, struct weir_status *out);

/* The version of this header, and of the library. */
#define WEIR_VERSION "0.1.0"
WEIR_API const char *weir_version(void);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_H */
