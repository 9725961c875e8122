/* Allocate in every way that C has, misuse some of the blocks, and die: guards FILE COUNT [clean]. Each line of the
 * file says what was done with a block: its state (live, freed), its address, the requested size, and the bytes that
 * were written where they should not have been (offset and hexadecimal bytes, or "-"). COUNT more blocks of many sizes
 * are allocated and stay clean. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME __attribute__((noinline, noclone))
#define WAYS 9

FRAME static char *site(unsigned way, size_t size) {
    void *p = NULL;
    switch (way) {
    case 0:
        p = malloc(size);
        break;
    case 1:
        p = calloc(1, size);
        break;
    case 2: /* in place or moved, larger */
        p = realloc(malloc(size / 2 + 1), size);
        break;
    case 3: /* smaller */
        p = realloc(malloc(size * 3 + 100), size);
        break;
    case 4:
        p = memalign(256, size);
        break;
    case 5:
        p = aligned_alloc(64, size);
        break;
    case 6:
        if (posix_memalign(&p, 4096, size) != 0)
            abort();
        break;
    case 7:
        p = valloc(size);
        break;
    case 8:
        p = reallocarray(NULL, 1, size);
        break;
    }
    if (p == NULL)
        abort();
    memset(p, (int)way + 1, size);
    return p;
}

static FILE *file;
static int clean;

static void tell(const char *state, const char *p, size_t size, size_t offset, const char *bytes, size_t count) {
    fprintf(file, "%s %p %zu %zu ", state, (const void *)p, size, offset);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%02x", (unsigned char)bytes[i]);
    fprintf(file, count ? "\n" : "-\n");
}

static void overrun(unsigned way, size_t size, size_t offset, const char *bytes, size_t count) {
    char *p = site(way, size);
    count = clean ? 0 : count;
    memcpy(p + offset, bytes, count);
    tell("live", p, size, offset, bytes, count);
}

static void use_after_free(size_t size, size_t offset, const char *bytes, size_t count) {
    char *p = site(0, size);
    count = clean ? 0 : count;
    tell("freed", p, size, offset, bytes, count);
    free(p);
    __asm__ volatile("" : "+r"(p));
    memcpy(p + offset, bytes, count);
}

int main(int argc, char **argv) {
    static char text[1 << 20];
    clean = argc == 4;
    if (argc < 3)
        return 2;
    file = fopen(argv[1], "w");
    setvbuf(file, text, _IOFBF, sizeof text);
    uintptr_t function = (uintptr_t)site;
    fprintf(file, "site %#lx\n", (unsigned long)function);
    for (unsigned way = 0; way < WAYS; way++) {
        overrun(way, 28, 28, "AAAA", 4); /* 32 bytes into 28 */
        overrun(way, 28, 28, "", 0);
        overrun(way, 100, 107, "\0", 1);
        overrun(way, 5000, 5000, "0123456789abcdef", 16);
        overrun(way, 300000, 300003, "xy", 2); /* mapped */
        overrun(way, 40, 40, "", 0);
        overrun(way, 1 << 16, 1 << 16, "", 0);
    }
    unsigned random = 12345;
    for (long i = 0; i < atol(argv[2]); i++) {
        random = random * 1664525 + 1013904223;
        memset(malloc(random >> 24), 7, random >> 24);
    }
    /* The sizes differ, so each block stays free by itself. */
    use_after_free(200, 40, "late", 4);
    use_after_free(248, 0, "", 0);
    use_after_free(312, 311, "\1", 1);
    use_after_free(376, 100, "\xef\xad", 2);
    use_after_free(440, 16, "", 0);
    fflush(file);
    abort();
}
