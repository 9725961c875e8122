"""Read the constant texts that blocks of one kind point to: what the program itself calls them.

A memory context of PostgreSQL, a pool of httpd and a context of Samba point to their names, which are constants of the
program or of a library. A block that belongs to such a structure points to its start. Neither needs symbols.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.regex import regex
from dmods.errors import FaultError
from dmods.heap.block import FREE, Block
from dmods.heap.heap import ProcessHeap
from dmods.heap.texts import string_in
from dmods.process.mappings import is_named_memory, mapping_at

_WORDS = 16  # at the beginning of a block
_OWNERS = 12  # words at its beginning that may lead to the structure that it belongs to
_MOST_READ = 64  # bytes of a text
_MOST = 0.6  # of the blocks that are read: so many have a text in the same place
_NAMED = 2  # texts
_LEAST = 4  # blocks: fewer tell nothing
#: A name has words. A format of printf() and a path of a source file are constants, too, and say less.
_NAME = regex(r"[A-Za-z_][A-Za-z0-9_ :.\-]{3,39}$")
_Place = tuple[int, int]  # the word of the block that leads on, or -1; and the word with the text


def label_of(heap: ProcessHeap, blocks: Sequence[Block]) -> str:
    """Return to which constant texts the blocks point: " (5 of 8 read lead to 'CachedPlan', 3 to 'SPI Plan')", or "".

    The texts stand in one place of most of the blocks, or of the structures that begin where one of their first words
    points. No more than two texts may have most of them: else they are not names of a kind.
    """
    if len(blocks) < _LEAST:
        return ""
    found: dict[_Place, Counter[str]] = defaultdict(Counter)
    for block in blocks:
        for place, text in _texts(heap, block):
            found[place][text] += 1
    best = max(found.values(), key=_two, default=Counter[str]())
    if _two(best) < _MOST * len(blocks):
        return ""
    first, *others = best.most_common(_NAMED)
    more = "".join(f", {count} to '{text}'" for text, count in others)
    return f" ({first[1]} of {len(blocks)} read lead to the text '{first[0]}'{more})"


def _two(texts: Counter[str]) -> int:
    return sum(count for _text, count in texts.most_common(_NAMED))


def _texts(heap: ProcessHeap, block: Block) -> Iterator[tuple[_Place, str]]:
    """Yield the constant texts of a block, and of the structures that its first words lead to, with their places."""
    values = _words(heap, block)
    for place, value in enumerate(values):
        text = _constant(heap, value)
        if text is not None:
            yield (-1, place), text
    for place, value in enumerate(values[:_OWNERS]):
        owner = heap.block_at(value) if value else None
        if owner is None or owner.state == FREE or owner.address != value or owner.address == block.address:
            continue
        for behind, word in enumerate(_words(heap, owner)):
            text = _constant(heap, word)
            if text is not None:
                yield (place, behind), text


def _words(heap: ProcessHeap, block: Block) -> list[int]:
    """Return the first words of a block; [] where the dump lacks them."""
    size = heap.words.size
    try:
        data = heap.target.read(block.address, min(block.size // size, _WORDS) * size)
    except FaultError:
        return []
    return memoryview(data).cast("Q" if size == 8 else "I").tolist()


def _constant(heap: ProcessHeap, address: int) -> Optional[str]:
    """Return the name that a word points to the start of, in memory of a file that nobody writes or runs; or None."""
    mapping = mapping_at(heap.target, address) if address else None
    if mapping is None or mapping.path is None or is_named_memory(mapping.path) or set(mapping.flags) & {"w", "x"}:
        return None
    size = min(mapping.end - address, _MOST_READ)
    try:
        data = heap.target.read(address - 1, size + 1) if address > mapping.start else b""
    except FaultError:
        return None
    text = string_in(data[1:]) if data[:1] == b"\0" and b"\0" in data[1:] else None
    return text if text is not None and _NAME.match(text) else None
