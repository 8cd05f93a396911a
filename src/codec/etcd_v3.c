/* SPDX-License-Identifier: MIT
 * codec/etcd_v3.c - the bytes of etcd v3's calls.
 *
 * Theory of operation. Seven small messages are sent and five kinds received,
 * with some twenty fields in all. Code by hand needs no allocation and no
 * generated code in libweir's archive, and skips unknown fields. Nested
 * messages are encoded from the innermost outwards, each in a block of its own.
 * Each received message has a reader, and all readers fill the one flat answer.
 *
 * Of a singular field that comes twice the last one counts, as in protobuf. The
 * numbers are etcd's (rpc.proto, kv.proto; see proto/etcd.proto). */

#include "codec/etcd_v3.h"

#include "codec/protobuf_bytes.h"

/* The numbers used below, of fields and of enum values. */
enum {
    HEADER_REVISION = 3,
    HEADER_RAFT_TERM = 4,
    KV_CREATE_REVISION = 2,
    KV_MOD_REVISION = 3,
    KV_VALUE = 5,
    KV_LEASE = 6,
    COMPARE_TARGET = 2,
    COMPARE_KEY = 3,
    COMPARE_CREATE_REVISION = 5,
    COMPARE_LEASE = 8,
    TARGET_CREATE = 1,
    TARGET_LEASE = 4,
    OP_RANGE = 1,
    OP_PUT = 2,
    TXN_COMPARE = 1,
    TXN_SUCCESS = 2,
    TXN_FAILURE = 3,
    WATCH_CREATE = 1,
    WATCH_KEY = 1,
    WATCH_START = 3,
    EVENT_TYPE = 1,
    EVENT_KV = 2,
    EVENT_DELETE = 1,
};

#define BLOCK_MAX 1024 /* of a nested message: key, value, a few numbers */

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

struct block {
    size_t len;
    uint8_t p[BLOCK_MAX];
};

static void put_number_field(struct block *block, unsigned number,
                             int64_t value)
{
    weir_assert(block->len + weir_wire_number_size((uint64_t)value) <=
                BLOCK_MAX);
    uint8_t *end =
        weir_wire_put_number(block->p + block->len, number, (uint64_t)value);
    block->len = (size_t)(end - block->p);
}

static void put_text_field(struct block *block, unsigned number,
                           struct weir_text text)
{
    weir_assert(block->len + weir_wire_bytes_size(text.len) <= BLOCK_MAX);
    uint8_t *end = weir_wire_put_text(block->p + block->len, number, text);
    block->len = (size_t)(end - block->p);
}

static struct weir_text block_text(const struct block *block)
{
    return (struct weir_text){ (const char *)block->p, block->len };
}

/* Turns 'block' into a field of another message. */
static void wrap(struct block *block, unsigned number)
{
    struct block inner = *block;
    block->len = 0;
    put_text_field(block, number, block_text(&inner));
}

static void append_block(struct weir_etcd_bytes *out, unsigned number,
                         const struct block *block)
{
    weir_assert(out->len + weir_wire_bytes_size(block->len) <= sizeof(out->p));
    uint8_t *end =
        weir_wire_put_text(out->p + out->len, number, block_text(block));
    out->len = (size_t)(end - out->p);
}

/* One transaction: if the key's create revision is 0, which means that the key
 * doesn't exist, put it, else read it. */
static void encode_create(const struct weir_etcd_ask *ask,
                          struct weir_etcd_bytes *out)
{
    struct block compare = { .len = 0 };
    put_number_field(&compare, COMPARE_TARGET, TARGET_CREATE);
    put_text_field(&compare, COMPARE_KEY, ask->key);
    /* Encoded by hand: this field must be present although it is 0. */
    compare.p[compare.len++] = COMPARE_CREATE_REVISION << 3;
    compare.p[compare.len++] = 0;
    append_block(out, TXN_COMPARE, &compare);

    struct block put = { .len = 0 };
    put_text_field(&put, 1, ask->key);
    put_text_field(&put, 2, ask->value);
    put_number_field(&put, 3, ask->lease);
    wrap(&put, OP_PUT);
    append_block(out, TXN_SUCCESS, &put);

    struct block range = { .len = 0 };
    put_text_field(&range, 1, ask->key);
    wrap(&range, OP_RANGE);
    append_block(out, TXN_FAILURE, &range);
}

