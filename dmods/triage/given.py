"""Find the pointer that the program gave to free(), realloc() or operator delete, in a process that died in there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.heap.block import OWN
from dmods.process.addresses import module_at
from dmods.process.mappings import mapping_at
from dmods.process.released import released
from dmods.triage.facts import ProcessFacts
from dmods.triage.held_blocks import in_allocator
from dmods.triage.names import first_own, is_runtime_library

_NAMES = {"free": "free()", "realloc": "realloc()", "delete": "operator delete"}
_VERBS = {"free": "freed", "realloc": "resized", "delete": "deleted"}
_OF_RUNTIME = {"thread-local", "pthread", "dead stack", "arena"}  # kinds of memory that malloc's frames point to anyway
_FLAGS = 7  # of a chunk's size field
_MMAPPED = 2


class Given(NamedTuple):
    """A pointer that was given back. ``proven``: the code before the call says that this value was passed.

    ``function`` is the function as the program calls it, ``verb`` says what it does.
    """

    value: int
    proven: bool
    function: str = "free()"
    verb: str = "freed"


def given_pointer(facts: ProcessFacts, message: str = "") -> Optional[Given]:
    """Return the pointer. Where the code does not say it: the value in malloc's frames that fails the message's check.

    None: the thread is not in such a function, or no value is known.
    """
    own = first_own(facts.names)
    last = own if own is not None else len(facts.frames) - 1
    kind, value = released(facts.target, facts.frames, last)
    if value is not None:
        return Given(value, True, _NAMES[kind], _VERBS[kind])
    failing = list(_failing(facts, message, last)) if message else []
    if len(failing) != 1:
        return None
    kind = kind or ("realloc" if "realloc" in message else "free")
    return Given(failing[0], False, _NAMES[kind], _VERBS[kind])


def _failing(facts: ProcessFacts, message: str, own: int) -> Iterator[int]:
    """Yield the pointers that only the frames of malloc hold, and for which the check fails that the message tells of.

    malloc keeps the chunk, which begins two words before the pointer, and one of its neighbours at that distance.
    """
    header = 2 * facts.target.arch.word
    registers = set(facts.frames[own].registers.values())
    known = {each.value for each in in_allocator(facts) if each.frame < own and each.value not in registers}
    for chunk in sorted(known):
        pointer = chunk + header
        if not known & {pointer, chunk - header} or facts.frames[0].sp <= chunk < facts.frames[own].sp:
            continue
        mapping, module = mapping_at(facts.target, pointer), module_at(facts.target, pointer)
        block = facts.heap.index.block_at(pointer)
        if mapping is None or (module is not None and is_runtime_library(module.name)):
            continue
        if (block is not None and block.state == OWN) or _OF_RUNTIME & {each.kind for each in facts.finder.at(pointer)}:
            continue
        if _fails(facts, message, chunk):
            yield pointer


def _fails(facts: ProcessFacts, message: str, chunk: int) -> bool:
    """Return whether malloc's check of a chunk fails with this message (malloc.c, 2.26 to 2.44)."""
    word, words = facts.target.arch.word, facts.heap.words
    field = words.at(chunk + word)
    if field is None:
        return False
    size = field & ~_FLAGS
    if re.search(r"(free|realloc)\(\): invalid pointer", message):
        return chunk % (2 * word) != 0 or chunk > (-size & words.mask)
    if "free(): invalid size" in message:
        return size < 4 * word or size % (2 * word) != 0
    if "munmap_chunk(): invalid pointer" in message:
        return bool(field & _MMAPPED)
    tops = [row.top for one in facts.heap.heaps for row in one.arena_rows() if row.top is not None]
    if "(out)" in message:
        return bool(tops) and not any(top > chunk and chunk + size <= top for top in tops) and chunk % (2 * word) == 0
    return "(top)" in message and chunk in tops
