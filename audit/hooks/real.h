/* The real allocator, which the hooks call: glibc's malloc, or the one that the program links or preloads. */
#ifndef DMODS_REAL_H
#define DMODS_REAL_H

#include "../audit.h"

#include <sys/types.h>

struct real_allocator {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
    /* libc's, or those of a library that wraps them (tcmalloc) */
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    int (*brk)(void *);
    void *(*sbrk)(intptr_t);
};
extern struct real_allocator real;

/* Find the functions of the real allocator, and the smallest block to request from it. */
void real_find(void);

#endif
