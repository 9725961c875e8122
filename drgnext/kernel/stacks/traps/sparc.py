"""Saved registers of SPARC V9: ``struct regs`` of Solaris and illumos, ``struct pt_regs`` of Linux.

A trap leaves %o7 unchanged. So a walker that follows %i7 shows the pc of the last call that the interrupted function
made, not where it trapped. The trap handler saves the right pc in the structure directly below the interrupted frame.
Its address is that frame's sp + 0x7ff (the bias of 64-bit stacks, SPARC Compliance Definition 2.4) - 0xa0 (its size,
rounded up).
"""

from __future__ import annotations

import struct
from typing import Optional

from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks.traps import CodeMap, StackRange, TrapFrame

STACK_BIAS = 0x7FF
_SIZE = 0xA0
_GLOBALS_AND_OUTS = (*(f"g{n}" for n in range(1, 8)), *(f"o{n}" for n in range(8)))
_NAMES = ("tstate", *_GLOBALS_AND_OUTS, "pc", "npc", "y")

# Solaris (uts/sparc/v9/sys/privregs.h): tstate, %g1 to %g7, %o0 to %o7, pc, npc, and y in 32 bits.
_SOLARIS = struct.Struct(">18QI")
# Linux (arch/sparc/include/uapi/asm/ptrace.h): %g0 to %g7, %o0 to %o7, tstate, tpc, tnpc, y and a magic number. The
# low nine bits of the magic number are the trap type.
_LINUX = struct.Struct(">19QII")
_LINUX_MAGIC = 0x57AC6C00
_TSTATE_PRIV = 1 << 10  # the privileged bit of PSTATE, which begins at bit 8 of TSTATE


def address_for(sp: int) -> int:
    """Return the address of the registers that a trap saved. ``sp`` is %sp at the trap, with its bias."""
    return sp + STACK_BIAS - _SIZE


class Sparc:
    """A :class:`~drgnext.kernel.stacks.traps.Machine` for SPARC V9."""

    name = "sparc64"
    size = _SIZE
    registers = _NAMES
    code_step = 0  # %o7 and %i7 hold the address of the call itself

    def read(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        """Return the registers saved at ``address``, or None if the dump lacks them."""
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
        """Return the saved registers on the stack, at multiples of 16 bytes.

        pc and npc must be code, and %o6 must lead to the same address. npc need not follow pc, because a branch may be
        in flight.
        """
        found = []
        for address in range(stack.start + (-stack.start % 16), stack.end - _SIZE + 1, 16):
            frame = self.read(memory, address)
            if frame is None or frame.user or frame.pc & 3 or frame.registers["npc"] & 3:
                continue
            if address_for(frame.sp) == address and code.is_code(frame.pc) and code.is_code(frame.registers["npc"]):
                found.append(frame)
        return found
