// What std::shared_ptr<T[]>, std::unique_ptr<T[]> and std::any allocate. Each block writes "TYPE|ADDRESS|USABLE" to the file "truth".
// Then the program dies.
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
std::vector<std::shared_ptr<Item[]>> items;
std::vector<std::unique_ptr<Point[]>> owned;
std::vector<std::unique_ptr<Item[]>> owned_items;

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
	points.reserve(400);
	longs.reserve(400);
	items.reserve(200);
	owned.reserve(200);
	owned_items.reserve(200);
	std::string text("a text that is much longer than the string itself is");
	for (int i = 0; i < 200; i++) {
		made("STRING", "char[]", [&] { anys.emplace_back(text); });
		made("shop::Point", nullptr, [&] { anys.emplace_back(Point{1, 2, i}); });
		made("shop::Item", nullptr, [&] { anys.emplace_back(Item{"x", i}); });
		made("SHARED(Point)", "std::shared_ptr<shop::Point>",
		     [&] { anys.emplace_back(std::make_shared<Point>(Point{1, 2, 3})); });
		made("shop::Point[]", "CONTROL(Point)", [&] { points.emplace_back(new Point[7]()); });
		made("long[]", "CONTROL(long)", [&] { longs.emplace_back(new long[9]()); });
#if __cplusplus >= 202002L
		made("shop::Point[]", nullptr, [&] { points.push_back(std::make_shared<Point[]>(5 + i % 4)); });
		made("shop::Item[]", nullptr, [&] { items.push_back(std::make_shared<Item[]>(3)); });
		made("long[]", nullptr, [&] { longs.push_back(std::make_shared<long[]>(9 + i % 3)); });
#endif
		made("shop::Point[]", nullptr, [&] { owned.push_back(std::make_unique<Point[]>(6)); });
		made("shop::Item[]", nullptr, [&] { owned_items.push_back(std::make_unique<Item[]>(3)); });
	}
	fclose(truth);
	abort();
}
