"""The oopses in a log, and the sentence that the kernel printed before one.

Two CPUs may oops at the same time, and then their lines alternate. Each line has its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from drgnext.kernel.crash.records import Record

#: The most seconds between lines that belong together. A slow serial console takes its time.
SAME_MOMENT = 5.0

# The first line of an oops. x86: show_fault_oops, __die_header; arm64: die_kernel_fault, die; BUG(): __warn,
# report_bug.
_OOPS = regex(
    r"^(BUG: (?!soft lockup|workqueue)|Unable to handle kernel|[Kk]ernel BUG at |Oops|Internal error: "
    r"|(general protection fault|divide error|invalid opcode|int3|stack segment|double fault|invalid TSS"
    r"|segment not present|bounds|coprocessor|alignment check|control protection fault|PANIC: double fault)\b"
    r"|traps: PANIC: |Insufficient stack space|Bad mode in |.*: [0-9a-f]{4,16} \[#\d+\])"
)
# Reports that begin like an oops: the kernel prints them, and goes on.
_REPORT = regex(
    r"^BUG: (scheduling while atomic|sleeping function called|using |Bad |Invalid wait context|non-zero|Dentry "
    r"|spinlock |rwlock |atomic |MAX_|looking up|key )"
)
_DIES = regex(r": [0-9a-f]{4,16} \[#\d+\]")  # __die_header, die: reports that are only printed lack it
_OOPS_END = regex(r"^---\[ end trace")
_CUT_HERE = regex(r"^-+\[ cut here \]")
_BUG_AT = regex(r"^[Kk]ernel BUG at (\S+):\d+!")
_WARNING_AT = regex(r"^WARNING: .*?(\S+):\d+ at |^WARNING: .* at (\S+):\d+ ")

# What the kernel says right before BUG(), and before the line of a fault: lib/string_helpers.c, lib/list_debug.c,
# arch/x86/mm/fault.c, mm/usercopy.c, lib/refcount.c, mm/debug.c, net/core/skbuff.c (skb_panic),
# fs/jbd2 and fs/btrfs (assertions), mm/slub.c, arch/x86/kernel/cet.c.
# The level of a line says nothing: any line of the same task may be an emergency of something else.
_SENTENCE = regex(
    r"^(\w+: ){0,2}detected buffer overflow|^list_\w+ corruption|^kernel tried to (execute|access)"
    r"|^unable to execute userspace code|^usercopy: |^refcount_t: |^page(:\S*)? dumped because: "
    r"|^(\w+: )?skb_(over|under)_panic: |^([\w ()/.-]{1,40}: )?[Aa]ssertion fail|^slab(_\w+)?: "
    r"|^(traps: )?Missing ENDBR|^cache_from_obj: |^kernel stack overflow|^CFI failure"
)
_MOST_BEFORE = 8  # lines between "cut here" and the first line of a warning
_MOST_SECONDS = 1.0  # between the sentence and the line behind it


class Oops(NamedTuple):
    """An oops: the numbers of its lines, who printed it, and whether its last line is there."""

    lines: tuple[int, ...]
    caller: Optional[int]
    ended: bool


def find_oopses(records: Sequence[Record], end: int) -> list[Oops]:
    """Return the oopses before the line ``end``, by their first lines. An oops within another one is a part of it.

    Each caller has its own. Some reports begin like an oops and have no last line (a sleep in an atomic context). They
    end with a pause, or where an oops begins. A task that dies without a last line has not come out of its oops.
    """
    found: list[Oops] = []
    pending: dict[Optional[int], list[int]] = {}
    for n in range(end):
        caller = records[n].caller
        lines = pending.get(caller)
        if lines is not None and _is_over(records, lines, n):
            found.append(_without_end(records, pending.pop(caller)))
            lines = None
        if lines is None:
            if _OOPS.search(records[n].text):
                pending[caller] = [n]
            continue
        lines.append(n)
        if _OOPS_END.search(records[n].text):
            found.append(Oops(tuple(pending.pop(caller)), caller, True))
    for caller, lines in pending.items():
        ended = records[end - 1].time - records[lines[-1]].time > SAME_MOMENT
        found.append(_without_end(records, lines) if ended else Oops(tuple(lines), caller, False))
    return sorted(found, key=lambda one: one.lines)


def _is_over(records: Sequence[Record], lines: Sequence[int], at: int) -> bool:
    """Return whether the oops with these lines ended before the line ``at``, which does not say so."""
    if records[at].time - records[lines[-1]].time > SAME_MOMENT:
        return True
    return bool(_REPORT.search(records[lines[0]].text)) and bool(_OOPS.search(records[at].text))


def _without_end(records: Sequence[Record], lines: Sequence[int]) -> Oops:
    """Return an oops that has no last line, after which the log goes on."""
    return Oops(tuple(lines), records[lines[0]].caller, not any(_DIES.search(records[n].text) for n in lines))


def sentence_before(records: Sequence[Record], first: int) -> Optional[str]:
    """Return the kernel's own sentence before the first line of an oops or a warning, or None.

    WARN() prints it between "cut here" and its first line. BUG() and faults have it before both.
    """
    before = _lines_before(records, first)
    cut = next((at for at, n in enumerate(before) if _CUT_HERE.search(records[n].text)), None)
    ended = next((at for at, n in enumerate(before) if _OOPS_END.search(records[n].text)), len(before))
    if cut is not None and 0 < cut < ended:
        return records[before[cut - 1]].text.strip() or None
    at = 0 if cut is None or cut > ended else cut + 1
    if at < len(before) and _is_sentence(records[before[at]], records[first]):
        return records[before[at]].text.strip()
    if at == ended < len(before):
        return _of_the_warning(records, before[at], records[first])
    return None


def _lines_before(records: Sequence[Record], first: int, most: int = _MOST_BEFORE) -> list[int]:
    """Return the numbers of the lines that the same caller printed just before, the last one first."""
    found: list[int] = []
    for n in range(first - 1, -1, -1):
        if len(found) >= most or records[first].time - records[n].time > SAME_MOMENT:
            break
        if records[n].caller == records[first].caller:
            found.append(n)
    return found


def _is_sentence(record: Record, behind: Record) -> bool:
    """Return whether the record says what happened, and the line behind it only where."""
    return behind.time - record.time <= _MOST_SECONDS and bool(_SENTENCE.search(record.text))


def _of_the_warning(records: Sequence[Record], last: int, bug: Record) -> Optional[str]:
    """Return the sentence of the warning that ends at the line ``last``, if BUG() follows it in the same file.

    From 6.9 on, a buffer overflow is a warning with the sentence, and then a BUG() without (lib/string_helpers.c).
    """
    at = _BUG_AT.match(bug.text)
    for n in _lines_before(records, last, 512) if at is not None else ():
        warned = _WARNING_AT.match(records[n].text)
        if warned is not None:
            same = at is not None and at[1] in (warned[1], warned[2])
            return sentence_before(records, n) if same else None
        if _OOPS_END.search(records[n].text):
            return None
    return None
