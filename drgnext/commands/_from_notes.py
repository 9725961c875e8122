"""Facts about a death that need no types: the registers in the dump's notes, and the frames in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.report import Column, Table, Value
from drgnext.kernel.crash.first_fault import FirstFault, Place
from drgnext.kernel.dump.cpu_notes import read_cpu_notes

if TYPE_CHECKING:
    from drgn import Program

CPUS = (
    Column("note", "count", width=4),
    Column("pid", "count", width=7),
    Column("pc", "address", width=16),
    Column("where"),
    Column("sp", "address", width=16),
)
_OWN = "the registers are those that the dump's notes have for the CPU of that task"
MOST_CPUS = 64


class Noted(NamedTuple):
    """Parts of panicinfo: facts for its record, tables, and notes."""

    facts: list[tuple[Column, Value]]
    tables: list[Table]
    notes: list[str]


def noted_registers(path: Optional[str], death: Optional[FirstFault], where: Callable[[int], Optional[str]]) -> Noted:
    """Return the registers that the dump's notes have for the task that died, else those of all CPUs.

    ``where`` names a pc, if it can.
    """
    noted = read_cpu_notes(path)
    own = noted.of(death.pid, death.cpu) if death is not None and death.pid is not None else None
    if own is not None:
        facts: list[tuple[Column, Value]] = [
            (Column("pc", "address", width=16), own.pc),
            (Column("where"), where(own.pc) or _trapped(death)),
        ]
        facts += [(Column(name, "address", width=16), value) for name, value in own.registers.items() if name != "pc"]
        return Noted(facts, [], [_OWN])
    if not noted.by_kernel or not noted.cpus:
        return Noted([], [], [])
    rows = [(one.number, one.pid, one.pc, where(one.pc) or "", one.sp) for one in noted.cpus]
    title = "the CPUs as the dump's notes have them: one of them died"
    left = [f"... (and {len(rows) - MOST_CPUS} more)"] if len(rows) > MOST_CPUS else []
    return Noted([], [Table("cpus", CPUS, rows[:MOST_CPUS], title=title, footer=left)], [])


def _trapped(death: Optional[FirstFault]) -> Optional[str]:
    """Return the place of an oops in the log, or None.

    An oops gives its own registers to the crash kernel. A panic gives those of the function that starts it, and the pc
    that it prints is that of code which was interrupted.
    """
    if death is None or death.pc is None or death.message.startswith("Kernel panic"):
        return None
    return str(death.pc)


def symbol_at(prog: Program, pc: int) -> Optional[str]:
    """Return function+offset of the pc, from the symbols of vmlinux and nothing in the dump's memory, or None."""
    try:
        found = prog.symbol(pc)
    except (LookupError, ValueError, OverflowError):
        return None
    return f"{found.name}+{pc - found.address:#x}" if pc != found.address else str(found.name)


def who_died(death: Optional[FirstFault]) -> list[tuple[Column, Value]]:
    """Return the facts about the task that the log names."""
    return [
        (Column("cpu", "count"), death.cpu if death else None),
        (Column("name"), death.comm if death else None),
        (Column("pid", "count"), death.pid if death else None),
    ]


def printed_frames(death: Optional[FirstFault], source: Callable[[Place], Optional[str]]) -> list[Table]:
    """Return a table of the frames that the kernel printed, or []. ``source`` gives a line of source, or None."""
    if death is None or not death.frames:
        return []
    rows: list[tuple[Value, ...]] = [(str(place), source(place) or "") for place in death.frames]
    title = "the frames that the kernel printed"
    return [Table("log_frames", (Column("where"), Column("source")), rows, style="plain", title=title)]
