"""The kernel's log, by its types where they help, and else by the offsets in VMCOREINFO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drgnext.kernel.crash.bare_log import read_bare_log, read_vmcoreinfo
from drgnext.kernel.crash.klog import read
from drgnext.kernel.crash.records import Record

if TYPE_CHECKING:
    from drgn import Program


def read_log(prog: Program) -> tuple[list[Record], list[str]]:
    """Return the records of the log, and notes.

    drgn gives no record if one of them cannot be read. The ring itself then gives those that the dump has.
    """
    records, notes = read(prog)
    if records:
        return records, notes
    found, lost = read_bare_log(prog, read_vmcoreinfo(prog))
    return (found, lost) if found else (records, notes)
