/* Blocks that point to each other, and blocks that lie where others lay. The file "truth" says where they are. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHILDREN = 1000 };

struct hub {
    void *parent; /* 0, or a pointer back to what holds the hub */
    struct child *children[CHILDREN];
};

struct child {
    char other[24];
    struct hub *hub;
};

struct keeper {
    char other[16];
    struct hub *hub;
};

static struct keeper *volatile root;
static struct child *volatile child_root;
static void *volatile kept[4], *volatile freed;
static volatile int sink;

__attribute__((noinline)) static void *first_owner(void) { return malloc(300); }
__attribute__((noinline)) static void *second_owner(void) { return malloc(300); }
__attribute__((noinline)) static void give_back(void *p) {
    free(p);
    sink++;
}

static void tell(FILE *truth, const char *name, const volatile void *p) {
    fprintf(truth, "%s %lu\n", name, (unsigned long)(uintptr_t)p);
}

static void adopt(struct hub *hub, struct child **children, int count) {
    for (int i = 0; i < count; i++) {
        hub->children[i] = children[i];
        children[i]->hub = hub;
    }
}

static void make_children(struct child **children, int count) {
    for (int i = 0; i < count; i++)
        children[i] = calloc(1, sizeof **children);
}

__attribute__((noinline)) static void make(FILE *truth) {
    static struct child *children[CHILDREN];
    make_children(children, CHILDREN);
    struct hub *hub = calloc(1, sizeof *hub);
    struct keeper *keeper = calloc(1, sizeof *keeper);
    adopt(hub, children, CHILDREN);
    keeper->hub = hub;
    hub->parent = keeper;
    root = keeper;
    tell(truth, "hub", hub);
    tell(truth, "keeper", keeper);

    make_children(children, 2);
    struct hub *second = calloc(1, sizeof *second);
    adopt(second, children, 2);
    child_root = children[1];
    tell(truth, "second-hub", second);
    tell(truth, "anchored-child", children[1]);
    tell(truth, "other-child", children[0]);

    make_children(children, 3);
    struct hub *leaked = calloc(1, sizeof *leaked);
    struct keeper *leaked_root = calloc(1, sizeof *leaked_root);
    adopt(leaked, children, 3);
    leaked_root->hub = leaked;
    tell(truth, "leaked-hub", leaked);
    tell(truth, "leaked-root", leaked_root);
    memset(children, 0, sizeof children);

    unsigned char *bytes = kept[0] = malloc(1000);
    for (int i = 0; i < 1000; i++)
        bytes[i] = (unsigned char)i;
    tell(truth, "bytes", bytes);

    void *again = first_owner();
    kept[1] = malloc(24);
    give_back(again);
    kept[2] = second_owner();
    tell(truth, "reused", kept[2]);

    freed = malloc(24);
    kept[3] = malloc(24);
    give_back(freed);
    tell(truth, "freed", freed);
}

/* Writes over what the calls before left on the stack. */
__attribute__((noinline)) static void clear_stack(void) {
    volatile char waste[16384];
    for (size_t i = 0; i < sizeof waste; i++)
        waste[i] = 0;
}

int main(void) {
    FILE *truth = fopen("truth", "w");
    make(truth);
    fclose(truth);
    clear_stack();
    __asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory");
    raise(SIGABRT);
    return 0;
}
