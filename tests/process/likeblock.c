// The first thread, whose struct pthread is followed by words that look like the bounds of a stack: they end behind the
// TCB, as those of a thread's own stack do. It says where a local variable is, and dies.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// It lies below the TCB in the same mapping, as a stack would (TLS variant II).
static __thread volatile char room[1 << 16];

int main(void) {
  uintptr_t *tcb;
  __asm__("mov %%fs:0, %0" : "=r"(tcb));
  room[0] = 1;
  uintptr_t here = (uintptr_t)tcb;
  tcb[0x200 / sizeof *tcb] = here - 0x8000 + 0x200; // in bytes of struct pthread that glibc keeps unused
  tcb[0x200 / sizeof *tcb + 1] = 0x8000;
  tcb[0x200 / sizeof *tcb + 2] = 0;
  printf("%lu\n", (unsigned long)&here);
  fflush(stdout);
  abort();
}
