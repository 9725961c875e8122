"""x86's own unwind tables (ORC), as the kernel has them in its memory: no debugging information is needed.

arch/x86/kernel/unwind_orc.c and asm/orc_types.h. A table is two arrays: places of code, each as a 32-bit distance from
its own entry, sorted; and for each what the code from there on has on its stack, in 6 bytes: the offsets of the
previous stack pointer and of the saved rbp (16 bits each), and 16 bits of flags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from drgnext.kernel.words import Memory

_ENTRY = 6

# Types, as they are numbered since 6.4. Earlier ones are translated.
UNDEFINED, END_OF_STACK, CALL, REGS, REGS_PARTIAL = range(5)


class Rule(NamedTuple):
    """How to get from a frame to its caller. ``sp`` and ``bp``: a register's name, "prev" (the previous stack pointer),
    or "" (none); ``indirect``: the previous stack pointer is the word there, plus ``add``. ``exact``: the caller's pc
    is no return address (the kernel's `signal` flag)."""

    kind: int
    sp: str
    sp_offset: int
    indirect: bool
    add: int
    bp: str
    bp_offset: int
    exact: bool


class Format(NamedTuple):
    """Where the flags lie (from debug information), and how the registers are numbered (from the tables themselves)."""

    type_shift: int
    type_bits: int
    end_bit: Optional[int]  # up to 6.3
    signal_bit: Optional[int]  # since 6.3
    registers: Sequence[str]


# enum of ORC_REG_*: up to 7.0, and since ("objtool/x86: Reorder ORC register numbering").
_OLD = ("", "prev", "rdx", "rdi", "rbp", "rsp", "r10", "r13", "*rbp", "*rsp")
_NEW = ("", "rax", "rdx", "rsp", "rbp", "rdi", "r10", "r13", "prev", "*rsp", "*rbp")

# Only rbp and rsp are used with their offset (unwind_next_frame).
_WITH_OFFSET = {"rbp", "rsp", "*rbp", "*rsp"}


def numbering(flags: Sequence[int]) -> Optional[Sequence[str]]:
    """Which numbering a sample of flags has: most code finds the previous frame from rsp, which is 5 in one and 3 in
    the other. None if it is neither."""
    counts = Counter(word & 0xF for word in flags)
    if not counts:
        return None
    most = counts.most_common(1)[0][0]
    return {5: _OLD, 3: _NEW}.get(most)


@dataclass(frozen=True)
class Table:
    """The ORC of vmlinux, or of one module, for the code in ``[start, end)``."""

    places: int  # address of the first place
    entries: int  # address of the first entry
    count: int
    start: int
    end: int

    def flags(self, memory: Memory, most: int) -> list[int]:
        """The flags of entries from all over the table."""
        step = max(1, self.count // most)
        found = (memory.read(self.entries + n * _ENTRY + 4, 2) for n in range(0, self.count, step))
        return [int.from_bytes(data, "little") for data in found if len(data) == 2]

    def find(self, memory: Memory, pc: int, form: Format) -> Optional[Rule]:
        """The rule at ``pc``. None where the table, or the part of it that is needed, is not in the dump."""
        if self.count <= 0:
            return None
        low, high = 0, self.count  # the last place at or below pc
        while high - low > 1:
            middle = (low + high) // 2
            place = self._place(memory, middle)
            if place is None:
                return None
            if place <= pc:
                low = middle
            else:
                high = middle
        first = self._place(memory, low)
        data = memory.read(self.entries + low * _ENTRY, _ENTRY)
        if first is None or first > pc or len(data) < _ENTRY:
            return None
        return decode(data, form)

    def _place(self, memory: Memory, index: int) -> Optional[int]:
        at = self.places + 4 * index
        data = memory.read(at, 4)
        return at + int.from_bytes(data, "little", signed=True) if len(data) == 4 else None


def decode(data: bytes, form: Format) -> Rule:
    sp_offset = int.from_bytes(data[:2], "little", signed=True)
    bp_offset = int.from_bytes(data[2:4], "little", signed=True)
    flags = int.from_bytes(data[4:], "little")
    names = form.registers
    sp, bp = (names[n] if n < len(names) else "?" for n in (flags & 0xF, flags >> 4 & 0xF))
    kind = flags >> form.type_shift & (1 << form.type_bits) - 1
    if form.end_bit is not None:
        # Before 6.4 types began with CALL, and "no caller" was a bit, or no register to find one by.
        kind = END_OF_STACK if flags >> form.end_bit & 1 else (kind + CALL if sp else UNDEFINED)
    indirect = sp.startswith("*")
    offset = sp_offset if sp in _WITH_OFFSET or sp == "prev" else 0
    # *rsp: the word at rsp, plus the offset; *rbp: the word at rbp plus the offset.
    at, add = (0, offset) if sp == "*rsp" else (offset, 0)
    exact = form.signal_bit is not None and bool(flags >> form.signal_bit & 1)
    return Rule(kind, sp.lstrip("*"), at, indirect, add, bp, bp_offset, exact)
