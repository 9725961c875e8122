// Every container of the C++ library, with a ledger: the file "truth" has a line for each block with its type, its
// address and malloc_usable_size. operator new tells the size; the container's owner tells the type. Then the program
// dies.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

static FILE *truth;
static const char *saying = "-";

// Each block that a container allocates is told with the type that is being filled in.
void *operator new(std::size_t size) {
    void *block = std::malloc(size);
    if (truth != nullptr)
        std::fprintf(truth, "%s|%zu|%zu\n", saying, (std::size_t)block, malloc_usable_size(block));
    return block;
}
void operator delete(void *block) noexcept {
    if (truth != nullptr)
        std::fprintf(truth, "freed|%zu|0\n", (std::size_t)block);
    std::free(block);
}
void operator delete(void *block, std::size_t) noexcept { operator delete(block); }

namespace shop {
struct Point {
    double x, y;
};
struct Item {
    std::string name;
    long price;
    std::vector<Point> path;
};
struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    long id = 1;
};
struct Named {
    virtual ~Named() = default;
    std::string label;
};
struct Circle : Shape, Named {
    double area() const override { return radius; }
    double radius = 2;
    Item *item = nullptr;
};
struct Square : Shape {
    double area() const override { return side; }
    double side = 3;
};
struct Counted {
    ~Counted() { value = 0; }
    long value = 5;
    Item *item = nullptr;
};
template <typename T, int N> struct Ring {
    T *slots[N];
    Ring *next;
};
} // namespace shop

using shop::Circle;
using shop::Item;
using shop::Point;

static const char *long_text = "a text that is longer than what a string keeps in itself";

struct Program {
    std::vector<long> numbers;
    std::vector<Item> items;
    std::vector<bool> bits;
    std::vector<std::vector<Point>> nested;
    std::string text;
    std::deque<Item> queue;
    std::deque<int> small_queue;
    std::list<Point> points;
    std::list<std::string> texts;
    std::forward_list<long> forward;
    std::map<int, Item> by_number;
    std::map<std::string, std::vector<int>> by_name;
    std::multimap<int, Point> many;
    std::set<std::string> names;
    std::multiset<long> numbers_again;
    std::unordered_map<int, Point> table;
    std::unordered_map<std::string, Item> items_by_name;
    std::unordered_set<std::string> seen;
    std::unordered_multimap<int, long> grouped;
    std::unique_ptr<Item> owned;
    std::unique_ptr<Point[]> array;
    std::unique_ptr<shop::Counted[]> counted;
    std::shared_ptr<Item> shared, shared_by_new;
    std::weak_ptr<Item> weak;
    std::optional<Item> maybe, nothing;
    std::variant<int, Item, std::string> either, other;
    std::unique_ptr<shop::Shape> circle, square;
    shop::Named *second_base;
    std::vector<std::unique_ptr<shop::Shape>> shapes;
    shop::Ring<Point, 4> *ring;
    std::vector<Item *> pointers;
    std::list<std::shared_ptr<Point>> shared_points;
};

Program program;
static std::vector<Point> file_static;

struct Saying {
    const char *before;
    explicit Saying(const char *type) : before(saying) { saying = type; }
    ~Saying() { saying = before; }
};

static Item item(int i) {
    Item out;
    {
        Saying text("char[]");
        out.name = std::string(long_text) + std::to_string(i);
    }
    out.price = i;
    Saying path("shop::Point[]");
    out.path.reserve(3 + i % 5);
    out.path.push_back({1.0 * i, 2.0});
    return out;
}

static std::string text(int i) {
    Saying saying("char[]");
    return std::string(long_text) + std::to_string(i);
}

template <typename Fill> static void fill(const char *type, Fill each, int count = 40) {
    for (int i = 0; i < count; i++) {
        Saying saying(type);
        each(i);
    }
}

static void end() {
    std::fclose(truth);
    truth = nullptr;
    std::abort();
}

__attribute__((noinline)) static void with_locals() {
    std::map<long, Point> local_map;
    fill("NODE(map<long, Point>)", [&](int i) { local_map[i] = {1, 2}; });
    std::vector<Item> local_items;
    {
        Saying saying("shop::Item[]");
        local_items.reserve(5);
    }
    fill("-", [&](int i) { local_items.push_back(item(i)); }, 5);
    end();
}

