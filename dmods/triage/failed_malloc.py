"""Prove that malloc failed and that the process died of it.

errno is ENOMEM after a failed call, and stays so until another call sets it. So it is a hint. The code of the program
is the proof: the NULL that was used is the result of the call, or abort() was called because the result was NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.finding import CERTAIN, LIKELY
from dmods.process.calls import CALL, behind_stubs
from dmods.process.code import bounds, decoded_to, leads
from dmods.process.reasons import because_of_zero
from dmods.process.results import Result, result_in
from dmods.target import Target
from dmods.triage.facts import ProcessFacts
from dmods.triage.held_blocks import operands
from dmods.triage.names import first_own

# Functions that return NULL if there is no memory, as symbols name them: libc's, those of allocators that have a prefix
# by default or in Rust, and operator new for std::nothrow.
_ALLOCATES = regex(
    r"^(?:__libc_|_?_?r?je_|_rjem_|tc_|mi_|scalloc_)?(?P<name>[mc]alloc|realloc|reallocarray|memalign|aligned_alloc|"
    r"p?valloc|strn?dup|wcsdup)$|^(?P<new>_Zn[wa]m.*nothrow_t)$"
)
_FIRST = {"x86_64": "rdi", "aarch64": "x0"}
_MOST_FRAMES = 4  # of the program, that are asked why they called the next
_MOST_WRAPPER = 1 << 12  # bytes of a function that may pass the result on


class Failed(NamedTuple):
    """A call that returned NULL, the function as programs call it, and how sure it is that the process died of it."""

    function: str
    confidence: str


def unchecked(facts: ProcessFacts) -> Optional[Failed]:
    """Return the call whose result was used although it was NULL; None where the code does not prove it."""
    for result in _results(facts):
        name = _allocates(facts.target, result.function)
        if name:
            return Failed(name, CERTAIN if result.kept else LIKELY)
        if facts.exhausted is not None and _passes_on(facts.target, result.function):
            return Failed("malloc()", LIKELY)
    return None


def checked(facts: ProcessFacts) -> Optional[Failed]:
    """Return the call after which the program ended itself because it returned NULL; None where nothing proves it."""
    own = first_own(facts.names)
    sure = CERTAIN
    for number in range(own, min(own + _MOST_FRAMES, len(facts.frames))) if own is not None else ():
        names: list[str] = []
        because = because_of_zero(facts.target, facts.frames, number, partial(_is_wanted, facts, names))
        if because:
            return Failed(names[0], sure if all(name != _WRAPPED for name in names) else LIKELY)
        if because is False:
            sure = LIKELY  # a function in between decided something, too
    return None


_WRAPPED = "a function that calls malloc()"


def _is_wanted(facts: ProcessFacts, names: list[str], function: int) -> bool:
    """Return whether the result of a function is NULL if malloc fails, and add its name."""
    name = _allocates(facts.target, function)
    if not name and facts.exhausted is not None and _passes_on(facts.target, function):
        name = _WRAPPED
    names += [name] if name else []
    return bool(name)


def _results(facts: ProcessFacts) -> Iterator[Result]:
    """Yield the calls that returned the NULL of the instruction, or the first argument of a library's function."""
    frames, own = facts.frames, first_own(facts.names)
    bad = [each.register for each in operands(facts) if each.memory and each.value == 0]
    wanted = [(0, register) for register in bad]
    if own and facts.target.arch.name in _FIRST:
        wanted.append((own, _FIRST[facts.target.arch.name]))
    found = (result_in(facts.target, frames, number, register) for number, register in wanted)
    return (each for each in found if each is not None)


def _allocates(target: Target, function: int) -> str:
    """Return the name of a function that returns NULL if there is no memory, as programs call it, or ""."""
    symbol = target.symbol_at(function)
    found = _ALLOCATES.match(symbol.name) if symbol is not None and symbol.address == function else None
    if found is None:
        return ""
    return f"{found['name']}()" if found["name"] else "operator new(std::nothrow)"


def _passes_on(target: Target, function: int) -> bool:
    """Return whether a function calls such a function, so that it may return what that returned."""
    whole = bounds(target, function + 1)
    if whole is None or whole[0] != function or whole[1] - whole[0] > _MOST_WRAPPER:
        return False
    for code in decoded_to(target, *whole):
        to = leads(code)
        if to is None and CALL.match(code.name) and code.operands:
            to = _absolute(code.operands[0], code.address)
        if to is not None and not whole[0] <= to < whole[1] and _allocates(target, behind_stubs(target, to) or 0):
            return True
    return False


def _absolute(operand: str, address: int) -> Optional[int]:
    """Return where a direct call leads."""
    if operand.startswith("0x"):
        return int(operand, 16)
    return address + int(operand[1:], 16) if operand.startswith(("$+0x", "$0x", "$-0x")) else None
