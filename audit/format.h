/*
 * What the auditor leaves in the memory of the process, for its readers: a core, a live process, a debugger.
 *
 * A reader finds everything from one structure, `dmods_audit_root`. It is an exported symbol. Where symbols are
 * stripped, a reader looks for its 16 bytes of magic at the start of a 4096-byte page in the writable mapping of the
 * library. All numbers are in the byte order of the machine, and all addresses are those of the process. The root holds
 * the sizes, shifts and widths of the tables. `version` changes when the meaning of a field changes. New fields are
 * only appended.
 *
 * The process may stop at any instruction, also inside the auditor. So the field that marks an entry as present is
 * written last and cleared first: word 0 of a record, `tid` of a thread, `sequence` of a transaction, `count` of a
 * table. A reader skips an entry that is not marked.
 *
 * The memory of the auditor lies in `ranges`. Nothing in it is a leak of the program, and nothing in it keeps a block
 * alive.
 *
 * scripts/audit-format writes the Python and Rust mirrors of this file. They list no field that has "reserved" in its
 * name. Structures have no implicit padding.
 */
#ifndef DMODS_AUDIT_FORMAT_H
#define DMODS_AUDIT_FORMAT_H

#include <stdint.h>

#define DMODS_AUDIT_MAGIC "DMODS-AUDIT-ROOT" /* 16 bytes, no NUL */

enum { DMODS_AUDIT_VERSION = 1 };

enum dmods_audit_state {
    DMODS_AUDIT_OFF = 0,       /* preloaded, but DMODS_AUDIT asks for no records */
    DMODS_AUDIT_STARTING = 1,  /* tables may be missing */
    DMODS_AUDIT_RECORDING = 2, /* all tables exist */
    DMODS_AUDIT_STOPPED = 3,   /* it stopped, and `status` says why; the records until then are right */
};

/* The place of a number in the words of a record: (word[word] >> shift) & ((1 << width) - 1). */
struct dmods_audit_bits {
    uint8_t word, shift, width, reserved;
};

/*
 * Records of live blocks. There is one record of `record_size` bytes (an array of 8-byte words) for each granule of
 * address space. So a record needs no pointer to its block, and the record of a block has an address of its own (the
 * "bufctl").
 *
 *     top    = (uint64_t *)root.shadow.top;            // top_count entries; 0: nothing was ever allocated there
 *     middle = (uint64_t *)top[p >> top_shift];        // middle_count entries, likewise
 *     leaf   = middle[(p >> middle_shift) % middle_count];
 *     record = leaf + ((p >> granule_shift) % leaf_records) * record_size;
 *
 * The block of a record begins at the granule of the record + (offset << offset_shift). A record is present when `live`
 * is 1. With guards the record stays when the block is freed. Then `live` is 0, root.freed is 1, and stack, thread and
 * time are those of the free. The block is filled with options.freed then. The record goes when a recorded block takes
 * memory of the freed one. (Inside a live block such a record is a leftover.)
 *
 * Where every block is recorded, a granule has 32 bytes. Where samples are recorded, it is larger. If two samples lie
 * close together, one of them has its record some granules before its own.
 *
 * Where all bits of `size` are set, word 1 of the following record holds the requested size. (So large a block also
 * owns the next granule.) That record has `live` 0. `time` is in units of the clock (below). `stack` and `thread` are
 * indexes into `stacks` and `threads`. 0: not known, because the table was full.
 */
struct dmods_audit_shadow {
    uint64_t top;
    uint32_t top_shift, top_count;
    uint32_t middle_shift, middle_count;
    uint32_t granule_shift, leaf_records;
    uint32_t record_size, offset_shift;
    struct dmods_audit_bits live, offset, stack, thread, size, time;
};

/* A table in chunks. It grows at its end and never moves. Entry i is at
 * ((uint64_t *)chunks)[i >> chunk_shift] + (i & ((1 << chunk_shift) - 1)) * entry_size. Entry 0 is never used. */
