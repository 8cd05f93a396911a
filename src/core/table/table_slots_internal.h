/* SPDX-License-Identifier: MIT
 * table/table_slots_internal.h - names, slots and their lives; most of it
 * under the writer lock. */

#ifndef WEIR_TABLE_SLOTS_INTERNAL_H
#define WEIR_TABLE_SLOTS_INTERNAL_H

#include "core/quota/glob.h"
#include "core/table/table_lock_internal.h"

/* A multiple of a cache line. */
static inline uint64_t weir_line_aligned(uint64_t bytes)
{
    return (bytes + WEIR_CACHE_LINE - 1) & ~(uint64_t)(WEIR_CACHE_LINE - 1);
}
/* Words of the bits at 'kept_at'. */
static inline uint64_t weir_kept_words(const struct weir_table *t)
{
    return (t->chunk_count + 63) / 64;
}

/* Under the lock: counts references to a slot; views read it without. */
static inline void weir_cold_refer(struct cold *cold, int64_t by)
{
    weir_store_relaxed(&cold->refs, (uint32_t)(cold->refs + by));
}

/* ---- table_names.c ---- */
/* Under the lock: the slot of 'name' in any state but free, or NONE. */
uint32_t weir_slot_find(const struct weir_table *t, struct weir_text name);
bool weir_chunks_store(struct weir_table *t, const char *bytes, size_t len,
                       uint32_t *out_first);
void weir_chunks_load(const struct weir_table *t, uint32_t first, size_t len,
                      char *buf);
void weir_chunks_free(struct weir_table *t, uint32_t first);

/* False: no chunks. */
bool weir_names_store(struct weir_table *t, uint32_t slot,
                      struct weir_text name);
void weir_names_remove(struct weir_table *t, uint32_t slot);

/* ---- table_template.c ---- */
/* Instead of a template's slot: the search took WEIR_SEARCH_WORK_MAX. */
#define WEIR_TEMPLATE_UNKNOWN (WEIR_SLOT_NONE - 1)
/* Under the lock: the first template that matches, or WEIR_SLOT_NONE. The name
 * has at most WEIR_NAME_MAX bytes. */
uint32_t weir_templates_match(const struct weir_table *t, struct weir_text name,
                              struct weir_captures *captures);
/* The same with its runs and kind, and for names of any length; of a longer one
 * it may be WEIR_TEMPLATE_UNKNOWN. Both also without the lock, between
 * weir_templates_version() and weir_templates_is_same(): if the list was edited
 * meanwhile, a slot that isn't a template may be returned. */
uint32_t weir_templates_runs(const struct weir_table *t, struct weir_text name,
                             struct weir_runs *runs, enum weir_glob *out_glob);
void weir_templates_insert(struct weir_table *t, const struct weir_quota *quota,
                           uint32_t slot);
void weir_templates_remove(struct weir_table *t, uint32_t slot);
void weir_templates_mend(struct weir_table *t);
/* Before and after inserts and removes. */
void weir_templates_edit(struct weir_table *t);
void weir_templates_edited(struct weir_table *t);
/* Before a search without the lock. */
static inline uint32_t weir_templates_version(const struct weir_table *t)
{
    /* acquire: pairs with weir_templates_edited(). */
    return weir_load_acquire(&t->template_version);
}
/* After it: whether the list wasn't being edited. */
static inline bool weir_templates_is_same(const struct weir_table *t,
                                          uint32_t version)
{
    /* Pairs with the fence in weir_templates_edit(). */
    weir_fence_acquire();
    return (version & 1) == 0 &&
           weir_load_relaxed(&t->template_version) == version;
}

/* ---- table_slots.c ---- */
/* Under the lock: takes a free slot (state MAKING) for 'name', or
 * WEIR_SLOT_NONE: no slot, no chunks or no place in the index. Only
 * weir_slot_find() finds it until it is published. */
