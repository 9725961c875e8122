/* The words of DMODS_AUDIT, separated by commas as in UMEM_DEBUG. */
#ifndef DMODS_OPTIONS_H
#define DMODS_OPTIONS_H

#include "audit.h"

/* Read all words. False: at least one word is not known. The known words are applied anyway. */
bool options_read(const char *text, struct dmods_audit_options *options);

#endif
