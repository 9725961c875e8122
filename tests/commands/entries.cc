/* Containers whose entries have names. Of 200 entries, one has nearly all of the memory: that of NAMED. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
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

static void fill(struct entry *made, int count, int number)
{
	for (int i = 0; i < count; i++) {
		struct item *one = (struct item *)malloc(item_size);
		snprintf(one->text, item_size - sizeof one->next, "item %d of %d", i, number);
		one->next = made->items;
		made->items = one;
	}
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
			fill(made, count, number);
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
