"""Name what has most of the memory."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.allocators.unwalked import is_go
from dmods.base.sizes import human_size
from dmods.command import Argument, Command, size
from dmods.finding import Evidence
from dmods.graph.owners.heap_owners import Owners, find_owners
from dmods.graph.suspects.candidates import LEAST, MOST, SHARE, find_candidates, most_of_language
from dmods.graph.suspects.process_share import ProcessMemory, process_memory
from dmods.graph.suspects.subject import counted_kind
from dmods.graph.suspects.suspect import FEW_WORTH, HELD, SHARE_OF_PROCESS, WORTH, Suspect, suspect
from dmods.heap.leaks.odd_pointers import odd_notes
from dmods.heap.ledger import LEDGER, find_ledger
from dmods.heap.verdict import judge, leak_verdict
from dmods.output.next_command import all_as_typed
from dmods.report import Column, Report, Schema, Table, Value
from dmods.runtimes.golang.crowds import Crowd, find_crowds
from dmods.target import Target

_MOST_OF_IT = 0.5  # of the process's memory: a heap that has less is not where to look first
SUSPECTS = Schema(
    "suspects",
    "something that has much of the memory",
    (
        Column("sentence"),
        Column("kind", hidden=True, about="held, type, size, leaked, free or goroutines"),
        Column("bytes", "bytes", hidden=True),
        Column("count", "count", hidden=True, null="it is not known"),
        Column("percent", "percent", hidden=True, null="it is not known"),
        Column("process_percent", "percent", hidden=True, null="it is not known"),
        Column(
            "address", "address", hidden=True, null="it has none", about="the outermost block, or one of the blocks"
        ),
        Column("point", "address", hidden=True, null="it has none", about="the block where the memory comes together"),
        Column("root", hidden=True, null="no root has a name"),
        Column("next", "texts", hidden=True, about="commands to type"),
        Column("confidence", hidden=True, about="certain, likely or possible"),
        Column("remedy", hidden=True),
    ),
    when="where a verdict is possible",
)
LARGEST = Schema(
    "largest",
    "something that has most of the memory, and is no suspect",
    SUSPECTS.columns,
    when="where nothing is a suspect",
)
NEXT = (Column("commands"),)
_DOUBT = "One core cannot tell whether what is held grows: `growth` compares two cores of the process."


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the suspects."""
    owners = find_owners(target)
    report = Report(notes=list(owners.notes))
    verdict = leak_verdict(owners.heap)
    judge(report, verdict)
    if not verdict.possible:
        return report
    memory = process_memory(owners)
    found = find_candidates(owners, memory)
    if any(each.kind == "leaked" for each in found):
        report.notes.extend(odd_notes(owners.heap))
    named = [each for each in found if each.is_worth(args.least)]
    crowds = [_crowd(each) for each in find_crowds(target)] if is_go(target) else []
    steps = [command for each in [*(named or found), *crowds] for command in each.next]
    rows = [_row(each) for each in [*named, *crowds]]
    report.tables.append(SUSPECTS.table(rows, style="plain"))
    if any(each.kind in HELD for each in named):
        report.tables.append(Table("doubt", (Column("doubt"),), [(_DOUBT,)], style="plain", only="text"))
    if not rows:
        report.notes.append(_none(owners, memory, found, args.least))
        largest = [_row(each) for each in found]
        title = "The most memory is here:" if largest else ""
        report.tables.append(LARGEST.table(largest, style="plain", title=title))
    if steps:
        lines = [(command,) for command in all_as_typed(steps)]
        report.tables.append(
            Table("next", NEXT, lines, style="plain", title="What to type next:", indent=4, only="text")
        )
    report.notes.extend(_elsewhere(memory))
    ledger = find_ledger(target)
    report.totals = {
        "live_bytes": owners.live,
        "leaked_bytes": memory.leaked,
        "heap_bytes": ledger.heap,
        "process_bytes": memory.own,
        "suspects": len(rows),
        "memory": ledger.values(),
    }
    return report


def _crowd(crowd: Crowd) -> Suspect:
    first = min(crowd.goroutines, key=lambda one: one.number)
    commands = [f"goroutines -s '{crowd.reason}'", f"goroutines {first.number}"]
    evidence = [Evidence(first.address, f"goroutine {first.number}")]
    return suspect("goroutines", crowd.sentence, crowd.stacks, commands, count=len(crowd.goroutines), evidence=evidence)


def _row(found: Suspect) -> tuple[Value, ...]:
    said = f"{found.what[0].upper()}{found.what[1:]}."
    share, part = (100 * each if each is not None else None for each in (found.share, found.share_of_process))
    places = found.address, found.point, found.subject or None
    judged = list(found.next), found.confidence, found.remedy
    return said, found.kind, found.weight, found.count, share, part, *places, *judged


