/* Threads in system calls. Each of the first ones holds a block by a word in its red zone alone, which the code behind
 * the system call reads in one way or another. Each of the others waits in a function of libc, with the stale address of
 * a lost block all over the memory below its stack pointer. Writes "truth": name, 1 (live) or 0, ~address, tid. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

typedef void hold_t(uintptr_t hidden, volatile int *entered);

/* rdi: ~address; rsi: set to 1 before the system call. The function never returns. */
#define HOLD(name, before, after)                                                                                      \
    void name(uintptr_t hidden, volatile int *entered);                                                                \
    __asm__(".text\n" #name ":\n\t"                                                                                    \
            "not %rdi\n\t" before "\n\txor %edi, %edi\n"                                                               \
            "9: movl $1, (%rsi)\n\t"                                                                                   \
            "xor %esi, %esi\n\tmov $34, %eax\n\tsyscall\n\t" after "\n\tret\n")

HOLD(straight, "mov %rdi, -64(%rsp)", "mov -64(%rsp), %rax");
HOLD(by_rbp, "push %rbp\n\tmov %rsp, %rbp\n\tmov %rdi, -24(%rbp)", "mov -24(%rbp), %rax\n\tpop %rbp");
HOLD(loop, "mov %rdi, -64(%rsp)\n\txor %edi, %edi\n\tjmp 9f\n7: mov -64(%rsp), %rax\n\tlea ignored(%rip), %rsi", "jmp 7b");
HOLD(branch, "mov %rdi, -64(%rsp)", "test %eax, %eax\n\tjne 1f\n\tret\n1: mov -64(%rsp), %rax");
HOLD(by_lea, "mov %rdi, -64(%rsp)\n\tlea -80(%rsp), %rbx", "mov 16(%rbx), %rax");
HOLD(lea_later, "mov %rdi, -64(%rsp)", "lea -80(%rsp), %rdx\n\tadd $8, %rdx\n\tmov 8(%rdx), %rax");
HOLD(indexed, "mov %rdi, -64(%rsp)", "mov flag(%rip), %ecx\n\tmov -64(%rsp,%rcx,8), %rax");
HOLD(moved, "mov %rdi, -64(%rsp)", "sub $128, %rsp\n\tcall sink\n\tadd $128, %rsp\n\tmov -64(%rsp), %rax");
HOLD(copied, "mov %rdi, -64(%rsp)", "lea -64(%rsp), %rsi\n\tlea flag(%rip), %rdi\n\tmov $2, %ecx\n\trep movsl");
HOLD(escaped, "mov %rdi, -64(%rsp)", "lea -64(%rsp), %rax\n\tmov %rax, escape(%rip)\n\tmov escape(%rip), %rdx\n\tmov (%rdx), %rax");
HOLD(popped, "mov %rdi, -8(%rsp)", "lea -8(%rsp), %rsp\n\tpop %rax");
HOLD(again, "mov %rdi, -64(%rsp)", "lea -64(%rsp), %rdi\n\tmov $35, %eax\n\tsyscall");
HOLD(added, "mov %rdi, -64(%rsp)", "mov $-64, %rax\n\tadd %rsp, %rax\n\tmov (%rax), %rax");
HOLD(vector, "mov %rdi, -64(%rsp)", "movdqu -64(%rsp), %xmm0\n\tmovq %xmm0, %rax");
HOLD(table, "mov %rdi, -64(%rsp)", "lea 1f(%rip), %rcx\n\tjmp *%rcx\n1: mov -64(%rsp), %rax");

/* The red zone is overwritten before it is read, or never read. */
HOLD(overwritten, "mov %rdi, -64(%rsp)\n\txor %edi, %edi", "movq $0, -64(%rsp)\n\tmov -64(%rsp), %rax");
HOLD(other_word, "mov %rdi, -64(%rsp)", "mov -24(%rsp), %rax\n\tmov 8(%rsp), %rax");

uintptr_t escape;
int flag, ignored;
__attribute__((noinline, used)) void sink(void) {}

#pragma GCC push_options
#pragma GCC optimize("O0")
void unoptimized(uintptr_t hidden, volatile int *entered) {
    uintptr_t mine = ~hidden, result;
    for (;;) {
        *entered = 1;
        __asm__ volatile("syscall" : "=a"(result) : "0"(34l) : "rcx", "r11", "memory");
        if (result == 1234)
            flag = *(int *)mine;
    }
}
#pragma GCC pop_options

static sem_t never;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, taken = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int ends[2], epoll;

