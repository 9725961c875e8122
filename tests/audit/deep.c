/* Allocate at every depth from 0 to 200, free at every depth, and die: deep FILE. The file says for each block how many
 * frames its stack has. libgcc counts them, by backtrace(). */
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAME __attribute__((noinline, noclone))
#define DEPTH 200
#define SIZE 64

struct block {
    void *p;
    int frames;
};
static struct block kept[DEPTH + 1], freed[DEPTH + 1];

FRAME static void use(int depth, int pass) {
    void *pcs[DEPTH + 50];
    if (pass == 0) {
        int frames = backtrace(pcs, DEPTH + 50);
        kept[depth] = (struct block){malloc(SIZE), frames};
        freed[depth] = (struct block){malloc(SIZE), frames};
    } else {
        free(freed[depth].p);
    }
    __asm__ volatile(""); /* no tail call */
}

FRAME static void descend(int levels, int depth, int pass) {
    if (levels == 0)
        use(depth, pass);
    else
        descend(levels - 1, depth, pass);
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    void *pcs[1];
    backtrace(pcs, 1); /* it loads libgcc now */
    for (int pass = 0; pass < 2; pass++)
        for (int depth = 0; depth <= DEPTH; depth++)
            descend(depth, depth, pass);
    FILE *file = fopen(argv[1], "w");
    for (int depth = 0; depth <= DEPTH; depth++)
        fprintf(file, "%p %p %d\n", kept[depth].p, freed[depth].p, kept[depth].frames);
    fclose(file);
    abort();
}
