#include "ends.h"
#include "../dump/leave.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNAL SIGUSR2

typedef void (*handler)(int);
extern int __sigaction(int number, const struct sigaction *action, struct sigaction *old);

static _Atomic bool ours; /* SIGUSR2 is ours: the program believes that it has the default action */

static void on_signal(int number) {
    (void)number;
    leave_on_signal();
}

void ends_start(void) {
    if (!leave_start())
        return;
    struct sigaction before, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    if (__sigaction(SIGNAL, NULL, &before) == 0 && before.sa_handler == SIG_DFL &&
        __sigaction(SIGNAL, &action, NULL) == 0)
        atomic_store(&ours, true);
    else
        leave_say("SIGUSR2 is ignored or handled already: it writes no profile", "");
    at_quick_exit(leave_at_exit);
}

__attribute__((destructor)) static void ended(void) { leave_at_exit(); }

/* exit() itself does not come here: it calls the destructor above, and then _exit() within libc. */
EXPORT __attribute__((noreturn)) void _exit(int status) {
    leave_at_exit();
    for (;;)
        syscall(SYS_exit_group, status);
}

EXPORT __attribute__((noreturn)) void _Exit(int status) { _exit(status); }

/* The program's own handler is not replaced. */
static void give_up(void) {
    if (atomic_exchange(&ours, false))
        leave_say("the program handles or ignores SIGUSR2 itself: the signal writes no profile", "");
}

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    if (number != SIGNAL || !atomic_load(&ours))
        return __sigaction(number, action, old);
    if (action != NULL && action->sa_handler != SIG_DFL) {
        give_up();
        int error = __sigaction(number, action, old);
        if (error == 0 && old != NULL)
            memset(old, 0, sizeof *old);
        return error;
    }
    if (old != NULL)
        memset(old, 0, sizeof *old); /* SIG_DFL */
    return 0;
}

EXPORT handler signal(int number, handler wanted) {
    static _Atomic(handler(*)(int, handler)) next;
    if (number == SIGNAL && atomic_load(&ours)) {
        if (wanted == SIG_DFL)
            return SIG_DFL;
        give_up();
    }
    handler (*real)(int, handler) = atomic_load(&next);
    if (real == NULL) {
        real = (handler(*)(int, handler))dlsym(RTLD_NEXT, "signal");
        atomic_store(&next, real);
    }
    if (real == NULL)
        return SIG_ERR;
    handler before = real(number, wanted);
    return before == on_signal ? SIG_DFL : before;
}
