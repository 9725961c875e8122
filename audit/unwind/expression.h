/* DWARF expressions in call frame information. */
#ifndef DMODS_EXPRESSION_H
#define DMODS_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

#define REGISTERS 17 /* of x86-64: 0 to 15, and 16, the return address */

/* Evaluate an expression, which begins with its length. `first` is on the stack when it starts. False: it cannot be
 * evaluated. */
bool expression_evaluate(const uint8_t *expression, const uint64_t registers[REGISTERS], uint64_t first,
                         uint64_t *value);

/* Read `size` bytes, at most 8. False: they cannot be read. */
bool expression_load(uint64_t address, unsigned size, uint64_t *value);

#endif
