"""Find which function a frame called, and with which first argument, and where a register was loaded from.

The argument register itself is overwritten by then. But the instructions before the call say where its value came from:
a register that calls preserve, a word of memory, an address. Only code through which every way to the call leads is
read. So the value is the one that was passed, or it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.process.code import NUMBER, WINDOW, Code, before, decode, decoded_to, joined, leads, page, word
from dmods.process.register_names import whole_register
from dmods.process.unwind import Frame
from dmods.target import Target

# The System V psABIs: registers of the first argument, and those that a function preserves.
_FIRST = {"x86_64": "rdi", "aarch64": "x0"}
PRESERVED = {
    "x86_64": frozenset(("rbx", "rbp", "rsp", "r12", "r13", "r14", "r15")),
    "aarch64": frozenset((*(f"x{number}" for number in range(19, 30)), "sp")),
}
_MOST_STEPS = 64  # instructions that are followed back
_MOST_FRAMES = 4  # that pass an argument on
_MOST_TAILS = 3  # functions that end with a jump to the next
_SMALL = 1 << 9  # bytes of a function that ends so
_MOST_STUBS = 3  # jumps from the call to the function: a stub of the PLT, and a thunk

_X86_ADDRESS = regex(rf"^({NUMBER})?\((%\w+)\)$")
_X86_ABSOLUTE = regex(rf"^({NUMBER})$")
_ARM_ADDRESS = regex(rf"^\[(\w+)(?:, #({NUMBER}))?\]$")
CALL = regex(r"^(?:callq?|blr?)$")
LEAVES = regex(r"^(?:jmpq?|ret[qnf]?|hlt|ud2|int3|b|br|brk|udf)$")
# What writes no register, and what writes its last operand alone (the first, on AArch64).
_READS = regex(r"^(?:cmp|test|nop|endbr|j|push|cbn?z|tbn?z|b\.|tst|cmn|ccmp|str|stp|stur|prfm|dmb|bti)")
_WRITES_ONE = regex(
    r"^(?:mov|lea|add|sub|and|or|xor|sh[lr]|sa[lr]|neg|not|inc|dec|imul|pop|set|cmov|cvt|p[a-z]+|"
    r"ldu?r|adr|orr|eor|ls[lr]|asr|mul|madd|cs|cinc|sxt|uxt|ubf|sbf|fmov|v[a-z]+)"
)


class Call(NamedTuple):
    """A call: the function that it led to, and the first argument that this function got; None where not known."""

    function: Optional[int]
    argument: Optional[int]


def calls(target: Target, frames: Sequence[Frame], number: int) -> Iterator[Call]:
    """Yield the call that a frame is in, then the jumps by which the called functions ended: those left no frame.

    On i386 the argument is the word behind the return address. ``frames`` are those of the stack, innermost first.
    """
    frame = frames[number]
    reader = Reader(target, frame)
    if frame.exact or not reader.code:
        return
    at = behind_stubs(target, reader.destination(len(reader.code) - 1))
    known = target.arch.name in _FIRST
    argument = _argument(target, frames, number, _MOST_FRAMES) if known else word(target, frame.sp)
    yield Call(at, argument)
    for _step in range(_MOST_TAILS if known else 0):
        tails = list(_tails(target, at)) if at is not None else []
        if len(tails) != 1:
            return
        code, joined = tails[0]
        tail = Reader(target, frame, _Tail(code, joined, argument))
        at, argument = behind_stubs(target, tail.destination(len(code) - 1)), tail.first(len(code) - 1)
        yield Call(at, argument)


def _argument(target: Target, frames: Sequence[Frame], number: int, most: int) -> Optional[int]:
    """Return the first argument of the call that a frame is in. It may be the frame's own, which its caller passed."""
    reader = Reader(target, frames[number])
    if not reader.code:
        return None
    found = reader.first(len(reader.code) - 1)
    if found is not None or most == 0 or number + 1 >= len(frames) or not reader.passes_on():
        return found
    outer = frames[number + 1]
    caller = Reader(target, outer)
    at = caller.destination(len(caller.code) - 1) if caller.code and not outer.exact else None
    if behind_stubs(target, at) != reader.code[0].address:
        return None  # another function was called, and ended with a jump to this one
    return _argument(target, frames, number + 1, most - 1)


def _tails(target: Target, at: int) -> Iterator[tuple[list[Code], frozenset[int]]]:
    """Yield the code of a small function up to each jump that leaves it, with the addresses that its jumps lead to."""
    symbol = target.symbol_at(at)
    end = symbol.address + symbol.size if symbol is not None and symbol.address == at else at + WINDOW
    if end - at > _SMALL:
        return
    code = decoded_to(target, at, end)
    joined = frozenset(to for each in code if (to := leads(each)) is not None)
    for number, each in enumerate(code):
        to = leads(each)
        outside = to is not None and not at <= to < end
        if each.name in ("jmp", "jmpq", "b") and (outside or each.operands[0].startswith("*")):
            yield code[: number + 1], joined


