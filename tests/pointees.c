/* Dies with known values in its registers. The file "truth" says what each points to. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FREED = 64, LIVE = 100 };

static pthread_barrier_t ready;
static uint64_t other_stack, guard;
static void *volatile held[4];

static void *other(void *unused) {
    uint64_t here = (uint64_t)&here;
    pthread_attr_t attributes;
    void *stack;
    size_t size, guard_size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &size);
    pthread_attr_getguardsize(&attributes, &guard_size);
    other_stack = here;
    guard = (uint64_t)stack - guard_size + 64; /* glibc says where the usable part begins */
    pthread_barrier_wait(&ready);
    pause();
    return unused;
}

__attribute__((noinline)) static void *allocate_live(void) {
    void *p = malloc(LIVE);
    memset(p, 1, LIVE);
    return p;
}

__attribute__((noinline)) static void *allocate_freed(void) { return malloc(FREED); }

__attribute__((noinline)) static void free_it(void *p) {
    free(p);
    held[3] = NULL; /* no tail call */
}

int main(int argc, char **argv) {
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    pthread_barrier_wait(&ready);
    held[0] = allocate_live();
    held[1] = allocate_freed();
    held[2] = malloc(24);
    uint64_t live = (uint64_t)held[0], freed = (uint64_t)held[1];
    uint64_t usable = malloc_usable_size(held[0]);
    free_it(held[1]);
    held[1] = NULL;
    uint64_t bad = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    uint64_t past = live + (argc > 2 ? LIVE : usable);
    FILE *truth = fopen("truth", "w");
    fprintf(truth, "live %lu\nfreed %lu\nusable %lu\nguard %lu\nother_stack %lu\n", live, freed, usable, guard,
            other_stack);
    fclose(truth);
    register uint64_t r8 __asm__("r8") = other_stack;
    register uint64_t r9 __asm__("r9") = guard;
    __asm__ volatile("xor %%r10d, %%r10d\n\txor %%r11d, %%r11d\n\tmov (%%rax, %%rbx), %%ecx"
                     :
                     : "a"(bad), "b"(freed), "S"(live + 8), "D"(past), "r"(r8), "r"(r9), "d"(7)
                     : "rcx", "r10", "r11");
    return 0;
}
