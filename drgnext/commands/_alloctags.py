"""The table of `kmausers --source tags`: memory by the call that allocated it, as the kernel counted it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from dmods.base.dataclass import replace
from dmods.base.sizes import human_size
from dmods.errors import UsageError, UserError
from dmods.report import Column, Report, Schema, Value
from drgnext.kernel.system.alloctags import AllocTag, alloc_tags, is_counting
from drgnext.kernel.system.reading import Reader

IMAGE = "vmlinux"  # what other commands call the kernel's image, too
HOW_TO_COUNT = "only a kernel built with CONFIG_MEM_ALLOC_PROFILING (6.10 and later) counts by call site"
_SUMS = (
    Column("bytes", "bytes", width=12),
    Column("count", "count", width=8),
    Column("percent", "percent", width=5, title="%LIVE"),
)
_SITE = (
    Column("module", width=12, about="vmlinux for the kernel itself"),
    Column("function", width=28),
    Column("source", about="file and line"),
    Column("file", hidden=True),
    Column("line", "count", hidden=True),
    Column("accurate", "count", hidden=True, about="1 where the kernel counted every allocation, else 0"),
    Column("tag", "address", hidden=True, about="the kernel's own record of the call site"),
)
_GROUPS: dict[str, tuple[Column, Callable[[AllocTag], str]]] = {
    "function": (Column("function"), lambda tag: tag.function),
    "library": (Column("module"), lambda tag: tag.module or IMAGE),
}

SITES = Schema("users", "a call that allocates, as the kernel counted it", (*_SUMS, *_SITE), when="with --source tags")
SITE_GROUPS = Schema(
    "users",
    "the calls of a function or module",
    (*_SUMS, *(replace(column, when=f"with --by {by}") for by, (column, _key) in _GROUPS.items())),
    when="with --source tags and --by",
)
TAG_TOTALS = (Column("sites", "count", when="with --source tags"),)


def tags_report(reader: Reader, tags: list[AllocTag], args: argparse.Namespace) -> Report:
    """Return who holds memory by call site, the biggest first. Raises UsageError for --by cache."""
    if args.by == "cache":
        raise UsageError("the kernel counts call sites, not caches", "give --by stack, function or library")
    everything = sum(tag.bytes for tag in tags)
    chosen = [tag for tag in tags if args.what is None or args.what in (tag.function, tag.module or IMAGE)]
    by_site = args.by == "stack"
    rows = [_site(tag, everything) for tag in chosen] if by_site else _groups(chosen, args.by, everything)
    rows.sort(key=lambda row: (-number(row[0]), -number(row[1])))
    kept = [row for row in rows if (row[0] or row[1]) and number(row[0]) >= args.min]
    shown = kept[: None if args.all else args.top]
    table = SITES.table if by_site else SITE_GROUPS.table
    columns = SITES.columns if by_site else (*_SUMS, _GROUPS[args.by][0])
    report = Report([table(shown, columns, footer=_footer(kept, shown, everything))])
    report.totals = {
        "users": len(kept),
        "sites": len(chosen),
        "bytes": sum(tag.bytes for tag in chosen),
        "count": sum(tag.calls for tag in chosen),
        "live_bytes": everything,
        "shown_bytes": sum(number(row[0]) for row in shown),
    }
    if args.what is not None and not chosen:
        report.notes.append(f"no call site is in a function or module {args.what}")
    if is_counting(reader) is False:
        report.notes.append("the kernel did not count when it died (vm.mem_profiling was 0): the numbers are older")
    inaccurate = sum(tag.inaccurate for tag in chosen)
    if inaccurate:
        report.notes.append(f"the kernel says of {inaccurate} call sites that it could not count every allocation")
    report.notes += reader.notes
    return report


def tags_asked(reader: Reader) -> list[AllocTag]:
    """Return all call sites. Raises UserError if this kernel does not count by call site."""
    tags = alloc_tags(reader)
    if tags is None:
        raise UserError("this kernel did not count memory by call site", HOW_TO_COUNT)
    return tags


def number(value: Value) -> int:
    """Return a cell that is a number."""
    return value if isinstance(value, int) else 0


def _share(size: int, everything: int) -> float:
    return 100 * size / everything if everything > 0 else 0.0


def _site(tag: AllocTag, everything: int) -> tuple[Value, ...]:
    where = (tag.module or IMAGE, tag.function, f"{tag.file}:{tag.line}", tag.file, tag.line)
    return (tag.bytes, tag.calls, _share(tag.bytes, everything), *where, int(not tag.inaccurate), tag.address)


def _groups(tags: list[AllocTag], by: str, everything: int) -> list[tuple[Value, ...]]:
    sums: dict[str, tuple[int, int]] = {}
    for tag in tags:
        key = _GROUPS[by][1](tag)
        size, calls = sums.get(key, (0, 0))
        sums[key] = size + tag.bytes, calls + tag.calls
    return [(size, calls, _share(size, everything), key) for key, (size, calls) in sums.items()]


def _footer(rows: list[tuple[Value, ...]], shown: list[tuple[Value, ...]], everything: int) -> list[str]:
    lines = ["-" * 72]
    hidden = rows[len(shown) :]
    if hidden:
        lines.append(_sum(hidden, everything, f" in {len(hidden)} smaller groups (--all shows them)"))
    lines.append(_sum(rows, everything, " in total"))
    return lines


def _sum(rows: list[tuple[Value, ...]], everything: int, text: str) -> str:
    size, calls = (sum(number(row[column]) for row in rows) for column in (0, 1))
    human = f", {human_size(size)}" if size >= 1024 else ""
    return f"{size:12} {calls:8} {_share(size, everything):4.0f}%{human}{text}"
