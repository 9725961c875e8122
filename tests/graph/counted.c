// Arrays of numbers whose holder counts them, strings behind headers, and what an allocator leaves behind the end of an array.
// The file "truth" is as in typed.c.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *truth;

static void *told(const char *type, void *block) {
    fprintf(truth, "%s|%zu|%zu\n", type, (size_t)block, malloc_usable_size(block));
    return block;
}

// An array of numbers, and the object that knows how many there are.
struct fired {
    int fd, mask;
};
struct loop {
    void *data;
    int highest, room;
    struct fired *fired;
} loop;

// A header with something else behind it: the number beside the pointer is not a count.
struct packet {
    int number;
    struct fired *head;
} packet;

// More elements than a signed byte can count.
struct node {
    struct node *self;
    long number[3];
};
struct node *table[200];

// Strings that know their length. Their pointers lead to the text, and have no type.
struct __attribute__((packed)) string {
    unsigned char length, room;
    unsigned char flags;
    char text[];
};
void *strings[60], *plain[60];
struct string *last;

// The word behind this array belongs to nobody.
char **arguments;

static void string(int i) {
    char text[80];
    int length = snprintf(text, sizeof text, "a text with the number %d%.*s", i, i % 30, "..............................");
    struct string *made = told("struct string", malloc(sizeof *made + length + 1));
    made->length = made->room = (unsigned char)length;
    made->flags = 1;
    memcpy(made->text, text, length + 1);
    strings[i] = made->text;
    char *other = told("char[]?", malloc(1 + length + 1));
    other[0] = 8;
    memcpy(other + 1, text, length + 1);
    plain[i] = other + 1;
}

int main(void) {
    truth = fopen("truth", "w");
    loop.room = 1000;
    loop.highest = 12;
    loop.fired = told("struct fired[]", calloc(loop.room, sizeof *loop.fired));
    for (int i = 0; i < 12; i++)
        loop.fired[i] = (struct fired){i, 1};
    packet.number = 5;
    packet.head = told("-", calloc(1, sizeof *packet.head + 300));
    memset(packet.head + 1, 0x11, 300);
    for (int i = 0; i < 200; i++) {
        table[i] = told("struct node", calloc(1, sizeof *table[i]));
        table[i]->self = table[i];
    }
    for (int i = 0; i < 60; i++)
        string(i);
    arguments = told("char*[]", malloc(8 * sizeof *arguments));
    for (int i = 0; i < 8; i++)
        arguments[i] = told(i < 6 ? "char[]" : "char[]?", strdup("an argument of the program"));
    // glibc gives 72 bytes for 64: the last strings may be left over as well.
    long *numbers = told("long[]?", malloc(56));
    for (int i = 0; i < 7; i++)
        numbers[i] = -i - 1;
    if (malloc_usable_size(arguments) >= 9 * sizeof *arguments)
        arguments[8] = (char *)numbers;
    fclose(truth);
    abort();
}
