"""The death of a kernel as its own log tells it: the first cause and its consequences."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from drgnext.kernel.crash.first_fault import FirstFault, details_in, read_oops
from drgnext.kernel.crash.oom import INVOKED, oom_details
from drgnext.kernel.crash.oopses import SAME_MOMENT, Oops, find_oopses, sentence_before
from drgnext.kernel.crash.records import NO_TASK, Record

if TYPE_CHECKING:
    from drgn import Program
    from drgn.helpers.linux.printk import PrintkRecord


class PanicLog(NamedTuple):
    """The messages of the log about a death.

    ``message`` is the first line of what led to the panic, or the kernel's own sentence before it. ``panic`` is the
    message of panic(), None if it was not called. ``details`` are lines that say more (error codes), in order.
    ``earlier`` are the first lines of oopses that the kernel survived; ``first`` has what the log says of the first of
    them. ``death`` has what it says of the death: the oops that was its cause, else the trace that panic() printed.
    ``beside`` are the first lines of oopses that other CPUs had at the same time.
    """

    message: Optional[str]
    panic: Optional[str]
    details: tuple[str, ...]
    earlier: tuple[Record, ...]
    address: Optional[int]
    where: Optional[str]  # the pc in the log's words: function+0xoffset/0xsize [module]
    first: Optional[FirstFault] = None
    death: Optional[FirstFault] = None
    beside: tuple[Record, ...] = ()


_AT_ONCE = 4096  # descriptions of records that are read together
_PANIC = regex(r"Kernel panic - not syncing: (.*)")

# Messages of panic() that are only a consequence of an oops.
_AFTER_OOPS = regex(r"^(Fatal exception|Attempted to kill|Aiee, killing|Oops|.*: Fatal exception)")
_WARNING = regex(r"^(WARNING: |BUG: |UBSAN: )")
# (message of panic() that is only a consequence, how the log began to report its cause).
_CAUSES = (
    (regex(r"softlockup|soft lockup"), regex(r"soft lockup")),
    (regex(r"hard LOCKUP", re.I), regex(r"hard LOCKUP", re.I)),
    (regex(r"hung_task"), regex(r"blocked for more than \d+ seconds")),
    (regex(r"RCU Stall", re.I), regex(r"rcu.*(stall|starved)", re.I)),
    (regex(r"panic_on_warn set"), _WARNING),
    (regex(r"^NMI: Not continuing|^NMI IOCK|unknown NMI"), regex(r"NMI.*(unknown reason|error)")),
    (regex(r"^Out of memory|out of memory|deadlocked on memory", re.I), INVOKED),
)
_ONE_CHECK = regex(r"hung_task|RCU Stall", re.I)
_ADDRESS = regex(r"(?:address:?|paging request at|dereference at) (?:virtual address )?(?:0x)?([0-9a-f]{8,16})\b")
# Only the kernel's code segment (Xen's, too): the registers of user space are printed with their RIP as well.
_RIP = regex(r"^(?:RIP: (?:0010|e030):|pc : )(\S+\+0x\S+(?: \[\w+\])?|0x[0-9a-f]+)")


def read_panic_log(records: Sequence[Record], callers: Collection[int] = ()) -> PanicLog:
    """Return what the records say about the death.

    ``callers`` are who may have printed of it: the task that died, or NO_TASK and its CPU. It helps where the log has
    no panic. The line of a panic has its caller, and only lines of that caller belong to it.
    """
    records = [record for record in records if not record.facility]  # programs write to the log, too
    panic_at = next((n for n, record in enumerate(records) if _PANIC.search(record.text)), None)
    end = len(records) if panic_at is None else panic_at
    found = _PANIC.search(records[panic_at].text) if panic_at is not None else None
    panic = found[1].strip() if found else None
    oopses = find_oopses(records, end)
    whose = {records[panic_at].caller} if panic_at is not None else callers
    cause = _cause(records, end, [one for one in oopses if one.caller in whose] or oopses, panic)
    others = [one for one in oopses if one.lines != cause]
    beside = [one for one in others if _is_beside(one, cause, whose)]
    survived = [one for one in others if one not in beside]
    after = _of_caller(records, panic_at, len(records)) if panic_at is not None else ()
    told = PanicLog(
        message=panic,
        panic=panic,
        details=(),
        earlier=tuple(_headline(records, one) for one in survived),
        address=None,
        where=None,
        first=_fault(records, survived[0].lines) if survived else None,
        death=_fault(records, after) if after else None,
        beside=tuple(_headline(records, one) for one in beside),
    )
    if cause is None:
        return told
    lines = [records[n].text for n in cause]
    is_oops = any(one.lines == cause for one in oopses)
    sentence = sentence_before(records, cause[0]) if is_oops or _WARNING.search(lines[0]) else None
    details = details_in(lines)
    return told._replace(
        message=sentence or lines[0].strip(),
        details=(*((lines[0].strip(),) if sentence else ()), *details, *oom_details(lines)),
        address=next((int(m[1], 16) for m in map(_ADDRESS.search, lines[:4]) if m), None),
        where=next((m[1] for m in map(_RIP.search, lines) if m), None),
        # A check for hung tasks prints other tasks before it calls panic().
        death=_fault(records, cause if is_oops or not after else after),
    )


def oops_notes(told: PanicLog) -> list[str]:
    """Return one line for each oops of the log that is not the cause of the death."""
    earlier = [f"the kernel survived an earlier oops at {at.time:.3f} s: {at.text.strip()}" for at in told.earlier]
    return earlier + [f"another CPU had an oops at the same time: {at.text.strip()}" for at in told.beside]


def _is_beside(one: Oops, cause: Optional[Sequence[int]], whose: Collection[Optional[int]]) -> bool:
    """Return whether another CPU had the oops while the kernel died. Then nothing says that the kernel survived it."""
    if one.caller is None or one.caller in whose:
        return False
    return not one.ended or (cause is not None and one.lines[-1] > cause[0])


def _headline(records: Sequence[Record], one: Oops) -> Record:
    """Return the first line of an oops, with the kernel's own sentence if it has one."""
    first = one.lines[0]
    return records[first]._replace(text=sentence_before(records, first) or records[first].text)


