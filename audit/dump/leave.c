#include "leave.h"
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_TEXT 16384
#define KERNEL_SIGNALS 64

/* What Python is started with. The program may overwrite or free its environment, so everything is copied at the start.
 * Of the environment the program that makes the profile gets the words that `kept` names. */
static struct {
    char text[MOST_TEXT];
    size_t used;
    const char *file, *python, *packages;
    char *environment[16];
    uint32_t pid; /* that `dmods run` had: this process writes the file itself */
    bool each;    /* the name holds %p: every process writes a file of its own */
    struct stat errors;
    bool has_errors;
} given;
static const char *const kept[] = {"PATH",   "HOME", "LANG",           "LC_ALL", "LD_LIBRARY_PATH",
                                   "TMPDIR", "TZ",   "DEBUGINFOD_URLS"};

static _Atomic int busy; /* guards the two below */
static char core[4200];  /* the last small core; its writer holds a lock on it until the profile is written */
static uint32_t written;
static _Atomic bool left;

static char *keep(const char *name, const char *value) {
    size_t first = strlen(name), second = strlen(value);
    if (first + second + 2 > MOST_TEXT - given.used)
        return NULL;
    char *at = given.text + given.used;
    memcpy(at, name, first);
    memcpy(at + first, value, second + 1);
    given.used += first + second + 1;
    return at;
}

bool leave_start(void) {
    const char *file = getenv("DMODS_PROFILE"), *pid = getenv("DMODS_PROFILE_PID"),
               *python = getenv("DMODS_PROFILE_PYTHON"), *packages = getenv("DMODS_PROFILE_PACKAGES");
    if (file == NULL || pid == NULL || python == NULL || packages == NULL || *file != '/')
        return false;
    given.file = keep("", file);
    given.python = keep("", python);
    given.packages = keep("", packages);
    given.pid = (uint32_t)strtoul(pid, NULL, 10);
    given.each = strstr(file, "%p") != NULL;
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = getenv(kept[i]);
        char *at = value != NULL ? keep(kept[i], "=") : NULL;
        if (at == NULL)
            continue;
        given.used--; /* over the NUL */
        if (keep("", value) != NULL)
            given.environment[count++] = at;
    }
    given.has_errors = fstat(2, &given.errors) == 0;
    return given.file != NULL && given.python != NULL && given.packages != NULL;
}

static bool errors_are_the_same(void) {
    struct stat now;
    return given.has_errors && fstat(2, &now) == 0 && now.st_dev == given.errors.st_dev &&
           now.st_ino == given.errors.st_ino;
}

static char *appended(char *at, const char *end, const char *text) {
    while (*text != 0 && at < end)
        *at++ = *text++;
    *at = 0;
    return at;
}

static char *number(char *at, const char *end, uint32_t value) {
    char digits[12], *p = digits + sizeof digits - 1;
    *p = 0;
    do
        *--p = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return appended(at, end, p);
}

void leave_say(const char *text, const char *more) {
    char line[1024], *at = line;
    const char *end = line + sizeof line - 2;
    at = appended(appended(appended(at, end, "dmods audit: "), end, text), end, more);
    *at++ = '\n';
    if (errors_are_the_same() && syscall(SYS_write, 2, line, at - line) < 0)
        return;
}

/* The program's descriptors would keep its pipes and sockets open. */
static void drop_files(void) {
    if (!errors_are_the_same())
        syscall(SYS_close, 2);
    syscall(SYS_close, 0);
    syscall(SYS_close, 1);
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
    if (syscall(SYS_close_range, 3, ~0u, 0) != 0) { /* Linux 5.9 */
        struct rlimit limit = {1024, 1024};
        getrlimit(RLIMIT_NOFILE, &limit);
        for (rlim_t fd = 3; fd < limit.rlim_cur && fd < 65536; fd++)
            syscall(SYS_close, fd);
    }
    int null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0); /* becomes 0 */
    for (int fd = null + 1; null == 0 && fd <= 2; fd++)
        if (syscall(SYS_fcntl, fd, F_GETFD) < 0)
            syscall(SYS_dup3, null, fd, 0);
}

/* The handlers of the program must not run in its copy. All signals are blocked until no handler is left. */
static void drop_handlers(void) {
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } standard = {0}; /* struct kernel_sigaction */
    for (int number = 1; number <= KERNEL_SIGNALS; number++)
        if (number != SIGPIPE)
            syscall(SYS_rt_sigaction, number, &standard, NULL, 8);
    uint64_t none = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
}

