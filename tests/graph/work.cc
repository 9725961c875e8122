// work SHAPE BLOCKS: a heap of one shape, of which the types are known.
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

struct Account {
    long id;
    std::string owner; // long enough for a block of its own
    Account *next;
};
struct Tree {
    Tree *left, *right;
    void *payload;
};
struct Buffer {
    void *data;
    unsigned long length, room;
};
struct Chained { // all pointers lead behind a header
    Chained *next;
    Account *account;
};
struct Slot {
    Slot *next, *before;
    Account *account;
    long number;
};
struct Order {
    Account *account;
    std::vector<Order *> parts;
};

std::list<Account> accounts;
Account *chain;
Tree *root;
std::map<std::string, std::unique_ptr<Account>> named;
std::unordered_map<long, Account *> numbered;
std::vector<Order *> orders;
Chained *chained;
Slot *slots;
void *untold;

static long made;

static std::string text(long number) { return "this is the text of the number " + std::to_string(number); }

static Account *account() {
    made += 2;
    return new Account{made, text(made), nullptr};
}

static Tree *tree(int depth) {
    if (depth == 0)
        return nullptr;
    Tree *made_here = new Tree{tree(depth - 1), tree(depth - 1), nullptr};
    made += 2;
    made_here->payload = calloc(1, 24 + made % 64);
    return made_here;
}

static void list(bool) {
    accounts.push_back({made, text(made), nullptr});
    made += 2;
    Account *one = account();
    one->next = chain;
    chain = one;
}

static void trees(bool) {
    Tree *top = tree(5);
    free(top->payload);
    made--;
    top->payload = root;
    root = top;
}

static void map(bool) {
    Account *one = account();
    named.emplace(text(made), std::unique_ptr<Account>(one));
    numbered[made] = one;
    made += 3;
}

static void vector(bool lost) {
    Order *one = new Order{account(), {}};
    for (int i = 0; i < 4; i++) {
        one->parts.push_back(new Order{one->account, {}});
        made++;
    }
    made += 2;
    if (!lost)
        orders.push_back(one);
}

static void header(bool) {
    static Account *const owner = account();
    void **block = static_cast<void **>(calloc(1, 32 + sizeof(Chained)));
    Chained *object = reinterpret_cast<Chained *>(block + 4);
    *object = {chained, owner};
    chained = object;
    made++;
}

static void pool(bool) {
    Slot *block = static_cast<Slot *>(calloc(64, sizeof *block));
    for (int i = 0; i < 40; i++) {
        block[i + 3] = {slots, slots, i % 8 ? nullptr : account(), i};
        slots = &block[i + 3];
    }
    made++;
}

static void hidden(bool) {
    void **table = static_cast<void **>(calloc(16, sizeof *table));
    for (int i = 1; i < 16; i++) {
        Buffer *buffer = static_cast<Buffer *>(calloc(1, sizeof *buffer));
        *buffer = {i % 4 ? nullptr : account(), 2, 3};
        table[i] = buffer;
        made++;
    }
    table[0] = untold;
    untold = table;
    made++;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 1;
    static const std::map<std::string, void (*)(bool)> shapes{
        {"list", list},     {"tree", trees}, {"map", map},      {"vector", vector}, {"leaked", vector},
        {"header", header}, {"pool", pool},  {"hidden", hidden}};
    const std::string shape = argv[1];
    const long blocks = atol(argv[2]);
    for (long i = 0; made < blocks; i++)
        shapes.at(shape)(shape == "leaked" && i % 2);
    abort();
}
