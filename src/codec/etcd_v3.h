/* SPDX-License-Identifier: MIT
 * codec/etcd_v3.h - Weir's requests to etcd v3 and etcd's answers, as bytes of
 * protobuf. proto/etcd.proto has the messages; calls go over io/h2.h.
 *
 *     weir_etcd_encode(&ask, &bytes)     one message, the only one of its call
 *     weir_h2_call(h2, weir_etcd_path(ask.type), ...)
 *     weir_etcd_decode(ask.type, ...)    of each message that comes back
 *
 * Weir requests one key at a time, so an answer has at most one. */

#ifndef WEIR_ETCD_V3_H
#define WEIR_ETCD_V3_H

#include "core/base/base.h"

#define WEIR_ETCD_KEY_MAX 512   /* bytes */
#define WEIR_ETCD_VALUE_MAX 255 /* bytes of a value that Weir writes */
#define WEIR_ETCD_ASK_MAX 2048  /* bytes of the longest request */

enum weir_etcd_type {
    WEIR_ETCD_READ,       /* the key, by a linearizable read of the cluster */
    WEIR_ETCD_CREATE,     /* puts the key with 'value' and 'lease' if it doesn't
                           * exist; else READ: one transaction */
    WEIR_ETCD_GRANT,      /* creates a lease of 'ttl_s' */
    WEIR_ETCD_KEEP,       /* renews 'lease' */
    WEIR_ETCD_REVOKE,     /* ends 'lease' and deletes the keys attached to it */
    WEIR_ETCD_PUT_BESIDE, /* puts 'value' at the key 'beside', if the key is
                           * attached to 'lease': one transaction */
    WEIR_ETCD_WATCH,      /* the key's changes from 'revision' on; goes on until
                           * the call ends, and must not be half-closed */
};

struct weir_etcd_ask {
    enum weir_etcd_type type;
    struct weir_text key;    /* 1 .. WEIR_ETCD_KEY_MAX bytes, where the type has
                              * one */
    struct weir_text value;  /* up to WEIR_ETCD_VALUE_MAX bytes */
    struct weir_text beside; /* likewise */
    int64_t lease;
    int64_t ttl_s;
    int64_t revision;
};

struct weir_etcd_bytes {
    size_t len;
    uint8_t p[WEIR_ETCD_ASK_MAX];
};

/* A field that the answer doesn't have is 0 or empty. Texts are borrowed from
 * the bytes. */
struct weir_etcd_answer {
    int64_t revision;   /* the store's, when it answered; WATCH with a change:
                         * that change's. As all revisions below INT64_MAX */
    uint64_t raft_term; /* etcd's term, as the server knows it */
    bool created;       /* CREATE: by this request; else the key is described
                         * below. WATCH: it has begun. PUT_BESIDE: it was put */
    bool canceled;      /* WATCH: nothing more will come */
    int64_t compacted;  /* … because revisions older than this one are gone */
    struct weir_text reason; /* … in etcd's words */
    uint32_t changes;        /* WATCH: their number; the last one is described
                              * below */
    bool found;              /* the key exists (READ, CREATE, WATCH) */
    int64_t create_revision; /* the key's, as all below */
    int64_t mod_revision;
    struct weir_text value;
    int64_t lease; /* the key's, or that of GRANT and KEEP */
    int64_t ttl_s; /* GRANT, KEEP; KEEP with 0: the lease doesn't exist */
};

/* "/etcdserverpb.KV/Range"; static. */
const char *weir_etcd_path(enum weir_etcd_type type);
/* Asserts that texts are within their bounds. */
void weir_etcd_encode(const struct weir_etcd_ask *ask,
                      struct weir_etcd_bytes *out);
/* 0, or WEIR_EPROTOCOL: the bytes are no message of that type. */
int weir_etcd_decode(enum weir_etcd_type type, const void *bytes, size_t len,
                     struct weir_etcd_answer *out);

#endif /* WEIR_ETCD_V3_H */
