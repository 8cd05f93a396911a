/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_admin.c - requests to the administration API.
 *
 * The input is METHOD, a line feed, the target, a line feed, the body. The
 * request goes to a root with some quotas and without a store: an edit gets as
 * far as the place where it would be queued. Every request must be answered
 * exactly once, before the call returns. */

#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "server/admin/admin.h"

struct room {
    struct weir_root *root;
    struct weir_admin *admin;
};

static void add_quota(struct weir_root *root, const char *name, uint64_t epoch)
{
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    change.quota.epoch = change.quota.created = change.quota.id = epoch;
    if (weir_root_apply(root, &change, 1) < 0)
        abort();
}

static struct room make_room(void)
{
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("fuzz"),
        .peers_max = 1,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = WEIR_SECOND },
    };
    struct room room = { .root = weir_root_new(&options, 1) };
    struct weir_store_id id = { .uuid = { 1 } };
    if (!room.root || weir_root_store(room.root, &id, 3, 0, 1) < 0)
        abort();
    add_quota(room.root, "a", 1);
    add_quota(room.root, "b/c", 2);
    add_quota(room.root, "client/*", 3);
    weir_root_settle(room.root, 1);
    struct weir_admin_options admin = { .root = room.root,
                                        .name = options.name,
                                        .store_url = "none",
                                        .started = 1 };
    room.admin = weir_admin_new(&admin);
    if (!room.admin)
        abort();
    return room;
}

static void on_answer(void *context, const struct weir_admin_answer *answer)
{
    int *answers = context;
    ++*answers;
    if (answer->status < 200 || answer->status > 599 || !answer->type)
        abort();
}

/* Cuts a text off at the next line feed. */
static struct weir_text take_line(struct weir_text *rest)
{
    const char *feed = rest->len ? memchr(rest->p, '\n', rest->len) : NULL;
    size_t len = feed ? (size_t)(feed - rest->p) : rest->len;
    struct weir_text line = { rest->p, len };
    size_t skip = feed ? len + 1 : len;
    rest->p += skip;
    rest->len -= skip;
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct room room = make_room();
    struct weir_text rest = { (const char *)data, size };
    struct weir_admin_request request = { .identity = WEIR_TEXT("a fuzzer") };
    request.method = take_line(&rest);
    request.target = take_line(&rest);
    request.body = rest;
    int answers = 0;
    weir_admin_call(room.admin, &request, on_answer, &answers, 1000);
    if (answers != 1)
        abort();
    weir_admin_free(&room.admin);
    weir_root_free(room.root);
    return 0;
}