uint32_t weir_slot_take(struct weir_table *t, struct weir_text name);
/* Begins its life: from now on any thread finds it. */
void weir_slot_publish(struct weir_table *t, uint32_t slot);
/* Ends its life, if not ended yet, and frees it. */
void weir_slot_release(struct weir_table *t, uint32_t slot);
/* Under the lock: removes one child or pin; frees a placeholder that has none
 * left. */
void weir_slot_unref(struct weir_table *t, uint32_t slot);
/* Under the lock: frees a placeholder without references, unless an enter was
 * faster. */
void weir_placeholder_free(struct weir_table *t, uint32_t slot);
/* Under the lock: frees it and its reference to its parent. */
void weir_slot_free(struct weir_table *t, uint32_t slot);
void weir_slot_set_parent(struct weir_table *t, uint32_t slot, uint32_t parent);

/* ---- table_evict.c ---- */
/* Slots that a caller visits to evict one before it gives up, and the time
 * until it tries again. */
#define EVICT_LOOK_MAX 256
#define BARREN (20 * WEIR_MILLISECOND)
/* Under the lock: takes a free slot, evicting if need be. */
uint32_t weir_slot_make(struct weir_table *t, struct weir_text name,
                        weir_instant now);
/* Under the lock: frees the slot if it is an instance or placeholder that is
 * not needed. */
bool weir_slot_evict(struct weir_table *t, uint32_t slot, weir_instant now);
/* Under the lock: visits up to 'looks' slots from the clock hand on and frees
 * up to 'wanted'; returns the number freed. */
uint32_t weir_table_evict(struct weir_table *t, uint32_t looks, uint32_t wanted,
                          weir_instant now);

/* ---- table_rule.c ---- */
/* Under the lock: the slot of 'name', made as instance or ('keep') placeholder
 * if need be. 'depth': number of quotas below it in the chain. */
enum weir_resolved weir_slot_resolve(struct weir_table *t,
                                     struct weir_text name, bool keep,
                                     unsigned depth, uint32_t *out,
                                     weir_instant now);
/* The same for a name that a client gives: of any length, and stored as
 * table_stored_name.h says. */
enum weir_resolved weir_slot_resolve_given(struct weir_table *t,
                                           struct weir_text name, bool keep,
                                           unsigned depth, uint32_t *out,
                                           weir_instant now);
/* Under the lock: updates an instance or placeholder after the templates
 * changed. False: a request has its bucket state. */
bool weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now);
/* The same if its bucket state is seized already. */
void weir_slot_rule_seized(struct weir_table *t, uint32_t slot,
                           weir_instant now);
/* Under the lock: its quota is gone; makes it a placeholder, which may still
 * have units in flight. */
void weir_slot_unrule(struct weir_table *t, uint32_t slot, weir_instant now);

/* Under the lock: weir_table_resolve_given(). */
enum weir_resolved weir_table_resolve_locked(struct weir_table *t,
                                             struct weir_text name, bool keep,
                                             struct weir_ref *out,
                                             weir_instant now);

/* ---- table_pin.c; under the lock ---- */
static inline struct pin *weir_pin(const struct weir_table *t, uint32_t index)
{
    return (struct pin *)weir_table_at(t, t->pins_at) + index;
}
/* Add or remove one pin. False: no room, or the process has none. */
bool weir_share_pin(struct weir_table *t, uint32_t process, uint32_t slot);
bool weir_share_unpin(struct weir_table *t, uint32_t process, uint32_t slot);

/* Removes the pins of a process that has gone; takes the lock, as 'by'. False:
 * the lock was taken for long. */
bool weir_pins_reap(struct weir_table *t, uint32_t process, uint32_t by);
void weir_pins_mend(struct weir_table *t);

/* ---- table_mend.c ---- */
/* Under the lock of a killed writer, in a table that processes share: rebuilds
 * lists, references and chunks from the live slots. */
void weir_table_mend_shared(struct weir_table *t);

#endif /* WEIR_TABLE_SLOTS_INTERNAL_H */
