/* Blocks that only memory holds which the program has locked since; and one that nothing holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *sealed[1024] __attribute__((aligned(4096))) = {(void *)1};

__attribute__((noinline)) static void hold_in_mapping(int protection) {
    void **mapping = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapping[700] = malloc(100);
    mprotect(mapping, 8192, protection);
}

__attribute__((noinline)) static void hold_in_data(int protection) {
    sealed[17] = malloc(100);
    mprotect(sealed, 4096, protection);
}

__attribute__((noinline)) static void leak(void) { *(volatile char *)malloc(5000) = 1; }

__attribute__((noinline)) static void wipe_stack(void) {
    volatile char frame[8192];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = 0;
}

int main(int argc, char **argv) {
    hold_in_mapping(PROT_NONE);
    hold_in_mapping(PROT_READ);
    hold_in_mapping(PROT_WRITE);
    hold_in_mapping(PROT_EXEC);
    hold_in_data(argc > 2 ? PROT_NONE : PROT_READ);
    leak();
    wipe_stack();
    if (strcmp(argv[1], "wait") != 0)
        abort();
    FILE *truth = fopen("truth", "w");
    fputs("told", truth);
    fflush(truth);
    for (;;)
        pause();
}
