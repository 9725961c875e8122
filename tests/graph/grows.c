/*
 * A list that grows from core to core, beside one that does not: `grows STEP`. Linked statically, malloc's own data comes
 * before the heap in a core, so that a cut core has some of the heap. The program dies after that many steps.
 */
#include <stdlib.h>

struct node {
	struct node *next;
	long content[7];
};
static struct node *cache, *lost;

static void add(struct node **list, int count)
{
	while (count-- > 0) {
		struct node *node = calloc(1, sizeof *node);
		node->next = *list;
		*list = node;
	}
}

int main(int argc, char **argv)
{
	add(&cache, 20000);
	add(&lost, argc > 1 ? 30000 * atoi(argv[1]) : 0);
	abort();
}
