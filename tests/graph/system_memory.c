/* Has blocks in several arenas and in mappings of their own, and says how much memory malloc has of the system. */

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 3, BLOCKS = 3000 };

static void *held[THREADS + 3];

static void *fill(void *place) {
    void **blocks = malloc(BLOCKS * sizeof *blocks);

    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(24 + i % 1000);
    *(void **)place = blocks;
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    char text[64];
    int file = open("truth", O_WRONLY | O_CREAT, 0600);

    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fill, &held[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    fill(&held[THREADS]);
    held[THREADS + 1] = malloc(5 << 20);
    held[THREADS + 2] = memalign(4096, 3 << 20);
    struct mallinfo2 info = mallinfo2();
    snprintf(text, sizeof text, "%zu", info.arena + info.hblkhd);
    if (write(file, text, strlen(text)) < 0)
        return 1;
    abort();
}
