/* SPDX-License-Identifier: MIT
 * day_shift.h - another day for this process: a test linked with day_shift.c
 * has a time() of its own, which libcrypto calls instead of the C library's.
 * Other clocks stay. */

#ifndef WEIR_DAY_SHIFT_H
#define WEIR_DAY_SHIFT_H

/* Sets time() so many seconds before (negative: behind) the true one. */
void shift_seconds(long seconds);
void shift_days(int days);

#endif /* WEIR_DAY_SHIFT_H */