def behind_stubs(target: Target, at: Optional[int]) -> Optional[int]:
    """Return the address of the function behind stubs of the PLT."""
    for _stub in range(_MOST_STUBS):
        jump = _stub_jump(target, at) if at is not None else None
        if jump is None:
            break
        at = jump
    return at


def loaded_from(target: Target, frame: Frame, register: str) -> Optional[int]:
    """Return the address from which the register of an interrupted frame was loaded; None where the code does not
    prove it."""
    reader = Reader(target, frame)
    return reader.source(register) if frame.exact else None


def _stub_jump(target: Target, at: int) -> Optional[int]:
    """Return where the code at an address does nothing but jump to: a stub of the PLT. None for any other code."""
    base = 0  # of AArch64's stubs: adrp x16; ldr x17, [x16, #..]; add x16, ..; br x17
    for _count in range(4):
        code = decode(target, at)
        if code is None:
            return None
        if code.name == "jmpq" and code.operands and (found := re.match(rf"\*({NUMBER})$", code.operands[0])):
            return word(target, int(found[1], 16))
        if code.name == "adrp":
            base = page(code)
        elif code.name == "ldr" and base and (arm := _ARM_ADDRESS.match(code.operands[1])):
            return word(target, base + int(arm[2] or "0", 16))
        elif not code.name.startswith(("endbr", "bti", "nop")):
            return None
        at = code.following
    return None


class _Tail(NamedTuple):
    """A function that was left by a jump: its code up to there, where jumps lead, and the argument that it got."""

    code: list[Code]
    joined: frozenset[int]
    argument: Optional[int]


