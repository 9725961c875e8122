"""Show how a root leads to a block."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command, positive
from dmods.errors import ASK_WHATIS, UsageError
from dmods.graph.owners.heap_owners import find_owners
from dmods.graph.owners.root_paths import MOST_STEPS, Path, Step, path_to
from dmods.graph.roots.named_roots import named_roots
from dmods.heap.block import FREE
from dmods.heap.blocks import STATES
from dmods.heap.heap import find_heap
from dmods.report import Column, Report, Schema, Table, Value
from dmods.target import Target

_MOST_PATHS = 16

STEPS = Schema(
    "path",
    "a block on the way from the root",
    (
        Column("step", "count", title="#", about="from 1; missing numbers are left out"),
        Column("place", title="WORD AT", about="what holds the pointer"),
        Column("at", "address", width=16, title="ADDRESS", null="it is a register"),
        Column("block", "address", width=16, title="-> BLOCK"),
        Column("to", "address", title="+", null="it is not known", about="how far into the block the pointer points"),
        Column("size", "bytes"),
        Column("looks_like", title="LOOKS LIKE", null="nothing is known of its content"),
    ),
)


def path_table(path: Path, title: str, report: Report) -> Table:
    """Return a path as a table: a row for each step that is described. A note says that some are not."""
    count = len(path.addresses)
    if len(path.steps) < count:
        first = next(number for number, step in enumerate(path.steps) if step.number != number + 1)
        report.notes.append(
            f"the path has {count} blocks; the first {first} and the last {len(path.steps) - first} are shown"
            f" (`pathto {path.addresses[-1]:#x} -n {count}` shows all)"
        )
    return STEPS.table([_row(step) for step in path.steps], title=title)


def _row(step: Step) -> tuple[Value, ...]:
    block = step.block
    return step.number, step.holder, step.at, block.address, step.to, block.size, step.looks_like or None


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the shortest path to the block at the address."""
    address = target.evaluate(args.address)
    heap = find_heap(target)
    block = heap.block_at(address)
    if block is None or block.state == FREE:
        state = "is in no block of the heap" if block is None else "is in a free block"
        raise UsageError(f"{address:#x} {state}", ASK_WHATIS)
    roots = named_roots(target)
    report = Report(notes=[*heap.notes, *heap.roots.notes, *roots.notes])
    most = max(args.most, 2)  # the first step and the last one, at least
    best = path_to(roots, address, most=most)
    if best is None:
        report.notes.append(f"no root leads to {block.address:#x}: the block is {STATES[block.state]}")
        report.tables.append(STEPS.table([]))
        return report
    report.tables.append(path_table(best, _title(best), report))
    if args.all:
        report.tables.extend(_others(target, address, best, most, report))
    return report


def _title(path: Path) -> str:
    return f"from {path.root.name}" if path.root is not None else "from a direct leak"


def _others(target: Target, address: int, best: Path, most: int, report: Report) -> list[Table]:
    """Return the paths from the other roots that hold the block."""
    owners = find_owners(target)
    found = owners.above(address)
    others = [root for root in found[1].roots if root != best.root] if found is not None else []
    if found is not None and not found[1].roots and best.root is not None:
        report.notes.append("more roots lead there than can be listed")
    if len(others) > _MOST_PATHS:
        report.notes.append(f"{len(others) - _MOST_PATHS} more roots lead there")
    numbers = [owners.roots.number_of(root) for root in others[:_MOST_PATHS]]
    paths = [
        path_to(owners.roots, address, number, most, owners=owners.engine) for number in numbers if number is not None
    ]
    return [path_table(path, _title(path), report) for path in paths if path is not None]


COMMAND = Command(
    name="pathto",
    summary="the shortest path from a root to a block: who keeps it alive",
    description=(
        "Each line is a word that points into the next block. The first word lies in a root, and each other word\n"
        "in the block before. pathto chooses the best root: data before stacks, and a pointer to a block's start\n"
        "before a pointer into its middle. From that root it shows the path of fewest blocks. --all shows a path\n"
        "from each root that holds the block. For a leaked block the path begins at a direct leak. Of a long path,\n"
        "through a linked list for example, the first and the last steps are shown."
    ),
    run=run,
    tables=(STEPS,),
    arguments=(
        Argument("--all", action="store_true", help="a path from each root that holds the block"),
        Argument("-n", "--most", type=positive, default=MOST_STEPS, metavar="N", help=f"show N steps ({MOST_STEPS})"),
        Argument("address", metavar="ADDR", help="an address in a block"),
    ),
    examples=(("pathto 0x55d0c8a012a0", "how the block there is reached"),),
)
