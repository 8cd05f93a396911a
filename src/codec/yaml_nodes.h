/* SPDX-License-Identifier: MIT
 * codec/yaml_nodes.h - YAML files that were written for another program: loaded
 * as nodes, and read by tables of keys. (Quota files are read by events and
 * allow less: codec/yaml.h.)
 *
 * One function per level reads a file, each with a table of its mapping's keys:
 * the function that reads the value, and the member that it fills. Therefore a
 * cycle of aliases does no harm. */

#ifndef WEIR_YAML_NODES_H
#define WEIR_YAML_NODES_H

#include <yaml.h>

#include "core/base/base.h"

#define WEIR_YAML_KEYS_MAX 16  /* keys of one table */
#define WEIR_YAML_PAIRS_MAX 64 /* of one mapping, which may be read often */

/* ---- Loading ---- */

struct weir_yaml_bounds {
    unsigned nesting; /* bound of nested mappings and lists */
    size_t documents; /* bound of documents; one more is … */
    int error;        /* … refused with this error … */
    const char *why;  /* … and this sentence */
};

struct weir_yaml_nodes {
    yaml_document_t *documents; /* owned */
    size_t count;
    struct weir_diag *diag; /* may be NULL */
};

/* Loads the documents of a text; an empty one ends them. The caller sets
 * 'diag', zeroes the rest and calls _fini() in either case. WEIR_ESYNTAX,
 * WEIR_ETOOBIG, WEIR_ENOMEM, with line and column. */
int weir_yaml_nodes_load(struct weir_text text,
                         const struct weir_yaml_bounds *bounds,
                         struct weir_yaml_nodes *nodes);
void weir_yaml_nodes_fini(struct weir_yaml_nodes *nodes);

/* ---- Nodes ---- */

struct weir_text weir_yaml_scalar(const yaml_node_t *scalar);
/* A scalar without quotes. */
bool weir_yaml_is_plain(const yaml_node_t *node);
/* Whether it is plain and one of these words, in upper or lower case. */
bool weir_yaml_is_word(const yaml_node_t *node, const char *const *words,
                       size_t count);

/* The number of items of a list, and one of them. */
size_t weir_yaml_items(const yaml_node_t *list);
const yaml_node_t *weir_yaml_item(yaml_document_t *document,
                                  const yaml_node_t *list, size_t i);

/* The line and column of an error; 'diag' may be NULL, as in all of these. */
void weir_yaml_set_mark(struct weir_diag *diag, yaml_mark_t mark);
/* A parser of the text, which it borrows; WEIR_ENOMEM. */
int weir_yaml_parser_init(yaml_parser_t *parser, struct weir_text text,
                          struct weir_diag *diag);
/* The error of libyaml's parser, with its place; WEIR_ENOMEM. */
int weir_yaml_refuse_parser(const yaml_parser_t *parser,
                            struct weir_diag *diag);
int weir_yaml_refuse_memory(struct weir_diag *diag);
/* Fills 'diag' with a sentence and the line of 'node' (NULL: none). Returns
 * 'error'. */
int weir_yaml_refuse(struct weir_diag *diag, const yaml_node_t *node, int error,
                     const char *what, const char *shown, const char *why);

/* ---- Mappings by tables of keys ---- */

struct weir_yaml_reading;

/* The properties of the other program's reader. */
struct weir_yaml_dialect {
    bool any_case;              /* keys match in upper and lower case */
    bool null_is_empty;         /* null is accepted as an empty mapping */
    const char *before, *after; /* of a type error: 'before' NAME 'after' "a
                                 * list" */
    /* Called for a key that the table doesn't have. 0: the key is ignored. */
    int (*unknown)(const struct weir_yaml_reading *reading,
                   const yaml_node_t *key);
};

struct weir_yaml_reading {
    const struct weir_yaml_dialect *dialect;
    yaml_document_t *document;
    struct weir_diag *diag; /* may be NULL */
    void *context;          /* for the functions that read values */
};

/* 'to' is the member to fill. Not called for null. */
typedef int weir_yaml_read(const struct weir_yaml_reading *reading,
                           const yaml_node_t *node, const char *name, void *to);

struct weir_yaml_key {
    const char *name;
    weir_yaml_read *read;
    size_t at;
};

/* Reads a mapping of at most WEIR_YAML_PAIRS_MAX pairs into the struct at 'to';
 * 'what' names it in errors. A key given twice is refused, with the line of the
 * first. */
int weir_yaml_read_mapping(const struct weir_yaml_reading *reading,
                           const yaml_node_t *node, const char *what,
                           const struct weir_yaml_key *keys, size_t count,
                           void *to);

/* The number of items of a list, at most 'max'. */
int weir_yaml_read_count(const struct weir_yaml_reading *reading,
                         const yaml_node_t *node, const char *name, size_t max,
                         size_t *out);

/* Reads a struct weir_text, which points into the document. */
weir_yaml_read weir_yaml_read_text;

/* "NAME must be a list", in the dialect's words. Returns WEIR_ESYNTAX. */
int weir_yaml_refuse_type(const struct weir_yaml_reading *reading,
                          const yaml_node_t *node, const char *name,
                          const char *wanted);

#endif /* WEIR_YAML_NODES_H */
