/*
 * Rules: how the caller of a frame is found from rsp and rbp alone, remembered by address.
 *
 * Nearly every function's CFI says one of four things about two registers; that fits, with the address it is for, in
 * one 64-bit word. One load finds it; a word is never half-written. A word made before code was unloaded has another
 * generation and is not looked at.
 */
#ifndef DMODS_RULES_H
#define DMODS_RULES_H

#include "audit.h"

#define MEMO_SHIFT 16

enum rule_type { RULE_NONE, RULE_SP, RULE_BP, RULE_INDIRECT, RULE_SIGNAL, RULE_END, RULE_SLOW, RULE_UNKNOWN };

/* A rule: type 3 bits, where the caller's rbp was saved 8 bits (in words from the CFA down, or from rbp up with
 * RULE_INDIRECT; 0: nowhere), CFA offset 18 bits (in words, signed). A memo entry: 31 bits of the address, 4 bits of
 * the generation, 29 bits of rule; the lower 16 bits of the address are in its place in the table. */
#define RULE_BITS 29
#define RULE_MASK ((1u << RULE_BITS) - 1)
#define GENERATIONS 16

HOT unsigned rule_type(uint32_t rule) { return rule & 7; }
HOT unsigned rule_bp(uint32_t rule) { return rule >> 3 & 0xff; }
HOT intptr_t rule_cfa(uint32_t rule) { return (intptr_t)((int32_t)(rule << 3) >> 14) * 8; }

extern _Atomic uint64_t rule_memo[1u << MEMO_SHIFT];
extern _Atomic uint32_t rule_generation; /* it changes when code is unloaded */
COLD uint32_t rule_look_up(uintptr_t address, _Atomic uint64_t *place, uint64_t key);

HOT uint64_t rule_key(uintptr_t address, uint32_t now) {
    return (uint64_t)(now % GENERATIONS) << 31 | (address >> 16 & 0x7fffffff);
}

/* The rule for the code at `address`, in generation `now`. */
HOT uint32_t rule_of(uintptr_t address, uint32_t now) {
    if (unlikely(address >> 47 != 0))
        return RULE_UNKNOWN;
    uint64_t key = rule_key(address, now);
    _Atomic uint64_t *place = &rule_memo[(address ^ address >> 16) & ((1u << MEMO_SHIFT) - 1)];
    uint64_t entry = atomic_load_explicit(place, memory_order_relaxed);
    return likely(entry >> RULE_BITS == key) ? (uint32_t)entry & RULE_MASK : rule_look_up(address, place, key);
}

#endif
