#include "cfi.h"
#include "fde.h"
#include "leb128.h"

#define REMEMBERED 4 /* compilers nest once; the stack of the thread may be small */

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
    uint64_t size = leb128_unsigned(p);
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

enum { ADVANCE = 1, OFFSET = 2, RESTORE = 3 }; /* operations in the upper two bits */
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

/* Run an instruction that does not change the location. False: it is not known. */
static bool run_instruction(struct machine *m, uint8_t op, const uint8_t **p) {
    int64_t align = m->cie->data_align;
    uint64_t reg;
    switch (op) {
    case NOP:
        break;
    case OFFSET_EXTENDED:
        reg = leb128_unsigned(p);
        set(m, reg, CFI_AT_CFA, (int64_t)leb128_unsigned(p) * align);
        break;
    case OFFSET_EXTENDED_SF:
        reg = leb128_unsigned(p);
        set(m, reg, CFI_AT_CFA, leb128_signed(p) * align);
        break;
    case GNU_NEGATIVE_OFFSET_EXTENDED:
        reg = leb128_unsigned(p);
        set(m, reg, CFI_AT_CFA, -(int64_t)leb128_unsigned(p) * align);
        break;
    case VAL_OFFSET:
        reg = leb128_unsigned(p);
        set(m, reg, CFI_CFA_PLUS, (int64_t)leb128_unsigned(p) * align);
        break;
    case VAL_OFFSET_SF:
        reg = leb128_unsigned(p);
        set(m, reg, CFI_CFA_PLUS, leb128_signed(p) * align);
        break;
    case RESTORE_EXTENDED:
        restore(m, leb128_unsigned(p));
        break;
    case UNDEFINED:
        set(m, leb128_unsigned(p), CFI_UNDEFINED, 0);
        break;
    case SAME_VALUE:
        set(m, leb128_unsigned(p), CFI_SAME, 0);
        break;
    case REGISTER:
        reg = leb128_unsigned(p);
        set(m, reg, CFI_REGISTER, (int64_t)leb128_unsigned(p));
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
        reg = leb128_unsigned(p);
        define_cfa(m, reg, (int64_t)leb128_unsigned(p));
        break;
    case DEF_CFA_SF:
        reg = leb128_unsigned(p);
        define_cfa(m, reg, leb128_signed(p) * align);
        break;
    case DEF_CFA_REGISTER:
        define_cfa(m, leb128_unsigned(p), m->row->cfa_offset);
        break;
    case DEF_CFA_OFFSET:
        m->row->cfa_offset = (int64_t)leb128_unsigned(p);
        break;
    case DEF_CFA_OFFSET_SF:
        m->row->cfa_offset = leb128_signed(p) * align;
        break;
    case DEF_CFA_EXPRESSION:
        m->row->cfa_expression = *p;
        reg = leb128_unsigned(p);
        *p += reg;
        break;
    case EXPRESSION:
        reg = leb128_unsigned(p);
        set_expression(m, reg, CFI_EXPRESSION, p);
        break;
    case VAL_EXPRESSION:
        reg = leb128_unsigned(p);
        set_expression(m, reg, CFI_VALUE, p);
        break;
    case GNU_ARGS_SIZE:
        leb128_unsigned(p);
        break;
    default:
        return false;
    }
    return true;
}

/* Run the program until the row for `address` is complete. */
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
            set(m, low, CFI_AT_CFA, (int64_t)leb128_unsigned(&p) * m->cie->data_align);
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
                if (!run_instruction(m, op, &p))
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

bool cfi_step(const struct cfi_row *row, uint64_t registers[CFI_REGISTERS]) {
    uint64_t cfa, before[CFI_REGISTERS];
    memcpy(before, registers, sizeof before);
    if (row->cfa_expression != NULL) {
        if (!expression_evaluate(row->cfa_expression, before, 0, &cfa))
            return false;
    } else if (row->cfa_register < CFI_REGISTERS) {
        cfa = before[row->cfa_register] + (uint64_t)row->cfa_offset;
    } else {
        return false;
    }
    registers[CFI_SP] = cfa;
    for (unsigned i = 0; i < CFI_REGISTERS; i++) {
        const struct cfi_rule *rule = &row->registers[i];
        uint64_t value;
        switch (rule->how) {
        case CFI_SAME:
            continue;
        case CFI_UNDEFINED:
            if (i == CFI_RA)
                return false;
            continue;
        case CFI_AT_CFA:
            if (!expression_load(cfa + (uint64_t)rule->offset, 8, &registers[i]))
                return false;
            break;
        case CFI_CFA_PLUS:
            registers[i] = cfa + (uint64_t)rule->offset;
            break;
        case CFI_REGISTER:
            if ((uint64_t)rule->offset >= CFI_REGISTERS)
                return false;
            registers[i] = before[rule->offset];
            break;
        case CFI_EXPRESSION:
            if (!expression_evaluate(rule->expression, before, cfa, &value) ||
                !expression_load(value, 8, &registers[i]))
                return false;
            break;
        case CFI_VALUE:
            if (!expression_evaluate(rule->expression, before, cfa, &registers[i]))
                return false;
            break;
        }
    }
    return true;
}
