#include "guards.h"
#include "../records/shadow.h"
#include "../unwind/walk.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEARCHED 65536 /* granules: a block that holds an address is searched 2 MB back */

static void fill(unsigned char *p, size_t from, size_t to, uint32_t word) {
    for (size_t i = from; i < to; i++)
        p[i] = (unsigned char)(word >> 8 * (i % 4));
}

void guards_fill_fresh(void *p, size_t size, size_t old_size) { fill(p, old_size, size, root.options.fresh); }

void guards_write_redzone(void *p, size_t size) {
    memset((char *)p + size, root.options.redzone_byte, settings.redzone);
}

void guards_fill_freed(void *p, size_t size) { fill(p, 0, size, root.options.freed); }

/* A line of text that is being written. snprintf may allocate. */
struct line {
    char *at, *end;
};

static void append(struct line *line, const char *text) {
    while (*text != 0 && line->at < line->end)
        *line->at++ = *text++;
}

static void append_number(struct line *line, uint64_t value, unsigned base) {
    char digits[24], *p = digits + sizeof digits - 1;
    *p = 0;
    do
        *--p = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    append(line, base == 16 ? "0x" : "");
    append(line, p);
}

static COLD __attribute__((noreturn)) void abort_program(struct line *line, const void *p, uintptr_t frame_pointer) {
    struct thread *thread = thread_self();
    *line->at = 0;
    root.status_address = (uintptr_t)p;
    root.status_thread = thread->index;
    root.status_stack = walk(thread, frame_pointer);
    const char *prefix = "dmods audit: ";
    ssize_t unused = write(2, prefix, strlen(prefix));
    unused = write(2, root.status, strlen(root.status));
    unused = write(2, "\n", 1);
    (void)unused;
    abort();
}

static struct line status_line(void) { return (struct line){root.status, root.status + sizeof root.status - 1}; }

void guards_check(const void *p, size_t size, uintptr_t frame_pointer) {
    const unsigned char *redzone = (const unsigned char *)p + size;
    for (unsigned i = 0; i < settings.redzone; i++) {
        if (redzone[i] == root.options.redzone_byte)
            continue;
        struct line line = status_line();
        append(&line, "overrun: the block at ");
        append_number(&line, (uintptr_t)p, 16);
        append(&line, " of ");
        append_number(&line, size, 10);
        append(&line, " bytes was written beyond its end, at offset ");
        append_number(&line, size + i, 10);
        abort_program(&line, p, frame_pointer);
    }
}

/* Return the live block that holds an address. NULL: none begins within 2 MB before it. */
static const void *enclosing_block(uintptr_t address, size_t *size) {
    uintptr_t granule = address & ~((1ull << GRANULE_SHIFT) - 1);
    for (unsigned i = 0; i < SEARCHED && granule != 0; i++, granule -= 1u << GRANULE_SHIFT) {
        struct record *record = shadow_find(granule);
        if (record == NULL)
            return NULL;
        uint64_t word = atomic_load(&record->word);
        if (!(word & RECORD_LIVE))
            continue;
        uintptr_t start = granule + (word >> RECORD_OFFSET_AT & 3) * 8;
        if (start > address)
            continue;
        *size = record_size(word, start);
        return address - start < *size ? (const void *)start : NULL;
    }
    return NULL;
}

void guards_stop_bad_free(const void *p, uintptr_t frame_pointer) {
    struct record *record = shadow_find((uintptr_t)p);
    struct line line = status_line();
    size_t size;
    if (record != NULL && atomic_load(&record->word) & RECORD_FREED &&
        (atomic_load(&record->word) & 3ull << RECORD_OFFSET_AT) == record_offset((uintptr_t)p)) {
        append(&line, "double free: the block at ");
        append_number(&line, (uintptr_t)p, 16);
        append(&line, " had been freed before");
        abort_program(&line, p, frame_pointer);
    }
    const void *block = enclosing_block((uintptr_t)p, &size);
    if (block == NULL && root.figures.lost_records != 0)
        return;
    append(&line, "invalid free: ");
    append_number(&line, (uintptr_t)p, 16);
    append(&line, block == NULL ? " is no block" : " lies inside the block at ");
    if (block != NULL)
        append_number(&line, (uintptr_t)block, 16);
    abort_program(&line, p, frame_pointer);
}
