/* SPDX-License-Identifier: MIT
 * door/web_page.c - the page of an agent: its files, what they ask, and the
 * moment each second.
 *
 * The page is the root's (door/page/); what it is told comes from whoever made
 * the door (weir_web_views), for a door knows a limiter by weir.h alone.
 *
 * A stream is a connection whose last request is answered again each second,
 * with the credential that it showed. One reader, by his credential or else by
 * his address, has a part of those that there may be. Who reads too slowly
 * stalls his connection, is told nothing meanwhile, and ends as any other who
 * doesn't take his answer (os/talk.h). */

#include <stdlib.h>
#include <string.h>

#include "door/page_file.h"
#include "door/web_reply.h"
#include "os/talk.h"
#include "wire/http1.h"

static bool has(const struct weir_http1_request *request, const char *name,
                const char *what)
{
    struct weir_text value;
    size_t len = strlen(what);
    return weir_http1_header(request, name, &value) &&
           memmem(value.p, value.len, what, len) != NULL;
}

void weir_web_file(const struct weir_page_file *file,
                   const struct weir_http1_request *request,
                   struct weir_web_reply *reply)
{
    bool gzip = has(request, "Accept-Encoding", "gzip");
    reply->type = file->type;
    reply->cache = "no-cache";
    weir_web_add_header(reply, "ETag", "%s", file->etag);
    weir_web_add_header(reply, "Vary", "Accept-Encoding");
    if (has(request, "If-None-Match", file->etag)) {
        reply->status = 304;
        return;
    }
    weir_web_add_header(reply, "Content-Security-Policy", "%s",
                        WEIR_PAGE_POLICY);
    weir_web_add_header(reply, "Referrer-Policy", "no-referrer");
    if (gzip)
        weir_web_add_header(reply, "Content-Encoding", "gzip");
    reply->bytes = (struct weir_text){
        .p = (const char *)(gzip ? file->gzip : file->plain),
        .len = gzip ? file->gzip_len : file->plain_len,
    };
}

bool weir_web_look(const struct weir_web_views *views, struct weir_text target,
                   struct weir_web_reply *reply, weir_instant now)
{
    struct weir_diag diag = { 0 };
    int status = views ? views->answer(views->context, target, &reply->body,
                                       &diag, now)
                       : 0;
    if (status == 0)
        return false;
    if (status != 200)
        weir_web_problem(reply, status, NULL, NULL, diag.text);
    return true;
}

/* ---- Streams ---- */

bool weir_web_stream_open(struct weir_web_stream *stream,
                          struct weir_text target, const char *shown,
                          const char *reader)
{
    *stream = (struct weir_web_stream){
        .target = strndup(target.p, target.len),
        .shown = strdup(shown),
        .reader = strdup(reader),
    };
    if (stream->target && stream->shown && stream->reader)
        return true;
    weir_web_stream_close(stream);
    return false;
}

void weir_web_stream_close(struct weir_web_stream *stream)
{
    free(stream->target);
    free(stream->shown);
    free(stream->reader);
    *stream = (struct weir_web_stream){ .target = NULL };
}

void weir_web_stream_tell(struct weir_talk *talk,
                          const struct weir_web_reply *reply)
{
    char *text = json_dumps(reply->body, WEIR_WEB_JSON);
    if (!text)
        return; /* the next may find memory */
    if (reply->status != 200)
        weir_talk_write(talk, "event: problem\n", 15);
    weir_talk_write(talk, "data: ", 6);
    weir_talk_write(talk, text, strlen(text));
    weir_talk_write(talk, "\n\n", 2);
    free(text);
}
