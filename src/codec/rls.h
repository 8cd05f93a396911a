/* SPDX-License-Identifier: MIT
 * codec/rls.h - Envoy's rate limit service on the wire: the request of
 * envoy.service.ratelimit.v3 from bytes, its answer to bytes; and the two
 * messages of grpc.health.v1.
 *
 * The bytes are one protobuf message (proto/rls.proto), without the gRPC
 * frame. */

#ifndef WEIR_RLS_H
#define WEIR_RLS_H

#include "codec/arena.h"
#include "core/base/base.h"

#define WEIR_RLS_SHOULD_RATE_LIMIT \
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define WEIR_HEALTH_CHECK "/grpc.health.v1.Health/Check"
#define WEIR_HEALTH_WATCH "/grpc.health.v1.Health/Watch"

/* Bounds of a request. envoyproxy/ratelimit has that of the bytes, which is
 * gRPC's, and none of the counts. A request over one of them is over the
 * limit. */
#define WEIR_RLS_BYTES_MAX (4u << 20)
#define WEIR_RLS_DESCRIPTORS_MAX 1024u
#define WEIR_RLS_ENTRIES_MAX 8192u /* of all descriptors together */
/* The size of a buffer that fits any answer with so many statuses and
 * headers. */
#define WEIR_RLS_NAME_MAX 128u  /* of a limit's name */
#define WEIR_RLS_HEADERS_MAX 8u /* of an answer */
#define WEIR_RLS_HEADER_VALUE_MAX 512u
#define WEIR_RLS_METADATA_MAX (64u << 10) /* bytes; more are left out */
#define WEIR_RLS_ANSWER_MAX                                          \
    (16u + WEIR_RLS_METADATA_MAX + WEIR_RLS_DESCRIPTORS_MAX * 192u + \
     WEIR_RLS_HEADERS_MAX * 640u)

/* The numbers on the wire. */
enum weir_rls_code {
    WEIR_RLS_UNKNOWN = 0,
    WEIR_RLS_OK = 1,
    WEIR_RLS_OVER_LIMIT = 2,
};
enum weir_rls_unit {
    WEIR_RLS_NO_UNIT = 0,
    WEIR_RLS_SECOND = 1,
    WEIR_RLS_MINUTE = 2,
    WEIR_RLS_HOUR = 3,
    WEIR_RLS_DAY = 4,
    WEIR_RLS_MONTH = 5, /* 30 days */
    WEIR_RLS_YEAR = 6,  /* 365 days */
    WEIR_RLS_WEEK = 7,
};
/* 0: no known unit. */
weir_duration weir_rls_unit_length(enum weir_rls_unit unit);

struct weir_rls_entry {
    struct weir_text key;   /* not empty */
    struct weir_text value; /* may be empty */
};

struct weir_rls_descriptor {
    struct weir_rls_entry *entries; /* within the arena */
    size_t entry_count;             /* at least 1 */
    bool hits_given;                /* 'hits' replaces the request's hits */
    bool negative;                  /* the hits are given back */
    bool override_given;            /* the client sent a limit of its own */
    uint32_t override_unit;         /* that limit's unit, as sent */
    uint64_t hits;                  /* 0: look only, count nothing */
};

struct weir_rls_request {
    struct weir_text domain;                 /* not empty */
    uint32_t hits;                           /* as sent: 0 means 1 */
    struct weir_rls_descriptor *descriptors; /* within the arena */
    size_t count;                            /* of descriptors, at least 1 */
};

/* Bytes of an arena that fits any request within the bounds. */
#define WEIR_RLS_ARENA_SIZE                                          \
    (WEIR_ARENA_ALIGN +                                              \
     WEIR_RLS_DESCRIPTORS_MAX * sizeof(struct weir_rls_descriptor) + \
     WEIR_RLS_ENTRIES_MAX * sizeof(struct weir_rls_entry))

/* Decodes into 'arena', which is set back first, and checks. Texts point into
 * 'bytes' and may hold any bytes; 'bytes' and 'arena' must outlive 'out'.
 * Unknown fields are skipped; of a text or number that comes twice the last one
 * counts. Returns 0, WEIR_ESYNTAX (broken bytes, a field of another type, a
 * part that comes twice), WEIR_ETOOBIG or WEIR_EINVAL (no domain, no
 * descriptor, one without entries, a key that is empty, a limit of an unknown
 * unit), with a sentence for the peer in 'diag' (may be NULL). */
int weir_rls_decode(const void *bytes, size_t len, struct weir_arena *arena,
                    struct weir_rls_request *out, struct weir_diag *diag);

/* Checks a request from any source: WEIR_ETOOBIG and WEIR_EINVAL as above. */
int weir_rls_check(const struct weir_rls_request *request,
                   struct weir_diag *diag);

/* The units that a descriptor of the request takes. */
uint64_t weir_rls_hits(const struct weir_rls_request *request,
                       const struct weir_rls_descriptor *descriptor);

struct weir_rls_status {
    enum weir_rls_code code;
    bool limit_given;
    enum weir_rls_unit unit; /* of the limit, as the next two */
    uint32_t requests_per_unit;
    struct weir_text name; /* its maker cuts it at WEIR_RLS_NAME_MAX */
    uint32_t remaining;
    bool reset_given;
    weir_duration reset;
};

struct weir_rls_header {
    struct weir_text key;
    struct weir_text value;
};

struct weir_rls_answer {
    enum weir_rls_code code;
    size_t count;        /* of statuses; at most WEIR_RLS_DESCRIPTORS_MAX */
    size_t header_count; /* at most WEIR_RLS_HEADERS_MAX */
    const struct weir_rls_status *statuses;
    /* A google.protobuf.Struct, at most WEIR_RLS_METADATA_MAX bytes; empty:
     * none. */
    struct weir_text metadata;
    const struct weir_rls_header *headers; /* for the response to the downstream
                                            * client */
};

/* Encodes into 'buf' of WEIR_RLS_ANSWER_MAX bytes. Returns the bytes written.
 * Names are at most WEIR_RLS_NAME_MAX bytes, a header's key 64 and its value
 * WEIR_RLS_HEADER_VALUE_MAX. */
size_t weir_rls_encode(const struct weir_rls_answer *answer, void *buf);

/* ---- grpc.health.v1 ---- */

enum weir_health {
    WEIR_HEALTH_SERVING = 1,
    WEIR_HEALTH_NOT_SERVING = 2,
    WEIR_HEALTH_SERVICE_UNKNOWN = 3, /* only Watch sends it */
};
#define WEIR_HEALTH_ANSWER_SIZE 2

/* The requested service; empty: all. WEIR_ESYNTAX: broken bytes. */
int weir_health_decode(const void *bytes, size_t len,
                       struct weir_text *out_service);
/* WEIR_HEALTH_ANSWER_SIZE bytes. */
void weir_health_encode(enum weir_health health, unsigned char *buf);

#endif /* WEIR_RLS_H */
