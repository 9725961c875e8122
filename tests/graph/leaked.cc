// Leaked objects of types of which others are live. Tells of each block: "TYPE|ADDRESS|USABLE BYTES" in the file "truth". "-" is
// memory without a type; "TYPE?" need not be known.
//
// * Request, Conn: of one size. Of each, every third one is lost.
// * Node: one list lives, another one is lost: its nodes lead to each other.
// * Branch: one tree lives, another one is lost, with parents.
// * User: strings and vectors. Point: numbers. Shape, Circle: a base without a vtable.
// * Twin and Sole have the same members; all of Sole are lost. Left and Right have the same members, and both live.
// * Lost: no object of it lives.
// * Memory without a type, in blocks of the sizes of these: texts, numbers, pointers.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static FILE *truth;

template <typename T> static T *told(const char *type, T *block) {
    fprintf(truth, "%s|%lu|%zu\n", type, (unsigned long)block, malloc_usable_size((void *)block));
    return block;
}

static char *text(const char *format, long n) {
    char buffer[64];
    snprintf(buffer, sizeof buffer, format, n);
    return strdup(buffer);
}

struct User {
    long id;
    std::string name;
    std::vector<int> tags;
    User *boss;
};
struct Request {
    int method, status;
    char *path;
    User *owner;
    Request *next;
    double started;
};
struct Conn {
    int fd, flags;
    char *peer;
    Conn *next;
    void *context;
    long received;
};
struct Node {
    Node *next;
    char *key;
    long count;
};
struct Branch {
    Branch *left, *right, *parent;
    int depth, color;
    User *user;
    long sum;
};
struct Point {
    double x, y, z;
};
struct Shape {
    int kind;
    Point *center;
};
struct Circle : Shape {
    double radius;
    char *label;
    User *artist;
    long more[3];
};
struct Twin {
    char *name;
    User *user;
    long n[8];
};
struct Sole {
    char *title;
    User *author;
    long pages[8];
};
struct Left {
    char *from;
    User *user;
    long n[10];
};
struct Right {
    char *to;
    User *user;
    long n[10];
};
struct Lost {
    User *first, *second;
    char *text;
    long n[12];
};

std::vector<User *> users;
std::vector<Request *> requests;
Conn *conns;
Node *nodes;
Branch *root;
std::vector<Point *> points;
std::vector<Circle *> circles;
std::vector<Twin *> twins;
std::vector<Left *> lefts;
std::vector<Right *> rights;
static volatile unsigned long seed = 88172645463325252;

static unsigned long number() {
    seed = seed ^ seed << 13;
    seed = seed ^ seed >> 7;
    return seed = seed ^ seed << 17;
}

static User *user(long i) {
    User *made = new User{i, "user " + std::to_string(i), {1, 2, (int)i}, users.empty() ? nullptr : users[i % users.size()]};
    if (i % 2)
        made->name += " with a name that is long";
    return told("User", made);
}

static Branch *branch(Branch *parent, int depth) {
    Branch *made = told("Branch", new Branch{nullptr, nullptr, parent, depth, depth % 2, users[depth], (long)number()});
    if (depth < 7) {
        made->left = branch(made, depth + 1);
        made->right = branch(made, depth + 1);
    }
    return made;
}

static Node *list(int length) {
    Node *first = nullptr;
    for (int i = 0; i < length; i++)
        first = told("Node", new Node{first, text("key %ld", i), i});
    return first;
}

template <typename T> static void pair(const char *type, std::vector<T *> &live, int i, bool lost) {
    T *made = told(type, new T{text("pair %ld", i), users[i % 200], {}});
    for (long &n : made->n)
        n = number() % 1000000;
    if (!lost)
        live.push_back(made);
}

__attribute__((noinline)) static void build() {
    for (int i = 0; i < 600; i++) {
        User *made = user(i);
        if (i % 3 != 2)
            users.push_back(made);
    }
    for (int i = 0; i < 1500; i++) {
        auto made = told("Request", new Request{i % 4, 200 + i % 5, text("/index/%ld", i), users[i % 300], nullptr, 1.7e9 + i});
        made->next = requests.empty() ? nullptr : requests.back();
        if (i % 3 != 2)
            requests.push_back(made);
    }
    for (int i = 0; i < 900; i++) {
        auto made = told("Conn", new Conn{i, i % 2, text("10.0.0.%ld", i), conns, users[i % 100], 12345L * i});
        if (i % 3 != 2)
            conns = made;
    }
    nodes = list(500);
    list(400);
    root = branch(nullptr, 0);
    branch(nullptr, 0);
    for (int i = 0; i < 600; i++) {
        auto made = told("Point", new Point{i + 0.5, i * 3.25, -1.0});
        if (i % 3 != 2)
            points.push_back(made);
    }
    for (int i = 0; i < 600; i++) {
        auto made = new Circle{{1, points[i % 100]}, i * 0.5, text("circle %ld", i), users[i % 50], {i, 2, 3}};
        told("Circle", made);
        if (i % 3 != 2)
            circles.push_back(made);
    }
    for (int i = 0; i < 600; i++) {
        pair("Twin?", twins, i, i % 3 == 2);
        pair("Left?", lefts, i, i % 3 == 2);
        pair("Right?", rights, i, i % 3 == 2);
    }
    for (int i = 0; i < 300; i++) {
        told("Sole?", new Sole{text("sole %ld", i), users[i % 200], {1, 2, i}});
        told("Lost?", new Lost{users[i], users[i + 1], text("lost %ld", i), {i}});
        size_t sizes[] = {sizeof(User), sizeof(Request), sizeof(Node), sizeof(Branch), sizeof(Circle), sizeof(Twin)};
        for (size_t size : sizes) {
            auto numbers = told("-", (unsigned long *)malloc(size));
            for (size_t n = 0; n < size / sizeof(long); n++)
                numbers[n] = i % 2 ? number() : number() % 1000;
            auto pointers = told("-", (void **)malloc(size));
            for (size_t n = 0; n < size / sizeof(long); n++)
                pointers[n] = i % 2 ? (void *)users[number() % users.size()] : (void *)requests[number() % requests.size()];
            auto characters = told("-", (char *)malloc(size));
            memset(characters, 'a' + i % 26, size);
            characters[size - 1] = 0;
        }
    }
}

int main() {
    truth = fopen("truth", "w");
    build();
    fclose(truth);
    // What the registers and the stack have from before.
    volatile char over[65536];
    for (size_t i = 0; i < sizeof over; i++)
        over[i] = 0;
    abort();
}
