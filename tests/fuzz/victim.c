/* A small process with one of everything that dmods reads: two arenas, tcaches, fastbins, bins, mmapped chunks, leaks,
 * a thread that waits and one that has exited, and a SIGSEGV whose handler aborts. With "wait" it stops before, for a
 * debugger to dump it. With -DSMALL there is less of everything, and its core takes a quarter of the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SMALL
enum { EACH = 8, MAPPED = 5000, STACKS = 1 };
#else
enum { EACH = 40, MAPPED = 200000, STACKS = 4 };
#endif

struct node {
    struct node *next;
    char payload[56];
};

static struct node *volatile kept;
static void *volatile mapped;
static pthread_barrier_t ready;

static void fill(void) {
    static __thread void *freed[EACH];
    struct node *leaked = NULL;
    for (int i = 0; i < EACH; i++) {
        struct node *node = calloc(1, sizeof *node);
        node->next = i % 2 ? kept : leaked;
        *(i % 2 ? (struct node **)&kept : &leaked) = node;
        freed[i] = malloc(24 + i % 5 * 400);
        if (i % 8 == 0)
            mapped = memset(malloc(300), i, 300);
    }
    for (int i = 0; i < EACH; i++)
        free(freed[i]);
    memset(freed, 0, sizeof freed);
}

static _Atomic int waiting; /* the id of the thread that stays */

static void *thread(void *stay) {
    fill();
    if (stay) {
        waiting = (int)syscall(SYS_gettid);
        pthread_barrier_wait(&ready);
        for (;;)
            pause();
    }
    return NULL;
}

static void handler(int number) {
    (void)number;
    abort();
}

/* The letter behind the name, in parentheses, in /proc/self/task/TID/stat says it. */
static int sleeps(int tid) {
    char path[64], line[512] = "", *state;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int stat = open(path, O_RDONLY); /* a stream would allocate */
    if (stat < 0)
        return 1;
    (void)!read(stat, line, sizeof line - 1);
    close(stat);
    state = strrchr(line, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}

int main(int argc, char **argv) {
    pthread_t one;
    pthread_attr_t small;
#ifdef SMALL
    mallopt(M_TOP_PAD, 0);
    mallopt(M_MMAP_THRESHOLD, 4096);
#endif
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACKS * PTHREAD_STACK_MIN);
    pthread_barrier_init(&ready, NULL, 2);
    fill();
    mapped = calloc(1, MAPPED);
    pthread_create(&one, &small, thread, NULL);
    pthread_join(one, NULL);
    pthread_create(&one, &small, thread, &ready);
    pthread_barrier_wait(&ready);
    while (!sleeps(waiting))
        usleep(1000);
    if (argc > 1 && !strcmp(argv[1], "wait")) {
        FILE *told = fopen("truth", "w");
        fputs("told\n", told);
        fclose(told);
        for (;;)
            pause();
    }
    signal(SIGSEGV, handler);
    *(volatile int *)(uintptr_t)0xdead000 = 1;
}
