// Words that are left over in large blocks and behind texts, and pointers that look like such words and are none. Each
// variable is one owner. `entries` and `named` are in a list of another owner, too.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 3000, BLOCKS = 100, PIECE = 4096, ENTRIES = 5, HOLDERS = 5000, TEXTS = 100, NAMES = 200 };

struct link {
	struct link *next;
};
// Nodes of three sizes.
static struct link *volatile first, *volatile second, *volatile third;
// Blocks of numbers, with a few words that lead to nodes.
static long **volatile pieces;
// Tables with a few entries each, and the list of all entries.
static struct link ***volatile tables, *volatile recent;
// Structures, and their values.
struct holder {
	struct holder *next;
	long numbers[3];
	long *value; // at +32
	long more;
};
static struct holder *volatile holders;
static long **volatile others;
static char **volatile texts;
// An array whose elements begin with a short text, and the list of what they lead to.
struct named {
	char name[24];
	struct link *value;
	long number;
};
static struct named *volatile names;
static struct link *volatile values;

static struct link *pushed(struct link *volatile *list, size_t size)
{
	struct link *made = calloc(1, size);
	made->next = *list;
	return *list = made;
}

int main(void)
{
	static const size_t sizes[3] = {200, 136, 88};
	static struct link *volatile *const lists[3] = {&first, &second, &third};
	static struct link *nodes[3][NODES];
	for (int i = 0; i < NODES; i++)
		for (int k = 0; k < 3; k++)
			nodes[k][i] = pushed(lists[k], sizes[k]);
	pieces = malloc(BLOCKS * sizeof *pieces);
	tables = malloc(BLOCKS * sizeof *tables);
	for (int i = 0; i < BLOCKS; i++) {
		pieces[i] = calloc(1, PIECE);
		for (int k = 0; k < PIECE / 16; k++)
			pieces[i][2 * k] = k;
		for (int k = 0; k < 3; k++)
			pieces[i][1 + 2 * (random() % (PIECE / 16))] = (long)nodes[k][random() % NODES];
		tables[i] = calloc(1, PIECE - 512);
		for (int k = 0; k < ENTRIES; k++)
			tables[i][k * 80 + random() % 40] = pushed(&recent, 104);
	}
	for (int i = 0; i < HOLDERS; i++) {
		struct holder *made = calloc(1, sizeof *made);
		made->next = holders;
		holders = made;
		made->value = calloc(1, 72);
	}
	others = malloc(TEXTS * sizeof *others);
	texts = malloc(TEXTS * sizeof *texts);
	for (int i = 0; i < TEXTS; i++) {
		others[i] = calloc(1, 72);
		texts[i] = calloc(1, sizeof(struct holder));
		strcpy(texts[i], "a text of some length");
		memcpy(texts[i] + 32, &others[i], sizeof others[i]);
	}
	names = calloc(NAMES, sizeof *names);
	for (int i = 0; i < NAMES; i++) {
		snprintf(names[i].name, sizeof names[i].name, "number %d of all", i + 1000);
		names[i].value = pushed(&values, 168);
	}
	memset(nodes, 0, sizeof nodes);
	asm volatile("" : : "r"(nodes) : "memory"); // or the compiler leaves that out
	abort();
}
