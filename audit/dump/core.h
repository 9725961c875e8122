/*
 * A small core: the auditor's tables and the mappings of the process, and nothing of the program's own memory. Every
 * reader of cores finds the records in it, as it finds them in a core of the kernel.
 *
 * Its PT_LOADs are the mappings of /proc/self/maps. Those of the auditor have their contents, and the first page of a
 * mapped file has its ELF header with the build-id. NT_AUXV, NT_FILE and NT_PRPSINFO say what the program is. There is
 * no NT_PRSTATUS: it has no thread. Pages of the tables that were never used are holes of the file.
 */
#ifndef DMODS_DUMP_CORE_H
#define DMODS_DUMP_CORE_H

#include "../audit.h"

/* Write the small core of the calling process. Only system calls are made, and no lock is taken. False: an error, and
 * errno says which. The caller is a copy of the process, with one thread, that is about to exit. */
bool core_write(int fd);

#endif
