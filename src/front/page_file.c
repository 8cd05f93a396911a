/* SPDX-License-Identifier: MIT
 * front/page_file.c - finds a file of the page by linear search; there are
 * few. */

#include "front/page_file.h"

const struct weir_page_file *weir_page_file_find(struct weir_text path)
{
    for (const struct weir_page_file *file = weir_page_files; file->path;
         file++)
        if (weir_text_equal(path, weir_text_of(file->path)))
            return file;
    return NULL;
}
