/* Part of a build of the auditor that compares every stack it records (or every DMODS_CHECK_EVERY-th) with libgcc's
 * _Unwind_Backtrace: the frames, and whether the frame limit cut the stack. At its end each process appends a line to
 * the file DMODS_CHECK: stacks compared, stacks that differ. */
#include "../../audit/frame.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

void check_stack(uintptr_t frame_pointer, uint32_t stack);

static _Atomic uint64_t calls, compared, differed;
static uint64_t every;
static __thread bool busy;

struct seen {
    uintptr_t from;
    unsigned count;
    bool cut;
    uintptr_t pcs[MAX_FRAMES + 1];
};

static _Unwind_Reason_Code see(struct _Unwind_Context *context, void *data) {
    struct seen *seen = data;
    if (_Unwind_GetCFA(context) < seen->from && seen->count == 0)
        return _URC_NO_REASON; /* frames of the auditor */
    seen->pcs[seen->count++] = _Unwind_GetIP(context);
    return seen->count > root.options.frames ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static const struct dmods_audit_node *node_at(uint32_t node) {
    const uint64_t *chunks = (const uint64_t *)root.stacks.chunks;
    uint64_t chunk = chunks[node >> root.stacks.chunk_shift];
    return (const struct dmods_audit_node *)chunk + (node & ((1u << root.stacks.chunk_shift) - 1));
}

static void report(const struct seen *seen, const struct seen *ours) {
    dprintf(2, "  cut: libgcc %d auditor %d\n", seen->cut, ours->cut);
    for (unsigned i = 0; i < seen->count || i < ours->count; i++)
        dprintf(2, "  %2u libgcc %#lx auditor %#lx\n", i, i < seen->count ? seen->pcs[i] : 0,
                i < ours->count ? ours->pcs[i] : 0);
}

void check_stack(uintptr_t frame_pointer, uint32_t stack) {
    if (busy || (every > 1 && atomic_fetch_add(&calls, 1) % every != 0))
        return;
    busy = true;
    struct seen seen = {.from = frame_pointer + 16}, ours = {0};
    _Unwind_Backtrace(see, &seen);
    while (seen.count > 0 && seen.pcs[seen.count - 1] == 0)
        seen.count--;
    seen.cut = seen.count > root.options.frames;
    seen.count -= seen.cut;
    for (uint32_t node = stack; node != 0 && ours.count < MAX_FRAMES; node = node_at(node)->parent) {
        ours.pcs[ours.count++] = node_at(node)->pc & 0xffffffffffff;
        ours.cut = node_at(node)->pc >> DMODS_AUDIT_NODE_TRUNCATED_BIT & 1;
    }
    atomic_fetch_add(&compared, 1);
    if (seen.cut != ours.cut || seen.count != ours.count ||
        memcmp(seen.pcs, ours.pcs, seen.count * sizeof seen.pcs[0]) != 0)
        if (atomic_fetch_add(&differed, 1) < 5)
            report(&seen, &ours);
    busy = false;
}

__attribute__((constructor)) static void check_start(void) {
    const char *text = getenv("DMODS_CHECK_EVERY");
    every = text != NULL ? strtoul(text, NULL, 10) : 1;
}

__attribute__((destructor)) static void check_end(void) {
    const char *path = getenv("DMODS_CHECK");
    int file = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file >= 0) {
        dprintf(file, "%lu %lu\n", (unsigned long)compared, (unsigned long)differed);
        close(file);
    }
}
