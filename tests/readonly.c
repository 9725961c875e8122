/* Live blocks that only read-only memory with a name holds; one block that nothing holds. Writes a file "truth": the
 * name, the size and ~address of each block. Every block has a size of its own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

enum { BYTES = 8192, AT = 700, IN_FIRST_PAGE = 70 };

static const uintptr_t constants[2048] __attribute__((aligned(4096))) = {1, 2, 3};
static FILE *truth;
static int made;

__attribute__((noinline)) static void hold(const char *kind, void *memory) {
    size_t size = 1000 + 64 * (size_t)made++;
    void *block = memset(malloc(size), 1, size);
    if (memory != NULL)
        ((void **)memory)[strcmp(kind, "sysv") == 0 ? IN_FIRST_PAGE : AT] = block;
    fprintf(truth, "%s %zu %lu\n", kind, size, ~(unsigned long)(uintptr_t)block);
}

__attribute__((noinline)) static void *map(int file, int protection, int flags) {
    void *memory = mmap(NULL, BYTES, protection, flags, file, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

__attribute__((noinline)) static int file_of(const char *name) {
    int file = strncmp(name, "memfd", 5) == 0 ? memfd_create(name, 0) : open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, BYTES) != 0)
        abort();
    return file;
}

/* Writes through one mapping and locks it. */
__attribute__((noinline)) static void locked(const char *kind, int file, int flags, int protection) {
    void *memory = map(file, PROT_READ | PROT_WRITE, flags);
    hold(kind, memory);
    mprotect(memory, BYTES, protection);
}

/* Writes through one mapping, and keeps another: the first one goes. */
__attribute__((noinline)) static void twice(const char *kind, const char *name, int protection) {
    int file = file_of(name);
    void *memory = map(file, PROT_READ | PROT_WRITE, MAP_SHARED);
    hold(kind, memory);
    map(file, protection, MAP_SHARED);
    munmap(memory, BYTES);
    close(file);
}

/* The kernel takes a shared mapping of what was opened for reading for a private one (mm/mmap.c, do_mmap). Of SysV memory
 * it dumps the first page, because the inode looks executable (fs/coredump.c, vma_dump_size). */
__attribute__((noinline)) static void system_v(void) {
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    void *memory = shmat(id, NULL, 0);
    if (memory == (void *)-1)
        abort();
    hold("sysv", memory);
    if (shmat(id, NULL, SHM_RDONLY) == (void *)-1)
        abort();
    shmdt(memory);
    shmctl(id, IPC_RMID, NULL);
}

__attribute__((noinline)) static void remapped(void) {
    void *memory = (void *)(uintptr_t)constants;
    mprotect(memory, BYTES, PROT_READ | PROT_WRITE);
    hold("rodata", memory);
    mprotect(memory, BYTES, PROT_READ);
}

__attribute__((noinline)) static void unlinked(void) {
    int file = file_of("gone");
    unlink("gone");
    locked("deleted-file", file, MAP_PRIVATE, PROT_READ);
    close(file);
}

__attribute__((noinline)) static void wipe(void) {
    volatile char frame[16384];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = 0;
}

int main(int argc, char **argv) {
    truth = fopen("truth", "w");
    locked("shared-anonymous", -1, MAP_SHARED | MAP_ANONYMOUS, PROT_READ);
    locked("private-file", file_of("data"), MAP_PRIVATE, PROT_READ);
    unlinked();
    system_v();
    locked("memfd-private", file_of("memfd-a"), MAP_PRIVATE, PROT_READ);
    twice("memfd-shared", "memfd-b", PROT_READ);
    twice("memfd-code", "memfd-c", PROT_READ | PROT_EXEC);
    locked("memfd-locked", file_of("memfd-d"), MAP_SHARED, PROT_READ);
    locked("memfd-none", file_of("memfd-e"), MAP_SHARED, PROT_NONE);
    remapped();
    hold("lost", NULL);
    wipe();
    volatile uintptr_t sum = constants[argc]; /* or the constants would go */
    (void)sum;
    fputs("told\n", truth);
    fflush(truth);
    if (strcmp(argv[1], "wait") != 0)
        abort();
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
