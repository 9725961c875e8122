// A process with memory that it has mapped and not touched: 48 MB of a block, 64 MB of a mapping, the stacks of threads.
// With "wait" it says that it is ready, and waits. Without, it copies its smaps to a file and aborts.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 4000, SIZE = 1000, FREED = 1000, LEAKED = 500, THREADS = 8, MAPPED = 64 << 20, TOUCHED = 5 << 20 };

char *kept[BLOCKS];
char *mostly_empty, *sparse, *freed_later;

static void *wait_forever(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}

static char *filled(size_t size) {
    char *block = malloc(size);
    memset(block, 'x', size);
    return block;
}

__attribute__((noinline)) static void fill(void) {
    for (int i = 0; i < BLOCKS; i++) kept[i] = filled(SIZE);
    for (int i = 0; i < FREED; i++) {
        free(kept[4 * i]);
        kept[4 * i] = NULL;
    }
    for (int i = 0; i < LEAKED; i++) kept[4 * i + 1] = NULL;
    mostly_empty = calloc(1, 50 << 20);
    memset(mostly_empty, 'y', 2 << 20);
    sparse = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(sparse + (20 << 20), 'z', TOUCHED);
}

// What is left of pointers on the stack.
__attribute__((noinline)) static void wipe(void) {
    volatile char room[16384];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
}

static void copy_smaps(void) {
    FILE *from = fopen("/proc/self/smaps", "r"), *to = fopen("smaps", "w");
    static char buffer[1 << 16];
    for (size_t size; (size = fread(buffer, 1, sizeof buffer, from)) > 0;) fwrite(buffer, 1, size, to);
    fclose(to);
}

int main(int argc, char **argv) {
    (void)argv;
    fill();
    wipe();
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_forever, NULL);
    }
    usleep(200000);
    if (argc > 1) {
        puts("ready");
        fflush(stdout);
        wait_forever(NULL);
    }
    copy_smaps();
    abort();
}
