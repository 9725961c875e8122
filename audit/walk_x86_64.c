/*
 * Complete stacks, in code with and without frame pointers, for a few nanoseconds a frame.
 *
 * 1. A memo of rules (rules.h): one load says how a frame's caller is found.
 * 2. Verified reuse. Between two allocations of a thread the outer part of its stack mostly stays. What was found by
 *    walking it (frames of pc, rsp, rbp) is still true if the frame where the new walk arrives is the same in all that
 *    the rest depends on, every return address that the rest was found by is still in its place, so are the saved rbp
 *    that it went by, and no code was unloaded. All of that is checked, each time, for all frames that go into the
 *    record: one matching slot would not do, nor all return addresses alone (a frame found by rbp may stay where the
 *    saved rbp moved).
 *
 * What no rule covers is walked by expression.c with all registers; such a stack is not kept.
 */
#if defined __x86_64__
#include "cfi.h"
#include "rules.h"

#define NEW_FRAMES 10 /* a path that changed by more is walked plainly: that is faster then */

/* A walk under way. On the thread's own stack everything from rsp to its upper end can be read; elsewhere (a
 * coroutine's stack, a signal's) each page is asked about first. */
struct walk {
    uintptr_t high;
    uint32_t generation;
    uintptr_t page; /* known to be readable */
};

HOT bool word_at(struct walk *w, uintptr_t address, uintptr_t sp, uintptr_t *value) {
    if (address % 8 != 0)
        return false;
    if (w->high != 0) {
        if (address < sp || address >= w->high)
            return false;
    } else if (address >> 12 != w->page) {
        if (!readable(address))
            return false;
        w->page = address >> 12;
    }
    *value = *(const uintptr_t *)address;
    return true;
}

/* The caller of frame `f`, and in f->bp_at, cfa_at and flags what was read for it. False: no further; `end` says
 * whether because the stack begins there. */
HOT bool step(struct walk *w, struct frame *f, struct frame *caller, uint32_t rule, bool *end) {
    uintptr_t cfa, bp = f->bp;
    f->bp_at = 0;
    *end = false;
    switch (rule_type(rule)) {
    case RULE_SP:
        cfa = f->sp + (uintptr_t)rule_cfa(rule);
        break;
    case RULE_BP:
        cfa = f->bp + (uintptr_t)rule_cfa(rule);
        f->flags |= FRAME_USES_BP;
        break;
    case RULE_INDIRECT:
        if (!word_at(w, f->bp + (uintptr_t)rule_cfa(rule), f->sp, &cfa))
            return false;
        f->flags |= FRAME_USES_BP | FRAME_INDIRECT;
        f->cfa_at = (int32_t)rule_cfa(rule);
        break;
    case RULE_END:
        *end = true;
        return false;
    default:
        return false;
    }
    if (cfa <= f->sp || !word_at(w, cfa - 8, f->sp, &caller->pc))
        return false;
    if (rule_bp(rule) != 0) {
        f->bp_at = rule_type(rule) == RULE_INDIRECT ? f->bp + 8 * rule_bp(rule) - 8 : cfa - 8 * rule_bp(rule);
        if (!word_at(w, f->bp_at, f->sp, &bp))
            return false;
    }
    caller->sp = cfa;
    caller->bp = bp;
    caller->flags = 0;
    *end = caller->pc == 0;
    return !*end;
}

/* The kernel's signal frame (struct rt_sigframe behind the return address that was popped; asm/sigcontext.h): the
 * interrupted registers, among them the instruction that had not been executed yet. */
static bool step_signal(struct walk *w, const struct frame *f, struct frame *caller) {
    w->high = 0; /* they may lie on another stack */
    caller->flags = FRAME_EXACT;
    return word_at(w, f->sp + 120, 0, &caller->bp) && word_at(w, f->sp + 160, 0, &caller->sp) &&
           word_at(w, f->sp + 168, 0, &caller->pc);
}

