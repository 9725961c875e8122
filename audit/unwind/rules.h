/*
 * Rules: how to find the caller of a frame from rsp and rbp alone, remembered by address.
 *
 * The CFI of nearly every function says one of four things about two registers. Such a rule fits into one 64-bit word,
 * together with the address that it is for. One load finds it, and no thread sees half of it. A word that was made
 * before code was unloaded has another generation and is not used.
 */
#ifndef DMODS_RULES_H
#define DMODS_RULES_H

#include "../audit.h"

#define MEMO_SHIFT 16

enum rule_type { RULE_NONE, RULE_SP, RULE_BP, RULE_INDIRECT, RULE_SIGNAL, RULE_END, RULE_SLOW, RULE_UNKNOWN };

/* A rule has a type (3 bits), the place where the caller's rbp was saved (8 bits: words below the CFA, or above rbp
 * with RULE_INDIRECT; 0: not saved) and the CFA offset (18 bits: words, signed). An entry of the memo has 31 bits of
 * the address, 4 bits of the generation and 29 bits of rule. Its place in the table gives the lower 16 bits of the
 * address. */
#define RULE_BITS 29
#define RULE_ADDRESS_BITS 31
#define RULE_MASK ((1u << RULE_BITS) - 1)
#define GENERATIONS 16

HOT unsigned rule_type(uint32_t rule) { return rule & 7; }
HOT unsigned rule_bp(uint32_t rule) { return rule >> 3 & 0xff; }
HOT intptr_t rule_cfa(uint32_t rule) { return (intptr_t)((int32_t)(rule << 3) >> 14) * 8; }

extern _Atomic uint64_t rule_memo[1u << MEMO_SHIFT];
extern _Atomic uint32_t rule_generation; /* changes when code is unloaded */
COLD uint32_t rule_look_up(uintptr_t address, _Atomic uint64_t *place, uint64_t key, uint32_t now);
void rules_forget(void);

HOT uint64_t rule_key(uintptr_t address, uint32_t now) {
    return (uint64_t)(now % GENERATIONS) << RULE_ADDRESS_BITS | (address >> 16 & 0x7fffffff);
}

/* Return the rule for the code at `address` in generation `now`. */
HOT uint32_t rule_of(uintptr_t address, uint32_t now) {
    if (unlikely(address >> 47 != 0))
        return RULE_UNKNOWN;
    uint64_t key = rule_key(address, now);
    _Atomic uint64_t *place = &rule_memo[(address ^ address >> 16) & ((1u << MEMO_SHIFT) - 1)];
    uint64_t entry = atomic_load_explicit(place, memory_order_relaxed);
    return likely(entry >> RULE_BITS == key) ? (uint32_t)entry & RULE_MASK : rule_look_up(address, place, key, now);
}

#endif
