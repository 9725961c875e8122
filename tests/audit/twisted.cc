// Allocate in stacks that are hard to walk. The build of the auditor with check.c compares each stack with libgcc's.
// This is compiled without frame pointers.
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <immintrin.h>
#include <map>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <vector>

#ifndef TURNS
#define TURNS 200
#endif

#define KEEP __attribute__((noinline, noclone))

static volatile long sink;

KEEP static void churn(int n) {
    void *p = malloc(n % 700 + 1);
    memset(p, 1, 1);
    sink += n;
    p = realloc(p, n % 1400 + 2);
    free(p);
}

// Each level has another frame size. The compiler needs no frame pointer.
template <int size> KEEP static int level(int depth) {
    volatile char room[size];
    room[0] = (char)depth;
    churn(depth * 31 + size);
    int value = depth == 0 ? room[0] : level<(size * 3 + 7) % 211 + 8>(depth - 1);
    churn(depth * 17 + size);
    return value + room[0];
}

KEEP static void variable(int n) { // alloca and VLA: rbp is needed
    char *p = (char *)alloca(n);
    char more[n + 1];
    p[0] = more[n] = 1;
    churn(n);
    std::map<std::string, std::vector<int>> map;
    for (int i = 0; i < 20; i++)
        map[std::to_string(i * n)].push_back(i);
    churn(p[0] + more[n]);
}

KEEP static void aligned(int n) { // the stack is realigned: a word of it gives the CFA
    alignas(64) volatile char big[256];
    big[n % 256] = 1;
    char *p = (char *)alloca(n + 1);
    p[n] = 2;
    variable(n + 1);
    churn(big[n % 256] + p[n]);
}

// Two paths lead to the same frame of `same_place` or `saving_place` at the same address, with different frames
// between. The words of one path are still on the stack on the other path. Only rbp differs, which `saving_place`
// saves.
KEEP static void same_place(int n) {
    churn(n);
    sink += n;
}
KEEP static void saving_place(int n) {
    __asm__ volatile("mov $1, %%ebp" : : : "rbp");
    churn(n);
    sink += n;
}
static void (*volatile place)(int);
KEEP static void moved(int n, int all) {
    volatile char *p = (volatile char *)alloca(n);
    p[0] = 1;
    place(all);
    sink += p[0];
}
KEEP static void one_way(int n) {
    volatile char *p = (volatile char *)alloca(1024 - n);
    p[0] = 1;
    moved(n, 1024);
    sink += p[0];
}
KEEP static void other_way(int n) {
    volatile char *p = (volatile char *)alloca(1024 - n);
    p[0] = 1;
    moved(n, 1024);
    sink += p[0] + 1;
}
static void (*volatile const ways[])(int) = {one_way, other_way};
static volatile const int factors[] = {1, 3}; // volatile: gcc would make a call for each way
KEEP static void take(int n) {                // both ways return to the same place
    for (volatile int way = 0; way < 2; way++)
        ways[way](16 * (factors[way] * n % 60 + 1));
}

KEEP static void thrower(int depth, int n) {
    std::string text(n + 20, 'x');
    if (depth == 0)
        throw std::runtime_error(text);
    auto held = std::make_unique<std::vector<int>>(n + 1);
    thrower(depth - 1, n + 1);
    sink += held->size();
}

KEEP static void exceptions(int n) {
    try {
        thrower(n % 12, n);
    } catch (const std::exception &e) {
        churn((int)strlen(e.what()));
    }
}

static jmp_buf far_away;
KEEP static void jumper(int depth) {
    churn(depth);
    if (depth == 0)
        longjmp(far_away, 1);
    jumper(depth - 1);
    churn(depth);
}

static ucontext_t mains, routines[2];
static char stacks[2][256 << 10];
static void routine(int which) {
    for (int i = 0;; i++) {
        level<24>(i % 5 + which);
        aligned(i % 60 + which);
        swapcontext(&routines[which], &mains);
    }
}

KEEP static void handler(int) { level<40>(3); }

// Return from nested calls and tail calls at every depth. A frame that is reused must still be there.
KEEP static void changing(int n, unsigned *random) {
    *random = *random * 1103515245 + 12345;
    unsigned r = *random >> 16;
    churn(n + r % 100);
    if (n > 0)
        for (unsigned i = 0; i < 1 + r % 2; i++)
            r % 5 == 0 ? aligned(n + 1) : r % 7 == 0 ? exceptions(n) : changing(n - 1, random);
    churn(n + r % 50);
}

KEEP static void deep(int n) {
    churn(n);
    if (n > 0)
        deep(n - 1);
    churn(n);
}

static void *worker(void *argument) {
    unsigned random = (unsigned)(size_t)argument;
    for (int i = 0; i < TURNS; i++) {
        level<16>(i % 24);
        aligned(i % 90);
        exceptions(i);
        changing(9, &random);
    }
    deep(300);
    return nullptr;
}

static void plugins(int count, char **paths) {
    for (int i = 0; i < 100; i++) {
        void *library = dlopen(paths[i % count], RTLD_NOW);
        if (library == nullptr) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        auto call = (void (*)(void (*)(int), int))dlsym(library, "plugin_call");
        call(churn, i);
        dlclose(library);
    }
}

int main(int argc, char **argv) {
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        pthread_create(&threads[i], nullptr, worker, (void *)(i * 77 + 1));
    for (int which = 0; which < 2; which++) {
        getcontext(&routines[which]);
        routines[which].uc_stack.ss_sp = stacks[which];
        routines[which].uc_stack.ss_size = sizeof stacks[which];
        makecontext(&routines[which], (void (*)())routine, 1, which);
    }
    stack_t alternate = {};
    alternate.ss_sp = malloc(64 << 10);
    alternate.ss_size = 64 << 10;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, nullptr);
    for (int i = 0; i < TURNS; i++) {
        swapcontext(&mains, &routines[i % 2]);
        raise(i % 3 ? SIGUSR1 : SIGUSR2);
        if (setjmp(far_away) == 0)
            jumper(i % 20);
        variable(i + 1);
        place = i % 2 == 0 ? same_place : saving_place;
        take(i);
    }
    if (argc > 1)
        plugins(argc - 1, argv + 1);
    for (auto &thread : threads)
        pthread_join(thread, nullptr);
    return 0;
}
