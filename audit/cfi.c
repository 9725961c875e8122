/* From an address to the row of the CFI table that holds there: the description's program is run. */
#include "cfi.h"
#include "fde.h"

#define REMEMBERED 4 /* compilers nest them once; the stack may be a small one */

struct machine {
    struct cfi_row *row;
    struct cfi_row initial, remembered[REMEMBERED];
    unsigned depth;
    const struct cie *cie;
    uintptr_t location;
};

static void set(struct machine *m, uint64_t reg, enum cfi_how how, int64_t offset) {
    if (reg < CFI_REGISTERS)
        m->row->registers[reg] = (struct cfi_rule){.how = how, .offset = offset};
}

static void set_expression(struct machine *m, uint64_t reg, enum cfi_how how, const uint8_t **p) {
    const uint8_t *expression = *p;
    uint64_t size = cfi_unsigned(p);
    *p += size;
    if (reg < CFI_REGISTERS)
        m->row->registers[reg] = (struct cfi_rule){.how = how, .expression = expression};
}

static void restore(struct machine *m, uint64_t reg) {
    if (reg < CFI_REGISTERS)
        m->row->registers[reg] = m->initial.registers[reg];
}

static void define_cfa(struct machine *m, uint64_t reg, int64_t offset) {
    m->row->cfa_register = (uint32_t)reg;
    m->row->cfa_offset = offset;
    m->row->cfa_expression = NULL;
}

enum { ADVANCE = 1, OFFSET = 2, RESTORE = 3 }; /* the upper two bits */
enum {
    NOP = 0x00,
    SET_LOC,
    ADVANCE1,
    ADVANCE2,
    ADVANCE4,
    OFFSET_EXTENDED,
    RESTORE_EXTENDED,
    UNDEFINED,
    SAME_VALUE,
    REGISTER,
    REMEMBER_STATE,
    RESTORE_STATE,
    DEF_CFA,
    DEF_CFA_REGISTER,
    DEF_CFA_OFFSET,
    DEF_CFA_EXPRESSION,
    EXPRESSION,
    OFFSET_EXTENDED_SF,
    DEF_CFA_SF,
    DEF_CFA_OFFSET_SF,
    VAL_OFFSET,
    VAL_OFFSET_SF,
    VAL_EXPRESSION,
    GNU_ARGS_SIZE = 0x2e,
    GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

/* One instruction that moves no location; false for what is not known. */
static bool rule(struct machine *m, uint8_t op, const uint8_t **p) {
    int64_t align = m->cie->data_align;
    uint64_t reg;
    switch (op) {
    case NOP:
        break;
    case OFFSET_EXTENDED:
        reg = cfi_unsigned(p);
        set(m, reg, CFI_AT_CFA, (int64_t)cfi_unsigned(p) * align);
        break;
    case OFFSET_EXTENDED_SF:
        reg = cfi_unsigned(p);
        set(m, reg, CFI_AT_CFA, cfi_signed(p) * align);
        break;
    case GNU_NEGATIVE_OFFSET_EXTENDED:
        reg = cfi_unsigned(p);
        set(m, reg, CFI_AT_CFA, -(int64_t)cfi_unsigned(p) * align);
        break;
    case VAL_OFFSET:
        reg = cfi_unsigned(p);
        set(m, reg, CFI_CFA_PLUS, (int64_t)cfi_unsigned(p) * align);
        break;
    case VAL_OFFSET_SF:
        reg = cfi_unsigned(p);
        set(m, reg, CFI_CFA_PLUS, cfi_signed(p) * align);
        break;
    case RESTORE_EXTENDED:
        restore(m, cfi_unsigned(p));
        break;
    case UNDEFINED:
        set(m, cfi_unsigned(p), CFI_UNDEFINED, 0);
        break;
    case SAME_VALUE:
        set(m, cfi_unsigned(p), CFI_SAME, 0);
        break;
    case REGISTER:
        reg = cfi_unsigned(p);
        set(m, reg, CFI_REGISTER, (int64_t)cfi_unsigned(p));
        break;
    case REMEMBER_STATE:
        if (m->depth == REMEMBERED)
            return false;
        m->remembered[m->depth++] = *m->row;
        break;
    case RESTORE_STATE:
        if (m->depth == 0)
            return false;
        *m->row = m->remembered[--m->depth];
        break;
    case DEF_CFA:
        reg = cfi_unsigned(p);
        define_cfa(m, reg, (int64_t)cfi_unsigned(p));
        break;
    case DEF_CFA_SF:
        reg = cfi_unsigned(p);
        define_cfa(m, reg, cfi_signed(p) * align);
        break;
    case DEF_CFA_REGISTER:
        define_cfa(m, cfi_unsigned(p), m->row->cfa_offset);
        break;
    case DEF_CFA_OFFSET:
        m->row->cfa_offset = (int64_t)cfi_unsigned(p);
        break;
    case DEF_CFA_OFFSET_SF:
        m->row->cfa_offset = cfi_signed(p) * align;
        break;
    case DEF_CFA_EXPRESSION:
        m->row->cfa_expression = *p;
        reg = cfi_unsigned(p);
        *p += reg;
        break;
    case EXPRESSION:
        reg = cfi_unsigned(p);
        set_expression(m, reg, CFI_EXPRESSION, p);
        break;
    case VAL_EXPRESSION:
        reg = cfi_unsigned(p);
        set_expression(m, reg, CFI_VALUE, p);
        break;
    case GNU_ARGS_SIZE:
        cfi_unsigned(p);
        break;
    default:
        return false;
    }
    return true;
}

/* Run until the row for `address` is complete. */
static bool execute(struct machine *m, const uint8_t *p, const uint8_t *end, uintptr_t address) {
    while (p < end) {
        uint8_t op = *p++, low = op & 0x3f;
        uint64_t by = 0;
        bool moves = true;
        switch (op >> 6) {
        case ADVANCE:
            by = low;
            break;
        case OFFSET:
            set(m, low, CFI_AT_CFA, (int64_t)cfi_unsigned(&p) * m->cie->data_align);
            continue;
        case RESTORE:
            restore(m, low);
            continue;
        default:
            if (op == SET_LOC) {
                if (!fde_pointer(&p, m->cie->fde_encoding, 0, &m->location))
                    return false;
            } else if (op == ADVANCE1) {
                by = *p++;
            } else if (op == ADVANCE2) {
                by = READ(uint16_t, &p);
            } else if (op == ADVANCE4) {
                by = READ(uint32_t, &p);
            } else {
                moves = false;
                if (!rule(m, op, &p))
                    return false;
            }
        }
        m->location += by * m->cie->code_align;
        if (moves && m->location > address)
            return true;
    }
    return true;
}

bool cfi_find(uintptr_t address, struct cfi_row *row) {
    struct fde fde;
    if (!fde_find(address, &fde) || fde.cie.return_register != CFI_RA)
        return false;
    struct machine machine = {.row = row, .cie = &fde.cie, .location = 0};
    memset(row, 0, sizeof *row);
    row->signal_frame = fde.cie.signal_frame;
    if (!execute(&machine, fde.cie.program, fde.cie.end, UINTPTR_MAX))
        return false;
    machine.initial = *row;
    machine.location = fde.start;
    return execute(&machine, fde.program, fde.end, address);
}
