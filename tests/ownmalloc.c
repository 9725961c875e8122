/*
 * A malloc of the program's own, or of a library, in ways that programs have; and the program that leaks.
 *
 * OWN: define malloc() and its family here. OVER_MMAP: its memory is mapped. OVER_LIBC: its memory is blocks of
 * __libc_malloc(). MIXED: like OVER_LIBC, and large blocks are passed on. TRACE: each call is passed on to the next
 * malloc() and counted. TRACE_LIBC: to __libc_malloc(). PROGRAM: main(), which leaks 500 blocks and keeps 100.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined OWN || defined TRACE || defined TRACE_LIBC
extern void *__libc_malloc(size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
#endif

#ifdef OWN
enum { POOL = 1 << 16, LARGE = 1024 };
static char *at, *end;

void *malloc(size_t size) {
    size = (size + 31) & ~(size_t)15; /* 16 bytes before each block for its size */
#ifdef MIXED
    if (size > LARGE)
        return __libc_malloc(size);
#endif
    if (size > (size_t)(end - at)) {
        size_t most = size > POOL ? size : POOL;
#ifdef OVER_MMAP
        at = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#else
        at = __libc_malloc(most);
#endif
        end = at + most;
    }
    char *p = at;
    at += size;
    *(size_t *)p = size - 16;
    return p + 16;
}

void free(void *p) { (void)p; }

void *calloc(size_t n, size_t size) {
    void *p = malloc(n * size);
    return p ? memset(p, 0, n * size) : p;
}

void *realloc(void *old, size_t size) {
    char *p = malloc(size);
    if (old)
        for (size_t i = 0, most = ((size_t *)old)[-2]; i < size && i < most; i++)
            p[i] = ((char *)old)[i];
    return p;
}
#endif

#if defined TRACE || defined TRACE_LIBC
static unsigned long calls;
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);

void *malloc(size_t size) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
#ifdef TRACE
    if (!next_malloc)
        next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    return next_malloc(size);
#else
    return __libc_malloc(size);
#endif
}

void free(void *p) {
    __atomic_fetch_sub(&calls, 1, __ATOMIC_RELAXED);
#ifdef TRACE
    if (!next_free)
        next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_free(p);
#else
    __libc_free(p);
#endif
}
#endif

#ifdef PROGRAM
static void *volatile kept[100];

static __attribute__((noinline)) void leak(void) {
    for (int i = 0; i < 500; i++) {
        size_t size = i % 2 ? 40 + i % 7 * 16 : 2000;
        memset(malloc(size), 0, size);
    }
}

int main(void) {
    for (int i = 0; i < 100; i++)
        kept[i] = memset(malloc(64), 0, 64);
    leak();
    memset(malloc(48), 0, 48); /* so that no register holds the last one that is counted */
    kept[0] = memset(malloc(64), 0, 64);
    abort();
}
#endif
