// The first thread ends (pthread_exit) or waits ("waits"), and its frame holds 30 blocks. 7 more are lost, and two other
// threads hold 20 each in their frames. Then a thread aborts, or says that all is READY and waits ("live").
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_live;

static __attribute__((noinline)) void lose(size_t size, int count)
{
    for (int i = 0; i < count; i++)
        memset(malloc(size), 'L', size);
}

static void clear(void)
{
    volatile char below[16384];
    memset((void *)below, 0, sizeof below);
}

static void *work(void *last)
{
    void *held[20];
    for (int i = 0; i < 20; i++)
        held[i] = malloc(500);
    __asm__ volatile("" ::"r"(held) : "memory");
    if (last) {
        sleep(1);
        if (!is_live)
            abort();
        puts("READY");
        fflush(stdout);
    }
    for (;;) {
        pause();
        __asm__ volatile("" ::"r"(held) : "memory");
    }
}

int main(int argc, char **argv)
{
    void *held[30];
    pthread_t thread;
    int waits = argc > 1 && !strcmp(argv[1], "waits");
    is_live = argc > 1 && !strcmp(argv[argc - 1], "live");
    lose(100, 7);
    clear();
    for (int i = 0; i < 30; i++)
        held[i] = malloc(700);
    __asm__ volatile("" ::"r"(held) : "memory");
    pthread_create(&thread, NULL, work, NULL);
    pthread_create(&thread, NULL, work, &thread);
    if (waits)
        pthread_join(thread, NULL);
    __asm__ volatile("" ::"r"(held) : "memory");
    pthread_exit(NULL);
}
