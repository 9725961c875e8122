/* Blocks that only a jmp_buf holds, in a register that glibc encrypts: rbp, or rsp where a coroutine runs on a block. The
 * jmp_buf lies on the stack, in .bss, in a block, or in a block that was freed. Writes "truth": name, ~address. */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rdi: the jmp_buf; rsi: ~address. Sets rbp, or rsp to 8000 bytes behind the address, around the call. */
void hold(void *buffer, uintptr_t hidden), hold_stack(void *buffer, uintptr_t hidden);
__asm__(".text\nhold:\n\tpush %rbp\n\tmov %rsi, %rbp\n\tnot %rbp\n\txor %esi, %esi\n\tcall *_setjmp@GOTPCREL(%rip)\n\t"
        "pop %rbp\n\tret\n"
        "hold_stack:\n\tpush %r12\n\tmov %rsp, %r12\n\tnot %rsi\n\tlea 8000(%rsi), %rsp\n\txor %esi, %esi\n\t"
        "call *_setjmp@GOTPCREL(%rip)\n\tmov %r12, %rsp\n\tpop %r12\n\tret\n");

static jmp_buf in_bss, of_stack;
static char *volatile kept;
static FILE *truth;

__attribute__((noinline)) static uintptr_t make(const char *name, size_t size) {
    uintptr_t hidden = ~(uintptr_t)memset(malloc(size), 1, size);
    fprintf(truth, "%s %lu\n", name, (unsigned long)hidden);
    return hidden;
}

__attribute__((noinline)) static void wipe(void) {
    volatile char frame[16384];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = 0;
}

int main(void) {
    jmp_buf here;
    truth = fopen("truth", "w");
    make("lost", 1000);
    memset(here, 0, sizeof here);
    hold(here, make("on-stack", 1000));
    hold(in_bss, make("in-bss", 1000));
    kept = calloc(1, 2000);
    hold(kept + 512, make("in-block", 1000));
    hold_stack(of_stack, make("a-stack", 9000));
    char *gone = calloc(1, 3000);
    hold(gone + 512, make("in-freed-block", 1000));
    free(gone);
    fclose(truth);
    gone = NULL;
    wipe();
    __asm__ volatile("" ::"r"(here), "r"(gone) : "memory");
    abort();
}
