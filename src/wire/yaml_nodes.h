/* SPDX-License-Identifier: MIT
 * wire/yaml_nodes.h - YAML files that were written for another reader: loaded
 * as nodes, and read by tables of keys. (Quota files are read by events and
 * take less: wire/yaml.h.)
 *
 * A file is read one function a level, each with a table that says which keys
 * its mapping has and who reads their values into which struct. So a cycle of
 * aliases does no harm, whatever the nodes hold. */

#ifndef WEIR_YAML_NODES_H
#define WEIR_YAML_NODES_H

#include <yaml.h>

#include "base/base.h"

#define WEIR_YAML_KEYS_MAX 16  /* of one table */
#define WEIR_YAML_PAIRS_MAX 64 /* of one mapping, for it may be read often */

/* ---- Loading ---- */

struct weir_yaml_bounds {
    unsigned nesting; /* of mappings and lists */
    size_t documents; /* one more is … */
    int error;        /* … this … */
    const char *why;  /* … with that sentence */
};

struct weir_yaml_nodes {
    yaml_document_t *documents; /* owned */
    size_t count;
    struct weir_diag *diag; /* may be NULL */
};

/* Loads the documents of a text, an empty one ends them. 'diag' is to be set
 * and all else zero; 'fini' is due either way. WEIR_ESYNTAX, WEIR_ETOOBIG,
 * WEIR_ENOMEM, with line and column. */
int weir_yaml_nodes_load(struct weir_text text,
                         const struct weir_yaml_bounds *bounds,
                         struct weir_yaml_nodes *nodes);
void weir_yaml_nodes_fini(struct weir_yaml_nodes *nodes);

/* ---- Nodes ---- */

struct weir_text weir_yaml_scalar(const yaml_node_t *scalar);
/* A scalar without quotes. */
bool weir_yaml_is_plain(const yaml_node_t *node);
/* A plain one that is one of these words, in any case. */
bool weir_yaml_is_word(const yaml_node_t *node, const char *const *words,
                       size_t count);
/* Absence: nothing, ~ or null. */
bool weir_yaml_is_null(const yaml_node_t *node);

/* How many items a list has, and one of them. */
size_t weir_yaml_items(const yaml_node_t *list);
const yaml_node_t *weir_yaml_item(yaml_document_t *document,
                                  const yaml_node_t *list, size_t i);

/* Says what is wrong where 'node' is; NULL: nowhere. Returns 'error'. */
int weir_yaml_refuse(struct weir_diag *diag, const yaml_node_t *node, int error,
                     const char *what, const char *shown, const char *why);

/* ---- Mappings by tables of keys ---- */

struct weir_yaml_reading;

/* What the other reader is like. */
struct weir_yaml_dialect {
    bool any_case;              /* of keys */
    bool null_is_empty;         /* an empty mapping, where one has to be */
    const char *before, *after; /* of what isn't of its type: before NAME
                                 * after "a list" */
    /* Of a key that the table doesn't have. 0: it is ignored. */
    int (*unknown)(const struct weir_yaml_reading *reading,
                   const yaml_node_t *key);
};

struct weir_yaml_reading {
    const struct weir_yaml_dialect *dialect;
    yaml_document_t *document;
    struct weir_diag *diag; /* may be NULL */
    void *context;          /* of those who read values */
};

/* 'to' is the struct that the mapping fills, at the key's place. Not called
 * for null. */
typedef int weir_yaml_read(const struct weir_yaml_reading *reading,
                           const yaml_node_t *node, const char *name, void *to);

struct weir_yaml_key {
    const char *name;
    weir_yaml_read *read;
    size_t at;
};

/* Reads a mapping of at most WEIR_YAML_PAIRS_MAX pairs into the struct at
 * 'to'; 'what' it is, for errors. A key given twice is refused, with the line
 * of the first. */
int weir_yaml_read_mapping(const struct weir_yaml_reading *reading,
                           const yaml_node_t *node, const char *what,
                           const struct weir_yaml_key *keys, size_t count,
                           void *to);

/* A list of at most so many items: how many. */
int weir_yaml_read_count(const struct weir_yaml_reading *reading,
                         const yaml_node_t *node, const char *name, size_t max,
                         size_t *out);

/* Into a struct weir_text, which lies in the document. */
weir_yaml_read weir_yaml_read_text;

/* "NAME must be a list", in the dialect's words. Returns WEIR_ESYNTAX. */
int weir_yaml_refuse_type(const struct weir_yaml_reading *reading,
                          const yaml_node_t *node, const char *name,
                          const char *wanted);

#endif /* WEIR_YAML_NODES_H */
