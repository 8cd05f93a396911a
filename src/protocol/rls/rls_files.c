/* SPDX-License-Identifier: MIT
 * protocol/rls/rls_files.c - reads a file of limits, or a folder of them.
 *
 * A folder is a list of its files by name, so that patterns of one domain are
 * tried in an order that doesn't depend on the file system. */

#include "protocol/rls/rls_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/hash.h"
#include "io/file_stamp.h"

static int refuse_file(const char *path, struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESYSTEM, path, ": ", strerror(errno), NULL);
}

static bool ends_in(const char *name, const char *end)
{
    size_t len = strlen(name);
    size_t end_len = strlen(end);
    return len > end_len && strcmp(name + len - end_len, end) == 0;
}

static int is_limits_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.' &&
           (ends_in(entry->d_name, ".yaml") || ends_in(entry->d_name, ".yml"));
}

static bool is_folder(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && S_ISDIR(file.st_mode);
}

/* A folder, or a FIFO, which would wait for its writer. */
static bool is_no_file(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && !S_ISREG(file.st_mode);
}

static char *join_path(const char *folder, const char *name)
{
    size_t size = strlen(folder) + 1 + strlen(name) + 1;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* Fills 'paths' of the files; their texts are read later. */
static int list_folder(const char *path, struct weir_rls_files *out,
                       struct weir_diag *diag)
{
    struct dirent **entries;
    int count = scandir(path, &entries, is_limits_name, alphasort);
    if (count < 0)
        return refuse_file(path, diag);
    int error = 0;
    if (count > (int)WEIR_RLS_FILES_MAX)
        error = weir_diag_set(diag, WEIR_ETOOBIG, path,
                              ": more than 1024 files", NULL);
    else
        out->paths = calloc((size_t)count + 1, sizeof *out->paths);
    for (int i = 0; i < count; i++) {
        char *file = out->paths ? join_path(path, entries[i]->d_name) : NULL;
        if (file && is_no_file(file))
            free(file);
        else if (out->paths)
            out->paths[out->count++] = file;
        free(entries[i]);
    }
    free(entries);
    if (out->paths && out->count == 0)
        error = weir_diag_set(diag, WEIR_ESYSTEM, path,
                              ": no file in this folder ends in .yaml or .yml",
                              NULL);
    return error;
}

static int list_files(const char *path, struct weir_rls_files *out,
                      struct weir_diag *diag)
{
    int error = 0;
    *out = (struct weir_rls_files){ .count = 0 };
    if (is_folder(path)) {
        error = list_folder(path, out, diag);
    } else {
        out->paths = calloc(1, sizeof *out->paths);
        if (out->paths)
            out->paths[out->count++] = strdup(path);
    }
    if (error == 0 && !out->paths)
        error = weir_diag_put(diag, WEIR_ENOMEM, NULL);
    for (size_t i = 0; i < out->count && error == 0; i++)
        if (!out->paths[i])
            error = weir_diag_put(diag, WEIR_ENOMEM, NULL);
    return error;
}

static int read_text(const char *path, struct weir_text *out,
                     struct weir_diag *diag)
{
    size_t capacity = 1 << 16;
    size_t len = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return refuse_file(path, diag);
    char *text = malloc(capacity);
    while (text) {
        len += fread(text + len, 1, capacity - len, file);
        /* A longer one is refused by its reader. */
        if (len < capacity || len > WEIR_RLS_CONFIG_BYTES_MAX)
            break;
        capacity *= 2;
        char *grown = realloc(text, capacity);
        if (!grown)
            free(text);
        text = grown;
    }
    int error = !text          ? weir_diag_put(diag, WEIR_ENOMEM, NULL)
                : ferror(file) ? refuse_file(path, diag)
                               : 0;
    fclose(file);
    if (error == 0)
        *out = (struct weir_text){ text, len };
    else
        free(text);
    return error;
}

int weir_rls_files_read(const char *path, struct weir_rls_files *out,
                        struct weir_diag *diag)
{
    int error = list_files(path, out, diag);
    if (error < 0)
        return error;
    weir_assert(out->count > 0 && out->count <= WEIR_RLS_FILES_MAX);
    out->texts = calloc(out->count, sizeof *out->texts);
    if (!out->texts)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    for (size_t i = 0; i < out->count && error == 0; i++)
        error = read_text(out->paths[i], &out->texts[i], diag);
    return error;
}

void weir_rls_files_free(struct weir_rls_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->paths[i]);
        if (files->texts)
            free((char *)files->texts[i].p);
    }
    free(files->paths);
    free(files->texts);
    *files = (struct weir_rls_files){ .count = 0 };
}

/* A stamp as numbers: its struct has padding. */
static uint64_t add_stamp(uint64_t hash, const char *path)
{
    const struct weir_file_stamp stamp = weir_file_stamp_at(path);
    const uint64_t words[] = {
        (uint64_t)stamp.device,
        (uint64_t)stamp.inode,
        (uint64_t)stamp.size,
        (uint64_t)stamp.modified.tv_sec,
        (uint64_t)stamp.modified.tv_nsec,
        (uint64_t)stamp.changed.tv_sec,
        (uint64_t)stamp.changed.tv_nsec,
    };
    hash = weir_hash(weir_text_of(path), hash);
    return weir_hash((struct weir_text){ (const char *)words, sizeof words },
                     hash);
}

uint64_t weir_rls_files_stamp(const char *path)
{
    struct weir_rls_files files;
    uint64_t hash = 0;
    if (list_files(path, &files, NULL) == 0)
        for (size_t i = 0; i < files.count; i++)
            hash = add_stamp(hash, files.paths[i]);
    weir_rls_files_free(&files);
    return hash;
}
