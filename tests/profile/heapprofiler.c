/* Allocates and frees under gperftools' heap profiler (HEAPPROFILE), asks for its own dump, and dies. */
#include <stdlib.h>
#include <string.h>

void HeapProfilerDump(const char *reason);

enum { MOST = 4096, DEPTH = 20 };
static void *volatile held[MOST];
static volatile int count;
static volatile int sink; /* changes after each call, so that every caller stays on the stack */

static void keep(void *p) {
    held[count] = p;
    count = count + 1;
}

__attribute__((noinline)) static void leaf(size_t size) {
    void *p = malloc(size);
    memset(p, 1, size);
    keep(p);
    sink++;
}

__attribute__((noinline)) static void other(size_t size) {
    keep(calloc(1, size));
    sink++;
}

__attribute__((noinline)) static void descend(int depth) {
    keep(malloc(100 + (size_t)depth));
    if (depth > 0)
        descend(depth - 1);
    sink++;
}

__attribute__((noinline)) static void frees(void) {
    for (int i = 0; i < 10; i++) {
        void *volatile p = malloc(5000);
        memset(p, 1, 10);
        free(p);
    }
    sink++;
}

int main(void) {
    for (size_t i = 0; i < 50; i++)
        leaf(64 + i % 5);
    for (int i = 0; i < 20; i++)
        other(3000);
    descend(DEPTH);
    frees();
    HeapProfilerDump("the end");
    abort();
}
