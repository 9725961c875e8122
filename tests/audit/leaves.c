/* A program that ends in many ways, and says what it holds: leaves WAY TOLD. Each line of TOLD is "NAME BYTES". */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACES 1000
static void *places[3][PLACES];
static size_t held[3];

#define HOLDER(name, number)                                                                                           \
    static __attribute__((noinline)) void name(size_t size, int i) {                                                   \
        places[number][i] = memset(malloc(size), 1, size);                                                             \
        held[number] += size;                                                                                          \
    }
HOLDER(small_holder, 0)
HOLDER(large_holder, 1)
HOLDER(later_holder, 2)

static void tell(const char *to) {
    static const char *const names[] = {"small_holder", "large_holder", "later_holder"};
    FILE *file = fopen(to, "w");
    for (int i = 0; i < 3; i++)
        if (held[i] != 0)
            fprintf(file, "%s %zu\n", names[i], held[i]);
    fclose(file);
}

static volatile sig_atomic_t handled;
static void handler(int number) { handled = number; }

static volatile int stop;
static void *churn(void *none) {
    while (!stop)
        free(malloc((size_t)rand() % 5000));
    return none;
}

int main(int count, char **words) {
    const char *way = count > 1 ? words[1] : "", *told = count > 2 ? words[2] : "/dev/null";
    for (int i = 0; i < PLACES; i++)
        small_holder((size_t)(17 + i % 7), i);
    for (int i = 0; i < 10; i++)
        large_holder(100000, i);
    for (int i = 0; i < 500; i++) {
        free(places[0][i]);
        held[0] -= (size_t)(17 + i % 7);
    }
    tell(told);
    if (strcmp(way, "_exit") == 0)
        _exit(3);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(3);
    if (strcmp(way, "thread") == 0) { /* the first thread ends, and the last one calls exit() for all */
        pthread_t thread;
        pthread_create(&thread, NULL, (void *(*)(void *))(void *)sleep, (void *)1);
        pthread_exit(NULL);
    }
    if (strcmp(way, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            later_holder(5000, 0);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    if (strcmp(way, "vfork") == 0) {
        pid_t child = vfork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    if (strcmp(way, "exec") == 0)
        execl("/proc/self/exe", words[0], "return", told, (char *)NULL);
    if (strcmp(way, "handler") == 0) {
        struct sigaction action = {.sa_handler = handler}, before;
        if (sigaction(SIGUSR2, NULL, &before) != 0 || before.sa_handler != SIG_DFL)
            return 90;
        if (sigaction(SIGUSR2, &action, &before) != 0 || before.sa_handler != SIG_DFL)
            return 91;
        raise(SIGUSR2);
        return handled == SIGUSR2 ? 3 : 92;
    }
    if (strcmp(way, "signal") == 0) {
        if (signal(SIGUSR2, handler) != SIG_DFL)
            return 93;
        raise(SIGUSR2);
        return handled == SIGUSR2 ? 3 : 94;
    }
    if (strcmp(way, "live") == 0) { /* a thread allocates while the profile is written; nobody sees a child */
        pthread_t thread;
        pthread_create(&thread, NULL, churn, NULL);
        raise(SIGUSR2);
        printf("wait: %d\n", (int)waitpid(-1, NULL, WNOHANG));
        fflush(stdout);
        while (getchar() != 'x')
            ;
        stop = 1;
        pthread_join(thread, NULL);
        later_holder(5000, 0);
        tell(told);
    }
    if (strcmp(way, "killed") == 0)
        raise(SIGTERM);
    if (strcmp(way, "syscall") == 0)
        syscall(SYS_exit_group, 3);
    if (strcmp(way, "closed") == 0) { /* descriptor 2 is the program's own file now */
        freopen("errors", "w", stderr);
        signal(SIGUSR2, handler);
    }
    return 3;
}