int main() {
    truth = std::fopen("truth", "w");
    std::setvbuf(truth, static_cast<char *>(std::malloc(1 << 16)), _IOFBF, 1 << 16);
    Program &p = program;
    fill("long[]", [&](int i) { p.numbers.push_back(i); }, 1000);
    {
        Saying saying("shop::Item[]");
        p.items.reserve(50);
    }
    fill("-", [&](int i) { p.items.push_back(item(i)); });
    fill("unsigned long[]", [&](int i) { p.bits.push_back(i % 3); }, 2000);
    {
        Saying saying("std::vector<shop::Point>[]");
        p.nested.resize(10);
    }
    fill("shop::Point[]", [&](int i) { p.nested[i].resize(10); }, 10);
    p.text = text(0);
    // The map of a deque and its blocks are told apart by their sizes, below.
    fill("DEQUE(Item)", [&](int i) { p.queue.push_back(item(i)); });
    fill("DEQUE(int)", [&](int i) { p.small_queue.push_back(i); }, 4000);
    fill("NODE(list<Point>)", [&](int) { p.points.push_back({1, 2}); });
    fill("NODE(list<string>)", [&](int i) { p.texts.push_back(text(i)); });
    fill("NODE(forward_list<long>)", [&](int i) { p.forward.push_front(i); });
    fill("NODE(map<int, Item>)", [&](int i) { p.by_number.emplace(i, item(i)); });
    fill("NODE(map<string, vector<int>>)", [&](int i) {
        auto &ints = p.by_name[text(i)];
        Saying saying("int[]");
        ints.resize(20);
    });
    fill("NODE(map<int, Point>)", [&](int i) { p.many.insert({i / 2, {1, 2}}); });
    fill("NODE(set<string>)", [&](int i) { p.names.insert(text(i)); });
    fill("NODE(set<long>)", [&](int i) { p.numbers_again.insert(i / 3); });
    fill("HASH(int, Point)", [&](int i) { p.table[i] = {3, 4}; }, 300);
    fill("HASH(string, Item)", [&](int i) { p.items_by_name.emplace(text(i), item(i)); });
    fill("HASH(string)", [&](int i) { p.seen.insert(text(i)); });
    fill("HASH(int, long)", [&](int i) { p.grouped.insert({i / 4, i}); });
    {
        Saying saying("shop::Item");
        p.owned = std::make_unique<Item>();
    }
    *p.owned = item(1);
    {
        Saying saying("shop::Point[]");
        p.array = std::make_unique<Point[]>(25);
        for (int i = 0; i < 25; i++)
            p.array[i] = {i + 1.0, 2};
    }
    {
        Saying saying("shop::Counted[]");
        p.counted = std::make_unique<shop::Counted[]>(7);
    }
    {
        Saying saying("SHARED(Item)");
        p.shared = std::make_shared<Item>();
    }
    *p.shared = item(2);
    {
        Saying saying("shop::Item");
        Item *made = new Item;
        Saying control("CONTROL(Item)");
        p.shared_by_new.reset(made);
    }
    p.weak = p.shared;
    p.maybe = item(3);
    p.either = item(4);
    p.other = text(5);
    {
        Saying saying("shop::Circle");
        Circle *circle = new Circle;
        p.circle.reset(circle);
    }
    {
        Saying saying("shop::Square");
        p.square = std::make_unique<shop::Square>();
    }
    {
        Saying saying("shop::Circle");
        Circle *circle = new Circle;
        circle->label = text(6);
        p.second_base = circle;
        Saying of_item("shop::Item");
        circle->item = new Item;
    }
    {
        Saying saying("std::unique_ptr<shop::Shape>[]");
        p.shapes.reserve(10);
    }
    fill("shop::Square", [&](int) { p.shapes.push_back(std::make_unique<shop::Square>()); }, 10);
    {
        Saying saying("shop::Ring<shop::Point, 4>");
        p.ring = new shop::Ring<Point, 4>{};
        p.ring->next = p.ring;
        Saying point("shop::Point");
        for (auto &slot : p.ring->slots)
            slot = new Point{1, 2};
    }
    {
        Saying saying("shop::Item*[]");
        p.pointers.reserve(20);
    }
    fill("shop::Item", [&](int) { p.pointers.push_back(new Item); }, 20);
    fill("NODE(list<shared_ptr<Point>>)", [&](int) {
        p.shared_points.emplace_back();
        Saying saying("SHARED(Point)");
        p.shared_points.back() = std::make_shared<Point>();
    }, 10);
    {
        Saying saying("shop::Point[]");
        file_static.resize(30);
    }
    with_locals();
}
