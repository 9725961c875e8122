"""Heaps that dmods does not walk, of language runtimes and of other allocators, and the notes about them.

Their memory is searched for pointers like any other memory, so what it points to is not reported as leaked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from dmods._engine import elf_section
from dmods.target import Module, Target

GO = (
    "a Go program: Go's own heap is not walked, only malloc's (cgo); what Go's memory points to counts as "
    "reachable, whether Go still needs it or not"
)
JAVA = (
    "a Java virtual machine: Java's own heap is not walked, only malloc's; what Java's memory points to counts as "
    "reachable, whether Java still needs it or not"
)


class Other(NamedTuple):
    """An allocator that replaces malloc.

    `files` is a pattern for the whole path of its library. `symbol` is a symbol of programs that are linked with it
    statically.
    """

    name: str
    files: str
    symbol: str


OTHERS = (
    Other("tcmalloc", r"libtcmalloc[^/]*$", "tc_malloc"),  # gperftools
    Other("tcmalloc", r"(?!)", "TCMallocInternalMalloc"),  # github.com/google/tcmalloc
    Other("mimalloc", r"libmimalloc[^/]*$", "mi_malloc"),
    # Firefox's allocator, derived from jemalloc. On Linux libmozglue is part of the program.
    Other("mozjemalloc", r"libmozglue[^/]*$", "moz_arena_malloc"),
    Other("musl's malloc", r"ld-musl-[^/]*$|-musl/libc\.so$|libc\.musl-[^/]*$", "__libc_malloc_impl"),
    Other("AddressSanitizer's malloc", r"lib(asan|clang_rt\.asan)[^/]*$", "__asan_init"),
    Other("HWAddressSanitizer's malloc", r"lib(hwasan|clang_rt\.hwasan)[^/]*$", "__hwasan_init"),
    Other("ThreadSanitizer's malloc", r"lib(tsan|clang_rt\.tsan)[^/]*$", "__tsan_init"),
    Other("MemorySanitizer's malloc", r"libclang_rt\.msan[^/]*$", "__msan_init"),
    Other("LeakSanitizer's malloc", r"lib(lsan|clang_rt\.lsan)[^/]*$", "__lsan_init"),
    Other("Scudo", r"lib(scudo|clang_rt\.scudo)[^/]*$", "__scudo_get_error_info"),
    Other("snmalloc", r"libsnmalloc[^/]*$", "sn_malloc"),
    Other("rpmalloc", r"librpmalloc[^/]*$", "rpmalloc"),
    Other("Hoard", r"libhoard[^/]*$", "xxmalloc"),
)


def unwalked_heap_notes(target: Target) -> list[str]:
    """Return a note for each heap that is not walked."""
    modules = target.modules()
    program = next((m for m in modules if m.path == target.executable and m.file is not None), None)
    found = []
    # The linker writes it into every Go program since 1.13 (cmd/link, buildinfo), and strip leaves it there.
    if program is not None and program.file is not None and elf_section(program.file, ".go.buildinfo") is not None:
        found.append(GO)
    if any(re.search(r"libjvm\.so$", module.path) for module in modules):
        found.append(JAVA)
    found.extend(dict.fromkeys(_not_walked(target, modules, program)))
    return found


def _not_walked(target: Target, modules: Sequence[Module], program: Optional[Module]) -> Iterator[str]:
    for other in OTHERS:
        if any(re.search(other.files, module.path) for module in modules) or (
            program is not None and target.lookup(f"{program.name}`{other.symbol}") is not None
        ):
            yield f"blocks of {other.name} are not walked; what its memory points to counts as reachable"
