/*
 * A program with a malloc() of its own that dmods does not know: blocks one behind the other, each behind a header.
 *
 * A freed block goes onto one list and is never merged; malloc() takes the first that fits exactly. The program says
 * where its blocks are, and dies. Arguments: how many blocks to keep, and how many to leak; "overrun" writes beyond one.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION_MAGIC 0x31504D5542ull /* "BUMP1" */
#define BLOCK_MAGIC 0x4B4C4221u      /* "!BLK" */

enum { REGION = 1 << 18, LIVE = 1, FREED = 2 };

struct region {
    uint64_t magic;
    struct region *next;
    char *top; /* where the next block will be */
    char *end;
};

struct header {
    uint32_t magic, state;
    uint64_t size;
};

static struct {
    struct region *regions;
    void *freed; /* linked by their first words */
    uint64_t live_bytes;
} bump;

void *malloc(size_t size) {
    size = (size + 15) / 16 * 16 + (size == 0) * 16;
    for (void **link = &bump.freed; *link; link = *link) {
        struct header *head = (struct header *)*link - 1;
        if (head->size == size) {
            void *found = *link;
            *link = *(void **)found;
            head->state = LIVE;
            bump.live_bytes += size;
            return found;
        }
    }
    struct region *region = bump.regions;
    size_t needed = size + sizeof(struct header);
    if (!region || needed > (size_t)(region->end - region->top)) {
        size_t most = needed + sizeof *region > REGION ? needed + sizeof *region : REGION;
        most = (most + 4095) / 4096 * 4096;
        region = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (region == MAP_FAILED)
            return NULL;
        *region = (struct region){REGION_MAGIC, bump.regions, (char *)(region + 1), (char *)region + most};
        bump.regions = region;
    }
    struct header *head = (struct header *)region->top;
    region->top += needed;
    *head = (struct header){BLOCK_MAGIC, LIVE, size};
    bump.live_bytes += size;
    return head + 1;
}

void free(void *block) {
    if (!block)
        return;
    struct header *head = (struct header *)block - 1;
    head->state = FREED;
    bump.live_bytes -= head->size;
    *(void **)block = bump.freed;
    bump.freed = block;
}

void *calloc(size_t n, size_t size) {
    void *block = malloc(n * size);
    return block ? memset(block, 0, n * size) : NULL;
}

void *realloc(void *old, size_t size) {
    char *block = malloc(size);
    uint64_t had = old ? ((struct header *)old - 1)->size : 0;
    for (size_t i = 0; block && i < size && i < had; i++)
        block[i] = ((char *)old)[i];
    free(old);
    return block;
}

struct customer {
    struct customer *next;
    char name[40];
};

static struct customer *customers;

static __attribute__((noinline)) void keep(int count) {
    for (int i = 0; i < count; i++) {
        struct customer *one = malloc(sizeof *one);
        snprintf(one->name, sizeof one->name, "customer %d", i);
        one->next = customers;
        customers = one;
        printf("kept %p\n", (void *)one);
    }
}

static __attribute__((noinline)) void leak(int count) {
    for (int i = 0; i < count; i++) {
        void **direct = malloc(96);
        memset(direct, 0, 96);
        printf("direct %p\n", (void *)direct);
        direct[3] = memset(malloc(208), 0, 208);
        printf("indirect %p\n", direct[3]);
    }
}

static __attribute__((noinline)) void drop(int count) {
    void *blocks[count];
    for (int i = 0; i < count; i++)
        blocks[i] = memset(malloc(320), 0, 320);
    for (int i = 0; i < count; i++) {
        printf("freed %p\n", blocks[i]);
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

int main(int argc, char **argv) {
    keep(argc > 1 ? atoi(argv[1]) : 0);
    drop(20);
    leak(argc > 2 ? atoi(argv[2]) : 0);
    keep(1); /* so that no register holds what leaked last */
    printf("live %ju\n", (uintmax_t)bump.live_bytes);
    if (argc > 3 && strcmp(argv[3], "overrun") == 0) {
        char *victim = malloc(64);
        char *behind = malloc(64);
        memset(victim, 'x', 72);
        printf("overrun %p %p\n", (void *)victim, (void *)behind);
    }
    fflush(stdout);
    abort();
}
