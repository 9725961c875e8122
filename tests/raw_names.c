// Maps the file that it is given, loses 50 blocks, and dies.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((noinline)) static void lose(void) {
    for (int i = 0; i < 50; i++) {
        char *volatile lost = malloc(100);
        memset(lost, i, 100);
        lost = NULL;
    }
}

__attribute__((noinline)) static void wipe(void) {
    volatile char room[16384];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
}

int main(int argc, char **argv) {
    void *file = mmap(NULL, 4096, PROT_READ, MAP_SHARED, open(argv[argc - 1], O_RDONLY), 0);
    lose();
    wipe();
    if (file != MAP_FAILED) abort();
    return 1;
}
