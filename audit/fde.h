/* Frame descriptions as they lie in .eh_frame (LSB 5.0, 10.6): what is said of a function, not run yet. */
#ifndef DMODS_FDE_H
#define DMODS_FDE_H

#include "audit.h"

#include <string.h>

struct cie {
    uint64_t code_align;
    int64_t data_align;
    uint8_t fde_encoding, return_register;
    bool augmented, signal_frame;
    const uint8_t *program, *end;
};

struct fde {
    struct cie cie;
    uintptr_t start;
    size_t size;
    const uint8_t *program, *end;
};

#define READ(type, p)                                                                                                  \
    ({                                                                                                                 \
        type value_;                                                                                                   \
        memcpy(&value_, *(p), sizeof value_);                                                                          \
        *(p) += sizeof value_;                                                                                         \
        value_;                                                                                                        \
    })

/* False where no code of that address is described. */
bool fde_find(uintptr_t address, struct fde *fde);

/* An encoded pointer (LSB 5.0, 10.5); `data`: what the data-relative ones are relative to. */
bool fde_pointer(const uint8_t **p, uint8_t encoding, uintptr_t data, uintptr_t *value);

#endif
