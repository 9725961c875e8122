/* Dies with the address of a block in the red zone alone: in a leaf function ("leaf"), or in one that calls others. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void sink(void) {}
void leaf(uintptr_t hidden);
void caller(uintptr_t hidden);
#define TRAP(name, after)                                                                                              \
    __asm__(".text\n" #name ":\n\t.cfi_startproc\n\t"                                                                  \
            "not %rdi\n\tmov %rdi, -64(%rsp)\n\txor %edi, %edi\n\txor %edx, %edx\n\txor %eax, %eax\n\tud2\n\t" after "\n\tret\n\t.cfi_endproc\n")
TRAP(leaf, "nop");
TRAP(caller, "sub $8, %rsp\n\t.cfi_adjust_cfa_offset 8\n\tcall sink\n\tadd $8, %rsp\n\t.cfi_adjust_cfa_offset -8");

__attribute__((noinline)) static uintptr_t make(void) { return ~(uintptr_t)memset(malloc(1000), 1, 1000); }
__attribute__((noinline)) static void wipe(void) {
    volatile char frame[16384];
    for (size_t i = 0; i < sizeof frame; i++) frame[i] = 0;
}

int main(int argc, char **argv) {
    uintptr_t hidden = make();
    wipe();
    (argc > 1 && !strcmp(argv[1], "leaf") ? leaf : caller)(hidden);
}
