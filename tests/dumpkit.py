"""Dumps as other tools write them, made of a core that the kernel wrote.

The layouts are those of the tools' sources and the gABI, not dmods' own reading of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from dmods.corefile.target import CoreFile
from tests.corekit import PT_LOAD, PT_NOTE

NT_PRSTATUS, NT_AUXV, NT_FILE, NT_SIGINFO = 1, 6, 0x46494C45, 0x53494749
AT_PHDR, AT_PHENT, AT_SYSINFO_EHDR = 3, 4, 33
Note = tuple[bytes, int, bytes]  # owner, type, content


def headers(core: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """Return (place, Elf64_Phdr) of each program header."""
    table, count = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    places = [table + 56 * number for number in range(count)]
    return [(place, struct.unpack_from("<IIQQQQQQ", core, place)) for place in places]


def notes(core: bytes) -> Iterator[Note]:
    for _place, (kind, _flags, first, _address, _physical, size, *_rest) in headers(core):
        at, end = first, first + size
        while kind == PT_NOTE and at < end:
            name, content, type_ = struct.unpack_from("<III", core, at)
            begin = at + 12 + (name + 3 & ~3)
            yield core[at + 12 : at + 12 + name].rstrip(b"\0"), type_, core[begin : begin + content]
            at = begin + (content + 3 & ~3)


def with_notes(core: Path, to: Path, change: Callable[[Note], Optional[Note]]) -> Path:
    """Write a copy of the core with other notes. ``change`` returns what becomes of a note; None: it is left out.

    A note without an owner has no name at all (n_namesz is 0).
    """
    data = bytearray(core.read_bytes())
    new = bytearray()
    for owner, kind, content in filter(None, map(change, notes(bytes(data)))):
        name = owner + b"\0" if owner else b""
        new += struct.pack("<III", len(name), len(content), kind)
        new += name.ljust(len(name) + 3 & ~3, b"\0") + content.ljust(len(content) + 3 & ~3, b"\0")
    for place, header in headers(bytes(data)):
        if header[0] == PT_NOTE:
            struct.pack_into("<IIQQQQQQ", data, place, *header[:2], len(data), 0, 0, len(new), 0, 4)
    to.write_bytes(bytes(data) + bytes(new))
    return to


def without(core: Path, to: Path, *kinds: int) -> Path:
    """Write a copy of the core without the notes of these types."""
    return with_notes(core, to, lambda note: None if note[1] in kinds else note)


def without_text(core: Path, text: bytes) -> None:
    """Replace a text by zeros wherever it is in the core."""
    core.write_bytes(core.read_bytes().replace(text, bytes(len(text))))


# -- minidumps: llvm/include/llvm/BinaryFormat/Minidump.h, and LLDB's MinidumpFileBuilder.cpp (LLVM 19) ---------------

_PLACES = {  # of a CONTEXT of x86-64 (RegisterContextMinidump_x86_64.h)
    "rax": 120,
    "rcx": 128,
    "rdx": 136,
    "rbx": 144,
    "rsp": 152,
    "rbp": 160,
    "rsi": 168,
    "rdi": 176,
    **{f"r{number}": 184 + 8 * (number - 8) for number in range(8, 16)},
    "rip": 248,
}
_CONTEXT = 720
HEADER, DIRECTORY = 32, 12
THREADS, MEMORY, EXCEPTION, SYSTEM, MEMORY64, MISC, STATUS, AUXV, MAPS = (
    3, 5, 6, 7, 9, 15, 0x47670004, 0x47670008, 0x47670009,
)  # fmt: skip


def context(registers: Mapping[str, int]) -> bytes:
    made = bytearray(_CONTEXT)
    struct.pack_into("<I", made, 48, 0x100007)  # x86-64, control, integer, segments
    for name, place in _PLACES.items():
        struct.pack_into("<Q", made, place, registers[name])
    return bytes(made)


def maps_text(core: CoreFile, names: Mapping[int, str]) -> bytes:
    """Return /proc/PID/maps. ``names`` are those of memory without a file, by its start."""
    lines = []
    for each in core.mappings():
        inode, offset = (7, each.offset) if each.path else (0, 0)
        path = each.path or names.get(each.start, "")
        lines.append(f"{each.start:x}-{each.end:x} {each.flags}p {offset:08x} fe:00 {inode}    {path}\n")
    return "".join(lines).encode()


def minidump(core: CoreFile, *, wide: bool, only: Callable[[int, int], bool] = lambda start, end: True) -> bytes:
    """Return a minidump of the process in a core, as LLDB writes it.

    ``wide``: with a Memory64List, whose bytes follow the list; else with a MemoryList behind the bytes. ``only``
    chooses mappings.
    """
    first = core.threads()[0]
    assert first.signal is not None
    assert core.pid is not None
    auxv = b"".join(struct.pack("<QQ", *pair) for pair in core.auxv.items()) + bytes(16)
    status = b"Name:\tprogram\nUmask:\t0022\n"
    streams: list[tuple[int, bytes]] = [
        (SYSTEM, struct.pack("<HHHBBIIIIIHH24s", 9, 0, 0, 0, 0, 0, 0, 0, 0x8201, 0, 0, 0, b"")),
        (MISC, struct.pack("<IIIIII", 24, 1, core.pid, 0, 0, 0)),
        (STATUS, status),
        (AUXV, auxv),
        (MAPS, maps_text(core, {})),
        (EXCEPTION, struct.pack("<IIIIQQII", first.tid, 0, first.signal.number, 0, 0, first.registers["rip"], 0, 0)),
    ]
    ranges = [
        (each.start, core.dumped(each.start, each.dumped))
        for each in core.mappings()
        if each.dumped and only(each.start, each.end)
    ]
    body = bytearray(HEADER + DIRECTORY * (len(streams) + 2))
    directory: list[tuple[int, int, int]] = []

    def add(kind: int, data: bytes) -> None:
        directory.append((kind, len(data), len(body)))
        body.extend(data)

    for kind, data in streams:
        add(kind, data)
    threads = list(reversed(core.threads()))  # LLDB's order is not that of the kernel
    contexts = len(body) + 4 + 48 * len(threads)
    rows = [
        struct.pack("<IIIIQQIIII", each.tid, 0, 0, 0, 0, 0, 0, 0, _CONTEXT, contexts + number * _CONTEXT)
        for number, each in enumerate(threads)
    ]
    add(THREADS, struct.pack("<I", len(rows)) + b"".join(rows))
    body.extend(b"".join(context(each.registers) for each in threads))
    if wide:
        count = len(ranges)
        head = struct.pack("<QQ", count, len(body) + 16 + 16 * count)
        add(MEMORY64, head + b"".join(struct.pack("<QQ", start, len(data)) for start, data in ranges))
        body.extend(b"".join(data for _start, data in ranges))
    else:
        listed = []
        for start, data in ranges:
            listed.append(struct.pack("<QII", start, len(data), len(body)))
            body.extend(data)
        add(MEMORY, struct.pack("<I", len(listed)) + b"".join(listed))
    struct.pack_into("<4sIIIIIQ", body, 0, b"MDMP", 0xA793, len(directory), HEADER, 0, 0, 0)
    for number, entry in enumerate(directory):
        struct.pack_into("<III", body, HEADER + DIRECTORY * number, *entry)
    return bytes(body)


def loads(core: bytes) -> Sequence[tuple[int, ...]]:
    return [header for _place, header in headers(core) if header[0] == PT_LOAD]
