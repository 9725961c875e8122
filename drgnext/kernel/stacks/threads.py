"""The threads of a kernel with their stacks. panicinfo, findstack, stacks and trapframe share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from dmods.base.cached import cached
from dmods.errors import UserError
from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.dump.cpu_notes import CpuNotes, read_cpu_notes
from drgnext.kernel.dump.machine import architecture
from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.code_names import CodeNames, Function
from drgnext.kernel.stacks.crash_cpu import CrashCpu
from drgnext.kernel.stacks.debug_frame import DebugFrames
from drgnext.kernel.stacks.frames import FRAME_LIMIT, UNSURE, WHOLE, Frame, Stack, StackWalker, Unwinder
from drgnext.kernel.stacks.returns import ReturnAddresses
from drgnext.kernel.stacks.stack_ranges import cpu_stacks, thread_size
from drgnext.kernel.stacks.tasks import Task, Tasks
from drgnext.kernel.stacks.traps import Machine, StackRange, TrapFrame, aarch64
from drgnext.kernel.stacks.traps.x86_64 import X86_64
from drgnext.kernel.stacks.unwind_aarch64 import RecordUnwinder
from drgnext.kernel.stacks.unwind_x86 import OrcUnwinder

if TYPE_CHECKING:
    from drgn import Object, Program

    from drgnext.kernel.dump.target import Kernel


class Threads:
    """The threads of one kernel, made once: see :func:`kernel_threads`. ``notes`` say what the dump lacks."""

    def __init__(self, kernel: Kernel) -> None:
        """Prepare the unwinder for this kernel. Raises UserError for a machine that dmods does not know."""
        from drgn import Architecture, FaultError

        prog = kernel.prog
        self.prog = prog
        self.memory = Pages(_kernel_only(prog.read), FaultError)
        names = {Architecture.X86_64: "x86_64", Architecture.AARCH64: "aarch64"}
        arch = architecture(prog)
        name = names.get(arch) if arch is not None else None
        if name is None:
            machine = arch.name if arch is not None else "an unknown machine"
            raise UserError(
                f"dmods does not know the stacks of a kernel for {machine}",
                "use drgn's own: prog.stack_trace(PID). dmods knows x86_64 and aarch64",
            )
        self.code = KernelCode(prog, self.memory, name)
        returns = ReturnAddresses(prog, self.memory)
        self.machine: Machine
        unwinder: Unwinder
        if name == "x86_64":
            self.machine = X86_64()
            unwinder = OrcUnwinder(self.memory, self.code, returns, self._function, DebugFrames(prog, self.code).caller)
        else:
            self.machine = arm = _aarch64(prog)
            unwinder = RecordUnwinder(self.memory, self.code, arm, self._function, returns)
        self.places = CodeNames(prog, self.code, self.machine.code_step)
        self.tasks = Tasks(prog, self.memory)
        self.stack_size = thread_size(prog)
        self._kept: Optional[tuple[dict[str, int], int]] = None
        self.kernel = kernel
        self._path = kernel.path
        self._noted: Optional[CpuNotes] = None
        self.walker = StackWalker(self.memory, self.machine, self.code, unwinder, cpu_stacks(prog))
        self._of_cpu: Optional[dict[str, list[StackRange]]] = None  # by the CPU's number
        self._crash_cpu = CrashCpu(self.memory, self.machine, self.code, unwinder, self.places)

    def _function(self, address: int) -> Optional[Function]:
        """Return the function that holds the address, or None."""
        return self.places.function(address)

    @property
    def notes(self) -> list[str]:
        """Return what the dump lacks, one line each."""
        old = [] if hasattr(self.prog, "source_location") else [_NO_LINES]
        return [*self.code.notes, *self.code.made.notes, *self.tasks.notes, *old]

    def own_stack(self, task: Task) -> StackRange:
        """Return the stack of the task itself."""
        return StackRange("task", task.stack, task.stack + self.stack_size)

    def stack(self, task: Task, limit: int = FRAME_LIMIT) -> Stack:
        """Return the task's stack.

        It starts at the registers of the task's CPU if the task was running, otherwise where the task was switched out.
        """
        first = self._running(task) if task.on_cpu else self._switched_out(task)
        if first is None:
            return Stack([], "no registers" if task.on_cpu else "unreadable", None)
        if first.found == "cpu" and self._is_user(first):
            return Stack([], "user mode", None)
        # A host's notes have what the CPU does now: the same registers on its stack are left from an NMI that is over.
        if first.found != "cpu" or self._dumped_by_host():
            return self.walker.walk(first, self.own_stack(task), limit, task.address)
        inner = self._crash_cpu.inner(first, self._stacks_of(task), task.address)
        stack = self.walker.walk(inner.trapped, self.own_stack(task), limit, task.address)
        frames = [*inner.frames, *stack.frames]
        gaps = tuple(gap._replace(before=gap.before + len(inner.frames)) for gap in stack.gaps)
        if len(frames) <= limit:
            return Stack(frames, stack.end, stack.user, gaps)
        return Stack(frames[:limit], "limit", None, tuple(gap for gap in gaps if gap.before < limit))

    def _stacks_of(self, task: Task) -> list[StackRange]:
        """Return the stacks that a task may use: its own and, if it was running, those of its CPU."""
        ranges = [self.own_stack(task)]
        if task.on_cpu:
            if self._of_cpu is None:
                self._of_cpu = {}
                for one in self.walker.shared:
                    self._of_cpu.setdefault(one.name.rpartition(" ")[2], []).append(one)
            ranges += self._of_cpu.get(str(self.cpu_of(task)), [])
        return ranges

    def task_object(self, task: Task) -> Object:
        """Return the task as a drgn object, a ``struct task_struct *``."""
        from drgn import Object

        return Object(self.prog, "struct task_struct *", task.address)

    def cpu_of(self, task: Task) -> Optional[int]:
        """Return the task's CPU, or None if the dump lacks it."""
        from drgn import FaultError
        from drgn.helpers.linux.sched import task_cpu

        try:
            return int(task_cpu(self.task_object(task)))
        except (FaultError, LookupError):
            return None

    def traps_by_scan(self, task: Task, stack: Stack) -> tuple[list[TrapFrame], list[TrapFrame]]:
        """Return the saved registers that a look at every word finds: (those in use, those left from before).

        The words are those of the task's own stack, and of its CPU's stacks if it was running. Leftover registers are
        those that the walk did not reach: below the stack pointer, on a stack that ``stack`` does not lead to, or in a
        part of a frame that its function has not written. (7.2's do_syscall_64 has 700 bytes of it.)

        If the walk stopped early or guessed, nothing tells what is in use. Then all count as in use.
        """
        ranges = self._stacks_of(task)
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
        """Return the first frame of a running task, from its CPU's registers in the dump, or None."""
        if self._noted is None:
            self._noted = read_cpu_notes(self._path)
        noted = self._noted.running(task.pid, self.cpu_of(task))
        if noted is None:
            return self._running_by_drgn(task)
        registers = {name: value for name, value in noted.registers.items() if name != "orig_rax"}  # QEMU writes 0
        return Frame(noted.pc, noted.sp, True, "cpu", registers)

    def _dumped_by_host(self) -> bool:
        """Return whether the registers of CPUs are a host's notes (QEMU), not those that a dying kernel saved."""
        return self._noted is not None and bool(self._noted.cpus) and not self._noted.by_kernel

    def _running_by_drgn(self, task: Task) -> Optional[Frame]:
        """Return the same frame from drgn. It unwinds the whole stack for that, and sorts its ORC table first."""
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
        """Return whether the registers are those of user mode."""
        if self.machine.name == "x86_64":
            return frame.registers.get("cs", 0) & 3 == 3
        return aarch64.is_user(frame.registers.get("pstate", 5))

    def _switched_out(self, task: Task) -> Optional[Frame]:
        """Return the first frame of a task at the place where __switch_to left it, or None.

        It has the registers that __switch_to keeps, and the return address of its call.
        """
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
        """Return (offset of each register that __switch_to keeps, base address, size of the structure)."""
        if self._kept is None:
            if self.machine.name == "x86_64":
                saved = self.prog.type("struct inactive_task_frame")
                names = {"ret_addr": "rip", "bp": "rbp", "bx": "rbx"}
            else:
                saved = self.prog.type("struct cpu_context")
                names = {"fp": "x29"}
            members = {member.name: member.bit_offset // 8 for member in saved.members or () if member.name}
            self._kept = {names.get(name, name): offset for name, offset in members.items()}, saved.size or 0
        offsets, size = self._kept
        if self.machine.name == "x86_64":
            return offsets, task.sp, size
        return offsets, task.address + self.prog.type("struct task_struct").member("thread").bit_offset // 8, 0


def _kernel_only(read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """Return ``read``, restricted to kernel addresses.

    A dump by QEMU gives all its memory virtual addresses from 0 on (p_vaddr), and drgn uses them.
    """

    def checked(address: int, size: int) -> bytes:
        if address < 1 << 63:
            raise ValueError(f"{address:#x} is not a kernel address")
        return read(address, size)

    return checked


_NO_LINES = "this drgn is older than 0.1.0: lines of source are missing (pip install --upgrade drgn)"
_PC_SP = {"x86_64": ("rip", "rsp"), "aarch64": ("pc", "sp")}
_OTHER_NAMES = {"rflags": "eflags"}


@cached
def kernel_threads(kernel: Kernel) -> Threads:
    """Return the kernel's threads. It is the same object until the kernel has run."""
    return Threads(kernel)


def _aarch64(prog: Program) -> aarch64.Aarch64:
    """Return the layout of arm64's saved registers, from debug information."""
    from drgn import sizeof

    try:
        regs = prog.type("struct pt_regs")
        frame = regs.member("stackframe")
    except LookupError:
        return aarch64.Aarch64()
    return aarch64.Aarch64(regs.size or 0, frame.bit_offset // 8, sizeof(frame.type) > 16)
