"""Who holds slab memory: live objects by the stack that allocated them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import cast

from dmods.base.dataclass import replace
from dmods.command import KERNEL, Argument, Command
from dmods.commands._records import CALLER_ARGUMENTS, LINES
from dmods.commands._users import ARGUMENTS, TOTALS, User, caller_key, groups_of, stack_key, users_report, users_schema
from dmods.report import Column, Report, Value
from drgnext.commands._alloctags import SITE_GROUPS, SITES, TAG_TOTALS, tags_asked, tags_report
from drgnext.commands._slabs import address_asked, cache_name, callers_asked, objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.objects import ALLOCATED_STATES
from drgnext.kernel.slabs.tracks import SlabUser, Tracks
from drgnext.kernel.system.alloctags import alloc_tags
from drgnext.kernel.system.reading import Reader

_KEYS = {
    "stack": Column("caller"),
    "function": Column("function"),
    "library": Column("module"),
    "cache": Column("cache"),
}
_USERS = replace(users_schema(_KEYS), when="with --source tracks (the default where allocations were recorded)")


TRACKS, TAGS = "tracks", "tags"


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the users of memory, the biggest first."""
    if args.source == TAGS:
        reader = Reader(kernel)
        return tags_report(reader, tags_asked(reader), args)
    slabs = objects_of(kernel)
    tracks = Tracks(slabs)
    if args.source is None and not tracks.of_caches:
        reader = Reader(kernel)
        tags = alloc_tags(reader)
        if tags is not None:
            return tags_report(reader, tags, args)
    tracks.require()
    callers = callers_asked(kernel, args, lines=args.lines)
    users = [tracks.user(group) for group in slabs.engine.groups(list(ALLOCATED_STATES), False)]
    everything = sum(user.bytes for user in users)
    if args.what is not None:
        address = address_asked(kernel, args.what)
        users = [user for user in users if callers.passes(user.stack, address)]
    groups = groups_of(users, _key_of(callers, args.by, args.depth))
    report = users_report(args, callers, groups, everything, _USERS)
    report.notes += [*slabs.notes, *tracks.notes]
    return report


def _key_of(callers: KernelCallers, by: str, depth: int) -> Callable[[User], Value]:
    """Return the function that gives the key of a user."""
    return {
        "stack": stack_key(callers, depth),
        "function": caller_key(callers, callers.function_name),
        "library": caller_key(callers, callers.library),
        "cache": lambda user: cache_name(cast(SlabUser, user).cache),
    }[by]


COMMAND = Command(
    name="umausers",
    summary="who holds slab memory: live bytes by the stack that allocated them, the biggest first",
    description=(
        "Needs slub_debug=U on the kernel's command line. Counts the objects of all caches that keep records, leaked\n"
        "or not, by the size of an object. `kmausers` is the same.\n\n"
        "A kernel built with CONFIG_MEM_ALLOC_PROFILING (6.10 and later) counts bytes and calls of all memory by call\n"
        "site: slab, pages, per-CPU memory and vmalloc. Without records the command shows these numbers, as\n"
        "/proc/allocinfo would have shown them. --source tags asks for them where there are both."
    ),
    run=run,
    tables=(_USERS, SITES, SITE_GROUPS),
    totals=(*TOTALS, *TAG_TOTALS),
    arguments=(
        Argument(
            "--source",
            choices=(TRACKS, TAGS),
            help="tracks: slab objects by stack; tags: the kernel's own counts by call site (the default: tracks, if "
            "there are any)",
        ),
        Argument("--by", choices=tuple(_KEYS), default="stack", help="what makes a group (stack)"),
        *ARGUMENTS,
        *CALLER_ARGUMENTS,
        LINES,
        Argument("what", nargs="?", metavar="ADDR|FUNCTION", help="only those with this in their stack"),
    ),
    requires=(KERNEL,),
    examples=(
        ("umausers --top 3", "the three biggest"),
        ("umausers --by cache --all", "every cache"),
        ("umausers --source tags --by library", "what each module holds, by the kernel's own counts"),
    ),
)
