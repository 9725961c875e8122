"""Where stacks are: the one of each task, and those that every CPU has for interrupts and exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.dump.machine import architecture
from drgnext.kernel.stacks.traps import StackRange

if TYPE_CHECKING:
    from drgn import Program


_THREAD_SIZE = 16384  # the size on x86-64 and arm64 without KASAN, used if the dump does not say
_MOST_CPUS = 8192


def thread_size(prog: Program) -> int:
    """Return the size of a task's stack in bytes."""
    try:
        size = int(prog["THREAD_SIZE"])
    except (LookupError, ValueError):
        return _THREAD_SIZE
    return size if 4096 <= size <= 1 << 20 else _THREAD_SIZE


def cpu_stacks(prog: Program) -> list[StackRange]:
    """Return the stacks of all CPUs. Their names end in the CPU's number. A stack that is not found is left out."""
    from drgn import Architecture, FaultError
    from drgn.helpers.linux.cpumask import for_each_possible_cpu

    arch = architecture(prog)
    find = {Architecture.X86_64: _x86_64, Architecture.AARCH64: _aarch64}.get(arch) if arch is not None else None
    found: list[StackRange] = []
    if find is None:
        return found
    try:
        for cpu in for_each_possible_cpu(prog):
            if cpu >= _MOST_CPUS:
                break
            found += [StackRange(f"{name} {cpu}", start, end) for name, start, end in find(prog, cpu)]
    except (FaultError, LookupError, ValueError):
        pass  # keep the stacks found so far
    return found


def _x86_64(prog: Program, cpu: int) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, end) of a CPU's stacks on x86-64."""
    from drgn import sizeof
    from drgn.helpers.linux.percpu import per_cpu

    top = _hardirq_top(prog, cpu)
    if top:
        # Since 5.8 the pointer is 8 below the end (irq_init_percpu_irqstack). IRQ_STACK_SIZE is THREAD_SIZE.
        end = (top + 8) & ~0xFFF if top & 0xFFF else top
        yield "irq", end - thread_size(prog), end
    try:
        stacks = per_cpu(prog["cea_exception_stacks"], cpu)  # since 5.1
    except LookupError:
        return
    if not stacks:
        return
    for member in stacks.type_.type.members or ():
        if member.name and member.name.endswith("_stack"):
            start = int(stacks) + member.bit_offset // 8
            yield member.name[: -len("_stack")], start, start + sizeof(member.type)
    try:
        area = prog.type("struct cpu_entry_area")
        base = int(stacks) - area.member("estacks").bit_offset // 8
        entry = area.member("entry_stack_page")
    except LookupError:
        return
    yield "entry", base + entry.bit_offset // 8, base + entry.bit_offset // 8 + sizeof(entry.type)


def _hardirq_top(prog: Program, cpu: int) -> Optional[int]:
    """Return the pointer to the top of a CPU's interrupt stack, or None."""
    from drgn.helpers.linux.percpu import per_cpu

    # It is a variable up to 6.1 and since 6.15. In between it is a member of pcpu_hot. Up to 5.1 it was irq_stack_ptr.
    for name, member in (("hardirq_stack_ptr", None), ("pcpu_hot", "hardirq_stack_ptr"), ("irq_stack_ptr", None)):
        try:
            variable = per_cpu(prog[name], cpu)
        except LookupError:
            continue
        return int(getattr(variable, member) if member else variable)
    return None


def _aarch64(prog: Program, cpu: int) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, end) of a CPU's stacks on arm64."""
    from drgn import sizeof
    from drgn.helpers.linux.percpu import per_cpu

    size = thread_size(prog)
    pointers = (("irq", "irq_stack_ptr"), ("SDEI normal", "sdei_stack_normal_ptr"), ("SDEI", "sdei_stack_critical_ptr"))
    for name, variable in pointers:
        try:
            start = int(per_cpu(prog[variable], cpu))
        except LookupError:
            continue
        if start:
            yield name, start, start + size
    try:
        overflow = per_cpu(prog["overflow_stack"], cpu)
    except LookupError:
        return
    yield "overflow", int(overflow.address_of_()), int(overflow.address_of_()) + sizeof(overflow)
