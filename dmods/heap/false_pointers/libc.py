"""Words of libc's that look like pointers: secrets, what they encrypt, random(), stack sizes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from dmods.allocators.search import LOW_END, Search
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.base.rows import at_or_before
from dmods.modules.auxv import AT_RANDOM
from dmods.target import Target

_RANDOM_BYTES = 16
_PAGES = (4096, 16384, 65536)
_RANDOM_TYPES = regex(  # rand_type, rand_deg, rand_sep of TYPE_1 to TYPE_4; TYPE_0 is a single number
    b"|".join(re.escape(struct.pack("<3I", *row)) for row in ((1, 7, 3), (2, 15, 1), (3, 31, 3), (4, 63, 1)))
)


def pointer_guards(target: Target) -> Sequence[int]:
    """Return glibc's stack guard and pointer guard, () where the core lacks AT_RANDOM.

    They lie in the TCB or in ld.so's data (sysdeps/unix/sysv/linux/dl-osinfo.h). The stack guard is in every guarded
    frame, too.
    """
    word = target.arch.word
    random = target.image().read(target.auxv.get(AT_RANDOM, 0), _RANDOM_BYTES)
    if len(random) < _RANDOM_BYTES:
        return ()
    guard, pointer_guard = (int.from_bytes(random[at : at + word], "little") for at in (0, word))
    return guard & ~0xFF, pointer_guard


def _musl_guard(target: Target) -> Sequence[int]:
    """Return musl's stack guard: the first word of AT_RANDOM, on 64-bit machines without its second byte
    (src/env/__stack_chk_fail.c; without AT_RANDOM it is no secret). () where the core lacks it."""
    word = target.arch.word
    random = target.image().read(target.auxv.get(AT_RANDOM, 0), word)
    return [int.from_bytes(random, "little") & ~(0xFF00 if word == 8 else 0)] if len(random) == word else ()


def guard_words(search: Search) -> Iterator[tuple[int, int]]:
    """Yield the words that are one of libc's guards, anywhere. Only a guard that leads to a block is searched for."""
    for guard in (*pointer_guards(search.target), *_musl_guard(search.target)):
        if search.block_of(guard) is not None:
            yield from search.words_equal(guard, search.roots)


def encrypted_pointers(search: Search) -> Iterator[tuple[int, int]]:
    """Yield words of an i386 process that look like pointers and are PTR_MANGLE of something else.

    A jmp_buf has the encrypted stack pointer and behind it the encrypted pc; the caller of main() has a jmp_buf. A
    function that exit() is to call stands behind its kind (stdlib/exit.h, struct exit_function: ef_on, ef_at, ef_cxa).
    """
    guards = pointer_guards(search.target)
    if not search.low or not guards or search.target.arch.name != "i386":
        return

    def decrypt(value: int) -> int:
        return (value >> 9 | value << 23) & 0xFFFFFFFF ^ guards[1]

    code = Ranges((m.start, m.end) for m in search.target.mappings() if "x" in m.flags)
    stacks = search.stacks
    searched = search.roots_in(Ranges([*stacks, *search.module_data()]))
    for at, value in search.lookalikes(searched, search.low):
        decrypted = decrypt(value)
        if decrypted in code:
            before = search.word(at - 4)
            mangled = 2 <= before <= 4 or decrypt(before) in stacks
        else:
            mangled = decrypted in stacks and decrypt(search.word(at + 4)) in code
        if mangled:
            yield search.word_range(at)


def random_tables(search: Search) -> Iterator[tuple[int, int]]:
    """Yield the state tables of random() and random_r() in modules' data and on stacks of 32-bit processes.

    A `struct random_data` says where they are (stdlib/stdlib.h): three pointers into the table, then its type, its
    length (stdlib/random_r.c: DEG_0 to DEG_4), the distance of the first two pointers, and the end of the table.
    """
    if search.target.arch.word != 4 or not search.owned.within(0, LOW_END):
        return
    image = search.target.image()
    searched = search.roots_in(Ranges([*search.stacks, *search.module_data()]))
    for at, data in search.windows(searched):
        for match in _RANDOM_TYPES.finditer(data):
            fields = image.read(at + match.start() - 12, 28)
            if len(fields) == 28:
                front, rear, state, _kind, count, _apart, end = struct.unpack("<7I", fields)
                if state + 4 * count == end and state <= front < end and state <= rear < end:
                    yield state, end


def stack_sizes(search: Search) -> Iterator[tuple[int, int]]:
    """Yield words that lead inside a block and may be the size of a stack.

    In modules' data such a size is in a `struct pthread_attr` (nptl/internaltypes.h; glibc has one with the value of
    RLIMIT_STACK): behind `guardsize`, a page, and `stackaddr`, 0. A thread's stack has its own size (clone_internal.c,
    struct clone_args): beside the address of the page where the stack begins, and the stack ends above the word.
    """
    for at, value in stack_size_candidates(search):
        if search.leads_inside(value):
            yield search.word_range(at)


def stack_size_candidates(search: Search) -> Iterator[tuple[int, int]]:
    """Yield (address, value) of the words that `stack_sizes` asks about."""
    low, word = search.low, search.target.arch.word
    if not low:
        return
    for at, guard in search.lookalikes(search.module_data(), [(page, page + 1) for page in _PAGES]):
        value = search.word(at + 2 * word)
        if value in low and value % guard == 0 and not search.word(at + word):
            yield at + 2 * word, value
    mappings = search.target.mappings()
    for at, size in search.lookalikes(search.stacks, low):
        stack = mappings[at_or_before(mappings, at)]
        for start in (search.word(at - word), search.word(at + word)):
            if start % _PAGES[0] == 0 and stack.start <= start < at < start + size <= stack.end:
                yield at, size
