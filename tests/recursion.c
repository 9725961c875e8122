/* Overflow the stack: recursion HOW. "alone": a function that calls itself. "pair": two that call each other. "deep": a
 * hundred functions' worth of different frames, and a NULL pointer. `depth` counts the calls. */
#include <string.h>

volatile long depth;
static volatile long sink;
static int *volatile nowhere;

__attribute__((noinline, noclone)) long down(long n) {
    depth++;
    long result = down(n + 1);
    sink = result;
    return result + n;
}

__attribute__((noinline, noclone)) long odd(long n);

__attribute__((noinline, noclone)) long even(long n) {
    char room[64];
    memset(room, (int)n, sizeof room);
    depth++;
    long result = odd(n + room[n % 64]);
    sink = result;
    return result + n;
}

__attribute__((noinline, noclone)) long odd(long n) {
    depth++;
    long result = even(n + 1);
    sink = result;
    return result - n;
}

/* Frames of different sizes do not repeat. */
__attribute__((noinline, noclone)) long uneven(long n) {
    char room[16 + (n * n * 48) % 1024];
    memset(room, (int)n, sizeof room);
    depth++;
    if (n == 400)
        *nowhere = 1;
    long result = uneven(n + 1) + room[0];
    sink = result;
    return result;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "alone") == 0)
        return (int)down(1);
    return (int)(strcmp(argv[1], "pair") == 0 ? even(1) : uneven(1));
}
