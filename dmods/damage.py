"""Damaged chunks, for people: what is wrong, who may have done it, and the bytes that were left there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dmods.glibc.integrity import top_problem

if TYPE_CHECKING:
    from dmods.heap import Block, ProcessHeap

_ROW = 16
_SEARCHED = 5  # chunks in each run for which all memory is searched for pointers


@dataclass(frozen=True)
class Damage:
    """A bad chunk. ``suspect`` is the block that was most likely written beyond (or before) its bounds, ``why`` says
    what speaks for it. The chunks make sense again at ``resumed``."""

    arena: int
    fault: str  # as in _engine.RunReport
    chunk: int
    value: int
    suspect: Optional[Block]
    why: str
    resumed: int
    about: str = ""  # more of what is wrong

    @property
    def extent(self) -> int:
        return self.resumed - self.chunk


def damages(heap: ProcessHeap) -> Iterator[Damage]:
    """The damaged chunks that the walk described, by address, then damaged top chunks."""
    tops = {arena.top for arena in heap.arenas if top_problem(heap, arena) is not None}
    for (_, _, _, arena, _), report in zip(heap.index.runs(), heap.reports):
        for number, (fault, chunk, value, before, resumed) in enumerate(report["anomalies"]):
            if chunk in tops:
                continue  # once is enough: below
            if (
                fault == "size"
                and before
                and number < _SEARCHED
                and (found := _shortened(heap, arena, chunk, before, resumed))
            ):
                yield found
                continue
            suspect, why = _suspect(heap, fault, chunk, before)
            yield Damage(arena, fault, chunk, value, suspect, why, max(resumed, chunk))
    for number, arena_ in enumerate(heap.arenas):
        problem = top_problem(heap, arena_)
        if problem is not None:
            # A chunk's last word lies in the header of the next: so the block before top holds the first word of top.
            suspect = heap.block_at(arena_.top)
            value = heap.words.at(arena_.top + heap.words.size) or 0
            yield Damage(
                number, "top", arena_.top, value, suspect, "it lies before" if suspect else "", arena_.top, problem
            )


def _shortened(heap: ProcessHeap, arena: int, chunk: int, before: int, resumed: int) -> Optional[Damage]:
    """An impossible header may be no header at all: if the chunk before has a size that is too small, it ends in its
    own content. So it is when nothing points to the block that would begin here."""
    word = heap.words.size
    header, tail = heap.words.image.read(chunk + word, word), heap.words.image.read(chunk, word)
    own, shortened = heap.block_at(chunk + 2 * word), heap.block_at(before + 2 * word)
    if own is None or shortened is None or alike(header, tail) or (any(header) and _is_text(header)):
        return None
    if heap.referrers(own, 1, start_only=True) or not heap.referrers(shortened, 1, start_only=True):
        return None
    suspect = heap.block_at(before)  # its last word lies in that header
    value = heap.words.at(before + word) or 0
    why = "it lies before (or the block itself was written before its start)" if suspect else ""
    return Damage(arena, "wrong_size", before, value, suspect, why, resumed)


def _suspect(heap: ProcessHeap, fault: str, chunk: int, before: int) -> tuple[Optional[Block], str]:
    """The block before, unless the header's bytes say that it was the chunk's own (by writing before its start)."""
    if fault == "missing":
        return None, ""
    word = heap.words.size
    own = heap.block_at(chunk + 2 * word)
    previous = heap.block_at(before + 2 * word) if before else None
    image = heap.words.image
    tail, header = image.read(chunk, word), image.read(chunk + word, word)
    # What the size field was: the tables know the chunk's true size.
    true = ((own.size + word) if own else 0).to_bytes(word, "little")
    # An overrun comes from below and destroys the lowest byte first; what comes from above leaves it for last.
    if own is not None and fault != "prev_size" and _same_size(header[:2], true[:2]) and header[2:] != true[2:]:
        return own, "written before its start: only the upper bytes of its size field are changed"
    if previous is None:
        return own, "nothing lies before it: written before its start" if own else ""
    if alike(header, tail):
        return previous, "written beyond its end: the bytes go on from it"
    if own is not None and header[:1] == b"\0" and header[1:] == true[1:]:
        return previous, "written beyond its end: one zero byte"
    return previous, "it lies before (or the block itself was written before its start)"


def _same_size(low: bytes, true: bytes) -> bool:
    return (low[0] & ~7, low[1:]) == (true[0] & ~7, true[1:])


def alike(one: bytes, other: bytes) -> bool:
    """Whether both look like parts of the same writing: text, or one byte repeated."""
    if not one or not other or not any(one) or not any(other):
        return False
    if len(set(one + other)) == 1:
        return True
    return all(_is_text(part) for part in (one, other))


def _is_text(data: bytes) -> bool:
    """Text, or the end of one: at least three characters before the first NUL."""
    text = data.split(b"\0")[0]
    return len(text) >= min(3, len(data)) and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in text)


def describe(damage: Damage) -> str:
    """One line: what is wrong with the chunk."""
    value = damage.value
    text = readable(value)
    shown = f"{value:#x}{f' ({text!r})' if text else ''}"
    return {
        "size": f"its size field {shown} is impossible",
        "flags": f"the flags of its size field {shown} do not belong here",
        "prev_size": f"its PREV_INUSE is clear, but its prev_size {shown} is not the size of the chunk before",
        "missing": "its header is not in the dump",
        "wrong_size": f"its size field {shown} leads to no chunk",
        "top": f"the top chunk's size field is {shown}: {damage.about}",
    }[damage.fault]


def readable(value: int) -> str:
    """The bytes of a word as text, where all of them (but trailing NULs) are printable."""
    data = value.to_bytes(8, "little").rstrip(b"\0")
    return data.decode("ascii") if len(data) >= 3 and all(32 <= byte < 127 for byte in data) else ""


def hexdump(heap: ProcessHeap, damage: Damage, size: int = 64) -> list[tuple[int, str, str]]:
    """(address, hex, text) for the bytes around the bad header: one row before it, and ``size`` bytes from it on."""
    start = damage.chunk - _ROW
    data = heap.words.image.read(start, size + _ROW)
    rows = []
    for at in range(0, len(data), _ROW):
        part = data[at : at + _ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append((start + at, part.hex(" "), text))
    return rows
