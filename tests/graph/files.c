// A tree whose nodes know their parents, and files that are opened in memory which had pointers into the tree: fopen() does not
// clear all of a FILE, nor its buffer. The file "truth" gets the usable bytes and the number of the tree's blocks.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
	struct node *left, *right, *parent;
	long key;
};
static struct node *root, *nodes[2048];
static FILE *files[4];
static size_t bytes, count;

static struct node *grow(int depth, struct node *parent)
{
	if (depth == 0)
		return NULL;
	struct node *node = malloc(sizeof *node);
	bytes += malloc_usable_size(node);
	nodes[count++] = node;
	node->parent = parent;
	node->key = depth;
	node->left = grow(depth - 1, node);
	node->right = grow(depth - 1, node);
	return node;
}

int main(void)
{
	root = grow(10, NULL);
	void *held[8];
	for (int i = 0; i < 8; i++) { // the sizes of a FILE and of its buffer
		size_t size = i < 4 ? 472 : 4096;
		struct node **block = held[i] = malloc(size);
		malloc(24); // no two of them become one
		for (size_t word = 0; word < size / sizeof *block; word++)
			block[word] = nodes[(word * 7 + i) % count];
	}
	for (int i = 0; i < 8; i++)
		free(held[i]);
	FILE *truth = fopen("truth", "w");
	fprintf(truth, "%zu %zu\n", bytes, count);
	fclose(truth);
	for (int i = 0; i < 4; i++) {
		files[i] = fopen("/dev/null", "w");
		fprintf(files[i], "x");
	}
	for (size_t i = 0; i < count; i++)
		nodes[i] = NULL;
	for (int i = 0; i < 8; i++)
		held[i] = NULL;
	abort();
}
