/*
 * Allocate in every way that C has, on threads that start and exit and in forked children. Keep a list of all blocks in
 * mapped memory, so that the list itself is not in a block. At the end write the list to FILE and wait.
 *
 *     ledger FILE THREADS STEPS FORKS
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 500
#define MOST_THREADS 64

struct entry {
    void *p;
    size_t size;
    unsigned tid, way, depth;
    uint64_t before, after; /* CLOCK_MONOTONIC */
};
static struct entry (*books)[SLOTS];
static int steps;

#define FRAME __attribute__((noinline, noclone))
#define WAYS 9

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The only function that allocates. Every block with this function in its stack is in the books. */
FRAME static void *site(struct entry *entry, unsigned way, size_t size) {
    void *p = NULL;
    int failed = 0;
    switch (way) {
    case 0:
        p = malloc(size);
        break;
    case 1:
        p = calloc(1, size);
        break;
    case 2:
        p = realloc(entry->p, size);
        break;
    case 3:
        p = reallocarray(entry->p, 1, size);
        break;
    case 4:
        p = memalign(256, size);
        break;
    case 5:
        p = aligned_alloc(64, size);
        break;
    case 6:
        failed = posix_memalign(&p, 4096, size);
        break;
    case 7:
        p = valloc(size);
        break;
    case 8:
        p = pvalloc(size);
        break;
    }
    if (p == NULL || failed || malloc_usable_size(p) < size)
        abort();
    memset(p, (int)way, size);
    return p;
}

FRAME static void *descend(unsigned depth, struct entry *entry, unsigned way, size_t size) {
    void *p = depth == 0 ? site(entry, way, size) : descend(depth - 1, entry, way, size);
    __asm__ volatile("" ::: "memory");
    return p;
}

FRAME static void step(struct entry *entry, uint64_t random) {
    unsigned way = random % WAYS, depth = random / WAYS % 12;
    size_t size = random >> 20 & 0x3ff;
    if (random >> 40 & 15)
        size = size % 200;
    if ((random >> 44 & 255) == 0)
        size = size * 1024;       /* up to 1 MB: mapped, and too large for the size field of a record */
    size += way == 2 || way == 3; /* realloc to 0 frees */
    if (way != 2 && way != 3) {
        free(entry->p);
        entry->p = NULL;
    }
    if (way == 8)
        size = (size + 4095) & ~4095ul;
    if ((way != 2 && way != 3) && (random >> 52) % 3 == 0)
        return;
    entry->before = now();
    entry->p = descend(depth, entry, way, size);
    entry->after = now();
    entry->size = size;
    entry->tid = (unsigned)syscall(SYS_gettid);
    entry->way = way;
    entry->depth = depth;
}

static void *worker(void *own) {
    struct entry *entries = own;
    uint64_t random = 88172645463325252ull ^ (uint64_t)(uintptr_t)own ^ (uint64_t)getpid() << 32;
    for (int i = 0; i < steps; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        step(&entries[(random >> 8) % SLOTS], random);
    }
    return NULL;
}

static void in_threads(int count) {
    pthread_t threads[MOST_THREADS];
    for (int round = 0; round < 3; round++) { /* the next thread continues the books of the last one */
        for (int i = 0; i < count; i++)
            if (pthread_create(&threads[i], NULL, worker, books[i]) != 0)
                abort();
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    }
}

/* Fork while other threads allocate. The last child continues alone, and the program continues in it. */
static void storm(int forks, int count) {
    pthread_t threads[MOST_THREADS];
    for (int i = 1; i < count; i++)
        pthread_create(&threads[i], NULL, worker, books[i]);
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child == 0) {
            worker(books[0]);
            if (i == forks - 1)
                return;
            _exit(0);
        }
        if (i < forks - 1) {
            int status;
            waitpid(child, &status, 0);
            if (status != 0)
                abort();
            continue;
        }
        for (int j = 1; j < count; j++)
            pthread_join(threads[j], NULL);
        pause();
        _exit(0);
    }
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int count = atoi(argv[2]), forks = atoi(argv[4]);
    steps = atoi(argv[3]);
    books = mmap(NULL, sizeof *books * MOST_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    in_threads(count);
    if (forks > 0)
        storm(forks, count);
    FILE *file = fopen(argv[1], "w");
    fprintf(file, "%d %#lx %#lx\n", getpid(), (unsigned long)(uintptr_t)site, (unsigned long)(uintptr_t)descend);
    /* In a forked child only its own books are whole: other threads may have been writing theirs at the fork. */
    for (int i = 0; i < (forks > 0 ? 1 : count); i++)
        for (int j = 0; j < SLOTS; j++)
            if (books[i][j].p != NULL)
                fprintf(file, "%#lx %zu %u %u %u %lu %lu\n", (unsigned long)(uintptr_t)books[i][j].p, books[i][j].size,
                        books[i][j].tid, books[i][j].way, books[i][j].depth, (unsigned long)books[i][j].before,
                        (unsigned long)books[i][j].after);
    fprintf(file, "end\n");
    fflush(file);
    pause();
    return 0;
}
