/* The auditor's own memory. It is mapped, never taken from the allocator, and listed in root.ranges. */
#ifndef DMODS_MEMORY_H
#define DMODS_MEMORY_H

#include "audit.h"

/* Map zeroed pages. NULL: there is no memory, or the list of ranges is full. errno does not change. */
void *own_memory(size_t size, enum dmods_audit_range_kind kind);

/* List a range that the auditor did not map itself. */
void own_range(uintptr_t start, uintptr_t end, enum dmods_audit_range_kind kind);

/* Return the address of an entry, and make its chunk where no chunk exists. NULL: the table is full, or there is no
 * memory. */
void *table_entry(struct dmods_audit_table *table, uint64_t index, enum dmods_audit_range_kind kind);

/* Return whether 8 bytes can be read at an address. */
bool readable(uintptr_t address);

struct lock {
    _Atomic int taken;
};
void lock(struct lock *lock);
void unlock(struct lock *lock);
extern struct lock memory_lock, stacks_lock, maps_lock;

#endif
