// Exceptions that are kept: of fundamental types, pointers and classes. Each writes "TYPE|ADDRESS|SIZE" of its object to the
// file "truth". "alone" is an object that was not thrown. Then the program dies.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace shop {
struct Point {
	int x, y;
};
struct Refused : std::runtime_error {
	using std::runtime_error::runtime_error;
	long code = 5;
};
} // namespace shop
using namespace shop;

static FILE *truth;
static std::vector<std::exception_ptr> kept;
static Point *alone = new Point{3, 4};

template <typename T> static void keep(const char *type, T value)
{
	for (int i = 0; i < 20; i++) {
		try {
			throw value;
		} catch (T &) {
			kept.push_back(std::current_exception());
			// An exception_ptr is a pointer to the object (libsupc++/exception_ptr.h).
			fprintf(truth, "%s|%lu|%zu\n", type, *reinterpret_cast<unsigned long *>(&kept.back()), sizeof(T));
		}
	}
}

int main()
{
	truth = fopen("truth", "w");
	keep("long", 5L);
	keep("int", 5);
	keep("char", 'c');
	keep("double", 0.5);
	keep("unsigned long long", 5ULL);
	keep("char const*", static_cast<const char *>("text"));
	keep("shop::Point", Point{1, 2});
	keep("shop::Refused", Refused("no"));
	keep("std::string", std::string("a text that is longer than fifteen"));
	fprintf(truth, "alone|%lu|%zu\n", (unsigned long)alone, sizeof(Point));
	fclose(truth);
	abort();
}
