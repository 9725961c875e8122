/*
 * Programs that hold much memory, and of which one core cannot tell whether it is too much: argv[1] says how. Each says on
 * stdout what it holds, as "NAME VALUE" lines, and aborts.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, ENTRIES = 6000, REQUESTS = 20000, SLOTS = 1500000 };

struct entry {
	struct entry *next;
	char key[40], value[200];
};
struct cache {
	struct entry *bucket[64];
	long count;
};
struct request {
	struct request *next;
	char *body;
	int id;
};
struct slot {
	long key, value;
};

static __thread struct cache mine;
static struct request *head;
static struct slot *volatile table;
static pthread_barrier_t filled;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static unsigned long held;

static void fill(struct cache *cache, long thread)
{
	for (int i = 0; i < ENTRIES; i++) {
		struct entry *made = calloc(1, sizeof *made);
		snprintf(made->key, sizeof made->key, "thread%ld:key:%d", thread, i);
		snprintf(made->value, sizeof made->value, "<value of %d>", i);
		made->next = cache->bucket[i % 64];
		cache->bucket[i % 64] = made;
		cache->count++;
		pthread_mutex_lock(&turn);
		held += malloc_usable_size(made);
		pthread_mutex_unlock(&turn);
	}
}

static void *with_thread_local(void *thread)
{
	fill(&mine, (long)thread);
	pthread_barrier_wait(&filled);
	pause();
	return NULL;
}

static void *with_local(void *thread)
{
	struct cache local = {0};
	fill(&local, (long)thread);
	pthread_barrier_wait(&filled);
	asm volatile("" : : "r"(&local) : "memory");
	pause();
	asm volatile("" : : "r"(&local) : "memory");
	return NULL;
}

static void start(void *(*work)(void *))
{
	pthread_t thread;
	pthread_barrier_init(&filled, NULL, THREADS + 1);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, work, (void *)i);
	pthread_barrier_wait(&filled);
}

static void enqueue(int count)
{
	struct request **end = &head;
	for (int i = 0; i < count; i++) {
		struct request *made = calloc(1, sizeof *made);
		made->body = malloc(400);
		memset(made->body, 'x', 399);
		made->body[399] = 0;
		made->body[snprintf(made->body, 400, "POST /orders/%d HTTP/1.1", i)] = ' ';
		made->id = i;
		held += malloc_usable_size(made) + malloc_usable_size(made->body);
		*end = made;
		end = &made->next;
	}
	printf("head %p\n", (void *)head);
}

static void buffer(int count, long size)
{
	for (int i = 0; i < count; i++) {
		struct request *made = calloc(1, sizeof *made);
		made->body = memset(malloc(size), 'b', size);
		made->next = head;
		head = made;
		held += malloc_usable_size(made) + malloc_usable_size(made->body);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	if (!strcmp(how, "thread-local"))
		start(with_thread_local);
	if (!strcmp(how, "local"))
		start(with_local);
	if (!strcmp(how, "queue"))
		enqueue(argc > 2 ? atoi(argv[2]) : REQUESTS);
	if (!strcmp(how, "buffers"))
		buffer(atoi(argv[2]), atol(argv[3]));
	if (!strcmp(how, "reserved") || !strcmp(how, "full")) {
		table = calloc(SLOTS, sizeof *table);
		for (int i = 0; i < (how[0] == 'f' ? SLOTS : 1000); i++)
			table[i].key = i + 1;
		printf("table %p\n", (void *)table);
	}
	printf("held %lu\n", held);
	fflush(stdout);
	abort();
}
