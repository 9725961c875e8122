"""Name what keeps most of the heap alive."""

from __future__ import annotations

import argparse

from dmods.allocators.unwalked import is_go
from dmods.base.sizes import human_size
from dmods.command import Command
from dmods.graph.owners import find_owners
from dmods.graph.suspects import LEAST, MOST, SHARE, find_suspects
from dmods.heap.verdict import judge, leak_verdict
from dmods.report import Column, Report, Table, Value
from dmods.runtimes.golang.crowds import find_crowds
from dmods.target import Target

SUSPECTS = (
    Column("sentence"),
    Column("bytes", "bytes", hidden=True),
    Column("count", "count", hidden=True),
    Column("percent", "percent", hidden=True),
    Column("address", "address", hidden=True),
    Column("root", hidden=True),
    Column("next", hidden=True),
)
NEXT = (Column("commands"),)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the suspects."""
    owners = find_owners(target)
    report = Report(notes=list(owners.notes))
    verdict = leak_verdict(owners.heap)
    judge(report, verdict)
    if not verdict.possible:
        return report
    found = find_suspects(owners)
    rows: list[tuple[Value, ...]] = [
        (f"{each.sentence}.", each.bytes, each.count, 100 * each.share, each.address, each.root, each.next)
        for each in found
    ]
    steps = [command for each in found for command in each.next]
    for crowd in find_crowds(target) if is_go(target) else ():
        first = min(crowd.goroutines, key=lambda one: one.number)
        commands = [f"goroutines -s '{crowd.reason}'", f"goroutines {first.number}"]
        steps += commands
        rows.append((f"{crowd.sentence}.", crowd.stacks, len(crowd.goroutines), None, first.address, None, commands))
    report.tables.append(Table("suspects", SUSPECTS, rows, style="plain"))
    if rows:
        lines = [(command,) for command in steps]
        report.tables.append(
            Table("next", NEXT, lines, style="plain", title="What to type next:", indent=4, only="text")
        )
    else:
        report.notes.append(
            f"no suspects: nothing keeps {SHARE:.0%} of the live heap ({human_size(owners.live)}) "
            f"and at least {human_size(LEAST)} alive"
        )
    report.totals = {"live_bytes": owners.live, "suspects": len(rows)}
    return report


COMMAND = Command(
    name="suspects",
    summary=f"what keeps most of the heap alive: at most {MOST} sentences for a ticket",
    description=(
        f"A suspect is a root, a block or a kind of block that keeps {SHARE:.0%} of the live heap and at least\n"
        f"{human_size(LEAST)} alive. A small or well distributed heap has none. Each sentence names the owner,\n"
        "its share, and the block where the memory comes together. In a Go program many goroutines that wait in one\n"
        "place are a suspect, too: they look like a leak of goroutines.\n\n"
        "Exit status 4 means that no verdict is possible, as for `findleaks`."
    ),
    run=run,
    examples=(("suspects", "the sentences, and what to type next"),),
)
