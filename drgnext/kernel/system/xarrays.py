"""The entries of an xarray (lib/xarray.c), in a dump that may be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_NODES = 1 << 22
_CHUNK_BITS = (4, 6)  # XA_CHUNK_SHIFT: 4 with CONFIG_BASE_SMALL (linux/xarray.h)
_LAST_INTERNAL = 4096  # up to there an internal entry is no node: xa_is_node()


class XArray:
    """A ``struct xarray``. ``what`` ("hardware queues") is for notes."""

    def __init__(self, reader: Reader, array: Object, what: str) -> None:
        self._reader = reader
        self._array = array
        self._what = f"the xarray of {what}"
        self._nodes = 0
        node = reader.prog.type("struct xa_node")
        self._shift_at, self._slots_at = node.member("shift").bit_offset // 8, node.member("slots").bit_offset // 8
        self._slots = node.member("slots").type.length or 64

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield (index, pointer). Values and reserved entries are no pointers; they are left out."""
        entry = self._array.xa_head.value_()
        if not _is_node(entry):
            if entry and not entry & 3:
                yield 0, entry
        elif self._slots.bit_length() - 1 not in _CHUNK_BITS:
            self._reader.note(f"{self._what} has nodes of {self._slots} slots: dmods does not know them")
        else:
            yield from self._below(entry - 2, 0, 64)

    def _below(self, node: int, index: int, above: int) -> Iterator[tuple[int, int]]:
        """Yield the entries below a node. Shifts must fall on the way down, so the walk ends."""
        self._nodes += 1
        shift = self._reader.memory.read(node + self._shift_at, 1)
        if not shift or shift[0] >= above or self._nodes > _MOST_NODES:
            self._reader.damaged(self._what, node, None if not shift else node)
            return
        for slot in range(self._slots):
            entry = self._reader.memory.word(node + self._slots_at + 8 * slot)
            at = index + (slot << shift[0])
            if entry and not entry & 3:
                yield at, entry
            elif entry and _is_node(entry) and shift[0]:
                yield from self._below(entry - 2, at, shift[0])


def _is_node(entry: int) -> bool:
    return entry & 3 == 2 and entry > _LAST_INTERNAL
