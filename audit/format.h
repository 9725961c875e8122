/*
 * What the auditor leaves in the memory of the process, for whoever reads it there: a core, a live process, a debugger.
 *
 * Everything is found from one structure, `dmods_audit_root`: an exported symbol, and where symbols are gone, 16 bytes
 * of magic at the start of a 4096-byte page in the writable mapping of the library. All numbers are in the byte order
 * of the machine; all addresses are those of the process. Nobody needs this header's types: sizes, shifts and widths
 * stand in the root itself, and `version` changes when one of their meanings does. Fields are only ever appended.
 *
 * The process may have died, or been stopped, anywhere, inside the auditor too. So whatever says that an entry is there
 * is written last and taken away first: word 0 of a record, `tid` of a thread, `sequence` of a transaction, `count` of
 * a table. An entry without it is skipped.
 *
 * The auditor's memory lies in `ranges`: nothing in it is a leak of the program, and nothing in it keeps a block alive.
 */
#ifndef DMODS_AUDIT_FORMAT_H
#define DMODS_AUDIT_FORMAT_H

#include <stdint.h>

#define DMODS_AUDIT_MAGIC "DMODS-AUDIT-ROOT" /* 16 bytes, no NUL */
#define DMODS_AUDIT_VERSION 1

enum dmods_audit_state {
    DMODS_AUDIT_OFF = 0,       /* preloaded, but nobody asked for records */
    DMODS_AUDIT_STARTING = 1,  /* tables may be missing */
    DMODS_AUDIT_RECORDING = 2, /* the tables are there */
    DMODS_AUDIT_STOPPED = 3,   /* it gave up (`status` says why); what was recorded until then stands */
};

/* Where a number lies inside the words of a record: (word[word] >> shift) & ((1 << width) - 1). */
struct dmods_audit_bits {
    uint8_t word, shift, width, reserved;
};

/*
 * Records of live blocks: one of `record_size` bytes (an array of 8-byte words) for each granule of address space, so
 * that a record needs no pointer to its block and a block's record has an address of its own (the "bufctl").
 *
 *     top    = (uint64_t *)root.shadow.top;            // top_count entries, 0 where nothing was ever allocated
 *     middle = (uint64_t *)top[p >> top_shift];        // middle_count entries, likewise
 *     leaf   = middle[(p >> middle_shift) % middle_count];
 *     record = leaf + ((p >> granule_shift) % leaf_records) * record_size;
 *
 * The block of a record begins at its granule + (offset << offset_shift). A record is there when `live` is 1. With
 * guards it stays when the block is freed: `live` 0, root.freed 1, and stack, thread and time are those of the free.
 * (Inside a live block it is a leftover.)
 *
 * Of every block there is one record a granule of 32 bytes. Of samples, which are far between, one of a larger granule;
 * where two lie so close together, one of them has its record some granules before its own.
 *
 * Where `size` has all its bits set, the requested size is word 1 of the following record instead (a block that large
 * owns the next granule too); that record has `live` 0. `time` is in units of the clock (below). `stack` and `thread`
 * are indexes into `stacks` and `threads`; 0: not known (more than the tables hold).
 */
struct dmods_audit_shadow {
    uint64_t top;
    uint32_t top_shift, top_count;
    uint32_t middle_shift, middle_count;
    uint32_t granule_shift, leaf_records;
    uint32_t record_size, offset_shift;
    struct dmods_audit_bits live, offset, stack, thread, size, time;
};

/* A table in chunks that grows at its end and never moves: entry i is at
 * ((uint64_t *)chunks)[i >> chunk_shift] + (i & ((1 << chunk_shift) - 1)) * entry_size. Entry 0 is never used. */
struct dmods_audit_table {
    uint64_t chunks;
    uint32_t chunk_shift, chunk_count; /* entries a chunk, as a shift; room for so many chunks, 0 where none is yet */
    uint32_t entry_size, reserved;
    uint64_t count; /* entries 1 .. count-1 are there */
};

/* Entry of `stacks`, a tree: the program counter of a frame (a return address, as unwinders give it) and its caller's
 * node. The stack of a record is its node, then `parent` after `parent` until 0: innermost first, at most
 * options.frames of them. The first is the caller of malloc (or of operator new's malloc: operator new itself). */
struct dmods_audit_node {
    uint64_t pc;     /* bits 0 to 47; 48 to 63 are DMODS_AUDIT_NODE_... */
    uint32_t parent; /* always smaller than this node's own index */
    uint32_t hash;   /* the auditor's own business */
};
#define DMODS_AUDIT_NODE_TRUNCATED                                                                                     \
    (1ull << 48) /* of the outermost: the walk ended here, but the program did not begin here */
#define DMODS_AUDIT_NODE_EXACT (1ull << 49) /* not a return address: the instruction that a signal interrupted */

/* Entry of `threads`: a thread that allocated or freed something, alive or not. A fork makes a new one in the child. */
struct dmods_audit_thread {
    uint32_t tid; /* 0: not there */
    uint32_t pid;
    uint64_t pthread; /* pthread_self() */
    uint64_t time;    /* first seen, in units of the clock */
    char name[16];    /* as the kernel knew it when last asked */
    uint64_t reserved[3];
};

enum dmods_audit_event {
    DMODS_AUDIT_ALLOCATED = 1,
    DMODS_AUDIT_FREED = 2,
};

