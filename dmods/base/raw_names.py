"""Names whose bytes are not UTF-8: of files, of threads, in a process's memory.

Python keeps such a byte as a lone surrogate (PEP 383). A name goes to the system as it is. On a screen and in JSON,
U+FFFD stands in the byte's place.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmods.base.regex import regex

_LONE = regex("[\ud800-\udfff]")
# What json.dumps() writes: a backslash, a pair of surrogates (one character), a lone one.
_IN_JSON = regex(r"\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(\\ud[89a-f][0-9a-f]{2})")


def shown(name: str) -> str:
    """Return the name with U+FFFD for each byte that is not UTF-8."""
    return _LONE.sub("\ufffd", name)


def printable(text: str) -> str:
    """Return the text as `shown`, with escapes for control characters: a name must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown(text))


def in_json(text: str) -> str:
    """Return what json.dumps() wrote without lone surrogates, which other readers refuse (RFC 8259, section 8.2)."""
    if "\\ud" not in text:
        return text
    return _IN_JSON.sub(lambda found: r"\ufffd" if found[1] else found[0], text)


def key(text: str) -> bytes:
    """Return bytes that stand for the text, to be hashed."""
    return text.encode("utf-8", "surrogatepass")


def shell_line(words: Iterable[str]) -> str:
    """Return the words as one command line, with an escape of bash, zsh and ksh for each byte that is not UTF-8."""
    import shlex  # few answers name a command

    return " ".join(_escaped(word) if _LONE.search(word) else shlex.quote(word) for word in words)


def _escaped(word: str) -> str:
    plain = word.replace("\\", r"\\").replace("'", r"\'")
    return "$'" + _LONE.sub(lambda found: f"\\{ord(found[0]) & 0xFF:03o}", plain) + "'"
