/* SPDX-License-Identifier: MIT
 * io/snapshot_file.c - the bytes of a snapshot.
 *
 * A snapshot is used when there is no other source, so a wrong one would be
 * worse than none: a fleet would be ruled by quotas that were never set. It is
 * read twice. The first time it is only checked: every length, every quota as
 * the wire's decoder checks it, the order of epochs, the checksum, and that
 * nothing follows. Only the second time is it handed out. Between the two it
 * can't change: a writer makes a new file and renames it, and the descriptor
 * stays at the old one.
 *
 * The checksum is a chain: the hash of each part has that of the parts before
 * it as its seed. It protects against disks and half-written files, not against
 * attackers: they could as well edit the store.
 *
 * The quotas have the wire's encoding, so that there is one format of a quota
 * that can be wrong, and its fuzzer covers this one too. */

#include "io/snapshot_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "core/base/hash.h"
#include "core/quota/quota_feature.h"
#include "io/clock.h"

#define MAGIC "WEIRSNAP"
#define MAGIC_SIZE 8
#define HEADER_SIZE (MAGIC_SIZE + 4 + 16 + 8)
#define LENGTH_SIZE 4
#define END_NUMBERS(version) ((version) < 2 ? 5u : 7u)
#define END_SIZE(version) (LENGTH_SIZE + 8 * END_NUMBERS(version))

/* ---- Numbers ---- */

static char *put_le_number(char *p, uint64_t value, size_t size)
{
    weir_assert(size <= sizeof value);
    for (size_t i = 0; i < size; i++)
        p[i] = (char)(unsigned char)(value >> (8 * i));
    return p + size;
}

static uint64_t get_le_number(const char *p, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
        value = value << 8 | (unsigned char)p[i];
    return value;
}

/* ---- Writing ---- */

static int fit_maker(struct weir_snapshot_maker *maker, size_t len)
{
    char *bytes =
        weir_mem_grow(&weir_mem_system, maker->bytes, 1, &maker->capacity, len);
    if (!bytes)
        return WEIR_ENOMEM;
    maker->bytes = bytes;
    maker->len = len;
    return 0;
}

static void chain_checksum(uint64_t *checksum, const char *bytes, size_t len)
{
    *checksum = weir_hash((struct weir_text){ bytes, len }, *checksum);
}

int weir_snapshot_begin(struct weir_snapshot_maker *maker,
                        const struct weir_store_id *store)
{
    maker->checksum = 0;
    maker->changes = 0;
    if (fit_maker(maker, HEADER_SIZE) < 0)
        return WEIR_ENOMEM;
    char *p = maker->bytes;
    memcpy(p, MAGIC, MAGIC_SIZE);
    p = put_le_number(p + MAGIC_SIZE, WEIR_SNAPSHOT_VERSION, 4);
    memcpy(p, store->uuid, sizeof store->uuid);
    p = put_le_number(p + sizeof store->uuid, store->restores, 8);
    weir_assert(p == maker->bytes + maker->len);
    chain_checksum(&maker->checksum, maker->bytes, maker->len);
    return 0;
}

int weir_snapshot_piece(struct weir_snapshot_maker *maker,
                        const struct weir_change *changes, size_t count)
{
    weir_assert(count >= 1 && count <= WEIR_QUOTAS_MAX);
    struct weir_message message = {
        .type = WEIR_MESSAGE_QUOTAS,
        .quotas = { .epoch = changes[count - 1].quota.epoch,
                    .count = count,
                    .changes = changes },
    };
    size_t size = weir_v1_size(&message);
    if (fit_maker(maker, LENGTH_SIZE + size) < 0)
        return WEIR_ENOMEM;
    char *p = put_le_number(maker->bytes, size, LENGTH_SIZE);
    size_t written = weir_v1_encode(&message, p, size);
    weir_assert(written == size);
    maker->changes += count;
    chain_checksum(&maker->checksum, maker->bytes, maker->len);
    return 0;
}

