"""The list of all slab caches (mm/slab_common.c, slab_caches)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drgn import Program

_MOST_CACHES = 1 << 16
_LINKS = struct.Struct("<QQ")  # next, prev
_NEXT, _PREV = 0, 1


def cache_addresses(prog: Program, link: int, notes: list[str]) -> list[int]:
    """Return the addresses of all caches; the links are at ``link`` in each.

    The list ends where a link does not agree with the link back. Where the dump lacks a cache, those behind it follow,
    as far as the links back lead. ``notes`` gets a line then.
    """
    from drgn import FaultError

    head = int(prog["slab_caches"].address_of_().value_())
    found: list[int] = []
    try:
        for at in _walk(prog, head, _NEXT):
            if at == head:
                return [each - link for each in found]
            found.append(at)
        notes.append(
            f"the list of slab caches is damaged after {len(found)} caches: objects of the others are not known"
        )
    except FaultError:
        behind = _behind(prog, head, set(found))
        notes.append(
            f"the list of slab caches leads into memory that the dump lacks after {len(found)} caches: {len(behind)} "
            "caches behind that are known, and objects of the others are not"
        )
        found += behind
    return [at - link for at in found]


def _behind(prog: Program, head: int, known: set[int]) -> list[int]:
    """Return the last caches of the list, in its order, without those that are known."""
    from drgn import FaultError

    found: list[int] = []
    try:
        for at in _walk(prog, head, _PREV):
            if at == head or at in known:
                break
            found.append(at)
    except FaultError:
        pass
    return found[::-1]


def _walk(prog: Program, head: int, way: int) -> Iterator[int]:
    """Yield the nodes of the list in one direction, and ``head`` at its end. Raises drgn.FaultError.

    The walk ends early where a link does not agree with the link back.
    """
    before, at = head, _LINKS.unpack(prog.read(head, _LINKS.size))[way]
    for _count in range(_MOST_CACHES):
        if at == head:
            yield head
            return
        links = _LINKS.unpack(prog.read(at, _LINKS.size))
        if links[1 - way] != before:
            return
        yield at
        before, at = at, links[way]
