/* SPDX-License-Identifier: MIT
 * test_etcd_v3.c - the bytes of etcd's calls, compared with the code generated
 * from proto/etcd.proto: each reads the other's messages. And broken
 * messages. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "codec/etcd_v3.h"
#include "core/base/rng.h"
#include "etcd.pb-c.h"
#include "etcd_oracle.h"
#include "seed.h"
#include "wire_variants.h"

static char long_key[WEIR_ETCD_KEY_MAX];
static char long_value[WEIR_ETCD_VALUE_MAX];

static struct weir_etcd_bytes encode(struct weir_etcd_ask ask)
{
    struct weir_etcd_bytes bytes;
    weir_etcd_encode(&ask, &bytes);
    return bytes;
}

static void assert_bytes(ProtobufCBinaryData data, struct weir_text text)
{
    assert_int_equal(data.len, text.len);
    assert_memory_equal(data.data, text.p, text.len);
}

/* ---- Out ---- */

static void the_key_if_there_is_none(struct weir_text key,
                                     struct weir_text value, int64_t lease)
{
    struct weir_etcd_bytes bytes = encode((struct weir_etcd_ask){
        .type = WEIR_ETCD_CREATE, .key = key, .value = value, .lease = lease });
    Etcdserverpb__TxnRequest *txn =
        etcdserverpb__txn_request__unpack(NULL, bytes.len, bytes.p);
    assert_non_null(txn);
    assert_int_equal(txn->n_compare, 1);
    assert_int_equal(txn->compare[0]->result,
                     ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL);
    assert_int_equal(txn->compare[0]->target,
                     ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE);
    assert_bytes(txn->compare[0]->key, key);
    assert_int_equal(txn->compare[0]->target_union_case,
                     ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION);
    assert_int_equal(txn->compare[0]->create_revision, 0);
    assert_int_equal(txn->n_success, 1);
    assert_int_equal(txn->success[0]->request_case,
                     ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT);
    assert_bytes(txn->success[0]->request_put->key, key);
    assert_bytes(txn->success[0]->request_put->value, value);
    assert_int_equal(txn->success[0]->request_put->lease, lease);
    assert_int_equal(txn->n_failure, 1);
    assert_int_equal(txn->failure[0]->request_case,
                     ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE);
    assert_bytes(txn->failure[0]->request_range->key, key);
    etcdserverpb__txn_request__free_unpacked(txn, NULL);
}

static void what_puts_another_beside_it(void **state)
{
    (void)state;
    struct weir_etcd_bytes bytes =
        encode((struct weir_etcd_ask){ .type = WEIR_ETCD_PUT_BESIDE,
                                       .key = WEIR_TEXT("lock"),
                                       .beside = WEIR_TEXT("lock/number"),
                                       .value = WEIR_TEXT("1f"),
                                       .lease = 7 });
    Etcdserverpb__TxnRequest *txn =
        etcdserverpb__txn_request__unpack(NULL, bytes.len, bytes.p);
    assert_non_null(txn);
    assert_int_equal(txn->n_compare, 1);
    assert_int_equal(txn->compare[0]->result,
                     ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL);
    assert_int_equal(txn->compare[0]->target,
                     ETCDSERVERPB__COMPARE__COMPARE_TARGET__LEASE);
    assert_bytes(txn->compare[0]->key, WEIR_TEXT("lock"));
    assert_int_equal(txn->compare[0]->target_union_case,
                     ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE);
    assert_int_equal(txn->compare[0]->lease, 7);
    assert_int_equal(txn->n_success, 1);
    assert_int_equal(txn->success[0]->request_case,
                     ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT);
    assert_bytes(txn->success[0]->request_put->key, WEIR_TEXT("lock/number"));
    assert_bytes(txn->success[0]->request_put->value, WEIR_TEXT("1f"));
    assert_int_equal(txn->success[0]->request_put->lease, 0);
    assert_int_equal(txn->n_failure, 0);
    etcdserverpb__txn_request__free_unpacked(txn, NULL);
}

static void what_creates_the_key(void **state)
{
    (void)state;
    struct weir_text longest = { long_key, sizeof long_key };
    struct weir_text most = { long_value, sizeof long_value };
    memset(long_key, 'k', sizeof long_key);
    memset(long_value, 'v', sizeof long_value);
    the_key_if_there_is_none(WEIR_TEXT("lock"), WEIR_TEXT("a:1"), 7);
    the_key_if_there_is_none(longest, most, INT64_MAX);
}