/* With all registers, from this very function outwards; what lies below the hook's caller is not kept. */
static COLD __attribute__((noinline)) int slow(uintptr_t innermost_sp, struct frame *frames, int most) {
    uint64_t r[CFI_REGISTERS] = {0};
    __asm__ volatile("lea 0f(%%rip), %%rax\n0:\tmov %%rax, %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2\n\tmov %%rbx, %3\n\t"
                     "mov %%r12, %4\n\tmov %%r13, %5\n\tmov %%r14, %6\n\tmov %%r15, %7"
                     : "=m"(r[CFI_RA]), "=m"(r[CFI_SP]), "=m"(r[CFI_BP]), "=m"(r[3]), "=m"(r[12]), "=m"(r[13]),
                       "=m"(r[14]), "=m"(r[15])::"rax");
    int count = 0;
    bool exact = true, kept = false, ended = false;
    for (int steps = 0; count < most && steps < most + 32; steps++) {
        struct cfi_row row;
        kept = kept || r[CFI_SP] >= innermost_sp;
        if (kept && steps > 0)
            frames[count++] = (struct frame){.pc = r[CFI_RA], .flags = exact ? FRAME_EXACT : 0};
        if (!cfi_find(r[CFI_RA] - !exact, &row))
            break;
        exact = row.signal_frame;
        ended = row.registers[CFI_RA].how == CFI_UNDEFINED;
        if (ended || !cfi_step(&row, r))
            break;
        ended = r[CFI_RA] == 0;
        if (ended)
            break;
    }
    if (!ended && count > 0 && count < most)
        frames[count - 1].flags |= FRAME_TRUNCATED;
    return count;
}

struct walked {
    int count;
    bool complete, reusable;
};

/* From the innermost frame, which frames[0] holds, outwards. */
static struct walked plain(struct thread *thread, uint32_t now, struct frame *frames, int most) {
    struct walk w = {.generation = now};
    if (frames[0].sp > thread->stack_low && frames[0].sp < thread->stack_high)
        w.high = thread->stack_high;
    struct walked result = {1, false, w.high != 0};
    for (; result.count < most; result.count++) {
        struct frame *f = &frames[result.count - 1];
        bool end = false;
        uint32_t rule = rule_of(f->pc - !(f->flags & FRAME_EXACT), now);
        if (rule_type(rule) == RULE_SIGNAL) {
            result.reusable = false;
            if (step_signal(&w, f, f + 1))
                continue;
        } else if (rule_type(rule) == RULE_SLOW) {
            result.reusable = false;
            int count = slow(frames[0].sp, frames, most);
            result.count = count > 0 ? count : 1;
            return result;
        } else if (step(&w, f, f + 1, rule, &end)) {
            continue;
        }
        if (!end) {
            f->flags |= FRAME_TRUNCATED;
            __atomic_fetch_add(&root.figures.truncated_stacks, 1, __ATOMIC_RELAXED);
        }
        result.complete = true;
        break;
    }
    return result;
}

/* Whether the rest of the stack depends on a frame's rbp, from the frame outside it. */
HOT void note_needs(struct frame *f, bool outer_needs) {
    if (f->bp_at != 0 && outer_needs)
        f->flags |= FRAME_CHECK_BP;
    if (f->flags & FRAME_USES_BP || (f->bp_at == 0 && outer_needs))
        f->flags |= FRAME_NEEDS_BP;
}

HOT uint64_t pc_key(const struct frame *f) {
    return f->pc | (uint64_t)(f->flags & (FRAME_TRUNCATED | FRAME_EXACT)) << 48;
}

/* The node of the innermost `count` frames, which have no hashes. */
static uint32_t intern(const struct frame *frames, int count) {
    uint64_t hash = 0;
    for (int i = count - 1, outer = 0; i >= 0; i--, outer++)
        hash += pc_key(&frames[i]) * stacks_weights[outer];
    return stacks_intern(frames, count, hash);
}

/* The node of frames[head..end) of those kept, each of which has its hash. */
HOT uint32_t intern_kept(const struct thread *t, int end) {
    uint64_t hash = t->frames[t->head].hash;
    if (end < t->tail)
        hash = (hash - t->frames[end].hash) * stacks_inverses[t->tail - end];
    return stacks_intern(&t->frames[t->head], end - t->head, hash);
}

/* Field by field: as a whole gcc copies it by "rep movs", which takes longer to begin than all the rest takes. */
HOT void copy_frame(struct frame *to, const struct frame *from) {
    to->pc = from->pc;
    to->sp = from->sp;
    to->bp = from->bp;
    to->bp_at = from->bp_at;
    to->flags = from->flags;
    to->cfa_at = from->cfa_at;
}

static uint32_t walk_anew(struct thread *t, uint32_t now, struct frame innermost) {
    int frames = (int)settings.frames;
    t->head = CACHED_FRAMES - frames - SLACK_FRAMES;
    struct frame *f = &t->frames[t->head];
    f[0] = innermost;
    struct walked walked = plain(t, now, f, frames + SLACK_FRAMES);
    t->tail = walked.reusable ? t->head + walked.count : t->head;
    t->complete = walked.complete;
    t->generation = now;
    if (!walked.reusable)
        return t->stack = intern(f, walked.count < frames ? walked.count : frames);
    bool needs = !walked.complete;
    uint64_t hash = 0;
    for (int i = walked.count - 1, outer = 0; i >= 0; i--, outer++) {
        note_needs(&f[i], needs);
        needs = f[i].flags & FRAME_NEEDS_BP;
        f[i].hash = hash += pc_key(&f[i]) * stacks_weights[outer];
    }
    return t->stack = intern_kept(t, walked.count < frames ? t->tail : t->head + frames);
}

