"""Text at the beginning of a block: UTF-8, UTF-16, UTF-32 or Latin-1."""

from __future__ import annotations

from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.heap.writing_systems import looks_written, runs_of

MOST_SHOWN = 256  # characters of a string
MOST_READ = 4 * MOST_SHOWN + 8  # bytes that say what text_in() returns
_LEAST = 4  # characters of UTF-8 or UTF-16
_LEAST_LATIN1 = 5
_USUAL = " .,;:!?'\"-()/\n\xbf\xa1\xab\xbb"  # what stands between words
_LEAST_LABELS, _LEAST_NAME, _MOST_LABEL = 2, 6, 63  # of a domain name: RFC 1035, 2.3.4 has the last
_OF_LABELS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_MOST_IN_A_ROW = 2  # of one character above 0x7f


class Text(NamedTuple):
    """A text and its encoding: "UTF-8", "UTF-16", "UTF-32" or "Latin-1"."""

    text: str
    encoding: str


def text_in(data: bytes) -> Optional[Text]:
    """Return the text that the bytes begin with, up to its NUL or the end. None if they do not look like text."""
    plain = string_in(data)
    # Every other byte of Devanagari in UTF-16 is a tab.
    if plain is not None and 3 * sum(each in "\t\n\r" for each in plain) <= len(plain):
        return Text(plain, "UTF-8")
    wide = _utf16_in(data)
    if wide is not None:
        return Text(wide, "UTF-16")
    wide = _utf32_in(data)
    if wide is not None:
        return Text(wide, "UTF-32")
    latin = _latin1_in(data)
    return Text(latin, "Latin-1") if latin is not None else None


def string_in(data: bytes) -> Optional[str]:
    """Return the UTF-8 text that the bytes begin with: at least four printable characters. None for other bytes."""
    raw = _up_to_nul(data)
    text = printable(raw[:MOST_SHOWN])
    if text is None or len(text) < _LEAST:
        return None
    return text if len(raw) <= MOST_SHOWN else text + "..."


def counted_text(data: bytes) -> Optional[str]:
    """Return the text that the bytes begin with, if its length stands before it in one byte; None for other bytes.

    A label of a domain name is kept so (RFC 1035, 3.1), and the keys of many formats.
    """
    count = data[0] if data else 0
    text, behind = data[1 : 1 + count], data[1 + count : 2 + count]
    is_text = _LEAST_NAME <= count == len(text) and _OF_LABELS.issuperset(text)
    return text.decode("ascii") if is_text and not _OF_LABELS.issuperset(behind or b"a") else None


def domain_name(data: bytes) -> Optional[str]:
    """Return the domain name in wire format that the bytes begin with, "www.example.com". None for other bytes.

    Each label has its length before it, and one of length 0 ends the name (RFC 1035, 3.1).
    """
    labels: list[str] = []
    at = 0
    while at < len(data) and 0 < data[at] <= _MOST_LABEL:
        label = data[at + 1 : at + 1 + data[at]]
        if len(label) < data[at] or not _OF_LABELS.issuperset(label):
            return None
        labels.append(label.decode("ascii"))
        at += 1 + data[at]
    name = ".".join(labels)
    is_name = data[at : at + 1] == b"\0" and len(labels) >= _LEAST_LABELS and len(name) >= _LEAST_NAME
    return name if is_name else None


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
    return _wide_in(data, 2, "utf-16-be" if big else "utf-16-le")


def _utf32_in(data: bytes) -> Optional[str]:
    """Return UTF-32 text, as wchar_t of Linux holds it. It must end with a NUL: small numbers are characters, too."""
    text = _wide_in(data, 4, "utf-32-le")
    ended = any(data[at : at + 4] == bytes(4) for at in range(0, min(len(data) - 3, 4 * MOST_SHOWN + 4), 4))
    return text if ended or len(data) > 4 * MOST_SHOWN else None


def _wide_in(data: bytes, width: int, codec: str) -> Optional[str]:
    raw = data[: width * MOST_SHOWN]
    raw = raw[: len(raw) // width * width]
    end = next((at for at in range(0, len(raw), width) if not any(raw[at : at + width])), None)
    try:
        text = raw[:end].decode(codec)
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = raw[: error.start].decode(codec)
    if len(text) < _LEAST or not all(map(_is_printable, text)) or not looks_written(text, end is not None):
        return None
    return text if end is not None or len(data) <= width * MOST_SHOWN else text + "..."


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
    filled = any(character >= "\x80" and count > _MOST_IN_A_ROW for character, count in runs_of(text))
    if filled or not any("a" <= character <= "z" for character in text):
        return None  # a fill pattern, such as a guard behind ASCII; or no word
    for index, character in enumerate(text):
        beside = text[max(0, index - 1) : index] + text[index + 1 : index + 2]
        if character >= "\xc0" and not any(each.isalpha() for each in beside):
            return None
        if index and character.isupper() and text[index - 1].islower():
            return None  # random letters change their case within a word
    return text if len(raw) <= MOST_SHOWN else text + "..."
