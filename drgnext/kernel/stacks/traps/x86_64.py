"""struct pt_regs of x86-64 (arch/x86/include/asm/ptrace.h): 21 words. The processor pushes the last five.

The layout has not changed since 2.6. Since 6.9 (FRED) the upper parts of the words of cs and ss hold event data.
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods.process import arch
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks.traps import CodeMap, StackRange, TrapFrame

_NAMES = arch.X86_64.registers[:21]
_SIZE = 168
_ALL = struct.Struct("<21Q")
_CS, _FLAGS, _SP, _SS = (_NAMES.index(r) for r in ("cs", "eflags", "rsp", "ss"))
_HARDWARE = 8 * _NAMES.index("rip")  # where the part begins that the processor pushes

_KERNEL_CS = 0x10
_USER_CS = (0x33, 0x23)  # 64-bit and 32-bit code (arch/x86/include/asm/segment.h)
_XEN_PV = {0xE030: _KERNEL_CS, 0xE033: 0x33, 0xE019: _KERNEL_CS, 0xE023: 0x23}  # FLAT_RING3_*: Xen's selectors
SELECTORS = frozenset((_KERNEL_CS, *_USER_CS, *_XEN_PV))
_KERNEL_SS = (0x18, 0)  # 0 after a change of stack by the processor (SDM volume 3, 6.14.4)
_USER_SS = (0x2B,)

# Bit 1 is always set. Bits 3, 5, 15 and those above 21 are always clear (SDM volume 1, figure 3-8).
_FLAGS_SET, _FLAGS_CLEAR = 0x2, 0xFFFFFFFF_FFC08028

# The largest gap between pt_regs and the old stack pointer when the stack stayed the same. The processor aligns to 16
# bytes. asm_exc_int3 leaves 6 words to emulate a call in (idtentry, arch/x86/entry/entry_64.S).
_MOST_GAP = 64


class X86_64:
    """A :class:`~drgnext.kernel.stacks.traps.Machine` for x86-64."""

    name = "x86_64"
    size = _SIZE
    registers = _NAMES
    code_step = 1

    def read(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        """Return the registers saved at ``address``, or None if the dump lacks them."""
        data = memory.read(address, _SIZE)
        if len(data) < _SIZE:
            return None
        return _frame(address, _ALL.unpack(data), memory.word(address - 8))

    def read_hardware_part(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        """Return what the processor pushed at ``address``: rip, cs, eflags, rsp and ss. None if the dump lacks it.

        The entry code has not yet saved the other registers.
        """
        data = memory.read(address, _SIZE - _HARDWARE)
        if len(data) < _SIZE - _HARDWARE:
            return None
        names = _NAMES[_HARDWARE // 8 :]
        values = dict(zip(names, struct.unpack("<5Q", data)))
        user = _selector(values["cs"]) in _USER_CS
        return TrapFrame(address - _HARDWARE, values["rip"], values["rsp"], user, values, None, partial=True)

    def scan(self, memory: Memory, stack: StackRange, code: CodeMap) -> list[TrapFrame]:
        """Return the saved registers on the stack.

        cs, ss, eflags and the stack pointer must fit each other, and a return address into the entry code must lie
        below. This leaves out the zeroed pt_regs of an idle or new task, and the copies on the NMI stack that no
        handler was called with.
        """
        data = memory.read(stack.start, stack.end - stack.start)
        base = stack.start
        if len(data) < stack.end - stack.start:  # some pages are missing: read the upper ones
            base, data = _upper_part(memory, stack)
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        found = []
        for at in range(1, len(words) - 20):
            selector = words[at + _CS] & 0xFFFF
            if selector not in SELECTORS or not _fits(words, at, base + 8 * at, stack):
                continue
            if code.is_entry(words[at - 1]) and code.after_call(words[at - 1]):
                found.append(_frame(base + 8 * at, words[at : at + 21], words[at - 1]))
        return found


def _frame(address: int, words: tuple[int, ...], entry: Optional[int]) -> TrapFrame:
    """Return the TrapFrame of the 21 words."""
    values = dict(zip(_NAMES, words))
    return TrapFrame(address, values["rip"], values["rsp"], _selector(words[_CS]) in _USER_CS, values, entry)


def _selector(word: int) -> int:
    """Return the code segment's selector. Xen's selectors become the kernel's."""
    value = word & 0xFFFF
    return _XEN_PV.get(value, value)


def _fits(words: tuple[int, ...], at: int, address: int, stack: StackRange) -> bool:
    """Return whether the words at index ``at`` can be saved registers."""
    flags, sp, ss = words[at + _FLAGS], words[at + _SP], words[at + _SS] & 0xFFFF
    if flags & _FLAGS_SET != _FLAGS_SET or flags & _FLAGS_CLEAR:
        return False
    if _selector(words[at + _CS]) != _KERNEL_CS:
        return sp < 1 << 56 and (ss in _USER_SS or ss >= 0xE000)
    if sp >> 47 != 0x1FFFF and sp >> 56 != 0xFF:
        return False
    if ss not in _KERNEL_SS and ss < 0xE000:
        return False
    if sp not in stack:
        return True  # the processor or the entry code changed stacks
    return 0 <= (sp & ~0xF) - (address + _SIZE) <= _MOST_GAP


def _upper_part(memory: Memory, stack: StackRange) -> tuple[int, bytes]:
    """Return (start, data) of the stack's upper pages, down to the first page that is missing."""
    start = stack.end
    data = b""
    while start > stack.start:
        lower = max(stack.start, (start - 1) & ~0xFFF)
        piece = memory.read(lower, start - lower)
        if len(piece) < start - lower:
            break
        start, data = lower, piece + data
    return start, data
