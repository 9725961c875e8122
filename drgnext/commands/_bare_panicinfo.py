"""The report of panicinfo without vmlinux: it shows the log and VMCOREINFO."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from dmods.errors import UserError
from dmods.report import Column, Report, Schema, Value
from drgnext.commands._from_notes import PANICINFO, noted_registers, printed_frames, symbol_at, who_died
from drgnext.kernel.crash.bare_log import crash_time, read_bare_log, read_vmcoreinfo
from drgnext.kernel.crash.klog import oops_notes, read_panic_log
from drgnext.kernel.crash.outcome import SENTENCES, has_died

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

LOG = Schema(
    "log",
    "a line of the log",
    (Column("time", about="seconds since boot, as text"), Column("text")),
    when="where there is neither vmlinux nor BTF",
)
_LAST = 60  # records that are shown without -v


def bare_report(kernel: Kernel, lacking: UserError, everything: bool) -> Report:
    """Return what is known of the panic. The exit status says that it is not all.

    Raises ``lacking`` if nothing is known, and vmlinux would not help.
    """
    info = read_vmcoreinfo(kernel.prog)
    records, notes = read_bare_log(kernel.prog, info)
    told = read_panic_log(records)
    oops = told.death or told.first
    when = crash_time(info)
    died = has_died(told, info, records, not notes)
    noted = noted_registers(kernel.path, oops, lambda pc: symbol_at(kernel.prog, pc))
    if kernel.typed and died is None and not (records or noted.facts or noted.tables):
        raise lacking
    facts: list[tuple[str, Value]] = [
        *who_died(oops),
        ("message", told.message or (SENTENCES[died] if told.panic is None else None)),
        ("panic", told.panic if told.panic != told.message else None),
        ("details", "; ".join(told.details) or None),
        ("address", told.address),
        ("logged_pc", told.where),
        ("kernel", info.get("OSRELEASE")),
        ("build_id", info.get("BUILD-ID")),
        ("crash_time", _utc(when) if when is not None else None),
        ("kernel_offset", _hex(info.get("KERNELOFFSET"))),
        ("page_size", _count(info.get("PAGESIZE"))),
        *noted.facts,
    ]
    facts = [(name, value) for name, value in facts if value is not None]
    tables = [PANICINFO.record(facts)]
    tables += [*noted.tables, *printed_frames(oops, lambda _place: None)]
    shown = records if everything else records[-_LAST:]
    lines: list[tuple[Value, ...]] = [(f"{record.time:.6f}", record.text) for record in shown]
    title = "the log" if len(shown) == len(records) else f"the last {len(shown)} lines of the log (-v: all)"
    tables.append(LOG.table(lines, style="plain", title=title))
    return Report(tables, notes=[*notes, *oops_notes(told), *noted.notes, lacking.what, lacking.how], status=1)


def _utc(seconds: int) -> str:
    """Return the time in UTC, as ISO 8601 has it."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _hex(text: object) -> Value:
    """Return 0x and the digits, or None."""
    return f"0x{text}" if isinstance(text, str) and text else None


def _count(text: object) -> Value:
    """Return the number in the text, or None."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 12 else None