/* Entry of `log`: something that happened to a block. A realloc is a FREED and an ALLOCATED. */
struct dmods_audit_transaction {
    uint64_t sequence; /* 0: not there. Entry number (sequence - 1) % capacity, or it was being overwritten */
    uint64_t address, size;
    uint64_t time;
    uint32_t stack, thread;
    uint32_t event;
    uint32_t contents;   /* bytes of the block that the contents log keeps; only of FREED */
    uint64_t alloc_time; /* of FREED: by whom and when it had been allocated; 0: not known */
    uint32_t alloc_stack, alloc_thread;
};

/* A ring: `capacity` entries at `entries`; the next has sequence `next` (the first had 1). capacity 0: not kept. */
struct dmods_audit_ring {
    uint64_t entries;
    uint64_t capacity;
    uint32_t entry_size, reserved;
    uint64_t next;
};

/* The same moment on three clocks: ticks (of clock_kind), CLOCK_MONOTONIC and CLOCK_REALTIME in ns. */
struct dmods_audit_moment {
    uint64_t ticks, monotonic, realtime;
};

enum dmods_audit_clock_kind {
    DMODS_AUDIT_CLOCK_TICKS = 1,     /* the processor's counter: its rate is told by the two moments */
    DMODS_AUDIT_CLOCK_MONOTONIC = 2, /* CLOCK_MONOTONIC, ns */
};

/* A time t of a record or transaction was ticks = start.ticks + (t << shift); in ns of CLOCK_MONOTONIC, with
 * now = latest[latest_index & 1]:
 * start.monotonic + (t << shift) * (now.monotonic - start.monotonic) / (now.ticks - start.ticks). */
struct dmods_audit_clock {
    uint32_t kind, shift;
    struct dmods_audit_moment start;
    uint64_t latest_index;
    struct dmods_audit_moment latest[2];
};

enum dmods_audit_range_kind {
    DMODS_AUDIT_RANGE_LIBRARY = 1, /* the library's own data and bss: the root is in it */
    DMODS_AUDIT_RANGE_RECORDS = 2, /* shadow */
    DMODS_AUDIT_RANGE_STACKS = 3,  /* stacks and their index */
    DMODS_AUDIT_RANGE_LOG = 4,     /* transactions and contents */
    DMODS_AUDIT_RANGE_OTHER = 5,   /* threads, what is known of code */
    DMODS_AUDIT_RANGE_BOOTSTRAP =
        6, /* blocks handed to the program before its allocator was found: NOT the auditor's own */
};

/* Entry of `ranges`: start 0: not there. */
struct dmods_audit_range {
    uint64_t start, end;
    uint32_t kind, reserved;
};

struct dmods_audit_array {
    uint64_t entries;
    uint32_t entry_size, reserved;
    uint64_t count;
};

#define DMODS_AUDIT_GUARDS 1u /* options.flags */
#define DMODS_AUDIT_SAMPLED 2u

/* What was asked for, as understood. */
struct dmods_audit_options {
    char text[256]; /* DMODS_AUDIT as it was given, cut to fit, NUL at the end */
    uint32_t flags;
    uint32_t frames;
    uint64_t sample; /* mean bytes between samples; 0: every block. A sample stands for 1 / (1 - exp(-size / sample)) */
    uint64_t log;    /* transactions kept */
    uint64_t contents; /* bytes kept of each freed block */
    uint32_t redzone;  /* bytes of redzone_byte from the block's requested end on (guards) */
    uint8_t redzone_byte, reserved[3];
    uint32_t fresh, freed; /* the patterns of guards: 0xbaddcafe, 0xdeadbeef */
};

/* What it costs, and what was not recorded. */
struct dmods_audit_figures {
    uint64_t bytes_mapped;     /* of address space; what is touched of it is resident */
    uint64_t lost_records;     /* blocks that have no record: no memory for one */
    uint64_t lost_stacks;      /* records whose stack is 0: the table is full */
    uint64_t truncated_stacks; /* stacks that end where no rule says how to go on (JIT code), each time it happened */
    uint64_t unknown_frees;    /* frees of blocks that had no record (not counted when sampled) */
    uint64_t forks;            /* how many forks lie between the first process and this one */
    uint64_t generations;      /* how often code was unloaded (dlclose) */
    uint64_t reserved[5];
};

struct dmods_audit_root {
    char magic[16];
    uint32_t version;
    uint32_t size; /* of this structure: a field beyond it is not there */
    uint32_t state;
    uint32_t pid;

    struct dmods_audit_options options;
    struct dmods_audit_clock clock;
    struct dmods_audit_shadow shadow;
    struct dmods_audit_table stacks;
    struct dmods_audit_table threads;
    struct dmods_audit_ring log;
    struct dmods_audit_ring contents; /* entry i belongs to entry i of log */
    struct dmods_audit_array ranges;
    struct dmods_audit_figures figures;

    /* Why guards ended the program, or why the auditor stopped: one line, "" if neither. */
    char status[256];
    uint64_t status_address;
    uint32_t status_stack, status_thread;

    struct dmods_audit_bits freed; /* of a record: see dmods_audit_shadow */
    uint32_t reserved;

    /* The auditor's own memory in every thread, as in `ranges`: tls_size bytes from the thread pointer + tls_offset. */
    int64_t tls_offset;
    uint64_t tls_size;
};

#endif
