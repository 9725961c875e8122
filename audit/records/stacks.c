#include "stacks.h"
#include "../memory.h"

#include <sys/mman.h>

#define CHUNK_SHIFT 14
#define NODE_SHIFT 24 /* 16 million nodes, 256 MB, and an index of as much */
#define CHUNKS (1u << (NODE_SHIFT - CHUNK_SHIFT))
#define FIRST_SHIFT 14
#define TAG_MASK ((1ull << 36) - 1)

struct index {
    uint64_t shift;             /* 1 << shift entries */
    _Atomic uint64_t entries[]; /* tag << 28 | node; 0: free */
};

_Static_assert(NODE_SHIFT <= STACK_NUMBER_BITS, "a record can name every node");

/* The weight is 2^64 / the golden ratio. It is odd, so it has an inverse modulo 2^64. */
#define WEIGHT 0x9e3779b97f4a7c15
#define INVERSE 0xf1de83e19937733d
_Static_assert(WEIGHT *INVERSE == 1, "inverse of each other");

uint64_t stacks_weights[CACHED_FRAMES], stacks_inverses[CACHED_FRAMES];
static uint64_t chunks[CHUNKS];
static _Atomic(struct index *) current;
static _Atomic bool full;

static struct index *make_index(uint64_t shift) {
    struct index *made = own_memory(sizeof(struct index) + (sizeof(uint64_t) << shift), DMODS_AUDIT_RANGE_STACKS);
    if (made != NULL)
        made->shift = shift;
    return made;
}

bool stacks_start(void) {
    stacks_weights[0] = stacks_inverses[0] = 1;
    for (int i = 1; i < CACHED_FRAMES; i++) {
        stacks_weights[i] = stacks_weights[i - 1] * WEIGHT;
        stacks_inverses[i] = stacks_inverses[i - 1] * INVERSE;
    }
    root.stacks = (struct dmods_audit_table){.chunks = (uintptr_t)chunks,
                                             .chunk_shift = CHUNK_SHIFT,
                                             .chunk_count = CHUNKS,
                                             .entry_size = sizeof(struct dmods_audit_node),
                                             .count = 1};
    struct index *first = make_index(FIRST_SHIFT);
    atomic_store(&current, first);
    return first != NULL;
}

static struct dmods_audit_node *node_at(uint32_t node) {
    return (struct dmods_audit_node *)chunks[node >> CHUNK_SHIFT] + (node & ((1u << CHUNK_SHIFT) - 1));
}

/* Return where the search for a hash begins. */
static uint64_t first_place(const struct index *index, uint64_t hash) { return hash >> (64 - index->shift); }

static uint32_t find(struct index *index, uint64_t hash) {
    uint64_t mask = (1ull << index->shift) - 1, tag = hash & TAG_MASK;
    for (uint64_t at = first_place(index, hash);; at++) {
        uint64_t entry = atomic_load_explicit(&index->entries[at & mask], memory_order_acquire);
        if (entry == 0)
            return 0;
        if (entry >> 28 == tag)
            return (uint32_t)(entry & ((1u << 28) - 1));
    }
}

static void fill(struct index *index, uint64_t upper, uint64_t entry) {
    uint64_t mask = (1ull << index->shift) - 1, at = first_place(index, upper);
    while (atomic_load_explicit(&index->entries[at & mask], memory_order_relaxed) != 0)
        at++;
    atomic_store_explicit(&index->entries[at & mask], entry, memory_order_release);
}

/* The old index stays mapped, because another thread may be reading it. Its memory is given back, so it reads as empty.
 * A thread that does not find its stack there looks again under the lock. */
static void grow(void) {
    struct index *old = atomic_load(&current);
    struct index *larger = old->shift < NODE_SHIFT + 1 ? make_index(old->shift + 1) : NULL;
    if (larger == NULL) {
        atomic_store(&full, true);
        return;
    }
    for (uint64_t i = 0; i < 1ull << old->shift; i++) {
        uint64_t entry = atomic_load_explicit(&old->entries[i], memory_order_relaxed);
        if (entry != 0)
            fill(larger, (uint64_t)node_at((uint32_t)(entry & ((1u << 28) - 1)))->hash << 32, entry);
    }
    atomic_store_explicit(&current, larger, memory_order_release);
    uintptr_t from = ((uintptr_t)old + 4096) & ~(uintptr_t)4095;
    madvise((void *)from, (uintptr_t)&old->entries[1ull << old->shift] - from, MADV_DONTNEED);
}

static uint32_t append(uint64_t pc, uint32_t parent, uint64_t hash) {
    uint64_t count = root.stacks.count;
    struct dmods_audit_node *node = NULL;
    if (count < 1u << NODE_SHIFT && !atomic_load(&full))
        node = table_entry(&root.stacks, count, DMODS_AUDIT_RANGE_STACKS);
    if (node == NULL) {
        atomic_store(&full, true);
        return 0;
    }
    *node = (struct dmods_audit_node){.pc = pc, .parent = parent, .hash = (uint32_t)(hash >> 32)};
    __atomic_store_n(&root.stacks.count, count + 1, __ATOMIC_RELEASE);
    if (2 * count > 1ull << atomic_load(&current)->shift)
        grow();
    if (atomic_load(&full))
        return 0;
    fill(atomic_load(&current), hash, (hash & TAG_MASK) << 28 | (uint32_t)count);
    return (uint32_t)count;
}

/* What a cut adds to the hash of a stack. The flag of the key would change only bit 48, which is not in the tag. */
#define CUT_HASH 0xd6e8feb86659fd93

static COLD uint32_t add(const struct frame *innermost, int count, bool cut) {
    uint32_t node = 0;
    uint64_t hash = cut ? CUT_HASH : 0, flag = cut ? 1ull << DMODS_AUDIT_NODE_TRUNCATED_BIT : 0;
    lock(&stacks_lock);
    for (int i = count - 1; i >= 0; i--) {
        uint64_t key = frame_key(&innermost[i]);
        hash += key * stacks_weights[count - 1 - i];
        uint32_t found = find(atomic_load(&current), hash);
        if (found == 0)
            found = append(key | flag, node, hash);
        flag = 0;
        node = found;
        if (node == 0)
            break;
    }
    unlock(&stacks_lock);
    if (node == 0)
        __atomic_fetch_add(&root.figures.lost_stacks, 1, __ATOMIC_RELAXED);
    return node;
}

uint32_t stacks_intern(const struct frame *innermost, int count, uint64_t hash, bool cut) {
    if (count == 0)
        return 0;
    uint32_t node = find(atomic_load_explicit(&current, memory_order_acquire), hash + (cut ? CUT_HASH : 0));
    return likely(node != 0) ? node : add(innermost, count, cut);
}
