// Blocks of many C types. The file "truth" has a line for each: its type, its address and malloc_usable_size. Its type is
// "-" where no pointer in the program tells it. With "?" it may be known or not. Then the program dies.
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *truth;

static void *told(const char *type, void *block) {
    fprintf(truth, "%s|%zu|%zu\n", type, (size_t)block, malloc_usable_size(block));
    return block;
}

// A singly linked list with texts.
struct line {
    struct line *next;
    char *text;
    long number;
};

// A tree with parents.
typedef struct leaf {
    struct leaf *left, *right, *parent;
    long key;
    double weight;
} leaf_t;

// A hash table: an array of chains.
struct entry {
    struct entry *chain;
    unsigned long hash;
    void *value;
};
struct table {
    struct entry **buckets;
    unsigned long count, mask;
};

// A flexible array member.
struct message {
    struct message *next;
    size_t length;
    char data[];
};

// An array of structs, and an array of pointers.
struct point {
    struct line *label;
    double x, y, z;
};

// A union with a tag.
struct number {
    char *digits;
    long sign, precision;
    struct number *scale;
};
struct value {
    int tag;
    union {
        long integer;
        char *text;
        struct number *number;
    };
};

// The kernel's lists: links to links inside other structs.
struct list_head {
    struct list_head *next, *prev;
};
struct job {
    long id;
    struct list_head link;
    struct line *log;
    long padding[9];
};

// What a void pointer leads to is not known.
struct secret {
    struct secret *other;
    long a, b, c, d;
};

// A type that begins with another one.
struct base {
    int kind;
    struct base *next;
};
struct derived {
    struct base base;
    char *name;
    long more[4];
};

// Bit-fields, an enumeration, a callback, a nested anonymous struct.
struct session {
    unsigned open : 1, mode : 3, rest : 28;
    enum { IDLE, BUSY } state;
    void (*done)(struct session *);
    struct {
        struct line *first;
        struct {
            leaf_t *root;
        };
    } owned;
    struct table *tables[2];
    char name[24];
};

struct server {
    struct line *lines;
    leaf_t *tree;
    struct table *table;
    struct message *messages;
    struct point *points;
    long point_count;
    struct line **index;
    struct value *values;
    struct list_head jobs;
    void *opaque;
    struct base *bases;
    struct session *sessions[4];
    char *log;
    int *counts;
};

struct server server;
static leaf_t *statics;
__thread struct line *per_thread;

static struct line *new_line(const char *text, struct line *next) {
    struct line *line = told("struct line", calloc(1, sizeof *line));
    line->text = told("char[]", strdup(text));
    line->next = next;
    line->number = 7;
    return line;
}

static leaf_t *new_tree(int depth, leaf_t *parent) {
    leaf_t *leaf = told("struct leaf", calloc(1, sizeof *leaf));
    leaf->parent = parent;
    leaf->weight = depth;
    leaf->key = -depth;
    if (depth > 0) {
        leaf->left = new_tree(depth - 1, leaf);
        leaf->right = new_tree(depth - 1, leaf);
    }
    return leaf;
}

static struct table *new_table(int entries) {
    struct table *table = told("struct table", calloc(1, sizeof *table));
    table->buckets = told("struct entry *[]", calloc(64, sizeof *table->buckets));
    table->mask = 63;
    for (int i = 0; i < entries; i++) {
        struct entry *entry = told("struct entry", calloc(1, sizeof *entry));
        if (i % 10 == 9) {
            entry->value = (void *)(4096 + i * 2000003L); // a number of 32 bits in a pointer's place
        } else {
            struct secret *secret = told("-", calloc(1, sizeof *secret));
            secret->a = i;
            entry->value = secret;
        }
        entry->hash = i * 2654435761u;
        entry->chain = table->buckets[entry->hash & 63];
        table->buckets[entry->hash & 63] = entry;
        table->count++;
    }
    return table;
}

static void finish(struct session *session) { session->state = IDLE; }

static struct session *new_session(int i) {
    struct session *session = told("struct session", calloc(1, sizeof *session));
    session->open = 1;
    session->state = BUSY;
    session->done = finish;
    session->owned.first = new_line("of a session", NULL);
    session->owned.root = new_tree(1, NULL);
    session->tables[0] = new_table(3);
    snprintf(session->name, sizeof session->name, "session %d", i);
    return session;
}

__attribute__((noinline)) static int with_locals(int n) {
    struct line *local_lines = NULL;
    for (int i = 0; i < n; i++)
        local_lines = new_line("held by a local variable", local_lines);
    struct message local_message = {NULL, 3};
    local_message.next = told("struct message", calloc(1, sizeof(struct message) + 40));
    local_message.next->length = 40;
    fclose(truth);
    abort();
    return local_lines != NULL && local_message.length;
}

int main(void) {
    truth = fopen("truth", "w");
    setvbuf(truth, malloc(1 << 16), _IOFBF, 1 << 16);
    for (int i = 0; i < 100; i++)
        server.lines = new_line("a line of some length, and more of it", server.lines);
    server.tree = new_tree(6, NULL);
    statics = new_tree(4, NULL);
    server.table = new_table(200);
    for (int i = 0; i < 40; i++) {
        size_t length = 10 + 37 * i;
        struct message *message = told("struct message", calloc(1, sizeof *message + length));
        message->length = length;
        memset(message->data, 'm', length);
        message->next = server.messages;
        server.messages = message;
    }
    server.point_count = 500;
    server.points = told("struct point[]", calloc(500, sizeof *server.points));
    server.index = told("struct line *[]", calloc(500, sizeof *server.index));
    for (int i = 0; i < 500; i++) {
        server.points[i].x = i + 0.5;
        server.points[i].label = i % 5 ? server.lines : new_line("label", NULL);
        server.index[i] = server.points[i].label;
    }
    server.values = told("struct value[]", calloc(60, sizeof *server.values));
    for (int i = 0; i < 60; i++) {
        struct value *value = &server.values[i];
        value->tag = i % 3;
        if (value->tag == 0)
            value->integer = i;
        if (value->tag == 1)
            value->text = told("char[]?", strdup("thirty-one bytes of text here.."));
        if (value->tag == 2) {
            value->number = told("struct number?", calloc(1, sizeof *value->number));
            value->number->digits = told("char[]?", strdup("12345678901234567890"));
        }
    }
    server.jobs.next = server.jobs.prev = &server.jobs;
    for (int i = 0; i < 50; i++) {
        struct job *job = told("struct job", calloc(1, sizeof *job));
        job->id = i;
        job->log = new_line("of a job", NULL);
        job->link.next = &server.jobs;
        job->link.prev = server.jobs.prev;
        server.jobs.prev->next = &job->link;
        server.jobs.prev = &job->link;
    }
    // A local variable tells what the void pointer does not.
    struct secret *secret = told("struct secret?", calloc(1, sizeof *secret));
    secret->other = told("struct secret?", calloc(1, sizeof *secret));
    server.opaque = secret;
    for (int i = 0; i < 20; i++) {
        struct derived *derived = told("struct derived?", calloc(1, sizeof *derived));
        derived->base.kind = i;
        derived->base.next = server.bases;
        derived->name = told("char[]?", strdup("of a derived object"));
        server.bases = &derived->base;
    }
    for (int i = 0; i < 4; i++)
        server.sessions[i] = new_session(i);
    server.log = told("char[]", calloc(1, 5000));
    strcpy(server.log, "log");
    server.counts = told("int[]", calloc(300, sizeof(int)));
    per_thread = new_line("of a thread", NULL);
    return with_locals(10);
}
