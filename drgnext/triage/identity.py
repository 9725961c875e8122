"""Which machine it was, and how far its dump can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.raw_names import printable
from dmods.base.sizes import human_size
from dmods.base.times import utc_minute
from dmods.triage.answer import Line, left_out
from drgnext.kernel.crash import modules
from drgnext.kernel.crash.bare_log import crash_time, read_vmcoreinfo
from drgnext.kernel.dump.debuginfo import carried_note, module_note
from drgnext.kernel.system.ages import age_text

if TYPE_CHECKING:
    from drgn import Program

    from drgnext.triage.facts import KernelFacts

_LONGEST = 300  # characters of the command line
_LOADS, _FIXED = 3, 1 << 11  # avenrun: numbers with 11 bits after the point (include/linux/sched/loadavg.h)


def kernel_identity(facts: KernelFacts) -> list[Line]:
    """Return which kernel it was, on which machine, and for how long. What is not known is left out."""
    reader = facts.reader
    host = arguments = load = None
    with reader.reading("the host's name"):
        host = reader.string(reader.prog["init_uts_ns"].name.nodename, 64)
    with reader.reading("the command line"):
        arguments = _arguments(facts)
    with reader.reading("load averages"):
        loads = reader.prog["avenrun"]
        load = " ".join(f"{int(loads[number]) / _FIXED:.2f}" for number in range(_LOADS))
    died = crash_time(read_vmcoreinfo(facts.kernel.prog))
    total = facts.meminfo.get("MemTotal")
    lines = [
        ("host", host if host != "(none)" else None),
        ("system", modules.release(facts.kernel.prog)),
        (
            "machine",
            f"{facts.threads.machine.name}, {_cpus(facts)}{f', {human_size(total)} of memory' if total else ''}",
        ),
        ("uptime", age_text(facts.lister.clocks.monotonic)),
        ("load", load),
        ("died", f"{utc_minute(died)} UTC" if died is not None else None),
        ("arguments", arguments),
        ("tainted", modules.tainted(facts.kernel.prog)),
    ]
    return [Line(name, printable(text)) for name, text in lines if text]


def _cpus(facts: KernelFacts) -> str:
    count = len(facts.reader.cpus())
    return "1 CPU" if count == 1 else f"{count} CPUs"


def _arguments(facts: KernelFacts) -> Optional[str]:
    text = facts.reader.text(facts.kernel.prog["saved_command_line"].value_(), _LONGEST)
    return left_out("arguments", text) if facts.private and text else text


def kernel_trust(facts: KernelFacts) -> list[Line]:
    """Return what of the machine is in the dump, and which debug information is here."""
    return list(_trust(facts))


def _trust(facts: KernelFacts) -> Iterator[Line]:
    path = facts.kernel.path
    notes = [note for note in facts.kernel.notes if note.startswith("the dump ")]
    live = "the kernel is running: two reads are never of the same moment"
    yield Line("memory", "; ".join(notes) or ("the dump is whole" if path is not None else live))
    prog = facts.kernel.prog
    yield Line("debug information", "; ".join(carried_note(prog) or [_vmlinux(prog), *module_note(prog)]))
    lost = [*facts.threads.notes, *facts.reader.notes]
    yield Line("structures", "; ".join(lost[:2]) or "every list and table that was read is whole")


def _vmlinux(prog: Program) -> str:
    """Return whether the vmlinux that drgn has is the dump's."""
    wanted, found = read_vmcoreinfo(prog).get("BUILD-ID"), prog.main_module().build_id
    if not wanted or not found:
        return "vmlinux is here"
    same = "has the build-id of the dump" if found.hex() == wanted else "is ANOTHER build than the dump's"
    return f"vmlinux is here, and {same}"
