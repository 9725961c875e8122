"""Find what glibc printed before it called abort(): a failed assertion, a complaint of malloc, a smashed stack.

``__abort_msg`` points to ``struct abort_msg_s`` (include/stdlib.h): an int, the size of its mapping, then the text. The
mapping is anonymous, of whole pages (assert/assert.c, sysdeps/posix/libc_fatal.c).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods import _engine
from dmods.base.ranges import Ranges
from dmods.errors import FaultError
from dmods.modules.elf import PAGE
from dmods.modules.find import writable_segments
from dmods.target import Target

_MESSAGE_MAX = 1024
_MOST_PAGES = 16  # of the mapping
_MOST_SEARCHED = 64 << 20  # bytes of modules' data
_MOST_POINTERS = 4096
_LEAST_TEXT = 8


def abort_message(target: Target, searched: bool) -> Optional[str]:
    """Return the text, or None. ``searched``: without the symbol, modules' data is searched for the pointer.

    The symbol is exported for debuggers (GLIBC_PRIVATE). Stripped static programs and dumps without their libc lack it.
    """
    symbol = target.lookup("__abort_msg")
    if symbol is not None:
        try:
            pointer = int.from_bytes(target.read(symbol.address, target.arch.word), "little")
        except FaultError:
            return None
        data = target.image().read(pointer + 4, _MESSAGE_MAX) if pointer else b""
        return data.partition(b"\0")[0].decode(errors="replace").strip() or None
    if not searched:
        return None
    found = set(_candidates(target))
    return found.pop() if len(found) == 1 else None


def _candidates(target: Target) -> Iterator[str]:
    """Yield the texts to which a pointer in modules' data leads as ``__abort_msg`` does."""
    anonymous = [(m.start, m.end) for m in target.mappings() if "w" in m.flags and m.path is None]
    wanted = list(Ranges(anonymous))
    left, data = _MOST_SEARCHED, []
    for start, end in Ranges(writable_segments(target)):
        data.append((start, min(end, start + left)))
        left -= min(left, end - start)
    word = target.arch.word
    image = target.image()
    for places in _engine.find_pointers(image, data, word, wanted, _MOST_POINTERS):
        for place in places:
            pointer = int.from_bytes(image.read(place, word), "little")
            text = _message_at(target, pointer) if pointer % PAGE == 0 else None
            if text is not None:
                yield text


def _message_at(target: Target, address: int) -> Optional[str]:
    """Return the text of the ``struct abort_msg_s`` at an address, or None: whole pages, a line, then zeros."""
    head = target.image().read(address, PAGE)
    size = int.from_bytes(head[:4], "little")
    if len(head) < PAGE or size % PAGE or not 0 < size <= _MOST_PAGES * PAGE:
        return None
    raw, _nul, rest = head[4:].partition(b"\0")
    text = raw.decode("utf-8", "replace")
    shown = all(character.isprintable() or character in "\n\t" for character in text)
    if len(text) < _LEAST_TEXT or not text.endswith("\n") or not shown or any(rest):
        return None
    return text[:_MESSAGE_MAX].strip()
