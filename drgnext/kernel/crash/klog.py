"""The death of a kernel as its own log tells it: the first cause and its consequences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from drgnext.kernel.crash.first_fault import FirstFault, details_in, read_oops

if TYPE_CHECKING:
    from drgn import Program


class Record(NamedTuple):
    """A line of the log, with its time since boot in seconds."""

    time: float
    text: str


class PanicLog(NamedTuple):
    """The messages of the log about a death.

    ``message`` is the first line of what led to the panic. ``panic`` is the message of panic(), None if it was not
    called. ``details`` are lines that say more (error codes), in order. ``earlier`` are the first lines of oopses that
    the kernel survived; ``first`` has what the log says of the first of them. ``death`` has what it says of the death:
    the oops that was its cause, else the trace that panic() printed.
    """

    message: Optional[str]
    panic: Optional[str]
    details: tuple[str, ...]
    earlier: tuple[Record, ...]
    address: Optional[int]
    where: Optional[str]  # the pc in the log's words: function+0xoffset/0xsize [module]
    first: Optional[FirstFault] = None
    death: Optional[FirstFault] = None


_PANIC = re.compile(r"Kernel panic - not syncing: (.*)")

# The first line of an oops. x86: show_fault_oops, __die_header; arm64: die_kernel_fault, die; BUG(): __warn,
# report_bug.
_OOPS = re.compile(
    r"^(BUG: (?!soft lockup|workqueue)|Unable to handle kernel|[Kk]ernel BUG at |Oops|Internal error: "
    r"|(general protection fault|divide error|invalid opcode|int3|stack segment|double fault|invalid TSS"
    r"|segment not present|bounds|coprocessor|alignment check|control protection fault|PANIC: double fault)\b"
    r"|traps: PANIC: |Insufficient stack space|Bad mode in |.*: [0-9a-f]{4,16} \[#\d+\])"
)
_OOPS_END = re.compile(r"^---\[ end trace")

# Messages of panic() that are only a consequence of an oops.
_AFTER_OOPS = re.compile(r"^(Fatal exception|Attempted to kill|Aiee, killing|Oops|.*: Fatal exception)")
# (message of panic() that is only a consequence, how the log began to report its cause).
_CAUSES = (
    (re.compile(r"softlockup|soft lockup"), re.compile(r"soft lockup")),
    (re.compile(r"hard LOCKUP", re.I), re.compile(r"hard LOCKUP", re.I)),
    (re.compile(r"hung_task"), re.compile(r"blocked for more than \d+ seconds")),
    (re.compile(r"RCU Stall", re.I), re.compile(r"rcu.*(stall|starved)", re.I)),
    (re.compile(r"panic_on_warn set"), re.compile(r"^(WARNING: |BUG: |UBSAN: )")),
    (re.compile(r"^NMI: Not continuing|^NMI IOCK|unknown NMI"), re.compile(r"NMI.*(unknown reason|error)")),
    (re.compile(r"^Out of memory|out of memory", re.I), re.compile(r"invoked oom-killer")),
)
_ONE_CHECK = re.compile(r"hung_task|RCU Stall", re.I)
_ADDRESS = re.compile(r"(?:address:?|paging request at|dereference at) (?:virtual address )?(?:0x)?([0-9a-f]{8,16})\b")
# Only the kernel's code segment (Xen's, too): the registers of user space are printed with their RIP as well.
_RIP = re.compile(r"^(?:RIP: (?:0010|e030):|pc : )(\S+\+0x\S+(?: \[\w+\])?|0x[0-9a-f]+)")
# The most seconds between the end of an oops and the panic that it led to. A slow serial console takes its time.
_SAME_MOMENT = 5.0


def read_panic_log(records: Sequence[Record]) -> PanicLog:
    """Return what the records say about the death."""
    panic_at = next((n for n, record in enumerate(records) if _PANIC.search(record.text)), None)
    end = len(records) if panic_at is None else panic_at
    oopses = _oopses(records, end)
    found = _PANIC.search(records[panic_at].text) if panic_at is not None else None
    panic = found[1].strip() if found else None
    cause = _cause(records, end, oopses, panic)
    spans = [span for span in oopses if cause is None or span[0] != cause[0]]
    survived = tuple(records[first] for first, _last in spans)
    first_fault = None
    if spans:
        first_fault = _fault(records, *spans[0])
    if cause is None:
        death = None if panic_at is None else _fault(records, panic_at, len(records) - 1)
        return PanicLog(panic, panic, (), survived, None, None, first_fault, death)
    first, last = cause
    # A check for hung tasks prints other tasks before it calls panic().
    death = _fault(records, *(cause if cause in oopses or panic_at is None else (panic_at, len(records) - 1)))
    lines = [record.text for record in records[first : last + 1]]
    address = next((int(m[1], 16) for m in map(_ADDRESS.search, lines[:4]) if m), None)
    where = next((m[1] for m in map(_RIP.search, lines) if m), None)
    details = details_in(lines)
    return PanicLog(lines[0].strip(), panic, details, survived, address, where, first_fault, death)


def _fault(records: Sequence[Record], first: int, last: int) -> FirstFault:
    """Return what the records from ``first`` to ``last`` say of a fault."""
    return read_oops(records[first].time, [record.text for record in records[first : last + 1]])


def _oopses(records: Sequence[Record], end: int) -> list[tuple[int, int]]:
    """Return (first line, last line) of each oops. An oops within another one is a part of it."""
    found: list[tuple[int, int]] = []
    first = None
    for n in range(end):
        text = records[n].text
        if first is None:
            if _OOPS.search(text):
                first = n
        elif _OOPS_END.search(text):
            found.append((first, n))
            first = None
    if first is not None:
        found.append((first, end - 1))
    return found


def _cause(
    records: Sequence[Record], end: int, oopses: list[tuple[int, int]], panic: Optional[str]
) -> Optional[tuple[int, int]]:
    """Return (first line, last line) of what led to the panic. Return None if only the panic's own message says it."""
    last = oopses[-1] if oopses else None
    if panic is None:
        # The kernel stopped (or was dumped) in the middle of an oops, or after an oops that it survived.
        return last if last and not _OOPS_END.search(records[last[1]].text) else None
    if _AFTER_OOPS.search(panic):
        near = last is not None and records[end].time - records[last[1]].time <= _SAME_MOMENT
        return last if near else None
    for consequence, beginning in _CAUSES:
        if consequence.search(panic):
            at = _first_of_last([n for n in range(end) if beginning.search(records[n].text)], records, panic)
            return (at, end - 1) if at is not None else None
    return None


