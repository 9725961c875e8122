"""Pointers in machine code that the program made at run time (JIT compilers, trampolines).

An instruction of x86 may hold a pointer at any byte. HotSpot keeps the data of inline caches (CompiledICHolder) so:
only the `mov` before a call has its address.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods import _engine
from dmods.base.ranges import Ranges
from dmods.heap.roots import Roots, live_stacks
from dmods.modules.elf import MAGIC
from dmods.modules.find import VDSO
from dmods.target import Target

_ARCHITECTURES = ("x86_64", "i386")  # others build a pointer from parts, in several instructions


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
