/* SPDX-License-Identifier: MIT
 * server/admin/quota_export.c - the fields that an operator entered.
 *
 * If a default were written out, an import would make it an entry of its own: a
 * burst of "1s" that was never entered would stay 1s when the other burst is
 * made smaller. So an export leaves defaults out. */

#include "server/admin/quota_export.h"

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
