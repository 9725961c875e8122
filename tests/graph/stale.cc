// Containers, each in a global, each with an allocator that counts what it holds. `stale HEAP STACK`: so many words in
// members that nobody writes, and on the stack, point to elements of any container, as words do that are left over. The
// program writes "NAME BYTES BLOCKS" for each container to the file "truth" and dies.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

enum { SESSIONS, CACHE, ORDERS, LINES, PINNED, QUEUE, CHAIN, KINDS };
static const char *const names[] = {"sessions", "cache", "orders", "lines", "pinned", "queue", "chain"};
static long bytes[KINDS], blocks[KINDS];

template <class T, int K>
struct Counted {
	using value_type = T;
	template <class U>
	struct rebind {
		using other = Counted<U, K>;
	};
	Counted() = default;
	template <class U>
	Counted(const Counted<U, K> &) {}
	T *allocate(size_t n)
	{
		void *block = malloc(n * sizeof(T));
		bytes[K] += malloc_usable_size(block);
		blocks[K]++;
		return static_cast<T *>(block);
	}
	void deallocate(T *block, size_t)
	{
		bytes[K] -= malloc_usable_size(block);
		blocks[K]--;
#ifdef CLEAN // no word of an earlier use is left in blocks
		memset(static_cast<void *>(block), 0, malloc_usable_size(block));
		asm volatile("" : : : "memory"); // or the compiler leaves that out before free()
#endif
		free(block);
	}
	template <class U>
	bool operator==(const Counted<U, K> &) const
	{
		return true;
	}
	template <class U>
	bool operator!=(const Counted<U, K> &) const
	{
		return false;
	}
};

template <int K>
using Text = std::basic_string<char, std::char_traits<char>, Counted<char, K>>;

// `unused` is what the compiler leaves between members, only that the program can find it.
struct Slot {
	long number;
	const void *unused;
	explicit Slot(long n) : number(n) {}
};

template <int K>
struct Record {
	Text<K> text;
	long number = 0;
	const void *unused;
	explicit Record(const char *from) : text(from) {}
};

template <int K>
using Pair = std::pair<const int, Record<K>>;

static std::map<int, Record<SESSIONS>, std::less<int>, Counted<Pair<SESSIONS>, SESSIONS>> sessions;
static std::list<Record<CACHE>, Counted<Record<CACHE>, CACHE>> cache;
static std::unordered_map<int, Record<ORDERS>, std::hash<int>, std::equal_to<int>, Counted<Pair<ORDERS>, ORDERS>>
    orders;
static std::deque<Record<LINES>, Counted<Record<LINES>, LINES>> lines;
static std::vector<Record<PINNED>, Counted<Record<PINNED>, PINNED>> pinned;
static std::deque<Slot, Counted<Slot, QUEUE>> queue;
static std::list<Slot, Counted<Slot, CHAIN>> chain;

static const int count = 20000;

static const char *text(int i)
{
	static char made[120];
	snprintf(made, sizeof made, "%d is a text with %0*d", i, 1 + i % 60, 0);
	return made;
}

struct Planter {
	std::vector<const void **> holes;
	std::vector<const void *> places;

	template <class T>
	void take(T &element, size_t header)
	{
		element.unused = nullptr;
		holes.push_back(&element.unused);
		// The node, and what is in it.
		places.push_back(reinterpret_cast<const char *>(&element) - header);
		places.push_back(&element);
	}
	template <class T>
	void take_pair(T &pair, size_t header)
	{
		take(pair.second, reinterpret_cast<char *>(&pair.second) - reinterpret_cast<char *>(&pair) + header);
		places.push_back(pair.second.text.data());
	}
	const void *any() const { return places[random() % places.size()]; }
};

static void tell()
{
	FILE *file = fopen("truth", "w");
	for (int k = 0; k < KINDS; k++)
		fprintf(file, "%s %ld %ld\n", names[k], bytes[k], blocks[k]);
	fclose(file);
}

int main(int argc, char **argv)
{
	const void *volatile words[1000] = {};
	for (int i = 0; i < count; i++) {
		sessions.emplace(i * 7 % count, text(i));
		cache.emplace_back(text(i));
		orders.emplace(i, text(i));
		lines.emplace_back(text(i));
		pinned.emplace_back(text(i));
		queue.emplace_back(i);
		chain.emplace_back(i);
	}
	if (argc > 2) {
		Planter planter;
		for (auto &each : sessions)
			planter.take_pair(each, 4 * sizeof(void *));
		for (auto &each : orders)
			planter.take_pair(each, sizeof(void *));
		for (auto &each : cache)
			planter.take(each, 2 * sizeof(void *));
		for (auto &each : chain)
			planter.take(each, 2 * sizeof(void *));
		for (auto &each : lines)
			planter.take(each, 0);
		for (auto &each : pinned)
			planter.take(each, 0);
		for (auto &each : queue)
			planter.take(each, 0);
		for (int i = atoi(argv[1]); i > 0; i--)
			*planter.holes[random() % planter.holes.size()] = planter.any();
		for (int i = 0; i < atoi(argv[2]); i++)
			words[i] = planter.any();
	}
	tell();
	abort();
	return words[0] != nullptr;
}
