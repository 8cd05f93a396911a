/* SPDX-License-Identifier: MIT
 * codec/weir_v1_columns.c - report and fills as bytes, by hand.
 *
 * Theory of operation. A root takes tens of millions of counters a second out
 * of reports; a general decoder would first make an array for each column, and
 * its caller would join them into rows. Here a column is a span of bytes, which
 * is read once, straight into the rows of the message:
 *
 *     slot_steps  03 01 01 05 ...      rows: | slot passed refused late |
 *     passed      c8 01 02 90 03 ...         |  3    100      0     0   |
 *     refused_steps 01 / refused 07          |  4      1      7     0   |
 *
 * Steps make slots ascend by construction, and dense slots cost a byte. The
 * arena provides as many rows as the span of steps can hold, so a message can't
 * claim more rows than it has bytes. A column that is mostly zeros is sparse:
 * for each other value a step to its row, and the value.
 *
 * proto/weir.proto is authoritative: the tests compare both directions with
 * protobuf-c. If protobuf lets a sender choose (a column in pieces or
 * unpacked, a field twice), only one form is accepted.
 *
 * Writing takes two walks, as a packed column's length precedes it. Rejected:
 * leaving room for the longest length and closing the gap with a padded one
 * (saves 1 ns a row and makes bytes that a re-encoding changes). */

#include "codec/weir_v1_internal.h"

#include <assert.h>

/* Numbers of fields. */
enum {
    REPORT_NUMBER = 1,
    REPORT_EPOCH = 2,
    REPORT_LATE_FROM = 3,
    REPORT_UNKNOWN = 5,
    REPORT_ANNOUNCES = 6,
    REPORT_COUNTS = 7,
    REPORT_CARRIED = 8,
    REPORT_NO_ROOM = 9,
    REPORT_AGAIN = 10,
    REPORT_BELOW = 11,

    ANNOUNCE_SLOT = 1,
    ANNOUNCE_NAME = 2,
    ANNOUNCE_CREATED = 3,
    ANNOUNCE_PASSED = 4, /* the announce's total 'base' */
    ANNOUNCE_REFUSED = 5,
    ANNOUNCE_FILL = 6,
    ANNOUNCE_WITNESSED = 7,
    ANNOUNCE_SANK = 8,
    ANNOUNCE_IN_FLIGHT = 9,

    COUNTS_SLOT_STEPS = 1,
    COUNTS_PASSED = 2,
    COUNTS_REFUSED_STEPS = 3,
    COUNTS_REFUSED = 4,
    COUNTS_LATE_STEPS = 5,
    COUNTS_LATE = 6,
    COUNTS_PACE_STEPS = 7,
    COUNTS_PACE = 8,
    COUNTS_CARRY_STEPS = 9,
    COUNTS_CARRY = 10,
    COUNTS_AHEAD_STEPS = 11,
    COUNTS_AHEAD = 12,

    FILLS_NUMBER = 1,
    FILLS_STAMP = 2,
    FILLS_REPORT_BACKOFF = 3,
    FILLS_LIMITERS = 4,
    FILLS_SLOT_STEPS = 5,
    FILLS_FILL = 6,
    FILLS_SLACK = 7,
    FILLS_UNKNOWN = 8,
    FILLS_ANSWER = 9,
    FILLS_PACE = 10,
    FILLS_TOP_AGE = 11,
    FILLS_DENIED = 12,

    FIELDS_MAX = 13, /* above all numbers */
};

int weir_v1_name(struct weir_wire_in bytes, struct weir_text *out)
{
    struct weir_text name = weir_wire_text(bytes);
    if (weir_name_check(name, NULL) < 0)
        return WEIR_EPROTOCOL;
    *out = name;
    return 0;
}

/* ---- Fields of one message, each at most once ---- */

/* The fields of a message; 'repeated' ones are handed out one by one. */
struct fields {
    uint32_t seen; /* a bit for the number of each field read */
    uint64_t numbers[FIELDS_MAX];
    struct weir_wire_in spans[FIELDS_MAX];
};

