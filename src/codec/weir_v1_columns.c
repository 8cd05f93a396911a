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
    REPORT_CONTENDED = 12,
    REPORT_LACKING = 13,
    REPORT_OVERFLOWED = 14,
    REPORT_PASSES_ON_FULL = 15,
    REPORT_FEW_ROOTS = 16,
    REPORT_ECHO = 17,

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
    FILLS_ROOTS = 13,
    FILLS_AGE = 14,
};

/* ---- The fields, with columns as bytes ---- */

#define THIS struct weir_announce
static const struct weir_proto_field announce_fields[] = {
    { 1, NUMBER(slot) },    { 2, NAME(name) },      { 3, NUMBER(created) },
    { 4, NUMBER(base) }, /* 'passed' of the .proto */
    { 5, NUMBER(refused) }, { 6, ZIGZAG(fill) },    { 7, FLAG(witnessed) },
    { 8, FLAG(sank) },      { 9, FLAG(in_flight) },
};
static const struct weir_proto_message announce = { FIELDS(announce_fields) };
#undef THIS

struct report_fields {
    struct weir_report report;
    struct weir_text counts;
};

#define THIS struct report_fields
static const struct weir_proto_field report_fields[] = {
    { REPORT_NUMBER, NUMBER(report.number) },
    { REPORT_EPOCH, NUMBER(report.epoch) },
    { REPORT_LATE_FROM, NUMBER(report.late_from) },
    { REPORT_UNKNOWN, NUMBER(report.unknown) },
    { REPORT_NO_ROOM, FLAG(report.no_room) },
    { REPORT_AGAIN, FLAG(report.again) },
    { REPORT_BELOW, WEIR_PROTO_NAME, AT(report.below) },
    { REPORT_ANNOUNCES,
      PARTS(report.announces, report.announce_count, announce),
      .max = WEIR_REPORT_ANNOUNCES_MAX },
    { REPORT_COUNTS, TEXT(counts) },
    { REPORT_CARRIED, FLAG(report.carried) },
    { REPORT_CONTENDED, NUMBER(report.contended) },
    { REPORT_LACKING, NUMBER(report.lacking) },
    { REPORT_OVERFLOWED, NUMBER(report.overflowed) },
    { REPORT_PASSES_ON_FULL, FLAG(report.passes_on_full) },
    { REPORT_FEW_ROOTS, NUMBER(report.few_roots) },
    { REPORT_ECHO, NUMBER(report.echo) },
};
static const struct weir_proto_message report_message = { FIELDS(
    report_fields) };
#undef THIS

struct counts_fields {
    struct weir_text columns[COUNTS_AHEAD + 1];
};

#define THIS struct counts_fields
#define COLUMN(number)                  \
    {                                   \
        (number), TEXT(columns[number]) \
    }
static const struct weir_proto_field counts_fields[] = {
    COLUMN(COUNTS_SLOT_STEPS),    COLUMN(COUNTS_PASSED),
    COLUMN(COUNTS_REFUSED_STEPS), COLUMN(COUNTS_REFUSED),
    COLUMN(COUNTS_LATE_STEPS),    COLUMN(COUNTS_LATE),
    COLUMN(COUNTS_PACE_STEPS),    COLUMN(COUNTS_PACE),
    COLUMN(COUNTS_CARRY_STEPS),   COLUMN(COUNTS_CARRY),
    COLUMN(COUNTS_AHEAD_STEPS),   COLUMN(COUNTS_AHEAD),
};
static const struct weir_proto_message counts_message = { FIELDS(
    counts_fields) };
#undef THIS

struct fills_fields {
    struct weir_fills fills;
    struct weir_text columns[FILLS_DENIED + 1];
};

#define THIS struct fills_fields
static const struct weir_proto_field fills_fields[] = {
    { FILLS_NUMBER, NUMBER(fills.number) },
    { FILLS_STAMP, NUMBER(fills.stamp) },
    { FILLS_REPORT_BACKOFF, NUMBER(fills.report_backoff) },
    { FILLS_LIMITERS, NUMBER(fills.limiters) },
    COLUMN(FILLS_SLOT_STEPS),
    COLUMN(FILLS_FILL),
    COLUMN(FILLS_SLACK),
    COLUMN(FILLS_UNKNOWN),
    { FILLS_ANSWER, FLAG(fills.answer) },
    COLUMN(FILLS_PACE),
    { FILLS_TOP_AGE, NUMBER(fills.top_age) },
    COLUMN(FILLS_DENIED),
    { FILLS_ROOTS, NUMBER(fills.roots) },
    { FILLS_AGE, NUMBER(fills.age) },
};
static const struct weir_proto_message fills_message = { FIELDS(fills_fields) };
#undef THIS

