/*
 * Programs whose memory hangs on a part of a variable, is shared by an index and by one client, or lies in pools: argv[1] says how.
 * Each says on stdout how many blocks and usable bytes the part has, or where the client is and how many messages it has, and aborts.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 20000, USERS = 1500, BUCKETS = 4096, MESSAGES = 12000, CLIENTS = 20, FEW = 3, BILLING = 7 };
enum { POOLS = 12, POOL = 1 << 20, PLACE = 216, SHAPES = 3000 };

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
/* A text in an object that points to itself. */
struct object {
	unsigned long references;
	char *text;
	char own[32];
};
struct broker {
	struct message *store[BUCKETS];
	struct client *clients;
};

static struct service *volatile srv;
static struct broker *volatile broker;
static void *volatile kept[SHAPES];
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

/* A plain string, a domain name in wire format, or an object. */
static char *named(const char *how, int number)
{
	char name[32], domain[40];
	snprintf(name, sizeof name, number == BILLING ? "billing-worker-%d" : "reader-%d", number);
	if (!strcmp(how, "object")) {
		struct object *made = calloc(1, sizeof *made);
		made->references = 1;
		made->text = strcpy(made->own, name);
		return (char *)made;
	}
	snprintf(domain, sizeof domain, "%c%s%cexample", (int)strlen(name), name, 7);
	return strdup(!strcmp(how, "domain") ? domain : name);
}

/* Each message hangs on the store. One client has nodes that lead to nearly all of them; or each has as many. */
static void queued(const char *how)
{
	struct broker *made = calloc(1, sizeof *made);
	struct client *clients[CLIENTS];
	unsigned long count = 0;
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = calloc(1, sizeof **clients);
		clients[i]->name = named(how, i);
		clients[i]->next = made->clients;
		made->clients = clients[i];
	}
	for (int i = 0; i < MESSAGES; i++) {
		struct message *one = block(sizeof *one);
		one->number = i;
		snprintf(one->text, sizeof one->text, "order %d", i);
		one->next = made->store[i % BUCKETS];
		made->store[i % BUCKETS] = one;
		int to = !strcmp(how, "even") ? i % CLIENTS : i < CLIENTS * FEW ? i / FEW : BILLING;
		struct node *node = calloc(1, sizeof *node);
		node->message = one;
		node->next = clients[to]->queue;
		clients[to]->queue = node;
		count += to == BILLING;
	}
	broker = made;
	printf("client %lu\nqueue %lu\n", (unsigned long)clients[BILLING], count);
}

/* Every other place holds a record; or the bytes are a picture, whose rows repeat as well. */
static void pools(int picture)
{
	for (int i = 0; i < POOLS; i++) {
		unsigned char *at = kept[i] = block(POOL);
		for (int row = 0; picture && row < POOL; row++)
			at[row] = 128 + row % 1920 / 16 + row / 1920 % 5;
		for (int place = 0; !picture && (place + 1) * PLACE <= POOL; place++) {
			unsigned char *here = at + place * PLACE;
			if ((place * 2654435761u >> 16) % 2)
				continue;
			*(void **)here = at;
			*(unsigned long *)(here + 8) = place;
			*(double *)(here + 16) = 1.0 / (place + 3);
			snprintf((char *)here + 28, 40, "record:%d:%d", i, place);
		}
	}
}

/* A text is in one block of a hundred. */
static void chance(void)
{
	for (int i = 0; i < SHAPES; i++) {
		unsigned long *at = kept[i] = block(1000);
		at[3] = i * 2654435761u;
		if (i % 100 == 0)
			strcpy((char *)(at + 20), "left over");
	}
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
	if (!strcmp(how, "queued") || !strcmp(how, "domain") || !strcmp(how, "object") || !strcmp(how, "even"))
		queued(how);
	if (!strcmp(how, "pools") || !strcmp(how, "picture"))
		pools(!strcmp(how, "picture"));
	if (!strcmp(how, "chance"))
		chance();
	printf("blocks %lu\nbytes %lu\n", blocks, bytes);
	fflush(stdout);
	abort();
}