/* Reads the next field. 'as_number', 'as_bytes' and 'repeated' have a bit for
 * each field number of that kind; repeated ones aren't kept in 'fields'.
 * Returns the field's number, 0 at the end, or an error; 'out' holds the
 * item. */
static int next_field(struct weir_wire_in *in, uint32_t as_number,
                      uint32_t as_bytes, uint32_t repeated,
                      struct fields *fields, struct weir_wire_item *out)
{
    for (;;) {
        int got = weir_wire_next(in, out);
        if (got <= 0)
            return got < 0 ? WEIR_ESYNTAX : 0;
        uint32_t bit = out->number < FIELDS_MAX ? 1u << out->number : 0;
        if (!(bit & (as_number | as_bytes | repeated)))
            continue;
        enum weir_wire_type wanted =
            bit & as_number ? WEIR_WIRE_VARINT : WEIR_WIRE_BYTES;
        if (out->type != wanted)
            return WEIR_EPROTOCOL;
        if (bit & repeated)
            return (int)out->number;
        if (fields->seen & bit)
            return WEIR_EPROTOCOL;
        fields->seen |= bit;
        fields->numbers[out->number] = out->value;
        fields->spans[out->number] = out->bytes;
        return (int)out->number;
    }
}

/* Reads all fields of a message without repeated ones. */
static int read_column_fields(struct weir_wire_in in, uint32_t as_number,
                              uint32_t as_bytes, struct fields *fields)
{
    struct weir_wire_item item;
    for (;;) {
        int number = next_field(&in, as_number, as_bytes, 0, fields, &item);
        if (number <= 0)
            return number;
    }
}

/* ---- Columns in ---- */

/* Reads the next number of a column of steps: ascending, within 32 bits. */
static inline int next_step(struct weir_wire_in *in, bool first, uint64_t *at)
{
    uint64_t step;
    if (!weir_varint_get(in, &step))
        return WEIR_ESYNTAX;
    if (step > UINT32_MAX || (step == 0 && !first))
        return WEIR_EPROTOCOL;
    *at += step;
    return *at > UINT32_MAX ? WEIR_EPROTOCOL : 0;
}

/* The number of rows to make room for: a step takes at least a byte. */
static size_t rows_at_most(struct weir_wire_in steps, size_t max)
{
    size_t left = weir_wire_left(steps);
    return left < max ? left : max;
}

static int get_slots(struct weir_wire_in in, struct weir_arena *arena,
                     struct weir_report *out)
{
    size_t max = rows_at_most(in, WEIR_REPORT_COUNTS_MAX);
    struct weir_count *rows = weir_arena_alloc(arena, max * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    size_t count = 0;
    uint64_t slot = 0;
    while (in.p < in.end) {
        if (count == max)
            return WEIR_ETOOBIG;
        int error = next_step(&in, count == 0, &slot);
        if (error < 0)
            return error;
        rows[count++].slot = (uint32_t)slot;
    }
    out->counts = rows;
    out->count = count;
    return 0;
}

static int get_passed(struct weir_wire_in in, struct weir_count *rows,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        if (!weir_varint_get(&in, &value))
            return in.p == in.end ? WEIR_EPROTOCOL : WEIR_ESYNTAX;
        rows[i].passed = weir_unzigzag(value);
    }
    return in.p == in.end ? 0 : WEIR_EPROTOCOL;
}

/* Reads the next row and value of a sparse pair of columns; 0, an error, or 1
 * at their common end. */
static int next_sparse(struct weir_wire_in *steps, struct weir_wire_in *in,
                       bool first, size_t count, uint64_t *row,
                       uint64_t *out_value)
{
    if (steps->p == steps->end)
        return in->p == in->end ? 1 : WEIR_EPROTOCOL;
    int error = next_step(steps, first, row);
    if (error < 0)
        return error;
    if (*row >= count || in->p == in->end)
        return WEIR_EPROTOCOL;
    return weir_varint_get(in, out_value) ? 0 : WEIR_ESYNTAX;
}

/* The sparse columns of counts: the field of each one's steps; its values are
 * in the next field. */
