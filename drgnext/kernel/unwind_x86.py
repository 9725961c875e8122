"""x86-64: one frame to its caller by the kernel's own tables (ORC), as arch/x86/kernel/unwind_orc.c does."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from drgnext.kernel import orc
from drgnext.kernel.code import KernelCode
from drgnext.kernel.stacks import Frame, Step, bad_jump
from drgnext.kernel.traps.x86_64 import SELECTORS, X86_64
from drgnext.kernel.words import Memory

_SAME = ("rdx", "rdi", "r10", "r13", "rax", "rbp")  # what entry code has not yet changed when only the processor pushed


class OrcUnwinder:
    """Needs a :class:`KernelCode` with tables; where there are none for a pc (BPF, trampolines) it tries rbp."""

    def __init__(self, memory: Memory, code: KernelCode) -> None:
        self._memory = memory
        self._code = code
        self._machine = X86_64()

    def step(self, frame: Frame) -> Step:
        if frame.exact and not self._code.is_code(frame.pc):
            caller = bad_jump(self._memory, self._code, frame, "rsp")
            if caller is not None:
                return Step(caller)
        rule = self._code.rule(frame.pc if frame.exact else frame.pc - 1)
        if rule is None or rule.kind == orc.UNDEFINED:
            return self._by_frame_pointer(frame, "no tables" if self._code.is_code(frame.pc) else "not code")
        if rule.kind == orc.END_OF_STACK:
            return Step(end="outermost")
        previous = self._previous(frame, rule)
        if previous is None:
            return Step(end="unreadable")
        return self._call(frame, rule, previous) if rule.kind == orc.CALL else self._trap(frame, rule, previous)

    def _trap(self, frame: Frame, rule: orc.Rule, at: int) -> Step:
        """``frame.pc`` is in the entry code that saved the registers."""
        if rule.kind == orc.REGS:
            trap = self._machine.read(self._memory, at)
        else:
            trap = self._machine.read_hardware_part(self._memory, at)
            kept = {name: frame.registers[name] for name in _SAME if name in frame.registers}
            trap = replace(trap, registers={**kept, **trap.registers}) if trap is not None else None
        if trap is None:
            return Step(end="unreadable")
        if trap.registers["cs"] & 0xFFFF not in SELECTORS:
            return Step(end="no registers there")
        return Step(trap=replace(trap, entry=frame.pc))

    def _previous(self, frame: Frame, rule: orc.Rule) -> Optional[int]:
        """The stack pointer before the call; where the registers are, for a trap."""
        if rule.sp == "rsp":
            base: Optional[int] = frame.sp
        else:
            base = frame.registers.get(rule.sp)
        if base is None:
            return None
        value: Optional[int] = base + rule.sp_offset
        if rule.indirect and value is not None:
            value = self._memory.word(value)
        return None if value is None else (value + rule.add) & 0xFFFFFFFFFFFFFFFF

    def _call(self, frame: Frame, rule: orc.Rule, previous: int) -> Step:
        pc = self._memory.word(previous - 8)
        if pc is None:
            return Step(end="unreadable")
        bp = frame.registers.get("rbp")
        if rule.bp == "prev":
            bp = self._memory.word(previous + rule.bp_offset)
        elif rule.bp == "rbp":
            bp = self._memory.word(bp + rule.bp_offset) if bp is not None else None
        registers = {"rip": pc, "rsp": previous}
        if bp is not None:
            registers["rbp"] = bp
        # kretprobes and the function graph tracer put their own in place of the return address; so does who writes
        # wild.
        sound = rule.exact or self._code.after_call(pc) or self._has_no_call(pc)
        return Step(Frame(pc, previous, rule.exact, "unwind" if sound else "no call", registers))

    def _has_no_call(self, pc: int) -> bool:
        """Whether nothing can be said of the code before a return address, or is: memory that is not in the dump; code
        of the start, freed since; and the outermost frame of all, to where head_64.S jumps with a far return."""
        rule = self._code.rule(pc - 1)
        outermost = rule is not None and rule.kind == orc.END_OF_STACK
        return outermost or self._code.is_freed(pc - 1) or not self._memory.read(pc - 1, 1)

    def _by_frame_pointer(self, frame: Frame, end: str) -> Step:
        bp = frame.registers.get("rbp")
        if bp is not None and bp & 7 == 1:
            # Kernels that unwind by frame pointers mark pt_regs so (ENCODE_FRAME_POINTER, asm/frame.h).
            trap = self._machine.read(self._memory, bp - 1)
            if trap is not None and trap.registers["cs"] & 0xFFFF in SELECTORS:
                return Step(trap=replace(trap, entry=frame.pc))
        if bp is None or bp & 7 or bp < frame.sp:
            return Step(end=end)
        pc, outer = self._memory.word(bp + 8), self._memory.word(bp)
        if pc is None or outer is None or not self._code.after_call(pc):
            return Step(end=end)
        registers = {"rip": pc, "rsp": bp + 16, "rbp": outer}
        return Step(Frame(pc, bp + 16, False, "frame pointer", registers))
