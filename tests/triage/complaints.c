/* malloc finds its heap damaged: complaints WAY. The file "said" names the culprit: "stale 0x..", a free block that
 * was written after it was freed; "over 0x..", a block that was written beyond its end; "under 0x..", one that was
 * written before its start; "gone 0x..", a stale one that malloc has returned since. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IS(name) (!strcmp(how, name))
static const char *how;
static void *volatile kept[64]; /* so that nothing leaks */
static void say(const char *what, void *block) {
    char line[64]; /* printf and dprintf may allocate */
    int file = open("said", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, line, snprintf(line, sizeof line, "%s %p\n", what, block)) < 0)
        exit(1);
}
/* No compiler may see what is wrong here. */
__attribute__((noinline)) static void put(void *volatile at, long word, uintptr_t value) {
    ((volatile uintptr_t *)at)[word] = value;
}
__attribute__((noinline)) static void release(void *block) { free(block); }
__attribute__((noinline)) static void *take(size_t size) { return kept[0] = malloc(size); }

static void large(void) {
    char *c = malloc(3000), *apart0 = malloc(2000), *d = malloc(4000), *e = malloc(4000), *f = malloc(4000), *g = malloc(4000),
         *guard = malloc(4000), *h = malloc(5200), *last = malloc(2000);
    kept[1] = c, kept[2] = apart0, kept[3] = e, kept[4] = g, kept[5] = last, kept[6] = guard;
    if (IS("unsorted")) { /* free() looks at the first chunk of the unsorted bin */
        release(d), say("stale", d), put(d, 1, (uintptr_t)e), release(f);
    } else if (IS("unsorted-behind")) { /* ... when it has unlinked the chunk behind */
        release(g), release(d), say("stale", d), put(d, 1, (uintptr_t)e), release(f);
    } else if (IS("unsorted-before")) { /* ... or the chunk before */
        release(e), put(f, 0, 7), release(c), say("stale", c), put(c, 1, (uintptr_t)e), release(f);
    } else if (IS("unsorted-footer")) { /* the freed block still has the size that an earlier free() wrote at its end */
        put(f, 4000 / 8, 4016), release(d), say("stale", d), put(d, 1, (uintptr_t)e), release(f);
    } else if (IS("unsorted-fd")) {
        release(d), say("stale", d), put(d, 0, (uintptr_t)e), take(6000);
    } else if (IS("unsorted-wild")) { /* free() traps: the chunk that it looks at is not mapped */
        release(d), say("stale", d), put(d, 1, 0x4141414141414140), take(6000);
    } else if (IS("double-linked")) {
        release(e), say("stale", e), put(e, 0, (uintptr_t)g), release(d);
    } else if (IS("double-linked-before")) {
        release(e), say("stale", e), put(e, 1, (uintptr_t)g), release(f);
    } else if (IS("large-bin")) {
        release(d), take(9000), say("stale", d), put(d, 3, (uintptr_t)e), put(d, 2, (uintptr_t)e), release(h), take(9000);
    } else if (IS("over-unsorted")) {
        release(e), say("over", d), memset(d, 'A', 4024), take(6000);
    } else if (IS("over-next")) {
        say("over", e), memset(e, 'A', 4024), release(e);
    } else if (IS("over-realloc")) {
        say("over", e), memset(e, 'A', 4024), kept[7] = realloc(e, 9000);
    } else if (IS("over-size")) { /* one zero byte: the size and PREV_INUSE of the next chunk */
        say("over", g), put(g, 4008 / 8, 0x1400), release(guard);
    }
}

static void small(size_t size, int fill) {
    void *many[40];
    for (int i = 0; i < 40; i++)
        many[i] = malloc(size), kept[20 + i] = malloc(24);
    for (int i = 0; i < fill; i++)
        release(many[i]);
    void *a = many[30], *b = many[32];
    if (IS("small-bin")) { /* free() looks at a small bin since 2.41, at the unsorted bin before */
        release(a), say("stale", a), put(a, 1, (uintptr_t)b), release(b);
    } else if (IS("small-bin-take")) {
        release(a), take(9000), say("stale", a), put(a, 1, (uintptr_t)b), take(9000);
        for (int i = 0; i < fill + 1; i++)
            kept[i] = malloc(size);
    } else if (IS("tcache")) { /* malloc returns the block, and then the word that was written into it */
        release(a), release(b), say("gone", b), put(b, 0, 0x4141414141414141), take(size), take(size);
    } else if (IS("fast-bin")) {
        release(a), release(b), say("gone", b), put(b, 0, 0x4141414141414141);
        for (int i = 0; i < fill + 1; i++)
            kept[i] = malloc(size);
        take(size), take(size);
    } else if (IS("over-fast")) {
        say("over", a), memset(a, 'A', size + 16), release(a);
    }
}

static void first(void) { /* the first block of the heap: the block before is malloc's own */
    char *block = malloc(IS("first-small") ? 24 : 2000), *next = malloc(2000);
    kept[1] = next;
    say("under", block);
    if (IS("first-text"))
        memcpy(block - 12, "a long name", 12);
    else if (IS("first-zero"))
        memset(block - 16, 0, 16);
    else
        put(block, -1, IS("first-larger") ? 0x1401 : IS("first-smaller") ? 0x701 : 0x4141414141414141), put(block, -2, IS("first") ? 0 : 7);
    release(block), release(next);
}

int main(int count, char **names) {
    how = names[count - 1];
    if (strstr(how, "first"))
        first();
    large();
    small(strstr(how, "fast") ? 40 : strstr(how, "small") ? 700 : 88, strstr(how, "tcache") ? 2 : 16); /* TCACHE_FILL_COUNT: 7, 16 since 2.42 */
    return 7;
}
