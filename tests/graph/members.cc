// Blocks that begin with the vtable of something smaller: members, the chunks of a deque, the buffers of vectors.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

struct Base {
    virtual ~Base() {}
    long a = 1;
};
struct Derived : Base {
    long b[4] = {};
};
struct Other {
    virtual ~Other() {}
    long x[2] = {};
};
struct Holder { // no vtable of its own
    Base first;
    long rest[6] = {};
};
struct Big {
    Other first;
    char buffer[1000];
};
struct Virtual {
    virtual ~Virtual() {}
    long v = 2;
};
struct Middle : virtual Virtual {
    long m = 3;
};
struct Wide : Middle {
    long w[3] = {};
};
struct Deleter { // a virtual function that deletes something else, before the destructor
    Derived *owned = nullptr;
    virtual void drop() { delete owned; }
    virtual ~Deleter() {}
    long c[9] = {};
};
struct Plain { // no deleting destructor
    virtual int number() { return 1; }
    long y[12] = {};
};

static std::vector<Base *> bases;
static std::vector<Derived *> deriveds;
static std::vector<Holder *> holders;
static std::vector<Big *> bigs;
static std::vector<Wide *> wides;
static std::vector<Deleter *> deleters;
static std::vector<Plain *> plains;
static std::deque<Base> queue;
static std::vector<Base> buffer;
static std::vector<Other> others(500);

template <class T> static void make(std::vector<T *> &all, int count)
{
    for (int i = 0; i < count; i++)
        all.push_back(new T);
}

int main()
{
    make(bases, 50);
    make(deriveds, 70);
    make(holders, 300);
    make(bigs, 20);
    make(wides, 30);
    make(deleters, 40);
    make(plains, 60);
    for (int i = 0; i < 5119; i++) // 32 in a chunk of 512 bytes; one more would begin a new chunk
        queue.emplace_back();
    buffer.resize(3000);
    abort();
}
