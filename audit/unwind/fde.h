/* The frame description of a function in .eh_frame (LSB 5.0, 10.6), before its program is run. */
#ifndef DMODS_FDE_H
#define DMODS_FDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

/* Find the C library's function for the search. dlsym may allocate, so this runs at the start. */
void fde_start(void);

/* Find the description of the function at an address. False: no description covers it. */
bool fde_find(uintptr_t address, struct fde *fde);

/* Read an encoded pointer (LSB 5.0, 10.5). `data` is the base of data-relative pointers. */
bool fde_pointer(const uint8_t **p, uint8_t encoding, uintptr_t data, uintptr_t *value);

#endif
