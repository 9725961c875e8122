// pointed SHAPE BLOCKS: memory that many words of one block lead to.
//
// table: a table of structures, each with a pointer to a block. clients: an index of all messages, and one client whose
// nodes lead to most of them; others have few.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    long number;
    char *name;
};
struct registry {
    struct entry *entries;
    long count;
};
struct message {
    long number;
    char text[152];
};
struct node {
    struct node *next;
    struct message *message;
};
struct client {
    char name[24];
    struct node *first;
    struct client *next;
};

struct registry registry;
struct message **all;
struct client *clients;

static void table(long blocks) {
    registry.count = blocks;
    registry.entries = calloc(blocks, sizeof *registry.entries);
    for (long i = 0; i < blocks; i++) {
        registry.entries[i].number = i;
        registry.entries[i].name = malloc(56);
        snprintf(registry.entries[i].name, 56, "the name of entry %ld", i);
    }
}

static struct client *client(const char *name) {
    struct client *one = calloc(1, sizeof *one);
    strcpy(one->name, name);
    one->next = clients;
    return clients = one;
}

static void queue(struct client *one, struct message *message) {
    struct node *node = malloc(sizeof *node);
    *node = (struct node){one->first, message};
    one->first = node;
}

static void clients_(long blocks) {
    struct client *some[4] = {client("sensor-1"), client("sensor-2"), client("dashboard-7"), client("sensor-3")};
    all = calloc(blocks, sizeof *all);
    for (long i = 0; i < blocks / 2; i++) {
        all[i] = malloc(sizeof **all);
        all[i]->number = i;
        snprintf(all[i]->text, sizeof all[i]->text, "temperature %ld", i);
        queue(some[i % 50 ? 2 : i / 50 % 4], all[i]);
    }
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 1;
    if (!strcmp(argv[1], "table"))
        table(atol(argv[2]));
    else
        clients_(atol(argv[2]));
    abort();
}
