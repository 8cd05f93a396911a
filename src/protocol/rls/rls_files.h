/* SPDX-License-Identifier: MIT
 * protocol/rls/rls_files.h - the configuration of envoyproxy/ratelimit on disk:
 * a file, or a folder of files, as the original's RUNTIME_ROOT or a ConfigMap
 * of Kubernetes. */

#ifndef WEIR_RLS_FILES_H
#define WEIR_RLS_FILES_H

#include "codec/rls_rules.h"

/* The bytes of the files; all owned. */
struct weir_rls_files {
    char **paths;
    struct weir_text *texts;
    size_t count;
};

/* Reads the file, or of a folder all files that end in .yaml or .yml and don't
 * begin with '.', by name; not those of folders in it. WEIR_ESYSTEM,
 * WEIR_ETOOBIG (the bounds of codec/rls_rules.h) or WEIR_ENOMEM with 'diag'
 * filled; the caller frees in either case. */
int weir_rls_files_read(const char *path, struct weir_rls_files *out,
                        struct weir_diag *diag);
void weir_rls_files_free(struct weir_rls_files *files);

/* A number that is another if such a file was replaced, written, added or
 * removed. 0: nothing can be read there. */
uint64_t weir_rls_files_stamp(const char *path);

#endif /* WEIR_RLS_FILES_H */
