/* SPDX-License-Identifier: MIT
 * test/live/table_holder.c - a process that stops while it has a lock of an
 * agent's table.
 *
 *     table_holder TABLE writer|QUOTA
 *
 * It takes the writer lock, or the lock of the quota's bucket state, and stops
 * itself (SIGSTOP). When it goes on, it releases the lock and ends. */

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/table/table_bucket_state_internal.h"
#include "io/clock.h"
#include "libweir/libweir_decide.h"

#define PATIENCE (60 * WEIR_SECOND)

static bool hold(struct weir *weir, const char *what)
{
    struct weir_table *t = weir->table;
    struct weir_ref ref;
    if (strcmp(what, "writer") == 0)
        return weir_table_try_lock_as(t, weir->process, 0);
    return weir_table_find(t, weir_text_of(what), &ref) &&
           weir_bucket_state_lock(t, ref.slot, weir_stripe_mine(weir), 0);
}

static void let_go(struct weir *weir, const char *what)
{
    struct weir_ref ref;
    if (strcmp(what, "writer") == 0)
        weir_table_unlock(weir->table);
    else if (weir_table_find(weir->table, weir_text_of(what), &ref))
        weir_bucket_state_unlock(weir->table, ref.slot);
    weir_locks_wake(weir);
}

int main(int argc, char **argv)
{
    struct weir *weir;
    struct weir_options options = WEIR_OPTIONS_INIT;
    if (argc != 3)
        return 2;
    options.table = argv[1];
    options.table_role = WEIR_TABLE_DECIDES;
    if (weir_open(&options, &weir) < 0 || weir_ready(weir, PATIENCE) < 0)
        return 1;
    weir_instant until = weir_clock_now() + PATIENCE;
    while (!hold(weir, argv[2])) {
        if (weir_clock_now() > until)
            return 1;
        weir_waiting_sleep(weir_clock_now() + WEIR_MILLISECOND);
    }
    raise(SIGSTOP);
    let_go(weir, argv[2]);
    weir_close(weir);
    return 0;
}
