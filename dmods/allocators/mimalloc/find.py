"""Find mimalloc: by the segments of 2.x, or by the page map of 3.x."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.protocol import Found, Heap
from dmods.allocators.unwalked import is_named, unwalked_malloc
from dmods.base.ranges import Ranges
from dmods.modules.data import module_data
from dmods.target import Target

NAME = "mimalloc"


def find_mimallocs(target: Target, owned: Ranges) -> Found:
    """Return every mimalloc of the process. `owned` is memory that cannot hold one."""
    if target.arch.word != 8:
        return Found()
    mappings = target.mappings()
    writable = Ranges((m.start, m.end) for m in mappings if "w" in m.flags and m.anonymous)
    image, mapped = target.image(), [(m.start, m.end) for m in mappings]
    found, refused = _engine.find_mimallocs(image, list(module_data(target)), owned.without(writable), mapped)
    if found:
        return Found(list(_heaps(target, image, found)))
    if not is_named(target, NAME):
        return Found()
    number = version(target)
    if number is not None and number < 200:
        known = f"mimalloc {number // 100}.{number // 10 % 10}.{number % 10}"
        return Found([], [f"{known} is in the process: dmods reads the layouts of 2.x and 3.x, not those of 1.x"])
    why = "; ".join(refused) or "no segment and no page map was found"
    return Found([], [f"mimalloc is in the process, and its layout could not be proven ({why})"])


def _heaps(target: Target, image: _engine.Image, found: Sequence[_engine.Mimalloc]) -> Iterator[Heap]:
    from dmods.allocators.mimalloc.heap import made
    from dmods.allocators.mimalloc.serving import malloc_of

    named = unwalked_malloc(target) == NAME
    for one in found:
        home = None if named else malloc_of(target, one)
        heap = made(one, image, named or home is not None)
        heap.home = home
        yield heap


def version(target: Target) -> Optional[int]:
    """Return what mi_version() returns (179 is 1.7.9), from its code. None: there is no such function."""
    symbol = target.lookup("mi_version")
    code = target.read(symbol.address, 12) if symbol is not None else b""
    intel = re.match(rb"(?:\xf3\x0f\x1e\xfa)?\xb8(.{4})\xc3", code, re.DOTALL)  # endbr64; mov; ret
    if target.arch.name == "x86_64" and intel:
        return int.from_bytes(intel.group(1), "little")
    words = [int.from_bytes(code[at : at + 4], "little") for at in (0, 4, 8)]
    move, back = words[1:] if words[0] == 0xD503245F else words[:2]  # bti c
    if target.arch.name == "aarch64" and move & 0xFFE0001F == 0x52800000 and back == 0xD65F03C0:
        return move >> 5 & 0xFFFF
    return None