struct dmods_audit_table {
    uint64_t chunks;
    uint32_t chunk_shift; /* a chunk has 1 << chunk_shift entries */
    uint32_t chunk_count; /* the table has room for so many chunks; 0: that chunk was not made yet */
    uint32_t entry_size, reserved;
    uint64_t count; /* entries 1 to count - 1 are present */
};

/* An entry of `stacks`, which is a tree: the program counter of a frame (a return address, as unwinders give it) and
 * the node of its caller. The stack of a record is its node, the parent of the node, and so on until 0: innermost
 * first, at most options.frames of them. The first is the caller of malloc. (For operator new that is operator new
 * itself.) */
struct dmods_audit_node {
    uint64_t pc;     /* bits 0 to 47; the bits above are enum dmods_audit_node_bit */
    uint32_t parent; /* always smaller than the index of this node */
    uint32_t hash;   /* only for the auditor */
};

enum dmods_audit_node_bit {
    DMODS_AUDIT_NODE_TRUNCATED_BIT = 48, /* only in the outermost node: the stack goes on, but the record does not */
    DMODS_AUDIT_NODE_EXACT_BIT = 49,     /* not a return address, but the instruction that a signal interrupted */
};

/* An entry of `threads`: a thread that allocated or freed, running or exited. After a fork the child adds a new one. */
struct dmods_audit_thread {
    uint32_t tid; /* 0: not present */
    uint32_t pid;
    uint64_t pthread; /* pthread_self() */
    uint64_t time;    /* of its first allocation or free, in units of the clock */
    char name[16];    /* as the kernel knew it at that time */
    uint64_t reserved[3];
};

enum dmods_audit_event {
    DMODS_AUDIT_ALLOCATED = 1,
    DMODS_AUDIT_FREED = 2,
};

/* An entry of `log`: an allocation or a free. A realloc is a FREED and an ALLOCATED. */
struct dmods_audit_transaction {
    uint64_t sequence; /* 0: not present. It is entry number (sequence - 1) % capacity, or it was being overwritten */
    uint64_t address, size;
    uint64_t time;
    uint32_t stack, thread;
    uint32_t event;
    uint32_t contents;   /* of FREED: bytes of the block in the contents log */
    uint64_t alloc_time; /* of FREED: when and by whom the block was allocated; 0: not known */
    uint32_t alloc_stack, alloc_thread;
};

/* A ring of `capacity` entries at `entries`. The next entry gets the sequence `next`; the first had 1. capacity 0:
 * there is no ring. */
struct dmods_audit_ring {
    uint64_t entries;
    uint64_t capacity;
    uint32_t entry_size, reserved;
    uint64_t next;
};

/* The same moment on three clocks: ticks (of clock.kind), and CLOCK_MONOTONIC and CLOCK_REALTIME in ns. */
struct dmods_audit_moment {
    uint64_t ticks, monotonic, realtime;
};

enum dmods_audit_clock_kind {
    DMODS_AUDIT_CLOCK_TICKS = 1,     /* the counter of the processor; two moments give its rate */
    DMODS_AUDIT_CLOCK_MONOTONIC = 2, /* CLOCK_MONOTONIC, ns */
};

/* A time t of a record or transaction means ticks = start.ticks + (t << shift). In ns of CLOCK_MONOTONIC that is, with
 * now = latest[latest_index & 1]:
 * start.monotonic + (t << shift) * (now.monotonic - start.monotonic) / (now.ticks - start.ticks). */
struct dmods_audit_clock {
    uint32_t kind, shift;
    struct dmods_audit_moment start;
    uint64_t latest_index;
    struct dmods_audit_moment latest[2];
};

