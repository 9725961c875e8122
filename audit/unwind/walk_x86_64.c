/*
 * Complete stacks in code with and without frame pointers, at a few nanoseconds a frame.
 *
 * 1. A memo of rules (rules.h): one load tells how to find the caller of a frame.
 * 2. Verified reuse. Most of the outer stack of a thread stays the same between two allocations. The frames of the last
 *    walk (pc, rsp, rbp) are still right if four things hold: the frame where the new walk arrives has the same values
 * of everything that the outer frames depend on; every return address is still in its slot; so is every saved rbp that
 *    the walk used; and no code was unloaded. All of this is checked at each allocation, for all frames of the record.
 *    One matching slot is not enough. Neither are all return addresses alone, because a frame that was found by rbp may
 *    stay where the saved rbp changed.
 *
 * Code without such a rule is walked with all registers (cfi.h). Such a stack is not reused.
 */
#if defined __x86_64__
#include "../memory.h"
#include "../records/stacks.h"
#include "cfi.h"
#include "fde.h"
#include "rules.h"
#include "walk.h"

#define STACK_START 96 /* from rsp in _dl_start_user to stack_high, which is 64 above argc (threads.c) */
#define NEW_FRAMES 10  /* if more frames changed, a new walk is faster */
#define LINKS 8        /* return addresses that are compared at once */

/* The state of a walk. The thread's own stack can be read from rsp to its upper end. On another stack (of a coroutine
 * or of a signal) each page is checked first. */
struct walk {
    uintptr_t high; /* 0: not on the thread's own stack */
    uint32_t generation;
    uintptr_t page; /* the last page that was checked */
};

HOT bool read_word(struct walk *w, uintptr_t address, uintptr_t sp, uintptr_t *value) {
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

/* Find the caller of frame `f`. f->bp_at, cfa_at and flags say what was read for it. False: the walk ends. `end` says
 * whether the stack begins here. */
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
        if (!read_word(w, f->bp + (uintptr_t)rule_cfa(rule), f->sp, &cfa))
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
    if (cfa <= f->sp || !read_word(w, cfa - 8, f->sp, &caller->pc))
        return false;
    if (rule_bp(rule) != 0) {
        f->bp_at = rule_type(rule) == RULE_INDIRECT ? f->bp + 8 * rule_bp(rule) - 8 : cfa - 8 * rule_bp(rule);
        if (!read_word(w, f->bp_at, f->sp, &bp))
            return false;
    }
    caller->sp = cfa;
    caller->bp = bp;
    caller->flags = 0;
    *end = caller->pc == 0;
    return !*end;
}

/* Find the code that a signal interrupted, from the kernel's signal frame (asm/sigcontext.h; struct rt_sigframe follows
 * the return address that was popped). Its pc is the instruction that was not executed yet. */
static bool step_signal(struct walk *w, const struct frame *f, struct frame *caller) {
    w->high = 0; /* the interrupted code may use another stack */
    caller->flags = FRAME_EXACT;
    return read_word(w, f->sp + 120, 0, &caller->bp) && read_word(w, f->sp + 160, 0, &caller->sp) &&
           read_word(w, f->sp + 168, 0, &caller->pc);
}

/* Return whether the stack begins at a frame whose code has no unwind table. This is so in two places. The first is the
 * start of the process in ld.so (_dl_start_user), where the stack has its highest address. The second is a return
 * address at the first instruction of a function: no call can leave it, but makecontext puts it there
 * (__start_context). */
static COLD bool begins_here(const struct thread *thread, uintptr_t pc, uintptr_t sp) {
    struct fde fde;
    bool process_start = sp >= thread->stack_high - STACK_START && sp < thread->stack_high;
    return process_start || (fde_find(pc, &fde) && fde.start == pc);
}

/* Walk with all registers, from this function outwards. The frames inside the hook's caller are not kept. */
static COLD __attribute__((noinline)) int walk_all_registers(const struct thread *thread, uintptr_t innermost_sp,
                                                             struct frame *frames, int limit) {
    uint64_t r[CFI_REGISTERS] = {0};
    __asm__ volatile("lea 0f(%%rip), %%rax\n0:\tmov %%rax, %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2\n\tmov %%rbx, %3\n\t"
                     "mov %%r12, %4\n\tmov %%r13, %5\n\tmov %%r14, %6\n\tmov %%r15, %7"
                     : "=m"(r[CFI_RA]), "=m"(r[CFI_SP]), "=m"(r[CFI_BP]), "=m"(r[3]), "=m"(r[12]), "=m"(r[13]),
                       "=m"(r[14]), "=m"(r[15])::"rax");
    int count = 0;
    bool exact = true, kept = false, ended = false;
    for (int steps = 0; count < limit && steps < limit + 32; steps++) {
        struct cfi_row row;
        kept = kept || r[CFI_SP] >= innermost_sp;
        if (kept && steps > 0)
            frames[count++] = (struct frame){.pc = r[CFI_RA], .flags = exact ? FRAME_EXACT : 0};
        if (!cfi_find(r[CFI_RA] - !exact, &row)) {
            ended = begins_here(thread, r[CFI_RA], r[CFI_SP]);
            break;
        }
        exact = row.signal_frame;
        ended = row.registers[CFI_RA].how == CFI_UNDEFINED;
        if (ended || !cfi_step(&row, r))
            break;
        ended = r[CFI_RA] == 0;
        if (ended)
            break;
    }
    if (!ended && count > 0 && count < limit)
        frames[count - 1].flags |= FRAME_TRUNCATED;
    return count;
}

