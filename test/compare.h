/* SPDX-License-Identifier: MIT
 * test/compare.h - an assertion that prints both of the values it compares. */

#ifndef WEIR_TEST_COMPARE_H
#define WEIR_TEST_COMPARE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* assert_compare(fill, <=, high): each side is a number and is evaluated once.
 * The comparison is C's own, so that signs and sizes convert as they would in
 * assert_true(fill <= high). */
#define assert_compare(left, op, right)                                      \
    do {                                                                     \
        _Pragma("GCC diagnostic push")                                       \
            _Pragma("GCC diagnostic ignored \"-Wsign-compare\"") _Pragma(    \
                "GCC diagnostic ignored \"-Wshadow\"") __auto_type left_ =   \
                (left);                                                      \
        __auto_type right_ = (right);                                        \
        if (!(left_ op right_))                                              \
            fail_msg("expected %s %s %s, got %.20Lg and %.20Lg", #left, #op, \
                     #right, (long double)left_, (long double)right_);       \
        _Pragma("GCC diagnostic pop")                                        \
    } while (0)

#endif
