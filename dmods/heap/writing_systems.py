"""Tell whether characters look like a text of one script: numbers of 16 and 32 bits are characters, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex

_USUAL = " .,;:!?'\"-()/\n\r\t\xa0\xbf\xa1\xab\xbb\u2010\u2011\u2012\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2026"
_LEAST_IDEOGRAPHS = 6  # random words look like ideographs more often than like letters
_LONGEST_WORD = 40
_CONSONANTS = 7  # in a row, at most, in the middle of a Latin word
_WORD = regex(r"U+(?!l)|U?l+|o+")  # see _shape
_VOWELS = frozenset("aeiouyAEIOUY")


class Script(NamedTuple):
    """A script of letters: the ranges of those that texts of today use."""

    name: str
    ranges: Sequence[tuple[int, int]]


# The Unicode Standard, code charts. Latin: Latin-1, Extended-A, the letters of Romanian, and Vietnamese.
_LATIN = Script("Latin", ((0x41, 0x5B), (0x61, 0x7B), (0xC0, 0xD7), (0xD8, 0xF7), (0xF8, 0x180), (0x1A0, 0x1B1),
                          (0x218, 0x21C), (0x1E80, 0x1E86), (0x1EA0, 0x1EFA)))  # fmt: skip
_ALPHABETS = (
    Script("Greek", ((0x386, 0x3D0),)),
    Script("Cyrillic", ((0x401, 0x460), (0x490, 0x492))),
    Script("Armenian", ((0x531, 0x588),)),
    Script("Hebrew", ((0x5D0, 0x5EB), (0x5B0, 0x5C3))),
    Script("Arabic", ((0x60C, 0x60D), (0x61B, 0x656), (0x660, 0x66A), (0x671, 0x6D4), (0x6F0, 0x6FA))),
    Script("Devanagari", ((0x900, 0x970),)),
    Script("Bengali", ((0x980, 0x9FE),)),
    Script("Tamil", ((0xB82, 0xBFB),)),
    Script("Telugu", ((0xC00, 0xC70),)),
    Script("Thai", ((0xE01, 0xE5C),)),
    Script("Georgian", ((0x10A0, 0x10FD),)),
)
_KANA = ((0x3041, 0x3097), (0x30A1, 0x30FD))
_HAN = ((0x4E00, 0x9FA6),)
_HANGUL = ((0xAC00, 0xD7A4),)
_WIDE_PUNCTUATION = ((0x3000, 0x3020), (0xFF01, 0xFF5F))


def looks_written(text: str, ended: bool) -> bool:
    """Return whether the characters look like a text of one script. ``ended``: a NUL comes behind them."""
    if len(set(text)) < 3 or _is_smooth(text):
        return False
    if any(_is_in(each, (*_KANA, *_HAN, *_HANGUL)) for each in text):
        return ended and _ideographic(text)
    letters = [each for each in text if each.isalpha()]
    others = [each for each in text if _script_of(each) not in (None, _LATIN)]
    usual = sum(each.isalnum() or each in _USUAL or _script_of(each) is not None for each in text)
    if 10 * usual < 8 * len(text) or 2 * (len(letters) + text.count(" ")) < len(text):
        return False
    if any(_script_of(each) is None for each in letters) or len({_script_of(each) for each in others}) > 1:
        return False
    if max(map(len, text.split()), default=0) > _LONGEST_WORD and not any(each in _USUAL for each in text):
        return False
    return _has_words(text) and (bool(others) or _latin(letters))


def _latin(letters: Sequence[str]) -> bool:
    """Return whether a third of the letters are those of ASCII, as in every language in Latin letters."""
    return 3 * sum(each.isascii() for each in letters) >= len(letters) > 0


def _has_words(text: str) -> bool:
    """Return whether the letters stand together as in words. Random ones change their case, or stand alone.

    An upper-case letter behind a lower-case one begins a word ("getElementById").
    """
    run = 0
    for each in text:
        run = run + 1 if each.isascii() and each.isalpha() and each not in _VOWELS else 0
        if run > _CONSONANTS:
            return False
    shape = "".join(map(_shape, text))
    return 2 * (len(shape) - shape.count(".")) >= 5 * len(_WORD.findall(shape))


def _shape(character: str) -> str:
    """Return U for an upper-case letter, l for a lower-case one, o for one without case, and a dot for the rest."""
    if character.isupper():
        return "U"
    if character.islower():
        return "l"
    return "o" if character.isalpha() or _script_of(character) is not None else "."


def _ideographic(text: str) -> bool:
    """Return whether it could be Chinese or Japanese, or Korean: not both, and not pairs of ASCII bytes."""
    east = [each for each in text if _is_in(each, (*_KANA, *_HAN, *_HANGUL))]
    rest = [each for each in text if not _is_in(each, (*_KANA, *_HAN, *_HANGUL, *_WIDE_PUNCTUATION))]
    korean = any(_is_in(each, _HANGUL) for each in east)
    if len(east) < _LEAST_IDEOGRAPHS or len(rest) > len(east):
        return False
    if any(not (each.isascii() or each in _USUAL) for each in rest):
        return False
    if korean and any(_is_in(each, (*_KANA, *_HAN)) for each in east):
        return False
    if len(set(east)) < max(4, len(east) // 4):
        return False
    # (Kana are U+30xx: their upper byte is always that of "0".)
    spelled = sum(0x20 < ord(each) & 0xFF < 0x7F and 0x31 < ord(each) >> 8 < 0x7F for each in east)
    if 2 * spelled > len(east):
        return False
    # Neighbours in a text come from all over the script. Neighbours among samples are alike.
    apart = sorted(abs(ord(a) - ord(b)) for a, b in zip(east, east[1:]))
    kana = sum(_is_in(each, _KANA) for each in east)
    return 2 * kana >= len(east) or apart[len(apart) // 2] > 300


def _is_smooth(text: str) -> bool:
    """Return whether each character is near the one before: numbers that count, or samples of a slow signal."""
    steps = [ord(b) - ord(a) for a, b in zip(text, text[1:])]
    if not steps:
        return True
    one_way = all(step >= 0 for step in steps) or all(step <= 0 for step in steps)
    near = sum(abs(step) <= 2 for step in steps)
    return (one_way and len(steps) > 4) or 4 * near >= 3 * len(steps)


def _script_of(character: str) -> Optional[Script]:
    if _is_in(character, _LATIN.ranges):
        return _LATIN
    return next((each for each in _ALPHABETS if _is_in(character, each.ranges)), None)


def _is_in(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= ord(character) < end for start, end in ranges)


def runs_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield each character and how often it stands there in a row."""
    last, count = "", 0
    for each in text:
        if each != last and count:
            yield last, count
            count = 0
        last, count = each, count + 1
    if count:
        yield last, count
