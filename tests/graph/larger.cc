// Arrays whose elements begin with an object that has a vtable, and single objects of its class. No destructor tells the sizes.
// Each block writes "TYPE|ADDRESS|USABLE" to the file "truth". Then the program dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static FILE *truth;
static void *kept[1024];
static int count;

static void tell(const char *type, void *block)
{
	fprintf(truth, "%s|%lu|%zu\n", type, (unsigned long)block, malloc_usable_size(block));
	kept[count++] = block;
}

namespace zoo {
struct Cat {
	virtual int area() { return 1; }
	int width = 3, height = 4;
};
struct House {
	Cat first;
	long rooms[9] = {1};
};
struct Dog {
	virtual int area() { return 2; }
	long size[4] = {2};
};
} // namespace zoo
using namespace zoo;

static std::vector<House> houses;
static std::vector<Cat> cats;
static std::vector<Dog> dogs;

int main()
{
	truth = fopen("truth", "w");
	for (int i = 0; i < 100; i++)
		tell("zoo::Cat", new Cat);
	for (int i = 0; i < 20; i++) {
		tell("zoo::House", new House);
		tell("zoo::Dog", new Dog);
	}
	houses.resize(50);
	tell("zoo::House[]", houses.data());
	cats.resize(50);
	tell("zoo::Cat[]", cats.data());
	dogs.resize(50);
	tell("zoo::Dog[]", dogs.data());
	fclose(truth);
	abort();
}
