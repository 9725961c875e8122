/*
 * The hooks of operator new and delete. Those of libstdc++ and libc++ call malloc and free, which are hooked, so these
 * hooks only jump there. jemalloc, tcmalloc and others have their own operators, which do not call malloc. Those are
 * recorded here. An operator is the allocator's own if it lies in the library of malloc and does not call malloc.
 */
#include "hooks.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum operators {
    NEW,
    NEW_ARRAY,
    NEW_NOTHROW,
    NEW_ARRAY_NOTHROW,
    NEW_ALIGNED,
    NEW_ARRAY_ALIGNED,
    NEW_ALIGNED_NOTHROW,
    NEW_ARRAY_ALIGNED_NOTHROW,
    DELETE,
    DELETE_ARRAY,
    DELETE_NOTHROW,
    DELETE_ARRAY_NOTHROW,
    DELETE_SIZED,
    DELETE_ARRAY_SIZED,
    DELETE_ALIGNED,
    DELETE_ARRAY_ALIGNED,
    DELETE_SIZED_ALIGNED,
    DELETE_ARRAY_SIZED_ALIGNED,
    DELETE_ALIGNED_NOTHROW,
    DELETE_ARRAY_ALIGNED_NOTHROW,
    OPERATORS,
};

enum { SIZED = 1, ALIGNED = 2 };

static const struct {
    const char *name;
    int kind;
} operators[OPERATORS] = {
    {"_Znwm", 0},
    {"_Znam", 0},
    {"_ZnwmRKSt9nothrow_t", 0},
    {"_ZnamRKSt9nothrow_t", 0},
    {"_ZnwmSt11align_val_t", ALIGNED},
    {"_ZnamSt11align_val_t", ALIGNED},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", ALIGNED},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", ALIGNED},
    {"_ZdlPv", 0},
    {"_ZdaPv", 0},
    {"_ZdlPvRKSt9nothrow_t", 0},
    {"_ZdaPvRKSt9nothrow_t", 0},
    {"_ZdlPvm", SIZED},
    {"_ZdaPvm", SIZED},
    {"_ZdlPvSt11align_val_t", ALIGNED},
    {"_ZdaPvSt11align_val_t", ALIGNED},
    {"_ZdlPvmSt11align_val_t", ALIGNED | SIZED},
    {"_ZdaPvmSt11align_val_t", ALIGNED | SIZED},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", ALIGNED},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", ALIGNED},
};

typedef void *(*generic)(void *, uintptr_t, uintptr_t);

/* The real operators. Bit 0 says that the operator is the allocator's own: functions are not at odd addresses. */
static _Atomic(uintptr_t) real_operators[OPERATORS];

/* Take the record of a block. False: it has none. */
static bool take_record(void *p) {
    struct taken_sample sample;
    return mode() == MODE_FULL ? shadow_take((uintptr_t)p).record != NULL : samples_take((uintptr_t)p, &sample);
}

/* Return whether an operator calls our malloc or free. It is called to find out. */
static bool calls_our_hooks(enum operators which, generic there) {
    static const char nothrow;
    const size_t alignment = 64, size = padded(alignment);
    bool aligned = operators[which].kind & ALIGNED;
    uintptr_t a = aligned ? alignment : (uintptr_t)&nothrow, b = aligned ? (uintptr_t)&nothrow : 0;
    if (which < DELETE) {
        int64_t until = self_thread.until_sample;
        void *p = there((void *)size, a, b);
        bool counted = mode() == MODE_FULL ? take_record(p) : self_thread.until_sample != until;
        take_record(p);
        real.free(p);
        return counted;
    }
    void *p = real.memalign(alignment, size);
    if (p == NULL)
        return false;
    if (mode() == MODE_FULL)
        record_full(p, alignment, 0, FRAME_POINTER);
    else
        samples_put((uintptr_t)p, size, 0, 0, 0);
    there(p, operators[which].kind & SIZED ? size : a, operators[which].kind & SIZED ? a : b);
    return !take_record(p);
}

