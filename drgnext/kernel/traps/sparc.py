"""Saved registers of SPARC V9: ``struct regs`` of Solaris and illumos, ``struct pt_regs`` of Linux.

A trap leaves %o7 as it was, so a walker that follows %i7 shows the pc of the last call that the interrupted function
made, not where it trapped. The truth is in the structure that the trap handler puts right below the interrupted frame:
at that frame's sp + 0x7ff (the bias of 64-bit stacks, SPARC Compliance Definition 2.4) - 0xa0 (its size, rounded up).
"""

from __future__ import annotations

import struct
from typing import Optional

from drgnext.kernel.traps import CodeMap, StackRange, TrapFrame
from drgnext.kernel.words import Memory

STACK_BIAS = 0x7FF
_SIZE = 0xA0
_GLOBALS_AND_OUTS = (*(f"g{n}" for n in range(1, 8)), *(f"o{n}" for n in range(8)))
_NAMES = ("tstate", *_GLOBALS_AND_OUTS, "pc", "npc", "y")

# Solaris (uts/sparc/v9/sys/privregs.h): tstate, %g1 to %g7, %o0 to %o7, pc, npc, and y in 32 bits.
_SOLARIS = struct.Struct(">18QI")
# Linux (arch/sparc/include/uapi/asm/ptrace.h): %g0 to %g7, %o0 to %o7, tstate, tpc, tnpc, y and a magic number whose
# low nine bits are the trap type.
_LINUX = struct.Struct(">19QII")
_LINUX_MAGIC = 0x57AC6C00
_TSTATE_PRIV = 1 << 10  # the privileged bit of PSTATE, which begins at bit 8 of TSTATE


def address_for(sp: int) -> int:
    """Where the registers are that a trap saved while ``sp`` was the stack pointer (as %sp holds it, biased)."""
    return sp + STACK_BIAS - _SIZE


class Sparc:
    """A :class:`~drgnext.kernel.traps.Machine`."""

    name = "sparc64"
    size = _SIZE
    registers = _NAMES
    code_step = 0  # %o7 and %i7 hold the address of the call itself

    def read(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        data = memory.read(address, _SIZE)
        if len(data) < _SIZE:
            return None
        linux = _LINUX.unpack(data)
        if linux[-1] & ~0x1FF == _LINUX_MAGIC:
            values = {"tstate": linux[16], **dict(zip(_GLOBALS_AND_OUTS, linux[1:16]))}
            values.update(pc=linux[17], npc=linux[18], y=linux[19])
        else:
            values = dict(zip(_NAMES, _SOLARIS.unpack_from(data)))
        return TrapFrame(address, values["pc"], values["o6"], not values["tstate"] & _TSTATE_PRIV, values)

    def scan(self, memory: Memory, stack: StackRange, code: CodeMap) -> list[TrapFrame]:
        """Frames are multiples of 16 bytes; npc follows pc unless a branch was in flight, and %o6 tells its own
        place."""
        found = []
        for address in range(stack.start + (-stack.start % 16), stack.end - _SIZE + 1, 16):
            frame = self.read(memory, address)
            if frame is None or frame.user or frame.pc & 3 or frame.registers["npc"] & 3:
                continue
            if address_for(frame.sp) == address and code.is_code(frame.pc) and code.is_code(frame.registers["npc"]):
                found.append(frame)
        return found
