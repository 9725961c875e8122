/* Dies of a malloc() that failed, or of something else long after one failed: the argument says of which. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static volatile size_t huge = (size_t)-1 / 4, small = 40;
static volatile int broken = 1;
struct node {
    struct node *next;
    long value;
};
static struct node *volatile list;
static char *volatile text;

static APART void stale(void) {
    if (malloc(huge) == NULL)
        errno = ENOMEM;
}

/* -- malloc() fails, and the process dies of it */
static APART void used(void) {
    struct node *node = malloc(huge);
    node->value = 1;
    list = node;
}
static APART void used_later(void) {
    struct node *node = calloc(huge, 1);
    printf("%p\n", (void *)list);
    node->value = 1;
    list = node;
}
static APART void fill(struct node *node, long value) {
    node->value = value;
    list = node;
}
static APART void passed(void) {
    fill(malloc(huge), 7);
    printf("%p\n", (void *)list);
}
static APART void copied(void) {
    text = memset(malloc(huge), 'x', small);
}
static APART void *wrapper(size_t size) {
    void *block = malloc(size);
    if (block != NULL)
        memset(block, 0, 16);
    return block;
}
static APART void wrapped(void) {
    struct node *node = wrapper(huge);
    node->value = 1;
    list = node;
}
static APART void checked(void) {
    struct node *node = malloc(huge);
    if (node == NULL)
        abort();
    list = node;
}
static APART __attribute__((noreturn)) void die(const char *why) {
    fprintf(stderr, "fatal: %s\n", why);
    abort();
}
static APART void *must(size_t size) {
    void *block = malloc(size);
    if (!block)
        die("no memory");
    return block;
}
static APART void said(void) {
    list = must(huge);
    printf("%p\n", (void *)list);
}

/* -- malloc() failed before, and the process dies of something else */
static APART void of_nothing(void) {
    stale();
    list->value = 1;
}
static APART struct node *find(long value) {
    for (struct node *at = list; at; at = at->next)
        if (at->value == value)
            return at;
    return NULL;
}
static APART void not_found(void) {
    stale();
    list = malloc(small);
    list->next = NULL;
    list->value = 1;
    find(2)->value = 3;
}
static APART void other_block(void) {
    stale();
    struct node *node = malloc(small);
    node->next = list;
    node->next->value = 1;
    list = node;
}
static APART void on_purpose(void) {
    stale();
    list = must(small);
    if (broken)
        die("broken");
}
static APART void either(void) {
    stale();
    struct node *node = malloc(small);
    if (node == NULL)
        goto fail;
    list = node;
    if (!broken)
        return;
fail:
    fprintf(stderr, "either\n");
    abort();
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"used", used},           {"used_later", used_later}, {"passed", passed},   {"copied", copied},
    {"wrapped", wrapped},     {"checked", checked},       {"said", said},       {"of_nothing", of_nothing},
    {"not_found", not_found}, {"other_block", other_block}, {"on_purpose", on_purpose}, {"either", either},
};

int main(int count, char **words) {
    for (unsigned i = 0; count > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(words[1], ways[i].name) == 0)
            ways[i].run();
    return 2;
}
