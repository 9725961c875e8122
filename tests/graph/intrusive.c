// Lists, trees and hash chains inside of objects, as in Linux and BSD, and values that are one of several things, as in JSON.
// Each block writes "TYPE|ADDRESS|USABLE" to the file "truth"; TYPE? may be unknown. Then the program dies.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list_head {
	struct list_head *next, *prev;
};
struct hash_node {
	struct hash_node *next, **pprev;
};
struct tree_node {
	unsigned long parent_and_color;
	struct tree_node *right, *left;
};
struct conn {
	struct hash_node hash;
	struct list_head packets;
	struct tree_node timer;
	char *host;
	int (*receive)(struct conn *);
};
struct packet { // the only struct that begins with a list_head
	struct list_head link;
	unsigned length;
	struct conn *conn;
	unsigned char data[];
};
struct value {
	int kind, references;
	union {
		char *text;
		struct {
			struct value **items;
			int count, room;
		} array;
		struct object *object;
		double number;
	} is;
};
struct object {
	int count;
	struct {
		char *key;
		struct value *value;
	} members[];
};
struct table {
	struct hash_node *buckets[64];
	struct tree_node *timers;
} table;
struct value *document;
static FILE *truth;

static void *told(const char *type, size_t size)
{
	void *block = calloc(1, size);
	fprintf(truth, "%s|%lu|%lu\n", type, (unsigned long)block, malloc_usable_size(block));
	return block;
}

static char *text(const char *type, const char *what, int number)
{
	char *block = told(type, 40);
	snprintf(block, 40, "%s number %d, as it is called", what, number);
	return block;
}

static int receive(struct conn *conn)
{
	return conn == 0;
}

static void add_conn(int number)
{
	struct conn *conn = told("struct conn", sizeof *conn);
	struct hash_node **bucket = &table.buckets[number % 64];
	conn->hash.next = *bucket;
	if (*bucket)
		(*bucket)->pprev = &conn->hash.next;
	*bucket = &conn->hash;
	conn->hash.pprev = bucket;
	struct tree_node **place = &table.timers, *parent = 0;
	for (unsigned way = number * 2654435761u; *place; way = way >> 1 | way << 31) {
		parent = *place;
		place = way & 1 ? &parent->right : &parent->left;
	}
	conn->timer.parent_and_color = (unsigned long)parent | (number & 1);
	*place = &conn->timer;
	conn->host = text("char[]", "host", number);
	conn->receive = receive;
	conn->packets.next = conn->packets.prev = &conn->packets;
	for (int i = 0; i < number % 4; i++) {
		int length = 100 + i * 50;
		struct packet *packet = told("struct packet", sizeof *packet + length);
		packet->length = length;
		packet->conn = conn;
		packet->link.next = &conn->packets;
		packet->link.prev = conn->packets.prev;
		conn->packets.prev->next = &packet->link;
		conn->packets.prev = &packet->link;
		memset(packet->data, 'x', length);
	}
}

// `last`: an array's last items may be words that are left over, and nothing need be known of what they lead to.
static struct value *make(int depth, int number, int last)
{
	struct value *value = told(last ? "struct value?" : "struct value", sizeof *value);
	value->references = 1;
	value->kind = depth ? 2 + number % 2 : number % 2;
	if (value->kind == 0) {
		value->is.text = text(last ? "char[]?" : "char[]", "value", number);
	} else if (value->kind == 1) {
		value->is.number = number * 1.5;
	} else if (value->kind == 2) {
		value->is.array.count = value->is.array.room = 6;
		value->is.array.items = told(last ? "struct value *[]?" : "struct value *[]", 6 * sizeof(void *));
		for (int i = 0; i < 6; i++)
			value->is.array.items[i] = make(depth - 1, number + i, last || i > 2);
	} else {
		struct object *object = told(last ? "struct object?" : "struct object", sizeof *object + 5 * sizeof object->members[0]);
		value->is.object = object;
		object->count = 5;
		for (int i = 0; i < 5; i++) {
			object->members[i].key = text(last ? "char[]?" : "char[]", "key", i);
			object->members[i].value = make(depth - 1, number * 5 + i + 1, last);
		}
	}
	return value;
}

int main(void)
{
	truth = fopen("truth", "w");
	for (int i = 0; i < 200; i++)
		add_conn(i);
	document = make(4, 1, 0);
	fclose(truth);
	abort();
}
