/* A record is used after it was freed, in the way that argv[1] names (or freed again: "twice" WAY). Its words are 'A' by then. malloc merges most of
 * them with free neighbours, which other functions made and freed. AddressSanitizer says of the same program who had it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rec {
    long pad[4];
    struct rec *peer;
    char text[];
};
#define APART __attribute__((noinline, optimize("no-optimize-sibling-calls")))

APART static struct rec *make_rec(size_t size) {
    struct rec *rec = malloc(size);
    return memset(rec, 'A', size);
}
APART static void drop_rec(struct rec *rec) { free(rec); }
APART static struct rec *grow_rec(struct rec *rec) { return realloc(rec, 90000); }
APART static void *make_note(size_t size) { return memset(malloc(size), 'n', size); }
APART static void drop_note(void *note) { free(note); }
APART static long use(struct rec *rec) { return rec->peer->pad[3]; }

int main(int count, char **names) {
    const char *how = names[count - 1];
    int small = !strcmp(how, "tcache"), fast = !strcmp(how, "fastbin"), mapped = !strcmp(how, "mapped");
    size_t size = small || fast ? 88 : mapped ? 400000 : 3000;
    void *before = make_note(2000);
    struct rec *rec = make_rec(size);
    void *after = make_note(1500), *last = make_note(1700), *keeper = NULL, *others[7];
    if (strcmp(how, "top"))
        keeper = make_note(200);
    for (int i = 0; fast && i < 7; i++)
        others[i] = make_note(size);
    if (!strcmp(how, "backward") || !strcmp(how, "both"))
        drop_note(before);
    if (!strcmp(how, "forward") || !strcmp(how, "both") || !strcmp(how, "top"))
        drop_note(after);
    for (int i = 0; fast && i < 7; i++)
        drop_note(others[i]);
    if (!strcmp(how, "moved"))
        grow_rec(rec);
    else
        drop_rec(rec);
    if (!strcmp(how, "later")) {
        drop_note(before);
        drop_note(after);
    }
    if (!strcmp(how, "top"))
        drop_note(last);
    if (names[1] != how)
        drop_rec(rec); /* once more, and not a use */
    return use(rec) + (keeper != NULL);
}
