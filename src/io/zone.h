/* SPDX-License-Identifier: MIT
 * io/zone.h - time zones by name, from the machine's files. */

#ifndef WEIR_ZONE_H
#define WEIR_ZONE_H

#include "core/base/base.h"

/* The offset from UTC of the zone 'name' ("Europe/Berlin") at 'at' (seconds
 * since 1970), and until when it lasts; INT64_MAX: for ever. Offsets like
 * +03:00 and UTC aren't names (quota/: weir_tz_fixed()). Each call reads a
 * file, of $TZDIR or /usr/share/zoneinfo: call it once, and again at
 * 'out_until' or each hour, since zones change. Any thread; may block on the
 * disk. Returns 0; WEIR_ENOENT: this machine has no such zone, with 'diag';
 * WEIR_ESYNTAX: its file isn't one. */
int weir_zone_at(struct weir_text name, int64_t at, int32_t *out_offset_s,
                 int64_t *out_until, struct weir_diag *diag);

#endif /* WEIR_ZONE_H */