/* Whether what was read to get from f to f + 1 still says the same. */
HOT bool still(const struct frame *f) {
    if (*(const uintptr_t *)(f[1].sp - 8) != f[1].pc)
        return false;
    if (f->flags & FRAME_CHECK_BP && *(const uintptr_t *)f->bp_at != f[1].bp)
        return false;
    return likely(!(f->flags & FRAME_INDIRECT)) ||
           *(const uintptr_t *)(f->bp + (uintptr_t)(intptr_t)f->cfa_at) == f[1].sp;
}

/* Where a walk meets the last stack: `count` frames are new, frames[at..last] are as they were, and `last` is the
 * outermost that the record wants. */
struct meeting {
    int count, at, last;
};

/* Steps from fresh[0] outwards until what is left is known to be as it was. False: it is not worth while. */
HOT bool meet(struct thread *t, uint32_t now, struct frame *fresh, struct meeting *m) {
    struct walk w = {.high = t->stack_high, .generation = now};
    int at = t->head, changed = at; /* frames[..changed) are not those of this stack */
    for (int count = 0;; count++) {
        struct frame *f = &fresh[count];
        bool end;
        while (at < t->tail && t->frames[at].sp < f->sp)
            at++;
        if (at == t->tail)
            return false;
        const struct frame *old = &t->frames[at];
        if (old->sp == f->sp && old->pc == f->pc && at >= changed &&
            (old->bp == f->bp || !(old->flags & FRAME_NEEDS_BP))) {
            int last = at + (int)settings.frames - count - 1;
            if (last >= t->tail) {
                if (!t->complete)
                    return false;
                last = t->tail - 1;
            }
            for (changed = at; changed < last && likely(still(&t->frames[changed]));)
                changed++;
            *m = (struct meeting){count, at, last};
            if (changed++ == last)
                return count <= at;
        }
        if (count == NEW_FRAMES || changed - at > NEW_FRAMES - count ||
            !step(&w, f, f + 1, rule_of(f->pc - 1, now), &end))
            return false;
    }
}

/* 0: it cannot be had from the last stack. */
HOT uint32_t walk_on(struct thread *t, uint32_t now, struct frame innermost) {
    struct frame fresh[NEW_FRAMES + 1];
    struct meeting m;
    fresh[0] = innermost;
    if (!meet(t, now, fresh, &m))
        return 0;
    int count = m.count, at = m.at, last = m.last, tail = t->tail;
    if (count == 0 && at == t->head)
        return t->stack;
    t->head = at - count;
    bool needs = t->frames[at].flags & FRAME_NEEDS_BP;
    uint64_t hash = t->frames[at].hash;
    for (int i = at - 1; i >= t->head; i--) {
        struct frame *f = &t->frames[i];
        copy_frame(f, &fresh[i - t->head]);
        note_needs(f, needs);
        needs = f->flags & FRAME_NEEDS_BP;
        f->hash = hash += pc_key(f) * stacks_weights[tail - 1 - i];
    }
    return t->stack = intern_kept(t, last + 1);
}

/* A signal's handler allocated while the thread was in here: its stack is walked without touching what is half done. */
static COLD uint32_t walk_nested(struct thread *t, uint32_t now, struct frame innermost) {
    struct frame frames[MAX_FRAMES] = {innermost};
    return intern(frames, plain(t, now, frames, (int)settings.frames).count);
}

#ifdef DMODS_AUDIT_CHECK
void check_stack(uintptr_t frame_pointer, uint32_t stack); /* tests/audit/check.c */
#endif

__attribute__((noinline)) uint32_t walk(struct thread *t, uintptr_t frame_pointer) {
    const uintptr_t *saved = (const uintptr_t *)frame_pointer;
    uint32_t now = atomic_load_explicit(&rule_generation, memory_order_acquire), stack = 0;
    struct frame innermost = {.bp = saved[0], .pc = saved[1], .sp = frame_pointer + 16};
    if (unlikely(t->walking))
        return walk_nested(t, now, innermost);
    t->walking = true;
    atomic_signal_fence(memory_order_seq_cst);
    if (t->head != t->tail && t->generation == now && innermost.sp > t->stack_low && innermost.sp < t->stack_high)
        stack = walk_on(t, now, innermost);
    if (stack == 0)
        stack = walk_anew(t, now, innermost);
    atomic_signal_fence(memory_order_seq_cst);
    t->walking = false;
#ifdef DMODS_AUDIT_CHECK
    check_stack(frame_pointer, stack);
#endif
    return stack;
}
#endif