static void what_reads_and_watches_it(void **state)
{
    (void)state;
    struct weir_text key = { long_key, sizeof long_key };
    struct weir_etcd_bytes bytes =
        encode((struct weir_etcd_ask){ .type = WEIR_ETCD_READ, .key = key });
    Etcdserverpb__RangeRequest *range =
        etcdserverpb__range_request__unpack(NULL, bytes.len, bytes.p);
    assert_non_null(range);
    assert_bytes(range->key, key);
    etcdserverpb__range_request__free_unpacked(range, NULL);

    bytes = encode((struct weir_etcd_ask){
        .type = WEIR_ETCD_WATCH, .key = key, .revision = INT64_MAX });
    Etcdserverpb__WatchRequest *watch =
        etcdserverpb__watch_request__unpack(NULL, bytes.len, bytes.p);
    assert_non_null(watch);
    assert_int_equal(watch->request_union_case,
                     ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST);
    assert_bytes(watch->create_request->key, key);
    assert_int_equal(watch->create_request->start_revision, INT64_MAX);
    etcdserverpb__watch_request__free_unpacked(watch, NULL);
}

static void what_is_asked_of_leases(void **state)
{
    (void)state;
    struct weir_etcd_bytes bytes =
        encode((struct weir_etcd_ask){ .type = WEIR_ETCD_GRANT, .ttl_s = 10 });
    Etcdserverpb__LeaseGrantRequest *grant =
        etcdserverpb__lease_grant_request__unpack(NULL, bytes.len, bytes.p);
    assert_int_equal(grant->ttl, 10);
    assert_int_equal(grant->id, 0);
    etcdserverpb__lease_grant_request__free_unpacked(grant, NULL);
    enum weir_etcd_type types[] = { WEIR_ETCD_KEEP, WEIR_ETCD_REVOKE };
    for (size_t i = 0; i < WEIR_COUNT_OF(types); i++) {
        bytes = encode(
            (struct weir_etcd_ask){ .type = types[i], .lease = INT64_MAX });
        Etcdserverpb__LeaseKeepAliveRequest *keep =
            etcdserverpb__lease_keep_alive_request__unpack(NULL, bytes.len,
                                                           bytes.p);
        assert_int_equal(keep->id, INT64_MAX);
        etcdserverpb__lease_keep_alive_request__free_unpacked(keep, NULL);
    }
}

/* ---- In ---- */

static uint8_t packed[4096];

static enum wire_verdict judge_etcd(void *context, const uint8_t *bytes,
                                    size_t len)
{
    struct weir_etcd_answer answer;
    enum weir_etcd_type type = *(enum weir_etcd_type *)context;
    if (weir_etcd_decode(type, bytes, len, &answer) < 0)
        return WIRE_REFUSED;
    return oracle_etcd(type, bytes, len, &answer) ? WIRE_ALIKE : WIRE_DIFFERS;
}

static struct weir_etcd_answer decode(enum weir_etcd_type type, size_t len)
{
    struct weir_etcd_answer answer;
    struct weir_rng rng = made_seed("etcd");
    for (int i = 0; i < 1000; i++)
        wire_check(&rng, oracle_etcd_type(type), packed, len, judge_etcd,
                   &type);
    assert_int_equal(weir_etcd_decode(type, packed, len, &answer), 0);
    assert_true(oracle_etcd(type, packed, len, &answer));
    return answer;
}

