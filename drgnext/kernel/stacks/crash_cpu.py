"""The innermost frames of a CPU in a dump that a crash kernel made (kexec, /proc/vmcore).

After an oops, crash_kexec() saves the registers of the trap for that CPU, not its own (crash_setup_regs, asm/kexec.h).
The other CPUs save what their NMI interrupted. So the first frame of such a CPU is a trapped one. Its pt_regs and the
frames of the functions that died are still on the stack, below the stack pointer or on an exception stack.

After a plain call of panic() the registers are those of __crash_kexec(). ORC may have no rule for that pc: the compiler
may place the label of _THIS_IP_ where objtool sees no code that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks.code_names import CodeNames
from drgnext.kernel.stacks.frames import Frame, Unwinder
from drgnext.kernel.stacks.traps import CodeMap, Machine, StackRange, TrapFrame
from drgnext.kernel.stacks.traps.aarch64 import code_address

#: The last functions that run in a kernel before it hands over to the crash kernel, or stops a CPU for it. Their return
#: addresses are on the stack only after that.
_LAST = frozenset(
    {
        *("machine_kexec", "__crash_kexec", "crash_kexec", "crash_nmi_callback", "kdump_nmi_callback"),
        *("ipi_cpu_crash_stop", "nmi_handle", "default_do_nmi"),
    }
)
_PC = {"x86_64": "rip", "aarch64": "pc"}
_MOST_FRAMES = 64


class Inner(NamedTuple):
    """The frames that the dump's registers leave out: those called after the trap, and the trapped frame itself."""

    frames: list[Frame]
    trapped: Frame


class CrashCpu:
    """Finds the frames of a CPU that a crash kernel's dump shows as it trapped."""

    def __init__(self, memory: Memory, machine: Machine, code: CodeMap, unwinder: Unwinder, places: CodeNames) -> None:
        """Prepare the search."""
        self._memory = memory
        self._machine = machine
        self._code = code
        self._unwinder = unwinder
        self._places = places

    def inner(self, first: Frame, stacks: Iterable[StackRange], task: int = 0) -> Inner:
        """Return the frames below ``first`` on one of the stacks. ``task`` is the address of the task that runs there.

        ``first`` comes back unchanged, and without frames, if its registers are not saved on a stack as well. Then the
        CPU was not trapped, or the dump lacks that stack.
        """
        for stack in stacks:
            for trap in self._copies(first, stack):
                frames = self._called_after(trap, stack, task)
                return Inner(frames, first._replace(trap=trap))
        return Inner([], first)

    def _copies(self, first: Frame, stack: StackRange) -> Iterator[TrapFrame]:
        """Yield saved registers on the stack that are the same as those of ``first``, each register.

        On x86 a return address into the entry code must lie below them. This leaves out copies that functions make,
        like __crash_kexec() itself. On arm64 the frame record does it.
        """
        if self._machine.name != "x86_64":
            yield from (trap for trap in self._machine.scan(self._memory, stack, self._code) if _same(trap, first))
            return
        offset = 8 * list(self._machine.registers).index(_PC[self._machine.name])
        wanted = first.pc.to_bytes(8, "little")
        data = self._memory.read(stack.start, stack.end - stack.start)
        at = data.find(wanted)
        while at >= 0:
            address = stack.start + at - offset
            if not address & 7 and address - 8 >= stack.start:
                trap = self._machine.read(self._memory, address)
                if trap is not None and _same(trap, first) and self._from_entry_code(trap):
                    yield trap
            at = data.find(wanted, at + 1)

    def _from_entry_code(self, trap: TrapFrame) -> bool:
        """Return whether the word below the registers is a return address into the entry code."""
        return trap.entry is not None and self._code.is_entry(trap.entry) and self._code.after_call(trap.entry)

    def _called_after(self, trap: TrapFrame, stack: StackRange, task: int) -> list[Frame]:
        """Return the frames from the innermost one that the stack still has to the entry code that saved ``trap``.

        A return address into one of the last functions counts if unwinding from there leads to ``trap``.
        """
        for address in range(stack.start, trap.address, 8):
            word = self._memory.word(address)
            pc = word if word is None or self._machine.name == "x86_64" else code_address(word)
            if pc is None or not self._code.is_code(pc) or not self._code.after_call(pc):
                continue
            function = self._places.function(pc - 1)
            if function is None or function.name.partition(".")[0] not in _LAST:
                continue
            frames = self._to(self._frame(pc, address), trap, task)
            if frames:
                return frames
        return []

    def _frame(self, pc: int, address: int) -> Frame:
        """Return the frame that runs on at the return address ``pc``, which lies at ``address``."""
        registers = {_PC[self._machine.name]: pc}
        if self._machine.name != "x86_64":
            registers["x29"] = self._memory.word(address - 8) or 0
        return Frame(pc, address + 8, False, "left behind", registers)

    def _to(self, first: Frame, trap: TrapFrame, task: int) -> list[Frame]:
        """Return the frames from ``first`` to the entry code that saved ``trap``, [] if there is no way."""
        frames = [first]
        while len(frames) < _MOST_FRAMES:
            step = self._unwinder.step(frames[-1], task)
            if step.trap is not None:
                return frames if step.trap.address == trap.address else []
            if step.frame is None or step.frame.found != "unwind" or step.frame.sp <= frames[-1].sp:
                return []
            frames.append(step.frame)
        return []


def _same(trap: TrapFrame, first: Frame) -> bool:
    """Return whether each register that both have is the same. The pc and the stack pointer are always compared."""
    common = trap.registers.keys() & first.registers.keys() - {"orig_rax", "cs", "ss"}
    return (trap.pc, trap.sp) == (first.pc, first.sp) and all(
        trap.registers[name] == first.registers[name] for name in common
    )
