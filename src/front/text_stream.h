/* SPDX-License-Identifier: MIT
 * front/text_stream.h - a FILE that writes to memory, and knows whether all of
 * it is there. */

#ifndef WEIR_TEXT_STREAM_H
#define WEIR_TEXT_STREAM_H

#include <stdio.h>

#include "io/byte_queue.h"

/* A zeroed struct; it must not move until it is closed. */
struct weir_text_stream {
    struct weir_byte_queue bytes;
};

/* Opens a stream for writing. NULL: no memory. */
FILE *weir_text_open(struct weir_text_stream *stream);
/* Closes 'file'. Returns the text, malloc'ed and NUL-terminated, and its length
 * without the NUL; NULL: there was no memory for a part of it. */
char *weir_text_close(struct weir_text_stream *stream, FILE *file,
                      size_t *out_len);

#endif /* WEIR_TEXT_STREAM_H */
