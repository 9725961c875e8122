// Lists whose variables lie side by side, and whose items have one size. The program writes "NAME BYTES COUNT" of each
// to the file "truth", with the usable bytes of its blocks, and dies.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct job {
    long id;
    char *text;
    struct job *next;
    long kind;
};
struct task {
    long id;
    TAILQ_ENTRY(task) links;
    long kind;
};
struct event {
    struct event *next, *prev;
    long id, kind;
};
struct node {
    struct node *parent, *left, *right;
    long key;
};

struct item {
    struct item *next, *prev;
    long id, kind;
};

static struct {
    TAILQ_HEAD(, task) tasks;
    struct job *jobs;
    TAILQ_HEAD(, task) requests;
    struct event *first, *last; // a circle through these two
    struct job *ready;
    struct node *root, *leftmost, *rightmost; // the root's parent is here, as in std::map
    struct job *done;
    struct item *head, *tail, *other_head, *other_tail; // the items lead to each other, and not back here
} all;

enum { TASKS, JOBS, REQUESTS, EVENTS, READY, NODES, DONE, ITEMS, OTHERS, LISTS };
static size_t bytes[LISTS], counts[LISTS];

static void *take(int list, size_t size) {
    void *made = calloc(1, size);
    bytes[list] += malloc_usable_size(made);
    counts[list]++;
    return made;
}

static void add_job(int list, struct job **to, long id) {
    struct job *made = take(list, sizeof *made);
    made->id = id;
    made->text = strcpy(take(list, 24), "a text of a job");
    made->next = *to;
    *to = made;
}

static struct task *new_task(int list, long id) {
    struct task *made = take(list, sizeof *made);
    made->id = made->kind = id;
    return made;
}

static void add_event(long id) {
    struct event *made = take(EVENTS, sizeof *made), *ends = (struct event *)&all.first;
    if (all.first == NULL)
        all.first = all.last = ends;
    made->id = id;
    made->next = ends;
    made->prev = all.last;
    all.last->next = made;
    all.last = made;
}

static void add_item(int list, struct item **head, struct item **tail, long id) {
    struct item *made = take(list, sizeof *made);
    made->id = id;
    made->prev = *tail;
    *(*tail != NULL ? &(*tail)->next : head) = made;
    *tail = made;
}

static struct node *tree(struct node *parent, long low, long high) {
    if (low == high)
        return NULL;
    struct node *made = take(NODES, sizeof *made);
    made->parent = parent;
    made->key = (low + high) / 2;
    made->left = tree(made, low, made->key);
    made->right = tree(made, made->key + 1, high);
    return made;
}

int main(void) {
    TAILQ_INIT(&all.tasks);
    TAILQ_INIT(&all.requests);
    for (long i = 0; i < 1000; i++) {
        struct task *task = new_task(TASKS, i);
        TAILQ_INSERT_TAIL(&all.tasks, task, links);
        add_job(JOBS, &all.jobs, i);
        if (i < 900) {
            struct task *request = new_task(REQUESTS, i);
            TAILQ_INSERT_TAIL(&all.requests, request, links);
        }
        if (i < 800)
            add_event(i);
        if (i < 700)
            add_job(READY, &all.ready, i);
        if (i < 600)
            add_job(DONE, &all.done, i);
        if (i < 400)
            add_item(ITEMS, &all.head, &all.tail, i);
        if (i < 300)
            add_item(OTHERS, &all.other_head, &all.other_tail, i);
    }
    all.root = tree((struct node *)&all.root, 0, 500);
    for (all.leftmost = all.root; all.leftmost->left != NULL; all.leftmost = all.leftmost->left)
        ;
    for (all.rightmost = all.root; all.rightmost->right != NULL; all.rightmost = all.rightmost->right)
        ;
    static const char *names[LISTS] = {"tasks", "jobs", "requests", "events", "ready", "nodes", "done", "items", "others"};
    FILE *file = fopen("truth", "w");
    for (int list = 0; list < LISTS; list++)
        fprintf(file, "%s %zu %zu\n", names[list], bytes[list], counts[list]);
    fclose(file);
    abort();
}
