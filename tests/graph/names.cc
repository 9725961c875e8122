// Variables with all kinds of names, each with a list of its own: anonymous namespaces, static members, thread-local variables, an
// inlined function's, a lambda's. The file "truth" gets "NAME|USABLE BYTES|BLOCKS" for each. Then the program dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <map>

struct List {
	struct Node {
		Node *next;
		long content[4];
	} *first = nullptr;
	List(const char *name, int count);
	List() = default;
};

static FILE *truth;

List::List(const char *name, int count)
{
	size_t bytes = 0;
	for (int i = 0; i < count; i++) {
		Node *node = static_cast<Node *>(calloc(1, sizeof *node));
		node->next = first;
		first = node;
		bytes += malloc_usable_size(node);
	}
	fprintf(truth, "%s|%zu|%d\n", name, bytes, count);
}

namespace {
List hidden;
struct {
	List lists[3];
} config;
} // namespace
namespace app {
struct Registry {
	static List all;
};
List Registry::all;
namespace detail {
List words;
}
} // namespace app
thread_local List mine;
thread_local struct {
	List slots[2];
} own;

static List &counted()
{
	static List items("names`counted()::items", 110);
	return items;
}

[[noreturn]] __attribute__((noinline)) static void die(void *)
{
	fclose(truth);
	abort();
}

static inline __attribute__((always_inline)) void run_inlined()
{
	List local("run_inlined: local", 120);
	die(&local);
}

__attribute__((noinline)) static void run(int)
{
	List outer("run: outer", 130);
	auto inner = [captured = List("run(int)::{lambda(int)#1}::operator(): captured", 140), &outer](int) {
		List within("run(int)::{lambda(int)#1}::operator(): within", 150);
		run_inlined();
		return captured.first == outer.first;
	};
	asm volatile("" : : "r"(&outer), "r"(&inner) : "memory");
	if (inner(1))
		die(&outer);
	asm volatile("" : : "r"(&outer), "r"(&inner) : "memory");
}

int main()
{
	truth = fopen("truth", "w");
	hidden = List("names`(anonymous namespace)::hidden", 10);
	config.lists[1] = List("names`(anonymous namespace)::config.lists[1]", 20);
	app::Registry::all = List("names`app::Registry::all", 30);
	app::detail::words = List("names`app::detail::words", 40);
	mine = List("thread-local mine", 50);
	own.slots[1] = List("thread-local own.slots[1]", 60);
	counted();
	run(1);
}