static void in_pause(void) { pause(); }
static void in_read(void) {
    char c;
    (void)!read(ends[0], &c, 1);
}
static void in_poll(void) {
    struct pollfd one = {ends[0], POLLIN, 0};
    poll(&one, 1, -1);
}
static void in_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    select(ends[0] + 1, &set, NULL, NULL, NULL);
}
static void in_epoll(void) {
    struct epoll_event event;
    epoll_wait(epoll, &event, 1, -1);
}
static void in_sleep(void) { nanosleep(&(struct timespec){1000000, 0}, NULL); }
static void in_semaphore(void) { sem_wait(&never); }
static void in_mutex(void) { pthread_mutex_lock(&taken); }
static void in_condition(void) {
    pthread_mutex_lock(&mutex);
    pthread_cond_wait(&condition, &mutex);
}
static void in_timed(void) {
    struct timespec late = {1ll << 40, 0};
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&condition, &mutex, &late);
}
static void in_barrier(void) { pthread_barrier_wait(&barrier); }
static void in_sigwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigwaitinfo(&set, NULL);
}

/* Fills the stack below with the address, and jumps to the function. */
void stale(uintptr_t hidden, void (*wait)(void));
__asm__(".text\nstale:\n\tnot %rdi\n\tmov $-2048, %rcx\n1: mov %rdi, (%rsp,%rcx)\n\tadd $8, %rcx\n\tjnz 1b\n\t"
        "mov %rsi, %rax\n\txor %edi, %edi\n\txor %esi, %esi\n\tjmp *%rax\n");

static struct each {
    const char *name;
    hold_t *hold;
    void (*wait)(void);
    int live;
    uintptr_t hidden;
    volatile int entered, tid;
} all[] = {
#define LIVE(name) {#name, name, NULL, 1, 0, 0, 0}
#define DEAD(name) {#name, name, NULL, 0, 0, 0, 0}
#define WAIT(name) {#name, NULL, name, 0, 0, 0, 0}
    LIVE(straight), LIVE(by_rbp), LIVE(loop), LIVE(branch), LIVE(by_lea), LIVE(lea_later), LIVE(indexed), LIVE(moved),
    LIVE(copied), LIVE(escaped), LIVE(popped), LIVE(again), LIVE(added), LIVE(vector), LIVE(table), LIVE(unoptimized),
    DEAD(overwritten), DEAD(other_word),
    WAIT(in_pause), WAIT(in_read), WAIT(in_poll), WAIT(in_select), WAIT(in_epoll), WAIT(in_sleep), WAIT(in_semaphore),
    WAIT(in_mutex), WAIT(in_condition), WAIT(in_timed), WAIT(in_barrier), WAIT(in_sigwait),
};
enum { COUNT = sizeof all / sizeof *all };

static void *run(void *one) {
    struct each *each = one;
    each->tid = gettid();
    if (each->hold != NULL)
        each->hold(each->hidden, &each->entered);
    each->entered = 1;
    stale(each->hidden, each->wait);
    return NULL;
}

__attribute__((noinline)) static void prepare(void) {
    for (int i = 0; i < COUNT; i++) {
        void *block = memset(malloc(1000), 1, 1000);
        all[i].hidden = ~(uintptr_t)block;
    }
}

/* Waits until the thread sleeps. Behind `entered` it sleeps only in the system call. */
static void wait_for(struct each *each) {
    for (;;) {
        char path[64], line[256] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", each->tid);
        FILE *stat = each->entered ? fopen(path, "r") : NULL;
        char *end = stat != NULL && fgets(line, sizeof line, stat) != NULL ? strrchr(line, ')') : NULL;
        if (stat != NULL)
            fclose(stat);
        if (end != NULL && end[2] == 'S')
            return;
        sched_yield();
    }
}

__attribute__((noinline)) static void wipe(void) {
    volatile char frame[16384];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = 0;
}

int main(void) {
    pthread_t thread;
    FILE *truth = fopen("truth", "w");
    alarm(300); /* no process stays behind */
    sem_init(&never, 0, 0);
    pthread_mutex_lock(&taken);
    pthread_barrier_init(&barrier, NULL, 1000);
    epoll = pipe(ends) == 0 ? epoll_create1(0) : -1;
    prepare();
    for (int i = 0; i < COUNT; i++)
        pthread_create(&thread, NULL, run, &all[i]);
    for (int i = 0; i < COUNT; i++)
        wait_for(&all[i]);
    for (int i = 0; i < COUNT; i++)
        fprintf(truth, "%s %d %lu %d\n", all[i].name, all[i].live, (unsigned long)all[i].hidden, all[i].tid);
    fclose(truth);
    wipe();
    abort();
}
