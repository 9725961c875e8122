"""The dynamic linker's list of loaded objects, read from the dead process (glibc elf/link.h: r_debug, link_map)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.modules.elf import PT_DYNAMIC, PT_PHDR, Read, Segment, page_down

_DT_NULL, _DT_DEBUG = 0, 21
_MAX_OBJECTS = 1 << 14


class Linked(NamedTuple):
    """A link_map. ``bias`` is l_addr and ``dynamic`` is l_ld. ``name`` is "" for the program."""

    bias: int
    name: str
    dynamic: int


def bias_of(segments: Sequence[Segment], address: int) -> Optional[int]:
    """Return the program's bias, or None. ``address`` is the value of AT_PHDR."""
    for segment in segments:
        if segment.type == PT_PHDR:
            return address - segment.vaddr
    loads = [s for s in segments if s.type == 1 and page_down(s.offset) == 0]
    return page_down(address) - page_down(loads[0].vaddr) if loads else None


def walk(read: Read, segments: Sequence[Segment], bias: int, word: int) -> list[Linked]:
    """Return the list that DT_DEBUG points to; [] for a static program. A broken list ends where it breaks."""
    debug = debug_address(read, segments, bias, word)
    objects: list[Linked] = []
    seen: set[int] = set()
    at = _word(read, debug + word, word) if debug else 0
    while at and at not in seen and len(objects) < _MAX_OBJECTS:
        seen.add(at)
        raw = read(at, 4 * word)
        if len(raw) < 4 * word:
            break
        load, name, dynamic, following = struct.unpack("<4Q" if word == 8 else "<4I", raw)
        text = read(name, 4096).split(b"\0")[0] if name else b""
        objects.append(Linked(load, text.decode("utf-8", "surrogateescape"), dynamic))
        at = following
    return objects


def debug_address(read: Read, segments: Sequence[Segment], bias: int, word: int) -> int:
    """Return the address of the dynamic linker's r_debug, or 0: DT_DEBUG of a program that it has loaded."""
    return dynamic_entries(read, segments, bias, word).get(_DT_DEBUG, 0)


def dynamic_entries(read: Read, segments: Sequence[Segment], bias: int, word: int) -> dict[int, int]:
    """Return the entries of the dynamic section in memory, d_tag -> d_un. Of equal tags, the first counts."""
    entries: dict[int, int] = {}
    for segment in segments:
        if segment.type == PT_DYNAMIC:
            raw = read(bias + segment.vaddr, min(segment.memsz, 1 << 16))
            raw = raw[: len(raw) // (2 * word) * 2 * word]
            for tag, value in struct.iter_unpack("<2Q" if word == 8 else "<2I", raw):
                if tag == _DT_NULL:
                    break
                entries.setdefault(tag, value)
    return entries


def _word(read: Read, address: int, word: int) -> int:
    return int.from_bytes(read(address, word), "little")