static int get_fields(const struct weir_proto_message *message,
                      struct weir_wire_in in, struct weir_arena *arena,
                      void *out)
{
    return weir_proto_get(message, in, WEIR_PROTO_AGAIN_REFUSED, arena, out,
                          NULL);
}

/* The bytes of a column. */
static struct weir_wire_in span_of(const struct weir_text *columns,
                                   unsigned column)
{
    return weir_wire_over(columns[column].p, columns[column].len);
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
        weir_audit(count == 0 || slot > rows[count - 1].slot);
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

static int get_sparse(const struct weir_text *columns, unsigned column,
                      struct weir_count *rows, size_t count)
{
    struct weir_wire_in steps = span_of(columns, column);
    struct weir_wire_in in = span_of(columns, column + 1);
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
    struct counts_fields fields;
    const struct weir_text *columns = fields.columns;
    int error = get_fields(&counts_message, in, arena, &fields);
    if (error < 0)
        return error;
    error = get_slots(span_of(columns, COUNTS_SLOT_STEPS), arena, out);
    if (error < 0)
        return error;
    struct weir_count *rows = (struct weir_count *)out->counts;
    error = get_passed(span_of(columns, COUNTS_PASSED), rows, out->count);
    if (!out->carried && columns[COUNTS_CARRY_STEPS].len > 0)
        return WEIR_EPROTOCOL;
    for (size_t i = 0; out->carried && i < out->count; i++)
        rows[i].carry = rows[i].passed;
    for (size_t i = 0; error == 0 && i < WEIR_COUNT_OF(sparse_columns); i++)
        error = get_sparse(columns, sparse_columns[i], rows, out->count);
    return error;
}

int weir_v1_report_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_report *out)
{
    struct report_fields fields;
    int error = get_fields(&report_message, in, arena, &fields);
    if (error < 0)
        return error;
    error = get_counts(weir_wire_over(fields.counts.p, fields.counts.len),
                       arena, &fields.report);
    if (error == 0)
        *out = fields.report;
    return error;
}

/* ---- Report out ---- */

static_assert((int)FILLS_DENIED < WEIR_V1_COLUMNS_MAX &&
                  (int)COUNTS_AHEAD < WEIR_V1_COLUMNS_MAX,
              "a size for each");

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
        weir_audit(i == 0 || row->slot > slot);
        sizes.columns[COUNTS_SLOT_STEPS] += weir_varint_size(row->slot - slot);
        slot = row->slot;
        sizes.columns[COUNTS_PASSED] +=
            weir_varint_size(weir_zigzag(row->passed));
    }
    for (size_t i = 0; i < WEIR_COUNT_OF(sparse_columns); i++)
        size_sparse(report, sparse_columns[i], sizes.columns);
    for (unsigned i = 1; i < WEIR_V1_COLUMNS_MAX; i++)
        sizes.total += weir_wire_bytes_size(sizes.columns[i]);
    *out = sizes;
}

/* A number in a field from 16 on: its key is of two bytes. */
static size_t far_number_size(uint64_t value)
{
    return value == 0 ? 0 : 2 + weir_varint_size(value);
}

static uint8_t *put_far_number(uint8_t *p, unsigned number, uint64_t value)
{
    if (value == 0)
        return p;
    p = weir_varint_put(p, number << 3 | WEIR_WIRE_VARINT);
    return weir_varint_put(p, value);
}

static size_t report_size(const struct weir_report *report,
                          const struct weir_v1_sizes *sizes)
{
    size_t size = weir_wire_number_size(report->number) +
                  weir_wire_number_size(report->epoch) +
                  weir_wire_number_size(report->late_from) +
                  weir_wire_number_size(report->unknown) +
                  weir_wire_number_size(report->contended) +
                  weir_wire_number_size(report->lacking) +
                  weir_wire_number_size(report->overflowed) +
                  weir_wire_number_size(report->passes_on_full) +
                  far_number_size(report->few_roots) +
                  far_number_size(report->echo) +
                  weir_wire_number_size(report->carried) +
                  weir_wire_number_size(report->no_room) +
                  weir_wire_number_size(report->again) +
                  weir_wire_bytes_size(report->below.len) +
                  weir_wire_bytes_size(sizes->total);
    for (size_t i = 0; i < report->announce_count; i++)
        size += weir_wire_message_size(
            weir_proto_size(&announce, &report->announces[i]));
    return size;
}