static const unsigned sparse_columns[] = {
    COUNTS_REFUSED_STEPS, COUNTS_LATE_STEPS,  COUNTS_PACE_STEPS,
    COUNTS_CARRY_STEPS,   COUNTS_AHEAD_STEPS,
};

/* The amount to carry beyond the passed units, modulo 2^64; 0 if the report
 * isn't carried. */
static uint64_t carry_beyond(const struct weir_count *row, bool carried)
{
    if (!carried)
        return 0;
    return weir_zigzag((int64_t)((uint64_t)row->carry - (uint64_t)row->passed));
}

/* A row's value in one of these columns, as it is encoded. */
static uint64_t sparse_value(const struct weir_report *report, size_t i,
                             unsigned column)
{
    const struct weir_count *row = &report->counts[i];
    if (column == COUNTS_REFUSED_STEPS)
        return row->refused;
    if (column == COUNTS_CARRY_STEPS)
        return carry_beyond(row, report->carried);
    if (column == COUNTS_AHEAD_STEPS)
        return row->ahead;
    return column == COUNTS_LATE_STEPS ? weir_zigzag(row->late) : row->pace;
}

static int set_sparse(struct weir_count *row, unsigned column, uint64_t value)
{
    if (column == COUNTS_REFUSED_STEPS)
        row->refused = value;
    else if (column == COUNTS_LATE_STEPS)
        row->late = weir_unzigzag(value);
    else if (column == COUNTS_CARRY_STEPS)
        row->carry =
            (int64_t)((uint64_t)row->passed + (uint64_t)weir_unzigzag(value));
    else if (column == COUNTS_AHEAD_STEPS)
        row->ahead = value;
    else
        row->pace = value;
    bool bounded = row->pace <= WEIR_PACE_MAX && row->ahead <= WEIR_AHEAD_MAX;
    return bounded ? 0 : WEIR_EPROTOCOL;
}

static int get_sparse(const struct weir_wire_in *spans, unsigned column,
                      struct weir_count *rows, size_t count)
{
    struct weir_wire_in steps = spans[column], in = spans[column + 1];
    uint64_t row = 0;
    for (bool first = true;; first = false) {
        uint64_t value;
        int state = next_sparse(&steps, &in, first, count, &row, &value);
        if (state == 0)
            state = set_sparse(&rows[row], column, value);
        if (state != 0)
            return state < 0 ? state : 0;
    }
}

static int get_counts(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_report *out)
{
    struct fields fields = { 0 };
    const struct weir_wire_in *spans = fields.spans;
    int error = read_column_fields(
        in, 0,
        1u << COUNTS_SLOT_STEPS | 1u << COUNTS_PASSED |
            1u << COUNTS_REFUSED_STEPS | 1u << COUNTS_REFUSED |
            1u << COUNTS_LATE_STEPS | 1u << COUNTS_LATE |
            1u << COUNTS_PACE_STEPS | 1u << COUNTS_PACE |
            1u << COUNTS_CARRY_STEPS | 1u << COUNTS_CARRY |
            1u << COUNTS_AHEAD_STEPS | 1u << COUNTS_AHEAD,
        &fields);
    if (error < 0)
        return error;
    error = get_slots(spans[COUNTS_SLOT_STEPS], arena, out);
    if (error < 0)
        return error;
    struct weir_count *rows = (struct weir_count *)out->counts;
    error = get_passed(spans[COUNTS_PASSED], rows, out->count);
    if (!out->carried && weir_wire_left(spans[COUNTS_CARRY_STEPS]) > 0)
        return WEIR_EPROTOCOL;
    for (size_t i = 0; out->carried && i < out->count; i++)
        rows[i].carry = rows[i].passed;
    for (size_t i = 0; error == 0 && i < WEIR_COUNT_OF(sparse_columns); i++)
        error = get_sparse(spans, sparse_columns[i], rows, out->count);
    return error;
}

/* ---- Report in ---- */

