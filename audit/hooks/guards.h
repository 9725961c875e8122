/*
 * Guards make misuse of memory visible. A redzone follows the requested end of every block. Fresh memory reads
 * 0xbaddcafe and freed memory 0xdeadbeef, as in libumem. A free of a block whose redzone was overwritten, a second free
 * of a block, and a free of something that is not a block end the program with SIGABRT at that place. The core shows
 * the place, and root.status says why. dmods verifies the guards of all other blocks in the core.
 */
#ifndef DMODS_GUARDS_H
#define DMODS_GUARDS_H

#include "../audit.h"

/* Fill the bytes of a new block from `kept` on. */
void guards_fill_fresh(void *p, size_t size, size_t kept);
void guards_write_redzone(void *p, size_t size);
void guards_fill_freed(void *p, size_t size);

/* End the program if the redzone of a block was overwritten. */
void guards_check(const void *p, size_t size, uintptr_t frame_pointer);

/* End the program: it frees something that has no record. A block that may have lost its record passes. */
COLD void guards_stop_bad_free(const void *p, uintptr_t frame_pointer);

#endif