static void encode_put_beside(const struct weir_etcd_ask *ask,
                              struct weir_etcd_bytes *out)
{
    struct block compare = { .len = 0 };
    put_number_field(&compare, COMPARE_TARGET, TARGET_LEASE);
    put_text_field(&compare, COMPARE_KEY, ask->key);
    put_number_field(&compare, COMPARE_LEASE, ask->lease);
    append_block(out, TXN_COMPARE, &compare);

    struct block put = { .len = 0 };
    put_text_field(&put, 1, ask->beside);
    put_text_field(&put, 2, ask->value);
    wrap(&put, OP_PUT);
    append_block(out, TXN_SUCCESS, &put);
}

static void encode_watch(const struct weir_etcd_ask *ask,
                         struct weir_etcd_bytes *out)
{
    struct block create = { .len = 0 };
    put_text_field(&create, WATCH_KEY, ask->key);
    put_number_field(&create, WATCH_START, ask->revision);
    append_block(out, WATCH_CREATE, &create);
}

/* A message with a single field, number 1. */
static void encode_number(int64_t value, struct weir_etcd_bytes *out)
{
    uint8_t *end = weir_wire_put_number(out->p, 1, (uint64_t)value);
    out->len = (size_t)(end - out->p);
}

void weir_etcd_encode(const struct weir_etcd_ask *ask,
                      struct weir_etcd_bytes *out)
{
    weir_assert(ask->key.len <= WEIR_ETCD_KEY_MAX);
    weir_assert(ask->value.len <= WEIR_ETCD_VALUE_MAX);
    weir_assert(ask->beside.len <= WEIR_ETCD_KEY_MAX);
    out->len = 0;
    switch (ask->type) {
    case WEIR_ETCD_READ:
        out->len = (size_t)(weir_wire_put_text(out->p, 1, ask->key) - out->p);
        return;
    case WEIR_ETCD_CREATE:
        encode_create(ask, out);
        return;
    case WEIR_ETCD_PUT_BESIDE:
        encode_put_beside(ask, out);
        return;
    case WEIR_ETCD_WATCH:
        encode_watch(ask, out);
        return;
    case WEIR_ETCD_GRANT:
        encode_number(ask->ttl_s, out);
        return;
    case WEIR_ETCD_KEEP:
    case WEIR_ETCD_REVOKE:
        encode_number(ask->lease, out);
        return;
    }
}

/* ---- In ---- */

/* Puts one field into the answer; false: the field is malformed. */
typedef bool read_fn(const struct weir_wire_item *item,
                     struct weir_etcd_answer *out);

static bool read_items(struct weir_wire_in in, read_fn *read,
                       struct weir_etcd_answer *out)
{
    struct weir_wire_item item;
    int more = weir_wire_next(&in, &item);
    while (more > 0 && read(&item, out))
        more = weir_wire_next(&in, &item);
    return more == 0;
}

/* false: the field has another wire type than its number demands. */
static bool to_number(const struct weir_wire_item *item, int64_t *out)
{
    *out = (int64_t)item->value;
    return item->type == WEIR_WIRE_VARINT;
}

/* A revision has room for one more: it is below INT64_MAX. */
static bool to_revision(const struct weir_wire_item *item, int64_t *out)
{
    return to_number(item, out) && *out >= 0 && *out < INT64_MAX;
}

static bool to_bool(const struct weir_wire_item *item, bool *out)
{
    *out = item->value != 0;
    return item->type == WEIR_WIRE_VARINT;
}

static bool to_text(const struct weir_wire_item *item, struct weir_text *out)
{
    *out = weir_wire_text(item->bytes);
    return item->type == WEIR_WIRE_BYTES;
}

static bool read_nested_items(const struct weir_wire_item *item, read_fn *read,
                              struct weir_etcd_answer *out)
{
    return item->type == WEIR_WIRE_BYTES && read_items(item->bytes, read, out);
}

static bool read_answer_header(const struct weir_wire_item *item,
                               struct weir_etcd_answer *out)
{
    switch (item->number) {
    case HEADER_REVISION:
        return to_revision(item, &out->revision);
    case HEADER_RAFT_TERM:
        out->raft_term = item->value;
        return item->type == WEIR_WIRE_VARINT;
    default: /* of a number, not of an enum */
        return true;
    }
}

