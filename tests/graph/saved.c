// Lists that only registers of an outer frame hold: `first` is in rbx, which an inner function saved on its stack, `second`
// in r12, which no function saved. With an argument a signal handler saves rbx, and the kernel has saved both before.
// The program writes the usable bytes and the number of blocks of each list to the file "truth", and dies.
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
	struct node *next;
	char text[100];
};

__attribute__((noinline)) static struct node *made(int count, FILE *truth)
{
	struct node *list = NULL;
	long bytes = 0;
	for (int i = 0; i < count; i++) {
		struct node *node = calloc(1, sizeof *node);
		node->next = list;
		list = node;
		bytes += malloc_usable_size(node);
	}
	fprintf(truth, "%ld %d\n", bytes, count);
	return list;
}

// It uses rbx, so it saves it, and dies. The compiler does not see that it does not return.
__attribute__((noinline)) static void blocked(int number)
{
	asm volatile("xor %%ebx, %%ebx\n\tud2" : : "r"(number) : "rbx", "memory");
}

// It saves nothing.
__attribute__((noinline)) static void middle(int number)
{
	blocked(number);
	asm volatile("" : : : "memory");
}

// It leaves nothing of earlier calls on the stack below its caller.
__attribute__((noinline)) static void overwrite(void)
{
	char room[65536], *at = room;
	size_t left = sizeof room;
	asm volatile("rep stosb" : "+D"(at), "+c"(left) : "a"(0) : "memory");
}

int main(int argc, char **argv)
{
	FILE *truth = fopen("truth", "w");
	register struct node *first asm("rbx") = made(200, truth);
	register struct node *second asm("r12") = made(100, truth);
	fclose(truth);
	overwrite();
	if (argc > 1) {
		signal(SIGILL, middle);
		overwrite();
		asm volatile("xor %%eax, %%eax\n\tud2" : "+r"(first), "+r"(second) : : "rax", "memory");
	} else {
		asm volatile("" : "+r"(first), "+r"(second));
		middle(1);
	}
	asm volatile("" : "+r"(first), "+r"(second));
	return first == second && argv != NULL;
}
