"""Why a kernel died: its CPU and task, the first cause, and the registers of the trap."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional

from dmods.base.dataclass import dataclass
from dmods.base.regex import regex
from drgnext.kernel.crash.bare_log import crash_time, read_vmcoreinfo
from drgnext.kernel.crash.klog import PanicLog, oops_notes, read_panic_log
from drgnext.kernel.crash.outcome import has_died
from drgnext.kernel.crash.records import NO_TASK
from drgnext.kernel.crash.whole_log import read_log
from drgnext.kernel.stacks.frames import Frame, Stack
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads
from drgnext.kernel.stacks.traps import TrapFrame

if TYPE_CHECKING:
    from drgn import Program


# The functions that run while a kernel dies. A trap that came during one of them is a consequence.
_PANIC = frozenset({"panic", "vpanic", "nmi_panic", "panic_smp_self_stop", "nmi_panic_self_stop"})
_DYING = _PANIC | {
    *(
        "oops_end",
        "oops_enter",
        "die",
        "die_addr",
        "__die",
        "__die_body",
        "__die_header",
        "page_fault_oops",
        "no_context",
    ),
    *("die_kernel_fault", "arm64_notify_die", "make_task_dead", "crash_kexec", "__crash_kexec", "show_regs"),
    *("__show_regs", "show_trace_log_lvl", "machine_crash_shutdown", "native_machine_crash_shutdown", "bust_spinlocks"),
}
# The suffixes that GCC adds to parts of a function that it moved elsewhere.
_SUFFIX = regex(r"\.(cold|part|isra|constprop|llvm)\b.*")


@dataclass(frozen=True)
class Cause:
    """The known facts about the death of a kernel.

    ``trap`` is the frame of the trap that led to the panic. It has no saved registers if only the dump's own registers
    of the CPU show it. Without a trap (a plain call of panic), ``caller`` is the frame that called panic.
    ``called_from`` is the frame that jumped to where no code is. ``died`` is None where nothing in the dump says
    whether the kernel had died.
    """

    cpu: Optional[int]
    task: Optional[Task]
    stack: Optional[Stack]
    told: PanicLog
    trap: Optional[Frame]
    caller: Optional[Frame]
    called_from: Optional[Frame]
    notes: tuple[str, ...]
    died: Optional[bool] = True


def find_panic(threads: Threads) -> Cause:
    """Return why the kernel died."""
    records, notes = read_log(threads.prog)
    task = crashed_task(threads)
    cpu = _cpu(threads, task)
    callers = [] if task is None else [task.pid]
    told = read_panic_log(records, callers if cpu is None else [*callers, NO_TASK | cpu])
    whole = not notes
    notes += oops_notes(told)
    stack = threads.stack(task) if task is not None else None
    trap = caller = called_from = None
    if stack is not None:
        at = _trap_index(threads, stack.frames)
        if at is None and _shows_the_trap(threads, stack, told):
            at = 0
            notes.append(
                "the registers of the trap are those that the dump has for its CPU: no pt_regs is on the stack"
            )
        trap = stack.frames[at] if at is not None else None
        if at is not None and at + 1 < len(stack.frames) and stack.frames[at + 1].found == "bad jump":
            called_from = stack.frames[at + 1]
        caller = _caller(threads, stack)
    info, panic_cpu = read_vmcoreinfo(threads.prog), _integer(threads.prog, "panic_cpu")
    died = has_died(told, info, records, whole, panic_cpu)
    return Cause(cpu, task, stack, told, trap, caller, called_from, tuple(notes), died)


def trap_kind(threads: Threads, trap: TrapFrame) -> str:
    """Return what kind of trap saved the registers, or "" if it is not known.

    The words are those of the entry code: "page fault", "NMI", "interrupt: sysvec_apic_timer_interrupt", "system call".
    """
    function = threads.places.function(trap.entry) if trap.entry is not None else None
    if function is None:
        return ""
    name = re.sub(r"^(asm_|__)", "", function.name)
    if re.match(r"el\d[th]?_(64_|32_)?sync|el\d_sync", name):
        return "synchronous exception"
    if re.search(r"SYSCALL|SYSENTER|INT80|int80|svc", name):
        return "system call"
    if re.search(r"nmi|fiq", name):
        return "NMI" if "nmi" in name else "FIQ"
    if re.search(r"^el\d\w*_irq|interrupt|sysvec|_ipi|_irq\b|irq_entries|spurious", name):
        return f"interrupt: {name}"
    return re.sub(r"^(exc_|do_)", "", name).replace("_", " ")


def is_exception(threads: Threads, trap: TrapFrame) -> bool:
    """Return whether the instruction at the trap's pc caused the trap.

    An interrupt may come at any instruction, and a system call is not a fault.
    """
    return not re.match(r"interrupt|NMI|FIQ|system call", trap_kind(threads, trap))


def is_dying(threads: Threads, frame: Frame) -> bool:
    """Return whether the frame's function runs only when the kernel dies."""
    return _SUFFIX.sub("", threads.places.name(frame)) in _DYING


