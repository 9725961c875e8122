// A pointer that malloc did not return is given to free(), realloc() or operator delete: given WHERE HOW. The program
// writes the pointer first, and what it knows of the place.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define APART __attribute__((noinline))
static char table_of_words[256] = "a table of the program";
static thread_local char own[256];
static volatile char *volatile escaped;
static char *volatile decoy;
static const char *how;

APART static void give(char *bad) {
    if (!strcmp(how, "free"))
        free(bad);
    if (!strcmp(how, "realloc"))
        decoy = (char *)realloc(bad, 5000);
    if (!strcmp(how, "delete"))
        delete bad;
    if (!strcmp(how, "array"))
        delete[] bad;
    escaped = bad;
}
APART static void say(const char *place, void *bad, size_t offset) {
    printf("%s %p %zu\n", place, bad, offset);
    fflush(stdout);
}
APART static void on_stack(unsigned long before) {
    struct {
        unsigned long before[2];
        char words[112];
    } local;
    memset(&local, 0, sizeof local);
    local.before[1] = before;
    escaped = local.words;
    say("stack", local.words, 0);
    give(local.words);
}
static void *wait_with_words(void *words) {
    char local[300] = {1};
    *(char *volatile *)words = local + 64;
    pthread_barrier_wait((pthread_barrier_t *)((char **)words)[1]);
    for (;;)
        escaped = local;
}

int main(int count, char **names) {
    // malloc looks for the arena of a pointer at the multiple of 64 MB below it (arena.c, heap_for_ptr). Nothing must be there.
    if ((uintptr_t)__builtin_frame_address(0) % (64 << 20) < 16 << 20)
        execv(names[0], names);
    const char *where = names[1];
    how = names[2];
    char *a = (char *)malloc(120), *text = (char *)malloc(4000), *last = (char *)malloc(4000);
    char *cursor = text + 100, *header = last - 16;
    memset(a, 0, 120), memset(text, 0, 4000), memset(last, 0, 4000), memset(own, 0, 256);
    decoy = cursor;
    if (!strcmp(where, "stack"))
        on_stack(count > 3 ? strtoul(names[3], nullptr, 0) : 0);
    char *bad = nullptr;
    if (!strcmp(where, "data"))
        say("table_of_words", bad = table_of_words + 32, 32);
    if (!strcmp(where, "code"))
        say("main", bad = (char *)(void *)&main, 0);
    if (!strcmp(where, "constant"))
        say("constant", bad = (char *)"a constant of the program", 0);
    if (!strcmp(where, "inside"))
        say("block", bad = a + 16, 16);
    if (!strcmp(where, "odd"))
        say("block", bad = a + 2, 2);
    if (!strcmp(where, "far"))
        say("block", bad = text + 512, 512);
    if (!strcmp(where, "header"))
        say("header", bad = text - 8, 0);
    if (!strcmp(where, "thread-local"))
        say("thread-local", bad = own + 64, 0);
    if (!strcmp(where, "mapping"))
        say("mapping", bad = (char *)mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 64, 0);
    if (!strcmp(where, "nowhere"))
        say("nowhere", bad = (char *)0x123456789010, 0);
    if (!strcmp(where, "other-stack")) {
        pthread_barrier_t both;
        pthread_barrier_init(&both, nullptr, 2);
        char *words[2] = {nullptr, (char *)&both};
        pthread_t thread;
        pthread_create(&thread, nullptr, wait_with_words, words);
        pthread_barrier_wait(&both);
        say("other-stack", bad = words[0], 0);
    }
    give(bad);
    return *cursor + *header;
}
