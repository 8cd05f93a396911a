/* SPDX-License-Identifier: MIT
 * front/text_stream.c - a FILE that writes to memory.
 *
 * glibc's open_memstream() (2.36) drops what it has no memory for, and neither
 * ferror() nor fclose() says so: an answer would lack a part. A write function
 * that fails leaves its mark on the stream. */

#include "front/text_stream.h"

static ssize_t write_to_bytes(void *context, const char *p, size_t len)
{
    struct weir_text_stream *stream = context;
    if (!weir_byte_queue_reserve(&stream->bytes, len))
        return 0; /* an error: fopencookie(3) */
    weir_byte_queue_append(&stream->bytes, p, len);
    return (ssize_t)len;
}

FILE *weir_text_open(struct weir_text_stream *stream)
{
    weir_assert(stream->bytes.len == 0);
    return fopencookie(stream, "w",
                       (cookie_io_functions_t){ .write = write_to_bytes });
}

char *weir_text_close(struct weir_text_stream *stream, FILE *file,
                      size_t *out_len)
{
    /* An error earlier than the last write. */
    bool lost = ferror(file) != 0;
    lost = fclose(file) != 0 || lost;
    if (lost || !weir_byte_queue_reserve(&stream->bytes, 1)) {
        weir_byte_queue_fini(&stream->bytes);
        return NULL;
    }
    *out_len = stream->bytes.len;
    weir_byte_queue_append(&stream->bytes, "", 1);
    return (char *)stream->bytes.p;
}
