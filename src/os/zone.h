/* SPDX-License-Identifier: MIT
 * os/zone.h - time zones by name, from the machine's files. */

#ifndef WEIR_ZONE_H
#define WEIR_ZONE_H

#include "base/base.h"

/* How far from UTC the zone 'name' ("Europe/Berlin") is at 'at' (seconds since
 * 1970), and until when that holds; INT64_MAX: for good. Offsets like +03:00
 * and UTC are no names (quota/: weir_tz_fixed()). Reads a file, of $TZDIR or
 * /usr/share/zoneinfo, at each call: call it once, and again at 'out_until' or
 * each hour, since zones change. Any thread; may block on the disk.
 * Returns 0; WEIR_ENOENT: this machine knows no such zone, with 'diag';
 * WEIR_ESYNTAX: its file is none. */
int weir_zone_at(struct weir_text name, int64_t at, int32_t *out_offset_s,
                 int64_t *out_until, struct weir_diag *diag);

#endif /* WEIR_ZONE_H */
