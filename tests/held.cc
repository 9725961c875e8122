// Blocks that only their holders, or functions at their start, say something of. Each is told in the file "truth":
// "TYPE|ADDRESS|SIZE", with "-" for a block whose type nothing says. Then the program aborts.
#include <any>
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <malloc.h>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static FILE *truth;

static void tell(const char *type, const void *block) {
    fprintf(truth, "%s|%zu|%zu\n", type, (size_t)block, malloc_usable_size((void *)block));
}

// A functor that does not fit into a std::function. It says where it is.
namespace shop {
struct Work {
    long values[6];
    const void *operator()() const { return this; }
};
struct Large {
    long values[9] = {1, 2, 3};
};
struct Session { // a function with a pointer to it keeps the pointer in place
    Session *next;
    long id;
    char name[40];
};
struct Item {
    long price;
};
} // namespace shop

using Function = std::function<const void *()>;
struct Slot {
    char padding[32];
    Function function;
};

std::vector<Function> functions; // the roots
Function alone;
std::vector<std::any> anys;
std::vector<Function> small;
std::vector<std::shared_ptr<shop::Item>> items;
std::vector<void *> kept;
std::vector<std::coroutine_handle<>> frames;

static const char *making; // the coroutine that is being called

struct Task {
    struct promise_type {
        static void *operator new(size_t size) {
            void *block = malloc(size);
            tell(making, block);
            return block;
        }
        static void operator delete(void *block) { free(block); }
        Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_never initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
    std::coroutine_handle<promise_type> handle;
};

namespace net {
static Task serve(int socket, long timeout) {
    char buffer[64];
    memset(buffer, socket, sizeof buffer);
    co_await std::suspend_always{};
    printf("%d %ld\n", buffer[timeout], timeout);
}
struct Client {
    Task fetch(std::string path) {
        co_await std::suspend_always{};
        puts(path.c_str());
    }
};
} // namespace net

// All functors of this class come from one place.
__attribute__((noinline)) static Function make_work(long i) { return Function(shop::Work{{i, i * 7919, 0, 1, 2, 3}}); }

static __attribute__((noinline)) void make_functions() {
    for (long i = 0; i < 20; i++) {
        functions.push_back(make_work(i));
        tell("shop::Work", functions.back()());
    }
    alone = make_work(100);
    tell("shop::Work", alone());
    long values[6] = {1, 2, 3};
    for (long i = 0; i < 10; i++) {
        values[5] = i;
        functions.push_back([values]() -> const void * { return values; });
        tell("a lambda", functions.back()());
    }
    // These functors stand in the function. Their first word points to a block of another type.
    shop::Session *last = nullptr;
    for (long i = 0; i < 10; i++) {
        last = new shop::Session{last, i, "a session"};
        tell("-", last);
        small.push_back([last]() -> const void * { return last->name; });
        small.push_back([last, i]() -> const void * { return last->name + i; });
    }
}

// What is left of functions that were destroyed. The blocks of their functors have other uses.
static __attribute__((noinline)) void make_stale() {
    Slot *slots[3];
    for (int i = 0; i < 3; i++)
        slots[i] = new Slot{{}, make_work(i)};
    for (Slot *slot : slots)
        delete slot;
    for (int i = 0; i < 3; i++) {
        void *slot = malloc(sizeof(Slot)); // not cleared
        char *text = (char *)malloc(sizeof(shop::Work));
        snprintf(text, sizeof(shop::Work), "text number %d, which is no functor", i);
        tell("-", slot);
        tell("-", text);
        kept.push_back(slot);
        kept.push_back(text);
    }
}

// Functors whose function is gone: only records know what they are.
static __attribute__((noinline)) void lose() {
    for (long i = 0; i < 5; i++) {
        auto *function = new Function(make_work(1000 + i));
        tell("lost", (*function)());
        memset((void *)function, 0, sizeof *function);
        free(function);
    }
}

static __attribute__((noinline)) void make_others() {
    for (int i = 0; i < 8; i++) {
        anys.emplace_back(shop::Large{});
        tell("shop::Large", std::any_cast<shop::Large>(&anys.back()));
        anys.emplace_back(i); // stands in place
        items.emplace_back(new shop::Item{i});
        tell("-", items.back().get());
        items.emplace_back(new shop::Item{i}, [](shop::Item *item) { delete item; });
        tell("-", items.back().get());
        making = "coroutine net::serve";
        frames.push_back(net::serve(i, i).handle);
        making = "coroutine net::Client::fetch";
        frames.push_back(net::Client().fetch("short").handle);
    }
    frames[1].resume(); // to its end
}

static void wait_long() { pause(); }

int main() {
    truth = fopen("truth", "w");
    static char buffer[1 << 16];
    setvbuf(truth, buffer, _IOFBF, sizeof buffer);
    functions.reserve(64), anys.reserve(64), small.reserve(64), items.reserve(64), frames.reserve(64), kept.reserve(64);
    make_functions();
    make_stale();
    lose();
    make_others();
    std::thread first(wait_long), second(wait_long);
    volatile char stack[16384];
    memset((void *)stack, 0, sizeof stack);
    usleep(1);
    fprintf(truth, "told||\n");
    fflush(truth);
    abort();
}
