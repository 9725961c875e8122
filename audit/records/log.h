/* The transaction log: a ring of the last allocations and frees. Beside it lie the contents of the freed blocks. */
#ifndef DMODS_LOG_H
#define DMODS_LOG_H

#include "../audit.h"

/* Make the rings. False: there is no memory for them. */
bool log_start(void);

/* Append `event`; its sequence is set here. `contents` is the block that is about to be freed, or NULL. */
COLD void log_event(const struct dmods_audit_transaction *event, const void *contents);

#endif
