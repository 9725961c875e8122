"""What lies among the roots and only looks like a pointer into the heap.

With 64-bit addresses hardly any number does. In a 32-bit process, and in a static program that is not PIE, the heap has
addresses that text, sizes and random numbers have, too.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Optional

from dmods._engine import find_pointers
from dmods.corenotes import AT_BASE, AT_EXECFN, AT_RANDOM
from dmods.ranges import Ranges
from dmods.rows import at_or_before
from dmods.target import AddressRange, Target

_RANDOM_BYTES = 16
_LONGEST_NAME = 4096  # PATH_MAX
_LOW = 1 << 32
_WINDOW = 1 << 20
_MOST_PIECES = 16  # of ld.so
_PAGES = (4096, 16384, 65536)
_MOST_SMALL = 64  # mappings
_LONGEST_VERSION = 64
_MOST_LOOKALIKES = 1 << 20  # of each number, or range of them
_SMALL = 4096  # ints that stand in the lower half of a stale pointer: flags, counts, errors
_MOST_MULTIPLES = 1 << 12  # of 4 GiB
_RANDOM_TYPES = re.compile(  # rand_type, rand_deg, rand_sep of TYPE_1 to TYPE_4; TYPE_0 is a single number
    b"|".join(re.escape(struct.pack("<3I", *row)) for row in ((1, 7, 3), (2, 15, 1), (3, 31, 3), (4, 63, 1)))
)


def from_execve(target: Target) -> Optional[tuple[int, int]]:
    """What the kernel writes above the auxiliary vector, on the first thread's stack (fs/binfmt_elf.c,
    create_elf_tables): random bytes, then the platform's name, the arguments and the environment, then the program's
    name. Whoever writes there writes text."""
    start, end = target.auxv.get(AT_RANDOM, 0), target.auxv.get(AT_EXECFN, 0)
    stack = next((mapping for mapping in target.mappings() if start in mapping), None)
    if stack is None or not start < end < stack.end:
        return None
    name = target.image().read(end, min(_LONGEST_NAME, stack.end - end))
    return start, end + len(name.partition(b"\0")[0])


def secrets(target: Target) -> Sequence[int]:
    """glibc's stack guard and pointer guard (sysdeps/unix/sysv/linux/dl-osinfo.h): they lie in the TCB or in ld.so's
    data, the first in every frame that is guarded, too."""
    word = target.arch.word
    random = target.image().read(target.auxv.get(AT_RANDOM, 0), _RANDOM_BYTES)
    if len(random) < _RANDOM_BYTES:
        return ()
    guard, pointer_guard = (int.from_bytes(random[at : at + word], "little") for at in (0, word))
    return guard & ~0xFF, pointer_guard


def encrypted(target: Target, owned: Ranges, roots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Words in ``roots`` of an i386 process that look like pointers into ``owned`` and are PTR_MANGLE of something
    else: in a jmp_buf the stack pointer, and behind it the pc (what calls main() has one); a function that exit() is
    to call, behind its kind (stdlib/exit.h, struct exit_function: ef_on, ef_at, ef_cxa)."""
    low = Ranges(owned.within(0, _LOW))
    known = secrets(target)
    if not low or not known or target.arch.name != "i386":
        return

    def plain(value: int) -> int:
        return (value >> 9 | value << 23) & 0xFFFFFFFF ^ known[1]

    within = Ranges(roots)
    code = Ranges((m.start, m.end) for m in target.mappings() if "x" in m.flags)
    stacks = Ranges(running_stacks(target))
    places = [part for piece in Ranges([*stacks, *_data(target)]) for part in within.within(*piece)]
    for at, value in _lookalikes(target, places, low):
        meant = plain(value)
        if meant in code:
            before = _word(target, at - 4)
            found = 2 <= before <= 4 or plain(before) in stacks
        else:
            found = meant in stacks and plain(_word(target, at + 4)) in code
        if found:
            yield at, at + 4


