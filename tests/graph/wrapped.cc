// Values of the C++ library that begin with an object: optional, tuple, variant, pair, structs. Each block writes
// "TYPE|ADDRESS|USABLE" to the file "truth". Then the program dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

static FILE *truth;

namespace zoo {
struct Animal {
	virtual ~Animal() {}
	long id = 1;
};
struct Cat : Animal { // 24 bytes: its block has no room to spare
	long y = 5;
};
struct Dog : Animal { // 32 bytes: its block has room for 8 more
	long x[2] = {1, 2};
};
struct Cow : Animal { // 40 bytes, and fewer of them than of what contains one
	long x[3] = {1, 2, 3};
};
struct Fox : Animal { // 32 bytes, never alone
	long x[2] = {1, 2};
};
template <class T> struct Last {
	T value;
	Last *next = nullptr;
};
template <class T> struct Tail {
	T value;
	char kind;
};
} // namespace zoo
using namespace zoo;

static std::vector<void *> all;

template <class T> static void make(const char *kind, int count)
{
	all.reserve(all.size() + count);
	for (int i = 0; i < count; i++) {
		T *made = new T();
		all.push_back(made);
		fprintf(truth, "%s|%lu|%lu\n", kind, (unsigned long)made, (unsigned long)malloc_usable_size(made));
	}
}

template <class T> struct Engaged : std::optional<T> {
	Engaged() : std::optional<T>(std::in_place) {}
};

template <class T> static void wrapped(int count)
{
	make<Engaged<T>>("optional", count);
	make<std::tuple<char, T>>("tuple(char)", count); // libstdc++ has the last member first
	make<std::tuple<long, T>>("tuple(long)", count);
	make<std::variant<T, long>>("variant", count);
	make<std::pair<T, int>>("pair", count);
	make<Last<T>>("last", count);
	make<Tail<T>>("tail", count);
}

static void stale() // free blocks of all the sizes, full of what is no zero
{
	std::vector<void *> blocks;
	for (size_t size = 24; size < 80; size += 16)
		for (int i = 0; i < 400; i++) {
			blocks.push_back(malloc(size));
			memset(blocks.back(), 0x5a, size);
		}
	for (void *block : blocks)
		free(block);
}

int main(int count, char **)
{
	truth = fopen("truth", "w");
	if (count > 1)
		stale();
	make<Cat>("zoo::Cat", 60);
	make<Dog>("zoo::Dog", 60);
	make<Cow>("zoo::Cow", 10);
	wrapped<Cat>(20);
	wrapped<Dog>(20);
	wrapped<Cow>(20);
	wrapped<Fox>(20);
	fclose(truth);
	abort();
}
