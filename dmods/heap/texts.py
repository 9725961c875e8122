"""Text at the beginning of a block: UTF-8, UTF-16 or Latin-1."""

from __future__ import annotations

from typing import NamedTuple, Optional

MOST_SHOWN = 256  # characters of a string
_LEAST = 4  # characters of UTF-8 or UTF-16
_LEAST_LATIN1 = 5
_USUAL = " .,;:!?'\"-()/\n\xbf\xa1\xab\xbb"  # what stands between words
_LEAST_IDEOGRAPHS = 6  # random words look like ideographs more often than like letters
_ALPHABETS_END = 0x2000  # alphabets lie below; above are symbols, then ideographs
# General punctuation and currency: U+2010..U+205E, U+20A0..U+20BF.
_PUNCTUATION = ((0x2010, 0x205F), (0x20A0, 0x20C0))
_IDEOGRAPHS = ((0x3000, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xFF00, 0xFFF0))


class Text(NamedTuple):
    """A text and its encoding: "UTF-8", "UTF-16" or "Latin-1"."""

    text: str
    encoding: str


def text_in(data: bytes) -> Optional[Text]:
    """Return the text that the bytes begin with, up to its NUL or the end. None if they do not look like text."""
    plain = string_in(data)
    if plain is not None:
        return Text(plain, "UTF-8")
    wide = _utf16_in(data)
    if wide is not None:
        return Text(wide, "UTF-16")
    latin = _latin1_in(data)
    return Text(latin, "Latin-1") if latin is not None else None


def string_in(data: bytes) -> Optional[str]:
    """Return the UTF-8 text that the bytes begin with: at least four printable characters. None if there is none."""
    raw = _up_to_nul(data)
    text = printable(raw[:MOST_SHOWN])
    if text is None or len(text) < _LEAST:
        return None
    return text if len(raw) <= MOST_SHOWN else text + "..."


def printable(raw: bytes) -> Optional[str]:
    """Return the bytes as UTF-8, whose last character may be cut. None if they are not text."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = raw[: error.start].decode("utf-8")
    return text if all(map(_is_printable, text)) else None


def _up_to_nul(data: bytes) -> bytes:
    end = data.find(0)
    return data[: end if end >= 0 else len(data)]


def _is_printable(character: str) -> bool:
    return character.isprintable() or character in "\t\n\r"


def _utf16_in(data: bytes) -> Optional[str]:
    """Return UTF-16 text, of the machine's byte order or with a byte order mark.

    A pointer never passes for text: its upper 16 bits are 0, and that ends the text after three characters.
    """
    big = data[:2] == b"\xfe\xff"
    if data[:2] in (b"\xfe\xff", b"\xff\xfe"):
        data = data[2:]
    raw = data[: 2 * MOST_SHOWN]
    raw = raw[: len(raw) // 2 * 2]
    end = next((at for at in range(0, len(raw), 2) if raw[at : at + 2] == b"\0\0"), None)
    try:
        text = raw[:end].decode("utf-16-be" if big else "utf-16-le")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = raw[: error.start].decode("utf-16-be" if big else "utf-16-le")
    if not all(map(_is_printable, text)):
        return None
    letters = sum(ord(character) < _ALPHABETS_END for character in text)
    symbols = sum(_is_in(character, _PUNCTUATION) or ord(character) >= 0x10000 for character in text)
    if letters + symbols == len(text):
        likely = letters >= _LEAST and _one_script(text)
    else:
        ideographs = sum(_is_in(character, _IDEOGRAPHS) for character in text)
        likely = letters + symbols + ideographs == len(text) and ideographs >= _LEAST_IDEOGRAPHS and end is not None
    if not likely:
        return None
    return text if end is not None or len(data) <= 2 * MOST_SHOWN else text + "..."


def _one_script(text: str) -> bool:
    """Return whether the letters could be of one text: random 16-bit numbers come from many blocks of Unicode.

    A block is 256 characters here. ASCII goes with every alphabet.
    """
    blocks = {ord(character) >> 8 for character in text if 0xFF < ord(character) < _ALPHABETS_END}
    return len(blocks) <= 2


def _is_in(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(start <= ord(character) < end for start, end in ranges)


def _latin1_in(data: bytes) -> Optional[str]:
    """Return Latin-1 text: mostly ASCII, with letters above 0x7f that stand beside other letters.

    Bytes of any kind are Latin-1, so much is asked of them.
    """
    raw = _up_to_nul(data)
    text = raw[:MOST_SHOWN].decode("latin-1")
    if len(text) < _LEAST_LATIN1 or not all(map(_is_printable, text)):
        return None
    ascii_letters = sum(character.isascii() and character.isalpha() for character in text)
    usual = sum(character.isalnum() or character in _USUAL for character in text)
    if 2 * ascii_letters < len(text) or 10 * usual < 9 * len(text) or "\xff" in text:
        return None
    if not any("a" <= character <= "z" for character in text):
        return None
    for index, character in enumerate(text):
        beside = text[max(0, index - 1) : index] + text[index + 1 : index + 2]
        if character >= "\xc0" and not any(each.isalpha() for each in beside):
            return None
        if index and character.isupper() and text[index - 1].islower():
            return None  # random letters change their case within a word
    return text if len(raw) <= MOST_SHOWN else text + "..."
