/* SPDX-License-Identifier: MIT
 * codec/weir_v1_asks.c - asks and answers as bytes, by hand.
 *
 * Encoded in rows, unlike a report's columns: a message has a few of them, most
 * often one, with little in common. A first walk over the bytes counts the
 * rows, a second one reads them into the arena. As in all of weir.v1: a field
 * comes once, zeros are left out, unknown fields are skipped. */

#include "codec/weir_v1_internal.h"

enum {
    ROWS = 1, /* of both messages */

    ASK_NUMBER = 1,
    ASK_NAME = 2,
    ASK_OP = 3,
    ASK_WEIGHT = 4,
    ASK_WAIT_MAX = 5,
    ASK_LEVEL = 6,
    ASK_PATIENCE = 7,
    ASK_PERMIT = 8,

    ANSWER_NUMBER = 1,
    ANSWER_ERROR = 2,
    ANSWER_PASSED = 3,
    ANSWER_NEVER = 4,
    ANSWER_LEVEL = 5,
    ANSWER_USED = 6,
    ANSWER_REMAINING = 7,
    ANSWER_RETRY_AFTER = 8,
    ANSWER_WAIT = 9,

    FIELDS_MAX = 10,
};

/* ---- Rows in ---- */

struct row {
    uint64_t numbers[FIELDS_MAX];
    struct weir_wire_in name; /* an ask's */
};

/* Reads fields 1 .. 'last': numbers, except the field 'name', which is bytes
 * (0: none is). */
static int read_ask_row(struct weir_wire_in in, unsigned last, unsigned name,
                        struct row *out)
{
    uint32_t seen = 0;
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        if (item.number > last)
            continue;
        bool is_name = item.number == name;
        if (item.type != (is_name ? WEIR_WIRE_BYTES : WEIR_WIRE_VARINT) ||
            seen >> item.number & 1)
            return WEIR_EPROTOCOL;
        seen |= 1u << item.number;
        if (is_name)
            out->name = item.bytes;
        else
            out->numbers[item.number] = item.value;
    }
    return got < 0 ? WEIR_ESYNTAX : 0;
}

/* The number of rows, at least one. */
static int count_rows(struct weir_wire_in in, size_t *out_count)
{
    size_t count = 0;
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        if (item.number == ROWS && item.type != WEIR_WIRE_BYTES)
            return WEIR_EPROTOCOL;
        count += item.number == ROWS;
    }
    if (got < 0)
        return WEIR_ESYNTAX;
    if (count > WEIR_ASKS_MAX)
        return WEIR_ETOOBIG;
    *out_count = count;
    return count > 0 ? 0 : WEIR_EPROTOCOL;
}

/* ---- Asks ---- */

static int get_ask(struct weir_wire_in in, uint64_t above,
                   struct weir_step_ask *out)
{
    struct row row = { .name = { NULL, NULL } };
    int error = read_ask_row(in, ASK_PERMIT, ASK_NAME, &row);
    if (error < 0)
        return error;
    const uint64_t *numbers = row.numbers;
    if (numbers[ASK_NUMBER] <= above || numbers[ASK_OP] < WEIR_ALGORITHM_TAKE ||
        numbers[ASK_OP] > WEIR_ALGORITHM_RESERVE ||
        numbers[ASK_WEIGHT] > WEIR_WEIGHT_MAX ||
        numbers[ASK_LEVEL] >= WEIR_BUCKETS_MAX)
        return WEIR_EPROTOCOL;
    out->number = numbers[ASK_NUMBER];
    out->ask = (struct weir_algorithm_ask){
        .op = (enum weir_algorithm_op)numbers[ASK_OP],
        .weight = numbers[ASK_WEIGHT],
        .wait_max = numbers[ASK_WAIT_MAX],
        .level = (uint8_t)numbers[ASK_LEVEL],
        .permit = numbers[ASK_PERMIT],
    };
    out->patience = numbers[ASK_PATIENCE];
    return weir_v1_name(row.name, &out->name);
}

