/* Allocate, reallocate and free, list it all in FILE, and wait: transactions FILE. The contents of a block name it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone))
#define BLOCKS 50

FRAME static char *taker(int i) {
    char *p = malloc((size_t)i + 40);
    snprintf(p, 40, "block %d", i);
    return p;
}

FRAME static char *changer(char *p, int i) {
    p = realloc(p, (size_t)i + 4000);
    __asm__ volatile("" : "+r"(p)); /* no tail call */
    return p;
}

FRAME static void giver(char *p) {
    free(p);
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    static char *blocks[BLOCKS], text[1 << 16];
    FILE *file = fopen(argv[1], "w");
    setvbuf(file, text, _IOFBF, sizeof text);
    fprintf(file, "%d %p %p %p\n", getpid(), (void *)taker, (void *)changer, (void *)giver);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = taker(i);
        fprintf(file, "taken %p %d\n", (void *)blocks[i], i + 40);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 2) {
            fprintf(file, "given %p %d\n", (void *)blocks[i], i + 40);
            blocks[i] = changer(blocks[i], i);
            fprintf(file, "taken %p %d\n", (void *)blocks[i], i + 4000);
        }
        fprintf(file, "given %p %d\n", (void *)blocks[i], i % 2 ? i + 4000 : i + 40);
        giver(blocks[i]);
    }
    fprintf(file, "end\n");
    fflush(file);
    pause();
    return 0;
}
