/* SPDX-License-Identifier: MIT
 * cli/replay_set.c - a file of quotas in the table of one limiter that gets all
 * requests.
 *
 * One process decides every request here, so its counts are exact for any
 * sharing a quota has. Quotas that would ask a store are decided in the table,
 * by the same arithmetic. */

#include "cli/replay.h"

#include <string.h>
#include <sys/mman.h>

#include "cli/cmd_quota.h"
#include "codec/quota_json.h"
#include "core/base/hash.h"
#include "core/quota/quota_algorithm_rule.h"
#include "io/clock.h"
#include "io/zone.h"
#include "lab/memory.h"

static int check_quota_zone(const struct weir_replay_set *set,
                            const struct weir_quota *quota)
{
    struct weir_diag diag = { 0 };
    int32_t offset;
    int64_t until;
    if (quota->tz.len == 0 || weir_tz_fixed(quota->tz, &offset) ||
        weir_zone_at(quota->tz, 0, &offset, &until, &diag) == 0)
        return 0;
    return weir_cli_fail("%s: %.*s: %s", set->path, (int)quota->name.len,
                         quota->name.p, diag.text);
}

static int check_replay_quota(struct weir_replay_set *set, json_t *object,
                              struct weir_quota *out)
{
    struct weir_diag diag = { 0 };
    weir_quota_init(out);
    if (weir_quota_from_json(object, out, &diag) < 0 ||
        weir_quota_check(out, &diag) < 0)
        return weir_cli_fail("%s: %.*s: %s", set->path, (int)out->name.len,
                             out->name.p ? out->name.p : "", diag.text);
    if (weir_name_is_shadow(out->name))
        return weir_cli_fail("%s: %.*s: write it without \"shadow:\"; "
                             "--compare sets two files side by side",
                             set->path, (int)out->name.len, out->name.p);
    struct weir_change change = { .quota = *out };
    change.quota.epoch = weir_catalog_epoch(set->catalog) + 1;
    change.quota.created = change.quota.epoch;
    if (weir_catalog_apply(set->catalog, &change) < 0)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    return check_quota_zone(set, out);
}

int weir_replay_set_read(struct weir_replay_set *set, const char *path)
{
    *set = (struct weir_replay_set){ .path = path };
    set->body = weir_cli_quota_file(path);
    if (!set->body)
        return WEIR_EXIT_ERROR;
    json_t *list = json_object_get(set->body, "quotas");
    set->count = json_array_size(list);
    set->quotas = weir_must_zeroed(set->count, sizeof *set->quotas);
    set->catalog = weir_must(weir_catalog_new(&weir_mem_system, 0));
    if (set->count == 0)
        return weir_cli_fail("%s: no quota in it", path);
    for (size_t i = 0; i < set->count; i++) {
        int status =
            check_replay_quota(set, json_array_get(list, i), &set->quotas[i]);
        if (status)
            return status;
        if (weir_index_add(&set->index, &weir_mem_system,
                           weir_hash(set->quotas[i].name, 0), (uint32_t)i) < 0)
            return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    }
    for (size_t i = 0; i < set->count; i++) {
        struct weir_diag diag = { 0 };
        if (weir_catalog_check_place(set->catalog, set->quotas[i].name, &diag) <
            0)
            return weir_cli_fail("%s: %s", path, diag.text);
    }
    return 0;
}

void weir_replay_set_fini(struct weir_replay_set *set)
{
    json_decref(set->body);
    free(set->quotas);
    weir_index_fini(&set->index, &weir_mem_system);
    weir_catalog_free(set->catalog);
}

int weir_replay_set_find(const struct weir_replay_set *set,
                         struct weir_text name)
{
    uint64_t hash = weir_hash(name, 0);
    size_t cursor = 0;
    uint32_t at;
    while (weir_index_find(&set->index, hash, &cursor, &at))
        if (weir_text_equal(set->quotas[at].name, name))
            return (int)at;
    return -1;
}

