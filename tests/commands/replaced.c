/* A cache of a fixed size. In each round a third of it is replaced, in the memory of what was there. Three cores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 999 };

struct item {
    long number;
    char text[120];
};

static struct item *cache[ITEMS];

static void dump(int number) {
    char name[32];
    pid_t child = fork();
    if (!child)
        abort();
    waitpid(child, NULL, 0);
    snprintf(name, sizeof name, "core.%d", number);
    rename("core", name);
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ITEMS; i++)
            if (round == 0 || i % 3 == round) {
                free(cache[i]);
                cache[i] = malloc(sizeof **cache);
                memset(cache[i], 'a' + round, sizeof **cache);
                cache[i]->number = i;
            }
        dump(round);
    }
    return 0;
}
