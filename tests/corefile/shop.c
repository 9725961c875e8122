/* A process in a container: it loses blocks of known sizes, says so, and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *kept[3];

__attribute__((noinline)) static void lose(int size, int count) {
    for (int i = 0; i < count; i++) {
        strcpy(malloc(size), "lost");
    }
}

__attribute__((noinline)) static void wait_for_the_end(void) {
    for (;;) {
        pause();
    }
}

int main(void) {
    lose(1000, 7);
    lose(3000, 2);
    for (int i = 0; i < 3; i++) {
        kept[i] = calloc(1, 700);
    }
    free(malloc(2000)); /* and what is in registers and on the stack is not a lost block any more */
    lose(40, 1);
    free(malloc(40));
    if (chdir("/out") != 0) {
        return 1;
    }
    puts("ready");
    fflush(stdout);
    wait_for_the_end();
}
