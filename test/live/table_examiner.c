/* SPDX-License-Identifier: MIT
 * test/live/table_examiner.c - opens a shared table as one more process, reaps
 * the dead, audits all of it, and prints its counts.
 *
 *     table_examiner TABLE NAME...
 *
 * One line of JSON: for each name its units counted, and in flight:
 *
 *     {"ledger": [5000, 0], "db": [800, 2], ...}
 *
 * null: the table has no such quota. It is linked with the parts of libweir,
 * because no service may look so deep. A failed audit aborts it. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_sync.h"
#include "libweir/libweir_internal.h"

static void audit(struct weir_table *table)
{
    uint32_t used = weir_table_used(table), hand = 0;
    uint32_t *scratch = calloc(used + 1, sizeof(*scratch));
    if (!scratch)
        exit(3);
    for (uint32_t seen = 0; seen < used; seen += WEIR_TABLE_AUDIT_MAX)
        weir_table_audit(table, &hand, WEIR_TABLE_AUDIT_MAX);
    weir_table_audit_whole(table, scratch, used);
    free(scratch);
}

static void print_name(struct weir_table *table, const char *name)
{
    struct weir_ref ref;
    if (!weir_table_find(table, weir_text_of(name), &ref)) {
        printf("\"%s\": null", name);
        return;
    }
    printf("\"%s\": [%llu, %llu]", name,
           (unsigned long long)weir_table_count(table, ref.slot),
           (unsigned long long)weir_table_in_flight(table, ref.slot));
}

int main(int argc, char **argv)
{
    struct weir *weir;
    struct weir_options options = WEIR_OPTIONS_INIT;
    if (argc < 2)
        return 2;
    options.table = argv[1];
    options.table_role = WEIR_TABLE_DECIDES;
    if (weir_open(&options, &weir) < 0)
        return 2;
    audit(weir->table);
    for (int i = 2; i < argc; i++) {
        fputs(i == 2 ? "{" : ", ", stdout);
        print_name(weir->table, argv[i]);
    }
    puts("}");
    weir_close(weir);
    return 0;
}
