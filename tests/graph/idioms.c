// Heaps of C programs that hide their types: an interpreter whose objects begin alike, a class library with private data before
// each instance, an allocator that puts sizes before blocks, pages with their descriptors behind them, two structs in one
// block, kinds of one size. The file "truth" has a line for each block: its type, its address and malloc_usable_size. With "?" it may be known or
// not. Then the program dies.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *truth;

static void *told(const char *type, void *block) {
    fprintf(truth, "%s|%zu|%zu\n", type, (size_t)block, malloc_usable_size(block));
    return block;
}

// -- an interpreter: all objects begin with the same members, and a byte tells which is which ------------------------------
#define HEADER                                                                                                         \
    struct object *next;                                                                                               \
    unsigned char tag;                                                                                                 \
    unsigned char color
struct object {
    HEADER;
};
struct datum {
    union {
        struct object *object;
        long integer;
        double real;
        void (*code)(void);
    };
    int is;
};
struct symbol {
    HEADER;
    unsigned hash;
    size_t length;
    struct symbol *chain;
    // The characters follow.
};
struct slot {
    struct datum key, value;
    struct slot *following;
};
struct mapping {
    HEADER;
    unsigned char log_slots;
    unsigned length;
    struct datum *array;
    struct slot *slots;
    struct mapping *parent;
};
struct program {
    HEADER;
    int lines;
    struct symbol *name;
    struct program *outer;
    void *code;
};
struct function {
    HEADER;
    unsigned char captured;
    struct program *program;
    struct symbol *name;
    struct cell *cells[1];
};
struct cell {
    HEADER;
    struct datum *at;
    struct datum closed;
};
struct machine {
    struct object *all;
    struct symbol **symbols;
    int symbol_count;
    struct mapping *globals;
    struct program *main;
};
static struct machine *machine;

enum { SYMBOL = 4, LONG_SYMBOL = 20, MAPPING = 5, FUNCTION = 6, CELL = 9, PROGRAM = 10 };

static void *object(const char *type, size_t size, int tag) {
    struct object *made = told(type, calloc(1, size));
    made->tag = tag;
    made->color = 8 + rand() % 3;
    made->next = machine->all;
    machine->all = made;
    return made;
}

static struct symbol *symbol(int number) {
    char text[96];
    int length = snprintf(text, sizeof text, "symbol %d %.*s", number, number % 60, "with a tail that makes it a long one, longer still");
    struct symbol *made = object("struct symbol", sizeof *made + length + 1, length > 40 ? LONG_SYMBOL : SYMBOL);
    made->length = length;
    made->hash = number * 2654435761u;
    memcpy(made + 1, text, length + 1);
    return made;
}

static struct mapping *mapping(int log_slots, int length, struct mapping *parent) {
    struct mapping *made = object("struct mapping", sizeof *made, MAPPING);
    made->parent = parent;
    made->log_slots = log_slots;
    made->slots = told("struct slot[]", calloc(1ul << log_slots, sizeof(struct slot)));
    made->length = length;
    if (length > 0)
        made->array = told("struct datum[]", calloc(length, sizeof(struct datum)));
    return made;
}

static void interpreter(void) {
    machine = told("struct machine", calloc(1, sizeof *machine));
    machine->symbol_count = 4096;
    machine->symbols = told("struct symbol *[]", calloc(4096, sizeof(struct symbol *)));
    machine->main = object("struct program", sizeof(struct program), PROGRAM);
    machine->main->name = symbol(0);
    machine->globals = mapping(11, 0, NULL);
    for (int i = 0; i < 2000; i++) {
        struct symbol *name = symbol(i + 1);
        struct symbol **bucket = &machine->symbols[name->hash % 4096];
        name->chain = *bucket;
        *bucket = name;
        struct mapping *child = mapping(3 + i % 3, 10 + i % 5, i % 7 ? machine->globals : NULL);
        machine->globals->slots[i].key.object = (struct object *)name;
        machine->globals->slots[i].key.is = 1;
        machine->globals->slots[i].value.object = (struct object *)child;
        machine->globals->slots[i].value.is = 1;
        struct function *function = object("struct function", sizeof *function, FUNCTION);
        function->captured = 1;
        function->program = machine->main;
        function->name = name;
        function->cells[0] = object("struct cell", sizeof(struct cell), CELL);
        function->cells[0]->at = &function->cells[0]->closed;
        function->cells[0]->closed.integer = i;
        child->array[0].object = (struct object *)function;
        child->array[0].is = 1;
        for (int j = 1; j < 10 + i % 5; j++)
            child->array[j].integer = j;
    }
}

// -- an allocator of the program's own puts the size before the block ----------------------------------------------------
struct account {
    struct account *next;
    char *owner;
    double balance;
    struct transfer *last;
    long number, branch;
};
struct transfer {
    struct account *from, *to;
    struct transfer *before;
    long cents;
};
static struct account *accounts;
struct measured {
    void *site;
    size_t size;
    long key, unused;
};

