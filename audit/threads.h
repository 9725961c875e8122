/* The threads of the program, each registered when it first allocates or frees. */
#ifndef DMODS_THREADS_H
#define DMODS_THREADS_H

#include "frame.h"

/* The state of one thread, in its static TLS. The rbp of a frame may hold any value, also a pointer to a block:
 * root.tls_offset tells readers where this structure is. */
struct thread {
    uint32_t index; /* in root.threads; 0: the table is full */
    bool registered, walking, complete, mapping;
    int32_t head, tail; /* frames[head..tail): the last stack, innermost first; `complete`: to where the thread began */
    uint32_t generation;
    uint32_t stack; /* the node of its innermost root.options.frames frames */
    uintptr_t stack_low, stack_high;
    bool sampling;
    int64_t until_sample;
    uint64_t random;
    struct frame frames[CACHED_FRAMES];
};
extern __thread struct thread self_thread __attribute__((tls_model("initial-exec")));

COLD void thread_register(struct thread *thread);
void thread_forked(void); /* in the child: its one thread gets a new number */

/* Return the calling thread, registered. */
HOT struct thread *thread_self(void) {
    struct thread *thread = &self_thread;
    if (unlikely(!thread->registered))
        thread_register(thread);
    return thread;
}

void threads_start(void);

#endif
