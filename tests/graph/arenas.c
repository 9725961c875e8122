// Programs with allocators of their own: a server whose objects lie in pools (as nginx's), and a cache whose items are
// chunks of slab pages (as memcached's). Only malloc's blocks are the pools. The file "truth" is as in typed.c;
// "objects" has the same of the objects in the pools: type, address, bytes of the type. A type with "?" need not be
// found.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *truth, *objects;

static void *told(const char *type, void *block) {
    fprintf(truth, "%s|%zu|%zu\n", type, (size_t)block, malloc_usable_size(block));
    return block;
}

static void *placed(const char *type, void *object, size_t size) {
    fprintf(objects, "%s|%zu|%zu\n", type, (size_t)object, size);
    return object;
}

// A pool begins with its own header. What comes next has the alignment of a pointer.
struct pool {
    char *last, *end;
    struct pool *current;
    struct log *log;
};
struct log {
    struct pool *owner;
    long level;
    char *(*handler)(struct log *, char *, size_t);
};
struct connection {
    void *request; // A struct request: nothing says so.
    struct pool *pool;
    struct log *log;
    long descriptor;
};
struct header {
    struct header *next;
    char *text;
    long length;
};
struct request {
    long signature;
    struct connection *connection;
    struct pool *pool;
    struct log *log;
    struct request *main;
    struct header *headers;
    long state;
};
static struct server {
    struct pool *pool;
    struct connection **connections;
    int count;
} server;
static struct log root_log;

static char *say(struct log *log, char *buffer, size_t size) { return log->level < (long)size ? buffer : NULL; }

static struct pool *new_pool(size_t size, struct log *log) {
    struct pool *pool = told("-", calloc(1, size));
    pool->last = (char *)(pool + 1);
    pool->end = (char *)pool + size;
    pool->current = pool;
    pool->log = log;
    return placed("struct pool", pool, sizeof *pool);
}

static void *take(struct pool *pool, const char *type, size_t size) {
    void *made = pool->last;
    pool->last += size;
    if (pool->last > pool->end)
        abort();
    return type == NULL ? made : placed(type, made, size);
}

static void serve(void) {
    root_log.handler = say;
    server.pool = new_pool(16384, &root_log);
    server.connections = take(server.pool, NULL, 40 * sizeof *server.connections);
    for (int i = 0; i < 40; i++) {
        struct pool *pool = new_pool(4096, &root_log);
        struct connection *connection = take(server.pool, "struct connection?", sizeof *connection);
        connection->pool = pool;
        connection->log = take(pool, "struct log", sizeof *connection->log);
        connection->log->owner = pool;
        connection->log->handler = say;
        connection->descriptor = i + 3;
        struct request *request = take(pool, "struct request?", sizeof *request);
        connection->request = request;
        request->signature = 0x50545448;
        request->connection = connection;
        request->pool = pool;
        request->log = connection->log;
        request->main = request;
        for (int j = 0; j < i; j++) {
            struct header *header = take(pool, "struct header?", sizeof *header);
            header->text = take(pool, NULL, 16);
            header->length = sprintf(header->text, "X-%d: %d", i, j);
            header->next = request->headers;
            request->headers = header;
        }
        server.connections[server.count++] = connection;
    }
}

// The connections of the server are also in a list: only so are they found by types.
struct watcher {
    struct watcher *next;
    struct connection *connection;
};
static struct watcher *watchers;

static void watch(void) {
    for (int i = 0; i < server.count; i++) {
        struct watcher *watcher = told("struct watcher", malloc(sizeof *watcher));
        watcher->next = watchers;
        watcher->connection = server.connections[i];
        watchers = watcher;
    }
}

// Items of one size class in a page of its own. An item of three is free: nothing leads to it.
struct item {
    struct item *next, *prev;
    int length;
    char key[];
};
static struct class {
    struct item *head;
    int used;
} classes[3];

static void cache(void) {
    for (int class = 0; class < 3; class ++) {
        size_t size = 96 << class;
        char *page = told("-", calloc(1, 1 << 16));
        for (size_t i = 0; i < (1 << 16) / size; i++) {
            struct item *item = (struct item *)(page + i * size);
            item->length = sprintf(item->key, "key %zu of class %d", i, class);
            if (i % 3 == 2)
                continue;
            placed("struct item", item, size);
            item->next = classes[class].head;
            if (item->next != NULL)
                item->next->prev = item;
            classes[class].head = item;
            classes[class].used++;
        }
    }
}

// Two pointers of different types lead to bytes that overlap: neither object is believed.
struct wide {
    struct wide *next;
    long numbers[7];
};
struct narrow {
    struct narrow *next;
    long number;
};
static struct wide *wide;
static struct narrow *narrow;

static void overlap(void) {
    long *made = told("-", calloc(1, 4096));
    for (int i = 0; i < 512; i++)
        made[i] = i % 8 == 0 ? 0 : i;
    wide = (struct wide *)(made + 64);
    narrow = (struct narrow *)(made + 68);
    made[68] = 0;
    placed("-", wide, sizeof *wide);
}

int main(void) {
    truth = fopen("truth", "w");
    objects = fopen("objects", "w");
    setvbuf(truth, NULL, _IONBF, 0);
    setvbuf(objects, NULL, _IONBF, 0);
    serve();
    watch();
    cache();
    overlap();
    fclose(truth);
    fclose(objects);
    abort();
}
