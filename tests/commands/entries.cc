/* Containers whose entries have names. Of 200 entries, one has nearly all of the memory: that of NAMED. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>

struct Session {
	std::vector<std::string> log;
};
struct item {
	struct item *next;
	char text[40];
};
struct entry {
	struct entry *next;
	char *key;
	struct item *items;
};
/* A page at an address that is the text "@@AAAA": with a chunk of its own before the key, or in the entry. */
struct slot {
	void *page;
	long count;
};
struct with_slot {
	struct with_slot *next;
	struct slot *slot;
	char *key;
	struct item *items;
};
struct with_page {
	struct with_page *next;
	void *page;
	char key[40];
	struct item *items;
};

enum { ENTRIES = 200, NAMED = 77, FEW = 5, MANY = 60000, EVEN = 300 };

std::unordered_map<std::string, Session> by_name;
std::map<std::string, Session> sorted;
struct entry *table[64];
static size_t item_size = sizeof(struct item);

static struct entry *add(const std::string &name, int number)
{
	struct entry *made = (struct entry *)malloc(sizeof *made);
	made->key = strdup(name.c_str());
	made->items = nullptr;
	made->next = table[number % 64];
	table[number % 64] = made;
	return made;
}

static void fill(struct item **items, int count, int number)
{
	for (int i = 0; i < count; i++) {
		struct item *one = (struct item *)malloc(item_size);
		snprintf(one->text, item_size - sizeof one->next, "item %d of %d", i, number);
		one->next = *items;
		*items = one;
	}
}

static void *page()
{
	static char *mapped;
	if (!mapped)
		mapped = (char *)mmap((void *)0x414141414000, 4096, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (mapped == MAP_FAILED)
		exit(1);
	mapped[0x40] = 1;
	return mapped + 0x40;
}

static void add_with_address(bool inside, const std::string &name, int number, int count)
{
	void *made;
	struct item **items;
	if (inside) {
		struct with_page *one = (struct with_page *)calloc(1, sizeof *one);
		one->next = (struct with_page *)table[number % 64];
		one->page = page();
		strcpy(one->key, name.c_str());
		made = one;
		items = &one->items;
	} else {
		struct with_slot *one = (struct with_slot *)calloc(1, sizeof *one);
		one->next = (struct with_slot *)table[number % 64];
		one->slot = (struct slot *)calloc(1, sizeof *one->slot);
		one->slot->page = page();
		one->key = strdup(name.c_str());
		made = one;
		items = &one->items;
	}
	table[number % 64] = (struct entry *)made;
	if (number == NAMED)
		printf("entry %p\n", made);
	fill(items, count, number);
}

int main(int, char **argv)
{
	std::string how = argv[1];
	if (how == "same-size")
		item_size = sizeof(struct entry);
	for (int number = 0; number < ENTRIES; number++) {
		std::string name = "tenant-" + std::to_string(number);
		if (how == "long")
			name += "-whose-name-is-no-short-one";
		int count = how == "even" ? EVEN : number == NAMED ? MANY : FEW;
		if (how == "chained" || how == "same-size") {
			struct entry *made = add(name, number);
			if (number == NAMED)
				printf("entry %p\n", (void *)made);
			fill(&made->items, count, number);
			continue;
		}
		if (how == "slot" || how == "page") {
			add_with_address(how == "page", name, number, count);
			continue;
		}
		Session &session = how == "map" ? sorted[name] : by_name[name];
		if (number == NAMED)
			printf("entry %p\n", (void *)&session);
		for (int i = 0; i < count; i++)
			session.log.push_back("POST /orders/" + std::to_string(i) + " of " + std::to_string(number));
	}
	fflush(stdout);
	abort();
}