def _fault(records: Sequence[Record], lines: Sequence[int]) -> FirstFault:
    """Return what the lines say of a fault."""
    fault = read_oops(records[lines[0]].time, [records[n].text for n in lines])
    sentence = sentence_before(records, lines[0])
    if sentence is None or _PANIC.search(fault.message):
        return fault
    return fault._replace(message=sentence, details=(fault.message, *fault.details))


def _of_caller(records: Sequence[Record], first: int, end: int) -> tuple[int, ...]:
    """Return the numbers of the lines from ``first`` on that the caller of the first one printed."""
    return tuple(n for n in range(first, end) if records[n].caller == records[first].caller)


def _cause(records: Sequence[Record], end: int, own: Sequence[Oops], panic: Optional[str]) -> Optional[tuple[int, ...]]:
    """Return the lines of what led to the panic. Return None if only the panic's own message says it.

    ``own`` are the oopses of the caller that panicked.
    """
    if panic is None:
        # The kernel stopped (or was dumped) in the middle of an oops, or after an oops that it survived. Of several
        # CPUs the one that printed most went on: the others wait for it (oops_begin).
        open_ones = [one for one in own if not one.ended]
        return max(open_ones, key=lambda one: len(one.lines)).lines if open_ones else None
    if _AFTER_OOPS.search(panic):
        last = own[-1] if own else None
        near = last is not None and records[end].time - records[last.lines[-1]].time <= SAME_MOMENT
        return last.lines if near and last is not None else None
    for consequence, beginning in _CAUSES:
        if consequence.search(panic):
            found = [n for n in range(end) if beginning.search(records[n].text)]
            same = [n for n in found if records[n].caller == records[end].caller]
            at = _first_of_last(same or found, records, panic)
            return None if at is None else _of_caller(records, at, end) if same else tuple(range(at, end))
    return None


def _first_of_last(found: list[int], records: Sequence[Record], panic: str) -> Optional[int]:
    """Return the number of the record where the cause was first reported, or None.

    It is the last of the records in ``found``. But one check for hung tasks or stalls reports all of them before it
    calls panic(), so there it is the first of those that follow each other closely.
    """
    if not found:
        return None
    at = len(found) - 1
    while at and _ONE_CHECK.search(panic) and records[found[at]].time - records[found[at - 1]].time <= SAME_MOMENT:
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
        names = _names(prog)
    except (FaultError, LookupError, ValueError, AttributeError, TypeError) as error:
        return [], [f"the kernel's log cannot be read: {error}"]
    return [
        Record(record.timestamp / 1e9, line, _caller(record), record.level, record.facility, names.get(record.seq, ""))
        for record in records
        for line in record.text.decode(errors="replace").split("\n")
    ], []


def _names(prog: Program) -> dict[int, str]:
    """Return the name of the task that ran at each record, by its number. {} where the kernel does not note it."""
    from drgn import FaultError, offsetof

    found: dict[int, str] = {}
    try:
        info, ring = prog.type("struct printk_info"), prog["prb"].desc_ring
        if not info.has_member("comm") or not info.size:
            return found
        first, count = int(ring.infos.value_()), 1 << int(ring.count_bits)
        size, seq, comm = info.size, int(offsetof(info, "seq")), int(offsetof(info, "comm"))
        length = info.member("comm").type.length or 0
        for start in range(0, count, _AT_ONCE):
            data = prog.read(first + start * size, min(_AT_ONCE, count - start) * size)
            for at in range(0, len(data), size):
                name = data[at + comm : at + comm + length].partition(b"\0")[0].decode(errors="backslashreplace")
                found[int.from_bytes(data[at + seq : at + seq + 8], "little")] = name
    except (FaultError, LookupError, ValueError, AttributeError, TypeError):
        pass  # the lines are there without it
    return found


def _caller(record: PrintkRecord) -> Optional[int]:
    """Return who printed the record, as the kernel has it, or None."""
    task, cpu = record.caller_tid, record.caller_cpu
    return task if task is not None else NO_TASK | cpu if cpu is not None else None


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
