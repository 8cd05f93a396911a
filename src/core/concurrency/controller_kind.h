/* SPDX-License-Identifier: MIT
 * concurrency/controller_kind.h - the kinds of controllers and the bounds of
 * their limits, for modules that need no more of them
 * (concurrency/controller.h describes each kind). */

#ifndef WEIR_CONTROLLER_KIND_H
#define WEIR_CONTROLLER_KIND_H

#include "core/base/base.h"

enum weir_controller_kind {
    WEIR_CONTROLLER_NONE = 0,
    WEIR_CONTROLLER_REQUEST = 1,
    WEIR_CONTROLLER_PERCENTILE = 2,
    WEIR_CONTROLLER_TARGET = 3,
    WEIR_CONTROLLER_VEGAS = 4,
    WEIR_CONTROLLER_GRADIENT2 = 5,
    WEIR_CONTROLLER_ENVOY = 6,
};
#define WEIR_CONTROLLER_KINDS 7

#define WEIR_PERMITS_MAX (1u << 20) /* permits, at most */
#define WEIR_PERMITS_MIN (1.0 / 1024)
#define WEIR_LATENCY_MAX ((weir_duration)1 << 39) /* 9 minutes */

#endif /* WEIR_CONTROLLER_KIND_H */