def _first_of_last(found: list[int], records: Sequence[Record], panic: str) -> Optional[int]:
    """Return the number of the record where the cause was first reported, or None.

    It is the last of the records in ``found``. But one check for hung tasks or stalls reports all of them before it
    calls panic(), so there it is the first of those that follow each other closely.
    """
    if not found:
        return None
    at = len(found) - 1
    while at and _ONE_CHECK.search(panic) and records[found[at]].time - records[found[at - 1]].time <= _SAME_MOMENT:
        at -= 1
    return found[at]


def read(prog: Program) -> tuple[list[Record], list[str]]:
    """Return the records of the log, and notes."""
    from drgn import FaultError
    from drgn.helpers.linux.printk import get_printk_records

    try:
        if not _is_sane(prog):
            return [], ["the kernel's log is damaged: the number of its records cannot be right"]
        records = get_printk_records(prog)
    except (FaultError, LookupError, ValueError, AttributeError, TypeError) as error:
        return [], [f"the kernel's log cannot be read: {error}"]
    return [
        Record(record.timestamp / 1e9, line)
        for record in records
        for line in record.text.decode(errors="replace").split("\n")
    ], []


def _is_sane(prog: Program) -> bool:
    """Return whether the ring of records (5.10 and later) has no more records than it can hold.

    drgn follows the ring from tail to head, so a wrong count would make it read very long.
    """
    try:
        ring = prog["prb"].desc_ring
    except LookupError:
        return True
    bits = int(ring.count_bits)
    held = (int(ring.head_id.counter) - int(ring.tail_id.counter)) & ((1 << 62) - 1)
    return 0 < bits <= 24 and held < 1 << bits
