"""Facts about a death that need no types: the registers in the dump's notes, and the frames in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.report import Column, Schema, Table, Value
from drgnext.kernel.crash.first_fault import FirstFault, Place
from drgnext.kernel.dump.cpu_notes import read_cpu_notes

if TYPE_CHECKING:
    from drgn import Program

CPUS = Schema(
    "cpus",
    "a CPU, as the notes of the dump have it",
    (
        Column("note", "count", width=4, about="the number of the note"),
        Column("pid", "count", width=7),
        Column("pc", "address", width=16),
        Column("where", about="function and offset, or empty"),
        Column("sp", "address", width=16),
    ),
    when="where it is not known which one died",
)
_FRAME = (Column("where"), Column("source", about="or empty"))
LOG_FRAMES = Schema(
    "log_frames", "a frame that the kernel printed", _FRAME, when="where the dump lacks the stack and the log has it"
)
_KNOWN = "where it is known"
#: The record of panicinfo. A fact that is not known is left out.
PANICINFO = Schema(
    "panicinfo",
    "what is known of the panic",
    (
        Column("cpu", "count", when=_KNOWN),
        Column("thread", "address", width=16, when=_KNOWN, about="the task_struct"),
        Column("name", when=_KNOWN),
        Column("pid", "count", when=_KNOWN),
        Column("message", when=_KNOWN),
        Column("panic", when="where it says more than the message"),
        Column("details", when=_KNOWN),
        Column("address", "address", width=16, when=_KNOWN, about="what could not be accessed"),
        Column("trap", when="where a trap is on the stack"),
        Column("pt_regs", "address", width=16, when="where a trap is on the stack"),
        Column("called_by", title="called by", when="where the panic was called"),
        Column("recursion", when="where the stack has one"),
        Column("logged_pc", title="pc in the log", when="where the stack has no trap"),
        Column("pc", "address", width=16, when=_KNOWN),
        Column("where", when=_KNOWN),
        Column("source", when=_KNOWN),
        Column("instruction", when=_KNOWN),
        Column("call", "address", width=16, when="where the kernel jumped to an address that has no code"),
        Column("call_where", title="call from", when="with `call`"),
        *(
            Column(name, title=name.replace("_", " "), when="with `call`, where it is known")
            for name in ("call_source", "call_instruction", "jumped_by")
        ),
        Column("tainted", when=_KNOWN),
        Column("modules", when=_KNOWN, about="in words"),
        Column("kernel", when=_KNOWN, about="the release"),
        *(
            Column(name, title=title, when="where there is neither vmlinux nor BTF")
            for name, title in (
                ("build_id", "build-id"),
                ("crash_time", "crash time"),
                ("kernel_offset", "KASLR offset"),
            )
        ),
        Column("page_size", "count", title="page size", when="where there is neither vmlinux nor BTF"),
        Column("*", "address", width=16, when=_KNOWN, about="each register by its name"),
    ),
)
_OWN = "the registers are those that the dump's notes have for the CPU of that task"
MOST_CPUS = 64


class Noted(NamedTuple):
    """Parts of panicinfo: facts for its record, tables, and notes."""

    facts: list[tuple[str, Value]]
    tables: list[Table]
    notes: list[str]


def noted_registers(path: Optional[str], death: Optional[FirstFault], where: Callable[[int], Optional[str]]) -> Noted:
    """Return the registers that the dump's notes have for the task that died, else those of all CPUs.

    ``where`` names a pc, if it can.
    """
    noted = read_cpu_notes(path)
    own = noted.of(death.pid, death.cpu) if death is not None and death.pid is not None else None
    if own is not None:
        facts: list[tuple[str, Value]] = [
            ("pc", own.pc),
            ("where", where(own.pc) or _trapped(death)),
        ]
        facts += [(name, value) for name, value in own.registers.items() if name != "pc"]
        return Noted(facts, [], [_OWN])
    if not noted.by_kernel or not noted.cpus:
        return Noted([], [], [])
    rows = [(one.number, one.pid, one.pc, where(one.pc) or "", one.sp) for one in noted.cpus]
    title = "the CPUs as the dump's notes have them: one of them died"
    left = [f"... (and {len(rows) - MOST_CPUS} more)"] if len(rows) > MOST_CPUS else []
    return Noted([], [CPUS.table(rows[:MOST_CPUS], title=title, footer=left)], [])


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


def who_died(death: Optional[FirstFault]) -> list[tuple[str, Value]]:
    """Return the facts about the task that the log names."""
    return [
        ("cpu", death.cpu if death else None),
        ("name", death.comm if death else None),
        ("pid", death.pid if death else None),
    ]


def printed_frames(death: Optional[FirstFault], source: Callable[[Place], Optional[str]]) -> list[Table]:
    """Return a table of the frames that the kernel printed, or []. ``source`` gives a line of source, or None."""
    if death is None or not death.frames:
        return []
    rows: list[tuple[Value, ...]] = [(str(place), source(place) or "") for place in death.frames]
    title = "the frames that the kernel printed"
    return [LOG_FRAMES.table(rows, style="plain", title=title)]
