// Blocks that nobody writes, or only in part, in memory that had arrays of objects with vtables before. Each block in use writes
// "TYPE|ADDRESS|USABLE" to the file "truth"; "-" has no type. `unwritten SEED`: other sizes. Then the program dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

static FILE *truth;
static void *kept[1 << 14];
static int count;
static unsigned seed;

static unsigned random_below(unsigned most)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % most;
}

static void *keep(const char *type, void *block)
{
	fprintf(truth, "%s|%lu|%lu\n", type, (unsigned long)block, malloc_usable_size(block));
	return kept[count++] = block;
}

namespace zoo {
struct Plain {
	virtual void f() {}
	long a = 1;
};
struct Derived : Plain {
	void f() override {}
	long b = 2;
};
struct Shared : virtual Plain {
	void f() override {}
	long c = 3;
};
struct Deleted {
	virtual ~Deleted() {}
	long d = 4;
};
struct Larger : Deleted {
	long e[5] = {};
};
struct Small {
	virtual int area() { return 1; }
	int width, height;
};
} // namespace zoo
using namespace zoo;

static std::vector<Shared> all_shared;
static std::vector<Small> all_small;

static void leave_arrays()
{
	std::vector<Shared> shared(50 + random_below(400));
	std::vector<Small> small(50 + random_below(900));
	std::vector<Deleted> deleted(50 + random_below(300));
	std::vector<Derived> derived(30 + random_below(300));
	std::vector<Larger> larger(30 + random_below(200));
	asm volatile("" : : "r"(shared.data()), "r"(small.data()), "r"(deleted.data()), "r"(derived.data()) : "memory");
}

static void leave_objects()
{
	std::vector<void *> gone;
	for (int i = 0; i < 300; i++) {
		gone.push_back(malloc(48 + random_below(200)));
		if (i % 3)
			new (gone.back()) Derived;
		else
			new (gone.back()) Shared;
	}
	for (void *each : gone)
		free(each);
}

static void leave_unwritten()
{
	static const size_t sizes[] = {24, 40, 56, 72, 88, 104, 152, 200};
	for (size_t size : sizes) {
		if (random_below(3))
			continue;
		size -= random_below(8);
		char *block = static_cast<char *>(keep("-", malloc(size)));
		switch (random_below(3)) {
		case 0:
			block[0] = 0; // an empty text
			break;
		case 1:
			block[size - 1] = 1;
		}
	}
}

int main(int, char **argv)
{
	seed = atoi(argv[1]);
	truth = fopen("truth", "w");
	for (int round = 0; round < 12; round++) {
		leave_arrays();
		leave_objects();
		for (int i = 0; i < 25; i++) {
			keep("zoo::Derived", new Derived);
			keep("zoo::Shared", new Shared);
			keep("zoo::Deleted", new Deleted);
			keep("zoo::Larger", new Larger);
			keep("zoo::Small", new Small);
			leave_unwritten();
		}
	}
	all_shared.resize(1000);
	keep("zoo::Shared[]", all_shared.data());
	all_small.resize(1000);
	keep("zoo::Small[]", all_small.data());
	fclose(truth);
	abort();
}
