/* It loses objects of one class, each with a vtable, and dies. */
#include <cstdio>
#include <cstdlib>

struct Session {
	virtual ~Session();
	long number = 0;
	char data[480] = {};
};
Session::~Session() { std::puts("end"); }

enum { LOST = 8000 };
static Session *volatile kept;

__attribute__((noinline)) static void lose(long number)
{
	kept = new Session;
	kept->number = number;
}

int main()
{
	for (long i = 0; i < LOST; i++)
		lose(i);
	abort();
}
