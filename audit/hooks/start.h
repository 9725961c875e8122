/* The start: at the first allocation after the environment exists, at the latest in the library's constructor. */
#ifndef DMODS_START_H
#define DMODS_START_H

#include "../audit.h"

/* Start the auditor if it has not started. False: it is too early. */
bool start(void);

#endif