static COLD uintptr_t find(enum operators which) {
    start();
    void *there = dlsym(RTLD_NEXT, operators[which].name);
    /* RTLD_NEXT does not find a library that was loaded with its own scope, as the libstdc++ of a Python module is. */
    const char *libraries[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    for (unsigned i = 0; there == NULL && i < sizeof libraries / sizeof libraries[0]; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library == NULL)
            continue;
        there = dlsym(library, operators[which].name);
        dlclose(library);
    }
    if (there == NULL) {
        static const char message[] = "dmods audit: the program calls operator new or delete, but no library has it\n";
        if (write(2, message, sizeof message - 1) < 0)
            abort();
        abort();
    }
    Dl_info its, allocator;
    bool own = mode() > MODE_OFF && dladdr(there, &its) && dladdr((void *)real.malloc, &allocator) &&
               its.dli_fbase == allocator.dli_fbase && !calls_our_hooks(which, (generic)there);
    uintptr_t value = (uintptr_t)there | own;
    if (mode() != MODE_BOOT)
        atomic_store(&real_operators[which], value);
    return value;
}

HOT uintptr_t operator(enum operators which) {
    uintptr_t there = atomic_load_explicit(&real_operators[which], memory_order_relaxed);
    return likely(there != 0) ? there : find(which);
}

HOT bool own(uintptr_t there) { return there & 1 && mode() > MODE_OFF; }
HOT generic function(uintptr_t there) { return (generic)(there & ~(uintptr_t)1); }

/* An operator that is not the allocator's own is reached by a jump. So the hook is in no stack, and exceptions pass it.
 */
#define NEW_OPERATOR(name, which)                                                                                      \
    EXPORT void *name(size_t size, uintptr_t a, uintptr_t b) {                                                         \
        uintptr_t there = operator(which);                                                                             \
        if (likely(!own(there)))                                                                                       \
            return function(there)((void *)size, a, b);                                                                \
        return record_allocation(function(there)((void *)padded(size), a, b), size, 0, FRAME_POINTER);                 \
    }

#define DELETE_OPERATOR(name, which, sized)                                                                            \
    EXPORT void name(void *p, uintptr_t a, uintptr_t b) {                                                              \
        uintptr_t there = operator(which);                                                                             \
        if (unlikely(bootstrap_owns(p)))                                                                               \
            return;                                                                                                    \
        if (unlikely(own(there)) && p != NULL) {                                                                       \
            record_free(p, FRAME_POINTER);                                                                             \
            a = (sized) ? padded(a) : a;                                                                               \
        }                                                                                                              \
        function(there)(p, a, b);                                                                                      \
    }

NEW_OPERATOR(_Znwm, NEW)
NEW_OPERATOR(_Znam, NEW_ARRAY)
NEW_OPERATOR(_ZnwmRKSt9nothrow_t, NEW_NOTHROW)
NEW_OPERATOR(_ZnamRKSt9nothrow_t, NEW_ARRAY_NOTHROW)
NEW_OPERATOR(_ZnwmSt11align_val_t, NEW_ALIGNED)
NEW_OPERATOR(_ZnamSt11align_val_t, NEW_ARRAY_ALIGNED)
NEW_OPERATOR(_ZnwmSt11align_val_tRKSt9nothrow_t, NEW_ALIGNED_NOTHROW)
NEW_OPERATOR(_ZnamSt11align_val_tRKSt9nothrow_t, NEW_ARRAY_ALIGNED_NOTHROW)
DELETE_OPERATOR(_ZdlPv, DELETE, false)
DELETE_OPERATOR(_ZdaPv, DELETE_ARRAY, false)
DELETE_OPERATOR(_ZdlPvRKSt9nothrow_t, DELETE_NOTHROW, false)
DELETE_OPERATOR(_ZdaPvRKSt9nothrow_t, DELETE_ARRAY_NOTHROW, false)
DELETE_OPERATOR(_ZdlPvm, DELETE_SIZED, true)
DELETE_OPERATOR(_ZdaPvm, DELETE_ARRAY_SIZED, true)
DELETE_OPERATOR(_ZdlPvSt11align_val_t, DELETE_ALIGNED, false)
DELETE_OPERATOR(_ZdaPvSt11align_val_t, DELETE_ARRAY_ALIGNED, false)
DELETE_OPERATOR(_ZdlPvmSt11align_val_t, DELETE_SIZED_ALIGNED, true)
DELETE_OPERATOR(_ZdaPvmSt11align_val_t, DELETE_ARRAY_SIZED_ALIGNED, true)
DELETE_OPERATOR(_ZdlPvSt11align_val_tRKSt9nothrow_t, DELETE_ALIGNED_NOTHROW, false)
DELETE_OPERATOR(_ZdaPvSt11align_val_tRKSt9nothrow_t, DELETE_ARRAY_ALIGNED_NOTHROW, false)