enum dmods_audit_range_kind {
    DMODS_AUDIT_RANGE_LIBRARY = 1,   /* the library's own data and bss, with the root */
    DMODS_AUDIT_RANGE_RECORDS = 2,   /* shadow */
    DMODS_AUDIT_RANGE_STACKS = 3,    /* stacks and their index */
    DMODS_AUDIT_RANGE_LOG = 4,       /* transactions and contents */
    DMODS_AUDIT_RANGE_OTHER = 5,     /* threads */
    DMODS_AUDIT_RANGE_BOOTSTRAP = 6, /* the program's blocks from before its allocator was found: NOT the auditor's */
};

/* An entry of `ranges`. start 0: not present. */
struct dmods_audit_range {
    uint64_t start, end;
    uint32_t kind, reserved;
};

enum dmods_audit_mapping_kind {
    DMODS_AUDIT_MAPPING_MMAP = 1,
    DMODS_AUDIT_MAPPING_MREMAP = 2,
    DMODS_AUDIT_MAPPING_BRK = 3,
    DMODS_AUDIT_MAPPING_SHMAT = 4,
};

/* An entry of `maps`: address space that the program mapped itself and did not unmap. An entry is split where a part of
 * it was unmapped. Libc's own calls are not recorded, so the range may have been unmapped without the auditor. */
struct dmods_audit_mapping {
    uint64_t start; /* 0: not present */
    uint64_t end;
    uint64_t time;
    uint32_t stack, thread;
    uint32_t kind;
    uint32_t protection; /* PROT_ of the call */
};

struct dmods_audit_array {
    uint64_t entries;
    uint32_t entry_size, reserved;
    uint64_t count;
};

/* options.flags */
enum dmods_audit_flag {
    DMODS_AUDIT_GUARDS = 1,
    DMODS_AUDIT_SAMPLED = 2,
    DMODS_AUDIT_MAPS = 4,
};

/* The options of DMODS_AUDIT as the auditor understood them. */
struct dmods_audit_options {
    char text[256]; /* DMODS_AUDIT, cut to fit, with a NUL at its end */
    uint32_t flags;
    uint32_t frames;
    uint64_t sample; /* mean bytes between samples; 0: every block. A sample stands for 1 / (1 - exp(-size / sample)) */
    uint64_t log;    /* transactions in the ring */
    uint64_t contents; /* bytes kept of each freed block */
    uint32_t redzone;  /* with guards: bytes of redzone_byte behind the requested end of each block */
    uint8_t redzone_byte, reserved[3];
    uint32_t fresh, freed; /* with guards: the words that fill new and freed memory, 0xbaddcafe and 0xdeadbeef */
};

/* What the auditor costs, and what it did not record. */
struct dmods_audit_figures {
    uint64_t bytes_mapped;     /* of address space; only touched pages are resident */
    uint64_t lost_records;     /* blocks without a record, because there was no memory for it */
    uint64_t lost_stacks;      /* records whose stack is 0, because the table was full */
    uint64_t truncated_stacks; /* walks that ended at code without unwind tables (JIT code); a cut is not counted */
    uint64_t unknown_frees;    /* frees of blocks without a record (not counted when sampled) */
    uint64_t forks;            /* the number of forks between the first process and this one */
    uint64_t generations;      /* how often code was unloaded (dlclose) */
    uint64_t reserved[5];
};

struct dmods_audit_root {
    char magic[16];
    uint32_t version;
    uint32_t size; /* of this structure: fields beyond it are not present */
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

    /* Why guards ended the program, or why the auditor stopped: one line, or "". */
    char status[256];
    uint64_t status_address;
    uint32_t status_stack, status_thread;

    struct dmods_audit_bits freed; /* of a record: see dmods_audit_shadow */
    uint32_t reserved;

    /* The auditor's own memory in every thread, beside `ranges`: tls_size bytes from the thread pointer + tls_offset.
     */
    int64_t tls_offset;
    uint64_t tls_size;

    struct dmods_audit_array maps; /* of struct dmods_audit_mapping, in no order; `count` entries, some not present */
    uint64_t lost_maps;            /* mappings without an entry: the table was full, or a signal handler mapped */
};

#endif
