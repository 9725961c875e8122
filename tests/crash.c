// Writes what it knows of itself to ./truth and ./maps, then dies of SIGSEGV at 0xdead000 ("die") or waits ("wait").
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern int crash_library_object;
extern int crash_library_function(int);

int crash_object[50] = {1, 2, 3};
static char crash_bss[1 << 20];
__thread int crash_thread_local = 7;
static atomic_int ready;
static int truth;

// r12 = thread id, r13 = fs_base, then sleep for ever in pause().
static void *worker(void *unused) {
    long tid = syscall(SYS_gettid), self = (long)pthread_self();
    (void)unused;
    dprintf(truth, "thread %ld %ld\n", tid, self);
    __asm__ volatile("mov %0, %%r12; mov %1, %%r13; lock incl %2; 1: mov $34, %%eax; syscall; jmp 1b"
                     :
                     : "r"(tid), "r"(self), "m"(ready)
                     : "r12", "r13", "rax", "rcx", "r11", "memory");
    return NULL;
}

static int tell_module(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    dprintf(truth, "module %lu %s\n", (unsigned long)info->dlpi_addr, info->dlpi_name);
    return 0;
}

static void tell_symbol(const char *name, const void *address) {
    dprintf(truth, "symbol %lu %s\n", (unsigned long)address, name);
}

static void copy_maps(void) {
    int from = open("/proc/self/maps", O_RDONLY), to = open("maps", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (ssize_t n; (n = read(from, crash_bss, sizeof crash_bss)) > 0;)
        if (write(to, crash_bss, n) != n)
            _exit(1);
    close(from), close(to);
}

__attribute__((noinline)) void crash_die(void) {
    long tid = syscall(SYS_gettid), self = (long)pthread_self();
    __asm__ volatile("mov %0, %%r12; mov %1, %%r13; movl $1, 0xdead000" : : "r"(tid), "r"(self) : "r12", "r13", "memory");
}

int main(int argc, char **argv) {
    pthread_t thread;
    int data = open("data", O_RDONLY);
    char *shown = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, data, 0);
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(shared, "shared memory");
    truth = open("truth", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, worker, NULL);
    while (atomic_load(&ready) < 3)
        sched_yield();
    dprintf(truth, "pid %d\nthread %ld %ld\n", getpid(), (long)syscall(SYS_gettid), (long)pthread_self());
    dl_iterate_phdr(tell_module, NULL);
    tell_symbol("crash_object", crash_object);
    tell_symbol("crash_die", (void *)crash_die);
    tell_symbol("main", (void *)main);
    tell_symbol("crash_library_object", &crash_library_object);
    tell_symbol("crash_library_function", (void *)crash_library_function);
    tell_symbol("malloc", dlsym(RTLD_DEFAULT, "malloc"));
    tell_symbol("[data]", shown);
    tell_symbol("[shared]", shared);
    copy_maps();
    dprintf(truth, "told\n");
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        pause();
    crash_die();
    return crash_library_function(argc);
}
