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

struct weir_file_stamp weir_file_stamp_at(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 ? weir_file_stamp_of(&file)
                                  : (struct weir_file_stamp){ 0 };
}

bool weir_file_stamp_differs(const char *path,
                             const struct weir_file_stamp *known)
{
    struct weir_file_stamp now = weir_file_stamp_at(path);
    return now.device != known->device || now.inode != known->inode ||
           now.size != known->size ||
           !is_same_instant(now.modified, known->modified) ||
           !is_same_instant(now.changed, known->changed);
}
