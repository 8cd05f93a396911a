/* SPDX-License-Identifier: MIT
 * codec/weir_v1_adaptive.c - a message's fields of adaptive quotas, and of all
 * quotas of kind concurrency.
 *
 * As for all fields that only some quotas have, 0 or absence means unset. The
 * wire's numbers of controllers are therefore one above ours, in which 0 is
 * target. Decoded fields are checked together with the whole quota. */

#include "codec/weir_v1_adaptive.h"

void weir_v1_adaptive_put(const struct weir_quota *quota,
                          Weir__V1__Quota *message)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    if (quota->controller != fresh.controller)
        message->controller = (Weir__V1__Controller)(quota->controller + 1);
    if (quota->target != fresh.target)
        message->target_ns = quota->target;
    if (quota->permit_timeout != fresh.permit_timeout)
        message->permit_timeout_ns = quota->permit_timeout;
    if (quota->queue != fresh.queue)
        message->queue = (Weir__V1__Queue)quota->queue;
    if (quota->queue_max != fresh.queue_max)
        message->queue_max = quota->queue_max;
    message->percentile_e4 = (uint32_t)quota->percentile;
    message->min_e4 = quota->min;
    message->max_e4 = quota->max;
    message->fleet_min_e4 = quota->fleet_min;
    message->fleet_max_e4 = quota->fleet_max;
    message->classes = (ProtobufCBinaryData){ quota->classes.len,
                                              (uint8_t *)quota->classes.p };
}

void weir_v1_adaptive_get(const Weir__V1__Quota *message,
                          struct weir_quota *out)
{
    if (message->controller != WEIR__V1__CONTROLLER__CONTROLLER_UNSET)
        out->controller = (enum weir_controller_kind)(message->controller - 1);
    if (message->target_ns != 0)
        out->target = message->target_ns;
    if (message->permit_timeout_ns != 0)
        out->permit_timeout = message->permit_timeout_ns;
    if (message->queue != WEIR__V1__QUEUE__QUEUE_UNSET)
        out->queue = (enum weir_wait_queue_order)message->queue;
    if (message->queue_max != 0)
        out->queue_max = message->queue_max;
    out->percentile = message->percentile_e4;
    out->min = message->min_e4;
    out->max = message->max_e4;
    out->fleet_min = message->fleet_min_e4;
    out->fleet_max = message->fleet_max_e4;
    if (message->classes.len > 0)
        out->classes = (struct weir_text){ (const char *)message->classes.data,
                                           message->classes.len };
}