static __attribute__((noreturn)) void finish(void) {
    for (;;)
        syscall(SYS_exit_group, 1);
}

static void name_core(uint32_t pid) {
    char *at = core;
    const char *end = core + sizeof core - 1;
    at = number(appended(appended(at, end, given.file), end, "."), end, pid);
    appended(number(appended(at, end, "."), end, written), end, ".core");
}

/* The copy of the process that writes the small core and becomes Python. */
static __attribute__((noreturn)) void become_python(int fd, uint32_t pid) {
    if (!core_write(fd)) {
        leave_say("no profile: the records cannot be written (is the disk full?): ", core);
        syscall(SYS_unlinkat, AT_FDCWD, core, 0);
        finish();
    }
    char digits[12], order[12];
    number(digits, digits + sizeof digits - 1, pid);
    number(order, order + sizeof order - 1, written);
    char *arguments[] = {(char *)given.python,
                         "-I",
                         "-c",
                         "import sys; sys.path.insert(0, sys.argv[1]); from dmods.cli.at_exit import main; main()",
                         (char *)given.packages,
                         core,
                         (char *)given.file,
                         digits,
                         order,
                         pid == given.pid ? "own" : "other",
                         NULL};
    syscall(SYS_execve, given.python, arguments, given.environment);
    leave_say("Python cannot be started; `dmods profile` makes the profile of: ", core);
    finish();
}

/* The first copy makes the file and a second copy, and ends. After execve() the program would see its child, so Python
 * must not be one (fs/exec.c, de_thread: exit_signal becomes SIGCHLD). */
static __attribute__((noreturn)) void first_copy(bool at_exit, uint32_t pid) {
    drop_files();
    drop_handlers();
    if (!at_exit)
        setpriority(PRIO_PROCESS, 0, 10);
    syscall(SYS_unlinkat, AT_FDCWD, core, 0);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, core, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        leave_say("no profile: this file cannot be made: ", core);
        finish();
    }
    syscall(SYS_flock, fd, LOCK_EX | LOCK_NB); /* Python inherits the descriptor, and the lock with it */
    long second = syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (second <= 0)
        become_python(fd, pid); /* where there is no second copy, the program sees a child */
    finish();
}

/* Return whether the last profile is written, or wait until it is. */
static bool is_written(bool wait_for_it) {
    int fd = core[0] == 0 ? -1 : (int)syscall(SYS_openat, AT_FDCWD, core, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0)
        return true;
    long error;
    do
        error = syscall(SYS_flock, fd, wait_for_it ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (error != 0 && errno == EINTR);
    bool locked = error != 0 && errno == EWOULDBLOCK;
    syscall(SYS_close, fd);
    return !locked;
}

/* The first copy has no exit signal: the program gets no SIGCHLD for it, and its wait() does not see it (wait(2),
 * __WCLONE). */
static void leave(bool at_exit) {
    uint32_t pid = (uint32_t)syscall(SYS_getpid);
    if (pid != root.pid || root.state != DMODS_AUDIT_RECORDING)
        return; /* a child of vfork: it runs in the memory of its parent */
    uint64_t all = ~0ull, before;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, 8);
    written++;
    name_core(pid);
    long copy = syscall(SYS_clone, 0, 0, 0, 0, 0), done;
    if (copy == 0)
        first_copy(at_exit, pid);
    do
        done = copy < 0 ? 0 : syscall(SYS_wait4, copy, NULL, __WALL, NULL);
    while (done < 0 && errno == EINTR);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
    if (copy < 0)
        leave_say("no profile: the process cannot be copied", errno == ENOMEM ? ": there is not enough memory" : "");
}

void leave_on_signal(void) {
    int saved = errno;
    if (atomic_exchange(&busy, 1) == 0) {
        if (is_written(false))
            leave(false);
        else
            leave_say("the last profile is still being written: this signal writes none", "");
        atomic_store(&busy, 0);
    }
    errno = saved;
}

void leave_at_exit(void) {
    uint32_t pid = (uint32_t)syscall(SYS_getpid);
    if (given.file == NULL || pid != root.pid || (pid != given.pid && !given.each) || atomic_exchange(&left, true))
        return;
    int saved = errno;
    for (int tries = 0; atomic_exchange(&busy, 1) != 0 && tries < 1000; tries++)
        sched_yield(); /* another thread is making a copy */
    is_written(true);
    leave(true);
    is_written(true);
    atomic_store(&busy, 0);
    errno = saved;
}