int weir_snapshot_end(struct weir_snapshot_maker *maker,
                      const struct weir_snapshot_info *info)
{
    const size_t size = END_SIZE(WEIR_SNAPSHOT_VERSION);
    if (fit_maker(maker, size) < 0)
        return WEIR_ENOMEM;
    char *p = put_le_number(maker->bytes, 0, LENGTH_SIZE);
    p = put_le_number(p, info->epoch, 8);
    p = put_le_number(p, info->floor, 8);
    p = put_le_number(p, maker->changes, 8);
    p = put_le_number(p, info->at_ms, 8);
    p = put_le_number(p, info->lineage, 8);
    p = put_le_number(p, WEIR_FEATURES_ALL, 8);
    chain_checksum(&maker->checksum, maker->bytes, size - 8);
    p = put_le_number(p, maker->checksum, 8);
    weir_assert(p == maker->bytes + maker->len);
    return 0;
}

void weir_snapshot_maker_fini(struct weir_snapshot_maker *maker)
{
    free(maker->bytes);
    *maker = (struct weir_snapshot_maker){ 0 };
}

/* ---- Reading ---- */

struct reader {
    FILE *file;       /* owned */
    const char *path; /* borrowed */
    struct weir_diag *diag;
    char *bytes; /* owned: of one part */
    size_t capacity;
    struct weir_arena arena; /* owned: of the decoder */
    uint64_t version;
    uint64_t checksum;
    uint64_t epoch; /* of the last change */
    uint64_t changes;
    struct weir_snapshot_info info;
};

static int refuse_snapshot(struct reader *r, int error, const char *why)
{
    return weir_diag_set(r->diag, error, "the snapshot ", r->path, " ", why,
                         "; it isn't used", NULL);
}

/* The message is errno's. */
static int refuse_unread(struct reader *r)
{
    return weir_diag_set(r->diag, WEIR_ESYSTEM, "the snapshot ", r->path,
                         " can't be read: ", strerror(errno), "; it isn't used",
                         NULL);
}

/* Reads exactly 'len' bytes to 'at' in the reader's bytes. */
static int read_exactly(struct reader *r, size_t at, size_t len)
{
    char *bytes =
        weir_mem_grow(&weir_mem_system, r->bytes, 1, &r->capacity, at + len);
    if (!bytes)
        return refuse_snapshot(r, WEIR_ENOMEM,
                               "needs more memory than there is");
    r->bytes = bytes;
    if (fread(bytes + at, 1, len, r->file) == len)
        return 0;
    return ferror(r->file) ? refuse_unread(r)
                           : refuse_snapshot(r, WEIR_ESYNTAX, "is cut short");
}

static int read_snapshot_header(struct reader *r)
{
    int error = read_exactly(r, 0, HEADER_SIZE);
    if (error < 0)
        return error;
    const char *p = r->bytes;
    if (memcmp(p, MAGIC, MAGIC_SIZE) != 0)
        return refuse_snapshot(r, WEIR_ESYNTAX, "isn't one of Weir");
    r->version = get_le_number(p + MAGIC_SIZE, 4);
    if (r->version < 1 || r->version > WEIR_SNAPSHOT_VERSION)
        return refuse_snapshot(r, WEIR_ESCHEMA,
                               "was made by another version of Weir");
    p += MAGIC_SIZE + 4;
    memcpy(r->info.store.uuid, p, sizeof r->info.store.uuid);
    r->info.store.restores = get_le_number(p + sizeof r->info.store.uuid, 8);
    chain_checksum(&r->checksum, r->bytes, HEADER_SIZE);
    return 0;
}

static int hand_out(struct reader *r, const struct weir_quotas *quotas,
                    const struct weir_snapshot_sink *sink)
{
    for (size_t i = 0; i < quotas->count; i++) {
        const struct weir_change *change = &quotas->changes[i];
        if (change->quota.epoch <= r->epoch)
            return refuse_snapshot(r, WEIR_ESYNTAX, "is damaged");
        r->epoch = change->quota.epoch;
        int error = sink ? sink->on_change(sink->context, change) : 0;
        if (error < 0)
            return refuse_snapshot(r, error, weir_strerror(error));
    }
    r->changes += quotas->count;
    return 0;
}