/* Fields of etcd's that Weir doesn't read. */
static ProtobufCMessageUnknownField kv_rest[] = {
    { 1, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 5, (uint8_t *)"\x04lock" },
    { 4, PROTOBUF_C_WIRE_TYPE_VARINT, 1, (uint8_t *)"\x02" }, /* version */
};
static ProtobufCMessageUnknownField header_rest[] = {
    /* cluster_id, member_id */
    { 1, PROTOBUF_C_WIRE_TYPE_VARINT, 10,
      (uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" },
    { 2, PROTOBUF_C_WIRE_TYPE_VARINT, 1, (uint8_t *)"\x01" },
};

static Etcdserverpb__KeyValue a_key(void)
{
    Etcdserverpb__KeyValue kv = ETCDSERVERPB__KEY_VALUE__INIT;
    kv.base.n_unknown_fields = WEIR_COUNT_OF(kv_rest);
    kv.base.unknown_fields = kv_rest;
    kv.value = (ProtobufCBinaryData){ 3, (uint8_t *)"a:1" };
    kv.create_revision = 5;
    kv.mod_revision = 6;
    kv.lease = INT64_MAX;
    return kv;
}

static void assert_key(const struct weir_etcd_answer *answer)
{
    assert_true(answer->found);
    assert_true(weir_text_equal(answer->value, WEIR_TEXT("a:1")));
    assert_int_equal(answer->create_revision, 5);
    assert_int_equal(answer->mod_revision, 6);
    assert_int_equal(answer->lease, INT64_MAX);
}

static Etcdserverpb__ResponseHeader a_header(void)
{
    Etcdserverpb__ResponseHeader header = ETCDSERVERPB__RESPONSE_HEADER__INIT;
    header.base.n_unknown_fields = WEIR_COUNT_OF(header_rest);
    header.base.unknown_fields = header_rest;
    header.revision = 42;
    header.raft_term = 3;
    return header;
}

static void a_key_that_was_read(void **state)
{
    (void)state;
    Etcdserverpb__RangeResponse range = ETCDSERVERPB__RANGE_RESPONSE__INIT;
    Etcdserverpb__ResponseHeader header = a_header();
    range.header = &header;
    size_t len = etcdserverpb__range_response__pack(&range, packed);
    struct weir_etcd_answer answer = decode(WEIR_ETCD_READ, len);
    assert_false(answer.found);
    assert_int_equal(answer.revision, 42);

    Etcdserverpb__KeyValue kv = a_key();
    Etcdserverpb__KeyValue *kvs[] = { &kv };
    range.n_kvs = 1;
    range.kvs = kvs;
    len = etcdserverpb__range_response__pack(&range, packed);
    answer = decode(WEIR_ETCD_READ, len);
    assert_key(&answer);

    /* the same, as the result of a CREATE */
    Etcdserverpb__OpRangeResponse op_range =
        ETCDSERVERPB__OP_RANGE_RESPONSE__INIT;
    Etcdserverpb__ResponseOp op = ETCDSERVERPB__RESPONSE_OP__INIT;
    Etcdserverpb__ResponseOp *ops[] = { &op };
    Etcdserverpb__TxnResponse txn = ETCDSERVERPB__TXN_RESPONSE__INIT;
    op.response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
    op_range.n_kvs = 1;
    op_range.kvs = kvs;
    op.response_range = &op_range;
    txn.header = &header;
    txn.n_responses = 1;
    txn.responses = ops;
    len = etcdserverpb__txn_response__pack(&txn, packed);
    answer = decode(WEIR_ETCD_CREATE, len);
    assert_false(answer.created);
    assert_int_equal(answer.revision, 42);
    assert_key(&answer);
}

static void a_key_that_was_created(void **state)
{
    (void)state;
    Etcdserverpb__ResponseHeader header = a_header();
    Etcdserverpb__PutResponse put = ETCDSERVERPB__PUT_RESPONSE__INIT;
    Etcdserverpb__ResponseOp op = ETCDSERVERPB__RESPONSE_OP__INIT;
    Etcdserverpb__ResponseOp *ops[] = { &op };
    Etcdserverpb__TxnResponse txn = ETCDSERVERPB__TXN_RESPONSE__INIT;
    op.response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
    op.response_put = &put;
    txn.header = &header;
    txn.succeeded = true;
    txn.n_responses = 1;
    txn.responses = ops;
    size_t len = etcdserverpb__txn_response__pack(&txn, packed);
    struct weir_etcd_answer answer = decode(WEIR_ETCD_CREATE, len);
    assert_true(answer.created);
    assert_false(answer.found);
    assert_int_equal(answer.revision, 42);
}

static void a_lease(void **state)
{
    (void)state;
    Etcdserverpb__ResponseHeader header = a_header();
    Etcdserverpb__LeaseGrantResponse grant =
        ETCDSERVERPB__LEASE_GRANT_RESPONSE__INIT;
    grant.header = &header;
    grant.id = INT64_MAX;
    grant.ttl = 10;
    size_t len = etcdserverpb__lease_grant_response__pack(&grant, packed);
    struct weir_etcd_answer answer = decode(WEIR_ETCD_GRANT, len);
    assert_int_equal(answer.lease, INT64_MAX);
    assert_int_equal(answer.ttl_s, 10);
    Etcdserverpb__LeaseKeepAliveResponse keep =
        ETCDSERVERPB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    keep.id = 9;
    len = etcdserverpb__lease_keep_alive_response__pack(&keep, packed);
    answer = decode(WEIR_ETCD_KEEP, len);
    assert_int_equal(answer.lease, 9);
    assert_int_equal(answer.ttl_s, 0);
}

/* Of several events the last counts, and a deletion has no value. */
static void what_a_watch_tells(void **state)
{
    (void)state;
    Etcdserverpb__ResponseHeader header = a_header();
    Etcdserverpb__KeyValue kv = a_key();
    Etcdserverpb__KeyValue gone = ETCDSERVERPB__KEY_VALUE__INIT;
    Etcdserverpb__Event put = ETCDSERVERPB__EVENT__INIT;
    Etcdserverpb__Event deletion = ETCDSERVERPB__EVENT__INIT;
    Etcdserverpb__Event *events[] = { &put, &deletion };
    Etcdserverpb__WatchResponse watch = ETCDSERVERPB__WATCH_RESPONSE__INIT;
    put.kv = &kv;
    gone.base.n_unknown_fields = 1;
    gone.base.unknown_fields = kv_rest;
    gone.mod_revision = 7;
    deletion.type = ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE;
    deletion.kv = &gone;
    watch.header = &header;
    watch.n_events = 1;
    watch.events = events;
    size_t len = etcdserverpb__watch_response__pack(&watch, packed);
    struct weir_etcd_answer answer = decode(WEIR_ETCD_WATCH, len);
    assert_key(&answer);
    assert_int_equal(answer.changes, 1);
    assert_int_equal(answer.revision, 6);
    watch.n_events = 2;
    len = etcdserverpb__watch_response__pack(&watch, packed);
    answer = decode(WEIR_ETCD_WATCH, len);
    assert_int_equal(answer.changes, 2);
    assert_false(answer.found);
    assert_int_equal(answer.value.len, 0);
    assert_int_equal(answer.revision, 7);
}

static void how_a_watch_begins_and_ends(void **state)
{
    (void)state;
    Etcdserverpb__WatchResponse watch = ETCDSERVERPB__WATCH_RESPONSE__INIT;
    watch.created = true;
    size_t len = etcdserverpb__watch_response__pack(&watch, packed);
    struct weir_etcd_answer answer = decode(WEIR_ETCD_WATCH, len);
    assert_true(answer.created);
    assert_false(answer.canceled);
    assert_int_equal(answer.changes, 0);
    watch.canceled = true;
    watch.compact_revision = 100;
    watch.cancel_reason = (char *)"compacted";
    len = etcdserverpb__watch_response__pack(&watch, packed);
    answer = decode(WEIR_ETCD_WATCH, len);
    assert_true(answer.canceled);
    assert_int_equal(answer.compacted, 100);
    assert_true(weir_text_equal(answer.reason, WEIR_TEXT("compacted")));
}

/* A number in place of a message, or a message that is cut: refused, and the
 * answer is unchanged. */
static void what_is_no_message(void **state)
{
    (void)state;
    static const struct {
        enum weir_etcd_type type;
        size_t len;
        uint8_t bytes[8];
    } broken[] = {
        { WEIR_ETCD_READ, 2, { 0x08, 0x01 } },
        { WEIR_ETCD_READ, 2, { 0x12, 0x05 } },
        { WEIR_ETCD_READ, 4, { 0x12, 0x02, 0x2a, 0x09 } },
        { WEIR_ETCD_READ, 4, { 0x12, 0x02, 0x28, 0x01 } },
        { WEIR_ETCD_CREATE, 2, { 0x12, 0x00 } },
        { WEIR_ETCD_GRANT, 2, { 0x12, 0x00 } },
        { WEIR_ETCD_KEEP, 1, { 0x18 } },
        { WEIR_ETCD_REVOKE, 2, { 0x0a, 0x01 } },
        { WEIR_ETCD_WATCH, 4, { 0x5a, 0x02, 0x0a, 0x00 } },
        { WEIR_ETCD_WATCH, 1, { 0x00 } },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(broken); i++) {
        struct weir_etcd_answer answer = { .revision = 77 };
        assert_int_equal(weir_etcd_decode(broken[i].type, broken[i].bytes,
                                          broken[i].len, &answer),
                         WEIR_EPROTOCOL);
        assert_int_equal(answer.revision, 77);
    }
    struct weir_etcd_answer empty = decode(WEIR_ETCD_WATCH, 0);
    assert_int_equal(empty.changes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_creates_the_key),
        cmocka_unit_test(what_puts_another_beside_it),
        cmocka_unit_test(what_reads_and_watches_it),
        cmocka_unit_test(what_is_asked_of_leases),
        cmocka_unit_test(a_key_that_was_read),
        cmocka_unit_test(a_key_that_was_created),
        cmocka_unit_test(a_lease),
        cmocka_unit_test(what_a_watch_tells),
        cmocka_unit_test(how_a_watch_begins_and_ends),
        cmocka_unit_test(what_is_no_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
