/* SPDX-License-Identifier: MIT
 * codec/json_text.h - JSON to and from bytes, when allocations fail.
 *
 *     weir_json_watch();                        at the start of the program
 *     json_t *asked = weir_json_read(…);        WEIR_ENOMEM isn't a bad request
 *     json_object_set_new(answer, …); …         unchecked
 *     char *text = weir_json_print(answer, …);  NULL: a part is missing
 *
 * Each of jansson's calls that add a member can fail; so each caller would have
 * to check each member. Instead jansson's allocator notes a failure, for its
 * thread, and the text of an object that may lack a part is never used. */

#ifndef WEIR_JSON_TEXT_H
#define WEIR_JSON_TEXT_H

#include <jansson.h>

#include "core/base/base.h"

/* The body of an HTTP problem (RFC 9457) when there is no memory for another.
 * With a status of 503. */
#define WEIR_JSON_ENOMEM                                 \
    "{\"type\": \"urn:weir:error:WEIR_ENOMEM\", "        \
    "\"title\": \"The process is out of memory\", "      \
    "\"status\": 503, \"detail\": \"out of memory: try " \
    "again, or give the process more\", "                \
    "\"error\": \"WEIR_ENOMEM\"}"

/* From now on failures are noted. Before the first use of jansson. */
void weir_json_watch(void);

/* Whether an allocation for JSON has failed on this thread since the last call
 * on it; forgets that. Of use where JSON outlives the request for which it is
 * made. */
bool weir_json_failed(void);

/* 'text' as JSON, by jansson's 'flags'; owned by the caller. NULL: 'why' is
 * filled; its text is empty if there was no memory. */
json_t *weir_json_read(struct weir_text text, size_t flags, json_error_t *why);

/* Prints 'json' by jansson's 'flags'; malloc'ed. NULL: 'json' is NULL; or
 * memory was short for the text or, since the last call on this thread, for any
 * JSON. */
char *weir_json_print(const json_t *json, size_t flags);

#endif /* WEIR_JSON_TEXT_H */
