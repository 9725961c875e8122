/* A child that shares the memory of its parent (vfork, or clone with a stack of its own) dies. Threads of the parent
 * hold blocks: one on its stack, one in thread-local memory. One block is on the stack of a thread that has ended, and
 * one is lost. Writes "truth": name, ~address. Arguments: main or thread, vfork or clone. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 5 };

static FILE *truth;
static pthread_mutex_t told = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t ready, end;
__thread void *volatile local;
static const char *how;

__attribute__((noinline)) static void *make(const char *name) {
    void *block = memset(malloc(1000), 1, 1000);
    pthread_mutex_lock(&told);
    fprintf(truth, "%s %lu\n", name, ~(unsigned long)(uintptr_t)block);
    fflush(truth);
    pthread_mutex_unlock(&told);
    return block;
}

static void *holder(void *unused) {
    void *volatile held = make("on-stack");
    local = make("thread-local");
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&end);
    (void)unused;
    return held;
}

static void *ended(void *unused) {
    void *volatile held[64];
    for (int i = 0; i < 64; i++)
        held[i] = NULL;
    held[32] = make("of-ended-thread");
    (void)unused;
    (void)held[32];
    return NULL;
}

static int die(void *unused) {
    (void)unused;
    __builtin_trap();
}

__attribute__((noinline)) static void *spawn(void *unused) {
    static char stack[65536] __attribute__((aligned(64)));
    void *volatile held = make("on-spawning-stack");
    local = make("of-spawning-thread");
    int status;
    pid_t child;
    if (strcmp(how, "clone") == 0) {
        child = clone(die, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    } else {
        child = vfork();
        if (child == 0)
            __builtin_trap();
    }
    waitpid(child, &status, 0);
    kill(getpid(), SIGKILL); /* without a core of its own */
    (void)unused;
    return held;
}

__attribute__((noinline)) static void wipe(void) {
    volatile char frame[16384];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = 0;
}

int main(int argc, char **argv) {
    pthread_t thread;
    how = argv[argc - 1];
    truth = fopen("truth", "w");
    make("lost");
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread, NULL, holder, NULL);
    pthread_barrier_wait(&ready);
    pthread_create(&thread, NULL, ended, NULL);
    pthread_join(thread, NULL);
    wipe();
    if (strcmp(argv[1], "main") == 0)
        spawn(NULL);
    pthread_attr_t small; /* not on the stack of the thread that ended */
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16 << 20);
    pthread_create(&thread, &small, spawn, NULL);
    pthread_join(thread, NULL);
}
