"""The malloc() that serves the process, where it is one that dmods does not know: the program's own, or a library's.

glibc's heap is there as well, and may be sound and small. The blocks of the other malloc are not in it, or many share
one block of glibc, so a search of glibc's heap proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from dmods import _engine
from dmods.allocators.unwalked import AUDITOR, allocator_in
from dmods.base.cached import cached
from dmods.base.regex import regex
from dmods.base.words import Words
from dmods.heap.survey import survey
from dmods.process.addresses import module_at
from dmods.process.malloc_slots import ALLOCATE, definers, slots
from dmods.target import Module, Target

# They have malloc() themselves: C libraries, glibc's copy of its own with checks, and dynamic linkers.
_LIBC = regex(r"(^|/)(libc[-.](\d[^/]*\.)?so|libc\.musl|libc_malloc_debug\.so|ld-|ld\.so|ld64\.so)")
_MOST = 4096  # pointers to code in the data of a module that are looked at


def foreign_malloc(target: Target) -> Optional[Module]:
    """Return the module whose malloc() serves the process, if dmods does not know the allocator. None: it does.

    The slots of the global offset tables decide, as the dynamic linker filled them. The program's own calls need no
    slot. A library that passes calls on to an allocator that dmods knows (a tracer) is not foreign.
    """
    found = _server(target)
    return found[0] if found is not None and not found[1] else None


def passing_malloc(target: Target) -> Optional[Module]:
    """Return the library whose malloc() serves the process and passes calls on to an allocator that dmods knows."""
    found = _server(target)
    return found[0] if found is not None and found[1] else None


@cached
def _server(target: Target) -> Optional[tuple[Module, bool]]:
    """Return the module with a malloc() that dmods does not know, and whether it passes calls on."""
    hosts = set(_hosts(target))
    candidates: dict[int, Module] = {}
    program = target.executable
    for module in definers(target, "malloc"):
        candidates[module.start] = module
    own = next((each for each in target.modules() if each.path == program), None)
    if own is not None and own.start not in candidates and _has_symbol(target, own):
        candidates[own.start] = own
    for start in [*candidates]:
        if _is_known(target, candidates[start], hosts):
            del candidates[start]
    # The program comes first wherever the dynamic linker looks for a symbol.
    if own is not None and own.start in candidates:
        return own, False
    if not candidates and (own is None or own.file is not None):
        return None
    for slot in slots(target):
        server = slot.server
        if slot.function in ALLOCATE and server.start != slot.module.start and not _is_known(target, server, hosts):
            return server, server.path != program and _passes_on(target, server, hosts)
    return None


def foreign_note(module: Module) -> str:
    """Return the note about such a malloc."""
    return (
        f"malloc of this process is that of {module.name}, which dmods does not know: its blocks are not walked; "
        "what its memory points to counts as reachable"
    )


def _hosts(target: Target) -> Iterator[int]:
    """Yield where the modules begin that hold an allocator which dmods walks."""
    for heap in survey(target).heaps:
        for address in heap.homes():
            module = module_at(target, address)
            if module is not None:
                yield module.start


def _has_symbol(target: Target, program: Module) -> bool:
    """Return whether the program's own symbols define malloc(): it need not export the function."""
    symbol = target.lookup(f"{program.name}`malloc")
    return symbol is not None and symbol.size > 0 and program.start <= symbol.address < program.end


def _is_known(target: Target, module: Module, hosts: Iterable[int]) -> bool:
    """Return whether the module's malloc() is one that dmods walks, or knows by its name."""
    return (
        module.start in hosts
        or _LIBC.search(module.path) is not None
        or module.name.startswith(AUDITOR)
        or allocator_in(target, module) is not None
    )


def _passes_on(target: Target, module: Module, hosts: set[int]) -> bool:
    """Return whether the module keeps a pointer to malloc() of an allocator that dmods knows.

    A library that stands before another malloc() asks dlsym(RTLD_NEXT) once, and keeps the answer in its data, or has a
    slot for glibc's __libc_malloc().
    """
    words = Words(target.image(), target.arch.word)
    data = [(part.start, part.end) for part in module.ranges if "x" not in part.flags]
    code = [
        (part.start, part.end)
        for other in target.modules()
        if other.start != module.start and _is_known(target, other, hosts)
        for part in other.ranges
        if "x" in part.flags
    ]
    places = _engine.find_pointers(words.image, data, words.size, sorted(code), _MOST) if code else []
    for value in {words.at(place) or 0 for some in places for place in some}:
        symbol = target.symbol_at(value)
        if symbol is not None and symbol.address == value and symbol.name.endswith("malloc"):
            return True
    return False