class Reader:
    """Reads the code before a call backwards."""

    def __init__(self, target: Target, frame: Frame, tail: Optional[_Tail] = None) -> None:
        self.target, self.frame = target, frame
        self.entry: tuple[str, Optional[int]] = ("", None)
        # A frame that was interrupted has all its registers.
        self.preserved = frozenset(frame.registers) if frame.exact else PRESERVED.get(target.arch.name, frozenset())
        if tail is not None:
            self.preserved = frozenset()
            self.entry = (_FIRST[target.arch.name], tail.argument)
        self.code = before(target, frame.pc, frame.exact) if tail is None else tail.code
        self.joined = joined(target, self.code, frame.pc) if tail is None else tail.joined
        self.arm = target.arch.name == "aarch64"
        if self.code and tail is None and not frame.exact and not CALL.match(self.code[-1].name):
            self.code = []

    def first(self, at: int) -> Optional[int]:
        """Return the first argument of the call, or of the jump, that the instruction number `at` is."""
        return self.value(_FIRST[self.target.arch.name], at, _MOST_STEPS)

    def passes_on(self) -> bool:
        """Return whether the function gives its own first argument to the function that it calls."""
        symbol = self.target.symbol_at(self.code[0].address)
        begins = symbol is not None and symbol.address == self.code[0].address
        register = _FIRST[self.target.arch.name]
        code = self.code[:-1]
        changed = any(self.writes(each, register) or LEAVES.match(each.name) for each in code)
        return begins and not changed and not self._is_joined(len(code))

    def destination(self, at: int) -> Optional[int]:
        """Return the address that the call leads to, before any stub."""
        operand = self.code[at].operands[0] if self.code[at].operands else ""
        if self.arm and operand.startswith("$"):
            return self.code[at].address + int(operand[1:], 16)
        if _X86_ABSOLUTE.match(operand):
            return int(operand, 16)
        inside = operand.lstrip("*")
        if operand.startswith("*") and not inside.startswith("%"):
            return self._memory(inside, at, _MOST_STEPS)
        register = whole_register(self.target, inside.lstrip("%"))
        return self.value(register, at, _MOST_STEPS) if register is not None else None

    def source(self, register: str) -> Optional[int]:
        """Return the address from which the register was loaded before the last instruction, or None."""
        number = self._writer(register, len(self.code), _MOST_STEPS)
        code = self.code[number] if number is not None else None
        if number is None or code is None or code.name not in ("mov", "movq", "ldr", "ldur") or len(code.operands) < 2:
            return None
        source, into = (code.operands[1], code.operands[0]) if self.arm else (code.operands[0], code.operands[-1])
        return self._address(source, number, _MOST_STEPS) if into.lstrip("%") == register else None

    def value(self, register: str, at: int, steps: int) -> Optional[int]:
        """Return what a register held before the instruction number `at`, or None."""
        if register == self.entry[0] and not any(self.writes(each, register) for each in self.code[:at]):
            return self.entry[1] if not self._is_joined(at) else None
        if register in self.preserved and not any(self.writes(each, register) for each in self.code[at:]):
            return self.frame.registers.get(register) if register != self.target.arch.sp else self.frame.sp
        number = self._writer(register, at, steps)
        if number is not None:
            found = self._written(self.code[number], register, number, steps - (at - number))
            if found is not None:
                return found
        return self._copied(register, at, number if number is not None else -1)

    def _copied(self, register: str, at: int, written: int) -> Optional[int]:
        """Return the value of a register by a copy of it in one that calls preserve. `written` is its last write."""
        for number in range(at - 1, written, -1):
            code = self.code[number]
            if code.following in self.joined or LEAVES.match(code.name) or self.writes(code, register):
                return None
            if code.name != "mov" or len(code.operands) != 2:
                continue
            source, into = [each.lstrip("%") for each in (code.operands[::-1] if self.arm else code.operands)]
            if source == register and into in self.preserved:
                return self.value(into, number + 1, 0)
        return None

    def _is_joined(self, at: int) -> bool:
        """Return whether a jump leads to an instruction before number `at`, or to that one."""
        return any(each.address in self.joined for each in self.code[: at + 1])

    def _writer(self, register: str, at: int, steps: int) -> Optional[int]:
        """Return the number of the last instruction before `at` that writes the register; None if any other may."""
        for number in range(at - 1, max(-1, at - 1 - steps), -1):
            code = self.code[number]
            if code.following in self.joined or LEAVES.match(code.name):
                return None  # another way may lead here
            if self.writes(code, register):
                return number
        return None

    def _written(self, code: Code, register: str, number: int, steps: int) -> Optional[int]:
        """Return what the instruction writes into a register of full width, or None."""
        if len(code.operands) < 2:
            return None
        source, into = (code.operands[1], code.operands[0]) if self.arm else (code.operands[0], code.operands[-1])
        if into.lstrip("%") != register and not (source == into or source.startswith("$")):
            return None  # a half of it
        if code.name == "xor" and source == into:
            return 0
        reads = {
            "mov": self._plain,
            "movq": self._plain,
            "movabs": self._plain,
            "ldr": self._loaded,
            "ldur": self._loaded,
            "lea": self._address,
        }
        read = reads.get(code.name)
        if read is not None:
            return read(source, number, steps)
        return page(code) if code.name == "adrp" else self._sum(code, source, register, number, steps)

    def _sum(self, code: Code, source: str, register: str, number: int, steps: int) -> Optional[int]:
        """Return the result of adding a number to a register, or of taking it away."""
        if code.name not in ("add", "sub"):
            return None
        by, base = (code.operands[-1], source) if self.arm else (source, register)
        if not re.fullmatch(rf"[$#]{NUMBER}", by):
            return None
        known = self.value(base, number, steps)
        amount = int(by[1:], 16)
        return None if known is None else self._cut(known + (amount if code.name == "add" else -amount))

    def _plain(self, source: str, number: int, steps: int) -> Optional[int]:
        if source.startswith(("$", "#")):
            return self._cut(int(source[1:], 16))
        register = whole_register(self.target, source.lstrip("%"))
        if register is not None:
            return self.value(register, number, steps) if source.lstrip("%") == register else None
        return self._loaded(source, number, steps)

    def _loaded(self, operand: str, number: int, steps: int) -> Optional[int]:
        """Return the word at a memory operand, unless the code between wrote there."""
        after = self.code[number + 1 :]
        if any(operand in each.operands[:: -1 if self.arm else 1][-1:] for each in after if each.operands):
            return None
        return self._memory(operand, number, steps)

    def _memory(self, operand: str, number: int, steps: int) -> Optional[int]:
        address = self._address(operand, number, steps)
        return word(self.target, address) if address is not None else None

    def _address(self, operand: str, number: int, steps: int) -> Optional[int]:
        """Return the address of a memory operand with one register at most."""
        if not self.arm and _X86_ABSOLUTE.match(operand):
            return int(operand, 16)
        found = (_ARM_ADDRESS if self.arm else _X86_ADDRESS).match(operand)
        if found is None:
            return None
        base, offset = (found[1], found[2]) if self.arm else (found[2][1:], found[1])
        known = self.value(base, number, steps) if base in self.target.arch.registers else None
        return None if known is None else self._cut(known + int(offset or "0", 16))

    def writes(self, code: Code, register: str) -> bool:
        """Return whether the instruction may change the register."""
        if CALL.match(code.name):
            return register not in self.preserved
        sp = self.target.arch.sp
        if register == sp and code.name.startswith(("push", "pop", "leave")):
            return True
        if _READS.match(code.name) and not any(each.endswith(("!", "]!")) for each in code.operands):
            return False
        if not _WRITES_ONE.match(code.name) or not code.operands:
            return True
        into = code.operands[0 if self.arm else -1]
        return whole_register(self.target, into.lstrip("%")) == register or any("!" in each for each in code.operands)

    def _cut(self, value: int) -> int:
        return value & ((1 << 8 * self.target.arch.word) - 1)
