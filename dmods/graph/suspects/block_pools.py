"""Find the places of equal size that a program divides large blocks into: the items in a slab of memcached.

The kinds of words (zero, pointer, small number, text, other) repeat with the stride. How many words are of the kind of
the word one stride before tells it. Pieces of several blocks have to agree, so a stride is no chance. The work is
bounded: eight pieces of at most 32 KB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, gcd
from typing import Optional

from dmods.base.dataclass import dataclass, replace
from dmods.heap.block import Block
from dmods.heap.heap import ProcessHeap
from dmods.process.mappings import mapping_at
from dmods.target import Target

LEAST_BLOCK = 1 << 15  # bytes: a smaller block is no pool
_PIECES, _PIECE = 8, 1 << 15  # how many are read, and bytes of each
_LEAST_WORDS = 4  # of a stride: smaller ones are the pairs of tables
_LEAST_AGREE = 3  # pieces
_AGREE = 0.75  # of the pieces that hold anything
_ALIKE = 0.5  # of what chance leaves: words of one kind, one stride apart
_ALIKE_USED = 0.3  # ... of words that are not zero. The place one stride before may be empty
_NEAR_BEST = 0.6  # of the best step. All such steps are multiples of the stride: which places are empty decides
_ZEROS = 0.97  # of a piece: so empty, it tells nothing
_UNIFORM = 0.9  # chance alone: nothing can be told from words of one kind
_LEAST_PAIRS = 64  # of words that are compared
_LEAST_KINDS, _FULL = 3, 8  # kinds of words, and places for one that has a member of that kind
_PERIODS = 4  # in a piece, at least
_SHOWN = 0.02  # of the places: so many are empty, or used, and it is told
_ZERO, _POINTER, _SMALL, _TEXT, _OTHER = range(5)
_MOST_SMALL = 1 << 16
_PRINTABLE = frozenset([*range(0x20, 0x7F), *b"\t\n\r"])


@dataclass(frozen=True)
class Pool:
    """Places of ``stride`` bytes in blocks. ``each`` is how many fit into a block; ``samples`` are some places.

    ``used`` is the part of the places that are not all zeros, estimated; None where that shows nothing.
    """

    stride: int
    each: int
    used: Optional[float]
    samples: Sequence[Block]


@dataclass(frozen=True)
class _Piece:
    block: Block
    start: int  # its address
    data: bytes


def find_pool(heap: ProcessHeap, blocks: Sequence[Block]) -> Optional[Pool]:
    """Return the pool that blocks of one size are, from these examples; None where they have no common stride."""
    word = heap.words.size
    large = [block for block in blocks if block.size >= LEAST_BLOCK]
    pieces = list(_pieces(heap.target, large))
    classes = [_classes(heap.target, piece.data) for piece in pieces]
    telling = [each for each in classes if each.count(_ZERO) < _ZEROS * len(each)]
    # One block may be any table: all of it has to be a pool.
    least = len(pieces) if len(large) == 1 else max(_LEAST_AGREE, ceil(_AGREE * len(telling)))
    stride = _stride(telling, least) if len(telling) >= max(_LEAST_AGREE, least) else None
    if stride is None:
        return None
    size = stride * word
    samples = [place for piece, each in zip(pieces, classes) if (place := _sample(piece, each, size, word)) is not None]
    return Pool(size, large[0].size // size, _used(pieces, size), samples)


def _pieces(target: Target, blocks: Sequence[Block]) -> Iterator[_Piece]:
    """Yield pieces that lie evenly in the blocks. What the dump lacks is left out."""
    image, word = target.image(), target.arch.word
    for number in range(_PIECES if blocks else 0):
        block = blocks[number * len(blocks) // _PIECES]
        of_block = [other for other in range(_PIECES) if blocks[other * len(blocks) // _PIECES] is block]
        room = max(0, block.size - _PIECE)
        start = room * of_block.index(number) // max(1, len(of_block) - 1) // word * word
        data = image.read(block.address + start, min(_PIECE, block.size - start) // word * word)
        if len(data) >= _PERIODS * _LEAST_WORDS * word:
            yield _Piece(block, block.address + start, data[: len(data) // word * word])


def _classes(target: Target, data: bytes) -> bytes:
    """Return the kind of each word."""
    word = target.arch.word
    known: dict[int, int] = {}
    values = memoryview(data).cast("Q" if word == 8 else "I")
    for value in set(values):
        known[value] = _class(target, value, word)
    return bytes([known[value] for value in values])


def _class(target: Target, value: int, word: int) -> int:
    if not value:
        return _ZERO
    if value < _MOST_SMALL:
        return _SMALL
    if mapping_at(target, value) is not None:
        return _POINTER
    used = value.to_bytes(word, "little").rstrip(b"\0")
    return _TEXT if len(used) > word // 2 and _PRINTABLE.issuperset(used) else _OTHER


def _stride(pieces: Sequence[bytes], least: int) -> Optional[int]:
    """Return after how many words the kinds repeat in all pieces together, and in ``least`` of them alone; or None.

    Where many places are empty, the words that are not zero tell it.
    """
    for with_zeros in (True, False):
        found = _stride_of(pieces, with_zeros)
        if found is None:
            continue
        alone = [_Likeness([piece], with_zeros) for piece in pieces if _is_structure(piece, found)]
        if sum(each.after(found) >= each.least for each in alone) >= least:
            return found
    return None


def _stride_of(pieces: Sequence[bytes], with_zeros: bool) -> Optional[int]:
    likeness = _Likeness(pieces, with_zeros)
    if likeness.chance > _UNIFORM:
        return None
    alike = [1.0] + [likeness.after(step) for step in range(1, min(map(len, pieces)) // _PERIODS)]
    # Neighbours are often of one kind, as in a text. A stride comes where that has ended.
    first = next((step for step in range(1, len(alike)) if alike[step] < likeness.least), len(alike))
    best = max(alike[first:], default=0.0)
    if best < likeness.least:
        return None
    least = max(likeness.least, _NEAR_BEST * best)
    peaks = [step for step in range(first, len(alike)) if alike[step] >= least and _is_peak(alike, step, first)]
    found = gcd(*peaks)
    is_again = len(peaks) > 1 or 2 * found >= len(alike)
    return found if found >= _LEAST_WORDS and is_again else None


def _is_peak(alike: Sequence[float], step: int, around: int) -> bool:
    """Return whether a step is the best of those around it. Its neighbours are nearly as good."""
    first = max(1, step - around)
    return alike[step] > alike[step - 1] and alike[step] == max(alike[first : step + around + 1])


class _Likeness:
    """Counts words that are of the kind of a word before them. ``chance`` is the part that any two give."""

    def __init__(self, pieces: Sequence[bytes], with_zeros: bool) -> None:
        self._pieces, self._with_zeros = pieces, with_zeros
        self.least = _ALIKE if with_zeros else _ALIKE_USED
        kinds = range(_ZERO if with_zeros else _ZERO + 1, _OTHER + 1)
        counts = [sum(piece.count(kind) for piece in pieces) for kind in kinds]
        self.chance = sum((count / max(1, sum(counts))) ** 2 for count in counts)

    def after(self, step: int) -> float:
        """Return how much more often than by chance words are alike after so many words: 1.0 is always."""
        found = [self._counts(piece[:-step], piece[step:]) for piece in self._pieces]
        same, total, words = (sum(column) for column in zip(*found))
        if total < _LEAST_PAIRS or self.chance == 1:
            return 0.0
        return float((same - self.chance * total) / (1 - self.chance) / words)

    def _counts(self, before: bytes, behind: bytes) -> tuple[int, int, int]:
        """Return (pairs of words of one kind, all pairs, words that may have a pair)."""
        count = len(before)
        numbers = int.from_bytes(before, "little"), int.from_bytes(behind, "little")
        same = (numbers[0] ^ numbers[1]).to_bytes(count, "little").count(0)
        if self._with_zeros:
            return same, count, count
        zeros = (numbers[0] | numbers[1]).to_bytes(count, "little").count(0)
        used = count - before.count(_ZERO)
        return same - zeros, used - behind.count(_ZERO) + zeros, used


def _is_structure(classes: bytes, stride: int) -> bool:
    """Return whether the places have members of three kinds, with a pointer or a small number: no rows of a picture."""
    places = len(classes) // stride
    often = [kind for kind in range(_OTHER + 1) if _FULL * classes.count(kind) >= places]
    return len(often) >= _LEAST_KINDS and _FULL * (classes.count(_POINTER) + classes.count(_SMALL)) >= places


def _sample(piece: _Piece, classes: bytes, size: int, word: int) -> Optional[Block]:
    """Return a place near the middle of a piece that is not all zeros. Most structures begin with a pointer."""
    steps = size // word
    behind = -((piece.start - piece.block.address) // word) % steps
    first = classes[behind : behind + steps].find(_POINTER)
    middle = behind + len(classes) // 2 // steps * steps + max(0, first)
    for at in (middle, behind + max(0, first)):
        if at + steps <= len(classes) and classes[at : at + steps].count(_ZERO) < steps:
            return replace(piece.block, address=piece.start + at * word, size=size)
    return None


def _used(pieces: Sequence[_Piece], size: int) -> Optional[float]:
    """Return which part of the places is not all zeros, where that is neither nearly all nor hardly any."""
    used = total = 0
    for piece in pieces:
        first = -(piece.start - piece.block.address) % size
        places = [piece.data[at : at + size] for at in range(first, len(piece.data) - size + 1, size)]
        used += sum(place.count(0) < size for place in places)
        total += len(places)
    part = used / total if total else 1.0
    return part if _SHOWN <= part <= 1 - _SHOWN else None
