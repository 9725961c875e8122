"""Find the call whose result a frame has in a register.

The code is read backwards, as in `calls.py`: only code through which every way leads. So the answer is proved, or it is
not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Union

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.process.calls import CALL, LEAVES, PRESERVED, Reader, behind_stubs
from dmods.process.code import NUMBER, Code, bounds
from dmods.process.unwind import Frame
from dmods.target import Target

_RESULTS = {"x86_64": "rax", "aarch64": "x0"}  # the System V psABIs
_ARGUMENTS = {
    "x86_64": ("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
    "aarch64": tuple(f"x{number}" for number in range(8)),
}
_MOST_FRAMES = 4  # that pass an argument on
_MOST_COPIES = 8  # from register to register, and to the stack and back
_COPIES, _STORES = ("mov", "movq", "ldr", "ldur"), ("mov", "movq", "str", "stur")
_READS = (*_COPIES, "cmp", "cmpq", "test")
#: A variable on the stack, by its distance from the stack or frame pointer.
ON_STACK = regex(rf"^(?:(?:{NUMBER})?\(%(?P<x86>r[sb]p)\)|\[(?P<arm>sp|x29)(?:, #{NUMBER})?\])$")


class Result(NamedTuple):
    """A call: the function that it led to. ``kept``: nothing could have changed its result since.

    Else it was in a variable on the stack while another function ran, which might have written there.
    """

    function: int
    kept: bool


def result_in(target: Target, frames: Sequence[Frame], number: int, register: str) -> Optional[Result]:
    """Return the call whose result a register had before the instruction, or the call, that a frame is in.

    A value that the function got as an argument is followed into the frames that called it.
    """
    for outer in range(number, min(number + _MOST_FRAMES, len(frames))):
        way = Way(target, frames[outer])
        found = way.origin(register, way.end)
        if isinstance(found, Result) or found is None:
            return found
        if outer + 1 >= len(frames) or called(target, frames[outer + 1]) != way.start:
            return None  # the code is a part of a function that is entered by jumps
        register = found
    return None


def called(target: Target, frame: Frame) -> Optional[int]:
    """Return the function that the call of a frame led to, behind stubs; None where the code does not say it."""
    reader = Reader(target, frame)
    return behind_stubs(target, reader.destination(len(reader.code) - 1)) if reader.code and not frame.exact else None


class Way:
    """The code of a function up to the pc of a frame. ``joined`` are further places to which jumps lead."""

    def __init__(self, target: Target, frame: Frame, joined: frozenset[int] = frozenset()) -> None:
        self.target = target
        self.reader = Reader(target, frame)
        self.code = self.reader.code
        #: The number of the instruction, or of the call, that the frame is in.
        self.end = len(self.code) if frame.exact else len(self.code) - 1
        self.joined = self.reader.joined | joined
        self._kept = PRESERVED.get(target.arch.name, frozenset())
        whole = bounds(target, frame.pc if self.code else frame.pc + 1)
        #: Where the code begins: the function, or a part of it that lies together. None: it may begin before.
        self.start = (
            whole[0] if whole is not None and whole[0] == (self.code[0].address if self.code else frame.pc) else None
        )

    def other_ways(self, code: Code) -> bool:
        """Return whether another way than the instruction itself may lead to what follows it."""
        return code.following in self.joined or bool(LEAVES.match(code.name))

    def origin(self, register: str, at: int, copies: int = _MOST_COPIES, kept: bool = True) -> Union[str, Result, None]:
        """Return the call whose result a register had before the instruction number `at`.

        If the function got the value as an argument, its register; None where neither is proved.
        """
        for number in range(at - 1, -1, -1):
            code = self.code[number]
            if self.other_ways(code) or copies == 0:
                return None
            if CALL.match(code.name):
                if register == _RESULTS[self.target.arch.name]:
                    to = behind_stubs(self.target, self.reader.destination(number))
                    return Result(to, kept) if to is not None else None
                if register not in self._kept:
                    return None
            elif self.reader.writes(code, register):
                return self._copied(code, register, number, copies - 1, kept)
        entered = self.start is not None and self.start not in self.joined
        return register if entered and register in _ARGUMENTS[self.target.arch.name] else None

    def on_stack(self, place: str, at: int, copies: int = _MOST_COPIES, kept: bool = True) -> Union[str, Result, None]:
        """Return the origin of what the code has put into a variable on the stack."""
        found = ON_STACK.match(place)
        base = (found["x86"] or found["arm"]) if found is not None else ""
        for number in range(at - 1, -1, -1):
            code = self.code[number]
            if self.other_ways(code) or (not CALL.match(code.name) and self.reader.writes(code, base)):
                return None
            kept = kept and not CALL.match(code.name)
            if place not in code.operands:
                continue
            source, into = self._operands(code, code.name in ("str", "stur"))
            if code.name in _STORES and into == place:
                known = source in self.target.arch.registers
                return self.origin(source, number, copies, kept) if known else None
            if code.name not in _READS:
                return None  # it may write there
        return None

    def _copied(self, code: Code, register: str, number: int, copies: int, kept: bool) -> Union[str, Result, None]:
        """Return the origin of what an instruction has copied into the register."""
        source, into = self._operands(code, False)
        if code.name not in _COPIES or into != register:
            return None
        if source in self.target.arch.registers:
            return self.origin(source, number, copies, kept)
        return self.on_stack(source, number, copies, kept) if ON_STACK.match(source) else None

    def _operands(self, code: Code, stores: bool) -> tuple[str, str]:
        """Return the source and the destination of a copy. AArch64's stores name the source first."""
        if len(code.operands) != 2:
            return "", ""
        first_into = self.reader.arm and not stores
        source, into = code.operands[::-1] if first_into else code.operands
        return source.lstrip("%"), into.lstrip("%")
