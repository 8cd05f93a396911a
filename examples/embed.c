/* SPDX-License-Identifier: MIT
 * examples/embed.c - the smallest program that asks a quota.
 *
 *     weir serve & weir quota set hello limit=3/s
 *     cc embed.c -lweir && ./a.out */

#include <stdio.h>

#include <weir/weir.h>

int main(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = "127.0.0.1:7077";
    struct weir *weir;
    if (weir_open(&options, &weir) < 0)
        return 2;
    /* A server would just start: without a root yet, everything passes. */
    if (weir_ready(weir, 2 * WEIR_SECOND) < 0)
        puts("no root answers, so nothing is limited");
    enum weir_verdict verdict = weir_take_by_name(weir, "hello", 5, 1, NULL, 0);
    puts(verdict == WEIR_PASSED ? "passed" : "limited");
    weir_close(weir);
    return verdict == WEIR_PASSED ? 0 : 1;
}
