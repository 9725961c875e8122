#include "real.h"
#include "../records/shadow.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

struct real_allocator real;

void real_find(void) {
#define FIND(name) real.name = (__typeof__(real.name))dlsym(RTLD_NEXT, #name)
    FIND(malloc);
    FIND(free);
    FIND(calloc);
    FIND(realloc);
    FIND(memalign);
    FIND(aligned_alloc);
    FIND(posix_memalign);
    FIND(valloc);
    FIND(pvalloc);
    FIND(malloc_usable_size);
    FIND(mmap);
    FIND(munmap);
    FIND(brk);
    FIND(sbrk);
#undef FIND
    /* glibc never gives a block of less than 32 bytes (MIN_CHUNK_SIZE). Another allocator is asked for as much. The
     * names of functions do not tell them apart: tcmalloc has a __libc_malloc too. */
    Dl_info libc, allocator;
    bool glibc = dladdr((void *)real.malloc, &allocator) && dladdr((void *)gnu_get_libc_version, &libc) &&
                 libc.dli_fbase == allocator.dli_fbase;
    settings.smallest = glibc ? 0 : 1u << GRANULE_SHIFT;
}
