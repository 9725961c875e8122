"""Which allocator serves each module of a process: the values in the tables that the dynamic linker filled.

A call of malloc() goes through a slot of the module's GOT. The relocations of the file say where the slots of malloc()
and its family are, and the dump says where they lead. That is what the process did; symbol tables only allow a guess.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from dmods._engine import elf_section
from dmods.process.addresses import module_at
from dmods.target import Module, Target
from dmods.triage.finding import Evidence
from dmods.triage.names import function_of

ALLOCATE = ("malloc", "calloc", "realloc", "valloc", "pvalloc", "memalign", "aligned_alloc", "posix_memalign")
RELEASE = ("free", "cfree", "realloc", "malloc_usable_size")
_FAMILY = frozenset((*ALLOCATE, *RELEASE))
# GLOB_DAT, JUMP_SLOT and the plain word, by machine: the psABIs of x86-64, i386 and AArch64.
_TYPES = {"x86_64": (6, 7, 1), "i386": (6, 7, 1), "aarch64": (1025, 1026, 257)}
_MOST = 400_000  # relocations of a file that are looked at
_OWN_CALLS = ("ld-linux", "libdmods_audit", "ld-")  # they pass calls on, or call before anyone else can
REMEDY = "let one allocator serve the whole process: link or preload it first, and do not use RTLD_DEEPBIND"


class Slot(NamedTuple):
    """A slot of a module for a function of malloc's family, and the module that it leads to."""

    module: Module
    function: str
    address: int
    value: int
    server: Module


class Mix(NamedTuple):
    """A module whose blocks are released by another allocator: two slots that differ."""

    takes: Slot
    gives: Slot


def providers(target: Target) -> list[Module]:
    """Return the modules that define free(), without those that pass it on."""
    return [
        module
        for module in target.modules()
        if module.file is not None and not module.name.startswith(_OWN_CALLS) and "free" in _defined(module.file)
    ]


def slots(target: Target) -> list[Slot]:
    """Return the slots of all modules that are bound."""
    found: list[Slot] = []
    for module in target.modules():
        if module.file is not None and not module.name.startswith(_OWN_CALLS):
            found.extend(_slots(target, module, module.file))
    return found


def mixes(target: Target) -> list[Mix]:
    """Return pairs of slots where one allocator serves malloc() and another one free(); [] for one allocator.

    Both slots are of one module; or the second is the program's: a library has an allocator of its own.
    """
    if len(providers(target)) < 2:
        return []
    found = slots(target)
    out: list[Mix] = []
    program = [slot for slot in found if slot.module.path == target.executable and slot.function in RELEASE]
    by_module: dict[int, list[Slot]] = {}
    for slot in found:
        by_module.setdefault(slot.module.start, []).append(slot)
    for own in by_module.values():
        takes = [slot for slot in own if slot.function in ALLOCATE]
        gives = [slot for slot in own if slot.function in RELEASE] + program
        # A library that defines malloc() and asks another malloc_usable_size() passes its own calls on to that one.
        gives = [slot for slot in gives if slot.function != "malloc_usable_size" or not _serves(own, slot.module)]
        pair = next(((a, b) for a in takes for b in gives if a.server.start != b.server.start), None)
        if pair is not None:
            out.append(Mix(*pair))
    return out


def _serves(slots: list[Slot], module: Module) -> bool:
    """Return whether a slot of malloc's family leads into the module itself."""
    return any(slot.server.start == module.start and slot.function in ALLOCATE for slot in slots)


def _symbols(path: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (index, name, whether it is defined) of the dynamic symbols of malloc's family."""
    names, symbols = elf_section(path, ".dynstr") or b"", elf_section(path, ".dynsym") or b""
    if not names or not any(name.encode() + b"\0" in names for name in _FAMILY):
        return
    longest = max(map(len, _FAMILY)) + 1
    wide = _is_64(path)
    size = 24 if wide else 16
    rows = struct.iter_unpack("<IBBHQQ" if wide else "<IIIBBH", symbols[: len(symbols) // size * size])
    for index, row in enumerate(rows):
        text = names[row[0] : row[0] + longest].split(b"\0")[0]
        name = text.decode("ascii", "replace")
        if name in _FAMILY:
            yield index, name, bool(row[3] if wide else row[5])


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
            yield Slot(module, name, at, value, server)


def _is_bound(target: Target, module: Module, server: Module, value: int, name: str) -> bool:
    """Return whether the slot was resolved. One that nobody has called leads back into its module's PLT."""
    if server.start != module.start:
        return True
    symbol = target.symbol_at(value)
    return symbol is not None and symbol.address == value and name in function_of(symbol.name)


def _relocations(data: bytes, wide: bool, addend: bool) -> Iterator[tuple[int, int, int]]:
    """Yield (address, symbol, type) of Elf_Rela or Elf_Rel entries: the last ones, as relative ones come first."""
    form = ("<QQq" if addend else "<QQ") if wide else ("<IIi" if addend else "<II")
    size = struct.calcsize(form)
    data = data[: len(data) // size * size][-_MOST * size :]
    for offset, info, *_addend in struct.iter_unpack(form, data):
        yield (offset, info >> 32, info & 0xFFFFFFFF) if wide else (offset, info >> 8, info & 0xFF)


def mix_sentence(mix: Mix) -> str:
    """Return both slots in words."""
    takes, gives = mix.takes, mix.gives
    return (
        f"{takes.module.name} allocates by {takes.function}() of {takes.server.name}, and {gives.module.name} frees "
        f"by {gives.function}() of {gives.server.name}"
    )


def mix_evidence(mix: Mix) -> tuple[Evidence, ...]:
    """Return the slots."""
    return tuple(
        Evidence(slot.address, f"the slot of {slot.module.name} for {slot.function}() leads to {slot.server.name}")
        for slot in mix
    )
