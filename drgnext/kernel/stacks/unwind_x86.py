"""x86-64: from a frame to its caller by the kernel's own tables (ORC), as arch/x86/kernel/unwind_orc.c does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Optional

from dmods._engine import disassemble
from dmods.base.dataclass import replace
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks import orc
from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.code_names import Function
from drgnext.kernel.stacks.frames import Frame, Step, bad_jump
from drgnext.kernel.stacks.made_code import WITH_FRAME_POINTER, MadeCode
from drgnext.kernel.stacks.returns import ReturnAddresses
from drgnext.kernel.stacks.smashed import lost_calls
from drgnext.kernel.stacks.traps.x86_64 import SELECTORS, X86_64

_LOWEST = 0xFF00_0000_0000_0000  # of the kernel's addresses, with page tables of five levels
_LARGEST_FRAME = 1 << 10  # bytes, of a function that has no tables
_MOST_STEPS = 128
_PROLOGUE = 32  # instructions at most
# The most that a tracer's handler of returns keeps on the stack: a struct pt_regs, and its own address.
_MOST_KEPT = 256
_SAME = ("rdx", "rdi", "r10", "r13", "rax", "rbp")  # unchanged when only the processor has pushed registers


class OrcUnwinder:
    """An unwinder that uses ORC tables. Where a pc has no table (BPF, trampolines), it tries rbp."""

    def __init__(
        self,
        memory: Memory,
        code: KernelCode,
        returns: ReturnAddresses,
        function: Callable[[int], Optional[Function]] = lambda _pc: None,
        described: Callable[[Frame], Optional[Frame]] = lambda _frame: None,
    ) -> None:
        """Prepare the unwinder.

        ``function`` returns the function at an address (:meth:`CodeNames.function`). ``described`` returns the caller
        of a frame in a module by debug information (:meth:`DebugFrames.caller`).
        """
        self._function = function
        self._described = described
        self._memory = memory
        self._code = code
        self._returns = returns
        self._machine = X86_64()
        self._searching = False  # for the caller of an overwritten return address: a search in a search never ends

    def step(self, frame: Frame, task: int) -> Step:
        """Return the step from a frame to its caller."""
        if frame.exact and not self._code.is_code(frame.pc):
            caller = bad_jump(self._memory, self._code, frame, "rsp") or self._after_smashed_return(frame, task)
            if caller is not None:
                return Step(caller)
        inside = frame.pc if frame.exact else frame.pc - 1
        made = self._code.made_at(inside)
        if made is not None and made.probed and made.name == "kprobe_optinsn_page":
            return self._detour(frame, made, task)
        rule = self._code.rule(inside)
        if made is not None and made.module == "bpf" and not frame.exact:
            rule = WITH_FRAME_POINTER
        if self._returns.within(inside) and (rule is None or rule.kind not in (orc.CALL, orc.END_OF_STACK)):
            return self._handler(frame, task)
        if rule is not None and rule.kind == orc.UNDEFINED:
            caller = self._by_call(frame)
            if caller is not None:
                return Step(caller)
        return self._by_rule(frame, rule, task)

    def _by_rule(self, frame: Frame, rule: Optional[orc.Rule], task: int) -> Step:
        """Return the step that the ORC rule at the frame's pc asks for. Without a rule, try the frame pointer."""
        if rule is None:
            caller = self._by_description(frame)
            if caller is not None:
                return Step(caller)
        if rule is None or rule.kind == orc.UNDEFINED:
            return self._by_frame_pointer(frame, "no tables" if self._code.is_code(frame.pc) else "not code", task)
        if rule.kind == orc.END_OF_STACK:
            return Step(end="outermost")
        previous = self._previous(frame, rule)
        if previous is None:
            return Step(end="unreadable")
        if rule.kind == orc.CALL:
            return self._call(frame, rule, previous, task)
        return self._trap(frame, rule, previous)

    def _by_description(self, frame: Frame) -> Optional[Frame]:
        """Return the caller of a frame in a module without tables, by the debug information of its file, or None."""
        caller = self._described(frame)
        return caller if caller is not None and self._code.after_call(caller.pc) else None

    def _handler(self, frame: Frame, task: int) -> Step:
        """Return the frame that a function would have returned to, had tracing not made it return to ``frame``.

        The handler of the tracer keeps registers below the place of the return address, at most a struct pt_regs.
        """
        found = self._returns.nearest(task, frame.pc, frame.sp, _MOST_KEPT)
        if found is None:
            return Step(end="replaced")
        pc, place = found
        registers = {"rip": pc, "rsp": place + 8}
        bp = self._kept_bp(frame, place)
        if bp is not None:
            registers["rbp"] = bp
        through = self._returns.within(frame.pc)
        return Step(Frame(pc, place + 8, False, "unwind", registers, through=through))

    def _kept_bp(self, frame: Frame, place: int) -> Optional[int]:
        """Return rbp as the handler found it: in the struct pt_regs that a kretprobe's handler makes, or as it is."""
        trap = self._machine.read(self._memory, frame.sp)
        if trap is not None and place - frame.sp >= self._machine.size - 16:
            return trap.registers["rbp"]
        return frame.registers.get("rbp")

    def _detour(self, frame: Frame, made: MadeCode, task: int) -> Step:
        """Return the frame of the function whose instruction an optimized kprobe has replaced by a jump to ``made``.

        The detour makes a struct pt_regs and calls optimized_callback() (optprobe_template_func of
        arch/x86/kernel/kprobes/opt.c). Up to 5.11 it has no word for ss.
        """
        size = self._code.made.template
        if frame.exact and size and frame.pc >= made.start + size:
            # The copied instructions run, or the jump back. The stack is as in the function.
            moved = Frame(made.probed, frame.sp, True, "detour", frame.registers)
            return Step(moved)
        trap = self._machine.read(self._memory, frame.sp) if not frame.exact else None
        if trap is None:
            return Step(end="no tables")
        sp = frame.sp + self._machine.size - (8 if trap.registers["rsp"] == frame.sp + self._machine.size - 8 else 0)
        if trap.registers["rsp"] != sp:
            return Step(end="no registers there")
        return Step(Frame(made.probed, sp, True, "detour", {**trap.registers, "rip": made.probed, "rsp": sp}))

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

    def _call(self, frame: Frame, rule: orc.Rule, previous: int, task: int) -> Step:
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
        through = self._returns.replaced_by(pc)
        if through:
            true = self._returns.true(task, pc, (previous - 8,))
            if true is None:
                return Step(end="replaced")
            pc = registers["rip"] = true
        elif pc < _LOWEST and not rule.exact and not self._searching:
            callee = self._function(frame.pc if frame.exact else frame.pc - 1)
            self._searching = True
            lost = self._after_smashed_return(Frame(pc, previous, True, "unwind", registers), task, callee)
            self._searching = False
            # A guess would pass over registers that were saved in between.
            if lost is not None and (lost.found == "overwritten" or lost.lost):
                return Step(lost._replace(instead=pc))
        # A stray write may replace a return address, too.
        sound = rule.exact or self._code.after_call(pc) or self._has_no_call(pc)
        found = "unwind" if sound else "no call"
        return Step(Frame(pc, previous, rule.exact and not through, found, registers, through=through))

    def _after_smashed_return(self, frame: Frame, task: int, callee: Optional[Function] = None) -> Optional[Frame]:
        """Return a frame further out, after a return to where no code is, or None. ``callee`` would return, if known.

        A call would have left its return address at the top of the stack (bad_jump). So a function's return address was
        overwritten, and its caller is lost. The exception has reused the word that held it. The next return address
        counts if unwinding from there reaches the entry from user space or the outermost frame. One that shows who the
        lost caller is comes before all others.
        """
        first = None
        for address in range(frame.sp, frame.sp + _LARGEST_FRAME, 8):
            pc = self._memory.word(address)
            if pc is None:
                break
            if self._code.is_code(pc) and self._code.after_call(pc):
                found = Frame(pc, address + 8, False, "smashed return", {"rip": pc, "rsp": address + 8})
                if self._reaches_the_end(found, task):
                    calls = lost_calls(self._memory, self._code, self._function, frame, found, callee=callee)
                    if len(calls) == 1:
                        registers = {"rip": calls[0], "rsp": frame.sp}
                        if "rbp" in frame.registers:
                            registers["rbp"] = frame.registers["rbp"]
                        return Frame(calls[0], frame.sp, False, "overwritten", registers)
                    if calls:
                        return found._replace(lost=calls)
                    first = first or found
        return first

    def _reaches_the_end(self, frame: Frame, task: int) -> bool:
        """Return whether unwinding by tables alone leads to the entry from user space or to the outermost frame."""
        for _count in range(_MOST_STEPS):
            step = self.step(frame, task)
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

    def _by_frame_pointer(self, frame: Frame, end: str, task: int) -> Step:
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
        through = self._returns.replaced_by(pc) if pc is not None else ""
        if through and pc is not None:
            pc = self._returns.true(task, pc, (bp + 8,))
            end = "replaced" if pc is None else end
        if pc is None or outer is None or not self._code.after_call(pc):
            return Step(end=end)
        registers = {"rip": pc, "rsp": bp + 16, "rbp": outer}
        return Step(Frame(pc, bp + 16, False, "frame pointer", registers, through=through))