static int get_announce(struct weir_wire_in in, struct weir_announce *out)
{
    struct fields fields = { 0 };
    int error =
        read_column_fields(in,
                           1u << ANNOUNCE_SLOT | 1u << ANNOUNCE_CREATED |
                               1u << ANNOUNCE_PASSED | 1u << ANNOUNCE_REFUSED |
                               1u << ANNOUNCE_FILL | 1u << ANNOUNCE_WITNESSED |
                               1u << ANNOUNCE_SANK | 1u << ANNOUNCE_IN_FLIGHT,
                           1u << ANNOUNCE_NAME, &fields);
    if (error < 0)
        return error;
    if (fields.numbers[ANNOUNCE_SLOT] > UINT32_MAX ||
        fields.numbers[ANNOUNCE_WITNESSED] > 1 ||
        fields.numbers[ANNOUNCE_SANK] > 1 ||
        fields.numbers[ANNOUNCE_IN_FLIGHT] > 1)
        return WEIR_EPROTOCOL;
    out->slot = (uint32_t)fields.numbers[ANNOUNCE_SLOT];
    out->created = fields.numbers[ANNOUNCE_CREATED];
    out->base = fields.numbers[ANNOUNCE_PASSED];
    out->refused = fields.numbers[ANNOUNCE_REFUSED];
    out->fill = weir_unzigzag(fields.numbers[ANNOUNCE_FILL]);
    out->witnessed = fields.numbers[ANNOUNCE_WITNESSED] == 1;
    out->sank = fields.numbers[ANNOUNCE_SANK] == 1;
    out->in_flight = fields.numbers[ANNOUNCE_IN_FLIGHT] == 1;
    return weir_v1_name(fields.spans[ANNOUNCE_NAME], &out->name);
}

/* The number of announces; a first walk that skips their contents. */
static int count_announces(struct weir_wire_in in, size_t *out_count)
{
    size_t count = 0;
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0)
        count += item.number == REPORT_ANNOUNCES;
    if (got < 0)
        return WEIR_ESYNTAX;
    if (count > WEIR_REPORT_ANNOUNCES_MAX)
        return WEIR_ETOOBIG;
    *out_count = count;
    return 0;
}

static int get_announces(struct weir_wire_in in, struct weir_arena *arena,
                         struct fields *fields, struct weir_report *out)
{
    size_t count;
    int error = count_announces(in, &count);
    if (error < 0)
        return error;
    struct weir_announce *rows = weir_arena_alloc(arena, count * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    out->announces = rows;
    for (;;) {
        struct weir_wire_item item;
        int number = next_field(
            &in,
            1u << REPORT_NUMBER | 1u << REPORT_EPOCH | 1u << REPORT_LATE_FROM |
                1u << REPORT_UNKNOWN | 1u << REPORT_CARRIED |
                1u << REPORT_NO_ROOM | 1u << REPORT_AGAIN,
            1u << REPORT_COUNTS | 1u << REPORT_BELOW, 1u << REPORT_ANNOUNCES,
            fields, &item);
        if (number <= 0)
            return number;
        if (number != REPORT_ANNOUNCES)
            continue;
        error = get_announce(item.bytes, &rows[out->announce_count++]);
        if (error < 0)
            return error;
    }
}

int weir_v1_report_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_report *out)
{
    struct fields fields = { 0 };
    struct weir_report report = { 0 };
    int error = get_announces(in, arena, &fields, &report);
    if (error < 0)
        return error;
    report.number = fields.numbers[REPORT_NUMBER];
    report.epoch = fields.numbers[REPORT_EPOCH];
    report.late_from = fields.numbers[REPORT_LATE_FROM];
    report.unknown = fields.numbers[REPORT_UNKNOWN];
    if (fields.numbers[REPORT_CARRIED] > 1 ||
        fields.numbers[REPORT_NO_ROOM] > 1 || fields.numbers[REPORT_AGAIN] > 1)
        return WEIR_EPROTOCOL;
    report.carried = fields.numbers[REPORT_CARRIED] == 1;
    report.no_room = fields.numbers[REPORT_NO_ROOM] == 1;
    report.again = fields.numbers[REPORT_AGAIN] == 1;
    if (fields.seen & 1u << REPORT_BELOW)
        error = weir_v1_name(fields.spans[REPORT_BELOW], &report.below);
    if (error < 0)
        return error;
    error = get_counts(fields.spans[REPORT_COUNTS], arena, &report);
    if (error < 0)
        return error;
    *out = report;
    return 0;
}

