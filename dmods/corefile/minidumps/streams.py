"""The streams of a minidump: threads, memory, mappings, the signal.

The layouts are those of LLVM 19 (llvm/include/llvm/BinaryFormat/Minidump.h) and of LLDB's context of x86-64
(lldb/source/Plugins/Process/minidump/RegisterContextMinidump_x86_64.h), which are Breakpad's and Microsoft's. All
numbers are in little-endian. No offset and no count is trusted: a stream that is cut gives what is there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.corefile.packed import MINIDUMP
from dmods.errors import CorruptError

THREADS, MEMORY, EXCEPTION, SYSTEM, MEMORY64, MISC = 3, 5, 6, 7, 9, 15
STATUS, WORDS, AUXV, MAPS = 0x47670004, 0x47670006, 0x47670008, 0x47670009
AMD64 = 9
_LINUX = (0x8201, 0x8203)  # PlatformId: Linux, Android

_HEADER = struct.Struct("<4sIIIIIQ")  # signature, version, number of streams, their place, checksum, time, flags
_DIRECTORY = struct.Struct("<III")  # type, size, place
_THREAD = struct.Struct("<IIIIQQIIII")  # id, ..., stack (address, size, place), context (size, place)
_RANGE = struct.Struct("<QII")  # address, size, place
_RANGE64 = struct.Struct("<QQ")  # address, size
_EXCEPTION = struct.Struct("<IIIIQQ")  # thread, ..., code, flags, ..., address
_MOST_STREAMS = 1 << 12
_MOST_RANGES = 1 << 20
_MOST_THREADS = 1 << 16
_MOST_TEXT = 64 << 20  # bytes of a listing of mappings
_CONTEXT = 256  # bytes of a context before the floating-point registers
_FXSAVE = 512
_CONTROL, _INTEGER, _FLOATS = 1, 2, 8  # bits of context_flags
# Where a CONTEXT of x86-64 has the registers that an elf_gregset_t has, in the order of the latter. The segments have
# 16 bits, eflags 32. None: orig_rax, fs_base and gs_base are not in it.
_PLACES: tuple[Optional[tuple[int, str]], ...] = (
    *((240, "Q"), (232, "Q"), (224, "Q"), (216, "Q"), (160, "Q"), (144, "Q"), (208, "Q"), (200, "Q")),
    *((192, "Q"), (184, "Q"), (120, "Q"), (128, "Q"), (136, "Q"), (168, "Q"), (176, "Q"), None, (248, "Q")),
    *((56, "H"), (68, "I"), (152, "Q"), (66, "H"), None, None, (58, "H"), (60, "H"), (62, "H"), (64, "H")),
)
_PID = (1 << 31) - 1  # pid_t has a sign
_NO_CALL = (1 << 64) - 1  # orig_rax of a thread that is in no system call
_MAPPING = regex(rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-])[sp-] ([0-9a-f]{1,16}) \S+ (\d+) *(.*)$", re.M)

Read = Callable[[int, int], bytes]


class MemoryRange(NamedTuple):
    """``size`` bytes of memory from ``address`` on, at ``place`` in the file."""

    address: int
    size: int
    place: int


class Mapping(NamedTuple):
    """A line of /proc/PID/maps. ``path`` is b"" for memory without a file; "[heap]" is no file."""

    start: int
    end: int
    flags: str
    offset: int
    path: bytes


class MiniThread(NamedTuple):
    """A thread: its number, an elf_gregset_t, and a struct user_fpregs_struct or None."""

    tid: int
    registers: bytes
    floats: Optional[bytes]


class Death(NamedTuple):
    """The thread that got a signal, its number, si_code (0: not known) and the address (si_addr, or the pc)."""

    tid: int
    signal: int
    code: int
    address: int


@dataclass(frozen=True)
class Minidump:
    """A minidump. ``machine`` is that of SystemInfo. ``cut`` says that a part of it lies behind the end of the file.

    ``lost`` is memory behind the end.
    """

    machine: int
    is_linux: bool
    pid: int
    threads: Sequence[MiniThread]
    death: Optional[Death]
    memory: Sequence[MemoryRange]
    mappings: Sequence[Mapping]
    auxv: bytes
    words: bytes
    name: bytes
    cut: bool
    lost: Sequence[MemoryRange]


def parse(read: Read, size: int) -> Minidump:
    """Return what the file has. ``read`` returns up to so many bytes at an offset.

    Raises CorruptError for a file whose header is not that of a minidump.
    """
    streams = _streams(read)
    system = read(*_place(streams, SYSTEM, 56))
    machine = int.from_bytes(system[:2], "little") if len(system) >= 24 else -1
    platform = int.from_bytes(system[20:24], "little")
    misc = read(*_place(streams, MISC, 12))
    pid = int.from_bytes(misc[8:12], "little") & _PID if len(misc) == 12 and misc[4] & 1 else 0
    status = read(*_place(streams, STATUS, 1 << 16))
    name = re.match(rb"Name:\t([^\n]{1,64})", status)
    threads, stacks = _threads(read, streams)
    promised = [*_memory(read, streams), *stacks]
    lost = [each for each in promised if each.size and each.place + each.size > size]
    memory = [each._replace(size=min(each.size, size - each.place)) for each in promised if each.place < size]
    return Minidump(
        machine=machine,
        is_linux=platform in _LINUX,
        pid=pid,
        threads=threads,
        death=_death(read, streams),
        memory=memory,
        mappings=list(_mappings(read(*_place(streams, MAPS, _MOST_TEXT)))),
        auxv=read(*_place(streams, AUXV, 1 << 12)),
        words=read(*_place(streams, WORDS, 1 << 16)),
        name=name[1] if name else b"",
        cut=bool(lost) or any(place + length > size for place, length in streams.values()),
        lost=lost,
    )


def _streams(read: Read) -> dict[int, tuple[int, int]]:
    """Return (place, size) of the first stream of each type."""
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size or head[:4] != MINIDUMP:
        raise CorruptError("the header of the minidump is cut")
    _magic, _version, count, at, *_rest = _HEADER.unpack(head)
    table = read(at, min(count, _MOST_STREAMS) * _DIRECTORY.size)
    found: dict[int, tuple[int, int]] = {}
    for kind, size, place in _DIRECTORY.iter_unpack(table[: len(table) // _DIRECTORY.size * _DIRECTORY.size]):
        found.setdefault(kind, (place, size))
    return found


def _place(streams: dict[int, tuple[int, int]], kind: int, most: int) -> tuple[int, int]:
    place, size = streams.get(kind, (0, 0))
    return place, min(size, most)


def _rows(read: Read, place: int, size: int, row: struct.Struct, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the rows behind a count of 32 bits. Some writers align them to 8 bytes."""
    count = int.from_bytes(read(place, 4), "little")
    if size < 4 or count > most:
        count = min(count, most, max(0, size - 4) // row.size)
    begin = place + (8 if size == 8 + count * row.size else 4)
    data = read(begin, min(count * row.size, max(0, size - 4)))
    yield from row.iter_unpack(data[: len(data) // row.size * row.size])


def _threads(read: Read, streams: dict[int, tuple[int, int]]) -> tuple[list[MiniThread], list[MemoryRange]]:
    """Return the threads, and the parts of their stacks that the list itself names."""
    threads, stacks = [], []
    for row in _rows(read, *streams.get(THREADS, (0, 0)), _THREAD, _MOST_THREADS):
        tid, _suspended, _class, _priority, _teb, address, size, place, context_size, context = row
        thread = _thread(tid & _PID, read(context, min(context_size, _CONTEXT + _FXSAVE)))
        if thread is not None:
            threads.append(thread)
        stacks.append(MemoryRange(address, size, place))
    return threads, stacks


def _thread(tid: int, context: bytes) -> Optional[MiniThread]:
    """Return the thread of a CONTEXT of x86-64, or None where the context is cut."""
    if len(context) < _CONTEXT:
        return None
    flags = int.from_bytes(context[48:52], "little")
    if not flags & (_CONTROL | _INTEGER):
        return None
    values = [struct.unpack_from("<" + where[1], context, where[0])[0] if where else 0 for where in _PLACES]
    values[15] = _NO_CALL
    floats = context[_CONTEXT : _CONTEXT + _FXSAVE] if flags & _FLOATS else b""
    return MiniThread(tid, struct.pack("<27Q", *values), floats if len(floats) == _FXSAVE else None)


def _memory(read: Read, streams: dict[int, tuple[int, int]]) -> Iterator[MemoryRange]:
    for address, size, place in _rows(read, *streams.get(MEMORY, (0, 0)), _RANGE, _MOST_RANGES):
        yield MemoryRange(address, size, place)
    place, size = streams.get(MEMORY64, (0, 0))
    head = read(place, 16) if size >= 16 else b""
    if len(head) < 16:
        return
    count, at = struct.unpack("<QQ", head)
    data = read(place + 16, min(count, _MOST_RANGES) * _RANGE64.size)
    for address, size in _RANGE64.iter_unpack(data[: len(data) // _RANGE64.size * _RANGE64.size]):
        yield MemoryRange(address, size, at)
        at += size


def _death(read: Read, streams: dict[int, tuple[int, int]]) -> Optional[Death]:
    """Return the first thread with a signal.

    Breakpad writes si_code as the flags and si_addr as the address (minidump_writer.cc, WriteExceptionStream). LLDB
    writes neither: the flags are 0, and the address is the pc (MinidumpFileBuilder.cpp, AddExceptions).
    """
    data = read(*_place(streams, EXCEPTION, _EXCEPTION.size))
    if len(data) < _EXCEPTION.size:
        return None
    tid, _unused, signal, flags, _record, address = _EXCEPTION.unpack(data)
    code = flags - (1 << 32) if flags >> 31 else flags
    return Death(tid & _PID, signal, code, address) if 0 < signal <= 64 else None


def _mappings(text: bytes) -> Iterator[Mapping]:
    """Yield the lines of /proc/PID/maps in their order."""
    for count, line in enumerate(_MAPPING.finditer(text)):
        if count >= _MOST_RANGES:
            return
        start, end, flags, offset, inode, path = line.groups()
        named = path if inode != b"0" else b""
        yield Mapping(int(start, 16), int(end, 16), flags.decode(), int(offset, 16), named)
