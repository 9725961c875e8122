/* Die while malloc cuts a block from the top chunk: cut_top FILE MODE. The new top chunk begins on a page that cannot be
 * written, so malloc faults where it would write the header. The handler gives the page back and leaves a signal behind
 * that ends the process when it returns: at that instruction. The file tells what was true before, and what malloc will
 * return. The modes: "main", "thread" (the arena of a thread), "zeroed" (no cut: zeros over the size of the top chunk). */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, WORD = sizeof(void *) };
static char *page;
static FILE *file;
static void *volatile kept[8];

static void tell(const char *what, unsigned long value) { fprintf(file, "%s %#lx\n", what, value); }

static void handler(int number) {
    (void)number;
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    raise(SIGABRT);
}

static void *cut(void *mode) {
    char text[BUFSIZ];
    setvbuf(file, text, _IOFBF, sizeof text);
    for (int i = 0; i < 7; i++)
        kept[i] = memset(malloc(3000), 1, 3000);
    char *last = kept[6];
    volatile size_t *field = (size_t *)(last + malloc_usable_size(last));
    char *top = (char *)field - WORD;
    page = (char *)(((uintptr_t)top + 64 + PAGE) & ~(uintptr_t)(PAGE - 1));
    size_t taken = page + 256 - top;
    if (!strcmp(mode, "zeroed"))
        taken = 0;
    tell("top", (unsigned long)(top + taken));
    tell("top_bytes", (*field & ~(size_t)7) - taken);
    tell("block", (unsigned long)(top + 2 * WORD));
    tell("usable", taken - WORD);
    fflush(file);
    if (!taken) {
        *field = 0;
        abort();
    }
    struct sigaction action = {.sa_handler = handler};
    sigaddset(&action.sa_mask, SIGABRT);
    sigaction(SIGSEGV, &action, NULL);
    mprotect(page, PAGE, PROT_NONE);
    kept[7] = malloc(taken - WORD);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 3)
        return 2;
    file = fopen(argv[1], "w");
    if (!strcmp(argv[2], "thread")) {
        pthread_create(&thread, NULL, cut, argv[2]);
        pthread_join(thread, NULL);
    } else {
        cut(argv[2]);
    }
    return 3;
}
