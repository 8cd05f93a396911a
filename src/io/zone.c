/* SPDX-License-Identifier: MIT
 * io/zone.c - time zones by name, from the machine's files.
 *
 * A name comes from a quota, so any editor of quotas can choose it. It becomes
 * part of a path and must not leave the folder of zones: dots are refused. */

#include "io/zone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/tzif.h"

#define NAME_MAX_BYTES 64
#define PATH_SIZE 512
#define FOLDER "/usr/share/zoneinfo"

/* The path of a zone's file; false: the name is invalid. */
static bool zone_path(struct weir_text name, char *path)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/";
    if (name.len == 0 || name.len > NAME_MAX_BYTES || name.p[0] == '/')
        return false;
    for (size_t i = 0; i < name.len; i++) {
        if (!memchr(allowed, name.p[i], sizeof(allowed) - 1))
            return false;
    }
    const char *folder = getenv("TZDIR");
    int len =
        snprintf(path, PATH_SIZE, "%s/%.*s",
                 folder && folder[0] ? folder : FOLDER, (int)name.len, name.p);
    return len > 0 && len < PATH_SIZE;
}

/* The bytes of a file, malloc'ed; NULL: it doesn't exist, or is too large. */
static unsigned char *read_zone_file(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return NULL;
    unsigned char *bytes = malloc(WEIR_TZIF_SIZE_MAX + 1);
    size_t size = bytes ? fread(bytes, 1, WEIR_TZIF_SIZE_MAX + 1, file) : 0;
    fclose(file);
    if (size > 0 && size <= WEIR_TZIF_SIZE_MAX) {
        *out_size = size;
        return bytes;
    }
    free(bytes);
    return NULL;
}

int weir_zone_at(struct weir_text name, int64_t at, int32_t *out_offset_s,
                 int64_t *out_until, struct weir_diag *diag)
{
    char path[PATH_SIZE];
    char shown[NAME_MAX_BYTES + 1] = "";
    size_t len = name.len < NAME_MAX_BYTES ? name.len : NAME_MAX_BYTES;
    if (len > 0)
        memcpy(shown, name.p, len);
    size_t size = 0;
    unsigned char *bytes =
        zone_path(name, path) ? read_zone_file(path, &size) : NULL;
    if (!bytes)
        return weir_diag_set(
            diag, WEIR_ENOENT, "this machine knows no time zone '", shown,
            "'; install tzdata, or write the zone as an offset like +01:00",
            NULL);
    struct weir_tzif_span span;
    int error = weir_tzif_at(bytes, size, at, &span);
    free(bytes);
    if (error < 0)
        return weir_diag_set(diag, error, "the file of the time zone '", shown,
                             "' can't be read as one (RFC 9636)", NULL);
    *out_offset_s = span.offset_s;
    *out_until = span.until;
    return 0;
}
