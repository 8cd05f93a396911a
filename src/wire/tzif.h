/* SPDX-License-Identifier: MIT
 * wire/tzif.h - a file of the time zone data base (RFC 9636) read for one
 * instant: how far the zone is from UTC then, and until when. */

#ifndef WEIR_TZIF_H
#define WEIR_TZIF_H

#include "base/base.h"

#define WEIR_TZIF_SIZE_MAX 65536 /* bytes; the largest there is has 4,000 */

/* From 'from' on, and before 'until', local time is UTC + 'offset_s'. Seconds
 * since 1970; the ends of time are INT64_MIN and INT64_MAX. */
struct weir_tzif_span {
    int64_t from;
    int64_t until;
    int32_t offset_s; /* within 26 hours */
};

/* The span of the instant 'at', exact from 1900 on. Versions 2 to 4 of the
 * format; leap seconds take no part. Returns 0 or WEIR_ESYNTAX: these bytes
 * are no such file. Allocates nothing, any thread. */
int weir_tzif_at(const void *bytes, size_t size, int64_t at,
                 struct weir_tzif_span *out);

#endif /* WEIR_TZIF_H */
