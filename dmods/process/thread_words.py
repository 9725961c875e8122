"""Which thread-local words a function reads, from its code.

An allocator keeps the heap of a thread in a thread-local variable, and malloc() reads it first. So the code of malloc()
tells whose it is, where neither a name nor a symbol does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from dmods import _engine
from dmods.base.regex import regex
from dmods.base.words import Words
from dmods.target import Target

_MOST = 64  # instructions that are looked at
_LENGTH = 16  # bytes of an instruction, at most
_WRAP = 1 << 64
_LOAD = regex(r"mov %fs:(-?0x[0-9a-f]+)?(?:\(%(\w+)\))?,%(\w+)$")
_MOVE = regex(r"(mov|lea|add|sub) (\$)?(-?0x[0-9a-f]+)?(?:\(%(\w+)\))?,%(\w+)$")
_JUMP = regex(r"(?:bnd |notrack )?jmp (0x[0-9a-f]+)$")
_ENDS = regex(r"(?:bnd |notrack )?(?:call|jmp|ret)")
_WRITTEN = regex(r".*%(\w+)$")
_REGISTER = regex(r"[re]?(\w+?)[dwblx]?$")

# What a register holds: whether the thread pointer is a part of it, and the number that is added.
_Value = tuple[bool, int]


def thread_words(target: Target, function: int) -> Iterator[int]:
    """Yield the offsets from the thread pointer of the words that a function reads before its first call.

    These are the forms of local-exec and initial-exec access on x86-64 ("ELF Handling For Thread-Local Storage",
    section 4): ``%fs:OFFSET``, an offset in a register or in the global offset table, and sums with ``%fs:0``.
    Nothing is yielded for other machines. Branches are not taken, and a jump at the end is followed.
    """
    if target.arch.name != "x86_64":
        return
    words, at = Words(target.image(), target.arch.word), function
    known: dict[str, _Value] = {}
    for _step in range(_MOST):
        found = _engine.disassemble(target.arch.name, target.image().read(at, _LENGTH), at)
        if found is None:
            return
        text, length = found
        jump = _JUMP.match(text)
        if jump is None and _ENDS.match(text):
            return
        read = _step_of(words, known, text)
        if read is not None:
            yield read
        at = int(jump.group(1), 16) if jump is not None else at + length


def _step_of(words: Words, known: dict[str, _Value], text: str) -> Optional[int]:
    """Take an instruction into account. Return the offset of the thread-local word that it reads, or None."""
    read, value = None, None
    load, move = _LOAD.match(text), _MOVE.match(text)
    if load is not None:
        number, base, _into = load.groups()
        through = known.get(_name(base)) if base else (False, 0)
        if through is not None and not through[0]:
            read = _signed(_number(number) + through[1])
            # The word at offset 0 is the thread pointer itself (section 3.4.6).
            value, read = ((True, 0), None) if read == 0 else (None, read)
    elif move is not None:
        read, value = _moved(words, known, move)
    written = _WRITTEN.match(text)
    if written is not None:
        known.pop(_name(written.group(1)), None)
        if value is not None:
            known[_name(written.group(1))] = value
    return read


def _moved(words: Words, known: dict[str, _Value], move: re.Match[str]) -> tuple[Optional[int], Optional[_Value]]:
    """Return the offset of the thread-local word that ``mov``, ``lea``, ``add`` or ``sub`` reads, and its result."""
    verb, constant, number, base, into = move.groups()
    there = _number(number)
    through = known.get(_name(base)) if base else None
    if base and through is None:
        return None, None
    if verb == "lea":
        return None, (through[0], through[1] + there) if through is not None else None
    if through is not None:  # memory at a register
        return (_signed(through[1] + there), None) if verb == "mov" and through[0] else (None, None)
    amount = there if constant else words.at(there % _WRAP)
    if amount is None:
        return None, None
    if verb == "mov":
        return None, (False, amount)
    before = known.get(_name(into))
    return None, (before[0], before[1] + (amount if verb == "add" else -amount)) if before is not None else None


def _number(text: Optional[str]) -> int:
    return int(text, 16) if text else 0


def _signed(value: int) -> int:
    value %= _WRAP
    return value - _WRAP if value >> 63 else value


def _name(register: str) -> str:
    """Return a name that is the same for a register of 64 bits and its lower parts."""
    found = _REGISTER.match(register)
    return found.group(1) if found is not None else register
