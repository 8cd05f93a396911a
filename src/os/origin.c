/* SPDX-License-Identifier: MIT
 * os/origin.c - Host and Origin, looked at. */

#include "os/origin.h"

#include <string.h>
#include <strings.h>

#include "os/stream.h"

/* "localhost", "127.0.0.1:7078", "[::1]:7078" … */
static bool is_loopback_host(const char *host)
{
    struct weir_address address = { .port = 0 };
    size_t len = strlen(host);
    const char *begin = host;
    const char *end = host + len;
    if (host[0] == '[') {
        begin = host + 1;
        end = strchr(host, ']');
    } else if (strchr(host, ':')) {
        end = strchr(host, ':');
    }
    if (!end || (size_t)(end - begin) >= sizeof address.host)
        return false;
    memcpy(address.host, begin, (size_t)(end - begin));
    return weir_address_is_loopback(&address);
}

/* "https://root.example:7078" is of the Host "root.example:7078". */
static bool is_own(const char *origin, const char *host)
{
    const char *slashes = strstr(origin, "://");
    return slashes && (is_loopback_host(slashes + 3) ||
                       (host && strcasecmp(slashes + 3, host) == 0));
}

bool weir_origin_is_welcome(const char *host, const char *origin,
                            bool of_loopback)
{
    if (of_loopback && host && !is_loopback_host(host))
        return false;
    return !origin || is_own(origin, host);
}