/* ---- Report out ---- */

static_assert((int)FIELDS_MAX == WEIR_V1_COLUMNS_MAX, "a size for each");

static void size_sparse(const struct weir_report *report, unsigned column,
                        size_t *columns)
{
    size_t before = 0;
    for (size_t i = 0; i < report->count; i++) {
        uint64_t value = sparse_value(report, i, column);
        if (value == 0)
            continue;
        columns[column] += weir_varint_size(i - before);
        columns[column + 1] += weir_varint_size(value);
        before = i;
    }
}

static void size_counts(const struct weir_report *report,
                        struct weir_v1_sizes *out)
{
    struct weir_v1_sizes sizes = { .total = 0 };
    uint32_t slot = 0;
    for (size_t i = 0; i < report->count; i++) {
        const struct weir_count *row = &report->counts[i];
        sizes.columns[COUNTS_SLOT_STEPS] += weir_varint_size(row->slot - slot);
        slot = row->slot;
        sizes.columns[COUNTS_PASSED] +=
            weir_varint_size(weir_zigzag(row->passed));
    }
    for (size_t i = 0; i < WEIR_COUNT_OF(sparse_columns); i++)
        size_sparse(report, sparse_columns[i], sizes.columns);
    for (unsigned i = 1; i < FIELDS_MAX; i++)
        sizes.total += weir_wire_bytes_size(sizes.columns[i]);
    *out = sizes;
}

static size_t announce_size(const struct weir_announce *announce)
{
    return weir_wire_number_size(announce->slot) +
           weir_wire_bytes_size(announce->name.len) +
           weir_wire_number_size(announce->created) +
           weir_wire_number_size(announce->base) +
           weir_wire_number_size(announce->refused) +
           weir_wire_number_size(weir_zigzag(announce->fill)) +
           weir_wire_number_size(announce->witnessed) +
           weir_wire_number_size(announce->sank) +
           weir_wire_number_size(announce->in_flight);
}

static size_t report_size(const struct weir_report *report,
                          const struct weir_v1_sizes *sizes)
{
    size_t size = weir_wire_number_size(report->number) +
                  weir_wire_number_size(report->epoch) +
                  weir_wire_number_size(report->late_from) +
                  weir_wire_number_size(report->unknown) +
                  weir_wire_number_size(report->carried) +
                  weir_wire_number_size(report->no_room) +
                  weir_wire_number_size(report->again) +
                  weir_wire_bytes_size(report->below.len) +
                  weir_wire_bytes_size(sizes->total);
    for (size_t i = 0; i < report->announce_count; i++)
        size += weir_wire_message_size(announce_size(&report->announces[i]));
    return size;
}

size_t weir_v1_report_size(const struct weir_report *report,
                           struct weir_v1_sizes *out)
{
    size_counts(report, out);
    return report_size(report, out);
}

static uint8_t *put_announce(const struct weir_announce *announce, uint8_t *p)
{
    p = weir_wire_put_head(p, REPORT_ANNOUNCES, announce_size(announce));
    p = weir_wire_put_number(p, ANNOUNCE_SLOT, announce->slot);
    p = weir_wire_put_text(p, ANNOUNCE_NAME, announce->name);
    p = weir_wire_put_number(p, ANNOUNCE_CREATED, announce->created);
    p = weir_wire_put_number(p, ANNOUNCE_PASSED, announce->base);
    p = weir_wire_put_number(p, ANNOUNCE_REFUSED, announce->refused);
    p = weir_wire_put_number(p, ANNOUNCE_FILL, weir_zigzag(announce->fill));
    p = weir_wire_put_number(p, ANNOUNCE_WITNESSED, announce->witnessed);
    p = weir_wire_put_number(p, ANNOUNCE_SANK, announce->sank);
    return weir_wire_put_number(p, ANNOUNCE_IN_FLIGHT, announce->in_flight);
}

