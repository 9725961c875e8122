"""x86's own unwind tables (ORC), from the kernel's memory. They need no debug information.

The sources are arch/x86/kernel/unwind_orc.c and asm/orc_types.h. A table is two arrays. The first has code addresses,
sorted, each as a 32-bit distance from its own entry. The second has 6 bytes for each address: what the code from there
on has on its stack. These are the offsets of the previous stack pointer and of the saved rbp (16 bits each), and 16
bits of flags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory

_ENTRY = 6

# The numbers of types since 6.4. Earlier numbers are translated.
UNDEFINED, END_OF_STACK, CALL, REGS, REGS_PARTIAL = range(5)


class Rule(NamedTuple):
    """The rule that leads from a frame to its caller.

    ``sp`` and ``bp`` are a register's name, "prev" (the previous stack pointer), or "" (none). If ``indirect``, the
    previous stack pointer is the word at that address, plus ``add``. If ``exact``, the caller's pc is not a return
    address (the kernel's `signal` flag).
    """

    kind: int
    sp: str
    sp_offset: int
    indirect: bool
    add: int
    bp: str
    bp_offset: int
    exact: bool


class Format(NamedTuple):
    """Where the flags are (from debug information), and the numbers of the registers (from the tables themselves)."""

    type_shift: int
    type_bits: int
    end_bit: Optional[int]  # up to 6.3
    signal_bit: Optional[int]  # since 6.3
    registers: Sequence[str]


# The ORC_REG_* enum up to 7.0, and after ("objtool/x86: Reorder ORC register numbering").
_OLD = ("", "prev", "rdx", "rdi", "rbp", "rsp", "r10", "r13", "*rbp", "*rsp")
_NEW = ("", "rax", "rdx", "rsp", "rbp", "rdi", "r10", "r13", "prev", "*rsp", "*rbp")

# Only rbp and rsp use their offset (unwind_next_frame).
_WITH_OFFSET = {"rbp", "rsp", "*rbp", "*rsp"}


def numbering(flags: Sequence[int]) -> Optional[Sequence[str]]:
    """Return the names of the registers by number, from a sample of flags. Return None if neither numbering fits.

    Most code finds the previous frame from rsp, which is 5 in one numbering and 3 in the other.
    """
    counts = Counter(word & 0xF for word in flags)
    if not counts:
        return None
    most = counts.most_common(1)[0][0]
    return {5: _OLD, 3: _NEW}.get(most)


@dataclass(frozen=True)
class Table:
    """The ORC table of vmlinux or of one module, for the code in ``[start, end)``."""

    places: int  # address of the first place
    entries: int  # address of the first entry
    count: int
    start: int
    end: int

    def flags(self, memory: Memory, most: int) -> list[int]:
        """Return the flags of entries from all over the table, about ``most`` of them."""
        step = max(1, self.count // most)
        found = (memory.read(self.entries + n * _ENTRY + 4, 2) for n in range(0, self.count, step))
        return [int.from_bytes(data, "little") for data in found if len(data) == 2]

    def find(self, memory: Memory, pc: int, form: Format) -> Optional[Rule]:
        """Return the rule at ``pc``. Return None if the needed part of the table is not in the dump."""
        if self.count <= 0:
            return None
        low, high = 0, self.count  # search for the last place at or below pc
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
        """Return the code address of an entry, or None if it is not in the dump."""
        at = self.places + 4 * index
        data = memory.read(at, 4)
        return at + int.from_bytes(data, "little", signed=True) if len(data) == 4 else None


def decode(data: bytes, form: Format) -> Rule:
    """Return the rule in the 6 bytes of an entry."""
    sp_offset = int.from_bytes(data[:2], "little", signed=True)
    bp_offset = int.from_bytes(data[2:4], "little", signed=True)
    flags = int.from_bytes(data[4:], "little")
    names = form.registers
    sp, bp = (names[n] if n < len(names) else "?" for n in (flags & 0xF, flags >> 4 & 0xF))
    kind = flags >> form.type_shift & (1 << form.type_bits) - 1
    if form.end_bit is not None:
        # Before 6.4 types began with CALL. "No caller" was a bit, or the lack of a register to find the caller by.
        kind = END_OF_STACK if flags >> form.end_bit & 1 else (kind + CALL if sp else UNDEFINED)
    indirect = sp.startswith("*")
    offset = sp_offset if sp in _WITH_OFFSET or sp == "prev" else 0
    # *rsp is (the word at rsp) + offset. *rbp is the word at (rbp + offset).
    at, add = (0, offset) if sp == "*rsp" else (offset, 0)
    exact = form.signal_bit is not None and bool(flags >> form.signal_bit & 1)
    return Rule(kind, sp.lstrip("*"), at, indirect, add, bp, bp_offset, exact)