def _is_panic(threads: Threads, frame: Frame) -> bool:
    """Return whether the frame's function is panic() or a part of it."""
    return _SUFFIX.sub("", threads.places.name(frame)) in _PANIC


def _trap_index(threads: Threads, frames: list[Frame]) -> Optional[int]:
    """Return the index of the trap that led to the death, or None.

    It is the first trap further out than the outermost dying function: that function was called for it. Traps further
    in came later. Traps even further out were only interrupted.
    """
    traps = [n for n, frame in enumerate(frames) if frame.trap is not None]
    for dying in reversed([n for n, frame in enumerate(frames) if is_dying(threads, frame)]):
        # There may be no trap further out: a task that dies of an oops (make_task_dead) has lost its earlier stack.
        outer = next((n for n in traps if n > dying), None)
        if outer is not None:
            return outer
    # A crash kernel's dump shows this CPU as it trapped. The frames of the functions that died are not found.
    return 0 if frames and frames[0].found == "cpu" and frames[0].trap is not None else None


def _shows_the_trap(threads: Threads, stack: Stack, told: PanicLog) -> bool:
    """Return whether the first frame is where the CPU trapped, although its pt_regs is not found.

    That is so if an oops started a crash kernel (crash_kexec), which it does before it calls panic().
    """
    if not stack.frames or stack.frames[0].found != "cpu" or told.panic is not None or told.message is None:
        return False
    return crash_time(read_vmcoreinfo(threads.prog)) is not None and not any(
        is_dying(threads, frame) for frame in stack.frames
    )


def _caller(threads: Threads, stack: Stack) -> Optional[Frame]:
    """Return the frame that called panic, or None. It is not known if frames are missing there."""
    frames = stack.frames
    last = max((n for n, frame in enumerate(frames) if _is_panic(threads, frame)), default=None)
    if last is None or last + 1 >= len(frames) or stack.gap_before(last + 1) is not None:
        return None
    return frames[last + 1]


def crashed_task(threads: Threads) -> Optional[Task]:
    """Return the task that panicked, or None if no task did."""
    from drgn import FaultError

    try:
        return threads.tasks.at(int(threads.prog.crashed_thread().object))
    except (ValueError, LookupError, FaultError):
        return None


def _cpu(threads: Threads, task: Optional[Task]) -> Optional[int]:
    """Return the CPU that panicked, or None.

    crashing_cpu stays -1 if no kexec was set up (kernel/panic.c, crash_core.c).
    """
    for name in ("panic_cpu", "crashing_cpu"):
        cpu = _integer(threads.prog, name)
        if cpu is not None and 0 <= cpu < 1 << 16:
            return cpu
    return threads.cpu_of(task) if task is not None else None


def _integer(prog: Program, name: str) -> Optional[int]:
    """Return the value of a kernel variable, or None if it cannot be read."""
    from drgn import FaultError

    try:
        value = prog[name]
        return int(value.counter if hasattr(value, "counter") else value)
    except (LookupError, FaultError, TypeError, ValueError):
        return None
