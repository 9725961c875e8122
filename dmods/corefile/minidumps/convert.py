"""Write the plain core of a minidump, which the engine, gdb and drgn can open."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, Optional

from dmods.base.ranges import Ranges
from dmods.base.sizes import human_size
from dmods.corefile import elfcore
from dmods.corefile.minidumps import streams
from dmods.corefile.minidumps.streams import Mapping, MemoryRange, Minidump, MiniThread
from dmods.corefile.notes import NT_PRSTATUS
from dmods.errors import CorruptError, UserError
from dmods.modules.elf import PAGE, TOP
from dmods.process.arch import X86_64
from dmods.process.vectors import NT_PRFPREG

FORM = "minidump"
_STEP = 1 << 20
_ANY = "rwx"  # memory of which the minidump does not say how it was mapped
_STACKS_ONLY = (
    "the minidump has stacks and no heap: nothing can be said about blocks. LLDB writes all memory with "
    "`process save-core --plugin-name=minidump --style full FILE`, gdb with `gcore`"
)
_HOW = "take a core with `gcore PID`, or in LLDB: process save-core --plugin-name=minidump --style full FILE"


class Made:
    """A core that was made: its size, and notes on what it lacks."""

    def __init__(self, size: int, notes: list[str]) -> None:
        self.size, self.notes = size, notes


def convert(path: str, to: str, room: int, report: Callable[[int], None]) -> Made:
    """Write the core of a minidump into the empty file ``to``. ``report`` gets the bytes that were copied.

    Raises UserError for a minidump that is not of a Linux process on x86-64, or is larger than ``room`` bytes; OSError
    where a file cannot be read or written.
    """
    with open(path, "rb") as source, open(to, "r+b") as target:
        size = os.fstat(source.fileno()).st_size

        def read(offset: int, count: int) -> bytes:
            if not 0 <= offset < size or count <= 0:
                return b""
            return os.pread(source.fileno(), min(count, size - offset), offset)

        try:
            found = streams.parse(read, size)
        except CorruptError as error:
            raise UserError(f"{path}: {error}", "copy or take it again, whole") from None
        _check(path, found)
        pieces = list(_disjoint(found.memory, size))
        if sum(each.size for each in pieces) > room:
            raise UserError(
                f"there is no room for the core of {path}: {human_size(room)} are free",
                "`dmods cache --clear` makes room; XDG_CACHE_HOME=DIR names another folder",
            )
        placed = list(_placed(pieces))
        _copy(source.fileno(), target.fileno(), zip(pieces, placed), report)
        about = elfcore.About(found.pid, found.name, found.words, found.auxv, PAGE)
        maps = [_lost(each) if found.cut else each for each in _mappings(found.mappings or _of_lost(found), placed)]
        return Made(elfcore.write(target.fileno(), X86_64, about, _threads(found), maps), list(_notes(found, pieces)))


def _check(path: str, found: Minidump) -> None:
    if not found.is_linux:
        raise UserError(f"{path} is a minidump, and not of a Linux process", "open it with the debugger of its system")
    if found.machine != streams.AMD64:
        raise UserError(f"{path} is a minidump of a machine other than x86-64", _HOW)


def _notes(found: Minidump, pieces: Sequence[MemoryRange]) -> Iterator[str]:
    stacks = [int.from_bytes(thread.registers[19 * 8 : 20 * 8], "little") for thread in found.threads]
    writable = [each for each in _in_order(found.mappings) if "w" in each.flags]
    starts = [each.start for each in writable]
    with_stacks = {bisect_right(starts, pointer) - 1 for pointer in stacks}
    rest = [each for number, each in enumerate(writable) if number not in with_stacks]
    dumped = Ranges((each.address, each.address + each.size) for each in pieces)
    if found.cut:
        yield "the minidump is cut: memory, threads or mappings behind its end are missing"
    elif rest and not any(dumped.within(each.start, each.end) for each in rest):
        yield _STACKS_ONLY


def _threads(found: Minidump) -> list[elfcore.LiveThread]:
    """Return the threads, the one that died first."""
    death = found.death
    order = sorted(found.threads, key=lambda each: death is None or each.tid != death.tid)
    return [_thread(found, each) for each in order]


def _thread(found: Minidump, thread: MiniThread) -> elfcore.LiveThread:
    death = found.death
    notes = [(NT_PRSTATUS, thread.registers)]
    if thread.floats is not None:
        notes.append((NT_PRFPREG, thread.floats))
    if death is None or death.tid != thread.tid:
        return elfcore.LiveThread(thread.tid, 0, None, notes)
    siginfo = struct.pack("<iii4xQ", death.signal, 0, death.code, death.address).ljust(128, b"\0")
    return elfcore.LiveThread(thread.tid, death.signal, siginfo if death.code else None, notes)


# -- memory -----------------------------------------------------------------------------------------------------------


def _disjoint(memory: Sequence[MemoryRange], size: int) -> Iterator[MemoryRange]:
    """Yield the memory by address, each byte once, and no more than the file has.

    A writer stores each byte once. A crafted list may name the same bytes of the file for many addresses.
    """
    at, left = 0, size
    for each in sorted(memory, key=lambda each: (each.address, -each.size)):
        skip = max(0, at - each.address)
        count = min(each.size - skip, left, TOP - each.address - skip)
        if count > 0:
            yield MemoryRange(each.address + skip, count, each.place + skip)
            at, left = each.address + skip + count, left - count


def _placed(pieces: Sequence[MemoryRange]) -> Iterator[MemoryRange]:
    """Yield the pieces with their places in the core: as far into a page as in memory."""
    at = PAGE
    for each in pieces:
        place = (at + PAGE - 1 & -PAGE) + each.address % PAGE
        yield each._replace(place=place)
        at = place + each.size


def _mappings(mappings: Sequence[Mapping], pieces: Sequence[MemoryRange]) -> Iterator[elfcore.LiveMapping]:
    """Yield the mappings by address. One is split where bytes of it are there and others are not.

    Memory outside of all mappings comes as memory of unknown use.
    """
    rest = iter(pieces)
    piece = next(rest, None)
    done = 0
    for mapping in _in_order(mappings):
        at = max(mapping.start, done)
        while piece is not None and piece.address < at:
            yield from _unmapped(piece, min(piece.address + piece.size, at))
            piece = _behind(piece, at) or next(rest, None)
        while at < mapping.end:
            if piece is None or piece.address >= mapping.end:
                yield _part(mapping, at, mapping.end, None)
                break
            if piece.address > at:
                yield _part(mapping, at, piece.address, None)
            end = min(piece.address + piece.size, mapping.end)
            yield _part(mapping, piece.address, end, piece.place)
            at = end
            piece = _behind(piece, end) or next(rest, None)
        done = max(done, mapping.end)
    while piece is not None:
        yield from _unmapped(piece, piece.address + piece.size)
        piece = next(rest, None)


def _in_order(mappings: Sequence[Mapping]) -> Iterator[Mapping]:
    at = 0
    for each in sorted(mappings):
        if at <= each.start < each.end <= TOP:
            yield each
            at = each.end


def _behind(piece: MemoryRange, end: int) -> Optional[MemoryRange]:
    """Return what is left of the piece from an address on, or None."""
    skip = end - piece.address
    return MemoryRange(end, piece.size - skip, piece.place + skip) if skip < piece.size else None


def _part(mapping: Mapping, start: int, end: int, place: Optional[int]) -> elfcore.LiveMapping:
    offset = mapping.offset + start - mapping.start if mapping.path else None
    dumped = end - start if place is not None else 0
    return elfcore.LiveMapping(start, end, mapping.flags, offset, mapping.path, dumped, place or 0)


def _of_lost(found: Minidump) -> list[Mapping]:
    """Return mappings for the memory that a cut minidump lacks, where it does not list them."""
    return [Mapping(each.address, each.address + each.size, _ANY, 0, b"") for each in found.lost]


def _lost(mapping: elfcore.LiveMapping) -> elfcore.LiveMapping:
    """Return memory of a cut minidump. What could be written, and is not there, may be behind the cut."""
    if mapping.dumped or "w" not in mapping.flags:
        return mapping
    return mapping._replace(dumped=mapping.end - mapping.start, place=elfcore.NOWHERE)


def _unmapped(piece: MemoryRange, end: int) -> Iterator[elfcore.LiveMapping]:
    size = end - piece.address
    yield elfcore.LiveMapping(piece.address, end, _ANY, None, b"", size, piece.place)


def _copy(
    source: int, target: int, pieces: Iterable[tuple[MemoryRange, MemoryRange]], report: Callable[[int], None]
) -> None:
    """Copy each piece to its place in the core. Zeros become holes."""
    done = 0
    for piece, to in pieces:
        for at in range(0, piece.size, _STEP):
            data = os.pread(source, min(_STEP, piece.size - at), piece.place + at)
            if data.strip(b"\0"):
                os.pwrite(target, data, to.place + at)
            done += len(data)
            report(done)
