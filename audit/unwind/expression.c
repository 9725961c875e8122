#include "expression.h"
#include "../memory.h"
#include "leb128.h"

#include <string.h>

#define DEPTH 32
#define OPERATIONS 1000

bool expression_load(uint64_t address, unsigned size, uint64_t *value) {
    if (size == 0 || size > 8 || !readable(address & ~7ull) || !readable((address + size - 1) & ~7ull))
        return false;
    *value = 0;
    memcpy(value, (const void *)address, size);
    return true;
}

enum {
    ADDR = 0x03,
    DEREF = 0x06,
    CONST1U = 0x08,
    CONSTU = 0x10,
    CONSTS,
    DUP,
    DROP,
    OVER,
    PICK,
    SWAP,
    ROT,
    ABS = 0x19,
    AND,
    DIV,
    MINUS,
    MOD,
    MUL,
    NEG,
    NOT,
    OR,
    PLUS,
    PLUS_UCONST,
    SHL,
    SHR,
    SHRA,
    XOR,
    BRA,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    SKIP,
    LIT0 = 0x30,
    REG0 = 0x50,
    BREG0 = 0x70,
    BREGX = 0x92,
    DEREF_SIZE = 0x94,
    NOP = 0x96,
};

/* CONST1U to CONST8S have 1, 2, 4 and 8 bytes. Of each size the first is unsigned and the second is signed. */
static uint64_t constant(uint8_t op, const uint8_t **p) {
    unsigned size = 1u << ((op - CONST1U) / 2), unused = 64 - 8 * size;
    uint64_t value = 0;
    memcpy(&value, *p, size);
    *p += size;
    return (op - CONST1U) % 2 ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

static bool binary(uint8_t op, uint64_t a, uint64_t b, uint64_t *value) {
    int64_t x = (int64_t)a, y = (int64_t)b;
    switch (op) {
    case AND:
        *value = a & b;
        return true;
    case DIV:
        if (y == 0 || y == -1)
            return false;
        *value = (uint64_t)(x / y);
        return true;
    case MINUS:
        *value = a - b;
        return true;
    case MOD:
        if (b == 0)
            return false;
        *value = a % b;
        return true;
    case MUL:
        *value = a * b;
        return true;
    case OR:
        *value = a | b;
        return true;
    case PLUS:
        *value = a + b;
        return true;
    case SHL:
        *value = b < 64 ? a << b : 0;
        return true;
    case SHR:
        *value = b < 64 ? a >> b : 0;
        return true;
    case SHRA:
        *value = (uint64_t)(x >> (b < 64 ? b : 63));
        return true;
    case XOR:
        *value = a ^ b;
        return true;
    case EQ:
        *value = x == y;
        return true;
    case GE:
        *value = x >= y;
        return true;
    case GT:
        *value = x > y;
        return true;
    case LE:
        *value = x <= y;
        return true;
    case LT:
        *value = x < y;
        return true;
    case NE:
        *value = x != y;
        return true;
    default:
        return false;
    }
}

struct stack {
    uint64_t at[DEPTH];
    unsigned depth;
};

static bool push(struct stack *s, uint64_t value) {
    if (s->depth == DEPTH)
        return false;
    s->at[s->depth++] = value;
    return true;
}

static bool pick(struct stack *s, unsigned from_top) {
    return from_top < s->depth && push(s, s->at[s->depth - 1 - from_top]);
}

/* Run an operation that changes the upper one, two or three values in place. */
static bool change(struct stack *s, uint8_t op, const uint8_t **p) {
    unsigned needs = op == SWAP ? 2 : op == ROT ? 3 : 1;
    if (s->depth < needs)
        return false;
    uint64_t *top = &s->at[s->depth - 1], value = *top;
    switch (op) {
    case DEREF:
        return expression_load(value, 8, top);
    case DEREF_SIZE:
        return expression_load(value, *(*p)++, top);
    case DROP:
        s->depth--;
        return true;
    case SWAP:
        top[0] = top[-1];
        top[-1] = value;
        return true;
    case ROT:
        top[0] = top[-1];
        top[-1] = top[-2];
        top[-2] = value;
        return true;
    case ABS:
        *top = (int64_t)value < 0 ? -value : value;
        return true;
    case NEG:
        *top = -value;
        return true;
    case NOT:
        *top = ~value;
        return true;
    case PLUS_UCONST:
        *top = value + leb128_unsigned(p);
        return true;
    default:
        return false;
    }
}

static bool operation(struct stack *s, uint8_t op, const uint8_t **p, const uint64_t *registers) {
    if (op >= LIT0 && op < REG0)
        return push(s, op - LIT0);
    if (op >= BREG0 && op < BREG0 + 32) {
        int64_t offset = leb128_signed(p);
        return op - BREG0 < REGISTERS && push(s, registers[op - BREG0] + (uint64_t)offset);
    }
    if (op >= CONST1U && op < CONSTU)
        return push(s, constant(op, p));
    uint64_t reg, value;
    switch (op) {
    case NOP:
        return true;
    case ADDR:
        memcpy(&value, *p, 8);
        *p += 8;
        return push(s, value);
    case CONSTU:
        return push(s, leb128_unsigned(p));
    case CONSTS:
        return push(s, (uint64_t)leb128_signed(p));
    case DUP:
        return pick(s, 0);
    case OVER:
        return pick(s, 1);
    case PICK:
        return pick(s, *(*p)++);
    case BREGX:
        reg = leb128_unsigned(p);
        value = (uint64_t)leb128_signed(p);
        return reg < REGISTERS && push(s, registers[reg] + value);
    default:
        if (change(s, op, p))
            return true;
        if (s->depth < 2 || !binary(op, s->at[s->depth - 2], s->at[s->depth - 1], &value))
            return false;
        s->at[--s->depth - 1] = value;
        return true;
    }
}

bool expression_evaluate(const uint8_t *p, const uint64_t registers[REGISTERS], uint64_t first, uint64_t *value) {
    uint64_t size = leb128_unsigned(&p);
    const uint8_t *start = p, *end = p + size;
    struct stack stack = {{first}, 1};
    for (unsigned count = 0; p < end; count++) {
        if (count == OPERATIONS)
            return false;
        uint8_t op = *p++;
        if (op == SKIP || op == BRA) {
            int16_t by;
            memcpy(&by, p, 2);
            p += 2;
            if (op == SKIP || (stack.depth > 0 && stack.at[--stack.depth] != 0))
                p += by;
            if (p < start || p > end)
                return false;
        } else if (!operation(&stack, op, &p, registers)) {
            return false;
        }
    }
    if (stack.depth == 0)
        return false;
    *value = stack.at[stack.depth - 1];
    return true;
}
