/* SPDX-License-Identifier: MIT
 * front/port_file.c - --port-file: written beside its place and moved there,
 * so that a reader finds the whole file or none. */

#include "front/port_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

int weir_port_file_put(const char *path, const char *text,
                       struct weir_diag *diag)
{
    char made[PATH_BYTES_MAX];
    snprintf(made, sizeof made, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(made, "we");
    if (file)
        fputs(text, file);
    bool written = file && fclose(file) == 0 && rename(made, path) == 0;
    if (written)
        return 0;
    int why = errno;
    (void)unlink(made);
    return weir_diag_set(diag, WEIR_ESYSTEM, "--port-file ", path, ": ",
                         strerror(why), "; name a file that can be written",
                         NULL);
}

int weir_port_file_write(const char *path, const char *listen, const char *http,
                         const struct weir_listen_address *resp,
                         struct weir_diag *diag)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX] = "";
    char text[3 * WEIR_LISTEN_ADDRESS_TEXT_MAX];
    if (resp)
        weir_listen_address_show(resp, shown);
    snprintf(text, sizeof text, "listen=%s\nhttp=%s\n%s%s%s", listen, http,
             resp ? "resp=" : "", shown, resp ? "\n" : "");
    return weir_port_file_put(path, text, diag);
}
