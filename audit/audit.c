#include "audit.h"

struct dmods_audit_root dmods_audit_root __attribute__((aligned(4096))) = {
    .magic = DMODS_AUDIT_MAGIC,
    .version = DMODS_AUDIT_VERSION,
    .size = sizeof(struct dmods_audit_root),
};
struct settings settings;
