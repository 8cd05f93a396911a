/* SPDX-License-Identifier: MIT
 * server/quota_export.c - the fields that somebody entered.
 *
 * A default that is written out becomes an entry of its own when it is read
 * back: a burst of "1s" that nobody chose would stay 1s when the other burst
 * is made smaller. So what is exported leaves defaults out. */

#include "server/quota_export.h"

json_t *weir_quota_export(const struct weir_quota *quota)
{
    json_t *object = weir_quota_to_json(quota);
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; object && i < count; i++)
        if (fields[i].read_only || weir_quota_is_default(quota, fields[i].name))
            json_object_del(object, fields[i].name);
    return object;
}
