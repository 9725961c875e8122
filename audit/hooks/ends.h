/* Where the process ends, and SIGUSR2. */
#ifndef DMODS_ENDS_H
#define DMODS_ENDS_H

#include "../audit.h"

/* Leave a profile at the end and on SIGUSR2, where one is asked for. */
void ends_start(void);

#endif
