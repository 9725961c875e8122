// Four threads, each of which holds 50 blocks by its stack alone. It aborts, or waits to be dumped ("wait").
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t ready;

static void *hold(void *number)
{
    void *held[50];
    for (int i = 0; i < 50; i++) {
        held[i] = malloc(200 + 100 * (long)number);
        memset(held[i], 'k', 200);
    }
    __asm__ volatile("" ::"r"(held) : "memory");
    pthread_barrier_wait(&ready);
    for (;;) {
        pause();
        __asm__ volatile("" ::"r"(held) : "memory");
    }
}

int main(int argc, char **argv)
{
    pthread_barrier_init(&ready, NULL, 5);
    for (long i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, hold, (void *)i);
    }
    pthread_barrier_wait(&ready);
    if (argc < 2)
        abort();
    puts("READY");
    fflush(stdout);
    for (;;)
        pause();
}
