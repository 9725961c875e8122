/* A link of a list of free blocks is overwritten in one way: links WAY. The file "said" has the block with the bad link,
 * or 0 for the head of the list. The lists have blocks of 40 bytes: seven in the tcache, the others in a fastbin. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CACHED = 7, FAST = 5, BESIDE = 24 };
static char *blocks[CACHED + FAST], *beside[CACHED + FAST];

static uintptr_t protect(void *at, void *next) { return (uintptr_t)next ^ (uintptr_t)at >> 12; }
static void link_to(char *block, void *to) { *(volatile uintptr_t *)block = protect(block, to); }
static void say(void *block) {
    char line[64];
    int file = open("said", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, line, snprintf(line, sizeof line, "%p\n", block)) < 0)
        exit(1);
}
static void only(void) { /* the only entry of the tcache is a block of another size */
    char *first = malloc(300), *second = malloc(300), *volatile other = malloc(600);
    free(first), free(second);
    link_to(second, other);
    say(NULL);
    *(char *volatile *)&first = malloc(300);
    abort();
}

int main(int count, char **names) {
    const char *way = names[count - 1];
    char *larger = malloc(100), *live = malloc(40);
    if (!strcmp(way, "only"))
        only();
    for (int i = 0; i < CACHED + FAST; i++)
        blocks[i] = malloc(40), beside[i] = malloc(BESIDE);
    memset(live, 'l', 40), memset(larger, 'L', 100);
    for (int i = 0; i < CACHED + FAST; i++)
        free(blocks[i]); /* the last one is the first of its list */
    char *cached = blocks[CACHED - 3], *fast = blocks[CACHED + FAST - 2], *bad = strstr(way, "tcache-") ? cached : fast;
    say(bad);
    if (strstr(way, "wild"))
        *(volatile uintptr_t *)bad = 0x4141414141414141;
    if (strstr(way, "larger"))
        link_to(bad, bad == cached ? larger : larger - 16);
    if (strstr(way, "live"))
        link_to(bad, bad == cached ? live : live - 16);
    if (strstr(way, "cycle"))
        link_to(bad, bad == cached ? blocks[CACHED - 1] : blocks[CACHED + FAST - 1] - 16);
    if (strstr(way, "other-list"))
        link_to(bad, bad == cached ? blocks[CACHED + 2] : blocks[CACHED - 4] - 16);
    abort();
}