static void *sized(const char *type, size_t size) {
    size_t *made = told(type, malloc(size + sizeof(size_t)));
    *made = size;
    return memset(made + 1, 0, size);
}

static void *measured(const char *type, size_t size) {
    struct measured *made = told(type, malloc(size + sizeof *made));
    *made = (struct measured){0, size, 77, 0};
    return memset(made + 1, 0, size);
}

static void bank(void) {
    for (int i = 0; i < 400; i++) {
        struct account *account = sized("struct account", sizeof *account);
        account->next = accounts;
        account->owner = sized("char[]?", 30);
        strcpy(account->owner, "somebody");
        account->balance = i * 1.5;
        accounts = account;
        struct transfer *transfer = measured("struct transfer", sizeof *transfer);
        transfer->from = account;
        transfer->to = account->next;
        account->last = transfer;
    }
}

// -- a class library: what an instance keeps private comes before it -------------------------------------------------------
struct class {
    const char *name;
    size_t size;
};
static struct class window_class = {"window", 0};
struct instance {
    struct class *class;
    unsigned references;
};
struct window {
    struct instance instance;
    struct window *parent, *sibling;
    char *title;
    long x, y, width, height;
};
static struct window *windows;

static void class_library(void) {
    for (int i = 0; i < 200; i++) {
        char *block = told("struct window", calloc(1, 40 + sizeof(struct window)));
        struct window *window = (struct window *)(block + 40);
        window->instance = (struct instance){&window_class, 1};
        window->sibling = windows;
        window->parent = i % 3 ? windows : NULL;
        window->title = told("char[]", strdup("the title of a window"));
        windows = window;
    }
}

// -- pages, each with its descriptor behind it, and two structs in one block ------------------------------------------------
struct page {
    void *data;
    struct page *newer, *older;
    struct pager *pager;
    unsigned number, flags;
};
struct pages {
    struct page *newest, *oldest;
    struct pager *pager;
    long count;
};
struct pager {
    struct pages *pages;
    char *path;
    struct account *owner;
    long size, limit;
};
static struct pager *pager;

static void page_cache(void) {
    char *block = told("struct pager", calloc(1, sizeof(struct pager) + sizeof(struct pages) + 200));
    pager = (struct pager *)block;
    pager->pages = (struct pages *)(pager + 1);
    pager->path = (char *)(pager->pages + 1);
    strcpy(pager->path, "/var/lib/pages");
    pager->owner = accounts;
    pager->pages->pager = pager;
    for (int i = 0; i < 300; i++) {
        char *data = told("struct page", malloc(4096 + sizeof(struct page) + 120));
        memset(data, 'p', 4096 + sizeof(struct page) + 120);
        struct page *page = (struct page *)(data + 4096);
        *page = (struct page){data, NULL, pager->pages->newest, pager, i, 1};
        if (page->older != NULL)
            page->older->newer = page;
        else
            pager->pages->oldest = page;
        pager->pages->newest = page;
    }
}

// -- shapes of one size, with a kind and a number of references --------------------------------------------------------------
struct shape {
    int references, kind;
};
struct circle {
    int references, kind;
    struct circle *next;
    char *name;
    long radius, color;
};
struct square {
    int references, kind;
    struct square *next;
    struct circle *within;
    long side, color;
};
struct polygon {
    int references, kind;
    struct square *box;
    struct polygon *hole;
    long corners, color;
};
static struct canvas {
    struct shape **all;
    long count;
    struct circle *circles;
    struct square *squares;
} canvas;

static void *shape(const char *type, int kind) {
    struct shape *made = told(type, calloc(1, sizeof(struct circle)));
    made->references = 1 + rand() % 3;
    made->kind = kind;
    canvas.all[canvas.count++] = made;
    return made;
}

static void drawing(void) {
    canvas.all = told("struct shape *[]", calloc(900, sizeof(struct shape *)));
    struct polygon *last = NULL;
    for (int i = 0; i < 300; i++) {
        struct circle *circle = shape("struct circle", 1);
        struct square *square = shape("struct square", 2);
        struct polygon *polygon = shape("struct polygon", 3);
        square->within = circle;
        polygon->box = square;
        polygon->hole = i % 2 ? last : NULL;
        last = polygon;
        if (i % 10 == 0) {
            circle->next = canvas.circles;
            canvas.circles = circle;
            square->next = canvas.squares;
            canvas.squares = square;
        }
    }
}

int main(void) {
    truth = fopen("truth", "w");
    setvbuf(truth, NULL, _IONBF, 0);
    interpreter();
    bank();
    class_library();
    page_cache();
    drawing();
    fclose(truth);
    abort();
}
