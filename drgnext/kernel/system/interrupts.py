"""Interrupts: how often each came, on which CPU, and who handles it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_ACTIONS = 256
#: The names of the softirqs (include/linux/interrupt.h).
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
#: (name in /proc/interrupts, member of irq_cpustat_t) on x86 (arch/x86/kernel/irq.c), before it became an array.
_X86 = (
    ("NMI", "__nmi_count"), ("LOC", "apic_timer_irqs"), ("SPU", "irq_spurious_count"), ("PMI", "apic_perf_irqs"),
    ("IWI", "apic_irq_work_irqs"), ("RTR", "icr_read_retry_count"), ("RES", "irq_resched_count"),
    ("CAL", "irq_call_count"), ("TLB", "irq_tlb_count"), ("TRM", "irq_thermal_count"), ("THR", "irq_threshold_count"),
)  # fmt: skip


class Interrupt(NamedTuple):
    """An interrupt. ``counts`` has a number for each possible CPU. ``names`` are those of its handlers."""

    name: str
    counts: list[int]
    chip: str
    hardware: int
    names: list[str]
    handlers: list[str]
    address: int


def interrupts(reader: Reader) -> list[Interrupt]:
    """Return the interrupts of devices, by number.

    They are found through /sys/kernel/irq: the table itself is a radix tree in some kernels, a maple tree in others.
    """
    found = []
    for descriptor in _descriptors(reader):
        with reader.reading("interrupts"):
            found.append(_describe(reader, descriptor))
    return sorted(found, key=lambda one: int(one.name))


def _descriptors(reader: Reader) -> Iterator[Object]:
    base = reader.symbol("irq_kobj_base")
    if base is None or not base.value_():
        reader.note("this kernel does not list its interrupts in /sys/kernel/irq: they are missing here")
        return
    offset = reader.offset("struct irq_desc", "kobj")
    for node in reader.objects("struct kernfs_node", "rb", reader.tree(base.sd.dir.children, "interrupts")):
        with reader.reading("interrupts"):
            yield reader.pointer("struct irq_desc", node.priv.value_() - offset)


def _describe(reader: Reader, descriptor: Object) -> Interrupt:
    from drgn import TypeKind

    data = descriptor.irq_data
    counts = []
    for cpu in reader.cpus():
        count = reader.percpu(descriptor.kstat_irqs, cpu)[0]
        counts.append(int(count.cnt) if count.type_.kind == TypeKind.STRUCT else int(count))
    names: list[str] = []
    handlers: list[str] = []
    action = descriptor.action
    while action.value_() and len(names) < _MOST_ACTIONS:
        names.append(reader.string(action.name, 128))
        handler = action.thread_fn.value_() or action.handler.value_()
        handlers.append(reader.function(handler))
        action = action.next
    chip = reader.string(data.chip.name, 64) if data.chip.value_() else ""
    return Interrupt(
        str(int(data.irq)), counts, chip, int(data.hwirq) & 0xFFFFFFFFFFFFFFFF, names, handlers, descriptor.value_()
    )


def of_the_machine(reader: Reader) -> list[tuple[str, list[int]]]:
    """Return (name, number on each CPU) of the interrupts that have no device: timer, NMI, between CPUs. x86 only."""
    rows = []
    if reader.symbol("irq_stat") is None:
        return []
    for name, member in _X86:
        if reader.has("irq_cpustat_t", member):
            with reader.reading("interrupts"):
                each = [reader.percpu_variable("irq_stat", cpu).member_(member) for cpu in reader.cpus()]
                rows.append((name, [int(count) for count in each]))
    return rows


def softirqs(reader: Reader) -> list[tuple[str, list[int]]]:
    """Return (name, number on each CPU) of the softirqs."""
    cpus = reader.cpus()
    counts: list[list[int]] = []
    with reader.reading("counts of softirqs"):
        counts = [[int(count) for count in reader.percpu_variable("kstat", cpu).softirqs] for cpu in cpus]
    return [
        (name, [own[number] for own in counts])
        for number, name in enumerate(SOFTIRQS)
        if counts and all(number < len(own) for own in counts)
    ]
