// Buffers of string streams. Each block writes "TYPE|ADDRESS|USABLE" to the file "truth"; "-" has no type. Then the program
// dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

static FILE *truth;

static void tell(const char *kind, const void *block)
{
	fprintf(truth, "%s|%lu|%lu\n", kind, (unsigned long)block, (unsigned long)malloc_usable_size((void *)block));
}

// The places of a streambuf are protected.
template <class C> struct Places : std::basic_streambuf<C> {
	static C *begin(std::basic_streambuf<C> *of)
	{
		C *out = (of->*&Places::pbase)();
		return out ? out : (of->*&Places::eback)();
	}
};

template <class C> static void tell_buffer(const char *kind, std::basic_ios<C> &stream)
{
	std::basic_streambuf<C> *of = stream.rdbuf();
	size_t inside = (size_t)Places<C>::begin(of) - (size_t)of;
	if (inside >= sizeof(std::basic_stringbuf<C>)) // a short text has no block
		tell(kind, Places<C>::begin(of));
}

struct Report { // a stream in the middle of something
	std::string title = "a title that is too long for the string itself";
	long pages = 7;
	std::ostringstream text;
};
static std::stringstream both; // in static memory
static std::vector<std::unique_ptr<std::ostringstream>> logs;
static std::vector<std::unique_ptr<std::istringstream>> inputs;
static std::vector<std::unique_ptr<std::wostringstream>> wide;
static std::vector<std::unique_ptr<Report>> reports;
static std::vector<std::string> plain;
static std::vector<void *> blocks;

__attribute__((noinline)) static void earlier(int count) // streams that are gone, and what has their memory now
{
	std::vector<std::unique_ptr<std::ostringstream>> gone;
	for (int i = 0; i < count; i++) {
		gone.push_back(std::make_unique<std::ostringstream>());
		*gone.back() << std::string(40 + 37 * i, 'g');
	}
	gone.clear();
	for (int i = 0; i < count; i++) {
		for (size_t size : {sizeof(std::ostringstream), size_t(513), size_t(1025)}) {
			blocks.push_back(malloc(size)); // not written
			tell("-", blocks.back());
		}
	}
}

__attribute__((noinline)) static void fill(int count)
{
	for (int i = 0; i < count; i++) {
		std::string text(17 + 41 * i, 't');
		logs.push_back(std::make_unique<std::ostringstream>());
		*logs.back() << text << i;
		tell_buffer("char[]", *logs.back());
		inputs.push_back(std::make_unique<std::istringstream>(text));
		tell_buffer("char[]", *inputs.back());
		wide.push_back(std::make_unique<std::wostringstream>());
		*wide.back() << std::wstring(20 + 31 * i, L'w');
		tell_buffer("wchar_t[]", *wide.back());
		reports.push_back(std::make_unique<Report>());
		reports.back()->text << text << text;
		tell_buffer("char[]", reports.back()->text);
		plain.push_back(text + text);
	}
	for (const std::string &each : plain)
		tell("-", each.data());
}

int main()
{
	truth = fopen("truth", "w");
	earlier(20);
	fill(60);
	both << std::string(3000, 'b');
	tell_buffer("char[]", both);
	std::ostringstream local; // on the stack
	local << std::string(700, 'l');
	std::ostringstream moved(std::move(local));
	tell_buffer("char[]", moved);
	fclose(truth);
	abort();
}
