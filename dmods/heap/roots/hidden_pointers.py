"""Pointers that stand in memory in another form: encrypted in a jmp_buf, or at any byte of machine code.

glibc encrypts the stack pointer, the pc and, on x86-64, rbp in a jmp_buf. It xors them with a random number, the
pointer guard, and rotates them (PTR_MANGLE in sysdeps/unix/sysv/linux/x86_64 and i386/pointer_guard.h; setjmp.S). The
guard is in the TCB. A program may keep the address of a block in rbp, and the stack of a coroutine in a block. Then a
jmp_buf alone holds it.

Programs make machine code at run time (JIT compilers, trampolines). An instruction of x86 may hold a pointer at any
byte. HotSpot keeps the data of inline caches (CompiledICHolder) so: only the `mov` before a call has its address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Callable, Optional

from dmods import _engine
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.roots.live_memory import Roots, live_stacks
from dmods.modules.elf import MAGIC
from dmods.modules.find import VDSO
from dmods.process.mappings import mapping_at
from dmods.target import Target

_ARCHITECTURES = ("x86_64", "i386")  # others build a pointer from parts, in several instructions
_MOST_CODE = 1 << 12  # mappings of code; more are not believed
_MOST = 1 << 16  # words that may be an encrypted pc, in each range of values


class _Layout(NamedTuple):
    """glibc's encryption: where the guard is in the TCB, the bits of the rotation, and the words beside the pc."""

    guard: int
    rotation: int
    sp: int  # the word of the jmp_buf that has the stack pointer, relative to that of the pc
    others: tuple[int, ...]  # further encrypted words


_LAYOUTS = {"x86_64": _Layout(0x30, 17, -1, (-6,)), "i386": _Layout(0x18, 9, -1, ())}


def jump_buffer_values(
    target: Target, live: list[tuple[int, int]], owned: Ranges, in_use: Callable[[int], bool]
) -> list[int]:
    """Return the decrypted words of jmp_bufs in the memory that point into ``owned``.

    A jmp_buf in a block counts where the block is in use.
    """
    layout, guard = _LAYOUTS.get(target.arch.name), _guard(target)
    if layout is None or guard is None or not _used(target):
        return []
    code = Ranges((m.start, m.end) for m in target.mappings() if "x" in m.flags)
    if len(list(code)) > _MOST_CODE:
        return []
    words, bits = Words(target.image(), target.arch.word), 8 * target.arch.word

    def decrypted(at: int) -> int:
        value = words.at(at) or 0
        return ((value >> layout.rotation | value << (bits - layout.rotation)) & words.mask) ^ guard

    wanted = Ranges(_encrypted(code, guard, layout.rotation, bits))
    found: set[int] = set()
    places = _engine.find_pointers(words.image, live, words.size, list(wanted), _MOST)
    for at in sorted(at for some in places for at in some):
        sp = decrypted(at + layout.sp * words.size)
        if not _is_call(words, decrypted(at), code) or not _may_be_sp(target, sp) or (at in owned and not in_use(at)):
            continue
        found.update(
            value for value in (sp, *(decrypted(at + n * words.size) for n in layout.others)) if value in owned
        )
    return sorted(found)


def _guard(target: Target) -> Optional[int]:
    """Return the pointer guard. All threads have the same."""
    layout, name = _LAYOUTS.get(target.arch.name), target.arch.thread_pointer
    words = Words(target.image(), target.arch.word)
    seen: Counter[int] = Counter()
    for thread in target.threads() if layout is not None else ():
        tcb = thread.registers.get(name, 0)
        value = words.at(tcb + layout.guard) if layout is not None and tcb and words.at(tcb) == tcb else None
        if value is not None:
            seen[value] += 1
    return seen.most_common(1)[0][0] if seen else None


def _used(target: Target) -> bool:
    """Return whether a module may call setjmp. libc alone does so for its own purposes.

    What a program without dynamic symbols calls, and one whose file is not here, is not known.
    """
    naming = 0
    for module in target.modules():
        names = _engine.elf_section(module.file, ".dynstr") if module.file is not None else None
        if names is None and module.path != "[vdso]":
            return True
        naming += b"setjmp\0" in (names or b"")
    return naming > 1


def _encrypted(code: Ranges, guard: int, rotation: int, bits: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of values that hold all encrypted addresses of code.

    The upper bits of an address become the lower ones. What is left is xored with a constant, so aligned ranges stay
    ranges.
    """
    low_mask = (1 << bits - rotation) - 1
    found = []
    for start, end in code:
        order = max((end - start - 1).bit_length(), 12)
        for block in {start >> order, (end - 1) >> order}:
            first = ((block << order) ^ guard) & low_mask & ~((1 << order) - 1)
            found.append((first << rotation, min((first + (1 << order)) << rotation, 1 << bits) - 1))
    yield from sorted(found)


def _is_call(words: Words, pc: int, code: Ranges) -> bool:
    """Return whether the address is behind a call in code, as far as the code is known."""
    if pc not in code:
        return False
    before = words.image.read(pc - 7, 7)
    if len(before) < 7:
        return words.size == 8
    # call rel32; call *disp32(%rip) or *disp32(reg); call *disp8(reg); call *(reg) or *reg
    return before[2] == 0xE8 or any(before[-size] == 0xFF and before[1 - size] >> 3 & 7 == 2 for size in (7, 6, 3, 2))


def _may_be_sp(target: Target, sp: int) -> bool:
    mapping = mapping_at(target, sp)
    return sp % target.arch.word == 0 and mapping is not None and "w" in mapping.flags


def code_words(target: Target, owned: Ranges, roots: Roots) -> list[tuple[int, int]]:
    """Return (address, value) of the unaligned pointers in code that the program made. They point into ``owned``."""
    if target.arch.name not in _ARCHITECTURES:
        return []
    stacks = Ranges([*live_stacks(target, roots), *roots.dead])
    ranges = [part for code in _code(target) for part in Ranges([*owned, *stacks]).without([code])]
    return _engine.find_code_words(target.image(), ranges, target.arch.word, list(owned)) if ranges else []


def _code(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the executable memory in the dump that is no ELF file's and not the kernel's.

    The code of a JIT compiler may lie in a memfd that is mapped twice. Without an ELF header such a file is no module.
    """
    image = target.image()
    files = {each.path for each in target.modules() if each.file or image.read(each.start, len(MAGIC)) in (MAGIC, b"")}
    kernels = {module.start for module in target.modules() if module.path == VDSO}
    for mapping in target.mappings():
        if "x" in mapping.flags and mapping.dumped and mapping.path not in files and mapping.start not in kernels:
            yield mapping.start, mapping.start + mapping.dumped