int weir_v1_asks_get(struct weir_wire_in in, struct weir_arena *arena,
                     struct weir_asks *out)
{
    size_t count = 0;
    int error = count_rows(in, &count);
    if (error < 0)
        return error;
    struct weir_step_ask *rows = weir_arena_alloc(arena, count * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    uint64_t above = 0;
    for (size_t i = 0; i < count; i++) {
        error = get_ask(weir_v1_next_row(&in, ROWS), above, &rows[i]);
        if (error < 0)
            return error;
        above = rows[i].number;
    }
    *out = (struct weir_asks){ .count = count, .asks = rows };
    return 0;
}

static size_t ask_size(const struct weir_step_ask *ask)
{
    return weir_wire_number_size(ask->number) +
           weir_wire_bytes_size(ask->name.len) +
           weir_wire_number_size(ask->ask.op) +
           weir_wire_number_size(ask->ask.weight) +
           weir_wire_number_size(ask->ask.wait_max) +
           weir_wire_number_size(ask->ask.level) +
           weir_wire_number_size(ask->patience) +
           weir_wire_number_size(ask->ask.permit);
}

size_t weir_v1_asks_size(const struct weir_asks *asks)
{
    size_t size = 0;
    for (size_t i = 0; i < asks->count; i++)
        size += weir_wire_message_size(ask_size(&asks->asks[i]));
    return size;
}

uint8_t *weir_v1_asks_put(const struct weir_asks *asks, uint8_t *p)
{
    for (size_t i = 0; i < asks->count; i++) {
        const struct weir_step_ask *ask = &asks->asks[i];
        p = weir_wire_put_head(p, ROWS, ask_size(ask));
        p = weir_wire_put_number(p, ASK_NUMBER, ask->number);
        p = weir_wire_put_text(p, ASK_NAME, ask->name);
        p = weir_wire_put_number(p, ASK_OP, ask->ask.op);
        p = weir_wire_put_number(p, ASK_WEIGHT, ask->ask.weight);
        p = weir_wire_put_number(p, ASK_WAIT_MAX, ask->ask.wait_max);
        p = weir_wire_put_number(p, ASK_LEVEL, ask->ask.level);
        p = weir_wire_put_number(p, ASK_PATIENCE, ask->patience);
        p = weir_wire_put_number(p, ASK_PERMIT, ask->ask.permit);
    }
    return p;
}

/* ---- Answers ---- */

static int get_answer(struct weir_wire_in in, struct weir_step_answer *out)
{
    struct row row = { .name = { NULL, NULL } };
    int error = read_ask_row(in, ANSWER_WAIT, 0, &row);
    if (error < 0)
        return error;
    const uint64_t *numbers = row.numbers;
    if (numbers[ANSWER_NUMBER] == 0 ||
        numbers[ANSWER_ERROR] > WEIR_STEP_DENIED ||
        numbers[ANSWER_PASSED] > 1 || numbers[ANSWER_NEVER] > 1 ||
        numbers[ANSWER_LEVEL] >= WEIR_BUCKETS_MAX)
        return WEIR_EPROTOCOL;
    out->number = numbers[ANSWER_NUMBER];
    out->error = (enum weir_step_error)numbers[ANSWER_ERROR];
    if (out->error != WEIR_STEP_ANSWERED)
        return 0;
    out->answer = (struct weir_algorithm_answer){
        .passed = numbers[ANSWER_PASSED] == 1,
        .never = numbers[ANSWER_NEVER] == 1,
        .level = (uint8_t)numbers[ANSWER_LEVEL],
        .used = weir_unzigzag(numbers[ANSWER_USED]),
        .remaining = numbers[ANSWER_REMAINING],
        .retry_after = numbers[ANSWER_RETRY_AFTER],
        .wait = numbers[ANSWER_WAIT],
    };
    return 0;
}

int weir_v1_answers_get(struct weir_wire_in in, struct weir_arena *arena,
                        struct weir_answers *out)
{
    size_t count = 0;
    int error = count_rows(in, &count);
    if (error < 0)
        return error;
    struct weir_step_answer *rows =
        weir_arena_alloc(arena, count * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    for (size_t i = 0; i < count; i++) {
        error = get_answer(weir_v1_next_row(&in, ROWS), &rows[i]);
        if (error < 0)
            return error;
    }
    *out = (struct weir_answers){ .count = count, .answers = rows };
    return 0;
}

static size_t answer_size(const struct weir_step_answer *said)
{
    const struct weir_algorithm_answer *answer = &said->answer;
    return weir_wire_number_size(said->number) +
           weir_wire_number_size(said->error) +
           weir_wire_number_size(answer->passed) +
           weir_wire_number_size(answer->never) +
           weir_wire_number_size(answer->level) +
           weir_wire_number_size(weir_zigzag(answer->used)) +
           weir_wire_number_size(answer->remaining) +
           weir_wire_number_size(answer->retry_after) +
           weir_wire_number_size(answer->wait);
}

size_t weir_v1_answers_size(const struct weir_answers *answers)
{
    size_t size = 0;
    for (size_t i = 0; i < answers->count; i++)
        size += weir_wire_message_size(answer_size(&answers->answers[i]));
    return size;
}

uint8_t *weir_v1_answers_put(const struct weir_answers *answers, uint8_t *p)
{
    for (size_t i = 0; i < answers->count; i++) {
        const struct weir_step_answer *said = &answers->answers[i];
        const struct weir_algorithm_answer *answer = &said->answer;
        p = weir_wire_put_head(p, ROWS, answer_size(said));
        p = weir_wire_put_number(p, ANSWER_NUMBER, said->number);
        p = weir_wire_put_number(p, ANSWER_ERROR, said->error);
        p = weir_wire_put_number(p, ANSWER_PASSED, answer->passed);
        p = weir_wire_put_number(p, ANSWER_NEVER, answer->never);
        p = weir_wire_put_number(p, ANSWER_LEVEL, answer->level);
        p = weir_wire_put_number(p, ANSWER_USED, weir_zigzag(answer->used));
        p = weir_wire_put_number(p, ANSWER_REMAINING, answer->remaining);
        p = weir_wire_put_number(p, ANSWER_RETRY_AFTER, answer->retry_after);
        p = weir_wire_put_number(p, ANSWER_WAIT, answer->wait);
    }
    return p;
}
