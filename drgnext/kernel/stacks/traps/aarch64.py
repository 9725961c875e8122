"""struct pt_regs of arm64 (arch/arm64/include/asm/ptrace.h).

What follows the user part differs between releases. So the offset of ``stackframe`` and the total size come from debug
information.

Every exception also leaves a frame record there, for walkers that follow the chain of frame pointers. It is a copy of
x29 and of the pc that trapped, which such a walker takes for a return address. It is all zeros if the exception came
from user space. Since 6.13 it is a pair of zeros and a third word that says which case it is ("arm64: stacktrace:
unwind exception boundaries").
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.process.arch import AARCH64
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks.traps import CodeMap, StackRange, TrapFrame

_USER_PART = struct.Struct("<34Q")  # struct user_pt_regs: x0 to x30, sp, pc, pstate
_RESERVED_PSTATE = 0xFFFFFFFC_00000000  # bits 33 and below are defined as of Armv9.4 (SPSR_EL1)
META_FINAL, META_PT_REGS = 1, 2  # FRAME_META_TYPE_* (asm/stacktrace/frame.h)

# Kernel addresses have all bits above their width set. A signed return address (PAC) has its signature there, but never
# in bit 55, which tells kernel from user addresses.
_WIDTH = 48


@dataclass(frozen=True)
class Aarch64:
    """A :class:`~drgnext.kernel.stacks.traps.Machine` for arm64."""

    size: int = 336  # as in 5.10 to 6.12
    stackframe: int = 304
    meta: bool = False  # whether the record has a third word
    name: str = "aarch64"
    registers: tuple[str, ...] = AARCH64.registers
    code_step: int = 4

    def read(self, memory: Memory, address: int) -> Optional[TrapFrame]:
        """Return the registers saved at ``address``, or None if the dump lacks them."""
        data = memory.read(address, _USER_PART.size)
        if len(data) < _USER_PART.size:
            return None
        values = dict(zip(self.registers, _USER_PART.unpack(data)))
        return TrapFrame(address, values["pc"], values["sp"], is_user(values["pstate"]), values)

    def scan(self, memory: Memory, stack: StackRange, code: CodeMap) -> list[TrapFrame]:
        """Return the saved registers on the stack.

        The frame record shows them: it repeats x29 and pc, or says what it is. The stack pointer before the trap must
        fit, too.
        """
        found = []
        for address in range(stack.start + (-stack.start % 16), stack.end - self.size + 1, 16):
            frame = self.checked(memory, address + self.stackframe, stack)
            if frame is None:
                continue
            # Registers of user space lie at the very top (task_pt_regs). After a jump to where no code is, x30 still
            # tells where it came from.
            kernel = code.is_code(frame.pc) or code.after_call(code_address(frame.registers["x30"]))
            if address + self.size == stack.end if frame.user else kernel:
                found.append(frame)
        return found

    def checked(self, memory: Memory, record: int, stack: Optional[StackRange] = None) -> Optional[TrapFrame]:
        """Return the saved registers that contain the frame record at ``record``.

        Return None for an ordinary record.
        """
        pair = memory.word(record), memory.word(record + 8)
        kind = memory.word(record + 16) if self.meta else None
        frame = self.read(memory, record - self.stackframe)
        if frame is None or frame.registers["pstate"] & _RESERVED_PSTATE:
            return None
        if frame.user:
            final = pair == (0, 0) and (not self.meta or kind == META_FINAL)
            return frame if final and frame.pc and frame.pc >> 55 == 0 and frame.sp >> 55 == 0 else None
        told = (0, 0) if self.meta else (frame.registers["x29"], frame.pc)
        if pair != told or (self.meta and kind != META_PT_REGS) or frame.sp >> 55 != 0x1FF:
            return None
        # kernel_entry saves sp + PT_REGS_SIZE as the stack pointer, unless the exception changed stacks.
        moved = stack is None or frame.sp not in stack
        return frame if moved or frame.sp == frame.address + self.size else None


def is_user(pstate: int) -> bool:
    """Return whether the exception came from user mode: EL0t, or any 32-bit user mode (M[4] set, M[3:0] 0)."""
    return pstate & 0xF == 0


def code_address(value: int) -> int:
    """Return the return address without its signature."""
    if value >> 55 & 1:
        return value | ~((1 << _WIDTH) - 1) & 0xFFFFFFFFFFFFFFFF
    return value & ((1 << 55) - 1)