struct walked {
    int count;
    bool complete; /* the walk did not stop at its limit */
    bool reusable;
};

/* Walk from the innermost frame, which frames[0] holds, to at most `limit` frames. */
static struct walked walk_frames(struct thread *thread, uint32_t now, struct frame *frames, int limit) {
    struct walk w = {.generation = now};
    if (frames[0].sp > thread->stack_low && frames[0].sp < thread->stack_high)
        w.high = thread->stack_high;
    struct walked result = {1, false, w.high != 0};
    for (; result.count < limit; result.count++) {
        struct frame *f = &frames[result.count - 1];
        bool end = false;
        uint32_t rule = rule_of(f->pc - !(f->flags & FRAME_EXACT), now);
        if (rule_type(rule) == RULE_SIGNAL) {
            result.reusable = false;
            if (step_signal(&w, f, f + 1))
                continue;
        } else if (rule_type(rule) == RULE_SLOW) {
            result.reusable = false;
            int count = walk_all_registers(thread, frames[0].sp, frames, limit);
            result.count = count > 0 ? count : 1;
            return result;
        } else if (step(&w, f, f + 1, rule, &end)) {
            continue;
        }
        if (!end && !begins_here(thread, f->pc, f->sp)) {
            f->flags |= FRAME_TRUNCATED;
            __atomic_fetch_add(&root.figures.truncated_stacks, 1, __ATOMIC_RELAXED);
        }
        result.complete = true;
        break;
    }
    return result;
}

/* What is known of a frame's outer stack. */
struct outer {
    bool needs_bp;
    uint16_t next_words;
};

/* Mark what the outer stack of frame number `place` depends on. Return the same for the next frame inwards. */
HOT struct outer mark_needs(struct frame *f, int place, struct outer outer) {
    if (f->bp_at != 0 && outer.needs_bp)
        f->flags |= FRAME_CHECK_BP;
    if (f->flags & FRAME_USES_BP || (f->bp_at == 0 && outer.needs_bp))
        f->flags |= FRAME_NEEDS_BP;
    f->next_words = f->flags & FRAME_WORDS ? (uint16_t)place : outer.next_words;
    return (struct outer){f->flags & FRAME_NEEDS_BP, f->next_words};
}

/* Return the node of frames[0..count), which have no hashes. */
static uint32_t intern(const struct frame *frames, int count, bool cut) {
    uint64_t hash = 0;
    for (int i = count - 1, outer = 0; i >= 0; i--, outer++)
        hash += frame_key(&frames[i]) * stacks_weights[outer];
    return stacks_intern(frames, count, hash, cut);
}

/* Return the node of the cached frames[head..end), each of which has its hash. */
HOT uint32_t intern_cached(const struct thread *t, int end) {
    uint64_t hash = t->frames[t->head].hash;
    bool cut = end < t->tail;
    if (cut)
        hash = (hash - t->frames[end].hash) * stacks_inverses[t->tail - end];
    return stacks_intern(&t->frames[t->head], end - t->head, hash, cut);
}

/* Copy field by field. gcc would copy the whole with "rep movs", which takes longer to start than this takes in all. */
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
    struct walked walked = walk_frames(t, now, f, frames + SLACK_FRAMES);
    t->tail = walked.reusable ? t->head + walked.count : t->head;
    t->complete = walked.complete;
    t->generation = now;
    bool cut = walked.count > frames;
    if (!walked.reusable)
        return t->stack = intern(f, cut ? frames : walked.count, cut);
    struct outer outer = {!walked.complete, NO_WORDS};
    uint64_t hash = 0;
    for (int i = walked.count - 1, weight = 0; i >= 0; i--, weight++) {
        outer = mark_needs(&f[i], t->head + i, outer);
        f[i].hash = hash += frame_key(&f[i]) * stacks_weights[weight];
    }
    return t->stack = intern_cached(t, cut ? t->head + frames : t->tail);
}

