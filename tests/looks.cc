// Objects of every kind of class, made and told of ("NAME ADDRESS" on a line of the file "truth"), then an abort.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace outer {
struct Plain {
    virtual ~Plain() = default;
    long a = 1;
};
template <typename T, int N> struct Template : Plain {
    T items[N] = {};
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
struct Base {
    virtual ~Base() = default;
    long base = 4;
};
struct Virtual : virtual Base {
    long v = 5;
};
struct Member {
    long before = 6;
    Plain inside;
};
struct Holder {
    virtual ~Holder() = default;
    Plain inside;
    std::string name = "short";
};
} // namespace outer

namespace {
struct Hidden {
    virtual ~Hidden() = default;
    long h = 7;
};
} // namespace

static FILE *truth;
static void *kept[64];
static int count;

template <typename T> static T *tell(const char *name, T *object) {
    fprintf(truth, "%s %zu\n", name, (size_t)object);
    kept[count++] = object;
    return object;
}

int main() {
    struct Local {
        virtual ~Local() = default;
        long x = 8;
    };
    truth = fopen("truth", "w");
    tell("outer::Plain", new outer::Plain);
    tell("outer::Template<std::vector<int>, 3>", new outer::Template<std::vector<int>, 3>);
    outer::Both *both = tell("outer::Both", new outer::Both);
    fprintf(truth, "second %zu\n", (size_t) static_cast<outer::Right *>(both));
    tell("outer::Virtual", new outer::Virtual);
    tell("member", new outer::Member);
    tell("outer::Holder", new outer::Holder);
    tell("(anonymous namespace)::Hidden", new Hidden);
    tell("main::Local", new Local);
    tell("array", new outer::Plain[3]);
    tell("short-string", new std::string("fits inside"));
    tell("long-string", new std::string(300, 'x'));
    tell("empty-string", new std::string);
    tell("chars", new char[8]{'a', 'b', 'c', 'd', 'e', 0});
    tell("too-short", new char[8]{'a', 'b', 0});
    fclose(truth);
    abort();
}
