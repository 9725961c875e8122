/* Call frame information (DWARF 5, 6.4; .eh_frame as in the LSB and the x86-64 ABI): how a function's caller is found.
 */
#ifndef DMODS_CFI_H
#define DMODS_CFI_H

#include "audit.h"

#define CFI_REGISTERS 17 /* x86-64's: 0 to 15, and 16, the return address */
#define CFI_BP 6
#define CFI_SP 7
#define CFI_RA 16

enum cfi_how {
    CFI_SAME,
    CFI_UNDEFINED,
    CFI_AT_CFA,     /* saved at CFA + offset */
    CFI_CFA_PLUS,   /* is CFA + offset */
    CFI_REGISTER,   /* is in register `offset` */
    CFI_EXPRESSION, /* saved where the expression says */
    CFI_VALUE,      /* is what the expression says */
};

struct cfi_rule {
    enum cfi_how how;
    union {
        int64_t offset;
        const uint8_t *expression; /* its length (ULEB128), then so many bytes */
    };
};

/* The row of the table for one address. */
struct cfi_row {
    uint32_t cfa_register;
    int64_t cfa_offset;
    const uint8_t *cfa_expression; /* NULL: cfa_register + cfa_offset */
    struct cfi_rule registers[CFI_REGISTERS];
    bool signal_frame;
};

/* False where nothing is said of that address, or nothing that can be understood. */
bool cfi_find(uintptr_t address, struct cfi_row *row);

/* The value of an expression. False: it cannot be evaluated. */
bool cfi_evaluate(const uint8_t *expression, const uint64_t *registers, uint64_t first, uint64_t *value);

/* The registers of the caller from those of a frame. False: the walk ends here (`row` says whether it should). */
bool cfi_step(const struct cfi_row *row, uint64_t registers[CFI_REGISTERS]);

uint64_t cfi_unsigned(const uint8_t **p);
int64_t cfi_signed(const uint8_t **p);

#endif
