/* The walk of a thread's stack. */
#ifndef DMODS_WALK_H
#define DMODS_WALK_H

#include "../threads.h"

/* Prepare the walk: what it needs later must not allocate then. */
void walk_start(void);

/* Return the node of the stack that begins with the caller of the function with that frame pointer. */
uint32_t walk(struct thread *thread, uintptr_t frame_pointer);

/* Forget everything that is remembered about code: some of it was unloaded. */
void walk_code_unloaded(void);

#endif
