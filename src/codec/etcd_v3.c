/* SPDX-License-Identifier: MIT
 * codec/etcd_v3.c - the bytes of etcd v3's calls.
 *
 * Theory of operation. Seven small messages are sent and five kinds received,
 * with some twenty fields in all, by tables of these fields (message_fields.h).
 * The nested messages of a request take their fields from the one flat ask, and
 * those of a response fill the one flat answer.
 *
 * Of a singular field that comes twice the last one counts, as in protobuf; a
 * part that comes twice is refused. Of a list's rows the last one counts: one
 * key is asked for, and of its events the newest decides. The numbers are
 * etcd's (rpc.proto, kv.proto; see proto/etcd.proto). */

#include "codec/etcd_v3.h"

#include "codec/message_fields.h"

/* etcd's values of enumerations. */
enum {
    TARGET_CREATE = 1,
    TARGET_LEASE = 4,
    EVENT_DELETE = 1,
};

#define REVISION_MAX (INT64_MAX - 1) /* so that there is room for one more */

const char *weir_etcd_path(enum weir_etcd_type type)
{
    static const char *const paths[] = {
        [WEIR_ETCD_READ] = "/etcdserverpb.KV/Range",
        [WEIR_ETCD_CREATE] = "/etcdserverpb.KV/Txn",
        [WEIR_ETCD_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
        [WEIR_ETCD_KEEP] = "/etcdserverpb.Lease/LeaseKeepAlive",
        [WEIR_ETCD_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
        [WEIR_ETCD_PUT_BESIDE] = "/etcdserverpb.KV/Txn",
        [WEIR_ETCD_WATCH] = "/etcdserverpb.Watch/Watch",
    };
    return paths[type];
}

/* ---- Out ---- */

#define THIS struct weir_etcd_ask
static const struct weir_proto_field range_fields[] = {
    { 1, TEXT(key) },
};
static const struct weir_proto_message range = { FLAT_FIELDS(range_fields) };
static const struct weir_proto_field grant_fields[] = {
    { 1, NUMBER(ttl_s) },
};
static const struct weir_proto_message grant = { FLAT_FIELDS(grant_fields) };
static const struct weir_proto_field lease_fields[] = {
    { 1, NUMBER(lease) },
};
static const struct weir_proto_message lease = { FLAT_FIELDS(lease_fields) };

/* One transaction: if the key's create revision is 0, which means that the key
 * doesn't exist, put it, else read it. */
static const struct weir_proto_field absent_fields[] = {
    { 2, CONSTANT(TARGET_CREATE) },
    { 3, TEXT(key) },
    { 5, CONSTANT(0) },
};
static const struct weir_proto_message absent = { FLAT_FIELDS(absent_fields) };
static const struct weir_proto_field put_fields[] = {
    { 1, TEXT(key) },
    { 2, TEXT(value) },
    { 3, NUMBER(lease) },
};
static const struct weir_proto_message put = { FLAT_FIELDS(put_fields) };
static const struct weir_proto_field op_put_fields[] = { { 2, FLAT(put) } };
static const struct weir_proto_message op_put = { FLAT_FIELDS(op_put_fields) };
static const struct weir_proto_field op_range_fields[] = { { 1, FLAT(range) } };
static const struct weir_proto_message op_range = { FLAT_FIELDS(
    op_range_fields) };
static const struct weir_proto_field create_fields[] = {
    { 1, FLAT(absent) },
    { 2, FLAT(op_put) },
    { 3, FLAT(op_range) },
};
static const struct weir_proto_message create = { FLAT_FIELDS(create_fields) };

/* A second transaction: if the key has the lease, puts the value beside it. */
static const struct weir_proto_field leased_fields[] = {
    { 2, CONSTANT(TARGET_LEASE) },
    { 3, TEXT(key) },
    { 8, NUMBER(lease) },
};
static const struct weir_proto_message leased = { FLAT_FIELDS(leased_fields) };
static const struct weir_proto_field beside_fields[] = {
    { 1, TEXT(beside) },
    { 2, TEXT(value) },
};
static const struct weir_proto_message beside = { FLAT_FIELDS(beside_fields) };
static const struct weir_proto_field op_beside_fields[] = {
    { 2, FLAT(beside) },
};
static const struct weir_proto_message op_beside = { FLAT_FIELDS(
    op_beside_fields) };
static const struct weir_proto_field put_beside_fields[] = {
    { 1, FLAT(leased) },
    { 2, FLAT(op_beside) },
};
static const struct weir_proto_message put_beside = { FLAT_FIELDS(
    put_beside_fields) };

static const struct weir_proto_field watch_create_fields[] = {
    { 1, TEXT(key) },
    { 3, NUMBER(revision) },
};
static const struct weir_proto_message watch_create = { FLAT_FIELDS(
    watch_create_fields) };
static const struct weir_proto_field watch_fields[] = {
    { 1, FLAT(watch_create) },
};
static const struct weir_proto_message watch = { FLAT_FIELDS(watch_fields) };
#undef THIS

void weir_etcd_encode(const struct weir_etcd_ask *ask,
                      struct weir_etcd_bytes *out)
{
    static const struct weir_proto_message *const asks[] = {
        [WEIR_ETCD_READ] = &range,   [WEIR_ETCD_CREATE] = &create,
        [WEIR_ETCD_GRANT] = &grant,  [WEIR_ETCD_KEEP] = &lease,
        [WEIR_ETCD_REVOKE] = &lease, [WEIR_ETCD_PUT_BESIDE] = &put_beside,
        [WEIR_ETCD_WATCH] = &watch,
    };
    weir_assert(ask->key.len <= WEIR_ETCD_KEY_MAX);
    weir_assert(ask->value.len <= WEIR_ETCD_VALUE_MAX);
    weir_assert(ask->beside.len <= WEIR_ETCD_KEY_MAX);
    out->len = weir_proto_size(asks[ask->type], ask);
    weir_assert(out->len <= sizeof(out->p));
    weir_proto_put(asks[ask->type], ask, out->len, out->p);
}

/* ---- In ---- */

struct reading {
    struct weir_etcd_answer answer;
    uint32_t event_type; /* of the last event */
};

#define THIS struct reading
static const struct weir_proto_field header_fields[] = {
    { 3, NUMBER(answer.revision), .max = REVISION_MAX },
    { 4, NUMBER(answer.raft_term) },
};
static const struct weir_proto_message header = { FLAT_FIELDS(header_fields) };
static const struct weir_proto_field kv_fields[] = {
    { 2, NUMBER(answer.create_revision), .max = REVISION_MAX },
    { 3, NUMBER(answer.mod_revision), .max = REVISION_MAX },
    { 5, TEXT(answer.value) },
    { 6, NUMBER(answer.lease) },
};
static const struct weir_proto_message kv = { FLAT_FIELDS(kv_fields) };

static void forget_kv(void *message)
{
    struct weir_etcd_answer *answer = &((struct reading *)message)->answer;
    answer->create_revision = 0;
    answer->mod_revision = 0;
    answer->value = (struct weir_text){ NULL, 0 };
    answer->lease = 0;
    answer->found = false;
}

static const struct weir_proto_message last_kv = { FLAT_FIELDS(kv_fields),
                                                   .init = forget_kv };
static const struct weir_proto_field range_answer_fields[] = {
    { 1, FLAT(header) },
    { 2, FLAT_LAST(last_kv), IF(answer.found) },
};
static const struct weir_proto_message range_answer = { FLAT_FIELDS(
    range_answer_fields) };

/* Answers to the operations of a transaction, of which one is done. Their
 * headers repeat the transaction's. */
static const struct weir_proto_field op_range_answer_fields[] = {
    { 2, FLAT_LAST(last_kv), IF(answer.found) },
};
static const struct weir_proto_message op_range_answer = { FLAT_FIELDS(
    op_range_answer_fields) };
static const struct weir_proto_message op_put_answer = { .init = forget_kv };
static const struct weir_proto_field op_answer_fields[] = {
    { 1, FLAT(op_range_answer) },
    { 2, FLAT(op_put_answer) },
};
static const struct weir_proto_message op_answer = {
    FLAT_FIELDS(op_answer_fields), .init = forget_kv
};
static const struct weir_proto_field txn_answer_fields[] = {
    { 1, FLAT(header) },
    { 2, BOOL(answer.created) },
    { 3, FLAT_LAST(op_answer) },
};
static const struct weir_proto_message txn_answer = { FLAT_FIELDS(
    txn_answer_fields) };
static const struct weir_proto_field lease_answer_fields[] = {
    { 1, FLAT(header) },
    { 2, NUMBER(answer.lease) },
    { 3, NUMBER(answer.ttl_s) },
};
static const struct weir_proto_message lease_answer = { FLAT_FIELDS(
    lease_answer_fields) };
static const struct weir_proto_field revoke_answer_fields[] = {
    { 1, FLAT(header) },
};
static const struct weir_proto_message revoke_answer = { FLAT_FIELDS(
    revoke_answer_fields) };

/* The last event counts. */
static void begin_event(void *message)
{
    struct reading *reading = message;
    reading->event_type = 0;
    reading->answer.changes++;
    forget_kv(message);
}

static const struct weir_proto_field event_fields[] = {
    { 1, INT32(event_type) },
    { 2, FLAT(kv) },
};
static const struct weir_proto_message event = { FLAT_FIELDS(event_fields),
                                                 .init = begin_event };
static const struct weir_proto_field watch_answer_fields[] = {
    { 1, FLAT(header) },          { 3, BOOL(answer.created) },
    { 4, BOOL(answer.canceled) }, { 5, NUMBER(answer.compacted) },
    { 6, TEXT(answer.reason) },   { 11, FLAT_LAST(event) },
};
static const struct weir_proto_message watch_answer = { FLAT_FIELDS(
    watch_answer_fields) };
#undef THIS

int weir_etcd_decode(enum weir_etcd_type type, const void *bytes, size_t len,
                     struct weir_etcd_answer *out)
{
    static const struct weir_proto_message *const answers[] = {
        [WEIR_ETCD_READ] = &range_answer,
        [WEIR_ETCD_CREATE] = &txn_answer,
        [WEIR_ETCD_GRANT] = &lease_answer,
        [WEIR_ETCD_KEEP] = &lease_answer,
        [WEIR_ETCD_REVOKE] = &revoke_answer,
        [WEIR_ETCD_PUT_BESIDE] = &txn_answer,
        [WEIR_ETCD_WATCH] = &watch_answer,
    };
    struct reading reading = { .event_type = 0 };
    struct weir_etcd_answer *answer = &reading.answer;
    if (weir_proto_get(answers[type], weir_wire_over(bytes, len),
                       WEIR_PROTO_AGAIN_PART_REFUSED, NULL, &reading, NULL) < 0)
        return WEIR_EPROTOCOL;
    if (type == WEIR_ETCD_WATCH && answer->changes > 0) {
        answer->revision = answer->mod_revision;
        answer->found = reading.event_type != EVENT_DELETE;
    }
    *out = *answer;
    return 0;
}
