/* SPDX-License-Identifier: MIT
 * test/store/store_suite_leased.h - the part of the suite about the mark that
 * no root of a store was ever master. */

#ifndef WEIR_STORE_SUITE_LEASED_H
#define WEIR_STORE_SUITE_LEASED_H

/* Each runs a test on a new store. */
void store_suite_never_leased(const char *url);
void store_suite_never_leased_restored(const char *url);

#endif /* WEIR_STORE_SUITE_LEASED_H */
