/* Maps a file (its first argument) in many ways, says which mappings it has lost, and aborts. "kept" as the second
 * argument: it loses none. Libraries map files, too: the locale's, those of iconv, a library that is loaded later. */
#include <dlfcn.h>
#include <fcntl.h>
#include <iconv.h>
#include <locale.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
static int file, loses;
static char *in_data, *inside[4], *volatile deep;
static struct box {
    struct box *next;
    char *map;
} *boxes;

static char *map(size_t pages, int prot, int flags, size_t from) {
    char *at = mmap(NULL, pages * PAGE, prot, flags, file, (off_t)(from * PAGE));
    if (at == MAP_FAILED)
        exit(3);
    return at;
}

static void say(const char *name, const char *at, size_t pages) {
    printf("%s %lx %lu\n", loses || strncmp(name, "lost", 4) ? name : "kept", (unsigned long)at, pages * PAGE);
}

static void keep(char *at) {
    struct box *box = malloc(sizeof *box);
    *box = (struct box){boxes, at};
    boxes = box;
}

/* A mapping that is lost, unless the program loses none. */
static __attribute__((noinline)) void lose(size_t pages, int prot, int flags, size_t from) {
    char *at = map(pages, prot, flags, from);
    if (prot & PROT_WRITE)
        at[8] = 1;
    say("lost", at, pages);
    if (!loses)
        keep(at);
}

static __attribute__((noinline)) void hold(void) {
    for (size_t i = 0; i < 5; i++) {
        char *at = map(3 + i, PROT_READ, MAP_PRIVATE, i);
        say("kept", at, 3 + i);
        keep(at);
    }
    for (size_t i = 0; i < 4; i++) {
        inside[i] = map(9, PROT_READ, MAP_SHARED, i);
        say("kept", inside[i], 9);
        inside[i] += 5 * PAGE + 7;
    }
    in_data = map(2, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
    say("kept", in_data, 2);
    /* one mapping of the file holds the next */
    deep = map(2, PROT_READ | PROT_WRITE, MAP_PRIVATE, 1);
    char *next = map(2, PROT_READ, MAP_PRIVATE, 3);
    *(char **)(deep + 64) = next + PAGE;
    say("kept", deep, 2);
    say("kept", next, 2);
}

static __attribute__((noinline)) void wipe(void) {
    volatile char stack[16384];
    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = 0;
}

int main(int count, char **words) {
    file = open(words[1], O_RDWR);
    loses = count < 3 || strcmp(words[2], "kept") != 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setlocale(LC_ALL, "C.UTF-8");
    iconv_t converts = iconv_open("UTF-16", "ISO-8859-15");
    void *library = dlopen("libresolv.so.2", RTLD_NOW);
    hold();
    for (size_t i = 0; i < 6; i++) {
        lose(2 + i, PROT_READ, MAP_PRIVATE, i);
        lose(3 + i, PROT_READ | PROT_WRITE, MAP_PRIVATE, i);
        lose(4 + i, PROT_READ | PROT_WRITE, MAP_SHARED, i);
    }
    wipe();
    fflush(stdout);
    if (!library || converts == (iconv_t)-1 || !boxes || !in_data)
        return 2;
    abort();
}
