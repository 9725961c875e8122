"""Compare a core with older ones of the same process: what is new, what has gone, and what grew."""

from __future__ import annotations

import argparse
import os
from typing import Optional

from dmods.base.dataclass import replace
from dmods.command import Argument, Command, positive, seconds
from dmods.commands._growth_memory import MEMORY, growth_verdict, memory_table, partial_notes, without_leaks
from dmods.commands._growth_tables import CHANGES, FINDINGS, TOTALS
from dmods.commands._records import CALLER_ARGUMENTS, stack_values
from dmods.corefile.target import CoreFile
from dmods.errors import UsageError, UserError
from dmods.finding import Measured, Said
from dmods.graph.growth.comparison import KEYS, Change, Growth, compare, has_records
from dmods.graph.growth.core_order import other_program, wrong_order
from dmods.graph.growth.grown import fragmentation, growth_findings, replaced
from dmods.graph.growth.same_process import difference
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.no_heap import no_heap
from dmods.heap.verdict import heap_verdict, judge, leak_verdict
from dmods.output.next_command import as_typed
from dmods.records.callers import Callers
from dmods.records.sources import HOW_TO_RECORD
from dmods.report import Column, Report, Value
from dmods.target import Target

_USUAL = 20  # rows that are shown without --top
_MOST_CORES = 16
_MUCH_CHANGED = 20  # one in so many surviving blocks with other content is worth a word


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the growth from the first of the older cores to the target."""
    report = Report()
    names, heaps = _usable(*_open(target, args), report)
    for name, heap in zip(names, heaps):
        report.notes.extend(f"{name}: {note}" for note in (*heap.target.notes, *heap.notes, *heap.roots.notes))
    _add_doubts(report, names, heaps)
    by = _key(args, heaps, report)
    named = [Callers(each.target, args.skip, args.all_frames) for each in heaps]
    found = compare(heaps, by, named.__getitem__)
    verdict = growth_verdict(found, names, heaps)
    judge(report, verdict)
    leaks_known = all(leak_verdict(heap).possible for heap in heaps)
    if not leaks_known:
        found.changes = [without_leaks(change) for change in found.changes]
    report.notes.extend(f"{names[-1]}: {note}" for note in found.notes)
    if found.differs is not None:
        report.notes.append(
            f"the cores are of different runs: {found.differs}. They are compared by {by} without addresses: "
            "which blocks are new and which have gone is not known"
        )
    report.notes.extend(partial_notes(found, names, heaps))
    _add_time(report, found, args.hours)
    report.tables.append(memory_table(found, leaks_known))
    _add_changes(report, found, named, args.top)
    said: list[Said] = growth_findings(found, names, heaps[-1])
    if not found.partial & {0, len(names) - 1}:  # what a dump lacks is neither in use nor free
        said += fragmentation(found.memory, heaps)
    report.tables.append(FINDINGS.table(list(map(_said, said)), style="plain"))
    report.notes.extend(replaced(found))
    _add_noise(report, found, names)
    report.totals = _totals(found)
    return report


def _open(target: Target, args: argparse.Namespace) -> tuple[list[str], list[Target]]:
    """Return the names and the cores, the oldest first."""
    earlier: list[Target] = getattr(args, "earlier", [])  # of a live process, where the shell took several pictures
    if not args.base and not earlier:
        raise UsageError("growth: CORE is missing", "usage: dmods growth CORE CORE [CORE ...]; or: dmods growth -p PID")
    if not earlier and (args.every or args.times) is not None:
        raise UsageError(
            "--every and --times are for pictures of a live process", "dmods growth -p PID --every 60 --times 3"
        )
    if len(args.base) >= _MOST_CORES:
        raise UsageError(f"growth compares at most {_MOST_CORES} cores", "leave some of the middle ones out")
    if target.path is not None and any(os.path.realpath(path) == os.path.realpath(target.path) for path in args.base):
        raise UsageError("a core is compared with itself", "name older cores of the process, the oldest first")
    if len({os.path.realpath(path) for path in args.base}) < len(args.base):
        raise UsageError("a core is named twice", "name different cores of the process, the oldest first")
    bases = [CoreFile(path, getattr(args, "exe", None), getattr(args, "sysroot", None)) for path in args.base]
    last = os.path.basename(target.path) if target.path is not None else "the process"
    names = [os.path.basename(path) for path in args.base] + [last]
    if len(set(names)) < len(names):  # cores of one name in several folders
        names = [*args.base, target.path or last]
    if earlier:
        names[-1:] = [f"picture {number}" for number in range(1, len(earlier) + 2)]
    return names, [*bases, *earlier, target]


def _usable(names: list[str], targets: list[Target], report: Report) -> tuple[list[str], list[ProcessHeap]]:
    """Return the names and the heaps of the cores that are compared.

    A core between the first and the last that cannot be compared with them is left out, with a note.
    """
    heaps = [find_heap(each) for each in targets]
    for place in (0, -1):
        if not heaps[place].found:
            raise UserError(
                f"{names[place]}: {heap_verdict(heaps[place]).reason}",
                "growth needs a heap that dmods can walk in the first and the last core",
            )
    one_process = difference(targets[0], targets[-1]) is None
    used_names, used = [], []
    for name, heap in zip(names, heaps):
        other = difference(heap.target, targets[-1]) if one_process and heap not in (heaps[0], heaps[-1]) else None
        if not heap.found or other is not None:
            report.notes.append(f"{name} is left out: {other or no_heap(heap.target)}")
        else:
            used_names.append(name)
            used.append(heap)
    return used_names, used


def _add_doubts(report: Report, names: list[str], heaps: list[ProcessHeap]) -> None:
    """Say first what makes the whole comparison doubtful: the order of the cores, or another program."""
    doubts = [wrong_order(names, heaps)]
    for name, heap in zip(names, heaps[:-1]):
        other = other_program(heap.target, heaps[-1].target)
        doubts.append(f"{name} cannot be compared with {names[-1]} block by block: {other}" if other else None)
    report.notes[:0] = filter(None, doubts)


def _key(args: argparse.Namespace, heaps: list[ProcessHeap], report: Report) -> str:
    """Return the key to add up by: stacks where all cores have records, else types."""
    recorded = all(map(has_records, heaps))
    if args.by in ("stack", "thread") and not recorded:
        raise UserError(f"--by {args.by} needs allocation records in each core", HOW_TO_RECORD)
    for heap in heaps:
        report.notes.extend(heap.records.notes)
    if recorded and any(heap.records.sampled for heap in heaps) and args.by in (None, "stack", "thread"):
        report.notes.append("only samples were recorded: the other blocks stand under (no record)")
    return args.by or ("stack" if recorded else "type")


def _add_time(report: Report, found: Growth, hours: Optional[float]) -> None:
    """Decide how long the growth took. The user knows best."""
    if hours is not None:
        found.hours = hours
    elif found.hours is not None:
        report.notes.append(
            f"the newest allocation records of the first and the last core are {found.hours:.3g} hours apart: "
            "rates are by that (--hours N if you know better)"
        )


# -- tables -----------------------------------------------------------------------------------------------------------


def _add_changes(report: Report, found: Growth, named: list[Callers], top: Optional[int]) -> None:
    aligned, several = found.differs is None, len(found.memory) > 2
    hidden = {"new_bytes": not aligned, "gone_bytes": not aligned, "buffer": not aligned}
    hidden["bytes_per_hour"] = not found.hours
    hidden["kept_bytes"] = not (aligned and several)
    hidden["leaked_bytes"] = not any(each.leaked and each.leaked[-1].count for each in found.changes)
    columns = [replace(c, hidden=hidden.get(c.name, c.hidden), title=_title(c, found.by)) for c in CHANGES.columns]
    order = _ordered(found)
    # Lines that did not change are the most, and tell the least.
    shown = order[:top] if top is not None else list(filter(_has_changed, order))[:_USUAL]
    if len(shown) < len(order):
        left = sum(each.growth for each in order) - sum(each.growth for each in shown)
        report.notes.append(f"{len(order) - len(shown)} more lines, {left} bytes, are not shown (--top)")
    rows = [_cells(each, found, named) for each in shown]
    old, now = found.memory[0].in_use, found.memory[-1].in_use
    footer = ["-" * 72, f"Blocks in use: {old} bytes {_signed(now - old)} = {now} bytes"]
    report.tables.append(CHANGES.table(rows, columns, footer=footer))


def _has_changed(change: Change) -> bool:
    return change.growth != 0 or change.totals[0].count != change.totals[-1].count


def _title(column: Column, by: str) -> str:
    titles = {"type": "TYPE OR SHAPE", "stack": "CALLER"}
    return titles.get(by, by.upper()) if column.name == "key" else column.title


def _ordered(found: Growth) -> list[Change]:
    """Return the changes, suspects first."""
    suspects = found.suspects() if len(found.memory) > 2 else []
    return [*suspects, *(change for change in found.changes if all(change is not each for each in suspects))]


def _cells(change: Change, found: Growth, named: list[Callers]) -> tuple[Value, ...]:
    old, now = change.totals[0], change.totals[-1]
    share = 100 * change.growth / found.growth if found.growth > 0 else 0.0
    aligned = found.differs is None
    parts = (change.new, change.gone, change.kept, change.survived)
    new, gone, kept, survived = ((each.count, each.bytes) if aligned else (None, None) for each in parts)
    stack = stack_values(named[change.core], change.stack) if change.stack is not None else (None, None)
    return (
        change.growth,
        share,
        old.bytes,
        now.bytes,
        now.count - old.count,
        round(change.growth / found.hours) if found.hours else None,
        new[1],
        gone[1],
        kept[1],
        change.leaked[-1].bytes if change.leaked else None,
        change.example,
        change.label,
        old.count,
        now.count,
        new[0],
        gone[0],
        kept[0],
        *survived,
        change.proven if aligned else None,
        *(change.times or (None, None)),
        [each.bytes for each in change.totals],
        [each.count for each in change.totals],
        *stack,
    )


def _signed(number: int) -> str:
    return f"{'+' if number >= 0 else '-'} {abs(number)}"


def _said(said: Said) -> tuple[Value, ...]:
    """Return the row of a finding. A measurement has only its text."""
    if isinstance(said, Measured):
        return f"{said.text}.", None, None, None, None, []
    first = said.evidence[0].address if said.evidence else None
    parts = [f"{said.what}.", said.remedy, f"For example: {as_typed(said.next[0])}" if said.next else ""]
    text = " ".join(filter(None, parts))
    return text, said.kind, said.confidence, said.weight, first, list(said.next)


# -- notes -------------------------------------------------------------------------------------------------------------


def _add_noise(report: Report, found: Growth, names: list[str]) -> None:
    churn = found.churn()
    if churn is not None:
        report.notes.append(
            f"noise: {churn[0]:.1f} % of the bytes of {names[0]} were freed, and {churn[1]:.1f} % of the bytes of "
            f"{names[-1]} only replace them: growth below that means little"
        )
    if found.differs is None:
        kept = sum(each.survived.count + each.kept.count for each in found.changes)
        proven = sum(each.proven for each in found.changes)
        if kept > proven:
            report.notes.append(_unproven(kept, kept - proven, found.changed))
    if len(names) == 2 and found.growth > 0:
        report.notes.append("two cores cannot tell a leak from a cache that fills: give a third, later one")


def _unproven(kept: int, count: int, changed: tuple[int, int]) -> str:
    """Return what is uncertain about surviving blocks without records. Their content tells more than their address."""
    compared, other = changed
    if not other or other * _MUCH_CHANGED < compared:
        same = f"{count} of {kept} surviving blocks are probably the same"
        return f"{same}: address, size and class agree, and no record proves it"
    return (
        f"{count} of {kept} surviving blocks agree in address, size and class only: of {compared} that were compared, "
        f"{other} hold other content. They were filled anew in place, or allocated again"
    )


def _totals(found: Growth) -> dict[str, Value]:
    aligned = found.differs is None
    return {
        "by": found.by,
        "cores": len(found.memory),
        "same_process": aligned,
        "hours": found.hours,
        "old_bytes": found.memory[0].in_use,
        "now_bytes": found.memory[-1].in_use,
        "growth_bytes": found.growth,
        "new_bytes": sum(each.new.bytes for each in found.changes) if aligned else None,
        "gone_bytes": sum(each.gone.bytes for each in found.changes) if aligned else None,
        "survived_bytes": sum(each.survived.bytes for each in found.changes) if aligned else None,
        "compared_count": found.changed[0] if aligned else None,
        "changed_count": found.changed[1] if aligned else None,
        "mapped_growth_bytes": found.memory[-1].mapped - found.memory[0].mapped,
        "old_memory": found.memory[0].ledger.values(),
        "memory": found.memory[-1].ledger.values(),
    }


def _hours(text: str) -> float:
    """Return the hours in `text`."""
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time: give hours, as in 1.5")
    return hours


def _times(text: str) -> int:
    """Return the number of pictures in `text`."""
    number = int(text) if text.isdecimal() else 0
    if not 2 <= number <= _MOST_CORES:
        raise argparse.ArgumentTypeError(f"{text} is not a number of pictures: give 2 to {_MOST_CORES}")
    return number


COMMAND = Command(
    name="growth",
    summary="compare with older cores of the process: what grew, what is new, what has gone",
    description=(
        "In the shell give the cores in order, the oldest first: `dmods growth base.core later.core newest.core`. In\n"
        "gdb the loaded core is the newest, and the older ones are the arguments. A note says where\n"
        "the allocation records or the times of the files show another order. With -p it takes pictures of a live\n"
        "process: `dmods growth -p PID --every 60 --times 3`. If the command also names cores, they come before the\n"
        "pictures.\n\n"
        "Under every key, OLD + GROWTH = NOW to the byte. NEW blocks are in the newest core and not in the oldest.\n"
        "GONE blocks are in the oldest core and not in the newest. With three or more cores, KEPT blocks are new\n"
        "blocks that a middle core already has. Lines that grew from each core to the next and were kept come first.\n"
        "A bounded cache and requests in flight do not come first. LEAKED is the part of NOW to which nothing points.\n"
        "Live, leaked and free memory are kept apart: where only free memory grew, nothing leaks.\n\n"
        "A block is the same in two cores if its allocation record says so. Without records it is probably the same\n"
        "if address, size and class agree. A note says if many of them hold other content: a cache that is filled\n"
        "anew in place. Cores of different runs are compared by keys without addresses.\n\n"
        "A stack that grew is not a suspect if as many blocks of the same type from other stacks were freed, as in a\n"
        "cache that two places fill. A note says so. --by shape groups all blocks by what they hold, even blocks\n"
        "of a known type.\n\n"
        "--by owner names the roots that hold the blocks, without addresses: module`variable, a frame's function and\n"
        "its thread's name, or a set of them. --by holder names what holds each block next: the type of the block\n"
        "that alone keeps it alive, or a root. So it says which container grew. Rates per hour come from the times\n"
        "of allocation records, or from --hours.\n\n"
        "Exit status 4 means that no verdict is possible: the first or the last core is cut, or lacks what findleaks\n"
        "needs. Then live and leaked blocks are one line, and OLD and NOW are what the dumps show."
    ),
    run=run,
    tables=(MEMORY, CHANGES, FINDINGS),
    totals=TOTALS,
    verdict=True,
    compares=True,
    arguments=(
        Argument("base", nargs="*", metavar="CORE", help="older cores of the process (in the shell: newer ones)"),
        Argument(
            "--by",
            choices=KEYS,
            help="the key to add up by (default: stack where all cores have allocation records, else type)",
        ),
        *CALLER_ARGUMENTS,
        Argument(
            "--every", type=seconds, metavar="SECONDS", help="with -p: the time between two pictures (default: 60)"
        ),
        Argument(
            "--times", type=_times, metavar="N", help=f"with -p: how many pictures (default: 3; 2 to {_MOST_CORES})"
        ),
        Argument("--hours", type=_hours, metavar="N", help="the time from the first core to the last, for rates"),
        Argument(
            "--top",
            type=positive,
            metavar="N",
            help=f"the first N (default: {_USUAL} that changed)",
        ),
    ),
    examples=(
        ("growth base.core", "what grew since base.core was taken"),
        ("growth base.core middle.core --by size", "three cores, by the sizes of the blocks"),
        ("growth --every 60 --times 3", "with -p PID, in the shell: a live process, three times in two minutes"),
    ),
)
