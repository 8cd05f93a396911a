/* SPDX-License-Identifier: MIT
 * test/live/table_decider.c - a service that decides on an agent's table.
 *
 *     table_decider TABLE NOTES
 *
 * It never runs the table's limiter, and knows no root. A signal ends it; its
 * counts are in NOTES, a file of the words below, to which all such processes
 * add. */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weir/weir.h"

struct notes {
    _Atomic uint64_t begun, passed; /* units of "q" */
    _Atomic uint64_t limited;       /* units of "limited" that passed */
    _Atomic uint64_t strange;       /* impossible answers */
};

static struct notes *notes;

static void on_event(void *context, const struct weir_event *event)
{
    (void)context;
    if (event->type == WEIR_EVENT_TABLE)
        fprintf(stderr, "%s\n", event->text);
}

static struct notes *map_notes(const char *path)
{
    int fd = open(path, O_RDWR);
    void *p = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof(struct notes), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static void turn(struct weir *weir, struct weir_handle q,
                 struct weir_handle limited)
{
    struct weir_reply reply;
    struct weir_permit permit;
    notes->begun++;
    if (weir_take(q, 1, &reply, 0) == WEIR_PASSED)
        notes->passed++;
    notes->strange += reply.unknown;
    for (int i = 0; i < 20; i++)
        notes->limited += weir_take(limited, 1, NULL, 0) == WEIR_PASSED;
    if (weir_enter_by_name(weir, "db", 2, 0, 1, &permit, &reply, 0) ==
        WEIR_PASSED)
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
}

int main(int argc, char **argv)
{
    struct weir *weir;
    struct weir_handle q, limited;
    struct weir_options options = WEIR_OPTIONS_INIT;
    if (argc != 3)
        return 2;
    notes = map_notes(argv[2]);
    options.table = argv[1];
    options.table_role = WEIR_TABLE_DECIDES;
    options.on_event = on_event;
    if (!notes || weir_open(&options, &weir) < 0)
        return 2;
    if (weir_ready(weir, 30 * UINT64_C(1000000000)) < 0 ||
        weir_handle_open(weir, "q", 1, &q) < 0 ||
        weir_handle_open(weir, "limited", 7, &limited) < 0)
        return 3;
    for (;;)
        turn(weir, q, limited);
}
