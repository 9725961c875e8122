// Containers, each in a global, each with an allocator that counts what it holds. The program writes "NAME BYTES BLOCKS" for
// each to the file "truth" and dies. With "stale", words on the stack point into the middle of every container, as words
// do that a function left there. With "local", the containers are local variables of a function that waits.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

enum { TREE, HASH, QUEUE, TEXTS, SHARED, RING, CHAIN, KINDS };
static const char *const names[] = {"tree", "hash", "queue", "texts", "shared", "ring", "chain"};
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
		// Cleared, so that no word of an earlier block is left between those that the container writes.
		void *block = malloc(n * sizeof(T));
		memset(block, 0, malloc_usable_size(block));
		bytes[K] += malloc_usable_size(block);
		blocks[K]++;
		return static_cast<T *>(block);
	}
	void deallocate(T *block, size_t)
	{
		bytes[K] -= malloc_usable_size(block);
		blocks[K]--;
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
template <int K>
using Pair = std::pair<const int, Text<K>>;

struct Session {
	long id;
	char name[40];
};

struct Containers {
	std::map<int, Text<TREE>, std::less<int>, Counted<Pair<TREE>, TREE>> tree;
	std::unordered_map<int, Text<HASH>, std::hash<int>, std::equal_to<int>, Counted<Pair<HASH>, HASH>> hash;
	std::deque<long, Counted<long, QUEUE>> queue;
	std::vector<Text<TEXTS>, Counted<Text<TEXTS>, TEXTS>> texts;
	std::vector<std::shared_ptr<Session>, Counted<std::shared_ptr<Session>, SHARED>> shared;
	std::list<long, Counted<long, RING>> ring;
	std::forward_list<long, Counted<long, CHAIN>> chain;
};

template <int K>
static Text<K> text(int i)
{
	char made[80];
	snprintf(made, sizeof made, "%d is the number of this text, which is long", i);
	return Text<K>(made);
}

// Each container has a name of its own.
static decltype(Containers::tree) tree;
static decltype(Containers::hash) hash;
static decltype(Containers::queue) queue;
static decltype(Containers::texts) texts;
static decltype(Containers::shared) shared;
static decltype(Containers::ring) ring;
static decltype(Containers::chain) chain;

template <class Tree, class Hash, class Queue, class Texts, class Shared, class Ring, class Chain>
static void fill(Tree &tree, Hash &hash, Queue &queue, Texts &texts, Shared &shared, Ring &ring, Chain &chain)
{
	for (int i = 0; i < 3000; i++) {
		tree.emplace(i * 7 % 3000, text<TREE>(i));
		hash.emplace(i, text<HASH>(i));
		queue.push_back(i);
		texts.push_back(text<TEXTS>(i));
		shared.push_back(std::allocate_shared<Session>(Counted<Session, SHARED>()));
		ring.push_back(i);
		chain.push_front(i);
	}
}

static void tell()
{
	FILE *file = fopen("truth", "w");
	for (int k = 0; k < KINDS; k++)
		fprintf(file, "%s %ld %ld\n", names[k], bytes[k], blocks[k]);
	fclose(file);
}

// Leaves words in its caller's reach that point into the middle of each container.
__attribute__((noinline)) static void plant(const void *volatile *stale)
{
	stale[0] = &*std::next(ring.begin(), 1500);
	stale[1] = &*std::next(chain.begin(), 1500);
	stale[2] = &*std::next(tree.begin(), 1500);
	stale[3] = &hash.find(1500)->second;
	stale[4] = &queue[1500];
	stale[5] = texts[1500].data();
	stale[6] = shared[1500].get();
	// The node itself, not what it holds: the first byte of a block.
	stale[7] = reinterpret_cast<const char *>(&*std::next(chain.begin(), 1000)) - sizeof(void *);
	stale[8] = reinterpret_cast<const char *>(&*std::next(ring.begin(), 1000)) - 2 * sizeof(void *);
}

__attribute__((noinline)) static void inner(const void *volatile *stale)
{
	tell();
	stale[9] = nullptr;
	abort();
}

__attribute__((noinline)) static void local()
{
	Containers own;
	fill(own.tree, own.hash, own.queue, own.texts, own.shared, own.ring, own.chain);
	const void *volatile stale[10] = {&*std::next(own.chain.begin(), 1500)};
	inner(stale);
	asm volatile("" : : "r"(&own) : "memory");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "local"))
		local();
	const void *volatile stale[10] = {};
	fill(tree, hash, queue, texts, shared, ring, chain);
	if (argc > 1 && !strcmp(argv[1], "stale"))
		plant(stale);
	inner(stale);
	return stale[0] != nullptr;
}
