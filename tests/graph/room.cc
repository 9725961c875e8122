// A vector with room behind its elements, in memory that held an array of pointers before: `room global` (a variable),
// `room member` (of a block). The words in the room lead to the elements of `others`. `room parser`: an array that two
// variables share in part, and a local that has read some of it. Writes "NAME BYTES BLOCKS" for each variable to the file
// "truth", and dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <vector>

struct Job {
	long number;
	char text[40];
};
struct Owner {
	long number;
	std::vector<Job *> jobs;
};

static std::list<Job> others;
static std::vector<Job *> jobs;
static Owner *volatile owner;

static Job **volatile table, **volatile second;

enum { ROOM = 4096, USED = 1100 };

// Frees an array of pointers to elements of `others`, between blocks that stay.
static void leave()
{
	void *before = malloc(200);
	void **old = static_cast<void **>(malloc(ROOM * sizeof *old));
	void *behind = malloc(200);
	auto each = others.begin();
	for (int i = 0; i < ROOM; i++, ++each)
		old[i * 7 % ROOM] = &*each;
	asm volatile("" : : "r"(old) : "memory"); // or the compiler leaves the stores before free() out
	free(old);
	free(before);
	free(behind);
}

struct Sum {
	long bytes, blocks;
	void add(const void *block)
	{
		bytes += malloc_usable_size(const_cast<void *>(block));
		blocks++;
	}
};

static Sum fill(std::vector<Job *> &made, const void *holder)
{
	Sum sum = {};
	leave();
	made.reserve(ROOM);
	for (int i = 0; i < USED; i++) {
		made.push_back(new Job{i, {}});
		sum.add(made.back());
	}
	sum.add(made.data());
	if (holder != nullptr)
		sum.add(holder);
	return sum;
}

static void parse(FILE *file)
{
	Sum shared = {}, first = {}, other = {};
	Job **all = table = static_cast<Job **>(calloc(ROOM, sizeof *all));
	Job **half = second = static_cast<Job **>(calloc(ROOM, sizeof *half));
	first.add(all);
	other.add(half);
	for (int i = 0; i < ROOM; i++) {
		all[i] = new Job{i, {}};
		(i < ROOM / 2 ? first : shared).add(all[i]);
		if (i >= ROOM / 2)
			half[i] = all[i];
	}
	fprintf(file, "table %ld %ld\nsecond %ld %ld\n", first.bytes, first.blocks, other.bytes, other.blocks);
	fprintf(file, "shared %ld %ld\n", shared.bytes, shared.blocks);
	Job **volatile reader[3] = {all, all + 10, all + ROOM};
	asm volatile("" : : "r"(reader) : "memory");
	abort();
}

int main(int, char **argv)
{
	FILE *file = fopen("truth", "w");
	setvbuf(file, nullptr, _IONBF, 0);
	if (strcmp(argv[1], "parser") == 0)
		parse(file);
	others.resize(5000);
	Sum sum = {};
	for (auto &each : others)
		sum.add(reinterpret_cast<char *>(&each) - 2 * sizeof(void *));
	fprintf(file, "others %ld %ld\n", sum.bytes, sum.blocks);
	bool global = strcmp(argv[1], "global") == 0;
	if (!global)
		owner = new Owner();
	sum = fill(global ? jobs : owner->jobs, owner);
	fprintf(file, "%s %ld %ld\n", global ? "jobs" : "owner", sum.bytes, sum.blocks);
	abort();
}