def _none(owners: Owners, memory: ProcessMemory, found: list[Suspect], asked: Optional[int]) -> str:
    """Return why there are no suspects."""
    if not found:
        limit = f"{SHARE:.0%} of the heap in use ({human_size(memory.in_use)}) and at least {human_size(LEAST)}"
        kind = most_of_language(owners, memory)
        if kind is not None:
            much = f"{kind.bytes / memory.in_use:.0%} of it is {counted_kind(kind)}, a type of the language"
            return f"no suspects: no root and no block holds {limit}; {much}"
        return f"no suspects: nothing has {limit}"
    first = found[0]
    least = first.least(asked)
    if first.is_reserved:
        return "no suspects: most of the held memory is one block that is hardly filled: it is nearly all zeros"
    if first.weight < least:
        what = "most of it is a few large blocks, with less than" if first.is_few else "nothing has"
        return f"no suspects: {what} {human_size(least)} (--least). The heap has {human_size(memory.heap)}"
    return f"no suspects: nothing in the heap is {SHARE_OF_PROCESS:.0%} of the process's memory"


def _elsewhere(memory: ProcessMemory) -> list[str]:
    """Return a note where most of the process's memory is not in the heap."""
    if memory.heap >= _MOST_OF_IT * memory.own or memory.own - memory.heap < LEAST:
        return []
    largest = memory.largest
    where = f"; the largest mapping is {largest.start:#x}, {human_size(largest.size)}" if largest is not None else ""
    return [
        f"the heap has {human_size(memory.heap)} of the process's {human_size(memory.own)} of memory, "
        f"{memory.heap / memory.own:.0%}: most of it is elsewhere (maps lists it{where})"
    ]


TOTALS = (
    Column("live_bytes", "bytes", when="where a verdict is possible"),
    Column("leaked_bytes", "bytes", when="where a verdict is possible"),
    Column("heap_bytes", "bytes", when="where a verdict is possible"),
    Column("process_bytes", "bytes", when="where a verdict is possible"),
    Column("suspects", "count", when="where a verdict is possible"),
    Column("memory", "object", when="where a verdict is possible", fields=LEDGER),
)


COMMAND = Command(
    name="suspects",
    summary=f"what has most of the memory: at most {MOST} sentences for a ticket",
    description=(
        "A suspect is one of these: the leaked blocks, the memory that the allocator holds free, or a root (or\n"
        "several that share it, such as the head and the tail of a list), a block, a type or a size that has\n"
        f"{SHARE:.0%} of the heap in use, and {SHARE_OF_PROCESS:.0%} of the memory of the process. It has\n"
        f"{human_size(WORTH)} or more, or {human_size(FEW_WORTH)} if it is a few large blocks: these are mostly\n"
        "buffers and tables, and do not accumulate. --least sets both. A small or well distributed heap has no\n"
        "suspects. Then the largest owners are shown.\n\n"
        "Each sentence names the owner, its share of the heap and of the process, and the block where the memory\n"
        "comes together, with a sample of its blocks: texts that differ from block to block. With debug information\n"
        "the owner is the deepest part that keeps most of what its variable holds: `main: s.by_token`,\n"
        "`srv->cache->table`. A block without a type is named by the functions that it points to. Of many roots that\n"
        "share memory, three are named. If the memory hangs on one entry of a container, the sentence has the entry's\n"
        "text, such as its key. If one block alone leads to a third or more of the blocks of an index, the sentence\n"
        "names it, too: for example, the client whose queue has the messages. Large blocks that are divided into\n"
        "places of one size are pools: the sentence counts the places.\n\n"
        "A note says if most of the process's memory is not in the heap. In a Go program many goroutines that wait in\n"
        "one place are a suspect, too: they look like a leak of goroutines.\n\n"
        "Leaked memory, and memory that the allocator holds free, are certain. Memory that a variable or a type holds\n"
        "is only a possible suspect: a full cache, or data that the program needs, looks the same in one core.\n"
        "`growth` compares two cores. A block that is nearly all zeros is no suspect: it was reserved, and not\n"
        "filled. A variable that each thread has (thread-local, or a local of a worker's function) is one suspect.\n\n"
        "Exit status 4 means that no verdict is possible, as for `findleaks`."
    ),
    run=run,
    tables=(SUSPECTS, LARGEST),
    totals=TOTALS,
    verdict=True,
    arguments=(
        Argument(
            "--least",
            metavar="SIZE",
            type=size,
            help=f"nothing smaller is a suspect (default: {human_size(WORTH)}, a few blocks {human_size(FEW_WORTH)})",
        ),
    ),
    examples=(("suspects", "the sentences, and what to type next"), ("suspects --least 1M", "for a small program")),
)
