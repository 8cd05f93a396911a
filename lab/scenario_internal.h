/* SPDX-License-Identifier: MIT
 * lab/scenario_internal.h - the state shared by the statements while a
 * scenario is built from a script. */

#ifndef WEIR_SCENARIO_INTERNAL_H
#define WEIR_SCENARIO_INTERNAL_H

#include <stdio.h>

#include "lab/script.h"
#include "lab/script_values.h"

/* A quota named by a statement; checked when all quotas are known. */
struct weir_mention {
    struct weir_text name;
    struct weir_where where;
};
/* An edit, "at T set …": its fields are applied to the quota as it is at T,
 * when the order of all edits is known. */
struct weir_scenario_edit {
    struct weir_where where; /* of the verb; identifies its action */
    struct weir_line fields; /* from there on */
};

struct weir_builder {
    struct weir_scenario *scenario;
    const struct weir_lab_script *script;
    struct weir_line line; /* the present line */
    struct weir_diag *diag;
    struct weir_mention *mentions;
    size_t mention_count;
    struct weir_scenario_edit *edits;
    size_t edit_count;
    struct weir_catalog *catalog; /* quotas at the instant that is being
                                   * checked */
    unsigned pass;                /* over the lines: see scenario_build.c */
    uint64_t seen;                /* statements allowed once, by their row */
    bool has_fleet;               /* a statement of this pass needs one */
};

/* Refuses at a word. */
#define WEIR_REFUSE(builder, word, ...) \
    weir_script_refuse((builder)->diag, (word)->where, __VA_ARGS__)

/* Appends a zeroed item to an array of the scenario: its address. */
#define WEIR_APPEND(builder, array, count)                               \
    ((array) = weir_scenario_grow((builder)->scenario, (array), (count), \
                                  sizeof *(array)),                      \
     &(array)[(count)++])
/* ---- scenario_items.c ---- */

/* Whether one more item is allowed; else refuses at the line's first word. */
int weir_build_room(struct weir_builder *builder, size_t count);

/* Remembers that a quota was named, and returns a copy of the name. */
char *weir_build_mention(struct weir_builder *builder,
                         const struct weir_word *word);
/* Finds the load of that name above the line, until the next one is added. */
int weir_build_find_load(struct weir_builder *builder,
                         const struct weir_word *name,
                         const struct weir_load **out);
/* The words from 'from' to the present one, for the log of a run. */
char *weir_build_words(struct weir_builder *builder, size_t from);

/* ---- Nodes: scenario_nodes.c ---- */

/* Takes "root1", "l1..l9", "limiters", "3 of limiters", "1% of roots". */
int weir_build_nodes(struct weir_builder *builder, struct weir_selection *out);
/* The same from one word that holds blanks. */
int weir_build_nodes_word(struct weir_builder *builder,
                          const struct weir_word *word,
                          struct weir_selection *out);
/* Takes "NODES <keyword> NODES": roots on one side, limiters on the other. */
int weir_build_pair(struct weir_builder *builder, const char *keyword,
                    struct weir_selection *out_limiters,
                    struct weir_selection *out_roots);
/* All limiters, or all roots. */
struct weir_selection weir_nodes_all(const struct weir_scenario *scenario,
                                     bool root);
void weir_print_nodes(FILE *out, const struct weir_scenario *scenario,
                      const struct weir_selection *nodes);

/* ---- Lists of key=value: scenario_fields.c ---- */

/* One field of a struct that a list fills. 'read' and 'print' get the member at
 * 'offset' bytes in the struct. */
struct weir_script_field {
    const char *name;
    size_t offset;
    int (*read)(struct weir_builder *builder, const struct weir_word *value,
                void *member);
    /* NULL: another field prints it. */
    void (*print)(FILE *out, const struct weir_scenario *scenario,
                  const void *member);
};
/* Takes the rest of the statement (up to a ';'); 'out_given', which may be
 * NULL, gets a bit for each field in the list. */
int weir_values_read(struct weir_builder *builder,
                     const struct weir_script_field *fields, size_t count,
                     void *object, uint32_t *out_given);
/* " key=value" for each field that is printed otherwise than in 'base'. */
void weir_fields_print(FILE *out, const struct weir_scenario *scenario,
                       const struct weir_script_field *fields, size_t count,
                       const void *object, const void *base);

/* Readers and printers of members of that type. */
int weir_field_duration(struct weir_builder *builder,
                        const struct weir_word *value, void *member);
void weir_field_print_duration(FILE *out, const struct weir_scenario *scenario,
                               const void *member);

/* "network" and "node", by the table of their fields. */
int weir_build_net(struct weir_builder *builder, struct weir_net *net);
void weir_print_net(FILE *out, const struct weir_scenario *scenario,
                    const struct weir_net *net, const struct weir_net *base);
int weir_build_settings(struct weir_builder *builder);
void weir_print_settings(FILE *out, const struct weir_scenario *scenario);

/* ---- Quotas: scenario_quota.c ---- */

int weir_build_quota(struct weir_builder *builder);
/* The quota 'name' before that action (action_count: at the end). False if
 * there is none; '*out' then has the defaults and the name. */
bool weir_scenario_quota_before(const struct weir_scenario *scenario,
                                size_t action, const char *name,
                                struct weir_quota *out);
/* Checks that some quota rules each mentioned name at some time, applies the
 * edits to the quotas in the order of time, and checks each result. */
int weir_build_edits(struct weir_builder *builder);
void weir_print_quota(FILE *out, const struct weir_quota *quota,
                      const struct weir_quota *base);

/* ---- scenario_load.c, scenario_action.c, scenario_measure.c ---- */

int weir_build_load(struct weir_builder *builder);
void weir_print_load(FILE *out, const struct weir_scenario *scenario,
                     const struct weir_load *load);

/* "at T VERB …; VERB …". */
int weir_build_at(struct weir_builder *builder);
/* "network", "cpu" and "clock" as statements: as of the start. */
int weir_build_initial(struct weir_builder *builder);
void weir_print_action(FILE *out, const struct weir_scenario *scenario,
                       size_t action);

int weir_build_always(struct weir_builder *builder);
int weir_build_expect(struct weir_builder *builder);
int weir_build_measure(struct weir_builder *builder);
int weir_build_claim(struct weir_builder *builder);
int weir_build_figure(struct weir_builder *builder);
/* Takes "QUANTITY [of QUOTA] OP VALUE". */
int weir_build_condition_now(struct weir_builder *builder,
                             struct weir_condition *out);
void weir_print_condition(FILE *out, const struct weir_scenario *scenario,
                          const struct weir_condition *condition);
void weir_print_measures(FILE *out, const struct weir_scenario *scenario);

#endif /* WEIR_SCENARIO_INTERNAL_H */
