"""Say what large anonymous mappings hold, by a sample of their pages.

No symbol names such memory, and no allocator that dmods walks owns it. Its bytes say what it is good for: nothing was
ever written, one byte is repeated, text, pointers, numbers, or data that is compressed or random.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.heap.mapping_kinds import classify_mappings
from dmods.modules.elf import PAGE
from dmods.target import AddressRange, Target

LARGE = 32 << 20  # bytes of a mapping that is looked at
WORTH = 1 << 20  # bytes of one that is looked at where nothing is larger
MOST = 32  # mappings that are looked at, the largest first
_PAGES = 512  # of a mapping
_SCATTER = 0x9E3779B1  # Knuth's multiplicative hash (The Art of Computer Programming, 6.4)
_MOSTLY = 0.6  # of the pages that hold something
_SPARSE = 0.25  # so few pages hold something
_POINTERS = 0.2  # of the words that are not 0
_REPEATED = 0.95  # of the bytes
_TEXT = 0.9
_RANDOM = 200  # different bytes in a page, where no byte is frequent: compressed or random data has nearly all 256

ZERO, ABSENT, BYTE, WORD, TEXT, POINTERS, NUMBERS, RANDOM = (
    "zeros",
    "not in the dump: it was never written, or the dump is cut",
    "one byte, repeated",
    "one word, repeated",
    "text",
    "pointers",
    "numbers",
    "compressed or random data",
)
_PRINTABLE = bytes(byte for byte in range(256) if 32 <= byte < 127 or byte in b"\t\r\n" or byte >= 0xC2)


class Content(NamedTuple):
    """The content of a mapping. ``phrase`` is for people: "text", "sparse: 3 % of its pages hold pointers".

    ``public`` is the same without the bytes themselves. ``used`` is the share of the pages in the dump that hold
    anything but zeros; None where the dump has none of them.
    """

    mapping: AddressRange
    phrase: str
    public: str
    used: Optional[float]


def large_mappings(target: Target, least: int = LARGE) -> list[Content]:
    """Return the large anonymous mappings that belong to no allocator and to no stack, the largest first.

    They have at least so many bytes.
    """
    found = [each for each, kind in classify_mappings(target) if kind == "anon" and each.size >= least]
    found.sort(key=lambda each: (-each.size, each.start))
    mapped = Ranges((each.start, each.end) for each in target.mappings() if each.flags != "---")
    return [content_of(target, each, mapped) for each in found[:MOST]]


def content_of(target: Target, mapping: AddressRange, mapped: Ranges) -> Content:
    """Return what a mapping holds. ``mapped`` is all memory that pointers may lead to."""
    kinds: Counter[str] = Counter()
    details: Counter[str] = Counter()
    for page in _sample(target, mapping):
        kind, detail = _kind(page, target.arch.word, mapped)
        kinds[kind] += 1
        if detail:
            details[detail] += 1
    there = sum(kinds.values()) - kinds[ABSENT]
    if not there:
        return Content(mapping, ABSENT, ABSENT, None)
    used = 1 - kinds[ZERO] / there
    before = "code made at run time: " if "x" in mapping.flags else ""
    after = "; most of it is not in the dump" if kinds[ABSENT] > there else ""
    detail = details.most_common(1)[0][0] if details else ""
    shown, public = (f"{before}{_phrase(kinds, each, used)}{after}" for each in (detail, ""))
    return Content(mapping, shown, public, used)


def _phrase(kinds: Counter[str], detail: str, used: float) -> str:
    """Return the words. ``detail`` is the byte or the word that is repeated, or ""."""
    held = [(kind, count) for kind, count in kinds.most_common() if kind not in (ZERO, ABSENT)]
    if not held:
        return "zeros (never written, or cleared)"
    whole = sum(count for _kind, count in held)
    first, count = held[0]
    what = detail if detail and first in (BYTE, WORD) else first
    if count < _MOSTLY * whole:
        what = " and ".join(kind for kind, _count in held[:2])
    return f"sparse: {max(1, round(100 * used))} % of its pages hold {what}" if used <= _SPARSE else what


def _sample(target: Target, mapping: AddressRange) -> Iterator[bytes]:
    """Yield pages of the mapping; b"" for one that the dump does not have.

    One page of each of equal parts is taken, at a place that the part's number decides: programs use memory in steps of
    powers of two, and a sample in such steps would see only one kind of page.
    """
    image, pages = target.image(), mapping.size // PAGE
    step = max(1, pages // _PAGES)
    for part in range(pages // step):
        within = (part * _SCATTER % (1 << 32)) * step >> 32
        data = image.read(mapping.start + (part * step + within) * PAGE, PAGE)
        yield data if len(data) == PAGE else b""


def _kind(page: bytes, word: int, mapped: Ranges) -> tuple[str, str]:
    """Return what a page holds, and of a repeated byte or word which one it is."""
    if not page:
        return ABSENT, ""
    zeros = page.count(0)
    if zeros == len(page):
        return ZERO, ""
    repeated = _repeated(page, word)
    if repeated[0]:
        return repeated
    return _data(page, zeros, word, mapped), ""


def _repeated(page: bytes, word: int) -> tuple[str, str]:
    """Return BYTE or WORD and which one it is, where nearly all of the page repeats one; else two empty strings."""
    for byte in sorted({page[0], page[PAGE // 2], page[-1]}):
        if byte and page.count(byte) >= _REPEATED * len(page):
            return BYTE, f"the byte {byte:#04x}, repeated"
    middle = page[PAGE // 2 : PAGE // 2 + word]
    if any(middle) and page.count(middle) >= _REPEATED * len(page) / word:
        return WORD, f"the word {int.from_bytes(middle, 'little'):#x}, repeated"
    return "", ""


def _data(page: bytes, zeros: int, word: int, mapped: Ranges) -> str:
    held = len(page) - zeros
    if len(page.translate(None, _PRINTABLE)) - zeros <= (1 - _TEXT) * held and zeros < len(page) // 2:
        return TEXT
    words = [value for value in struct.unpack(f"<{len(page) // word}{'Q' if word == 8 else 'I'}", page) if value]
    if sum(value in mapped for value in words) >= _POINTERS * len(words):
        return POINTERS
    counts = Counter(page)
    if len(counts) >= _RANDOM and counts.most_common(1)[0][1] < len(page) // 32:
        return RANDOM
    return NUMBERS
