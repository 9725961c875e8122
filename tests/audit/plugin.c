/* A library that is loaded and unloaded in turn with one of another frame layout. So the same addresses hold different
 * code. */
#ifndef ROOM
#define ROOM 40
#endif

static void __attribute__((noinline)) inner(void (*back)(int), int n) {
    volatile char room[ROOM];
    room[0] = (char)n;
    back(n + room[0]);
    room[1] = room[0];
}

void plugin_call(void (*back)(int), int n) {
    volatile char room[ROOM * 3];
    room[0] = (char)n;
    inner(back, n);
    inner(back, n + 1);
    room[1] = room[0];
}
