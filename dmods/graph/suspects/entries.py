"""Name the entry of a container that an accumulation hangs on: the key of the one hash in redis that is huge."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.errors import FaultError
from dmods.graph.owners.heap_owners import Kept, Owners
from dmods.graph.suspects.sample_texts import MAGIC, texts_inside
from dmods.heap.block import FREE, Block
from dmods.heap.text_bytes import without_addresses
from dmods.heap.texts import domain_name, string_in

_SIBLINGS = 3  # other entries of the same size: fewer are no container
_CONSIDERED = 64  # blocks beside an entry, those that keep most alive
_MOST_READ = 256  # bytes of a text
_MOST_LOOKED_INTO = 1024  # bytes of an entry
_MOST_SHOWN = 48  # characters
_LEAST_BLOCK = 24  # bytes: the smallest block of glibc's malloc on 64 bits, and no smaller one is smaller elsewhere
_MOST_NODE = 8  # words of a block that is a key and a value, and nothing more
_MOST_HEADER = 4  # words of an object, of which one may point to its own text


@dataclass(frozen=True)
class Entry:
    """A block that is one of many in a container, the text that it leads to or holds, and the bytes it keeps alive.

    ``alone`` says that nothing beside it is like it: it may be the only entry.
    """

    address: int
    text: str
    bytes: int
    alone: bool = False

    @property
    def words(self) -> str:
        """Return the entry in words."""
        return f"{'one block with' if self.alone else 'the entry'} '{self.text}' at {self.address:#x}"


def entry_of(owners: Owners, scope: tuple[str, int], chain: Sequence[Kept]) -> Optional[Entry]:
    """Return the entry that the last block of `chain` hangs on, or None.

    `chain` has the blocks from the outermost in `scope` down to the accumulation point, each kept alive by the one
    before alone. An entry is a block of the chain above the last that has siblings of its size: other blocks that the
    same holder keeps. Entries that follow each other are a list of collisions: the last one counts. The innermost entry
    with a text is returned. A fault of the dump is no text.
    """
    last = len(chain) - 1
    for first, end in reversed(_runs(chain)):
        place = first + _count_alike(owners, chain[first : end + 1]) - 1
        if place == last:
            continue  # the nodes of one list, or the accumulation point
        above = ("below", chain[first - 1].address) if first else scope
        alike = [each for each in owners.largest(above, _CONSIDERED) if each.size == chain[first].size]
        if len(alike) <= _SIBLINGS:
            continue
        others = [each for each in alike if each.address != chain[place].address][:_SIBLINGS]
        text = text_of(owners, chain[place], chain[place + 1], others)
        if text is not None:
            return Entry(chain[place].address, text, chain[place].bytes)
    return _lone_entry(owners, chain)


def _lone_entry(owners: Owners, chain: Sequence[Kept]) -> Optional[Entry]:
    """Return the innermost small block of the chain that leads to a text beside what it keeps, or None."""
    most = _MOST_NODE * owners.heap.words.size
    for place in range(len(chain) - 2, -1, -1):
        kept, below = chain[place], chain[place + 1]
        block = owners.heap.block_at(kept.address)
        if block is None or kept.size > most or kept.size == below.size:
            continue
        texts = [
            text
            for value in _words(owners, block)
            if not below.address <= value < below.address + below.size
            and (text := _text_at(owners, value, kept.size)) is not None
        ]
        if texts:
            return Entry(kept.address, texts[0], kept.bytes, True)
    return None


def _runs(chain: Sequence[Kept]) -> list[tuple[int, int]]:
    """Return the first and last place of each run of blocks of one size."""
    sizes = [kept.size for kept in chain]
    ends = [place for place, size in enumerate(sizes) if sizes[place + 1 : place + 2] != [size]]
    return list(zip([0, *(end + 1 for end in ends)], ends))


def _count_alike(owners: Owners, run: Sequence[Kept]) -> int:
    """Return how many blocks at the beginning of the run are like the first, which counts as well."""
    return next((place for place, kept in enumerate(run) if place and not _is_alike(owners, run[0], kept)), len(run))


def _is_alike(owners: Owners, first: Kept, other: Kept) -> bool:
    """Return whether both blocks have their pointers into the heap in the same words. A word that is 0 may be either.

    The objects that an entry leads to may have its size: with glibc, those of redis have that of its entries.
    """
    blocks = owners.heap.block_at(first.address), owners.heap.block_at(other.address)
    if blocks[0] is None or blocks[1] is None:
        return False
    pairs = zip(_words(owners, blocks[0]), _words(owners, blocks[1]))
    return all(not a or not b or _is_pointer(owners, a) == _is_pointer(owners, b) for a, b in pairs)


def _is_pointer(owners: Owners, value: int) -> bool:
    return owners.heap.block_at(value) is not None


def text_of(owners: Owners, kept: Kept, below: Optional[Kept], others: Sequence[Kept]) -> Optional[str]:
    """Return the first text that a word of the block points to, else a text in the block. `below` is no text.

    What the same word of all `others` points to as well is no key: a magic number, or the name of a kind. Nor is what
    all of them have in the same place.
    """
    block = owners.heap.block_at(kept.address)
    if block is None:
        return None
    for place, value in enumerate(_words(owners, block)):
        if below is not None and below.address <= value < below.address + below.size:
            continue
        text = _text_at(owners, value, block.size)
        if text is not None and (not others or any(_text_at_word(owners, each, place) != text for each in others)):
            return text
    inside = [texts_inside(owners.heap, each) for each in _blocks(owners, others)]
    for offset, text in texts_inside(owners.heap, block).items():
        if not inside or any(each.get(offset) != text for each in inside):
            return _shown(text)
    return None


def _blocks(owners: Owners, some: Sequence[Kept]) -> list[Block]:
    found = (owners.heap.block_at(each.address) for each in some)
    return [block for block in found if block is not None]


def _text_at_word(owners: Owners, kept: Kept, place: int) -> Optional[str]:
    """Return the text that a word of another entry points to."""
    value = owners.heap.words.at(kept.address + place * owners.heap.words.size)
    return _text_at(owners, value, kept.size) if value is not None else None


def _words(owners: Owners, block: Block) -> Iterator[int]:
    """Yield the words at the beginning of the block; none if the dump lacks them."""
    size = owners.heap.words.size
    try:
        data = owners.target.read(block.address, min(block.size, _MOST_LOOKED_INTO))
    except FaultError:
        return
    for (value,) in struct.iter_unpack("<Q" if size == 8 else "<I", data[: len(data) // size * size]):
        yield value


def _text_at(owners: Owners, address: int, size: int) -> Optional[str]:
    """Return the text at an address in a block in use, which may have a header before its text (sds of redis).

    It may be a domain name in wire format, or in an object that points to it: with its short strings, an object of
    redis does so (OBJ_ENCODING_EMBSTR in object.c). An object of ``size`` bytes may be the next entry with its own key.
    """
    held = owners.heap.block_at(address)
    if held is None or held.state == FREE:
        return None
    text = _string_at(owners, held, address)
    if text is None and address == held.address and held.size != size:
        own = (value for value in islice(_words(owners, held), _MOST_HEADER) if held.address < value < held.end)
        text = next((found for found in (_string_at(owners, held, value) for value in own) if found), None)
    return text


def _string_at(owners: Owners, held: Block, address: int) -> Optional[str]:
    """Return the string of C, or the domain name, at an address of a block; or None.

    Four characters at the beginning of a block that was made for more are a magic number: libisc's 'HEAP', backwards.
    """
    try:
        data = owners.target.read(address, min(held.end - address, _MOST_READ))
    except FaultError:
        return None
    if b"\0" not in data and held.end - address <= _MOST_READ:
        return None  # no string of C: other bytes may look like a short text
    text = string_in(without_addresses(owners.target, address, data)) or domain_name(data)
    is_magic = text is not None and len(text) == MAGIC and address == held.address and held.size > _LEAST_BLOCK
    return None if is_magic else _shown(text)


def _shown(text: Optional[str]) -> Optional[str]:
    """Return the text in one line, cut to what a sentence has room for."""
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}.."
