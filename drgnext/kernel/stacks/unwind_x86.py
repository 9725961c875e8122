"""x86-64: from a frame to its caller by the kernel's own tables (ORC), as arch/x86/kernel/unwind_orc.c does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Optional

from dmods._engine import disassemble
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks import orc
from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.code_names import Function
from drgnext.kernel.stacks.frames import Frame, Step, bad_jump
from drgnext.kernel.stacks.traps.x86_64 import SELECTORS, X86_64

_LARGEST_FRAME = 1 << 10  # bytes, of a function that has no tables
_MOST_STEPS = 128
_PROLOGUE = 32  # instructions at most
_SAME = ("rdx", "rdi", "r10", "r13", "rax", "rbp")  # unchanged when only the processor has pushed registers


class OrcUnwinder:
    """An unwinder that uses ORC tables. Where a pc has no table (BPF, trampolines), it tries rbp."""

    def __init__(
        self, memory: Memory, code: KernelCode, function: Callable[[int], Optional[Function]] = lambda _pc: None
    ) -> None:
        """Prepare the unwinder. ``function`` returns the function at an address (:meth:`CodeNames.function`)."""
        self._function = function
        self._memory = memory
        self._code = code
        self._machine = X86_64()

    def step(self, frame: Frame) -> Step:
        """Return the step from a frame to its caller."""
        if frame.exact and not self._code.is_code(frame.pc):
            caller = bad_jump(self._memory, self._code, frame, "rsp") or self._after_smashed_return(frame)
            if caller is not None:
                return Step(caller)
        rule = self._code.rule(frame.pc if frame.exact else frame.pc - 1)
        if rule is not None and rule.kind == orc.UNDEFINED:
            caller = self._by_call(frame)
            if caller is not None:
                return Step(caller)
        if rule is None or rule.kind == orc.UNDEFINED:
            return self._by_frame_pointer(frame, "no tables" if self._code.is_code(frame.pc) else "not code")
        if rule.kind == orc.END_OF_STACK:
            return Step(end="outermost")
        previous = self._previous(frame, rule)
        if previous is None:
            return Step(end="unreadable")
        return self._call(frame, rule, previous) if rule.kind == orc.CALL else self._trap(frame, rule, previous)

    def _trap(self, frame: Frame, rule: orc.Rule, at: int) -> Step:
        """Return the registers that the entry code at ``frame.pc`` saved."""
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
        """Return the stack pointer before the call, or for a trap the address of the saved registers.

        None if unknown.
        """
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
        """Return the frame that called, whose stack pointer is ``previous``."""
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
        # kretprobes and the function graph tracer replace the return address with their own. A stray write may
        # replace it, too.
        sound = rule.exact or self._code.after_call(pc) or self._has_no_call(pc)
        return Step(Frame(pc, previous, rule.exact, "unwind" if sound else "no call", registers))

    def _after_smashed_return(self, frame: Frame) -> Optional[Frame]:
        """Return a frame further out, after a return to where no code is, or None.

        A call would have left its return address at the top of the stack (bad_jump). So a function's return address was
        overwritten, and its caller is lost. The exception has reused the word that held it. The next return address
        counts if unwinding from there reaches the entry from user space or the outermost frame.
        """
        for address in range(frame.sp, frame.sp + _LARGEST_FRAME, 8):
            pc = self._memory.word(address)
            if pc is None:
                return None
            if self._code.is_code(pc) and self._code.after_call(pc):
                found = Frame(pc, address + 8, False, "smashed return", {"rip": pc, "rsp": address + 8})
                if self._reaches_the_end(found):
                    return found
        return None

    def _reaches_the_end(self, frame: Frame) -> bool:
        """Return whether unwinding by tables alone leads to the entry from user space or to the outermost frame."""
        for _count in range(_MOST_STEPS):
            step = self.step(frame)
            if step.trap is not None or step.frame is None:
                return step.end == "outermost" if step.trap is None else step.trap.user
            if step.frame.found != "unwind" or step.frame.sp <= frame.sp:
                return False
            frame = step.frame
        return False

    def _by_call(self, frame: Frame) -> Optional[Frame]:
        """Return the caller of a function that objtool leaves out of the tables, or None.

        __crash_kexec() is one (STACK_FRAME_NON_STANDARD, kernel/kexec_core.c). The caller's return address is the first
        one above the stack pointer that belongs to a direct call of this very function.
        """
        function = self._function(frame.pc if frame.exact else frame.pc - 1)
        if function is None:
            return None
        target = re.compile(rf"(data16 )?callq? +{function.start:#x}\b")
        for address in range(frame.sp, frame.sp + _LARGEST_FRAME, 8):
            pc = self._memory.word(address)
            if pc is None:
                return None
            call = self._code.call_before(pc) if self._code.is_code(pc) else None
            if call is not None and target.match(call[1]):
                registers = {"rip": pc, "rsp": address + 8}
                bp = self._callers_bp(frame, function.start, address)
                return Frame(pc, address + 8, False, "unwind", registers if bp is None else {**registers, "rbp": bp})
        return None

    def _callers_bp(self, frame: Frame, start: int, back: int) -> Optional[int]:
        """Return the caller's rbp. The return address of the function that starts at ``start`` is at ``back``.

        The function has pushed rbp below it, or has kept rbp.
        """
        pushed = 0
        for _count in range(_PROLOGUE):
            code = self._memory.read(start, 15)
            decoded = disassemble("x86_64", code, start) if code else None
            if decoded is None:
                return None
            text, length = decoded
            if text.startswith(("ret", "j")) or re.match(r"sub\w* .*,%rsp$", text):
                break
            if text.startswith("push"):
                pushed += 1
                if text.endswith("%rbp"):
                    return self._memory.word(back - 8 * pushed)
            start += length
        return frame.registers.get("rbp")

    def _has_no_call(self, pc: int) -> bool:
        """Return whether a return address is right although no call can be seen before it.

        There are three cases. The memory is not in the dump. It was initialization code, freed since. Or it is the
        outermost frame, to which head_64.S jumps with a far return.
        """
        rule = self._code.rule(pc - 1)
        outermost = rule is not None and rule.kind == orc.END_OF_STACK
        return outermost or self._code.is_freed(pc - 1) or not self._memory.read(pc - 1, 1)

    def _by_frame_pointer(self, frame: Frame, end: str) -> Step:
        """Return the caller that rbp leads to, or ``end``."""
        bp = frame.registers.get("rbp")
        if bp is not None and bp & 7 == 1:
            # Kernels that unwind by frame pointers mark pt_regs with bit 0 (ENCODE_FRAME_POINTER, asm/frame.h).
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