size_t weir_replay_chain(const struct weir_replay_set *set,
                         struct weir_text name,
                         struct weir_replay_link out[WEIR_DEPTH_MAX])
{
    size_t count = 0;
    char buf[2][WEIR_NAME_MAX];
    while (count < WEIR_DEPTH_MAX && name.len > 0) {
        struct weir_captures captures;
        const struct weir_quota *quota =
            weir_catalog_find(set->catalog, name, &captures);
        if (!quota)
            break;
        struct weir_replay_link *link = &out[count];
        link->quota = weir_replay_set_find(set, quota->name);
        link->len = (uint8_t)name.len;
        memcpy(link->name, name.p, name.len);
        char *parent = buf[count++ % 2];
        int len = weir_glob_expand(quota->parent, &captures, parent);
        name = (struct weir_text){ parent, len > 0 ? (size_t)len : 0 };
    }
    return count;
}

/* ---- The table ---- */

struct zones {
    int64_t at, until; /* seconds since 1970 */
};

static int32_t zone_offset(void *context, struct weir_text zone)
{
    struct zones *zones = context;
    int32_t offset = 0;
    int64_t until = INT64_MAX;
    /* An unknown zone was refused when the file was read. */
    if (!weir_tz_fixed(zone, &offset))
        (void)weir_zone_at(zone, zones->at, &offset, &until, NULL);
    zones->until = until < zones->until ? until : zones->until;
    return offset;
}

void weir_replay_table_zones(struct weir_replay_table *table, weir_instant now)
{
    struct zones zones = { (int64_t)(now / WEIR_SECOND), INT64_MAX };
    weir_table_set_zones(table->table, zone_offset, &zones);
    bool ends = zones.until < INT64_MAX / (int64_t)WEIR_SECOND;
    table->zones_until =
        ends ? (weir_instant)zones.until * WEIR_SECOND : WEIR_NEVER;
}

static bool has_bucket_state(const struct weir_quota *quota)
{
    return quota->algorithm != WEIR_LEAKY &&
           quota->algorithm != WEIR_TOKEN_BUCKET;
}

/* Room for a state of the largest kind in each slot, and for the rules. */
static uint64_t bucket_state_bytes(const struct weir_quota *quotas,
                                   size_t count, uint32_t slots)
{
    uint64_t most = WEIR_ALGORITHM_BYTES_A_SLOT;
    for (size_t i = 0; i < count; i++) {
        struct weir_algorithm_rule rule;
        if (!has_bucket_state(&quotas[i]) || quotas[i].limit.unlimited)
            continue;
        weir_quota_algorithm_rule(&quotas[i], 0, &rule);
        uint64_t size = 2 * weir_algorithm_size(&rule);
        most = size > most ? size : most;
    }
    uint64_t all = (uint64_t)slots * most + (64u << 10);
    return all < WEIR_ALGORITHM_BYTES_MAX ? all : WEIR_ALGORITHM_BYTES_MAX;
}

void weir_replay_table_init(struct weir_replay_table *table,
                            const struct weir_quota *quotas, size_t count,
                            size_t names, uint64_t seed, weir_instant now)
{
    size_t slots = 64 + 2 * count + 3 * names;
    *table = (struct weir_replay_table){
        .slots = slots < WEIR_SLOTS_MAX ? (uint32_t)slots : WEIR_SLOTS_MAX,
    };
    const struct weir_table_options options = {
        .slots = table->slots,
        .stripes = 2,
        .seed = seed,
        .bucket_state_bytes = bucket_state_bytes(quotas, count, table->slots),
    };
    table->size = weir_table_size(&options);
    /* Unused pages cost nothing. */
    void *block = mmap(NULL, table->size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        abort();
    table->table = weir_table_init(block, &options, now);
    table->stripe = weir_table_claim_stripe(table->table);
    for (size_t i = 0; i < count; i++) {
        struct weir_quota quota = quotas[i];
        quota.epoch = quota.created = i + 1;
        if (quota.sharing == WEIR_EXACT)
            quota.sharing = WEIR_LOCAL;
        if (weir_table_put(table->table, &quota, now) < 0)
            abort(); /* there is room for all */
    }
    weir_replay_table_zones(table, now);
}

void weir_replay_table_fini(struct weir_replay_table *table)
{
    munmap(table->table, table->size);
}
