// The trees, arrays and the rest of the containers of ledger.c, which includes this file.

// -- trees -----------------------------------------------------------------------------------------------------------

struct branch {
    struct branch *left, *right;
    long key;
    unused unused;
    struct value *value;
    unused unused2;
} * branches;

static void add_branches(long i) {
    MAKE(branches, branch);
    struct branch **at = &branches;
    made->key = chance(1 << 24);
    made->value = VALUE(branches);
    made->left = made->right = NULL;
    while (*at != NULL)
        at = made->key < (*at)->key ? &(*at)->left : &(*at)->right;
    *at = made;
}

struct range {
    unused unused;
    struct range *parent, *left, *right;
    long start, end;
    unused unused2;
} * ranges;

static void add_ranges(long i) {
    MAKE(ranges, range);
    struct range **at = &ranges, *parent = NULL;
    made->start = chance(1 << 24);
    made->end = made->start + i;
    made->left = made->right = NULL;
    while (*at != NULL) {
        parent = *at;
        at = made->start < parent->start ? &parent->left : &parent->right;
    }
    made->parent = parent;
    *at = made;
}

struct person {
    long key;
    char *name;
    unused unused;
    struct person *left;
    long height;
    struct person *right;
    unused unused2;
    char *street;
};
struct {
    long count;
    struct person *top;
} people;

static void add_people(long i) {
    MAKE(people, person);
    struct person **at = &people.top;
    made->key = chance(1 << 24);
    made->height = i;
    made->name = TEXT(people);
    made->street = TEXT(people);
    made->left = made->right = NULL;
    while (*at != NULL)
        at = made->key < (*at)->key ? &(*at)->left : &(*at)->right;
    *at = made;
    people.count++;
}

struct word {
    struct word *child[4];
    char *text;
    unused unused;
    long count;
    unused unused2;
} * words;

static void add_words(long i) {
    MAKE(words, word);
    struct word **at = &words;
    memset(made->child, 0, sizeof made->child);
    made->text = i % 3 ? TEXT(words) : NULL;
    made->count = i;
    while (*at != NULL)
        at = &(*at)->child[chance(4)];
    *at = made;
}

struct prefix {
    struct prefix *zero, *one;
    long value;
    unused unused;
} * prefixes;

static void add_prefixes(long i) {
    struct prefix **at = &prefixes, *made = take(OF_prefixes, sizeof *made);
    hole(OF_prefixes, &made->unused);
    made->zero = made->one = NULL;
    made->value = i;
    while (*at != NULL)
        at = chance(2) ? &(*at)->zero : &(*at)->one;
    *at = made;
}

struct level {
    long key;
    char *text;
    struct level *next[4]; // those above the height are not written
    unused unused;
    long height;
};
struct {
    struct level *first[4];
} levels;

static void add_levels(long i) {
    struct level *made = take(OF_levels, sizeof *made);
    hole(OF_levels, &made->unused);
    made->key = i;
    made->text = TEXT(levels);
    made->height = 1;
    while (made->height < 4 && chance(4) == 0)
        made->height++;
    for (int at = 0; at < 4; at++) {
        if (at >= made->height) {
            hole(OF_levels, (unused *)&made->next[at]);
            continue;
        }
        made->next[at] = levels.first[at];
        levels.first[at] = made;
    }
}

// -- arrays ----------------------------------------------------------------------------------------------------------

struct handle {
    long kind;
    unused unused, unused2;
    long id;
    struct value *peer;
    long flags;
} * *handles;

static void add_handles(long i) {
    MAKE(handles, handle);
    TABLE(handles, handles, elements);
    made->kind = made->id = made->flags = i;
    made->peer = VALUE(handles);
    handles[i] = made;
}

struct file {
    char *name;
    long id, offset;
    unused unused;
    long size;
    char *owner;
    unused unused2;
};
struct {
    long count;
    struct file **all;
} files;

static void add_files(long i) {
    MAKE(files, file);
    TABLE(files, files.all, elements);
    made->id = made->offset = made->size = i;
    made->name = TEXT(files);
    made->owner = TEXT(files);
    files.all[i] = made;
    files.count++;
}

struct point {
    long x, y;
    char *label;
    unused unused;
    long z;
    unused unused2;
};
struct {
    struct point *first, *end, *room;
} points;

static void add_points(long i) {
    long capacity = elements + elements / 4;
    if (i == 0) {
        points.first = points.end = take(OF_points, capacity * sizeof *points.first);
        points.room = points.first + capacity;
        room(OF_points, points.first + elements, points.room);
    }
    struct point *made = points.end++;
    made->x = made->y = made->z = i;
    made->label = TEXT(points);
    hole(OF_points, &made->unused);
    hole(OF_points, &made->unused2);
}

struct row {
    long id;
    struct value *left;
    unused unused;
    char *right;
    long width, height;
    unused unused2;
    long flags;
};
struct {
    struct row *all;
    long count;
} rows;

static void add_rows(long i) {
    TABLE(rows, rows.all, elements);
    struct row *made = &rows.all[rows.count++];
    made->id = made->width = made->height = made->flags = i;
    made->left = VALUE(rows);
    made->right = TEXT(rows);
    hole(OF_rows, &made->unused);
    hole(OF_rows, &made->unused2);
}

struct timer {
    long when, place;
    struct value *callback;
    unused unused;
    long period;
    unused unused2;
    long flags;
};
struct {
    struct timer **heap;
    long count;
} timers;

static void add_timers(long i) {
    MAKE(timers, timer);
    TABLE(timers, timers.heap, elements);
    made->when = chance(1 << 24);
    made->period = made->flags = i;
    made->callback = VALUE(timers);
    long at = timers.count++;
    for (; at > 0 && timers.heap[(at - 1) / 2]->when > made->when; at = (at - 1) / 2)
        timers.heap[at] = timers.heap[(at - 1) / 2];
    timers.heap[at] = made;
    made->place = at;
}

struct message {
    unused unused;
    long length;
    char *text;
    long when;
    unused unused2;
    long sender;
};
struct {
    struct message **slots;
    long head, tail;
} ring;

static void add_ring(long i) {
    MAKE(ring, message);
    TABLE(ring, ring.slots, elements * 2);
    made->length = made->when = made->sender = i;
    made->text = TEXT(ring);
    ring.slots[(elements + elements / 2 + ring.head++) % (elements * 2)] = made;
}

struct chunk {
    struct chunk *next;
    long used;
    struct value *item[6];
};
struct {
    struct chunk *first, *last;
} queue;

static void add_queue(long i) {
    if (i % 6 == 0) {
        struct chunk *made = take(OF_queue, sizeof *made);
        made->next = NULL;
        made->used = 0;
        *(i == 0 ? &queue.first : &queue.last->next) = made;
        queue.last = made;
    }
    queue.last->item[queue.last->used++] = VALUE(queue);
}

// -- a graph ---------------------------------------------------------------------------------------------------------

struct edge {
    struct edge *next;
    struct node *to;
    long weight;
    unused unused;
};
struct node {
    struct node *next;
    struct edge *edges;
    long id;
    unused unused;
    long degree;
    unused unused2;
} * graph;

static void add_graph(long i) {
    MAKE(graph, node);
    made->id = i;
    made->degree = 2;
    made->edges = NULL;
    made->next = graph;
    graph = nodes[node_count++] = made;
    for (int k = 0; k < 2; k++) {
        struct edge *edge = take(OF_graph, sizeof *edge);
        hole(OF_graph, &edge->unused);
        edge->weight = k;
        edge->to = nodes[chance(node_count)];
        edge->next = made->edges;
        made->edges = edge;
    }
}
