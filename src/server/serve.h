/* SPDX-License-Identifier: MIT
 * server/serve.h - `weir serve`. */

#ifndef WEIR_SERVE_H
#define WEIR_SERVE_H

/* Runs a root until a signal ends it. 'argv[0]' is "serve". 'version' is that
 * of Weir. Returns the exit status. */
int weir_serve(int argc, char **argv, const char *version);

#endif /* WEIR_SERVE_H */
