"""Tell the bytes of addresses from those of texts."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.process.mappings import mapping_at
from dmods.target import Target

_ADDRESS = 6  # bytes of a user's address of 64 bits
_NO_TEXT = b"\xff"  # in no encoding that texts.py knows a text has words of it
_MOST_LOW = 3  # words: a longer text has a word that is no address, and few addresses look like text


def without_addresses(target: Target, address: int, data: bytes) -> bytes:
    """Return the bytes that are in memory at the address, without those of addresses: there is 0xff, which is no text.

    The six bytes of an address, 0x556485db2060 for example, may be UTF-8. Two zeros follow, which would end a text.
    ``data`` may begin and end within a word.
    """
    word, image = target.arch.word, target.image()
    before, behind = address % word, -(address + len(data)) % word
    whole = image.read(address - before, before).rjust(before, b"\0") + data
    whole += image.read(address + len(data), behind)
    out = bytearray(whole)
    for at in _addresses(target, whole, word):
        out[at : at + word] = _NO_TEXT * word
    return bytes(out[before : before + len(data)])


def _addresses(target: Target, whole: bytes, word: int) -> Iterator[int]:
    """Yield the places of the words that are addresses in a mapping.

    A text may end in what is left of an address: with "7" and its 0, 0x55aa9387f738 is 0x55aa93870037. A word below
    2^32 may be the end of a text, too, or in a 32-bit process any four letters. It is an address where a text would
    begin, and have nothing but such words.
    """
    low: list[int] = []
    alone = True  # since a text began, all words were addresses
    for at in range(0, len(whole) - word + 1, word):
        part = whole[at : at + word]
        value = int.from_bytes(part, "little")
        mapped = mapping_at(target, value) is not None
        if mapped and value >> 32:
            if 0 not in part[:_ADDRESS] or not at or not whole[at - 1]:
                yield at
        elif mapped:
            low.append(at)
        elif 0 not in part:
            alone = False
        if 0 in part or at + 2 * word > len(whole):
            yield from low if alone and len(low) <= _MOST_LOW else ()
            low, alone = [], not part[-1]
