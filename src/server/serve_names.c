/* SPDX-License-Identifier: MIT
 * server/serve_names.c - names of a root's files, and of the addresses at which
 * it listens. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/serve_options.h"

bool weir_serve_own_file(const char *scheme, const char *name,
                         char path[WEIR_PATH_MAX])
{
    const char *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    bool has_data = data && data[0] == '/';
    if (!has_data && !(home && home[0]))
        return false;
    int len =
        snprintf(path, WEIR_PATH_MAX, "%s%s%s/weir/%s", scheme,
                 has_data ? data : home, has_data ? "" : "/.local/share", name);
    return len < WEIR_PATH_MAX;
}

int weir_serve_make_folders(const char *path)
{
    char folder[WEIR_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) < 0 && errno != EEXIST)
            return WEIR_ESYSTEM;
        *slash = '/';
    }
    return 0;
}

void weir_serve_show(const struct weir_address *address, uint16_t port,
                     char *buf, size_t size)
{
    bool v6 = strchr(address->host, ':');
    snprintf(buf, size, v6 ? "[%s]:%u" : "%s:%u", address->host, port);
}

void weir_serve_identity(const struct weir_serve_options *options,
                         uint16_t port, char out[WEIR_MASTER_MAX + 1])
{
    static const char *const every[] = { "0.0.0.0", "::" };
    struct weir_address address = options->listen;
    bool is_every = false;
    for (size_t i = 0; i < WEIR_COUNT_OF(every); i++)
        is_every = is_every || strcmp(address.host, every[i]) == 0;
    if (options->hostname[0])
        strcpy(address.host, options->hostname);
    else if (is_every && gethostname(address.host, sizeof address.host - 1) < 0)
        strcpy(address.host, "localhost");
    weir_serve_show(&address, port, out, WEIR_MASTER_MAX + 1);
}
