/* SPDX-License-Identifier: MIT
 * io/file_stamp.c - whether a file has been replaced or written since. */

#include "io/file_stamp.h"

struct weir_file_stamp weir_file_stamp_of(const struct stat *file)
{
    return (struct weir_file_stamp){ .device = file->st_dev,
                                     .inode = file->st_ino,
                                     .size = file->st_size,
                                     .modified = file->st_mtim,
                                     .changed = file->st_ctim };
}

static bool is_same_instant(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool weir_file_stamp_differs(const char *path,
                             const struct weir_file_stamp *known)
{
    struct weir_file_stamp now = { 0 };
    struct stat file;
    if (stat(path, &file) == 0)
        now = weir_file_stamp_of(&file);
    return now.device != known->device || now.inode != known->inode ||
           now.size != known->size ||
           !is_same_instant(now.modified, known->modified) ||
           !is_same_instant(now.changed, known->changed);
}
