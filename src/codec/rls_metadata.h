/* SPDX-License-Identifier: MIT
 * codec/rls_metadata.h - the dynamic metadata of an answer of Envoy's rate
 * limit service, as envoyproxy/ratelimit returns it with
 * RESPONSE_DYNAMIC_METADATA.
 *
 *     {"domain": "shop",
 *      "descriptors": [{"entries": ["path=/cart"], "hitsAddend": 1}],
 *      "metadata": {…}, "shadowOverLimit": [0]}
 *
 * "metadata" is merged from the `metadata` of those limits that the request
 * passed; of a key that two have the first counts, but mappings are merged.
 * "shadowOverLimit", which the original doesn't have, are the indexes of the
 * descriptors that would have been limited but for mode shadow. */

#ifndef WEIR_RLS_METADATA_H
#define WEIR_RLS_METADATA_H

#include <jansson.h>
#include <yaml.h>

#include "codec/rls.h"

/* Bounds. */
#define WEIR_RLS_METADATA_NODES_MAX 1024u /* of one limit in the file */
#define WEIR_RLS_METADATA_DEPTH_MAX 32u
/* Bytes of all limits: a value's texts and WEIR_RLS_METADATA_NODE. Aliases make
 * much of a short file. */
#define WEIR_RLS_METADATA_ALL_MAX (64u << 20)
#define WEIR_RLS_METADATA_NODE 256u

/* A mapping of YAML as an object, by the types of YAML 1.1. Its bytes are taken
 * from '*room'. Cycles of aliases end at the bounds. NULL: over a bound, a key
 * that isn't a scalar, or no memory. */
json_t *weir_rls_metadata_from_yaml(yaml_document_t *document,
                                    const yaml_node_t *mapping, size_t *room);

/* The metadata of an answer, without "metadata"; NULL: no memory. */
json_t *weir_rls_metadata_new(const struct weir_rls_request *request);
/* Merges that of a limit into the object's "metadata". */
void weir_rls_metadata_merge(json_t *object, const json_t *of_limit);

/* The bytes of a google.protobuf.Struct: writes them to 'buf' of 'size' bytes,
 * and returns how many; 0: it is empty, or doesn't fit. */
size_t weir_rls_metadata_encode(const json_t *object, void *buf, size_t size);

#endif /* WEIR_RLS_METADATA_H */
