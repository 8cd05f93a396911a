/* SPDX-License-Identifier: MIT
 * lab/access_log.c - real traffic from a web server's log: clients and times;
 * see load.h.
 *
 * Two words of each line count, the client and the time:
 *
 *     192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 17 …
 *
 * A server writes a line when a request ends, so times step back a little: they
 * are sorted. The n requests of one second, in the order of their lines, are
 * spaced by 1/n of a second. */

#include <stdio.h>
#include <zlib.h>

#include "core/base/hash.h"
#include "core/base/index.h"
#include "io/clock.h"
#include "lab/load.h"
#include "lab/log_line.h"
#include "lab/memory.h"

/* Of a line; a longer one is cut, and its rest skipped. */
#define LINE_MAX_BYTES 4096

struct reader {
    struct weir_access_log *log;
    size_t capacity, client_capacity;
    struct weir_index index; /* of clients */
    struct weir_log_clock clock;
    const char *path;
    unsigned long line;
};

static int refuse_log(const struct reader *reader, int error, const char *why,
                      struct weir_diag *diag)
{
    char line[24];
    snprintf(line, sizeof(line), ":%lu: ", reader->line);
    return weir_diag_set(diag, error, reader->path,
                         reader->line > 0 ? line : ": ", why, NULL);
}

static uint32_t number_client(struct reader *reader, struct weir_text name)
{
    struct weir_access_log *log = reader->log;
    uint64_t hash = weir_hash(name, 0);
    size_t cursor = 0;
    uint32_t at;
    while (weir_index_find(&reader->index, hash, &cursor, &at)) {
        if (weir_text_equal(weir_text_of(log->clients[at]), name))
            return at;
    }
    at = log->client_count++;
    log->clients = weir_must_grow(log->clients, &reader->client_capacity,
                                  log->client_count, sizeof(char *));
    log->clients[at] = weir_must_text(name);
    int error = weir_index_add(&reader->index, &weir_mem_system, hash, at);
    weir_assert(error == WEIR_OK);
    return at;
}

static int read_log_line(struct reader *reader, const char *line,
                         struct weir_diag *diag)
{
    struct weir_access_log *log = reader->log;
    struct weir_log_line read;
    const char *why =
        weir_log_line_begin(weir_text_of(line), &reader->clock, &read);
    if (why)
        return refuse_log(reader, WEIR_ESYNTAX, why, diag);
    if (log->count == WEIR_LOAD_LOG_REQUESTS_MAX)
        return refuse_log(reader, WEIR_ETOOBIG,
                          "more than ten million requests; cut the file", diag);
    log->requests = weir_must_grow(log->requests, &reader->capacity,
                                   log->count + 1, sizeof(*log->requests));
    log->requests[log->count++] = (struct weir_log_request){
        .at = (weir_duration)read.at,
        .client = number_client(reader, read.client),
    };
    return WEIR_OK;
}

static void skip_rest(gzFile file, char *line, int size)
{
    while (!strchr(line, '\n') && gzgets(file, line, size))
        continue;
}

static int read_log_lines(struct reader *reader, gzFile file,
                          struct weir_diag *diag)
{
    char line[LINE_MAX_BYTES];
    while (gzgets(file, line, sizeof(line))) {
        reader->line++;
        int error = line[0] == '\n' ? 0 : read_log_line(reader, line, diag);
        if (error < 0)
            return error;
        skip_rest(file, line, sizeof(line));
    }
    int why;
    const char *text = gzerror(file, &why);
    if (why != Z_OK && why != Z_STREAM_END)
        return refuse_log(reader, WEIR_ESYSTEM, text, diag);
    reader->line = 0;
    if (reader->log->count == 0)
        return refuse_log(reader, WEIR_ESYNTAX, "no request in it", diag);
    return WEIR_OK;
}

/* ---- Time ---- */

/* A stable merge sort: lines are a little late. */
static void sort_log_requests(struct weir_log_request *requests, size_t count)
{
    struct weir_log_request *sorted = weir_must_zeroed(count, sizeof(*sorted));
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t middle = begin + width < count ? begin + width : count;
            size_t end = middle + width < count ? middle + width : count;
            size_t a = begin, b = middle;
            for (size_t i = begin; i < end; i++) {
                bool left = b == end ||
                            (a < middle && requests[a].at <= requests[b].at);
                sorted[i] = requests[left ? a++ : b++];
            }
        }
        memcpy(requests, sorted, count * sizeof(*requests));
    }
    free(sorted);
}

/* From seconds since 1970 to nanoseconds since the first. */
static void spread_within_seconds(struct weir_log_request *requests,
                                  size_t count)
{
    weir_duration first = requests[0].at;
    size_t end;
    for (size_t begin = 0; begin < count; begin = end) {
        weir_duration second = requests[begin].at;
        end = begin;
        while (end < count && requests[end].at == second)
            end++;
        for (size_t i = begin; i < end; i++)
            requests[i].at = (second - first) * WEIR_SECOND +
                             (i - begin) * WEIR_SECOND / (end - begin);
    }
}

int weir_access_log_read(struct weir_access_log *log, const char *path,
                         struct weir_diag *diag)
{
    *log = (struct weir_access_log){ 0 };
    struct reader reader = { .log = log, .path = path };
    gzFile file = gzopen(path, "rbe");
    if (!file)
        return refuse_log(
            &reader, WEIR_ESYSTEM,
            "can't be read; its path is relative to the folder in "
            "which weir runs",
            diag);
    int error = read_log_lines(&reader, file, diag);
    gzclose(file);
    weir_index_fini(&reader.index, &weir_mem_system);
    if (error < 0) {
        weir_access_log_fini(log);
        return error;
    }
    sort_log_requests(log->requests, log->count);
    spread_within_seconds(log->requests, log->count);
    return WEIR_OK;
}

void weir_access_log_fini(struct weir_access_log *log)
{
    for (uint32_t i = 0; i < log->client_count; i++)
        free(log->clients[i]);
    free(log->clients);
    free(log->requests);
    *log = (struct weir_access_log){ 0 };
}
