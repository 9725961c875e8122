// A server: it answers every line with the next number, each in a thread of its own, so threads are made all the time.
// It leaks blocks of 1234 bytes, as many as it says, and has memory of several kinds.
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEAKS = 7, PAGE = 4096 };

static char *volatile sparse, *volatile sealed, *volatile excluded, *volatile own, *volatile lost;
static char **volatile ballast;

static void *answer(void *given) {
    int client = *(int *)given;
    free(given);
    char line[64];
    size_t have = 0;
    while (have < sizeof line - 1) {
        ssize_t got = read(client, line + have, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || line[have++] == '\n')
            break;
    }
    line[have] = 0;
    char *reply = malloc(64);
    int size = snprintf(reply, 64, "%ld\n", atol(line) + 1);
    if (write(client, reply, size) != size)
        abort();
    free(reply);
    close(client);
    return NULL;
}

static __attribute__((noinline)) void leak(void) {
    for (int i = 0; i < LEAKS; i++)
        memset(malloc(1234), 'l', 1234);
}

// Maps a deleted file of two pages. The first is written to. The second was never touched.
static char *map_deleted(FILE *file, const char *second, size_t size) {
    ftruncate(fileno(file), 2 * PAGE);
    pwrite(fileno(file), second, 4, PAGE);
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    *(void **)at = malloc(size); // held by a page that is no page of the file any more
    return at;
}

int main(int argc, char **argv) {
    size_t megabytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
    size_t far = (argc > 2 ? strtoul(argv[2], NULL, 0) : 32) << 20; // gdb's gcore writes zeros for what was not touched
    size_t count = megabytes << 14;
    ballast = malloc(count * sizeof *ballast);
    for (size_t i = 0; i < count; i++)
        memset(ballast[i] = malloc(64), 'b', 64);
    leak();
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    sparse = mmap(NULL, 2 * far, PROT_READ | PROT_WRITE, anonymous | MAP_NORESERVE, -1, 0);
    memset(sparse + far, 's', PAGE);
    sealed = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    *(void **)sealed = malloc(777); // held by memory that cannot be read any more
    mprotect(sealed, PAGE, PROT_NONE);
    excluded = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    memset(excluded, 'x', PAGE);
    madvise(excluded, PAGE, MADV_DONTDUMP);
    own = map_deleted(tmpfile(), "open", 888);
    FILE *closed = tmpfile();
    lost = map_deleted(closed, "lost", 999);
    fclose(closed);

    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (bind(server, (struct sockaddr *)&at, size) || listen(server, 128) || getsockname(server, (struct sockaddr *)&at, &size))
        return 1;
    printf("port %d sparse %p\n", ntohs(at.sin_port), (void *)sparse);
    fflush(stdout);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (;;) {
        int client = accept(server, NULL, NULL);
        if (client < 0 && errno == EINTR)
            continue;
        int *given = malloc(sizeof *given);
        *given = client;
        pthread_t thread;
        while (pthread_create(&thread, &detached, answer, given))
            usleep(100);
    }
}
