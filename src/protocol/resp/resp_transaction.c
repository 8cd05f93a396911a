/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_transaction.c - requests in one block, as RESP.
 *
 * A queued request is written as the array of strings that a client sends, and
 * decoded again when its turn comes. So a queue is one block that grows to its
 * bound, and a connection without a transaction has none.
 *
 * Rejected: an array of requests with pointers. A request of few words then
 * takes twice as much memory as its bytes, and its bound is harder to state. */

#include "protocol/resp/resp_transaction.h"

#include <string.h>

/* Bytes that RESP adds to an argument or to the array: "$16384\r\n\r\n". */
#define HEAD_MAX 10

struct weir_resp_transaction {
    const struct weir_mem *mem; /* borrowed */
    char *bytes;                /* owned; NULL: nothing is queued */
    size_t size, len;           /* of 'bytes' */
    size_t count;
    bool is_broken;
};

struct weir_resp_transaction *weir_resp_transaction_new(
    const struct weir_mem *mem)
{
    struct weir_resp_transaction *made = mem->alloc(mem->context, sizeof *made);
    if (made)
        made->mem = mem;
    return made;
}

void weir_resp_transaction_free(struct weir_resp_transaction **transaction)
{
    struct weir_resp_transaction *self = *transaction;
    if (!self)
        return;
    *transaction = NULL;
    self->mem->free(self->mem->context, self->bytes, self->size);
    self->mem->free(self->mem->context, self, sizeof *self);
}

/* More bytes than the request has in RESP. */
static size_t length_bound(const struct weir_resp_request *request)
{
    size_t len = HEAD_MAX;
    for (size_t i = 0; i < request->count; i++)
        len += request->argument[i].len + HEAD_MAX;
    return len;
}

int weir_resp_transaction_add(struct weir_resp_transaction *transaction,
                              const struct weir_resp_request *request)
{
    struct weir_resp_transaction *self = transaction;
    size_t needed = self->len + length_bound(request);
    weir_assert(request->count > 0);
    if (self->count == WEIR_RESP_QUEUED_MAX)
        return WEIR_ETOOBIG;
    if (needed > WEIR_RESP_QUEUED_BYTES_MAX)
        needed = WEIR_RESP_QUEUED_BYTES_MAX;
    if (self->size < needed) {
        char *grown = weir_mem_grow(self->mem, self->bytes, sizeof *grown,
                                    &self->size, needed);
        if (!grown)
            return WEIR_ENOMEM;
        self->bytes = grown;
    }
    struct weir_resp_out out = { .p = self->bytes,
                                 .len = self->len,
                                 .size = needed };
    weir_resp_array(&out, request->count);
    for (size_t i = 0; i < request->count; i++)
        weir_resp_bulk(&out, request->argument[i]);
    if (out.full)
        return WEIR_ETOOBIG;
    self->len = out.len;
    self->count++;
    return 0;
}

size_t weir_resp_transaction_count(
    const struct weir_resp_transaction *transaction)
{
    return transaction->count;
}

bool weir_resp_transaction_next(const struct weir_resp_transaction *transaction,
                                size_t *at, struct weir_resp_request *out)
{
    size_t used = 0;
    const char *error = NULL;
    weir_assert(*at <= transaction->len);
    if (*at == transaction->len)
        return false;
    int whole = weir_resp_decode(transaction->bytes + *at,
                                 transaction->len - *at, out, &used, &error);
    weir_assert(whole == 1 && used > 0);
    *at += used;
    return true;
}

void weir_resp_transaction_break(struct weir_resp_transaction *transaction)
{
    transaction->is_broken = true;
}

bool weir_resp_transaction_is_broken(
    const struct weir_resp_transaction *transaction)
{
    return transaction->is_broken;
}
