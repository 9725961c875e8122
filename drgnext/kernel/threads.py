"""The threads of a kernel with their stacks: what panicinfo, findstack, stacks and trapframe share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from dmods.errors import UserError
from dmods.kept import kept
from drgnext.kernel.code import KernelCode
from drgnext.kernel.places import Function, Places
from drgnext.kernel.stackmap import cpu_stacks, thread_size
from drgnext.kernel.stacks import FRAME_LIMIT, UNSURE, WHOLE, Frame, Stack, Unwinder, Walker
from drgnext.kernel.tasks import Task, Tasks
from drgnext.kernel.traps import Machine, StackRange, TrapFrame, aarch64
from drgnext.kernel.traps.x86_64 import X86_64
from drgnext.kernel.unwind_aarch64 import RecordUnwinder
from drgnext.kernel.unwind_x86 import OrcUnwinder
from drgnext.kernel.words import Pages

if TYPE_CHECKING:
    from drgnext.kernel.target import Kernel


class Threads:
    """Made once for a kernel: see :func:`of`. ``notes`` says what is missing in the dump."""

    def __init__(self, kernel: Kernel) -> None:
        from drgn import Architecture, FaultError

        prog = kernel.prog
        self.prog = prog
        self.memory = Pages(_kernel_only(prog.read), FaultError)
        names = {Architecture.X86_64: "x86_64", Architecture.AARCH64: "aarch64"}
        name = names.get(prog.platform.arch)
        if name is None:
            raise UserError(
                f"stacks of a kernel for {prog.platform.arch.name} are not known to dmods",
                "it knows x86_64 and aarch64; drgn's own: prog.stack_trace(PID)",
            )
        self.code = KernelCode(prog, self.memory, name)
        self.machine: Machine
        unwinder: Unwinder
        if name == "x86_64":
            self.machine = X86_64()
            unwinder = OrcUnwinder(self.memory, self.code)
        else:
            self.machine = arm = _aarch64(prog)
            unwinder = RecordUnwinder(self.memory, self.code, arm, self._function)
        self.places = Places(prog, self.code, self.machine.code_step)
        self.tasks = Tasks(prog, self.memory)
        self.stack_size = thread_size(prog)
        self._kept: Optional[tuple[dict[str, int], int]] = None
        self.walker = Walker(self.memory, self.machine, self.code, unwinder, cpu_stacks(prog))

    def _function(self, address: int) -> Optional[Function]:
        return self.places.function(address)

    @property
    def notes(self) -> list[str]:
        return [*self.code.notes, *self.tasks.notes]

    def own_stack(self, task: Task) -> StackRange:
        return StackRange("task", task.stack, task.stack + self.stack_size)

    def stack(self, task: Task, limit: int = FRAME_LIMIT) -> Stack:
        """The task's stack: from its CPU's registers if it was running, else from where it was switched out."""
        first = self._running(task) if task.on_cpu else self._switched_out(task)
        if first is None:
            return Stack([], "no registers" if task.on_cpu else "unreadable", None)
        if first.found == "cpu" and self._is_user(first):
            return Stack([], "user mode", None)
        return self.walker.walk(first, self.own_stack(task), limit)

    def task_object(self, task: Task) -> Any:
        from drgn import Object

        return Object(self.prog, "struct task_struct *", task.address)

    def cpu_of(self, task: Task) -> Optional[int]:
        from drgn import FaultError
        from drgn.helpers.linux.sched import task_cpu

        try:
            return int(task_cpu(self.task_object(task)))
        except (FaultError, LookupError):
            return None

    def traps_by_scan(self, task: Task, stack: Stack) -> tuple[list[TrapFrame], list[TrapFrame]]:
        """Saved registers found by looking at every word of the task's own stack, and of its CPU's if it was running:
        those in use, and those left over from before: the walk does not come by. (Below the stack pointer, on a stack
        that ``stack`` does not lead to, or in a part of a frame that its function has not written: 7.2's do_syscall_64
        has 700 bytes of it.)

        Where the walk stopped short, or guessed, nobody knows what is in use: all are.
        """
        ranges = [self.own_stack(task)]
        if task.on_cpu:
            cpu = self.cpu_of(task)
            ranges += [one for one in self.walker.shared if one.name.rpartition(" ")[2] == str(cpu)]
        sure = stack.end in WHOLE and all(frame.found not in UNSURE for frame in stack.frames)
        walked = {trap.address for trap in stack.traps}
        used: list[TrapFrame] = []
        left: list[TrapFrame] = []
        for one in ranges:
            lowest = min((frame.sp for frame in stack.frames if one.start <= frame.sp <= one.end), default=one.end)
            for trap in self.machine.scan(self.memory, one, self.code):
                stale = trap.address not in walked if sure else trap.address < lowest and stack.end in WHOLE
                (left if stale else used).append(trap)
        return used, left

    def _running(self, task: Task) -> Optional[Frame]:
        """The registers that the dump has of its CPU."""
        from drgn import FaultError

        try:
            frame = self.prog.stack_trace(self.task_object(task))[0]
            known, pc, sp = frame.registers(), frame.pc, frame.sp
        except (FaultError, LookupError, ValueError, IndexError):
            return None
        registers = {_OTHER_NAMES.get(name, name): value for name, value in known.items()}
        pc_name, sp_name = _PC_SP[self.machine.name]
        return Frame(pc, sp, True, "cpu", {**registers, pc_name: pc, sp_name: sp})

    def _is_user(self, frame: Frame) -> bool:
        if self.machine.name == "x86_64":
            return frame.registers.get("cs", 0) & 3 == 3
        return aarch64.is_user(frame.registers.get("pstate", 5))

    def _switched_out(self, task: Task) -> Optional[Frame]:
        """Where __switch_to left it: the registers that it keeps, and the return address of its call."""
        names, address, size = self._kept_registers(task)
        words = {name: self.memory.word(address + offset) for name, offset in names.items()}
        pc_name, sp_name = _PC_SP[self.machine.name]
        pc = words[pc_name]
        if pc is None:
            return None
        registers = {name: value for name, value in words.items() if value is not None}
        sp = registers.setdefault(sp_name, task.sp + size)
        # A task that has not run yet begins at the start of a function.
        return Frame(pc, sp, not self.code.after_call(pc), "switched out", registers)

    def _kept_registers(self, task: Task) -> tuple[dict[str, int], int, int]:
        """Offsets by register, where they count from, and the size of it all."""
        if self._kept is None:
            if self.machine.name == "x86_64":
                kind = self.prog.type("struct inactive_task_frame")
                members = {member.name: member.bit_offset // 8 for member in kind.members}
                names = {"ret_addr": "rip", "bp": "rbp", "bx": "rbx"}
                self._kept = {names.get(name, name): offset for name, offset in members.items()}, kind.size
            else:
                context = self.prog.type("struct cpu_context")
                members = {member.name: member.bit_offset // 8 for member in context.members}
                self._kept = {{"fp": "x29"}.get(name, name): at for name, at in members.items()}, context.size
        offsets, size = self._kept
        if self.machine.name == "x86_64":
            return offsets, task.sp, size
        return offsets, task.address + self.prog.type("struct task_struct").member("thread").bit_offset // 8, 0


def _kernel_only(read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """A dump by QEMU gives all its memory the virtual address 0 and up (p_vaddr), and drgn believes it."""

    def checked(address: int, size: int) -> bytes:
        if address < 1 << 63:
            raise ValueError(f"{address:#x} is no kernel address")
        return read(address, size)

    return checked


_PC_SP = {"x86_64": ("rip", "rsp"), "aarch64": ("pc", "sp")}
_OTHER_NAMES = {"rflags": "eflags"}


@kept
def of(kernel: Kernel) -> Threads:
    """The kernel's threads; the same object for as long as it has not moved."""
    return Threads(kernel)


def _aarch64(prog: Any) -> aarch64.Aarch64:
    """Its layout, from debug information."""
    from drgn import sizeof

    try:
        regs = prog.type("struct pt_regs")
        frame = regs.member("stackframe")
    except LookupError:
        return aarch64.Aarch64()
    return aarch64.Aarch64(int(regs.size), frame.bit_offset // 8, sizeof(frame.type) > 16)
