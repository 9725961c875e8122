// 24 containers, each in a global, whose structures have 4, 6, 7 or 8 words, and texts of the same sizes.
// `ledger ELEMENTS STACK HEAP REUSED`: so many elements in each container. STACK words of main() and HEAP words in
// blocks that nobody writes (an unused member, the room behind a text or behind the elements of a vector) have the
// address of a block of another container. REUSED blocks that were full of such addresses are freed when half of the
// elements are there. The rest of the elements takes that memory, and leaves the words that it does not write. The
// program writes "words N", with the words in blocks that are left over, and "NAME ADDRESS SIZE" of each variable to
// the file "truth", and "NAME ADDRESS BYTES" of each block to the file "blocks". Then it dies.
// Its own tables have a mapping that is gone by then. No number is an address: keys are below 16 Mi.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EACH(DO)                                                                                                       \
    DO(jobs)                                                                                                           \
    DO(events)                                                                                                         \
    DO(routes)                                                                                                         \
    DO(users)                                                                                                          \
    DO(orders)                                                                                                         \
    DO(symbols)                                                                                                        \
    DO(branches)                                                                                                       \
    DO(ranges)                                                                                                         \
    DO(people)                                                                                                         \
    DO(pages)                                                                                                          \
    DO(blobs)                                                                                                          \
    DO(handles)                                                                                                        \
    DO(files)                                                                                                          \
    DO(points)                                                                                                         \
    DO(rows)                                                                                                           \
    DO(levels)                                                                                                         \
    DO(words)                                                                                                          \
    DO(prefixes)                                                                                                       \
    DO(sessions)                                                                                                       \
    DO(ring)                                                                                                           \
    DO(atoms)                                                                                                          \
    DO(timers)                                                                                                         \
    DO(graph)                                                                                                          \
    DO(queue)
#define NUMBER(name) OF_##name,
enum { EACH(NUMBER) OWNERS, WORD = sizeof(long), MOST = 4000, PER_ELEMENT = 24 * 8 };

typedef const void *unused; // a member that nobody writes

struct block {
    void *at;
    int owner;
};
struct hole {
    unused *at;
    int owner;
};
static struct block *blocks;
static struct hole *holes;
static struct node **nodes; // of the graph
static void **temporary;
static long elements, block_count, hole_count, node_count, temporary_count;

// -- memory ----------------------------------------------------------------------------------------------------------

static void *mapped(size_t size) {
    return mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *take(int owner, size_t size) {
    void *block = malloc(size);
    blocks[block_count++] = (struct block){block, owner};
    return block;
}

static void *take_table(int owner, size_t size) { return memset(take(owner, size), 0, size); }

static void hole(int owner, unused *at) { holes[hole_count++] = (struct hole){at, owner}; }

static void room(int owner, void *from, void *end) {
    unused *at = (unused *)(((size_t)from + WORD - 1) / WORD * WORD);
    for (; at + 1 <= (unused *)end; at++)
        hole(owner, at);
}

static long chance(long below) { return random() % below; }

// Returns a new text of one of the four sizes. The last words of its block may not be written.
static char *new_text(int owner) {
    static const int words[] = {4, 6, 7, 8};
    int size = words[chance(4)] * WORD, length = size / 2 + chance(size / 2);
    char *text = take(owner, size);
    for (int i = 0; i < length; i++)
        text[i] = 'a' + chance(26);
    text[length] = 0;
    room(owner, text + length + 1, text + size);
    return text;
}

struct value {
    long id;
    unused unused;
    long flags, count;
};

static struct value *new_value(int owner) {
    struct value *made = take(owner, sizeof *made);
    made->id = made->flags = chance(1000);
    made->count = 1;
    hole(owner, &made->unused);
    return made;
}

#define MAKE(name, type)                                                                                               \
    struct type *made = take(OF_##name, sizeof *made);                                                                 \
    hole(OF_##name, &made->unused);                                                                                    \
    hole(OF_##name, &made->unused2)
#define TEXT(name) new_text(OF_##name)
#define VALUE(name) new_value(OF_##name)
#define TABLE(name, table, count)                                                                                      \
    if ((table) == NULL)                                                                                               \
    (table) = take_table(OF_##name, (count) * sizeof *(table))

#include "ledger_lists.h"
#include "ledger_trees.h"

// -- what is left over, and the truth --------------------------------------------------------------------------------

static const struct {
    const char *name;
    void *at;
    size_t size;
    void (*add)(long);
} containers[] = {
#define CONTAINER(name) {#name, &name, sizeof name, add_##name},
    EACH(CONTAINER)};

// Returns a block of any container but this one.
static void *any_but(int owner) {
    for (;;) {
        struct block *block = &blocks[chance(block_count)];
        if (block->owner != owner)
            return block->at;
    }
}

static __attribute__((noinline)) void fill(long from, long to) {
    for (long i = from; i < to; i++)
        for (int owner = 0; owner < OWNERS; owner++)
            containers[owner].add(i);
}

static __attribute__((noinline)) void use_and_free(long count) {
    static const int words[] = {4, 6, 7, 8};
    for (; temporary_count < count; temporary_count++) {
        int size = words[chance(4)];
        void **made = temporary[temporary_count] = malloc(size * WORD);
        for (int i = 0; i < size; i++)
            made[i] = any_but(OWNERS);
    }
    for (; temporary_count > 0; temporary_count--) {
        long at = chance(temporary_count);
        free(temporary[at]);
        temporary[at] = temporary[temporary_count - 1];
    }
}

static __attribute__((noinline)) void plant(const void *volatile *stack, long stack_count, long heap_count) {
    for (long i = 0; i < heap_count; i++) {
        struct hole *to = &holes[chance(hole_count)];
        *to->at = any_but(to->owner);
    }
    for (long i = 0; i < stack_count; i++)
        stack[i] = any_but(OWNERS);
}

static __attribute__((noinline)) void tell(void) {
    long left = 0;
    for (long i = 0; i < hole_count; i++)
        left += *holes[i].at != NULL;
    FILE *file = fopen("truth", "w");
    fprintf(file, "words %ld\n", left);
    for (int owner = 0; owner < OWNERS; owner++)
        fprintf(file, "%s %#zx %zu\n", containers[owner].name, (size_t)containers[owner].at, containers[owner].size);
    fclose(file);
    file = fopen("blocks", "w");
    for (long i = 0; i < block_count; i++) {
        const struct block *block = &blocks[i];
        fprintf(file, "%s %#zx %zu\n", containers[block->owner].name, (size_t)block->at, malloc_usable_size(block->at));
    }
    fclose(file);
}

int main(int argc, char **argv) {
    const void *volatile stack[MOST] = {0};
    long given[4] = {0};
    for (int i = 1; i < argc && i <= 4; i++)
        given[i - 1] = atol(argv[i]);
    elements = given[0];
    size_t sizes[] = {elements * PER_ELEMENT * sizeof *blocks, 2 * elements * PER_ELEMENT * sizeof *holes,
                      elements * sizeof(void *), given[3] * sizeof(void *)};
    blocks = mapped(sizes[0]);
    holes = mapped(sizes[1]);
    nodes = mapped(sizes[2]);
    temporary = mapped(sizes[3]);
    fill(0, elements / 2);
    use_and_free(given[3]);
    fill(elements / 2, elements);
    plant(stack, given[1] < MOST ? given[1] : MOST, given[2]);
    tell();
    void *mine[] = {blocks, holes, nodes, temporary};
    for (int i = 0; i < 4; i++)
        munmap(mine[i], sizes[i] + 1);
    abort();
    return stack[0] != NULL;
}
