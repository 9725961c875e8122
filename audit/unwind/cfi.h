/* Call frame information: how to find the caller of a function (DWARF 5, 6.4; .eh_frame as in the LSB and the x86-64
 * ABI). */
#ifndef DMODS_CFI_H
#define DMODS_CFI_H

#include "expression.h"

#define CFI_REGISTERS REGISTERS
#define CFI_BP 6
#define CFI_SP 7
#define CFI_RA 16

enum cfi_how {
    CFI_SAME,
    CFI_UNDEFINED,
    CFI_AT_CFA,     /* saved at CFA + offset */
    CFI_CFA_PLUS,   /* has the value CFA + offset */
    CFI_REGISTER,   /* is in register number `offset` */
    CFI_EXPRESSION, /* saved at the address that the expression gives */
    CFI_VALUE,      /* has the value that the expression gives */
};

struct cfi_rule {
    enum cfi_how how;
    union {
        int64_t offset;
        const uint8_t *expression; /* its length (ULEB128), then its bytes */
    };
};

/* The row for one address. */
struct cfi_row {
    uint32_t cfa_register;
    int64_t cfa_offset;
    const uint8_t *cfa_expression; /* NULL: cfa_register + cfa_offset */
    struct cfi_rule registers[CFI_REGISTERS];
    bool signal_frame;
};

/* Find the row for an address. False: no row is for it, or the row uses something that is not known. */
bool cfi_find(uintptr_t address, struct cfi_row *row);

/* Replace the registers of a frame by those of its caller. False: the walk ends here. `row` says whether the stack
 * begins here. */
bool cfi_step(const struct cfi_row *row, uint64_t registers[CFI_REGISTERS]);

#endif
