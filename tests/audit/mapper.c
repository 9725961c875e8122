/* A program that maps memory in every way and keeps books: mapper TOLD. It writes "START END FUNCTION CALL" for each
 * range that it still has, and then aborts. Two threads and a garbage collector, as in cc1plus, map as well. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define PAGE 4096ul
#define MOST 20000
#define NOINLINE __attribute__((noinline, noclone))

struct range {
    uintptr_t start, end;
    const char *function, *call;
};
static struct range ranges[MOST];
static int count;
static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

static void drop(uintptr_t start, uintptr_t end) {
    for (int i = count - 1; i >= 0; i--) {
        struct range now = ranges[i];
        if (now.start >= end || now.end <= start)
            continue;
        ranges[i] = ranges[--count];
        if (now.start < start)
            ranges[count++] = (struct range){now.start, start, now.function, now.call};
        if (now.end > end)
            ranges[count++] = (struct range){end, now.end, now.function, now.call};
    }
}

static void *keep(void *p, size_t size, const char *function, const char *call) {
    if (p == MAP_FAILED || p == NULL)
        abort();
    size = (size + PAGE - 1) & ~(PAGE - 1);
    pthread_mutex_lock(&books);
    drop((uintptr_t)p, (uintptr_t)p + size);
    ranges[count++] = (struct range){(uintptr_t)p, (uintptr_t)p + size, function, call};
    pthread_mutex_unlock(&books);
    return p;
}

static void forget(void *p, size_t size) {
    pthread_mutex_lock(&books);
    drop((uintptr_t)p, (uintptr_t)p + ((size + PAGE - 1) & ~(PAGE - 1)));
    pthread_mutex_unlock(&books);
}

NOINLINE static void *map_anonymous(size_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return keep(p, size, __func__, "mmap");
}

NOINLINE static void *map_fixed(void *at, size_t size) {
    void *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return keep(p, size, __func__, "mmap");
}

NOINLINE static void *map_file(const char *path, size_t size) {
    int fd = open(path, O_RDONLY);
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return keep(p, size, __func__, "mmap");
}

NOINLINE static void *grow(void *p, size_t from, size_t to) {
    forget(p, from);
    return keep(mremap(p, from, to, MREMAP_MAYMOVE), to, __func__, "mremap");
}

NOINLINE static void unmap(void *p, size_t size) {
    forget(p, size);
    if (munmap(p, size) != 0)
        abort();
}

NOINLINE static void *move_break(intptr_t by) {
    void *p = sbrk(by);
    if (p == (void *)-1)
        abort();
    return p;
}

NOINLINE static void *attach(size_t size) {
    int id = shmget(IPC_PRIVATE, size, 0600);
    void *p = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    return keep(p, size, __func__, "shmat");
}

/* A collector that takes whole quanta from the kernel and gives half of them back. */
NOINLINE static void *alloc_quantum(void) {
    return keep(mmap(NULL, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 256 * PAGE,
                __func__, "mmap");
}

static void *quanta[200];
NOINLINE static void parse(void) {
    for (int i = 0; i < 120; i++)
        quanta[i] = alloc_quantum();
}
NOINLINE static void optimise(void) {
    for (int i = 120; i < 200; i++)
        quanta[i] = alloc_quantum();
    for (int i = 0; i < 200; i += 2)
        unmap(quanta[i], 256 * PAGE);
}

static void *work(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    void *own[64] = {0};
    size_t sizes[64] = {0};
    bool mended[64] = {false}; /* mremap takes no two mappings */
    for (int i = 0; i < 3000; i++) {
        unsigned at = rand_r(&random) % 64, pages = 1 + rand_r(&random) % 40;
        if (own[at] == NULL) {
            own[at] = map_anonymous(pages * PAGE - rand_r(&random) % 100);
            sizes[at] = pages;
            mended[at] = false;
        } else if (rand_r(&random) % 4 == 0 && !mended[at]) {
            own[at] = grow(own[at], sizes[at] * PAGE, (sizes[at] + pages) * PAGE);
            sizes[at] += pages;
        } else if (rand_r(&random) % 4 == 0 && sizes[at] > 3) {
            map_fixed((char *)own[at] + PAGE, PAGE); /* in the middle */
            mended[at] = true;
        } else {
            unmap(own[at], sizes[at] * PAGE);
            own[at] = NULL;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 1;
    pthread_t threads[2];
    char *large = map_anonymous(62ul << 20);
    memset(large, 1, 1 << 20);
    unmap(large + (1 << 20), 3 * PAGE); /* a hole */
    map_file("/proc/self/exe", 2 * PAGE);
    attach(5 * PAGE);
    void *segment = attach(7 * PAGE);
    forget(segment, 7 * PAGE);
    shmdt(segment);
    if (munmap((void *)(uintptr_t)(1 + PAGE), PAGE) == 0 || munmap(large, 0) == 0)
        abort(); /* calls that fail change nothing */
    if (mremap(large, PAGE, ~0ul / 2, MREMAP_MAYMOVE) != MAP_FAILED)
        abort();
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    parse();
    optimise();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    uintptr_t end = (uintptr_t)move_break(0), aligned = (end + PAGE - 1) & ~(PAGE - 1);
    move_break((intptr_t)(aligned - end));
    for (int i = 0; i < 20; i++)
        move_break(3 * PAGE);
    move_break(-(intptr_t)(5 * PAGE));
    keep((void *)aligned, 55 * PAGE, "move_break", "brk");
    FILE *told = fopen(argv[1], "w");
    for (int i = 0; i < count; i++)
        fprintf(told, "%lx %lx %s %s\n", ranges[i].start, ranges[i].end, ranges[i].function, ranges[i].call);
    fclose(told);
    abort();
}
