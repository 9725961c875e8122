// Objects with vtables inside of other objects: by value in containers and in arrays, as the first member of a struct, in what
// a std::function or a std::any holds. Each block writes "TYPE|ADDRESS|USABLE" to the file "truth". Then the program dies.
#include <malloc.h>

#include <any>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <vector>

static FILE *truth;
static const char *type; // of what is made now; none: nothing is told

void *operator new(size_t size)
{
	void *block = malloc(size);
	if (type)
		fprintf(truth, "%s|%lu|%lu\n", type, (unsigned long)block, malloc_usable_size(block));
	return block;
}

void operator delete(void *block) noexcept // what the deleting destructors of the program do: none says a size
{
	if (block)
		fprintf(truth, "freed|%lu|0\n", (unsigned long)block);
	free(block);
}

void operator delete(void *block, size_t) noexcept
{
	operator delete(block);
}

namespace zoo {
struct Animal {
	virtual ~Animal() {}
	virtual int legs() { return 4; }
	long id = 1;
};
struct Dog : Animal {
	int legs() override { return 3; }
	long x[3] = {1, 2, 3};
};
struct Cat : Animal {
	int legs() override { return 5; }
	long y = 5;
};
template <class T>
struct Node {
	T value;
	Node *next;
};
struct Cage {
	Cat cat;
	long more[20] = {};
};
struct Four {
	Dog dogs[4];
};
} // namespace zoo
using namespace zoo;

std::vector<Dog> dogs;
std::deque<Cat> cats;
std::vector<Cage *> cages;
std::vector<Four *> fours;
std::vector<std::function<int()>> functions;
Node<Cat> *chain;
Dog *kennel;
#ifndef __GXX_RTTI
static const bool rtti = false;
#else
static const bool rtti = true;
std::vector<std::any> anys;
#endif

template <class Make>
static void made(const char *kind, Make make)
{
	type = kind;
	make();
	type = nullptr;
}

int main()
{
	truth = fopen("truth", "w");
	for (int i = 0; i < 200; i++) {
		made("zoo::Dog[]", [] { dogs.emplace_back(); });
		made("DEQUE(Cat)", [] { cats.emplace_back(); });
		cages.reserve(200);
		made("zoo::Cage", [] { cages.push_back(new Cage); });
		fours.reserve(200);
		made("zoo::Four", [] { fours.push_back(new Four); });
		made("zoo::Node<zoo::Cat>", [] { chain = new Node<Cat>{Cat(), chain}; });
		functions.reserve(200);
		Dog dog;
		made("LAMBDA", [&] { functions.emplace_back([dog, i] { return int(dog.x[0]) + i; }); });
#ifdef __GXX_RTTI
		anys.reserve(200);
		made("zoo::Dog", [&] { anys.emplace_back(dog); });
#endif
	}
	made("KENNEL", [] { kennel = new Dog[30]; });
	fclose(truth);
	abort();
}
