/* SPDX-License-Identifier: MIT
 * codec/rls_yaml.h - the YAML of envoyproxy/ratelimit as it is written: types
 * are checked, values aren't. Only rls_rules.c uses it. */

#ifndef WEIR_RLS_YAML_H
#define WEIR_RLS_YAML_H

#include "codec/rls_rules.h"
#include "codec/yaml_nodes.h"

/* weir_yaml_nodes_load() of all documents of a text. */
int weir_rls_yaml_load(struct weir_text text, struct weir_yaml_nodes *yaml);

/* The top of a document. */
struct weir_rls_file {
    struct weir_text domain;
    const yaml_node_t *descriptors; /* a list; NULL: none */
};
int weir_rls_yaml_file(yaml_document_t *document, struct weir_rls_file *out,
                       struct weir_diag *diag);

/* A descriptor. */
struct weir_rls_written {
    struct weir_text key;
    struct weir_text value;
    const yaml_node_t *descriptors; /* nested ones, a list; NULL: none */
    bool shadow, quota_mode, share_threshold, ignored;
    bool has_limit; /* the next six members are set */
    bool unlimited;
    bool units_given;
    uint32_t requests_per_unit;
    struct weir_text unit;
    struct weir_text name;
    uint32_t replace_count;
    struct weir_text replaces[WEIR_RLS_REPLACES_MAX];
};
int weir_rls_yaml_descriptor(yaml_document_t *document, const yaml_node_t *node,
                             struct weir_rls_written *out,
                             struct weir_diag *diag);

#endif /* WEIR_RLS_YAML_H */
