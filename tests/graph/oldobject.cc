// Blocks that nobody writes, in memory that had an array of objects with vtables before: some begin where an object did. Each block
// writes "TYPE|ADDRESS|USABLE" to the file "truth". Then the program dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static FILE *truth;

static void tell(const char *type, void *block)
{
	fprintf(truth, "%s|%lu|%zu\n", type, (unsigned long)block, malloc_usable_size(block));
}

namespace zoo {
struct Plain {
	virtual ~Plain() {}
	long a = 1;
};
struct Derived : Plain {
	long b = 2;
};
} // namespace zoo
using namespace zoo;

static std::vector<char *> characters;
static std::vector<Plain *> objects;
static std::vector<void *> unknown;

int main()
{
	truth = fopen("truth", "w");
	characters.reserve(300);
	objects.reserve(100);
	unknown.reserve(100);
	for (int i = 0; i < 100; i++) {
		objects.push_back(new Derived);
		tell("zoo::Derived", objects.back());
		// Only a pointer that may be one to its class leads to it.
		unknown.push_back(static_cast<Plain *>(new Derived));
		tell("zoo::Derived", unknown.back());
	}
	{
		std::vector<Derived> gone(2000);
		asm volatile("" : : "r"(gone.data()) : "memory");
	}
	for (int i = 0; i < 300; i++) {
		characters.push_back(static_cast<char *>(malloc(sizeof(Derived))));
		tell("char[]", characters.back());
	}
	fclose(truth);
	abort();
}
