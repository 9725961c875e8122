/*
 * Guards: memory that says when it was misused. Behind the requested end of every block lies a redzone; fresh memory
 * reads 0xbaddcafe, freed memory 0xdeadbeef (as libumem has it). A block that is freed with its redzone overwritten,
 * freed twice, or was never one, ends the program with SIGABRT at that place, so that the core shows it; root.status
 * says why.
 */
#include "audit.h"
#include "shadow.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEARCHED 65536 /* granules looked back for the block that an address lies in: 2 MB */

static void pattern(unsigned char *p, size_t from, size_t to, uint32_t word) {
    for (size_t i = from; i < to; i++)
        p[i] = (unsigned char)(word >> 8 * (i % 4));
}

void guards_fresh(void *p, size_t size, size_t old_size) { pattern(p, old_size, size, root.options.fresh); }

void guards_redzone(void *p, size_t size) { memset((char *)p + size, root.options.redzone_byte, settings.redzone); }

void guards_freed(void *p, size_t size) { pattern(p, 0, size, root.options.freed); }

/* snprintf may allocate. */
struct line {
    char *at, *end;
};

static void say(struct line *line, const char *text) {
    while (*text != 0 && line->at < line->end)
        *line->at++ = *text++;
}

static void say_number(struct line *line, uint64_t value, unsigned base) {
    char digits[24], *p = digits + sizeof digits - 1;
    *p = 0;
    do
        *--p = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    say(line, base == 16 ? "0x" : "");
    say(line, p);
}

static COLD __attribute__((noreturn)) void stop(struct line *line, const void *p, uintptr_t frame_pointer) {
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

static struct line status(void) { return (struct line){root.status, root.status + sizeof root.status - 1}; }

void guards_check(const void *p, size_t size, uintptr_t frame_pointer) {
    const unsigned char *redzone = (const unsigned char *)p + size;
    for (unsigned i = 0; i < settings.redzone; i++) {
        if (redzone[i] == root.options.redzone_byte)
            continue;
        struct line line = status();
        say(&line, "overrun: the block at ");
        say_number(&line, (uintptr_t)p, 16);
        say(&line, " of ");
        say_number(&line, size, 10);
        say(&line, " bytes was written beyond its end, at offset ");
        say_number(&line, size + i, 10);
        stop(&line, p, frame_pointer);
    }
}

/* The live block that an address lies in, not far before it; NULL if none is known. */
static const void *around(uintptr_t address, size_t *size) {
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

/* A free of what has no record. Blocks that could not be recorded are let through. */
void guards_bad_free(const void *p, uintptr_t frame_pointer) {
    struct record *record = shadow_find((uintptr_t)p);
    struct line line = status();
    size_t size;
    if (record != NULL && atomic_load(&record->word) & RECORD_FREED &&
        (atomic_load(&record->word) & 3ull << RECORD_OFFSET_AT) == record_offset((uintptr_t)p)) {
        say(&line, "double free: the block at ");
        say_number(&line, (uintptr_t)p, 16);
        say(&line, " had been freed before");
        stop(&line, p, frame_pointer);
    }
    const void *block = around((uintptr_t)p, &size);
    if (block == NULL && root.figures.lost_records != 0)
        return;
    say(&line, "invalid free: ");
    say_number(&line, (uintptr_t)p, 16);
    say(&line, block == NULL ? " is no block" : " lies inside the block at ");
    if (block != NULL)
        say_number(&line, (uintptr_t)block, 16);
    stop(&line, p, frame_pointer);
}
