"""Addresses of one kind in a kernel, one on each line."""

from __future__ import annotations

import argparse

from dmods.command import KERNEL, Argument, Command
from dmods.commands._walker import help_of, list_of, list_schema, name_argument, walker_schemas
from dmods.errors import UsageError
from dmods.report import Column, Report
from drgnext.commands._walkers import WALKERS
from drgnext.kernel.dump.target import Kernel

_NARROWED = Column("with_word", title="WITH WORD")


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the addresses that the walker finds, or the list of walkers."""
    if args.walker is None:
        return list_of(WALKERS, _NARROWED)
    walker = WALKERS[args.walker]
    if args.word is not None and not walker.narrows:
        raise UsageError(f"walk {args.walker} takes no further word", f"walk {args.walker}")
    if walker.lines is not None and not args.json:
        table = walker.table(args.walker, (), False, walker.lines(kernel, args.word))
    else:
        table = walker.table(args.walker, walker.rows(kernel, args.word), args.json)
    return Report([table])


COMMAND = Command(
    name="walk",
    summary="the addresses of pages, tasks, slab objects, leaks, zones or vmap areas, one on each line",
    description=help_of(WALKERS, "a word", 10)
    + "\nWith --json each address has its other columns: page frame and kind, or pid and name.",
    run=run,
    tables=(list_schema(_NARROWED), *walker_schemas(WALKERS)),
    arguments=(
        name_argument(WALKERS),
        Argument("word", nargs="?", metavar="WORD", help="narrow the walk, as the walker says"),
    ),
    requires=(KERNEL,),
    examples=(
        ("walk allpages", "every struct page"),
        ("walk allpages page_table", "only pages that are page tables"),
        ("walk slab dentry", "every allocated object of the cache dentry"),
        ("walk task --json", "every thread, with its pid and name"),
    ),
)
