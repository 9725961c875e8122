#if defined __x86_64__
#include "rules.h"
#include "cfi.h"
#include "leb128.h"

_Atomic uint64_t rule_memo[1u << MEMO_SHIFT];
_Atomic uint32_t rule_generation;
static _Atomic uint32_t filled; /* the latest generation that has an entry */

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

/* Say that a generation has entries. A thread that is late must not replace a later generation by its own. */
static void mark_filled(uint32_t generation) {
    uint32_t before = atomic_load(&filled);
    while ((int32_t)(generation - before) > 0 && !atomic_compare_exchange_weak(&filled, &before, generation))
        ;
}

COLD uint32_t rule_look_up(uintptr_t address, _Atomic uint64_t *place, uint64_t key, uint32_t now) {
    struct cfi_row row;
    uint32_t rule = cfi_find(address, &row) ? rule_from(&row) : RULE_UNKNOWN;
    if (atomic_load(&rule_generation) != now)
        return rule; /* an entry of an earlier generation would come back when its number does */
    mark_filled(now);
    uint64_t entry = key << RULE_BITS | rule;
    atomic_store(place, entry);
    if (atomic_load(&rule_generation) != now)
        atomic_compare_exchange_strong(place, &entry, 0);
    return rule;
}

/* Clear the entries whose number of a generation is one of the `GENERATIONS / 2` from `first` on. */
static void clear_entries(uint32_t first) {
    for (size_t i = 0; i < sizeof rule_memo / sizeof rule_memo[0]; i++) {
        uint64_t entry = atomic_load_explicit(&rule_memo[i], memory_order_relaxed);
        uint32_t number = (uint32_t)(entry >> (RULE_BITS + RULE_ADDRESS_BITS));
        if (entry != 0 && (number - first) % GENERATIONS < GENERATIONS / 2)
            atomic_compare_exchange_strong(&rule_memo[i], &entry, 0);
    }
}

/*
 * Begin a new generation, unless the present one has no entries. When this returns, no entry that was made before the
 * call is valid, whatever other threads do meanwhile: any of them may lose its processor at any point here. So nothing
 * is announced before it is done. A thread clears the old entries of the numbers that come next, and only then uses
 * them. It clears half of the numbers at a time: that leaves the other half to threads that still look something up in
 * an earlier generation.
 */
void rules_forget(void) {
    uint32_t now = atomic_load(&rule_generation), next = now + 1;
    if (atomic_load(&filled) != now)
        return;
    if (next % (GENERATIONS / 2) == 0)
        clear_entries(next % GENERATIONS);
    if (atomic_compare_exchange_strong(&rule_generation, &now, next))
        __atomic_fetch_add(&root.figures.generations, 1, __ATOMIC_RELAXED);
}
#endif
