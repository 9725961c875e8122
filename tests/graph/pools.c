// Blocks that have many objects, as the pages of a slab allocator (memcached), the buffers of a cache that are linked
// while they are free, and arrays whose elements are linked in trees (nginx). No single object names such a block. The
// file "truth" is as in typed.c.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *truth;

static void *told(const char *type, void *block) {
    fprintf(truth, "%s|%zu|%zu\n", type, (size_t)block, malloc_usable_size(block));
    return block;
}

// Items of one size in pages; those in use are in a list and in a hash table, which lead into the pages.
#define ITEM 512
struct item {
    struct item *next, *prev, *chain;
    int length;
    unsigned char key_length;
    char data[];
};
static struct cache {
    struct item *head, *tail, **table;
    void **pages;
    int page_count;
} cache;

static void items(void) {
    cache.table = told("struct item *[]", calloc(256, sizeof *cache.table));
    cache.pages = told("void *[]?", calloc(16, sizeof *cache.pages));
    for (int page = 0; page < 6; page++) {
        char *made = cache.pages[cache.page_count++] = told("-", calloc(64, ITEM));
        for (int i = 0; i < 64; i++) {
            struct item *item = (struct item *)(made + i * ITEM);
            item->length =
                snprintf(item->data, 400, "key:%d and %.*s", i, i, "a value of any length, as clients like it best");
            item->next = cache.head;
            if (cache.head != NULL)
                cache.head->prev = item;
            else
                cache.tail = item;
            cache.head = item;
            struct item **bucket = &cache.table[rand() % 256];
            item->chain = *bucket;
            *bucket = item;
        }
    }
}

// Buffers: the first word of a free one is the link to the next. The rest is what was there before.
struct free_buffer {
    struct free_buffer *next;
};
static struct buffers {
    struct free_buffer *first, **last;
    int count;
} buffers = {NULL, &buffers.first, 0};

static void free_buffers(void) {
    for (int i = 0; i < 12; i++) {
        struct free_buffer *made = told("-", calloc(1, 16384));
        *buffers.last = made;
        buffers.last = &made->next;
        if (i % 2)
            ((void **)made)[3] = made;
        buffers.count++;
    }
}

// Headers of buffers: two words that agree with zeros, too.
struct chunk {
    struct chunk *next;
    char *last;
};
static struct chunk *chunks;

static void headers(void) {
    for (int i = 0; i < 10; i++) {
        struct chunk *made = told("struct chunk?", calloc(1, 8000));
        made->next = chunks;
        made->last = (char *)made + 100;
        chunks = made;
    }
}

// An array to which no typed pointer leads. Its elements are nodes of a tree.
struct knot {
    struct knot *left, *right, *parent;
    long key;
};
struct event {
    void *data;
    long flags;
    struct knot timer;
    char *name;
};
static struct knot *root;
static size_t hidden;

static void events(void) {
    struct event *all = told("struct event[]?", calloc(300, sizeof *all));
    hidden = ~(size_t)all;
    for (int i = 0; i < 300; i += 3) {
        struct knot *node = &all[i].timer, *above = NULL, **link = &root;
        node->key = rand();
        while (*link != NULL) {
            above = *link;
            link = node->key < above->key ? &above->left : &above->right;
        }
        node->parent = above;
        *link = node;
    }
}

int main(void) {
    truth = fopen("truth", "w");
    setvbuf(truth, NULL, _IONBF, 0);
    items();
    free_buffers();
    headers();
    events();
    fclose(truth);
    abort();
}
