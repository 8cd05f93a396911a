/* SPDX-License-Identifier: MIT
 * codec/yaml.h - a set of quotas as one YAML file, for people: libyaml.
 *
 *     weir: 1
 *     quotas:
 *       - name: site
 *         limit: 1000/s
 *       - name: client_*
 *         parent: site
 *         limit: 100/s
 *         labels: {team: web}
 *
 * Import refuses unknown fields, duplicate names, anchors and tags, with line
 * and column. An export leaves out defaults; importing it gives the same set,
 * in any order of its quotas. */

#ifndef WEIR_YAML_H
#define WEIR_YAML_H

#include "core/quota/quota.h"

/* Bounds of a file. */
#define WEIR_YAML_BYTES_MAX (256u << 20)
#define WEIR_YAML_QUOTAS_MAX 4000000u

struct weir_yaml; /* owns the texts of the parsed quotas */

/* Parses 'text'. '*quotas' and '*count' are owned by '*out'. WEIR_ESYNTAX,
 * WEIR_EQUOTA, WEIR_EEXIST (duplicate), WEIR_ETOOBIG, WEIR_ENOMEM, with line
 * and column in 'diag'. */
int weir_yaml_parse(struct weir_text text, struct weir_yaml **out,
                    struct weir_quota **quotas, size_t *count,
                    struct weir_diag *diag);
void weir_yaml_free(struct weir_yaml *yaml);

/* Writes the file. The text is malloc'ed; the caller frees it. NULL: no memory.
 * The file keeps the order of 'quotas'. */
char *weir_yaml_print(const struct weir_quota *const *quotas, size_t count,
                      size_t *out_len);

#endif /* WEIR_YAML_H */
