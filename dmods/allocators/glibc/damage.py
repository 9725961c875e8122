"""Describe damaged chunks: what is wrong, which block was probably written beyond its bounds, and the bytes there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.block import OWN, Block
from dmods.allocators.glibc.integrity import top_problem
from dmods.allocators.glibc.state import State
from dmods.allocators.glibc.unseen import seen_anomalies
from dmods.allocators.protocol import Process
from dmods.allocators.vocabulary import OVERWRITTEN, Damage
from dmods.finding import CERTAIN, SERIOUS, Evidence

NOTHING_BEFORE = "nothing lies before it: written before its start"
BEFORE_FIRST = "written before its start: the block before it is malloc's own, and no program writes there"
_SEARCHED = 5  # chunks in each run for which all memory is searched for pointers


def damages(heap: State) -> Iterator[Damage]:
    """Yield the damaged chunks that the walk described, by address, then damaged top chunks."""
    process = heap.process
    tops = {arena.top for arena in heap.all if top_problem(heap, arena) is not None}
    for (_, _, _, arena, _), report in zip(process.engine.runs(), process.reports):
        for number, (fault, chunk, value, before, resumed) in enumerate(
            seen_anomalies(report, process.words.size, heap.begun)
        ):
            if chunk in tops:
                continue  # the loop over the tops, below, reports it
            if (
                fault == "size"
                and before
                and number < _SEARCHED
                and (found := _shortened(process, arena, chunk, before, resumed))
            ):
                yield found
                continue
            suspect, why = _suspect(process, fault, chunk, before)
            yield _damage(arena, fault, chunk, value, suspect=suspect, why=why, resumed=max(resumed, chunk))
    for number, arena_ in enumerate(heap.all):
        problem = top_problem(heap, arena_)
        if problem is not None:
            # The last word of a block lies in the header of the next chunk. So the block before top holds the first
            # word of top.
            suspect = process.block_at(arena_.top)
            suspect = suspect if suspect is not None and suspect.state != OWN else None
            value = process.words.at(arena_.top + process.words.size) or 0
            why = "it lies before" if suspect else ""
            yield _damage(number, "top", arena_.top, value, suspect=suspect, why=why, resumed=arena_.top, about=problem)


def _damage(
    arena: int,
    fault: str,
    chunk: int,
    value: int,
    *,
    suspect: Optional[Block],
    why: str,
    resumed: int,
    about: str = "",
) -> Damage:
    """Return the damage, in words, too. ``about`` is more of what is wrong with a top chunk."""
    text, private = _described(fault, value, about)
    return Damage(
        fault,
        SERIOUS,
        CERTAIN,
        text,
        OVERWRITTEN,
        (Evidence(chunk, text),),
        ("heapcheck",),
        arena=arena,
        value=value,
        suspect=suspect,
        why=why,
        resumed=resumed,
        private=private,
    )


def _shortened(heap: Process, arena: int, chunk: int, before: int, resumed: int) -> Optional[Damage]:
    """Return the damage of the chunk before, if its size field is too small. None if that is not so.

    Then the impossible header is content of that chunk. The evidence: nothing points to the block that would begin
    here.
    """
    word = heap.words.size
    header, tail = heap.words.image.read(chunk + word, word), heap.words.image.read(chunk, word)
    own, shortened = heap.block_at(chunk + 2 * word), heap.block_at(before + 2 * word)
    if own is None or shortened is None or alike(header, tail) or (any(header) and _is_text(header)):
        return None
    if heap.referrers(own, 1, start_only=True) or not heap.referrers(shortened, 1, start_only=True):
        return None
    suspect = heap.block_at(before)  # its last word lies in that header
    value = heap.words.at(before + word) or 0
    why = "it lies before (or the block itself was written before its start)"
    if suspect is None or suspect.state == OWN:
        suspect, why = shortened, BEFORE_FIRST if suspect is not None else NOTHING_BEFORE
    return _damage(arena, "wrong_size", before, value, suspect=suspect, why=why, resumed=resumed)


def _suspect(heap: Process, fault: str, chunk: int, before: int) -> tuple[Optional[Block], str]:
    """Return the block that probably overwrote the header, and the evidence.

    It is the block before, unless the bytes of the header say that the chunk's own block was written before its start.
    """
    word = heap.words.size
    own = heap.block_at(chunk + 2 * word)
    previous = heap.block_at(before + 2 * word) if before else None
    own = own if own is not None and own.address == chunk + 2 * word else None
    header, true = heap.words.image.read(chunk + word, word), _size_field(own, word)
    # An overrun comes from below and destroys the lowest byte first. A write from above destroys it last.
    if own is not None and fault != "prev_size" and _same_size(header[:2], true[:2]) and header[2:] != true[2:]:
        return own, "written before its start: only the upper bytes of its size field are changed"
    if previous is not None and previous.state == OWN:
        return own, BEFORE_FIRST if own else ""
    if previous is None:
        return own, NOTHING_BEFORE if own else ""
    return _of_neighbours(heap, fault, chunk, own, previous)


def _of_neighbours(heap: Process, fault: str, chunk: int, own: Optional[Block], previous: Block) -> tuple[Block, str]:
    """Return which of the blocks before and behind a header overwrote it, by the bytes there."""
    word = heap.words.size
    tail, header = heap.words.image.read(chunk, word), heap.words.image.read(chunk + word, word)
    true = _size_field(own, word)
    if own is not None and (why := _from_above(heap, fault, own, previous, true)):
        return own, f"written before its start: {why}"
    if alike(header, tail):
        return previous, "written beyond its end: the bytes go on from it"
    if own is not None and header[:1] == b"\0" and header[1:] == true[1:]:
        return previous, "written beyond its end: one zero byte"
    return previous, "it lies before (or the block itself was written before its start)"


def _from_above(heap: Process, fault: str, own: Block, previous: Block, true: bytes) -> str:
    """Return what proves that the header was written from above, by its own block, and not by the block before; or "".

    The last word of the block before lies in the header: [prev_size or tail][size].
    """
    word = heap.words.size
    chunk = own.address - 2 * word
    guard = heap.guard_intact(previous)
    if guard is not None:
        return f"the guard behind the block before, {previous.address:#x}, is intact" if guard else ""
    if fault == "prev_size":
        free = _is_in_a_bin(heap, previous.address - 2 * word)
        return (
            f"the block before, {previous.address:#x}, is free, and only the size behind it is changed" if free else ""
        )
    if previous.end != chunk + word or previous.size < 2 * word:
        return ""
    return _by_content(heap, own, previous, true)


def _by_content(heap: Process, own: Block, previous: Block, true: bytes) -> str:
    """Return what the bytes around a header show about where the write began; "" where they do not.

    Numbers that were copied beyond an end look like any others. Text and zeros show where a write began.
    """
    read, word = heap.words.image.read, heap.words.size
    at = own.address - word
    earlier, tail, header, data = (read(at + n * word, word) for n in (-2, -1, 0, 1))
    whole = not _same_size(header[:2], true[:2]) and header[2:] != true[2:]
    before = f"the block before, {previous.address:#x}"
    if alike(header, tail):
        return "" if alike(earlier, tail) else f"what was written begins at its header: the end of {before}, is intact"
    if not whole:
        return ""
    if any(tail) and not any(earlier):
        return f"what was written begins at its header: the end of {before}, is intact"
    if (alike(header, header) or not any(tail)) and not alike(header, data):
        return f"its size field alone is changed (or {before}, was written one word beyond its end)"
    return ""


def _is_in_a_bin(heap: Process, chunk: int) -> bool:
    """Return whether the links of a chunk lead to neighbours in a list that lead back: the chunk is free."""
    word = heap.words.size
    links = heap.words.many(chunk + 2 * word, 2)
    if links is None:
        return False
    return heap.words.at(links[0] + 3 * word) == chunk and heap.words.at(links[1] + 2 * word) == chunk


def _size_field(own: Optional[Block], word: int) -> bytes:
    """Return what the size field of a block was. The tables know the true size of the chunk."""
    return ((own.size + word) if own else 0).to_bytes(word, "little")


def _same_size(low: bytes, true: bytes) -> bool:
    return (low[0] & ~7, low[1:]) == (true[0] & ~7, true[1:])


def alike(one: bytes, other: bytes) -> bool:
    """Return whether both look like parts of one write: text, or one byte repeated."""
    if not one or not other or not any(one) or not any(other):
        return False
    if len(set(one + other)) == 1:
        return True
    return all(_is_text(part) for part in (one, other))


def _is_text(data: bytes) -> bool:
    """Return whether the bytes are text, or the end of a text: at least three characters before the first NUL."""
    text = data.split(b"\0")[0]
    return len(text) >= min(3, len(data)) and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in text)


def _described(fault: str, value: int, about: str) -> tuple[str, str]:
    """Return what is wrong with the chunk, with the value and without it: that is what the program wrote there."""
    text = readable(value)
    shown = f"{value:#x}{f' ({text!r})' if text else ''}"
    return {
        "size": (f"its size field {shown} is impossible", "its size field is impossible"),
        "flags": (
            f"the flags of its size field {shown} are wrong for this arena",
            "the flags of its size field are wrong for this arena",
        ),
        "prev_size": (
            f"its PREV_INUSE is clear, but its prev_size {shown} is not the size of the chunk before",
            "its PREV_INUSE is clear, but its prev_size is not the size of the chunk before",
        ),
        "wrong_size": (f"its size field {shown} leads to no chunk", "its size field leads to no chunk"),
        "top": (f"the top chunk's size field is {shown}: {about}", f"the top chunk's size field is wrong: {about}"),
    }[fault]


def readable(value: int) -> str:
    """Return the bytes of a word as text; "" unless at least three come before the NULs and all are printable."""
    data = value.to_bytes(8, "little").rstrip(b"\0")
    return data.decode("ascii") if len(data) >= 3 and all(32 <= byte < 127 for byte in data) else ""