static uint8_t *put_sparse(const struct weir_report *report,
                           const struct weir_v1_sizes *sizes, unsigned column,
                           uint8_t *p)
{
    if (sizes->columns[column] == 0)
        return p;
    p = weir_wire_put_head(p, column, sizes->columns[column]);
    size_t before = 0;
    for (size_t i = 0; i < report->count; i++) {
        if (sparse_value(report, i, column) == 0)
            continue;
        p = weir_varint_put(p, i - before);
        before = i;
    }
    p = weir_wire_put_head(p, column + 1, sizes->columns[column + 1]);
    for (size_t i = 0; i < report->count; i++) {
        uint64_t value = sparse_value(report, i, column);
        if (value != 0)
            p = weir_varint_put(p, value);
    }
    return p;
}

static uint8_t *put_counts(const struct weir_report *report,
                           const struct weir_v1_sizes *sizes, uint8_t *p)
{
    if (sizes->total == 0)
        return p;
    p = weir_wire_put_head(p, REPORT_COUNTS, sizes->total);
    p = weir_wire_put_head(p, COUNTS_SLOT_STEPS,
                           sizes->columns[COUNTS_SLOT_STEPS]);
    uint32_t slot = 0;
    for (size_t i = 0; i < report->count; i++) {
        p = weir_varint_put(p, report->counts[i].slot - slot);
        slot = report->counts[i].slot;
    }
    p = weir_wire_put_head(p, COUNTS_PASSED, sizes->columns[COUNTS_PASSED]);
    for (size_t i = 0; i < report->count; i++)
        p = weir_varint_put(p, weir_zigzag(report->counts[i].passed));
    for (size_t i = 0; i < WEIR_COUNT_OF(sparse_columns); i++)
        p = put_sparse(report, sizes, sparse_columns[i], p);
    return p;
}

uint8_t *weir_v1_report_put(const struct weir_report *report,
                            const struct weir_v1_sizes *sizes, uint8_t *p)
{
    p = weir_wire_put_number(p, REPORT_NUMBER, report->number);
    p = weir_wire_put_number(p, REPORT_EPOCH, report->epoch);
    p = weir_wire_put_number(p, REPORT_LATE_FROM, report->late_from);
    p = weir_wire_put_number(p, REPORT_UNKNOWN, report->unknown);
    p = weir_wire_put_number(p, REPORT_NO_ROOM, report->no_room);
    p = weir_wire_put_number(p, REPORT_AGAIN, report->again);
    p = weir_wire_put_text(p, REPORT_BELOW, report->below);
    for (size_t i = 0; i < report->announce_count; i++)
        p = put_announce(&report->announces[i], p);
    p = put_counts(report, sizes, p);
    return weir_wire_put_number(p, REPORT_CARRIED, report->carried);
}

/* ---- Fills in ---- */

/* A column is absent if it would hold only zeros. */
static int get_paces(struct weir_wire_in in, struct weir_fill *rows,
                     size_t count)
{
    if (in.p == in.end)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (!weir_varint_get(&in, &rows[i].pace) ||
            rows[i].pace > WEIR_PACE_MAX)
            return WEIR_EPROTOCOL;
    }
    return in.p == in.end ? 0 : WEIR_EPROTOCOL;
}

