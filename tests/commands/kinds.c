/*
 * Memory as servers keep it, each kind in a variable of its own. Says on stdout how many bytes of blocks each has, and aborts.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 6000, FIRST = 300, ROW = 72, ROWS = 58000, PAGES = 20008 };

struct link {
	struct link *next;
	char name[248];
};
struct context {
	struct context *parent;
	long kind;
	const char *name;
	char *first;
};
struct node {
	struct node *before, *next;
	void *value;
};
struct list {
	struct node *head, *tail;
	void *hooks[3];
	long length;
};
struct reply {
	struct reply *next;
	char bytes[2040];
};
struct client {
	long number;
	struct list *replies;
	char state[700];
};
struct entry {
	char *key;
	void *value;
	struct entry *next;
};
struct job {
	struct job *next;
	long number;
	char line[200];
};
struct label {
	struct label *next;
	unsigned char text[104];
};
struct topic {
	struct topic *next;
	char *number, *reading;
};
struct magic {
	char magic[4];
	long size;
	struct label **entries;
	char others[64];
};

struct link *volatile startup;
char *volatile *volatile contexts;
char *volatile rows;
struct list *volatile clients;
struct entry *volatile *volatile table;
struct job *volatile jobs;
struct label *volatile labels;
struct magic *volatile second; /* another way to the labels: all that it has of a text is its magic number */
char **volatile sparse; /* a table whose entries follow no step */
struct topic *volatile topics;
char *volatile *volatile halves; /* blocks of five pages, of which the first alone was touched */
static unsigned long made;

static void *block(size_t size)
{
	void *found = calloc(1, size);
	made += malloc_usable_size(found);
	return found;
}

static void told(const char *name)
{
	printf("%s %lu\n", name, made);
	made = 0;
}

static void make_startup(void)
{
	struct link **end = (struct link **)&startup;
	for (int i = 0; i < FIRST + MANY; i++) {
		struct link *one = *end = block(sizeof *one);
		snprintf(one->name, sizeof one->name, i < FIRST ? "setting_%d" : "order-%d", i);
		end = &one->next;
	}
	told("startup");
}

/* Each context has a piece of memory that begins with a pointer to it. The names are constants. */
static void make_contexts(void)
{
	contexts = block(MANY / 4 * sizeof *contexts);
	for (int i = 0; i < MANY / 4; i++) {
		struct context *one = block(sizeof *one);
		one->name = i % 5 ? "Sort buffer" : "Plan of a query";
		one->first = contexts[i] = block(1500);
		*(struct context **)contexts[i] = one;
		memset(contexts[i] + 100, i, 900);
	}
	told("contexts");
}

static void make_rows(void)
{
	rows = block(ROWS * ROW);
	memset(rows, ' ', ROWS * ROW);
	for (int i = 0; i < ROWS; i++) {
		int length = sprintf(rows + i * ROW + 1, "cust-%06d", i + 100000);
		rows[i * ROW + 1 + length] = ' ';
		rows[i * ROW] = 1;
		memcpy(rows + i * ROW + 66, &i, 4);
	}
	told("rows");
}

static struct list *append(struct list *to, void *value)
{
	struct node *one = block(sizeof *one);
	one->value = value;
	one->before = to->tail;
	*(to->tail ? &to->tail->next : &to->head) = one;
	to->tail = one;
	to->length++;
	return to;
}

/* A list of one client, whose own list has the same size. */
static void make_clients(void)
{
	struct client *one = block(sizeof *one);
	one->replies = block(sizeof *one->replies);
	for (int i = 0; i < MANY / 4; i++) {
		char *reply = block(2000);
		memset(reply, 0x91, 2000);
		append(one->replies, reply);
	}
	clients = append(block(sizeof *clients), one);
	told("clients");
}

static void make_table(void)
{
	struct entry *one = block(sizeof *one);
	one->key = strcpy(block(20), "events:clicks");
	char **pages = one->value = block(MANY * sizeof *pages);
	for (int i = 0; i < MANY; i++)
		memset(pages[i] = block(600), 0x91, 600);
	table = block(64 * sizeof *table);
	table[17] = one;
	told("table");
}

static void make_jobs(void)
{
	for (int i = 0; i < MANY; i++) {
		struct job *one = block(sizeof *one);
		memset(one->line, 0x91, sizeof one->line);
		int length = sprintf(one->line, "resize image %06d\r\n", i);
		one->line[length] = 0x91;
		one->next = jobs;
		jobs = one;
	}
	told("jobs");
}

static void make_labels(void)
{
	second = block(sizeof *second);
	memcpy(second->magic, "PAEH", 4);
	second->entries = block(MANY * sizeof *second->entries);
	told("second");
	for (int i = 0; i < MANY; i++) {
		struct label *one = second->entries[i] = block(sizeof *one);
		memset(one->text, 0x91, sizeof one->text);
		one->text[0] = sprintf((char *)one->text + 1, "host-%05d", i);
		one->text[1 + one->text[0]] = 0x91;
		one->next = labels;
		labels = one;
	}
	told("labels");
}

static void make_sparse(void)
{
	sparse = block(8 * MANY * sizeof *sparse);
	for (long i = 0; i < MANY; i++) {
		char **slot = &sparse[i * 7919 % (8 * MANY)];
		sprintf(*slot = block(20), "session-%ld", i);
	}
	told("sparse");
}

static void make_topics(void)
{
	for (int i = 0; i < MANY; i++) {
		struct topic *one = block(sizeof *one);
		sprintf(one->number = block(100), "%d", 100000 + i);
		sprintf(one->reading = block(50), "reading of %d", i);
		one->next = topics;
		topics = one;
	}
	told("topics");
}

static void make_halves(void)
{
	halves = block(MANY / 4 * sizeof *halves);
	for (int i = 0; i < MANY / 4; i++) {
		halves[i] = malloc(PAGES);
		made += malloc_usable_size(halves[i]);
		memset(halves[i], 1, 100);
	}
	told("halves");
}

int main(void)
{
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	make_startup(), make_contexts(), make_rows(), make_clients(), make_table(), make_jobs(), make_labels();
	make_sparse(), make_topics(), make_halves();
	fflush(stdout);
	abort();
}
