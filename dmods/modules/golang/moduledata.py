"""Go programs and libraries in a process: struct moduledata, which says where code, data and the function table are.

It is found by its symbol, or by its shape: a pointer to the header of the function table, then slices that begin where
that header says. Layouts: runtime/symtab.go of Go 1.18 to 1.27.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Optional

from dmods._engine import elf_section
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.words import Words
from dmods.modules.by_address import modules_by_address
from dmods.modules.golang.pclntab import HEADER, MAGICS, MOST_FUNCTIONS, Function, Pclntab, Place, Tables
from dmods.target import AddressRange, Module, Symbol, Target

_SYMBOL = "runtime.firstmoduledata"
_SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
_PAIRS = {0xFFFFFFF0: 4, 0xFFFFFFF1: 5}  # ranges of data after text: data, bss and so on; 1.20 added counters
_QUANTA = (1, 4, 2)  # the smallest size of an instruction: x86, AArch64 and others, s390x
_WORDS = 64  # of moduledata that are looked at
_MOST_SEARCHED = 1 << 28  # bytes of a program's mappings
_MOST_DATA = 1 << 26  # bytes of one range of variables that are looked through
_STEP = 1 << 24
_MOST_CANDIDATES = 64
_SAMPLE = 50  # functions with inlined ones that prove go.func.*
_MOST_LOOKED_AT = 5000


@dataclass
class GoModule:
    """Go code in a process. ``address`` is that of its struct moduledata. ``data`` are its ranges of variables.

    ``types`` is where the descriptions of its types are, and their names; None where that is not known.
    """

    module: Module
    address: int
    table: Pclntab
    data: list[tuple[int, int]]
    types: Optional[tuple[int, int]]


@cached
def _known(target: Target) -> dict[int, Optional[GoModule]]:
    """Return what was found in each module so far, by its start."""
    return {}


@cached
def go_modules(target: Target) -> list[GoModule]:
    """Return the Go programs and libraries in the process."""
    return [found for found in (_go_module(target, module) for module in target.modules()) if found is not None]


def go_module_at(target: Target, pc: int) -> Optional[GoModule]:
    """Return the Go program or library with the code at `pc`, or None."""
    module = modules_by_address(target).at(pc)
    found = _go_module(target, module) if module is not None else None
    return found if found is not None and found.table.tables.text <= pc < found.table.tables.etext else None


def go_symbol_at(target: Target, pc: int) -> Optional[Symbol]:
    """Return the Go function with the code at `pc` as a symbol, or None. Stripped programs have it, too."""
    found = go_module_at(target, pc)
    function = found.table.at(pc) if found is not None else None
    if found is None or function is None or not function.name:
        return None
    return Symbol(function.name, function.entry, function.end - function.entry, found.module.name)


def go_places_at(target: Target, pc: int) -> list[Place]:
    """Return the line of the instruction at `pc`, after those of the functions that are inlined there; [] without."""
    found = go_module_at(target, pc)
    function = found.table.at(pc) if found is not None else None
    return found.table.places(function, pc, True) if found is not None and function is not None else []


def _go_module(target: Target, module: Module) -> Optional[GoModule]:
    known = _known(target)
    if module.start not in known:
        known[module.start] = _find(target, module) if target.arch.word == 8 else None
    return known[module.start]


def _find(target: Target, module: Module) -> Optional[GoModule]:
    if not _may_be_go(target, module):
        return None
    words = Words(target.image(), target.arch.word)
    symbol = target.lookup(f"{module.name}`{_SYMBOL}")
    proven = _proven(words, module, symbol.address) if symbol is not None else None
    return proven or next(filter(None, (_proven(words, module, at) for at in _candidates(words, module))), None)


def _may_be_go(target: Target, module: Module) -> bool:
    """Return whether the module has a function table of Go. `strip` leaves the names of sections in the file."""
    if module.file is not None:
        return any(elf_section(module.file, name) is not None for name in _SECTIONS)
    return bool(module.path == target.executable and module.ranges)


def _candidates(words: Words, module: Module) -> Iterator[int]:
    """Yield where moduledata may be: a word in writable memory that points to the header of a function table."""
    for header in islice(_headers(words, module), _MOST_CANDIDATES):
        wanted = header.to_bytes(8, "little")
        for piece in module.ranges:
            if "w" in piece.flags or "x" not in piece.flags:
                yield from islice(_search(words, piece, wanted), _MOST_CANDIDATES)


def _headers(words: Words, module: Module) -> Iterator[int]:
    for magic, quantum in product(MAGICS, _QUANTA):
        wanted = magic.to_bytes(4, "little") + bytes((0, 0, quantum, 8))
        for piece in module.ranges:
            yield from _search(words, piece, wanted)


def _search(words: Words, piece: AddressRange, wanted: bytes) -> Iterator[int]:
    """Yield the aligned addresses of these 8 bytes."""
    for at in range(piece.start, min(piece.end, piece.start + _MOST_SEARCHED), _STEP):
        data = words.image.read(at, min(_STEP, piece.end - at))
        place = data.find(wanted)
        while place >= 0:
            if place % 8 == 0:
                yield at + place
            place = data.find(wanted, place + 1)


def _proven(words: Words, module: Module, address: int) -> Optional[GoModule]:
    """Return the Go module whose moduledata is at the address, or None where its parts do not agree."""
    fields = words.many(address, _WORDS)
    tables = _tables(words, fields) if fields is not None else None
    if fields is None or tables is None or not any(tables.text in piece for piece in module.ranges):
        return None
    try:
        table = Pclntab(words, tables)
    except ValueError:
        return None
    magic = tables.magic
    pairs = [(fields[24 + 2 * n], fields[25 + 2 * n]) for n in range(_PAIRS[magic])]
    data = [(start, min(end, start + _MOST_DATA)) for start, end in pairs if start < end]
    # end, gcdata, gcbss, types, etypes; 1.27 has a length between the last two. go.func.* moved (1.26, 1.27).
    behind = fields[24 + 2 * _PAIRS[magic] : 24 + 2 * _PAIRS[magic] + 14]
    types = (behind[3], behind[4] if behind[4] > behind[3] else behind[5])
    known = types[0] < types[1] and any(types[0] in piece for piece in module.ranges)
    sample = list(islice(_with_inlined(table), _SAMPLE))
    table.gofunc = next((at for at in behind if at and table.proves_gofunc(at, sample)), None)
    return GoModule(module, address, table, data, types if known else None)


def _tables(words: Words, fields: Sequence[int]) -> Optional[Tables]:
    """Return the parts of the function table, or None where moduledata and the header of the table do not agree.

    The header, struct pcHeader: magic and sizes, nfunc, nfiles, textStart, then the offsets of five parts.
    """
    header = words.image.read(fields[0], HEADER)
    magic = int.from_bytes(header[:4], "little")
    if len(header) != HEADER or magic not in MAGICS or header[7] != 8 or header[6] not in _QUANTA:
        return None
    numbers = memoryview(header).cast("Q")
    parts = [(fields[n], fields[n + 1]) for n in range(1, 19, 3)]
    if numbers[1] >= MOST_FUNCTIONS or numbers[1] + 1 != parts[5][1] or parts[5][0] != parts[4][0]:
        return None
    if any(fields[0] + offset != start for offset, (start, _count) in zip(numbers[4:9], parts)):
        return None
    low, high, text, etext = fields[20:24]
    if not text <= low < high <= etext:
        return None
    return Tables(magic, header[6], text, etext, *parts)


def _with_inlined(table: Pclntab) -> Iterator[Function]:
    """Yield functions into which others are inlined, from all over the program."""
    step = max(1, len(table) // _MOST_LOOKED_AT)
    for number in range(0, len(table), step):
        function = table.numbered(number)
        if function is not None and function.inline_tree is not None:
            yield function