static int get_fill_rows(const struct fields *fields, struct weir_arena *arena,
                         struct weir_fills *out)
{
    struct weir_wire_in steps = fields->spans[FILLS_SLOT_STEPS];
    struct weir_wire_in fill = fields->spans[FILLS_FILL];
    struct weir_wire_in slack = fields->spans[FILLS_SLACK];
    size_t max = rows_at_most(steps, WEIR_FILLS_MAX);
    struct weir_fill *rows = weir_arena_alloc(arena, max * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    size_t count = 0;
    uint64_t slot = 0;
    while (steps.p < steps.end) {
        if (count == max)
            return WEIR_ETOOBIG;
        int error = next_step(&steps, count == 0, &slot);
        if (error < 0)
            return error;
        uint64_t fill_value, slack_value;
        if (!weir_varint_get(&fill, &fill_value) ||
            !weir_varint_get(&slack, &slack_value))
            return WEIR_EPROTOCOL;
        rows[count++] = (struct weir_fill){
            .slot = (uint32_t)slot,
            .fill = weir_unzigzag(fill_value),
            .slack = slack_value - 1, /* 0: UINT64_MAX, unlimited slack */
        };
    }
    out->fills = rows;
    out->count = count;
    if (fill.p != fill.end || slack.p != slack.end)
        return WEIR_EPROTOCOL;
    return get_paces(fields->spans[FILLS_PACE], rows, count);
}

/* Slots in any order, at most 'most'. */
static int get_list(struct weir_wire_in in, size_t most,
                    struct weir_arena *arena, const uint32_t **out,
                    size_t *out_count)
{
    size_t max = rows_at_most(in, most);
    uint32_t *slots = weir_arena_alloc(arena, max * sizeof(*slots));
    if (!slots)
        return WEIR_ETOOBIG;
    size_t count = 0;
    while (in.p < in.end) {
        uint64_t slot;
        if (!weir_varint_get(&in, &slot))
            return WEIR_ESYNTAX;
        if (slot > UINT32_MAX)
            return WEIR_EPROTOCOL;
        if (count == max)
            return WEIR_ETOOBIG;
        slots[count++] = (uint32_t)slot;
    }
    *out = slots;
    *out_count = count;
    return 0;
}

int weir_v1_fills_get(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_fills *out)
{
    struct fields fields = { 0 };
    int error = read_column_fields(
        in,
        1u << FILLS_NUMBER | 1u << FILLS_STAMP | 1u << FILLS_REPORT_BACKOFF |
            1u << FILLS_LIMITERS | 1u << FILLS_ANSWER | 1u << FILLS_TOP_AGE,
        1u << FILLS_SLOT_STEPS | 1u << FILLS_FILL | 1u << FILLS_SLACK |
            1u << FILLS_UNKNOWN | 1u << FILLS_PACE | 1u << FILLS_DENIED,
        &fields);
    if (error < 0)
        return error;
    if (fields.numbers[FILLS_LIMITERS] > UINT32_MAX ||
        fields.numbers[FILLS_ANSWER] > 1)
        return WEIR_EPROTOCOL;
    struct weir_fills fills = {
        .answer = fields.numbers[FILLS_ANSWER] == 1,
        .number = fields.numbers[FILLS_NUMBER],
        .stamp = fields.numbers[FILLS_STAMP],
        .report_backoff = fields.numbers[FILLS_REPORT_BACKOFF],
        .limiters = (uint32_t)fields.numbers[FILLS_LIMITERS],
        .top_age = fields.numbers[FILLS_TOP_AGE],
    };
    error = get_fill_rows(&fields, arena, &fills);
    if (error < 0)
        return error;
    error = get_list(fields.spans[FILLS_UNKNOWN], WEIR_FILLS_MAX, arena,
                     &fills.unknown, &fills.unknown_count);
    if (error == 0)
        error = get_list(fields.spans[FILLS_DENIED], WEIR_REPORT_ANNOUNCES_MAX,
                         arena, &fills.denied, &fills.denied_count);
    if (error < 0)
        return error;
    *out = fills;
    return 0;
}

/* ---- Fills out ---- */

static size_t list_size(const uint32_t *slots, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += weir_varint_size(slots[i]);
    return size;
}

/* The column of paces is absent if no row has one. */
static void size_fills(const struct weir_fills *fills,
                       struct weir_v1_sizes *out)
{
    size_t steps = 0, fill = 0, slack = 0, pace = 0;
    uint32_t slot = 0;
    uint64_t paced = 0;
    for (size_t i = 0; i < fills->count; i++) {
        const struct weir_fill *row = &fills->fills[i];
        steps += weir_varint_size(row->slot - slot);
        fill += weir_varint_size(weir_zigzag(row->fill));
        slack += weir_varint_size(row->slack + 1);
        pace += weir_varint_size(row->pace);
        paced |= row->pace;
        slot = row->slot;
    }
    *out = (struct weir_v1_sizes){
        .columns = { [FILLS_SLOT_STEPS] = steps,
                     [FILLS_FILL] = fill,
                     [FILLS_SLACK] = slack,
                     [FILLS_PACE] = paced != 0 ? pace : 0,
                     [FILLS_UNKNOWN] =
                         list_size(fills->unknown, fills->unknown_count),
                     [FILLS_DENIED] =
                         list_size(fills->denied, fills->denied_count) },
    };
    for (unsigned i = 1; i < FIELDS_MAX; i++)
        out->total += weir_wire_bytes_size(out->columns[i]);
}

size_t weir_v1_fills_size(const struct weir_fills *fills,
                          struct weir_v1_sizes *out)
{
    size_fills(fills, out);
    return weir_wire_number_size(fills->number) +
           weir_wire_number_size(fills->stamp) +
           weir_wire_number_size(fills->report_backoff) +
           weir_wire_number_size(fills->limiters) +
           weir_wire_number_size(fills->answer) +
           weir_wire_number_size(fills->top_age) + out->total;
}

static uint8_t *put_fill_rows(const struct weir_fills *fills,
                              const struct weir_v1_sizes *sizes, uint8_t *p)
{
    if (fills->count == 0)
        return p;
    p = weir_wire_put_head(p, FILLS_SLOT_STEPS,
                           sizes->columns[FILLS_SLOT_STEPS]);
    uint32_t slot = 0;
    for (size_t i = 0; i < fills->count; i++) {
        p = weir_varint_put(p, fills->fills[i].slot - slot);
        slot = fills->fills[i].slot;
    }
    p = weir_wire_put_head(p, FILLS_FILL, sizes->columns[FILLS_FILL]);
    for (size_t i = 0; i < fills->count; i++)
        p = weir_varint_put(p, weir_zigzag(fills->fills[i].fill));
    p = weir_wire_put_head(p, FILLS_SLACK, sizes->columns[FILLS_SLACK]);
    for (size_t i = 0; i < fills->count; i++)
        p = weir_varint_put(p, fills->fills[i].slack + 1);
    return p;
}

static uint8_t *put_paces(const struct weir_fills *fills,
                          const struct weir_v1_sizes *sizes, uint8_t *p)
{
    if (sizes->columns[FILLS_PACE] == 0)
        return p;
    p = weir_wire_put_head(p, FILLS_PACE, sizes->columns[FILLS_PACE]);
    for (size_t i = 0; i < fills->count; i++)
        p = weir_varint_put(p, fills->fills[i].pace);
    return p;
}

static uint8_t *put_list(const uint32_t *slots, size_t count, unsigned number,
                         const struct weir_v1_sizes *sizes, uint8_t *p)
{
    if (count > 0)
        p = weir_wire_put_head(p, number, sizes->columns[number]);
    for (size_t i = 0; i < count; i++)
        p = weir_varint_put(p, slots[i]);
    return p;
}

uint8_t *weir_v1_fills_put(const struct weir_fills *fills,
                           const struct weir_v1_sizes *sizes, uint8_t *p)
{
    p = weir_wire_put_number(p, FILLS_NUMBER, fills->number);
    p = weir_wire_put_number(p, FILLS_STAMP, fills->stamp);
    p = weir_wire_put_number(p, FILLS_REPORT_BACKOFF, fills->report_backoff);
    p = weir_wire_put_number(p, FILLS_LIMITERS, fills->limiters);
    p = put_fill_rows(fills, sizes, p);
    p = put_list(fills->unknown, fills->unknown_count, FILLS_UNKNOWN, sizes, p);
    p = weir_wire_put_number(p, FILLS_ANSWER, fills->answer);
    p = put_paces(fills, sizes, p);
    p = weir_wire_put_number(p, FILLS_TOP_AGE, fills->top_age);
    return put_list(fills->denied, fills->denied_count, FILLS_DENIED, sizes, p);
}