static int read_piece(struct reader *r, size_t len,
                      const struct weir_snapshot_sink *sink)
{
    if (len > WEIR_MESSAGE_BYTES_MAX)
        return refuse_snapshot(r, WEIR_ESYNTAX, "is damaged");
    int error = read_exactly(r, LENGTH_SIZE, len);
    if (error < 0)
        return error;
    chain_checksum(&r->checksum, r->bytes, LENGTH_SIZE + len);
    struct weir_message message;
    error =
        weir_v1_decode(r->bytes + LENGTH_SIZE, len, false, &r->arena, &message);
    if (error < 0 || message.type != WEIR_MESSAGE_QUOTAS)
        return refuse_snapshot(r, WEIR_ESYNTAX, "is damaged");
    return hand_out(r, &message.quotas, sink);
}

static int read_end(struct reader *r)
{
    size_t size = END_SIZE(r->version);
    int error = read_exactly(r, LENGTH_SIZE, size - LENGTH_SIZE);
    if (error < 0)
        return error;
    const char *p = r->bytes + LENGTH_SIZE;
    chain_checksum(&r->checksum, r->bytes, size - 8);
    r->info.epoch = get_le_number(p, 8);
    r->info.floor = get_le_number(p + 8, 8);
    r->info.changes = get_le_number(p + 16, 8);
    r->info.at_ms = get_le_number(p + 24, 8);
    bool first = r->version < 2;
    r->info.lineage = first ? 0 : get_le_number(p + 32, 8);
    r->info.features =
        first ? WEIR_FEATURES_UNANNOUNCED : get_le_number(p + 40, 8);
    bool sound = get_le_number(r->bytes + size - 8, 8) == r->checksum &&
                 r->info.changes == r->changes && r->info.epoch >= r->epoch;
    if (!sound)
        return refuse_snapshot(r, WEIR_ESYNTAX, "is damaged");
    if (getc(r->file) != EOF)
        return refuse_snapshot(r, WEIR_ESYNTAX, "has more behind its end");
    return 0;
}

/* Reads the parts from the header to the end. */
static int read_parts(struct reader *r, const struct weir_snapshot_sink *sink)
{
    r->checksum = r->epoch = r->changes = 0;
    int error = read_snapshot_header(r);
    while (error == 0) {
        error = read_exactly(r, 0, LENGTH_SIZE);
        if (error < 0)
            break;
        size_t len = (size_t)get_le_number(r->bytes, LENGTH_SIZE);
        if (len == 0)
            return read_end(r);
        error = read_piece(r, len, sink);
    }
    return error;
}

static int read_parts_twice(struct reader *r,
                            const struct weir_snapshot_sink *sink)
{
    int error = read_parts(r, NULL);
    if (error < 0 || !sink)
        return error;
    error = sink->on_store(sink->context, &r->info);
    if (error < 0)
        return refuse_snapshot(r, error, weir_strerror(error));
    rewind(r->file);
    return read_parts(r, sink);
}

int weir_snapshot_read(const char *path, const struct weir_snapshot_sink *sink,
                       struct weir_snapshot_info *out, struct weir_diag *diag)
{
    struct reader r = { .path = path, .diag = diag };
    r.file = fopen(path, "re");
    if (!r.file)
        return errno == ENOENT ? refuse_snapshot(&r, WEIR_ENOENT, "isn't there")
                               : refuse_unread(&r);
    r.arena = (struct weir_arena){ malloc(WEIR_DECODE_ARENA_SIZE),
                                   WEIR_DECODE_ARENA_SIZE, 0 };
    int error = r.arena.base ? read_parts_twice(&r, sink)
                             : refuse_snapshot(&r, WEIR_ENOMEM,
                                               "needs more memory than there "
                                               "is");
    if (error == 0)
        *out = r.info;
    free(r.arena.base);
    free(r.bytes);
    fclose(r.file);
    return error;
}
