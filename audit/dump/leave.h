/*
 * `dmods run --profile-at-exit`: leave a heap profile where the program ends, and on SIGUSR2.
 *
 * A copy of the process (a bare clone, so no fork handler runs and no lock matters) writes a small core beside the
 * profile, and becomes the Python of `dmods run`, which makes the profile out of it. The program itself only makes the
 * copy. So the records are those of one moment, whatever the other threads do, and the program goes on during the
 * writing. If Python cannot run, the small core stays, and a message says what to do with it. Reading the memory of the
 * process from outside would need a parent that stays alive, the permission to trace, and a program that waits.
 *
 * Everything here may be called in a signal handler: it makes system calls only.
 */
#ifndef DMODS_DUMP_LEAVE_H
#define DMODS_DUMP_LEAVE_H

#include "../audit.h"

/* Read DMODS_PROFILE and the words beside it. False: no profile is asked for. */
bool leave_start(void);

/* Write the profile and wait until it is written: the process ends. Only the first call does it. */
void leave_at_exit(void);

/* Write the profile while the program goes on. */
void leave_on_signal(void);

/* Write a line to stderr, if it still is the file that it was when the program started. */
void leave_say(const char *text, const char *more);

#endif
