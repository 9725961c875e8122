/*
 * Programs whose memory many variables lead to, as in servers: argv[1] says how. Each says on stdout how many bytes of blocks it
 * made, and how many there are, and aborts.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STATEMENTS = 9000, PLAN = 2000, ROOTS = 22, SLABS = 40, SLAB = 1 << 20, ITEM = 480, CONTEXTS = 30000, OUTSIDE = 40 << 20 };

struct statement {
	struct statement *next, *before;
	char name[32], plan[PLAN];
};
struct item {
	struct item *next;
	unsigned hash;
	char key[40]; /* it does not begin at a word */
};
struct context {
	char magic[4];
	int number;
	struct context *next;
	char owner[32];
};

/* Variables that do not lie side by side. They are initialized, so the linker's data_start lies before them. */
static struct {
	struct statement *volatile at;
	long apart[5];
} roots[ROOTS] = {{NULL, {1}}};
static struct item *volatile bucket[4096];
static char *volatile slab[SLABS];
static struct context *volatile contexts;
static unsigned long made, blocks;

static void *block(size_t size)
{
	void *found = calloc(1, size);
	made += malloc_usable_size(found);
	blocks++;
	return found;
}

static void statements(void)
{
	struct statement *first = NULL, *last = NULL;
	for (int i = 0; i < STATEMENTS; i++) {
		struct statement *one = block(sizeof *one);
		snprintf(one->name, sizeof one->name, "stmt_%d", i);
		if (last)
			last->next = one;
		else
			first = one;
		one->before = last;
		last = one;
	}
	first->before = last;
	last->next = first;
	for (int i = 0; i < ROOTS; i++) {
		roots[i].at = first;
		for (int step = 0; step < STATEMENTS / ROOTS; step++)
			first = first->next;
	}
}

static void slabs(void)
{
	unsigned number = 0;
	for (int i = 0; i < SLABS; i++) {
		slab[i] = block(SLAB);
		for (char *at = slab[i]; at + ITEM <= slab[i] + SLAB; at += ITEM) {
			struct item *one = (struct item *)at;
			unsigned place = number * 2654435761u >> 20;
			snprintf(one->key, sizeof one->key, "session:%d:%u", i, number++);
			one->next = bucket[place];
			bucket[place] = one;
		}
	}
}

static void magic(void)
{
	for (int i = 0; i < CONTEXTS; i++) {
		struct context *one = block(sizeof *one);
		memcpy(one->magic, "CmeM", 4);
		snprintf(one->owner, sizeof one->owner, "client-%d.example", i);
		one->next = contexts;
		contexts = one;
	}
}

/* Each variable has blocks of sizes of its own. */
static void spread(void)
{
	for (size_t i = 0; i < ROOTS; i++) {
		struct statement *last = NULL;
		for (int size = 0; size < 2000; size++) {
			last = memset(block(200 + 16 * (i + ROOTS * (size % 20))), 0, 200);
			last->next = roots[i].at;
			roots[i].at = last;
		}
	}
}

/* Most memory is no malloc's. */
static void outside(void)
{
	char *at = mmap(NULL, OUTSIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < OUTSIDE; i += 32)
		snprintf(at + i, 32, "a line of a log with its time...");
	printf("outside %lu\n", (unsigned long)at);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	if (!strcmp(how, "statements"))
		statements();
	if (!strcmp(how, "slabs"))
		slabs();
	if (!strcmp(how, "magic"))
		magic();
	if (!strcmp(how, "outside"))
		outside();
	if (!strcmp(how, "spread"))
		spread();
	printf("made %lu\nblocks %lu\n", made, blocks);
	fflush(stdout);
	abort();
}
