/* SPDX-License-Identifier: MIT
 * codec/tzif.h - a file of the time zone data base (RFC 9636) read for one
 * instant: the zone's offset from UTC then, and until when it lasts. */

#ifndef WEIR_TZIF_H
#define WEIR_TZIF_H

#include "core/base/base.h"

#define WEIR_TZIF_SIZE_MAX 65536 /* bytes; the largest known file has 4,000 */

/* Between 'from' and 'until' (excluded) local time is UTC + 'offset_s'. Seconds
 * since 1970; INT64_MIN and INT64_MAX: unbounded. */
struct weir_tzif_span {
    int64_t from;
    int64_t until;
    int32_t offset_s; /* within 26 hours */
};

/* The span of the instant 'at', exact from 1900 on. Versions 2 to 4 of the
 * format; leap seconds are ignored. Returns 0 or WEIR_ESYNTAX (the bytes are no
 * such file). Allocates nothing, any thread. */
int weir_tzif_at(const void *bytes, size_t size, int64_t at,
                 struct weir_tzif_span *out);

#endif /* WEIR_TZIF_H */
