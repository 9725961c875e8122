"""Memory that glibc's name service gets from malloc() and writes only in part: old pointers are left in the rest of it.

*Modules.* Since 2.33 each service of /etc/nsswitch.conf has a ``struct nss_module`` (nss/nss_module.h): a state, the
pointers to the module's functions, dlopen()'s handle, the next module, and the name. It comes from malloc(), and the
pointers to functions are only written once the module is loaded (nss_module.c, __nss_module_allocate). Until then some
500 bytes of an older block stand there. Another word of it may stand behind the name. Each process that calls
getpwnam() may have such modules.

*Buffers.* getpwnam() and getgrnam() keep their last answer in a buffer of 1,024 bytes or more (nss/getXXbyYY.c). It has
texts, and pointers to these.

All of their variables are local symbols, and the number of functions differs. So their form decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.base.words import GRANULE, Words
from dmods.errors import FaultError
from dmods.process.addresses import module_at
from dmods.target import Module, Target

_EXPORTED = "__nss_configure_lookup"  # by every glibc, also without .symtab
_LOADED, _STATES = 1, 3  # enum nss_module_state: uninitialized, loaded, failed
_FUNCTIONS = range(40, 97)  # pointers, of which 2.33 to 2.43 have 64
_LEAST, _MOST = 2, 256  # modules of a list
_MOST_DATA = 1 << 20  # bytes of the C library's data
_BUFFER = 1024  # NSS_BUFLEN_PASSWD, NSS_BUFLEN_GROUP: the smallest size of a buffer
_TEXTS = ((0, 1, 3, 4, 5), (0, 1, 4, 5, 6))  # words of a struct passwd: its texts, with words of 8 and of 4 bytes
_ANSWER = 7  # words that are looked at
_MEMBERS = 3  # the word of a struct group that leads to the names of its members
_NAME = regex(rb"[a-z][a-z0-9_+-]{1,62}\0")
_MOST_NAME = 64
_TEXT = regex(rb"[^\x00-\x1f:]*\0")


class _Module(NamedTuple):
    address: int
    state: int
    next: int
    name: int  # its address
    end: int  # of the name


def false_pointers(target: Target) -> Iterator[tuple[int, int]]:
    """Yield what was never written of the modules, and the buffers, whose pointers lead to the buffers themselves."""
    symbol = target.lookup(_EXPORTED)
    module = module_at(target, symbol.address) if symbol is not None else None
    if module is None:
        return
    words, data = Words(target.image(), target.arch.word), list(_data(target, module))
    counts = Counter(value for each in data for value in each)
    led_to = [value for value in counts if value > _MOST_DATA and not module.start <= value < module.end]
    yield from _unloaded(words, led_to)
    yield from _buffers(words, data, {value for value in led_to if counts[value] > 1})


def _data(target: Target, module: Module) -> Iterator[Sequence[int]]:
    """Yield the words of the C library's data, a sequence for each of its mappings."""
    word = target.arch.word
    for piece in module.ranges:
        if "w" in piece.flags:
            try:
                data = target.read(piece.start, min(piece.end - piece.start, _MOST_DATA) // word * word)
            except FaultError:
                continue
            yield memoryview(data).cast("Q" if word == 8 else "I")


# -- modules ----------------------------------------------------------------------------------------------------------


def _unloaded(words: Words, led_to: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the state of each module (an int), the pointers to functions that were never written, and the name."""
    for head in led_to:
        for count in _possible(words, head):
            if found := _chain(words, head, count):
                for each in found:
                    unwritten = 1 if each.state == _LOADED else 1 + count
                    yield each.address, each.address + unwritten * words.size
                    yield each.name, _padded(each, words.size)
                return


def _possible(words: Words, head: int) -> list[int]:
    """Return how many pointers to functions a module at an address may have: where its name would begin with a letter.

    A static program may have a hundred thousand words that lead to something. So each place is read once.
    """
    before, size = 3 * words.size, words.size  # the state, the handle, the next module
    raw = words.image.read(head, before + _FUNCTIONS.stop * size) if head % GRANULE == 0 else b""
    if len(raw) < before or raw[0] >= _STATES or raw[1:4] != bytes(3):
        return []
    names = raw[before::size]
    return [count for count in _FUNCTIONS if names[count : count + 1].islower()]


def _padded(module: _Module, word: int) -> int:
    """Return the end of the module's block: malloc() makes it as long as the next header allows."""
    wanted = module.end - module.address + word
    return module.address + wanted + -wanted % GRANULE - word


def _chain(words: Words, head: int, count: int) -> Sequence[_Module]:
    """Return the modules from `head` on if each has `count` pointers to functions; () if any is no module."""
    found: dict[int, _Module] = {}
    at = head
    while at:
        module = _module(words, at, count)
        if module is None or at in found or len(found) == _MOST:
            return ()
        found[at] = module
        at = module.next
    return list(found.values()) if len(found) >= _LEAST else ()


def _module(words: Words, at: int, count: int) -> Optional[_Module]:
    """Return the module at an address, or None. A module has a name, and a handle only if it is loaded."""
    links = at + (1 + count) * words.size
    named = links + 2 * words.size
    name = _NAME.match(words.image.read(named, _MOST_NAME))
    state, pair = words.int32(at), words.many(links, 2)
    if name is None or state is None or pair is None or not 0 <= state < _STATES:
        return None
    return _Module(at, state, pair[1], named, named + name.end()) if state == _LOADED or not pair[0] else None


# -- buffers ----------------------------------------------------------------------------------------------------------


def _buffers(words: Words, data: Sequence[Sequence[int]], led_to: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the buffers that answers lie in. ``led_to``: where at least two words lead, a variable and the answer."""
    for piece in data:
        for place, buffer in enumerate(piece):
            if buffer in led_to and _is_answer(words, piece[place : place + _ANSWER], buffer):
                yield buffer, buffer + _BUFFER


def _is_answer(words: Words, answer: Sequence[int], buffer: int) -> bool:
    """Return whether a struct passwd or a struct group lies there, all of whose pointers lead into the buffer.

    The buffer begins with the name, and the password follows (nss/nss_files/files-parse.c splits a line there).
    """
    if len(answer) < _ANSWER or not buffer < answer[1] < buffer + _BUFFER:
        return False
    raw = words.image.read(buffer, _BUFFER)
    texts = [answer[place] - buffer for place in _TEXTS[words.size == 4]]
    if not _is_text(raw, 0) or answer[1] - buffer != raw.index(0) + 1:
        return False
    if texts == sorted(set(texts)) and texts[-1] < len(raw):
        return all(_is_text(raw, at) for at in texts[1:])
    members = answer[_MEMBERS]
    if not buffer < members < buffer + len(raw) or members % words.size:
        return False
    names = list(words.many(members, (buffer + len(raw) - members) // words.size) or ())
    return 0 in names and all(_is_text(raw, name - buffer) for name in names[: names.index(0)])


def _is_text(raw: bytes, at: int) -> bool:
    """Return whether a text begins in the buffer: at its beginning, behind another one, or behind a number."""
    return (at == 0 or (0 < at < len(raw) and raw[at - 1] in b"\0:,")) and _TEXT.match(raw, at) is not None
