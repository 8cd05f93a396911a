/* SPDX-License-Identifier: MIT
 * io/file_stamp.h - whether a file has been replaced or written since. */

#ifndef WEIR_FILE_STAMP_H
#define WEIR_FILE_STAMP_H

#include <stdbool.h>
#include <sys/stat.h>

/* Identifies a state of a file; zero: there is no file. */
struct weir_file_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified; /* of the content; any user may set it */
    struct timespec changed;  /* of the inode; only the system sets it */
};

struct weir_file_stamp weir_file_stamp_of(const struct stat *file);
/* The stamp of the file at 'path'. */
struct weir_file_stamp weir_file_stamp_at(const char *path);
/* Whether the file at 'path' has another stamp than 'known'. */
bool weir_file_stamp_differs(const char *path,
                             const struct weir_file_stamp *known);

#endif /* WEIR_FILE_STAMP_H */
