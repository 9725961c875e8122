// Maps memory in many ways, keeps some of it, and loses the rest. For each mapping it says "NAME START SIZE" on stdout.
// Names begin with "lost", "kept", "doubt" (the dump cannot tell) or "other" (shared, or of a file).
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { SLOT = 4 << 20, SIZE = 192 << 10, PAGE = 4096 };

static unsigned slot;
char *kept[64]; // not static: the compiler drops what nobody reads
static int keeps, shrunk;
__thread char *of_thread;
struct __attribute__((packed)) {
  char tag;
  char *at;
} packed;
static ucontext_t here, there;
static jmp_buf left, in_jump;

static __attribute__((noinline)) void say(const char *name, void *at, size_t size) {
  char line[100];
  int length = snprintf(line, sizeof line, "%s %lx %lu\n", name, (unsigned long)at, (unsigned long)size);
  if (write(1, line, length) < 0)
    abort();
  explicit_bzero(line, sizeof line);
}

static char *map(const char *name, size_t size, int access, int flags) {
  void *wanted = (void *)((0x4100ul << 28) + (size_t)SLOT * slot++);
  char *at = mmap(wanted, size, access, flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED)
    abort();
  say(name, at, size);
  return at;
}

static char *made(const char *name) {
  char *at = map(name, SIZE, PROT_READ | PROT_WRITE, 0);
  memset(at, 'x', SIZE);
  return at;
}

static void keep(char *at) { kept[keeps++] = at; }

static __attribute__((noinline)) void lose(void) {
  for (int count = 0; count < 8; count++)
    made("lost");
  char *one = made("lost-ring"), *other = made("lost-ring");
  memcpy(one, &other, sizeof other);
  memcpy(other + 64, &one, sizeof one);
  char **block = malloc(800);
  *block = made("lost-by-leaked-block");
  char *pieces = made("lost-in-pieces");
  mprotect(pieces + 4 * PAGE, PAGE, PROT_NONE);
  mprotect(pieces + 9 * PAGE, PAGE, PROT_READ);
  // The kernel puts it right below other mappings, in most cases below a library.
  char *placed = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(placed, 'x', SIZE);
  say("placed", placed, SIZE);
}

static __attribute__((noinline)) void keep_some(void) {
  keep(made("kept-start"));
  keep(made("kept-middle") + SIZE / 2 + 3);
  keep(made("kept-end") + SIZE);
  char *first = made("kept-chain");
  keep(first);
  for (int count = 0; count < 5; count++) {
    char *next = made("kept-chain");
    memcpy(first + 4096 * count, &next, sizeof next);
    first = next;
  }
  char **block = malloc(900);
  *block = made("kept-by-block");
  keep((char *)block);
  packed.at = made("kept-packed");
  char *odd = made("kept-packed"); // in a mapping, at an odd byte
  memcpy(packed.at + 4097, &odd, sizeof odd);
  of_thread = made("kept-thread-local");
  char *pool = map("kept-reservation", 16 * SIZE / 16, PROT_NONE, MAP_NORESERVE);
  mprotect(pool + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE);
  memset(pool + 8 * PAGE, 'y', 4 * PAGE);
  keep(pool);
}

#ifdef __x86_64__
static __attribute__((noinline)) void keep_in_code(void) {
  char *code = map("other-code", PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, 0), *data = made("kept-by-code");
  code[0] = 0x48, code[1] = (char)0xb8; // movabs $data,%rax; ret
  memcpy(code + 2, &data, sizeof data);
  code[10] = (char)0xc3;
}
#endif

static void suspend(void) { swapcontext(&there, &here); }

static void jump_away(void) {
  if (!setjmp(in_jump))
    longjmp(left, 1);
}

static __attribute__((noinline)) void keep_stacks(void) {
  getcontext(&there);
  there.uc_stack.ss_sp = made("kept-coroutine");
  there.uc_stack.ss_size = SIZE;
  makecontext(&there, suspend, 0);
  swapcontext(&here, &there);
  there.uc_stack.ss_sp = 0;
  static ucontext_t jumps;
  getcontext(&jumps);
  jumps.uc_stack.ss_sp = made("kept-jump");
  jumps.uc_stack.ss_size = SIZE;
  makecontext(&jumps, jump_away, 0);
  if (!setjmp(left))
    setcontext(&jumps);
  memset(&jumps, 0, sizeof jumps);
  memset(&left, 0, sizeof left);
}

static __attribute__((noinline)) void others(void) {
  map("doubt-untouched", SIZE, PROT_READ | PROT_WRITE, 0);
  char *signals = map("doubt-signals", 64 << 10, PROT_READ | PROT_WRITE, 0);
  stack_t stack = {.ss_sp = signals, .ss_size = 64 << 10};
  memset(signals, 'z', 64 << 10);
  sigaltstack(&stack, 0);
  char *shared = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(shared, 'x', SIZE);
  say("other-shared", shared, SIZE);
  FILE *file = fopen("mapped", "w+");
  for (int count = 0; count < SIZE; count++)
    putc('f', file);
  fflush(file);
  char *mapped = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
  memset(mapped, 'x', SIZE);
  say("file-private", mapped, SIZE);
  map("other-guard", SIZE, PROT_NONE, 0);
}

// Leaves a glibc arena whose heap has shrunk: behind its top lies memory that can be written and is nobody's.
static void *waiting(void *unused) {
  char *blocks[200];
  for (int count = 0; count < 200; count++)
    blocks[count] = memset(malloc(100000), 'b', 100000);
  for (int count = 200; count-- > 1;)
    free(blocks[count]);
  explicit_bzero(blocks, sizeof blocks);
  __atomic_fetch_add(&shrunk, 1, __ATOMIC_SEQ_CST);
  for (;;)
    pause();
  return unused;
}

static __attribute__((noinline)) void scrub(void) {
  volatile char bytes[32768];
  for (unsigned at = 0; at < sizeof bytes; at++)
    bytes[at] = 0;
#ifdef __x86_64__ // registers that a function need not restore may hold an address that was lost
  __asm__ volatile("xor %%ecx,%%ecx; xor %%edx,%%edx; xor %%esi,%%esi; xor %%edi,%%edi; xor %%r8d,%%r8d;"
                   "xor %%r9d,%%r9d; xor %%r10d,%%r10d; xor %%r11d,%%r11d; pxor %%xmm0,%%xmm0; pxor %%xmm1,%%xmm1;"
                   "pxor %%xmm2,%%xmm2; pxor %%xmm3,%%xmm3; pxor %%xmm4,%%xmm4; pxor %%xmm5,%%xmm5" ::
                       : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
                         "xmm5");
#endif
}

int main(int count, char **arguments) {
  int lost = count > 1 && strchr(arguments[1], 'l'), threads = count > 1 && strchr(arguments[1], 't');
  keep_some();
#ifdef __x86_64__
  keep_in_code();
#endif
  keep_stacks();
  if (lost) {
    others();
    lose();
  }
  pthread_t thread;
  for (int number = 0; threads && number < 4; number++)
    pthread_create(&thread, 0, waiting, 0);
  while (threads && __atomic_load_n(&shrunk, __ATOMIC_SEQ_CST) < 4)
    usleep(1000);
  scrub();
  if (count > 2)
    for (;;)
      pause();
  raise(SIGABRT);
}
