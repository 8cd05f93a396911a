/* SPDX-License-Identifier: MIT
 * etcd_oracle.c - the slow and plain reader, by the generated code: it makes
 * the answer that Weir should have made. */

#include "etcd_oracle.h"

#include <string.h>

#include "etcd.pb-c.h"

typedef Etcdserverpb__KeyValue kv_pb;
typedef Etcdserverpb__ResponseHeader header_pb;

static void take_header(const header_pb *header, struct weir_etcd_answer *out)
{
    out->revision = header ? header->revision : 0;
    out->raft_term = header ? header->raft_term : 0;
}

static void take_kv(const kv_pb *kv, struct weir_etcd_answer *out)
{
    out->create_revision = kv->create_revision;
    out->mod_revision = kv->mod_revision;
    out->value =
        (struct weir_text){ (const char *)kv->value.data, kv->value.len };
    out->lease = kv->lease;
}

static void take_kvs(kv_pb *const *kvs, size_t count,
                     struct weir_etcd_answer *out)
{
    out->found = count > 0;
    if (out->found)
        take_kv(kvs[count - 1], out);
}

static void take_txn(const Etcdserverpb__TxnResponse *txn,
                     struct weir_etcd_answer *out)
{
    take_header(txn->header, out);
    out->created = txn->succeeded;
    if (txn->n_responses == 0)
        return;
    const Etcdserverpb__ResponseOp *op = txn->responses[txn->n_responses - 1];
    if (op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
        take_kvs(op->response_range->kvs, op->response_range->n_kvs, out);
}

static void take_watch(const Etcdserverpb__WatchResponse *watch,
                       struct weir_etcd_answer *out)
{
    take_header(watch->header, out);
    out->created = watch->created;
    out->canceled = watch->canceled;
    out->compacted = watch->compact_revision;
    out->reason = weir_text_of(watch->cancel_reason);
    out->changes = (uint32_t)watch->n_events;
    if (watch->n_events == 0)
        return;
    const Etcdserverpb__Event *last = watch->events[watch->n_events - 1];
    if (last->kv)
        take_kv(last->kv, out);
    out->revision = out->mod_revision;
    out->found = last->type != ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE;
}

/* A text of protobuf-c's ends at its first NUL. */
static bool same_reason(struct weir_text theirs, struct weir_text ours)
{
    return ours.len >= theirs.len &&
           (theirs.len == 0 || memcmp(theirs.p, ours.p, theirs.len) == 0) &&
           (ours.len == theirs.len || ours.p[theirs.len] == '\0');
}

static bool same_etcd_answer(const struct weir_etcd_answer *theirs,
                             const struct weir_etcd_answer *ours)
{
    return theirs->found == ours->found && theirs->created == ours->created &&
           theirs->canceled == ours->canceled &&
           theirs->changes == ours->changes &&
           theirs->revision == ours->revision &&
           theirs->create_revision == ours->create_revision &&
           theirs->mod_revision == ours->mod_revision &&
           theirs->compacted == ours->compacted &&
           theirs->lease == ours->lease && theirs->ttl_s == ours->ttl_s &&
           theirs->raft_term == ours->raft_term &&
           weir_text_equal(theirs->value, ours->value) &&
           same_reason(theirs->reason, ours->reason);
}

const ProtobufCMessageDescriptor *oracle_etcd_type(enum weir_etcd_type type)
{
    static const ProtobufCMessageDescriptor *const descriptors[] = {
        [WEIR_ETCD_READ] = &etcdserverpb__range_response__descriptor,
        [WEIR_ETCD_CREATE] = &etcdserverpb__txn_response__descriptor,
        [WEIR_ETCD_PUT_BESIDE] = &etcdserverpb__txn_response__descriptor,
        [WEIR_ETCD_GRANT] = &etcdserverpb__lease_grant_response__descriptor,
        [WEIR_ETCD_KEEP] = &etcdserverpb__lease_keep_alive_response__descriptor,
        [WEIR_ETCD_REVOKE] = &etcdserverpb__lease_revoke_response__descriptor,
        [WEIR_ETCD_WATCH] = &etcdserverpb__watch_response__descriptor,
    };
    return descriptors[type];
}

static void take_message(enum weir_etcd_type type, const void *message,
                         struct weir_etcd_answer *out)
{
    const Etcdserverpb__RangeResponse *range = message;
    const Etcdserverpb__LeaseGrantResponse *grant = message;
    const Etcdserverpb__LeaseKeepAliveResponse *keep = message;
    const Etcdserverpb__LeaseRevokeResponse *revoke = message;
    switch (type) {
    case WEIR_ETCD_READ:
        take_header(range->header, out);
        take_kvs(range->kvs, range->n_kvs, out);
        return;
    case WEIR_ETCD_CREATE:
    case WEIR_ETCD_PUT_BESIDE:
        take_txn(message, out);
        return;
    case WEIR_ETCD_GRANT:
        take_header(grant->header, out);
        out->lease = grant->id;
        out->ttl_s = grant->ttl;
        return;
    case WEIR_ETCD_KEEP:
        take_header(keep->header, out);
        out->lease = keep->id;
        out->ttl_s = keep->ttl;
        return;
    case WEIR_ETCD_REVOKE:
        take_header(revoke->header, out);
        return;
    case WEIR_ETCD_WATCH:
        take_watch(message, out);
        return;
    }
}

bool oracle_etcd(enum weir_etcd_type type, const void *bytes, size_t len,
                 const struct weir_etcd_answer *ours)
{
    static const uint8_t nothing;
    struct weir_etcd_answer theirs = { .revision = 0 };
    ProtobufCMessage *message = protobuf_c_message_unpack(
        oracle_etcd_type(type), NULL, len, len > 0 ? bytes : &nothing);
    if (!message)
        return false;
    take_message(type, message, &theirs);
    bool agrees = same_etcd_answer(&theirs, ours);
    protobuf_c_message_free_unpacked(message, NULL);
    return agrees;
}
