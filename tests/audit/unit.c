/* The auditor without its hooks, under the sanitizers. Threads work on the same tables, and every result is taken. */
#include "../../audit/clock.h"
#include "../../audit/records/log.h"
#include "../../audit/records/samples.h"
#include "../../audit/records/shadow.h"
#include "../../audit/records/stacks.h"
#include "../../audit/threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ends.c replaces functions that the sanitizer replaces. */
void ends_start(void);
void ends_start(void) {}

#define THREADS 4
#define STACKS 3000
#define ROUNDS 5000

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint32_t nodes[THREADS][STACKS];

/* Every fifth stack is cut at the frame limit. */
static bool is_cut(unsigned n) { return n % 5 == 0; }

/* Stack number n: its frames share their outer parts with those of other stacks. */
static int make_stack(unsigned n, struct frame *frames, uint64_t *hash) {
    int count = 1 + (int)(n % 13);
    *hash = 0;
    for (int i = count - 1, outer = 0; i >= 0; i--, outer++) {
        frames[i] = (struct frame){.pc = 0x400000 + 16 * (n / (unsigned)(1 << (i % 8))) + (unsigned)i};
        *hash += frames[i].pc * stacks_weights[outer];
    }
    return count;
}

static const struct dmods_audit_node *node_at(uint32_t node) {
    uint64_t chunk = ((const uint64_t *)root.stacks.chunks)[node >> root.stacks.chunk_shift];
    return (const struct dmods_audit_node *)chunk + (node & ((1u << root.stacks.chunk_shift) - 1));
}

static void stacks_of(unsigned me) {
    for (unsigned i = 0; i < STACKS; i++) {
        unsigned n = (i * 7 + me * 1000) % STACKS;
        struct frame frames[MAX_FRAMES];
        uint64_t hash;
        int count = make_stack(n, frames, &hash);
        nodes[me][n] = stacks_intern(frames, count, hash, is_cut(n));
    }
}

static void blocks_of(unsigned me) {
    uintptr_t base = 0x100000000 + me * 0x10000000ull;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uintptr_t address = base + i % 1000 * 65536 + 16;
        size_t size = i % 3 ? i : i + 1000000;
        shadow_put(address, size, i, me + 1, i);
        struct taken_record taken = shadow_take(address);
        CHECK(taken.record != NULL && taken.size == size && taken.time == i);
        CHECK(record_stack(taken.word) == i && record_thread(taken.word) == me + 1);
        CHECK(shadow_take(address).record == NULL);
        shadow_put_back(&taken);
        CHECK(shadow_take(address).record != NULL);
        CHECK(shadow_take(address + 8).record == NULL);
    }
}

static void samples_of(unsigned me) {
    struct taken_sample taken;
    uintptr_t base = 0x700000010000 + me * 64;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uintptr_t address = base + i % 50 * 4096;
        samples_put(address, i, i + 1, me + 1, i);
        CHECK(samples_may_have(address) && samples_take(address, &taken));
        CHECK(taken.size == i && taken.time == i + 1 && taken.thread == me + 1 && taken.stack == i);
        CHECK(!samples_take(address, &taken));
    }
}

static void log_of(unsigned me) {
    char text[100];
    memset(text, (int)me, sizeof text);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct dmods_audit_transaction event = {
            .address = i, .size = i % 100, .thread = me, .event = DMODS_AUDIT_FREED};
        log_event(&event, text);
    }
}

static void *work(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    struct thread *thread = thread_self();
    CHECK(thread->index != 0);
    stacks_of(me);
    (root.options.flags & DMODS_AUDIT_SAMPLED ? samples_of : blocks_of)(me);
    if (settings.log)
        log_of(me);
    for (int i = 0; i < 1000; i++)
        clock_now();
    return NULL;
}

/* Only the outermost frame of a cut stack is marked. */
static uint64_t expected_pc(unsigned n, int count, int i, const struct frame *frames) {
    return frames[i].pc | (is_cut(n) && i == count - 1 ? 1ull << DMODS_AUDIT_NODE_TRUNCATED_BIT : 0);
}

static void look_at_stacks(void) {
    for (unsigned n = 0; n < STACKS; n++) {
        struct frame frames[MAX_FRAMES];
        uint64_t hash;
        int count = make_stack(n, frames, &hash);
        uint32_t node = nodes[0][n];
        for (unsigned t = 1; t < THREADS; t++)
            CHECK(nodes[t][n] == node);
        for (int i = 0; i < count; i++, node = node_at(node)->parent)
            CHECK(node_at(node)->pc == expected_pc(n, count, i, frames) && node_at(node)->parent < node);
        CHECK(node == 0);
    }
}

static void look_at_log(void) {
    const struct dmods_audit_transaction *entries = (const void *)root.log.entries;
    CHECK(root.log.next == THREADS * ROUNDS + 1);
    for (unsigned i = 0; i < THREADS * ROUNDS; i++) {
        const char *contents = (const char *)root.contents.entries + (size_t)i * root.contents.entry_size;
        CHECK(entries[i].sequence == i + 1);
        CHECK(entries[i].contents == (entries[i].size < 32 ? entries[i].size : 32));
        for (unsigned j = 0; j < entries[i].contents; j++)
            CHECK(contents[j] == (char)entries[i].thread);
    }
}

static void look_at_ranges(void) {
    const struct dmods_audit_range *ranges = (const void *)root.ranges.entries;
    for (uint64_t i = 0; i < root.ranges.count; i++)
        for (uint64_t j = 0; j < i; j++)
            CHECK(ranges[i].end <= ranges[j].start || ranges[j].end <= ranges[i].start);
}

int main(void) {
    CHECK(root.state == DMODS_AUDIT_RECORDING);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    look_at_stacks();
    look_at_ranges();
    if (settings.log)
        look_at_log();
    CHECK(root.figures.lost_records == 0 && root.figures.lost_stacks == 0);
    return 0;
}
