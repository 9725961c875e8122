// Stacks that are hard to tell: one that overflowed, one whose stack or frame pointer is lost, one that the kernel keeps in pieces,
// because the program locked, advised or protected a part. Frames alone hold blocks of 1008 to 1168 bytes. Twenty others of
// 3008 bytes and more are lost; where the stack is cut, old frames below the stack pointer still have those.
//
// stacks HOW [thread]: then the program dies.

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HELD = 11, LOST = 20, STEP = 16, PAGE = 4096, FAR = 16 * PAGE };

static const char *volatile how;
static volatile int never;

static void *filled(size_t size) {
    char *block = malloc(size);
    memset(block, 'x', size);
    return block;
}

__attribute__((noinline)) static int lose(int number) {
    volatile char room[PAGE];
    void *volatile lost = filled(3008 + (size_t)number * STEP);
    room[0] = 1;
    int more = number ? lose(number - 1) : 0;
    if (strcmp(how, "cut") && strcmp(how, "guard")) lost = NULL;
    return more + room[0] + (lost != NULL);
}

__attribute__((noinline)) static int lose_far_below(void) {
    volatile char room[FAR];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
    return lose(LOST - 1) + room[7];
}

__attribute__((noinline)) static int wipe(void) {
    volatile char room[FAR + (LOST + 4) * (PAGE + 256)];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
    return room[7];
}

__attribute__((noinline)) static void split(char *here) {
    char *page = (char *)((uintptr_t)here & -(uintptr_t)PAGE);
    if (!strcmp(how, "guard")) {
        mprotect(page - FAR / 2, PAGE, PROT_NONE);
        return;
    }
    for (int i = -FAR / PAGE - LOST; i < 6; i++)
        if (i & 1) i & 2 ? mlock(page + i * PAGE, PAGE) : madvise(page + i * PAGE, PAGE, MADV_DONTFORK);
}

__attribute__((noinline)) static int fall(int depth) {
    volatile char room[700];
    room[0] = (char)depth;
    return depth == never - 1 ? 0 : fall(depth + 1) + room[0];
}

__attribute__((noinline)) static int leap(size_t size) {
    volatile char *room = __builtin_alloca(size);
    room[0] = 1;
    return room[0];
}

__attribute__((noinline)) static int end(void) {
    if (!strcmp(how, "fall")) return fall(0);
    if (!strcmp(how, "leap")) return leap(300u << 20);
    uintptr_t sp = !strcmp(how, "junk") ? 0x4141414141414140 : 0;
#ifdef __x86_64__
    if (sp || !strcmp(how, "zero")) __asm__ volatile("mov %0, %%rsp; xor %%ebp, %%ebp; xor %%ebx, %%ebx; pop %%rax" ::"r"(sp));
    if (!strcmp(how, "frame")) __asm__ volatile("mov %0, %%rbp; mov -8(%%rbp), %%rax" ::"r"(0x4141414141414140) : "rax");
#endif
    split((char *)__builtin_frame_address(0));
    abort();
}

__attribute__((noinline)) static int deep(int number) {
    void *volatile held = filled(1008 + (size_t)number * STEP);
    volatile char room[1000];
    room[0] = 1;
    if (number) return deep(number - 1) + room[0] + (held != NULL);
    int lost = lose_far_below();
    if (strcmp(how, "cut") && strcmp(how, "guard")) lost += wipe();
    return lost + end() + (held != NULL);
}

static void *run(void *unused) {
    deep(HELD - 1);
    return unused;
}

int main(int argc, char **argv) {
    struct rlimit small = {1 << 20, 1 << 20};
    how = argv[1];
    setrlimit(RLIMIT_STACK, &small);
    if (argc > 2) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, NULL);
        pthread_join(thread, NULL);
    }
    run(NULL);
}
