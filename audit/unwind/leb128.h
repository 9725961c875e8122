/* LEB128 numbers (DWARF 5, 7.6). Each function moves `p` behind the number. */
#ifndef DMODS_LEB128_H
#define DMODS_LEB128_H

#include <stdint.h>

static inline uint64_t leb128_unsigned(const uint8_t **p) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = *(*p)++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
}

static inline int64_t leb128_signed(const uint8_t **p) {
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {
        byte = *(*p)++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (byte & 0x40 && shift < 64)
        value |= ~0ull << shift;
    return (int64_t)value;
}

#endif
