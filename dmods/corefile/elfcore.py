"""Writes the headers and notes of a core: fs/binfmt_elf.c, include/uapi/linux/elfcore.h, struct elf_prpsinfo."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.corefile.notes import NT_AUXV, NT_FILE, NT_PRPSINFO, NT_PRSTATUS, NT_SIGINFO
from dmods.modules.elf import MAGIC, PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE
from dmods.process.vectors import NT_PRFPREG
from dmods.target import Arch

_MACHINES = {"x86_64": 62, "i386": 3, "aarch64": 183}
_ET_CORE = 4
#: The place of bytes that a mapping had and the core lacks: behind the end of any file.
NOWHERE = 1 << 62
_MANY = 0xFFFF  # PN_XNUM: the true number is in the first section header


class LiveThread(NamedTuple):
    """A thread: its number, the signal that it was about to receive (0 for none), and its registers by their note."""

    tid: int
    signal: int
    siginfo: Optional[bytes]
    registers: Sequence[tuple[int, bytes]]


class LiveMapping(NamedTuple):
    """A mapping: ``dumped`` bytes of it are at ``place`` in the core, or should be (NOWHERE).

    ``offset`` is None where it has no file.
    """

    start: int
    end: int
    flags: str
    offset: Optional[int]
    path: bytes
    dumped: int
    place: int


class About(NamedTuple):
    """The process: its pid, its name and words, and its auxiliary vector."""

    pid: int
    name: bytes
    words: bytes
    auxv: bytes
    page: int


def write(descriptor: int, arch: Arch, about: About, threads: Sequence[LiveThread], maps: Sequence[LiveMapping]) -> int:
    """Write the header at the beginning of the file, and the rest behind the memory. Return the size of the core."""
    notes = b"".join(_notes(arch, about, threads, maps))
    at = _up(
        max((each.place + each.dumped for each in maps if each.dumped and each.place < NOWHERE), default=about.page),
        about.page,
    )
    os.pwrite(descriptor, notes, at)
    headers_at = _up(at + len(notes), 8)
    segments = [_segment(arch, (PT_NOTE, 0), at, (0, len(notes), 0), 1)]
    for each in maps:
        flags = (PF_R if "r" in each.flags else 0) | (PF_W if "w" in each.flags else 0)
        flags |= PF_X if "x" in each.flags else 0
        sizes = each.start, each.dumped, each.end - each.start
        segments.append(_segment(arch, (PT_LOAD, flags), each.place if each.dumped else 0, sizes, about.page))
    os.pwrite(descriptor, b"".join(segments), headers_at)
    end = headers_at + sum(map(len, segments))
    sections_at = 0
    if len(segments) >= _MANY:
        sections_at = _up(end, 8)
        code = "<IIQQQQIIQQ" if arch.word == 8 else "<IIIIIIIIII"
        section = struct.pack(code, 0, 0, 0, 0, 0, 1, 0, len(segments), 0, 0)
        os.pwrite(descriptor, section, sections_at)
        end = sections_at + len(section)
    os.pwrite(descriptor, _header(arch, headers_at, len(segments), sections_at), 0)
    return end


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _header(arch: Arch, segments_at: int, count: int, sections_at: int) -> bytes:
    wide = arch.word == 8
    identity = MAGIC + bytes((2 if wide else 1, 1, 1)) + bytes(9)
    sizes = (64, 56, 64) if wide else (52, 32, 40)
    return identity + struct.pack(
        "<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH",
        _ET_CORE, _MACHINES[arch.name], 1, 0, segments_at, sections_at, 0,
        sizes[0], sizes[1], min(count, _MANY), sizes[2] if sections_at else 0, 1 if sections_at else 0, 0,
    )  # fmt: skip


def _segment(arch: Arch, kind: tuple[int, int], place: int, sizes: tuple[int, int, int], align: int) -> bytes:
    """Return a program header. ``kind`` is its type with its flags.

    ``sizes`` are the address, the bytes in the file, and the bytes in memory.
    """
    address, filesz, memsz = sizes
    if arch.word == 8:
        return struct.pack("<IIQQQQQQ", *kind, place, address, 0, filesz, memsz, align)
    return struct.pack("<IIIIIIII", kind[0], place, address, 0, filesz, memsz, kind[1], align)


def _notes(arch: Arch, about: About, threads: Sequence[LiveThread], maps: Sequence[LiveMapping]) -> Iterator[bytes]:
    for number, thread in enumerate(threads):
        general = dict(thread.registers).get(NT_PRSTATUS, b"")
        yield _note(b"CORE", NT_PRSTATUS, _prstatus(arch, about.pid, thread, general))
        if number == 0:
            yield _note(b"CORE", NT_PRPSINFO, _prpsinfo(arch, about))
            yield _note(b"CORE", NT_AUXV, about.auxv)
            if any(each.path for each in maps):
                yield _note(b"CORE", NT_FILE, _files(arch, about.page, maps))
        if thread.siginfo is not None:
            yield _note(b"CORE", NT_SIGINFO, _siginfo(arch, thread.siginfo))
        for kind, data in thread.registers:
            if kind != NT_PRSTATUS:
                yield _note(b"CORE" if kind == NT_PRFPREG else b"LINUX", kind, data)


def _note(owner: bytes, kind: int, desc: bytes) -> bytes:
    name = owner + b"\0"
    padded = name.ljust(_up(len(name), 4), b"\0") + desc.ljust(_up(len(desc), 4), b"\0")
    return struct.pack("<III", len(name), len(desc), kind) + padded


def _prstatus(arch: Arch, pid: int, thread: LiveThread, registers: bytes) -> bytes:
    """Return a struct elf_prstatus: signals, numbers, four times, the registers, and whether there are others."""
    long = "Q" if arch.word == 8 else "I"
    head = struct.pack(f"<iiihxx2{long}4i8{long}", thread.signal, 0, 0, thread.signal, 0, 0, thread.tid, 0, pid, 0,
                       *[0] * 8)  # fmt: skip
    return head + registers + struct.pack("<i", 1).ljust(arch.word, b"\0")


def _prpsinfo(arch: Arch, about: About) -> bytes:
    text = about.name[:15].ljust(16, b"\0") + about.words[:79].replace(b"\0", b" ").ljust(80, b"\0")
    state = (0, b"R", 0, 0)
    if arch.word == 8:
        return struct.pack("<bcbbxxxxQIIiiii", *state, 0, 0, 0, about.pid, 0, 0, 0) + text
    return struct.pack("<bcbbIHHiiii", *state, 0, 0, 0, about.pid, 0, 0, 0) + text


def _siginfo(arch: Arch, info: bytes) -> bytes:
    """Return a siginfo_t. The union of 32 bits begins at once; its numbers or its address are the first 8 bytes."""
    return info if arch.word == 8 else (info[:12] + info[16:24]).ljust(128, b"\0")


def _files(arch: Arch, page: int, maps: Sequence[LiveMapping]) -> bytes:
    long = "Q" if arch.word == 8 else "I"
    named = [each for each in maps if each.offset is not None and each.path]
    ranges = [struct.pack(f"<3{long}", each.start, each.end, (each.offset or 0) // page) for each in named]
    # /proc/PID/maps escapes one character (fs/proc/task_mmu.c: show_map_vma).
    paths = [each.path.replace(b"\\012", b"\n") + b"\0" for each in named]
    return struct.pack(f"<2{long}", len(named), page) + b"".join(ranges) + b"".join(paths)
