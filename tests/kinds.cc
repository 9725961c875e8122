// Blocks of several kinds that share sizes. Each block's kind is told in the file "truth" ("KIND STATE ADDRESS"), with
// malloc_usable_size as the last word. Then the program waits (for gcore), or aborts.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <malloc.h>
#include <memory>
#include <new>
#include <unistd.h>
#include <vector>

static FILE *truth;

static void tell(const char *kind, const char *state, const void *block) {
    // Hidden from a conservative search: the truth must not keep a leak alive.
    fprintf(truth, "%s %s %zu %zu\n", kind, state, (size_t)block, malloc_usable_size((void *)block));
}

// Two structures of one size without a vtable. Customers point to each other in pairs.
struct Customer {
    char name[24];
    long id;
    Customer *partner;
    long balance;
    long reserved[2];
};
struct LoginEvent {
    char user[24];
    long when;
    long code;
    long address;
    long reserved[2];
};
static_assert(sizeof(Customer) == sizeof(LoginEvent), "the two must have one size");

// A tree whose leaves have no children, and a list whose last node has no next.
struct Node {
    Node *left, *right, *parent;
    long key;
};
struct Link {
    Link *next;
    long value;
    char padding[48];
};

namespace shop {
struct Item {
    virtual ~Item() = default;
    long price = 1;
};
struct Left {
    virtual ~Left() = default;
    long l = 1;
};
struct Right {
    virtual ~Right() = default;
    long r = 2;
};
struct Both : Left, Right {
    long b = 3;
};
struct Member { // its first word is no vtable pointer
    long before = 6;
    Item inside;
};
} // namespace shop
struct Shared {
    long values[3] = {1, 2, 3};
};

typedef int (*operation)(int);
static int twice(int x) { return 2 * x; }
static int half(int x) { return x / 2; }
struct Operations {
    operation first, second;
};
extern const Operations doubling, halving;
const Operations doubling = {twice, half}, halving = {half, twice};
struct Device { // a C structure with a table of functions
    const Operations *operations;
    long number;
    char padding[56];
};

void *kept[64]; // the roots: the program's data
static int count;
static void *keep(void *block) { return kept[count++] = block; }

static Node *tree(int depth, Node *parent, long *key) {
    if (depth == 0)
        return nullptr;
    Node *node = new Node{nullptr, nullptr, parent, 0};
    tell("Node", "live", node);
    node->left = tree(depth - 1, node, key);
    node->key = (*key)++;
    node->right = depth % 3 == 0 ? nullptr : tree(depth - 1, node, key);
    return node;
}

// A functor that a std::function keeps on the heap.
struct Work {
    long values[6];
    const void *operator()() const { return this; }
};
using Function = std::function<const void *()>;
static std::vector<Function> functions;
static __attribute__((noinline)) Function make_work(long i) { return Function(Work{{i, 2, 3}}); }

static __attribute__((noinline)) void make() {
    for (int i = 0; i < 400; i++) {
        Customer *pair[2];
        for (Customer *&one : pair) {
            one = (Customer *)calloc(1, sizeof(Customer));
            snprintf(one->name, sizeof one->name, "customer-%d", i);
            one->id = 100000 + i;
            one->balance = i * 7919L;
            tell("Customer", "leaked", one);
        }
        pair[0]->partner = pair[1];
        pair[1]->partner = pair[0];
    }
    for (int i = 0; i < 300; i++) {
        LoginEvent *event = (LoginEvent *)calloc(1, sizeof(LoginEvent));
        snprintf(event->user, sizeof event->user, "login-%d", i);
        event->when = 1700000000L + i;
        event->code = i % 3;
        event->address = 0x0a000001 + i;
        tell("LoginEvent", "leaked", event);
    }
    functions.reserve(8);
    for (long i = 0; i < 8; i++) {
        functions.push_back(make_work(i));
        tell("Work", "live", functions.back()());
    }
    for (long i = 0; i < 3; i++) { // nothing says what these are, but who allocated them
        Function *lost = new Function(make_work(i + 8));
        tell("Lost", "leaked", (*lost)());
        memset((void *)lost, 0, sizeof *lost);
        free(lost);
    }
    tell("functions", "live", functions.data());
    long key = 0;
    keep(tree(9, nullptr, &key));
    Link *first = nullptr;
    for (int i = 0; i < 500; i++) {
        first = new Link{first, i, {}};
        tell("Link", "live", first);
    }
    keep(first);
    for (int i = 0; i < 20; i++) {
        Device *device = (Device *)calloc(1, sizeof(Device));
        device->operations = i % 2 ? &doubling : &halving;
        device->number = i;
        tell(i % 2 ? "doubling" : "halving", "live", keep(device));
    }
    void **array = (void **)keep(calloc(512, sizeof(void *)));
    tell("array", "live", array);
    int n = 0;
    for (int i = 0; i < 50; i++) {
        tell("shop::Item", "live", array[n++] = new shop::Item);
        tell("shop::Both", "live", array[n++] = new shop::Both);
        tell("Member", "live", array[n++] = new shop::Member);
        auto *shared = new std::shared_ptr<Shared>(std::make_shared<Shared>());
        tell("holder", "live", array[n++] = shared);
        // libstdc++ and libc++ put the object into the control block, behind a vtable pointer and two counts of 32 bits.
        tell("make_shared<Shared>", "live", (char *)shared->get() - 16);
    }
}

int main(int argc, char **) {
    truth = fopen("truth", "w");
    static char buffer[1 << 20]; // stdio's own block would be one more
    setvbuf(truth, buffer, _IOFBF, sizeof buffer);
    make();
    // Overwrites what make left behind on the stack.
    volatile char stack[16384];
    memset((void *)stack, 0, sizeof stack);
    fprintf(truth, "told\n");
    fflush(truth);
    if (argc > 1)
        for (;;)
            pause();
    abort();
}
