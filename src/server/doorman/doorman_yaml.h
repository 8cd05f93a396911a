/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_yaml.h - the text of a Doorman file: types are
 * checked, meaning isn't. For doorman_config.c alone. */

#ifndef WEIR_DOORMAN_YAML_H
#define WEIR_DOORMAN_YAML_H

#include "codec/yaml_nodes.h"
#include "server/doorman/doorman_config.h"

/* A number of the file, or its absence. Whole numbers are within 2^53. */
struct weir_doorman_number {
    bool given;
    double value;
};

/* An entry of 'resources'; texts are in the document. */
struct weir_doorman_entry {
    uint32_t line;
    struct weir_text glob;
    struct weir_text description;
    struct weir_doorman_number capacity;
    struct weir_doorman_number safe_capacity;
    bool has_algorithm;
    struct weir_doorman_number kind;
    struct weir_doorman_number lease_length;
    struct weir_doorman_number refresh_interval;
    struct weir_doorman_number learning;
    struct weir_doorman_parameter *parameters; /* owned; NULL: none */
    size_t parameter_count;
};

struct weir_doorman_yaml {
    struct weir_yaml_nodes nodes;       /* its diag may be NULL */
    struct weir_doorman_entry *entries; /* owned */
    size_t count;
    struct weir_diag *warnings; /* WEIR_DOORMAN_WARNINGS_MAX of them */
    size_t *warning_count;
};

/* Reads into a struct with 'warnings', 'warning_count' and 'nodes.diag' set and
 * all else zero. Errors as of weir_doorman_config_parse(); call 'fini' either
 * way. */
int weir_doorman_yaml_read(struct weir_text text,
                           struct weir_doorman_yaml *yaml);
void weir_doorman_yaml_fini(struct weir_doorman_yaml *yaml);

/* Adds the warning 'what' 'shown' 'why' about a value that is accepted. */
void weir_doorman_yaml_warn(struct weir_doorman_yaml *yaml, uint32_t line,
                            const char *what, const char *shown,
                            const char *why);

#endif /* WEIR_DOORMAN_YAML_H */
