/* SPDX-License-Identifier: MIT
 * wire/etcd_v3.h - what Weir says to etcd v3, as bytes of protobuf, and what
 * etcd answers. proto/etcd.proto has the messages; calls go over wire/h2.h.
 *
 *     weir_etcd_encode(&ask, &bytes)     one message, the only one of its call
 *     weir_h2_call(h2, weir_etcd_path(ask.type), ...)
 *     weir_etcd_decode(ask.type, ...)    of each message that comes back
 *
 * One key is all that Weir ever asks for, so an answer has at most one. */

#ifndef WEIR_ETCD_V3_H
#define WEIR_ETCD_V3_H

#include "base/base.h"

#define WEIR_ETCD_KEY_MAX 512   /* bytes */
#define WEIR_ETCD_VALUE_MAX 255 /* bytes, of one that is written */
#define WEIR_ETCD_ASK_MAX 2048  /* bytes of the longest ask */

enum weir_etcd_type {
    WEIR_ETCD_READ,       /* the key, as all of the cluster agrees it is */
    WEIR_ETCD_CREATE,     /* the key with 'value' and 'lease', if there is none;
                       * else as READ: one transaction */
    WEIR_ETCD_GRANT,      /* a lease of 'ttl_s' */
    WEIR_ETCD_KEEP,       /* 'lease' for another term */
    WEIR_ETCD_REVOKE,     /* 'lease', and the keys attached to it */
    WEIR_ETCD_PUT_BESIDE, /* 'value' at the key 'beside', if the key is attached
                           * to 'lease': one transaction */
    WEIR_ETCD_WATCH,      /* the key's changes from 'revision' on; goes on until
                       * its call ends: it must not be half-closed */
};

struct weir_etcd_ask {
    enum weir_etcd_type type;
    struct weir_text key;    /* 1 .. WEIR_ETCD_KEY_MAX, where there is one */
    struct weir_text value;  /* up to WEIR_ETCD_VALUE_MAX */
    struct weir_text beside; /* as 'key' */
    int64_t lease;
    int64_t ttl_s;
    int64_t revision;
};

struct weir_etcd_bytes {
    size_t len;
    uint8_t p[WEIR_ETCD_ASK_MAX];
};

/* What isn't told is 0 or empty. Texts are borrowed from the bytes. */
struct weir_etcd_answer {
    int64_t revision;   /* of the store, when it answered; of WATCH with a
                        * change: that change's. As all revisions below
                        * INT64_MAX */
    uint64_t raft_term; /* in which it is led, as the server knows */
    bool created;       /* CREATE: by us; else the key is as told below.
                        * WATCH: it has begun. PUT_BESIDE: it was put */
    bool canceled;      /* WATCH: nothing more comes */
    int64_t compacted;  /* … because older revisions than this are gone */
    struct weir_text reason; /* … in etcd's words */
    uint32_t changes;        /* WATCH: how many; the last one is told below */
    bool found;              /* there is the key (READ, CREATE, WATCH) */
    int64_t create_revision; /* of the key, as all below */
    int64_t mod_revision;
    struct weir_text value;
    int64_t lease; /* the key's, or that of GRANT and KEEP */
    int64_t ttl_s; /* GRANT, KEEP; 0 of KEEP: there is no such lease */
};

/* "/etcdserverpb.KV/Range"; static. */
const char *weir_etcd_path(enum weir_etcd_type type);
/* Asserts that texts are within their bounds. */
void weir_etcd_encode(const struct weir_etcd_ask *ask,
                      struct weir_etcd_bytes *out);
/* 0, or WEIR_EPROTOCOL: the bytes are no such message. */
int weir_etcd_decode(enum weir_etcd_type type, const void *bytes, size_t len,
                     struct weir_etcd_answer *out);

#endif /* WEIR_ETCD_V3_H */
