#if defined __x86_64__
#include "rules.h"
#include "cfi.h"
#include "leb128.h"

_Atomic uint64_t rule_memo[1u << MEMO_SHIFT];
_Atomic uint32_t rule_generation;
static _Atomic bool memo_filled;

static uint32_t make_rule(enum rule_type type, int64_t bp, int64_t cfa) {
    if (bp % 8 || cfa % 8 || bp < 0 || bp / 8 > 0xff || cfa / 8 >= 1 << 17 || cfa / 8 < -(1 << 17))
        return RULE_SLOW;
    return (uint32_t)type | (uint32_t)(bp / 8) << 3 | ((uint32_t)(cfa / 8) & 0x3ffff) << 11;
}

/* Match the expression "rbp + n", dereferenced or not. gcc writes it where it aligns the stack (DRAP). */
static bool bp_plus(const uint8_t *p, bool dereferenced, int64_t *offset) {
    uint64_t size = leb128_unsigned(&p);
    const uint8_t *end = p + size;
    if (*p++ != 0x70 + CFI_BP)
        return false;
    *offset = leb128_signed(&p);
    return dereferenced ? p + 1 == end && *p == 0x06 : p == end;
}

static uint32_t rule_from(const struct cfi_row *row) {
    const struct cfi_rule *ra = &row->registers[CFI_RA], *bp = &row->registers[CFI_BP];
    int64_t cfa, saved = 0;
    if (ra->how == CFI_UNDEFINED)
        return RULE_END;
    if (row->signal_frame)
        return RULE_SIGNAL;
    if (ra->how != CFI_AT_CFA || ra->offset != -8 || row->registers[CFI_SP].how != CFI_SAME)
        return RULE_SLOW;
    if (row->cfa_expression != NULL) {
        /* 0 means "not saved", so the number that is stored here is one word larger. */
        if (!bp_plus(row->cfa_expression, true, &cfa) || bp->how != CFI_EXPRESSION ||
            !bp_plus(bp->expression, false, &saved))
            return RULE_SLOW;
        return make_rule(RULE_INDIRECT, saved + 8, cfa);
    }
    if (bp->how == CFI_AT_CFA)
        saved = -bp->offset;
    else if (bp->how != CFI_SAME)
        return RULE_SLOW;
    if (bp->how == CFI_AT_CFA && saved <= 0)
        return RULE_SLOW;
    if (row->cfa_register == CFI_SP)
        return make_rule(RULE_SP, saved, row->cfa_offset);
    return row->cfa_register == CFI_BP ? make_rule(RULE_BP, saved, row->cfa_offset) : RULE_SLOW;
}

COLD uint32_t rule_look_up(uintptr_t address, _Atomic uint64_t *place, uint64_t key) {
    struct cfi_row row;
    uint32_t rule = cfi_find(address, &row) ? rule_from(&row) : RULE_UNKNOWN;
    atomic_store_explicit(&memo_filled, true, memory_order_relaxed);
    atomic_store_explicit(place, key << RULE_BITS | rule, memory_order_relaxed);
    return rule;
}

void rules_forget(void) {
    if (!atomic_exchange(&memo_filled, false))
        return;
    root.figures.generations++;
    if ((atomic_fetch_add(&rule_generation, 1) + 1) % GENERATIONS == 0)
        for (size_t i = 0; i < sizeof rule_memo / sizeof rule_memo[0]; i++)
            atomic_store_explicit(&rule_memo[i], 0, memory_order_relaxed);
}
#endif
