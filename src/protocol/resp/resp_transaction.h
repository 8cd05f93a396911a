/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_transaction.h - the commands that a client of Redis sends
 * between MULTI and EXEC. No sockets, no decisions. One thread. */

#ifndef WEIR_RESP_TRANSACTION_H
#define WEIR_RESP_TRANSACTION_H

#include "codec/resp.h"

/* Commands, and bytes of them in RESP, of one transaction. */
#define WEIR_RESP_QUEUED_MAX 256u
#define WEIR_RESP_QUEUED_BYTES_MAX WEIR_RESP_REQUEST_MAX

struct weir_resp_transaction;

/* An empty transaction; NULL: no memory. 'mem' is borrowed. */
struct weir_resp_transaction *weir_resp_transaction_new(
    const struct weir_mem *mem);
/* NULL inside is legal. */
void weir_resp_transaction_free(struct weir_resp_transaction **transaction);

/* Appends a copy of a request with at least one argument. 0, WEIR_ETOOBIG
 * (beyond a bound) or WEIR_ENOMEM; nothing is appended then. */
int weir_resp_transaction_add(struct weir_resp_transaction *transaction,
                              const struct weir_resp_request *request);
size_t weir_resp_transaction_count(
    const struct weir_resp_transaction *transaction);
/* Reads the requests in their order. '*at' is 0 at first, and moves on. False:
 * there are no more. The arguments point into the transaction, until the next
 * call that changes it. */
bool weir_resp_transaction_next(const struct weir_resp_transaction *transaction,
                                size_t *at, struct weir_resp_request *out);

/* Marks the transaction: a command was refused, so none is to be executed. */
void weir_resp_transaction_break(struct weir_resp_transaction *transaction);
bool weir_resp_transaction_is_broken(
    const struct weir_resp_transaction *transaction);

#endif /* WEIR_RESP_TRANSACTION_H */
