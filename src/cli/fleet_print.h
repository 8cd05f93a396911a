/* SPDX-License-Identifier: MIT
 * cli/fleet_print.h - limits of whole fleets (scope=fleet), for people. */

#ifndef WEIR_FLEET_PRINT_H
#define WEIR_FLEET_PRINT_H

#include "cli/root_client.h"
#include "cli/table_print.h"

/* "1.5s", "3min", for a table. */
const char *weir_cli_age(double seconds, char buf[static 32]);

/* Prints 'fleets' of a root's status as a table, and the processes that are
 * left out; nothing if there are none. */
void weir_cli_print_fleets(json_t *fleets);

/* The answer to GET /v1/fleet of that root that leads the fleet, or else of the
 * last one that answered; from then on the client uses that root alone. A new
 * reference; NULL: the quota is for no fleet, or no root answers. */
json_t *weir_cli_find_fleet(struct weir_root_client *client, const char *name);
/* Adds the limit to the rows of a quota. */
void weir_cli_add_fleet(struct weir_rows *rows, const json_t *answer);
/* Prints the part of each process as a table, after an empty line; nothing if
 * there is none. */
void weir_cli_print_members(const json_t *answer);

#endif /* WEIR_FLEET_PRINT_H */