/* Return whether the return address that led from f to f + 1 has not changed. */
HOT bool return_holds(const struct frame *f) { return *(const uintptr_t *)(f[1].sp - 8) == f[1].pc; }

/* Return whether the other words that led from f to f + 1 have not changed. */
HOT bool words_hold(const struct frame *f) {
    if (f->flags & FRAME_CHECK_BP && *(const uintptr_t *)f->bp_at != f[1].bp)
        return false;
    return likely(!(f->flags & FRAME_INDIRECT)) ||
           *(const uintptr_t *)(f->bp + (uintptr_t)(intptr_t)f->cfa_at) == f[1].sp;
}

/* Return the first of frames[at..last) whose link does not hold; `last`: all hold. Nearly always all do, so the return
 * addresses of eight frames are compared at once, without a branch for each. */
HOT int first_change(const struct frame *frames, int at, int last) {
    int changed = at;
    for (; changed + LINKS <= last; changed += LINKS) {
        const struct frame *f = &frames[changed + 1];
        uintptr_t differs = 0;
#pragma GCC unroll 8
        for (int i = 0; i < LINKS; i++)
            differs |= *(const uintptr_t *)(f[i].sp - 8) ^ f[i].pc;
        if (unlikely(differs != 0))
            break;
    }
    while (changed < last && likely(return_holds(&frames[changed])))
        changed++;
    for (int i = frames[at].next_words; i < changed; i = frames[i + 1].next_words)
        if (unlikely(!words_hold(&frames[i])))
            return i;
    return changed;
}

/* Where a walk arrives at the cached stack: `count` frames are new, frames[at..end) are still right, and the record
 * takes them. */
struct junction {
    int count, at, end;
};

/* Walk from fresh[0] outwards until the rest of the stack is known to be unchanged. False: a new walk is faster. */
HOT bool find_junction(struct thread *t, uint32_t now, struct frame *fresh, struct junction *junction) {
    struct walk w = {.high = t->stack_high, .generation = now};
    int at = t->head, changed = at; /* frames[..changed) do not belong to this stack */
    for (int count = 0;; count++) {
        struct frame *f = &fresh[count];
        bool end_of_stack;
        while (at < t->tail && t->frames[at].sp < f->sp)
            at++;
        if (at == t->tail)
            return false;
        const struct frame *old = &t->frames[at];
        if (old->sp == f->sp && old->pc == f->pc && at >= changed &&
            (old->bp == f->bp || !(old->flags & FRAME_NEEDS_BP))) {
            /* The frame behind the last one is verified too: its presence makes the record a truncated one. */
            int last = at + (int)settings.frames - count;
            if (last >= t->tail) {
                if (!t->complete)
                    return false;
                last = t->tail - 1;
            }
            changed = first_change(t->frames, at, last);
            int end = at + (int)settings.frames - count;
            *junction = (struct junction){count, at, end < t->tail ? end : t->tail};
            if (changed++ == last)
                return count <= at;
        }
        if (count == NEW_FRAMES || changed - at > NEW_FRAMES - count ||
            !step(&w, f, f + 1, rule_of(f->pc - 1, now), &end_of_stack))
            return false;
    }
}

/* Walk, and reuse what is left of the last stack. 0: it cannot be reused. */
HOT uint32_t walk_again(struct thread *t, uint32_t now, struct frame innermost) {
    struct frame fresh[NEW_FRAMES + 1];
    struct junction junction;
    fresh[0] = innermost;
    if (!find_junction(t, now, fresh, &junction))
        return 0;
    int count = junction.count, at = junction.at, tail = t->tail;
    if (count == 0 && at == t->head)
        return t->stack;
    t->head = at - count;
    struct outer outer = {t->frames[at].flags & FRAME_NEEDS_BP, t->frames[at].next_words};
    uint64_t hash = t->frames[at].hash;
    for (int i = at - 1; i >= t->head; i--) {
        struct frame *f = &t->frames[i];
        copy_frame(f, &fresh[i - t->head]);
        outer = mark_needs(f, i, outer);
        f->hash = hash += frame_key(f) * stacks_weights[tail - 1 - i];
    }
    return t->stack = intern_cached(t, junction.end);
}

/* A signal handler allocated while its thread was in here. Its stack is walked without the cache, which may be half
 * written. */
static COLD uint32_t walk_nested(struct thread *t, uint32_t now, struct frame innermost) {
    struct frame frames[MAX_FRAMES + 1] = {innermost};
    int limit = (int)settings.frames, count = walk_frames(t, now, frames, limit + 1).count;
    return intern(frames, count > limit ? limit : count, count > limit);
}

void walk_start(void) { fde_start(); }
void walk_code_unloaded(void) { rules_forget(); }

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
        stack = walk_again(t, now, innermost);
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
