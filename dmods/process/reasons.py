"""Tell whether a frame made its call because a function had returned 0: `p = malloc(n); if (p == NULL) abort();`"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from dmods.base.regex import regex
from dmods.process.calls import LEAVES
from dmods.process.code import Code, behind, bounds, decoded_to, leads
from dmods.process.register_names import whole_register
from dmods.process.results import ON_STACK, Result, Way, called
from dmods.process.unwind import Frame
from dmods.target import Target

_MOST_WAYS = 16  # jumps to one place, and jumps to jumps
_JUMP_IF_ZERO, _JUMP_IF_OTHER = regex(r"^(?:je|jz|cbz|b\.eq)$"), regex(r"^(?:jne|jnz|cbnz|b\.ne)$")
_ALWAYS = regex(r"^(?:jmpq?|b)$")
_CONDITIONAL = regex(r"^(?:j(?!mp)\w+|b\.\w+|cbn?z|tbn?z)$")
_KEEPS_FLAGS = regex(r"^(?:mov\w*|str|stur|ldr|ldur|lea|nop\w*)$")
_ZERO = ("$0x0", "$0", "#0x0", "#0")


def because_of_zero(
    target: Target, frames: Sequence[Frame], number: int, is_wanted: Callable[[int], bool]
) -> Optional[bool]:
    """Return whether a frame made its call because a function, for which ``is_wanted``, had returned 0.

    True: on every way to the call, a test of such a result decides last. False: on another way something else does, or
    the code does not say it. None: nothing decides; the function was called, and goes straight to the call.
    """
    reason = _Reason(target, frames, number, is_wanted)
    return reason.holds()


class _Reason:
    def __init__(self, target: Target, frames: Sequence[Frame], number: int, is_wanted: Callable[[int], bool]) -> None:
        self.target, self.frame, self.is_wanted = target, frames[number], is_wanted
        self.way = Way(target, self.frame)
        entry = called(target, frames[number + 1]) if number + 1 < len(frames) else None
        self.parts = [[*self.way.code, *behind(target, self.frame.pc)]]
        self.entered = bool(self.way.code) and entry in (None, self.way.code[0].address)
        self.parts += [part for part in (self._entry_part(entry),) if part]
        self.joined = frozenset(to for part in self.parts for each in part if (to := leads(each)) is not None)
        self._seen: set[int] = set()

    def _entry_part(self, entry: Optional[int]) -> list[Code]:
        """Return the code of the function that was called, if the frame is in a part of it that lies elsewhere.

        Compilers put what is seldom done into a part of its own ("f.cold").
        """
        symbol = self.target.symbol_at(self.frame.pc - 1)
        name, cold, _ = symbol.name.partition(".cold") if symbol is not None else ("", "", "")
        if symbol is not None and cold:
            found = self.target.lookup(f"{symbol.module}`{name}" if symbol.module else name)
            entry = found.address if found is not None else entry
            self.entered = False
        whole = bounds(self.target, entry + 1) if entry is not None and not self.entered else None
        return decoded_to(self.target, *whole) if whole is not None else []

    def holds(self) -> Optional[bool]:
        """Return what ``because_of_zero`` says."""
        if not self.way.code:
            return False
        found = list(self._decisions(self.parts[0], self.way.end))
        return None if not found else all(found)

    def _decisions(self, part: Sequence[Code], at: int) -> Iterator[bool]:
        """Yield, for each way to an instruction, whether the jump that decides on it tests a wanted result.

        Yields nothing for the way from where the function begins.
        """
        first = part[at].address if at < len(part) else 0
        if first in self._seen or len(self._seen) > _MOST_WAYS:
            return
        self._seen.add(first)
        for number in range(at - 1, -1, -1):
            code = part[number]
            if code.following in self.joined:
                yield from self._jumps_to(code.following)
            if LEAVES.match(code.name):
                return
            if _CONDITIONAL.match(code.name):
                yield self._is_zero(code, False)
                return
        if part and part[0].address in self.joined:
            yield from self._jumps_to(part[0].address)
        elif part is self.parts[0] and not (self.entered and self.way.start is not None):
            yield False

    def _jumps_to(self, address: int) -> Iterator[bool]:
        for part in self.parts:
            for number, code in enumerate(part):
                if leads(code) == address:
                    straight = _ALWAYS.match(code.name)
                    yield from self._decisions(part, number) if straight else (self._is_zero(code, True),)

    def _is_zero(self, jump: Code, taken: bool) -> bool:
        """Return whether a jump, or that it was not taken, says that a wanted function returned 0."""
        if not (_JUMP_IF_ZERO if taken else _JUMP_IF_OTHER).match(jump.name):
            return False
        way = Way(self.target, Frame(jump.address, 0, "", True, {}), self.joined)
        if jump.name in ("cbz", "cbnz"):
            return self._is_result(way, whole_register(self.target, jump.operands[0]) or "", way.end)
        for number in range(way.end - 1, -1, -1):
            code = way.code[number]
            if way.other_ways(code):
                return False
            if not _KEEPS_FLAGS.match(code.name):
                return self._is_result(way, self._tested(code), number)
        return False

    def _tested(self, code: Code) -> str:
        """Return the register or the variable on the stack that an instruction compares with 0, or ""."""
        first, last = (code.operands[0], code.operands[-1]) if code.operands else ("", "")
        if code.name == "test" and first == last:
            return first.lstrip("%")
        if self.target.arch.name == "aarch64":
            first, last = last, first
        return last.lstrip("%") if code.name in ("cmp", "cmpq") and first in _ZERO else ""

    def _is_result(self, way: Way, tested: str, at: int) -> bool:
        on_stack = ON_STACK.match(tested) is not None
        if not on_stack and tested not in self.target.arch.registers:
            return False
        found = way.on_stack(tested, at) if on_stack else way.origin(tested, at)
        return isinstance(found, Result) and self.is_wanted(found.function)
