/*
 * Queues of messages, to which an array of all leads as well: each node of a queue dominates the next, and no node a message. Of one
 * queue the array lies before it, of the other behind it. Says on stdout how many messages each has, and aborts.
 */
#include <stdio.h>
#include <stdlib.h>

enum { MANY = 300000 };

struct node {
	struct node *next;
	long *message;
};

struct node *queue_1;
long **all_1, **all_2;
struct node *queue_2;

static void fill(struct node **queue, long ***all)
{
	long **index = *all = malloc(MANY * sizeof *index);
	for (int i = 0; i < MANY; i++) {
		struct node *one = *queue = malloc(sizeof *one);
		one->message = index[i] = malloc(sizeof *one->message);
		*one->message = i % 100;
		one->next = NULL;
		queue = &one->next;
	}
}

int main(void)
{
	fill(&queue_1, &all_1);
	fill(&queue_2, &all_2);
	printf("%d\n", MANY);
	fflush(stdout);
	abort();
}