def of_the_loader(target: Target, _owned: Ranges, _roots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """ld.so's memory that may not be written any more (PT_GNU_RELRO: _rtld_global_ro with the bits of the CPU's
    features). It was written before the program's first malloc()."""
    base = target.auxv.get(AT_BASE, 0)
    for module in target.modules():
        if base and module.start == base:
            yield from ((piece.start, piece.end) for piece in module.ranges if "w" not in piece.flags)


def cache_sizes(target: Target, owned: Ranges, roots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Words of libc's data in ``roots`` that look like pointers into ``owned`` and are what ld.so found out of the
    CPU, or half of it (sysdeps/x86/cacheinfo.h: __x86_shared_cache_size, and its half). ``roots`` still hold what ld.so
    has locked."""
    low = Ranges(owned.within(0, _LOW))
    if not low:
        return
    within, word = Ranges(roots), target.arch.word
    locked = (part for piece in of_the_loader(target, owned, roots) for part in within.within(*piece))
    numbers = {number for _at, words in _words(target, islice(locked, _MOST_PIECES)) for number in words}
    numbers |= {number // 2 for number in numbers if number % 2 == 0}
    places = [part for piece in _data(target, "libc[.-]") for part in within.within(*piece)]
    for at, _number in _lookalikes(target, places, [(n, n + 1) for n in sorted(numbers) if n in low]):
        yield at, at + word


def stack_sizes(target: Target, owned: Ranges) -> Iterator[tuple[int, int]]:
    """(address, value) of words that look like pointers into ``owned`` and may be the size of a stack. In modules' data
    of a ``struct pthread_attr`` (nptl/internaltypes.h; glibc has one with what RLIMIT_STACK says): behind
    ``guardsize``, a page, and ``stackaddr``, 0. On a stack its own (clone_internal.c: struct clone_args): before or
    behind the page where it begins, and it ends above."""
    low, word = Ranges(owned.within(0, _LOW)), target.arch.word
    if not low:
        return
    for at, guard in _lookalikes(target, list(_data(target)), [(page, page + 1) for page in _PAGES]):
        value = _word(target, at + 2 * word)
        if value in low and value % guard == 0 and not _word(target, at + word):
            yield at + 2 * word, value
    mappings = target.mappings()
    for at, size in _lookalikes(target, list(Ranges(running_stacks(target))), low):
        stack = mappings[at_or_before(mappings, at)]
        for start in (_word(target, at - word), _word(target, at + word)):
            if start % _PAGES[0] == 0 and stack.start <= start < at < start + size <= stack.end:
                yield at, size


def version_hashes(target: Target, owned: Ranges, roots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Words of what ld.so allocated as it started, in ``roots``, that look like pointers into ``owned`` and are the
    hashes of symbol versions ("GLIBC_2.34"): each stands behind a pointer to its name (``struct r_found_version``)."""
    low, word = Ranges(owned.within(0, _LOW)), target.arch.word
    if not low:
        return
    within = Ranges(roots)
    small = (m for m in target.mappings() if m.path is None and "w" in m.flags and m.size <= _WINDOW)
    places = [part for mapping in islice(small, _MOST_SMALL) for part in within.within(mapping.start, mapping.end)]
    for at, value in _lookalikes(target, places, low):
        name, behind, _rest = target.image().read(_word(target, at - word), _LONGEST_VERSION).partition(b"\0")
        if behind and name and _elf_hash(name) == value:
            yield at, at + word


def _elf_hash(name: bytes) -> int:
    """As the System V ABI has it (gABI, "Hash Table"), and .gnu.version_r."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ value >> 24 & 0xF0) & 0xFFFFFFF
    return value


def halves(target: Target, owned: Ranges) -> Iterator[tuple[int, int]]:
    """(address, value) of words on the stacks in use whose upper half may be what was left there of a pointer, and the
    lower an int that was written over it: they lie next to a multiple of 4 GiB that is in ``owned``."""
    if target.arch.word != 8:
        return
    wanted = [(at - _SMALL, at + _SMALL) for at in owned.multiples(_LOW, _MOST_MULTIPLES)]
    if not wanted:
        return
    yield from _lookalikes(target, list(Ranges(running_stacks(target))), wanted)


def random_tables(target: Target, owned: Ranges, roots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The numbers of random() and random_r() in modules' data and on stacks in ``roots``, when words are no larger than
    they are. A ``struct random_data`` says where they are (stdlib/stdlib.h): three pointers into them, then their type,
    how many there are (stdlib/random_r.c: DEG_0 to DEG_4) and how far the first two pointers are apart, and their
    end."""
    if target.arch.word != 4 or not owned.within(0, _LOW):
        return
    within = Ranges(roots)
    for start, end in Ranges([*running_stacks(target), *_data(target)]):
        for at, bytes_ in _windows(target, within.within(start, end)):
            for found in _RANDOM_TYPES.finditer(bytes_):
                fields = target.image().read(at + found.start() - 12, 28)
                if len(fields) == 28:
                    front, rear, state, _kind, count, _apart, behind = struct.unpack("<7I", fields)
                    if state + 4 * count == behind and state <= front < behind and state <= rear < behind:
                        yield state, behind


def _data(target: Target, name: str = "") -> Iterator[tuple[int, int]]:
    """The writable parts of modules whose names begin so (a regular expression)."""
    for module in target.modules():
        if re.match(name, module.name):
            yield from ((piece.start, piece.end) for piece in module.ranges if "w" in piece.flags)


def running_stacks(target: Target) -> Iterator[tuple[int, int]]:
    """Of each thread, its stack pointer and where the mapping ends that it lies in; not where that is not dumped."""
    mappings = target.mappings()
    for thread in target.threads():
        sp = thread.registers.get(target.arch.sp, 0)
        index = at_or_before(mappings, sp)
        if index >= 0 and sp in mappings[index] and mappings[index].dumped:
            yield sp, mappings[index].end


def _lookalikes(
    target: Target, ranges: list[tuple[int, int]], wanted: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """(address, value) of words whose values are in ``wanted``: disjoint ranges, in order."""
    for places in find_pointers(target.image(), ranges, target.arch.word, list(wanted), _MOST_LOOKALIKES):
        for at in places:
            yield at, _word(target, at)


def _word(target: Target, at: int) -> int:
    """0 where there is none."""
    return int.from_bytes(target.image().read(at, target.arch.word), "little")


def _words(target: Target, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, array[int]]]:
    word = target.arch.word
    for at, data in _windows(target, ranges):
        yield at, array("Q" if word == 8 else "I", data[: len(data) // word * word])


def _windows(target: Target, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """The bytes of the ranges, piece by piece, each with the address of its first whole word."""
    word, image = target.arch.word, target.image()
    for range_ in ranges:
        for start, end in image.covered(*range_):
            for at in range(start + -start % word, end, _WINDOW):
                yield at, image.read(at, min(_WINDOW, end - at))


def constants(target: Target, owned: Ranges, roots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Words of modules' data in ``roots`` that look like pointers into ``owned``, and are as the file has them: the
    linker wrote them, before there was a heap to point into. (libc's ``randtbl``: 31 random words. ld.so's
    ``tunable_list``: text, and where i386's heap begins every address is text: 0x58414d5f is "_MAX".) Only files that
    are proven to be those of the process are asked."""
    low = Ranges(owned.within(0, _LOW))
    if not low:
        return
    within = Ranges(roots)
    for module in target.modules():
        if module.file is None or module.problem is not None:
            continue
        try:
            descriptor = os.open(module.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            for piece in module.ranges:
                if piece.path is not None:
                    yield from _unchanged(target, descriptor, piece, low, within)
        finally:
            os.close(descriptor)


def _unchanged(
    target: Target, descriptor: int, piece: AddressRange, low: Ranges, within: Ranges
) -> Iterator[tuple[int, int]]:
    word = target.arch.word
    for at, value in _lookalikes(target, within.within(piece.start, piece.end), low):
        file = os.pread(descriptor, word, piece.offset + at - piece.start)
        if int.from_bytes(file, "little") == value:
            yield at, at + word
