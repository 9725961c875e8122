/* Memory that a core does not have, and why: the answers are printed as "NAME ADDRESS SIZE". */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *map(const char *name, size_t size, int flags) {
    char *made = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (made == MAP_FAILED)
        exit(1);
    memset(made, 0x41, size);
    printf("%s %p %zu\n", name, (void *)made, size);
    return made;
}

int main(int argc, char **argv) {
    char *excluded = map("excluded", 3 << 20, MAP_PRIVATE | MAP_ANONYMOUS);
    madvise(excluded, 3 << 20, MADV_DONTDUMP);
    map("shared", 5 << 20, MAP_SHARED | MAP_ANONYMOUS);
    map("private", 7 << 20, MAP_PRIVATE | MAP_ANONYMOUS);
    char *code = map("code", 4096, MAP_PRIVATE | MAP_ANONYMOUS);
    mprotect(code, 4096, PROT_EXEC);
    fflush(stdout);
    if (argc > 1 && argv[1][0])
        abort();
    pause();
    return 0;
}