static bool read_kv(const struct weir_wire_item *item,
                    struct weir_etcd_answer *out)
{
    switch (item->number) {
    case KV_CREATE_REVISION:
        return to_revision(item, &out->create_revision);
    case KV_MOD_REVISION:
        return to_revision(item, &out->mod_revision);
    case KV_VALUE:
        return to_text(item, &out->value);
    case KV_LEASE:
        return to_number(item, &out->lease);
    default: /* of a number, not of an enum */
        return true;
    }
}

static bool read_range_answer(const struct weir_wire_item *item,
                              struct weir_etcd_answer *out)
{
    if (item->number == 1)
        return read_nested_items(item, read_answer_header, out);
    if (item->number != 2)
        return true;
    out->found = true;
    return read_nested_items(item, read_kv, out);
}

static bool read_response(const struct weir_wire_item *item,
                          struct weir_etcd_answer *out)
{
    return item->number != OP_RANGE ||
           read_nested_items(item, read_range_answer, out);
}

static bool read_txn(const struct weir_wire_item *item,
                     struct weir_etcd_answer *out)
{
    switch (item->number) {
    case 1:
        return read_nested_items(item, read_answer_header, out);
    case 2:
        return to_bool(item, &out->created);
    case 3:
        return read_nested_items(item, read_response, out);
    default: /* of a number, not of an enum */
        return true;
    }
}

static bool read_lease(const struct weir_wire_item *item,
                       struct weir_etcd_answer *out)
{
    switch (item->number) {
    case 1:
        return read_nested_items(item, read_answer_header, out);
    case 2:
        return to_number(item, &out->lease);
    case 3:
        return to_number(item, &out->ttl_s);
    default: /* of a number, not of an enum */
        return true;
    }
}

static bool read_revoke(const struct weir_wire_item *item,
                        struct weir_etcd_answer *out)
{
    return item->number != 1 ||
           read_nested_items(item, read_answer_header, out);
}

static bool read_event(const struct weir_wire_item *item,
                       struct weir_etcd_answer *out)
{
    if (item->number == EVENT_TYPE) {
        out->found = item->value != EVENT_DELETE;
        return item->type == WEIR_WIRE_VARINT;
    }
    return item->number != EVENT_KV || read_nested_items(item, read_kv, out);
}

/* The last event counts: it overwrites the fields of those before it. */
static bool read_change(const struct weir_wire_item *item,
                        struct weir_etcd_answer *out)
{
    out->changes++;
    out->found = true;
    out->create_revision = 0;
    out->mod_revision = 0;
    out->value = (struct weir_text){ NULL, 0 };
    out->lease = 0;
    return read_nested_items(item, read_event, out);
}

static bool read_watch(const struct weir_wire_item *item,
                       struct weir_etcd_answer *out)
{
    switch (item->number) {
    case 1:
        return read_nested_items(item, read_answer_header, out);
    case 3:
        return to_bool(item, &out->created);
    case 4:
        return to_bool(item, &out->canceled);
    case 5:
        return to_number(item, &out->compacted);
    case 6:
        return to_text(item, &out->reason);
    case 11:
        return read_change(item, out);
    default: /* of a number, not of an enum */
        return true;
    }
}

int weir_etcd_decode(enum weir_etcd_type type, const void *bytes, size_t len,
                     struct weir_etcd_answer *out)
{
    static read_fn *const readers[] = {
        [WEIR_ETCD_READ] = read_range_answer, [WEIR_ETCD_CREATE] = read_txn,
        [WEIR_ETCD_GRANT] = read_lease,       [WEIR_ETCD_KEEP] = read_lease,
        [WEIR_ETCD_REVOKE] = read_revoke,     [WEIR_ETCD_PUT_BESIDE] = read_txn,
        [WEIR_ETCD_WATCH] = read_watch,
    };
    struct weir_etcd_answer answer = { .revision = 0 };
    if (!read_items(weir_wire_over(bytes, len), readers[type], &answer))
        return WEIR_EPROTOCOL;
    if (type == WEIR_ETCD_WATCH && answer.changes > 0)
        answer.revision = answer.mod_revision;
    *out = answer;
    return 0;
}
