"""Texts from blocks that there are many of: what differs from block to block says what the program keeps.

One block may hold anything. So several of a size are read. A text that stands at one place in all of them is no key: it
is a magic number, or the name of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from dmods.base.regex import regex
from dmods.errors import FaultError
from dmods.graph.owners.heap_owners import Kind, Owners
from dmods.graph.suspects.subject import counted_kind
from dmods.heap.block import Block
from dmods.heap.content import describe_content
from dmods.heap.heap import ProcessHeap
from dmods.heap.text_bytes import without_addresses
from dmods.heap.texts import counted_text, domain_name, printable

_SAMPLED = 6  # kinds whose blocks are read for a text
_READ = 8  # blocks of a kind that are read
_LEAST_TEXT, _MOST_TEXT = 4, 24
_TEXT = regex(rb"[ -~]{6,}(?=[\0\r\n])")  # the bytes of a number may look like a shorter text
_MOST_LOOKED_INTO = 512  # bytes of a block
_LEAST_CHARACTERS = 3  # different ones: a text of fewer is filling, and the last choice
_MOST_BEFORE = 7  # bytes: a text that begins before them begins in an earlier word
_OF_WORDS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:/. "
_MOST_COUNTED = 64  # bytes
_PLACES, _STEP = 64, 37  # places of large memory that are tried, and how far apart they follow each other
_LARGE = 1 << 10  # bytes: texts at the beginning of a smaller block say enough
_RUN = regex(rb"[A-Za-z0-9/](?:[A-Za-z0-9_.:/@-]| (?! )){7,}")
MAGIC = 4  # characters of a magic number
_DIFFERENT, _NUMBERS, _SAME, _FILLING, _NONE = range(5)  # how good a text is: the best first
_MANY = 10  # blocks of the most numerous kind for one of another: the text of fewer is chance
_NAMED = 2  # kinds that the sentence names


def sample(
    owners: Owners,
    scope: tuple[str, int],
    kinds: Sequence[Kind],
    known: Optional[Mapping[int, list[Block]]] = None,
    named: int = _NAMED,
) -> str:
    """Return texts from blocks that there are many of: " (one holds 'user:1', another 'user:2')"; "" if they hold none.

    Texts that differ from block to block come first, then any other text, then one that is only filling. ``known`` are
    blocks of a kind, by its example. The sentence has ``named`` of the kinds.
    """
    found = dict(known or {})
    said = [(_NONE, "")]
    most = max((kind.count for kind in kinds), default=0)
    many = [kind for kind in kinds if kind.count > 1 and kind.count * _MANY >= most]
    for place, kind in enumerate(many[:_SAMPLED]):
        whose = "one" if place < named else f"one of {counted_kind(kind)}"
        blocks = found.get(kind.example) or blocks_of(owners, scope, kind)
        said.append(_said(owners.heap, blocks, kind.is_type, whose))
        if said[-1][0] == _DIFFERENT:
            break
    best = min(said, key=lambda each: each[0])
    if best[0] < _NONE or not kinds:
        return best[1]
    blocks = found.get(kinds[0].example) or blocks_of(owners, scope, kinds[0])
    return runs_in(owners.heap, [(block.address, block.end) for block in blocks])


def sample_of(heap: ProcessHeap, blocks: Sequence[Block]) -> str:
    """Return texts from blocks of one size, as `sample` does."""
    return _said(heap, blocks, False, "one")[1]


def runs_in(heap: ProcessHeap, parts: Sequence[tuple[int, int]]) -> str:
    """Return texts from places all over large pieces of memory: " ('cust-1311' and 'cust-5422' are inside)", or "".

    A buffer of rows, or a reply, has no structure that is known, and its texts need not end with a 0. One text of so
    many characters may be chance, in compressed data. Two are not.
    """
    found: list[str] = []
    starts = list(places([part for part in parts if part[1] - part[0] >= _LARGE], _PLACES))
    # Most of a mapping may be zeros. So more places are tried, in an order that begins all over it.
    for start in (starts[place * _STEP % len(starts)] for place in range(len(starts))):
        if len(found) == _READ:
            break
        try:
            data = heap.target.read(start, _MOST_LOOKED_INTO)
        except FaultError:
            continue
        text = max(_RUN.findall(without_addresses(heap.target, start, data)), key=len, default=b"")
        line = " ".join(text.decode("ascii").split())
        if _is_text(line):
            found.append(f"{line[:_MOST_TEXT]}{'..' if len(line) > _MOST_TEXT else ''}")
    texts = list(dict.fromkeys(found[len(found) // 2 :]))[:2] if len(found) > 1 else []
    named = " and ".join(f"'{text}'" for text in texts)
    return f" ({named} {'are' if texts[1:] else 'is'} inside)" if texts else ""


def _said(heap: ProcessHeap, blocks: Sequence[Block], is_type: bool, whose: str) -> tuple[int, str]:
    """Return the texts of the blocks in words, and how good they are. Those of a type stand where its first has one."""
    found = [texts_in(heap, block) for block in blocks]
    like = found[:1] if is_type else found
    texts = _differing(found, like)
    if texts:
        # The first block may be one that the program made as it began. Words say more than numbers.
        parts = [text for text in texts if not text.isdigit()], [text for text in texts if text.isdigit()]
        texts = [text for part in parts for text in part[(len(part) - 1) // 2 if part else 0 :]]
        another = f", another '{texts[1]}'" if texts[1:] else ""
        return _NUMBERS if any(map(str.isdigit, texts[:2])) else _DIFFERENT, f" ({whose} holds '{texts[0]}'{another})"
    best = (_NONE, "")
    for offset, text in (each for texts in like for each in texts.items()):
        if not is_type and 2 * sum(offset in each for each in found) < len(found):
            continue  # one of many: chance
        is_magic = not offset and len(text) == MAGIC and len(found) > 1 and all(each.get(0) == text for each in found)
        said = f" (each begins with '{text}')" if is_magic else f" ({whose} holds '{text}')"
        best = min(best, (_SAME if _is_text(text) else _FILLING, said), key=lambda each: each[0])
    return best


def _differing(found: Sequence[dict[int, str]], like: Sequence[dict[int, str]]) -> list[str]:
    """Return different texts from one place of the blocks: that where most differ. [] if none do.

    Only a place where one of the blocks in ``like`` has a text counts: others may be of another type. Where most texts
    are equal they are the names of kinds or states, and no keys.
    """
    best: list[str] = []
    for place in sorted({place for each in like for place in each}):
        texts = [each[place] for each in found if place in each]
        known = [text for text in dict.fromkeys(texts) if _is_text(text)]
        if len(known) > max(1, len(best)) and 2 * len(known) > len(texts):
            best = known
    return best


def _is_text(text: str) -> bool:
    return len(set(text)) >= _LEAST_CHARACTERS


def blocks_of(owners: Owners, scope: tuple[str, int], kind: Kind) -> list[Block]:
    """Return blocks of a kind: the first one in the scope, and others of its size from all over the heap.

    A program begins with its own names and settings. So the blocks at the beginning of the heap say less than most.
    """
    first = owners.heap.block_at(kind.example)
    if first is None:
        return []
    found = owners.engine.spread_in(scope, first.address, first.size, _READ)
    return [block for block in map(owners.heap.block_at, found) if block is not None]


def places(parts: Sequence[tuple[int, int]], count: int) -> Iterator[int]:
    """Yield the addresses of so many places at equal distances in ranges of memory."""
    whole = sum(end - start for start, end in parts)
    for place in range(count):
        left = whole * place // count
        for start, end in parts:
            if left < end - start:
                yield start + left
                break
            left -= end - start


def texts_in(heap: ProcessHeap, block: Block) -> dict[int, str]:
    """Return the texts of a block by their offset, as far as they are shown: at its beginning, and at words in it."""
    content = describe_content(heap, block, most=1)
    found = {string.offset: string.text for string in content.strings}
    if content.text:
        found[0] = content.text
    shown: dict[int, str] = {}
    for place, text in sorted({**texts_inside(heap, block), **found}.items()):
        line = " ".join(text.split())
        cut = printable(line.encode()[:_MOST_TEXT])
        if cut is not None and len(cut) >= _LEAST_TEXT:
            shown[place] = f"{cut}{'..' if len(line) > _MOST_TEXT else ''}"
    return shown


def texts_inside(heap: ProcessHeap, block: Block) -> dict[int, str]:
    """Return texts that begin at a word of the block, by offset: members such as `char key[32]`.

    They end with a 0 or, as in the messages of many protocols, with a line.
    """
    try:
        data = heap.target.read(block.address, min(block.size, _MOST_LOOKED_INTO))
    except FaultError:
        return {}
    data = without_addresses(heap.target, block.address, data)
    found: dict[int, str] = {}
    end = 0
    for start in range(0, len(data), heap.words.size):
        if start < end:
            continue
        name = domain_name(data[start:]) or counted_text(data[start : start + _MOST_COUNTED])
        if name is not None:
            found[start], end = name, start + len(name) + 2  # the first length, and the last
            continue
        text = _TEXT.match(data, start)
        if text is not None:
            first = start - _before(data[max(end, start - _MOST_BEFORE) : start])
            found[first] = data[first : text.end()].decode()
            end = text.end()
    return found


def _before(data: bytes) -> int:
    """Return how many bytes at the end belong to the text behind them: a member may begin within a word."""
    return len(data[len(data.rstrip(_OF_WORDS)) :].lstrip(b" "))
