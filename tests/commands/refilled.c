/*
 * A cache of a fixed size. One function fills it, and another one replaces a third of it in each round. With the
 * argument "leak" what is replaced is not freed. In each round a few other blocks are kept, too. Three cores.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 999, KEPT = 100 };

struct item {
    long number;
    struct item *next;
    char text[120];
};

struct note {
    struct note *next;
    char text[40];
};

static struct item *cache[ITEMS];
static struct note *notes;

static void dump(int number) {
    char name[32];
    pid_t child = fork();
    if (!child)
        abort();
    waitpid(child, NULL, 0);
    snprintf(name, sizeof name, "core.%d", number);
    rename("core", name);
}

static void set(struct item *item, long number) {
    memset(item, 0, sizeof *item);
    item->number = number;
    item->next = cache[0];
    strcpy(item->text, "the text of an item");
}

__attribute__((noinline)) static void fill(void) {
    for (int i = 0; i < ITEMS; i++)
        set(cache[i] = malloc(sizeof **cache), i);
}

__attribute__((noinline)) static void refresh(int round, int leaks) {
    for (int i = round; i < ITEMS; i += 3) {
        struct item *made = malloc(sizeof *made);
        if (!leaks)
            free(cache[i]);
        set(cache[i] = made, i);
    }
}

__attribute__((noinline)) static void keep(void) {
    for (int i = 0; i < KEPT; i++) {
        struct note *made = calloc(1, sizeof *made);
        made->next = notes;
        strcpy(made->text, "a note");
        notes = made;
    }
}

int main(int argc, char **argv) {
    fill();
    for (int round = 0; round < 3; round++) {
        if (round)
            refresh(round, argc > 1);
        keep();
        dump(round);
    }
    return argv[0] == NULL;
}
