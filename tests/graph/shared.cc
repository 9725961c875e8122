// What std::shared_ptr<T[]> and std::any allocate. Each block writes "TYPE|ADDRESS|USABLE" to the file "truth", with "?" if it may have
// no type. Then the program dies.
#include <malloc.h>

#include <any>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

static FILE *truth;
static const char *types[3]; // of the blocks that are made next
static int made_count;

void *operator new(size_t size)
{
	void *block = malloc(size);
	if (made_count < 2 && types[made_count])
		fprintf(truth, "%s|%lu|%lu\n", types[made_count++], (unsigned long)block, malloc_usable_size(block));
	return block;
}

void operator delete(void *block) noexcept
{
	free(block);
}

void operator delete(void *block, size_t) noexcept
{
	free(block);
}

namespace shop {
struct Point {
	int x, y, z;
};
struct Item {
	std::string name;
	long price;
};
} // namespace shop
using namespace shop;

std::vector<std::any> anys;
std::vector<std::shared_ptr<Point[]>> points;
std::vector<std::shared_ptr<long[]>> longs;

template <class Make>
static void made(const char *first, const char *second, Make make)
{
	types[0] = first;
	types[1] = second;
	made_count = 0;
	make();
	types[0] = types[1] = nullptr;
}

int main()
{
	truth = fopen("truth", "w");
	anys.reserve(800);
	points.reserve(200);
	longs.reserve(200);
	std::string text("a text that is much longer than the string itself is");
	for (int i = 0; i < 200; i++) {
		made("STRING?", "char[]?", [&] { anys.emplace_back(text); });
		made("shop::Point?", nullptr, [&] { anys.emplace_back(Point{1, 2, i}); });
		made("shop::Item?", nullptr, [&] { anys.emplace_back(Item{"x", i}); });
		made("SHARED(Point)", "std::shared_ptr<shop::Point>?",
		     [&] { anys.emplace_back(std::make_shared<Point>(Point{1, 2, 3})); });
		made("shop::Point[]?", "CONTROL(Point)", [&] { points.emplace_back(new Point[7]()); });
		made("long[]?", "CONTROL(long)", [&] { longs.emplace_back(new long[9]()); });
	}
	fclose(truth);
	abort();
}
