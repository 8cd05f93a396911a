/* SPDX-License-Identifier: MIT
 * test/credentials_maker.h - credentials of a text, for tests and fuzzers. */

#ifndef WEIR_CREDENTIALS_MAKER_H
#define WEIR_CREDENTIALS_MAKER_H

#include "front/credentials.h"

/* weir_credentials_open() of a file with that text and mode 0600, which has no
 * name in any folder and is gone afterwards. */
int credentials_make(struct weir_text text, struct weir_credentials **out,
                     struct weir_diag *diag);

#endif /* WEIR_CREDENTIALS_MAKER_H */