size_t weir_v1_report_size(const struct weir_report *report,
                           struct weir_v1_sizes *out)
{
    weir_audit(report->count <= WEIR_REPORT_COUNTS_MAX);
    weir_audit(report->announce_count <= WEIR_REPORT_ANNOUNCES_MAX);
    size_counts(report, out);
    return report_size(report, out);
}

static uint8_t *put_announce(const struct weir_announce *row, uint8_t *p)
{
    size_t size = weir_proto_size(&announce, row);
    p = weir_wire_put_head(p, REPORT_ANNOUNCES, size);
    return weir_proto_put(&announce, row, size, p);
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
    p = weir_wire_put_number(p, REPORT_CONTENDED, report->contended);
    p = weir_wire_put_number(p, REPORT_LACKING, report->lacking);
    p = weir_wire_put_number(p, REPORT_OVERFLOWED, report->overflowed);
    p = weir_wire_put_number(p, REPORT_PASSES_ON_FULL, report->passes_on_full);
    p = put_far_number(p, REPORT_FEW_ROOTS, report->few_roots);
    p = put_far_number(p, REPORT_ECHO, report->echo);
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

static int get_fill_rows(const struct weir_text *columns,
                         struct weir_arena *arena, struct weir_fills *out)
{
    struct weir_wire_in steps = span_of(columns, FILLS_SLOT_STEPS);
    struct weir_wire_in fill = span_of(columns, FILLS_FILL);
    struct weir_wire_in slack = span_of(columns, FILLS_SLACK);
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
    return get_paces(span_of(columns, FILLS_PACE), rows, count);
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
    struct fills_fields fields;
    const struct weir_text *columns = fields.columns;
    struct weir_fills *fills = &fields.fills;
    int error = get_fields(&fills_message, in, arena, &fields);
    if (error == 0)
        error = get_fill_rows(columns, arena, fills);
    if (error == 0)
        error = get_list(span_of(columns, FILLS_UNKNOWN), WEIR_FILLS_MAX, arena,
                         &fills->unknown, &fills->unknown_count);
    if (error == 0)
        error =
            get_list(span_of(columns, FILLS_DENIED), WEIR_REPORT_ANNOUNCES_MAX,
                     arena, &fills->denied, &fills->denied_count);
    if (error == 0)
        *out = *fills;
    return error;
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
        weir_audit(i == 0 || row->slot > slot);
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
    for (unsigned i = 1; i < WEIR_V1_COLUMNS_MAX; i++)
        out->total += weir_wire_bytes_size(out->columns[i]);
}

size_t weir_v1_fills_size(const struct weir_fills *fills,
                          struct weir_v1_sizes *out)
{
    weir_audit(fills->count <= WEIR_FILLS_MAX);
    weir_audit(fills->unknown_count <= WEIR_FILLS_MAX);
    weir_audit(fills->denied_count <= WEIR_REPORT_ANNOUNCES_MAX);
    size_fills(fills, out);
    return weir_wire_number_size(fills->number) +
           weir_wire_number_size(fills->stamp) +
           weir_wire_number_size(fills->report_backoff) +
           weir_wire_number_size(fills->limiters) +
           weir_wire_number_size(fills->roots) +
           weir_wire_number_size(fills->age) +
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
    p = weir_wire_put_number(p, FILLS_ROOTS, fills->roots);
    p = weir_wire_put_number(p, FILLS_AGE, fills->age);
    p = put_fill_rows(fills, sizes, p);
    p = put_list(fills->unknown, fills->unknown_count, FILLS_UNKNOWN, sizes, p);
    p = weir_wire_put_number(p, FILLS_ANSWER, fills->answer);
    p = put_paces(fills, sizes, p);
    p = weir_wire_put_number(p, FILLS_TOP_AGE, fills->top_age);
    return put_list(fills->denied, fills->denied_count, FILLS_DENIED, sizes, p);
}
