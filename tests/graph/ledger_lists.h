// The lists, hash tables and caches of ledger.c, which includes this file.

// -- lists -----------------------------------------------------------------------------------------------------------

struct job {
    unused unused;
    struct job *next;
    long id;
    char *text;
    unused unused2;
    long priority;
} * jobs;

static void add_jobs(long i) {
    MAKE(jobs, job);
    made->id = i;
    made->priority = chance(10);
    made->text = TEXT(jobs);
    made->next = jobs;
    jobs = made;
}

struct event {
    struct event *next, *prev;
    long id;
    unused unused;
    struct value *value;
    long time;
    unused unused2;
};
struct event_ends {
    struct event *next, *prev;
} events;

// A circle through the variable, as the kernel's lists.
static void add_events(long i) {
    MAKE(events, event);
    struct event *ends = (struct event *)&events;
    if (i == 0)
        events.next = events.prev = ends;
    made->id = made->time = i;
    made->value = VALUE(events);
    made->next = ends;
    made->prev = events.prev;
    events.prev->next = made;
    events.prev = made;
}

struct route {
    long from, to;
    char *text;
    unused unused;
    struct route *next;
    unused unused2;
    long metric, flags;
};
struct {
    struct route *first, *last;
} routes;

static void add_routes(long i) {
    MAKE(routes, route);
    made->from = i;
    made->to = made->metric = made->flags = chance(100);
    made->text = TEXT(routes);
    made->next = NULL;
    *(i == 0 ? &routes.first : &routes.last->next) = made;
    routes.last = made;
}

// -- tables ----------------------------------------------------------------------------------------------------------

struct user {
    unused unused;
    long key;
    struct user *next;
    char *text;
    unused unused2;
    long uid;
};
struct {
    struct user **buckets;
    long count;
} users;

static void add_users(long i) {
    MAKE(users, user);
    TABLE(users, users.buckets, elements);
    struct user **bucket = &users.buckets[chance(elements)];
    made->key = made->uid = i;
    made->text = TEXT(users);
    made->next = *bucket;
    *bucket = made;
    users.count++;
}

struct order {
    struct order *next;
    struct value *customer;
    long key;
    unused unused;
    long total;
    unused unused2;
    char *text;
};
struct {
    long count;
    struct order **buckets;
} orders;

static void add_orders(long i) {
    MAKE(orders, order);
    TABLE(orders, orders.buckets, elements / 2 + 1);
    struct order **bucket = &orders.buckets[chance(elements / 2 + 1)];
    made->key = made->total = i;
    made->customer = VALUE(orders);
    made->text = TEXT(orders);
    made->next = *bucket;
    *bucket = made;
    orders.count++;
}

struct symbol {
    char *text;
    long address, size;
    unused unused, unused2;
    long type;
    struct value *scope;
    long binding;
} * *symbols;

static void add_symbols(long i) {
    MAKE(symbols, symbol);
    TABLE(symbols, symbols, elements * 2);
    long slot = chance(elements * 2);
    while (symbols[slot] != NULL)
        slot = (slot + 1) % (elements * 2);
    made->address = made->size = made->type = made->binding = i;
    made->text = TEXT(symbols);
    made->scope = VALUE(symbols);
    symbols[slot] = made;
}

struct atom {
    struct atom *next;
    char *text;
    long hash;
    unused unused;
} * *atoms;

static void add_atoms(long i) {
    struct atom *made = take(OF_atoms, sizeof *made);
    hole(OF_atoms, &made->unused);
    TABLE(atoms, atoms, elements);
    struct atom **bucket = &atoms[chance(elements)];
    made->hash = i;
    made->text = TEXT(atoms);
    made->next = *bucket;
    *bucket = made;
}

struct session {
    char *name, *address;
    struct session *next;
    long key;
    char *buffer;
    unused unused;
    long state;
    unused unused2;
};
struct {
    struct session **buckets;
} sessions;

static void add_sessions(long i) {
    MAKE(sessions, session);
    TABLE(sessions, sessions.buckets, elements);
    struct session **bucket = &sessions.buckets[chance(elements)];
    made->key = made->state = i;
    made->name = TEXT(sessions);
    made->address = TEXT(sessions);
    made->buffer = TEXT(sessions);
    made->next = *bucket;
    *bucket = made;
}

// -- caches: a table, and a list from the newest to the oldest -------------------------------------------------------

struct page {
    struct page *hashed;
    long number;
    struct page *prev, *next;
    char *buffer;
    unused unused;
    long flags;
    unused unused2;
};
struct {
    struct page **buckets, *first, *last;
    long count;
} pages;

static void add_pages(long i) {
    MAKE(pages, page);
    TABLE(pages, pages.buckets, elements);
    struct page **bucket = &pages.buckets[chance(elements)];
    made->number = made->flags = i;
    made->buffer = TEXT(pages);
    made->hashed = *bucket;
    *bucket = made;
    made->prev = NULL;
    made->next = pages.first;
    *(i == 0 ? &pages.last : &pages.first->prev) = made;
    pages.first = made;
    pages.count++;
}

struct blob {
    struct blob *prev;
    unused unused;
    struct blob *next, *hashed;
    char *text;
    long key;
    unused unused2;
};
struct {
    struct blob *first, *last;
    struct blob **buckets;
} blobs;

static void add_blobs(long i) {
    MAKE(blobs, blob);
    TABLE(blobs, blobs.buckets, elements);
    struct blob **bucket = &blobs.buckets[chance(elements)];
    made->key = i;
    made->text = TEXT(blobs);
    made->hashed = *bucket;
    *bucket = made;
    made->next = NULL;
    made->prev = blobs.last;
    *(i == 0 ? &blobs.first : &blobs.last->next) = made;
    blobs.last = made;
}
