/*
 * Who mapped what: an entry for each range of address space that the program mapped itself. Programs have some hundreds
 * of mappings and seldom change them, so entries have no order, and a search looks at all of them.
 */
#ifndef DMODS_MAPS_H
#define DMODS_MAPS_H

#include "../audit.h"

/* Make the table, where it is asked for. False: there is no memory for it. */
bool maps_start(void);

/* Return whether mappings are recorded. */
HOT bool maps_wanted(void) { return unlikely(root.maps.entries != 0) && mode() > MODE_OFF; }

/* Add a range, in place of whatever was there. `grows`: it may continue an entry of the same stack. */
void maps_put(const struct dmods_audit_mapping *entry, bool grows);

/* Remove what was mapped in a range before a time. Return the entry that the first byte was in, whole; its start is 0
 * where there was none. */
struct dmods_audit_mapping maps_cut(uintptr_t start, uintptr_t end, uint64_t before);

/* Return the entry of that kind that begins at an address; its start is 0 where no entry does. */
struct dmods_audit_mapping maps_at(uintptr_t start, uint32_t kind);

/* Count a mapping that gets no entry. */
void maps_count_lost(void);

#endif
