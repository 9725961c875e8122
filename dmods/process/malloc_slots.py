"""Which allocator serves each module of a process: the values in the tables that the dynamic linker filled.

A call of malloc() goes through a slot of the module's GOT. The relocations of the file say where the slots of malloc()
and its family are, and the dump says where they lead. That is what the process did; symbol tables only allow a guess.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from dmods._engine import elf_section
from dmods.base.named_tuple import NamedTuple
from dmods.process.addresses import module_at
from dmods.target import Module, Target

ALLOCATE = ("malloc", "calloc", "realloc", "valloc", "pvalloc", "memalign", "aligned_alloc", "posix_memalign")
RELEASE = ("free", "cfree", "realloc", "malloc_usable_size")
_FAMILY = frozenset((*ALLOCATE, *RELEASE))
# GLOB_DAT, JUMP_SLOT and the plain word, by machine: the psABIs of x86-64, i386 and AArch64.
_TYPES: dict[str, tuple[int, ...]] = {"x86_64": (6, 7, 1), "i386": (6, 7, 1), "aarch64": (1025, 1026, 257)}
_MOST = 400_000  # relocations of a file that are looked at
_OWN_CALLS = ("ld-linux", "libdmods_audit", "ld-")  # they pass calls on, or call before anyone else can


class Slot(NamedTuple):
    """A slot of a module for a function of malloc's family, and the module that it leads to."""

    module: Module
    function: str
    address: int
    value: int
    server: Module


def providers(target: Target) -> list[Module]:
    """Return the modules that define free(), without those that pass it on."""
    return [
        module
        for module in target.modules()
        if module.file is not None and not module.name.startswith(_OWN_CALLS) and "free" in _defined(module.file)
    ]


def definers(target: Target, function: str) -> list[Module]:
    """Return the modules whose dynamic symbols define the function, the dynamic linker too."""
    return [each for each in target.modules() if each.file is not None and function in _defined(each.file)]


def slots(target: Target) -> list[Slot]:
    """Return the slots of all modules that are bound."""
    found: list[Slot] = []
    for module in target.modules():
        if module.file is not None and not module.name.startswith(_OWN_CALLS):
            found.extend(_slots(target, module, module.file))
    return found


def _symbols(path: str, names_of: Iterable[str] = _FAMILY) -> Iterator[tuple[int, str, bool]]:
    """Yield (index, name, whether it is defined) of the dynamic symbols with these names.

    Libraries have 100,000 symbols and more, so only the words with the offset of such a name are looked at. A name may
    be the end of a longer one.
    """
    names, symbols = elf_section(path, ".dynstr") or b"", elf_section(path, ".dynsym") or b""
    wanted: dict[int, str] = {}
    for name in names_of:
        at = names.find(text := name.encode() + b"\0")
        while at >= 0:
            wanted[at] = name
            at = names.find(text, at + 1)
    if not wanted:
        return
    # Elf64_Sym has 24 bytes and st_shndx at 6, Elf32_Sym has 16 and st_shndx at 14 (gABI).
    step, section = (6, 1) if _is_64(path) else (4, 3)
    words = memoryview(symbols)[: len(symbols) // (4 * step) * 4 * step].cast("I").tolist()
    for index, offset in enumerate(words[::step]):
        if offset in wanted:
            yield index, wanted[offset], bool(words[index * step + section] >> 16)


def _is_64(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(5)[4:] == b"\2"


def _defined(path: str) -> set[str]:
    try:
        return {name for _index, name, defined in _symbols(path) if defined}
    except OSError:
        return set()


def _slots(target: Target, module: Module, path: str) -> Iterator[Slot]:
    try:
        wanted = {index: name for index, name, _defined in _symbols(path)}
        wide = _is_64(path)
    except OSError:
        return
    types = _TYPES.get(target.arch.name, ())
    for section in (".rela.plt", ".rela.dyn", ".rel.plt", ".rel.dyn") if wanted else ():
        for offset, index, kind in _relocations(elf_section(path, section) or b"", wide, section.startswith(".rela")):
            name = wanted.get(index)
            if name is None or kind not in types:
                continue
            at = offset + module.bias
            data = target.image().read(at, target.arch.word)
            value = int.from_bytes(data, "little")
            server = module_at(target, value) if len(data) == target.arch.word and value else None
            if server is None or not _is_bound(target, module, server, value, name):
                continue
            # A plain word may be a variable of the program, as libogg's `ogg_free_func` is. The program sets it to a
            # function with another name, which may well pass the call on.
            if kind == types[-1] and server.file is not None and name not in _defined(server.file):
                continue
            yield Slot(module, name, at, value, server)


def slots_named(target: Target, module: Module, names: Iterable[str]) -> dict[int, str]:
    """Return the slots of a module for functions of these names, also those that nobody has called: address to name."""
    found: dict[int, str] = {}
    try:
        wanted = {index: name for index, name, _defined in _symbols(module.file, names)} if module.file else {}
        wide = bool(wanted) and _is_64(module.file or "")
    except OSError:
        return found
    types = _TYPES.get(target.arch.name, ())
    for section in (".rela.plt", ".rela.dyn", ".rel.plt", ".rel.dyn") if wanted else ():
        data = elf_section(module.file or "", section) or b""
        for offset, index, kind in _relocations(data, wide, section.startswith(".rela")):
            if index in wanted and kind in types:
                found[offset + module.bias] = wanted[index]
    return found


def _is_bound(target: Target, module: Module, server: Module, value: int, name: str) -> bool:
    """Return whether the slot was resolved. One that nobody has called leads back into its module's PLT."""
    if server.start != module.start:
        return True
    symbol = target.symbol_at(value)
    return symbol is not None and symbol.address == value and name in symbol.name


def _relocations(data: bytes, wide: bool, addend: bool) -> Iterator[tuple[int, int, int]]:
    """Yield (address, symbol, type) of Elf_Rela or Elf_Rel entries: the last ones, as relative ones come first."""
    form = ("<QQq" if addend else "<QQ") if wide else ("<IIi" if addend else "<II")
    size = struct.calcsize(form)
    data = data[: len(data) // size * size][-_MOST * size :]
    for offset, info, *_addend in struct.iter_unpack(form, data):
        yield (offset, info >> 32, info & 0xFFFFFFFF) if wide else (offset, info >> 8, info & 0xFF)
