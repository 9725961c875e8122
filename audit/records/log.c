#include "log.h"
#include "../memory.h"

#include <string.h>

bool log_start(void) {
    uint64_t capacity = root.options.log, bytes = root.options.contents;
    if (capacity == 0)
        return true;
    void *entries = own_memory(capacity * sizeof(struct dmods_audit_transaction), DMODS_AUDIT_RANGE_LOG);
    void *contents = bytes != 0 ? own_memory(capacity * bytes, DMODS_AUDIT_RANGE_LOG) : NULL;
    root.log = (struct dmods_audit_ring){.entries = (uintptr_t)entries,
                                         .capacity = capacity,
                                         .entry_size = sizeof(struct dmods_audit_transaction),
                                         .next = 1};
    if (contents != NULL)
        root.contents = (struct dmods_audit_ring){
            .entries = (uintptr_t)contents, .capacity = capacity, .entry_size = (uint32_t)bytes, .next = 1};
    return entries != NULL && (bytes == 0 || contents != NULL);
}

void log_event(const struct dmods_audit_transaction *event, const void *contents) {
    uint64_t sequence = __atomic_fetch_add(&root.log.next, 1, __ATOMIC_RELAXED);
    uint64_t at = (sequence - 1) % root.log.capacity;
    struct dmods_audit_transaction *entry = (struct dmods_audit_transaction *)root.log.entries + at;
    __atomic_store_n(&entry->sequence, 0, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
    struct dmods_audit_transaction filled = *event;
    filled.sequence = 0;
    if (contents != NULL && root.contents.capacity != 0) {
        uint64_t limit = root.contents.entry_size;
        filled.contents = (uint32_t)(event->size < limit ? event->size : limit);
        memcpy((char *)root.contents.entries + at * limit, contents, filled.contents);
    }
    *entry = filled;
    __atomic_store_n(&entry->sequence, sequence, __ATOMIC_RELEASE);
}
