/*
 * Programs whose memory hangs on a part of a variable, or is shared by an index and by one client: argv[1] says how. Each says on
 * stdout how many blocks and usable bytes the part has, and aborts.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 20000, USERS = 1500, BUCKETS = 4096, MESSAGES = 12000, CLIENTS = 20, FEW = 3 };

struct session {
	struct session *next;
	unsigned long number;
	char token[80];
};
struct server {
	unsigned long started;
	struct session *by_token[BUCKETS];
	struct session *by_name[BUCKETS];
};
struct cache {
	unsigned long hits;
	struct session **table;
	struct session *last;
};
struct service {
	const char *name;
	struct cache *cache;
	struct session *others;
	void (*on_end)(void);
};
struct message {
	struct message *next;
	unsigned long number;
	char text[80];
};
struct node {
	struct node *next;
	struct message *message;
	unsigned long flags;
};
struct client {
	struct client *next;
	char *name;
	struct node *queue;
	unsigned long state[40];
};
struct broker {
	struct message *store[BUCKETS];
	struct client *clients;
};

static struct service *volatile srv;
static struct broker *volatile broker;
static unsigned long blocks, bytes;

static void *block(size_t size)
{
	void *found = calloc(1, size);
	bytes += malloc_usable_size(found);
	blocks++;
	return found;
}

static void add(struct session **table, const char *kind, int number)
{
	struct session *one = block(sizeof *one);
	one->number = number;
	snprintf(one->token, sizeof one->token, "%s:%d", kind, number);
	one->next = table[number % BUCKETS];
	table[number % BUCKETS] = one;
}

void end_of_service(void)
{
	puts("end");
}

/* A local of main: one table of it has 93 of 100 sessions. */
static void local(void)
{
	struct server s = {1};
	for (int i = 0; i < USERS; i++)
		add(s.by_name, "user", i);
	blocks = bytes = 0;
	for (int i = 0; i < SESSIONS; i++)
		add(s.by_token, "token", i);
	printf("blocks %lu\nbytes %lu\n", blocks, bytes);
	fflush(stdout);
	asm volatile("" : : "r"(&s) : "memory");
	abort();
}

/* A variable leads to a block, that to another one, and its table to all sessions. */
static void pointers(void)
{
	struct service *made = calloc(1, sizeof *made);
	made->name = "service";
	made->on_end = end_of_service;
	made->cache = calloc(1, sizeof *made->cache);
	made->cache->table = block(BUCKETS * sizeof(void *));
	srv = made;
	for (int i = 0; i < SESSIONS; i++)
		add(made->cache->table, "token", i);
}

/* The nodes of a list are of one type: their links are no part of a name. */
static void list(void)
{
	struct service *made = calloc(1, sizeof *made);
	for (int i = 0; i < SESSIONS; i++)
		add(&made->others, "token", 0);
	srv = made;
}

/* Each message hangs on the store. One client has nodes that lead to nearly all of them; or each has as many. */
static void queued(int even)
{
	struct broker *made = calloc(1, sizeof *made);
	struct client *clients[CLIENTS];
	for (int i = 0; i < CLIENTS; i++) {
		char name[40];
		clients[i] = calloc(1, sizeof **clients);
		snprintf(name, sizeof name, i == 7 ? "billing-worker-%d" : "reader-%d", i);
		clients[i]->name = strdup(name);
		clients[i]->next = made->clients;
		made->clients = clients[i];
	}
	for (int i = 0; i < MESSAGES; i++) {
		struct message *one = block(sizeof *one);
		one->number = i;
		snprintf(one->text, sizeof one->text, "order %d", i);
		one->next = made->store[i % BUCKETS];
		made->store[i % BUCKETS] = one;
		struct client *to = even ? clients[i % CLIENTS] : i < CLIENTS * FEW ? clients[i / FEW] : clients[7];
		struct node *node = calloc(1, sizeof *node);
		node->message = one;
		node->next = to->queue;
		to->queue = node;
	}
	broker = made;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	if (!strcmp(how, "local"))
		local();
	if (!strcmp(how, "pointers"))
		pointers();
	if (!strcmp(how, "list"))
		list();
	if (!strcmp(how, "queued") || !strcmp(how, "even"))
		queued(!strcmp(how, "even"));
	printf("blocks %lu\nbytes %lu\n", blocks, bytes);
	fflush(stdout);
	abort();
}
