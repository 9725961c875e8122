"""The tables of a profile, which the commands `profile` of a process and of a kernel share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from dmods.base.dataclass import replace
from dmods.command import Argument, positive
from dmods.commands._records import pattern
from dmods.errors import UsageError
from dmods.profile.forms import Write, write_file
from dmods.profile.view import BY, FUNCTION, Graph, Node, View
from dmods.report import Column, Report, Schema, Table, Value

_TOP = 20
_TOP_VIEW, _TREE, _PEEK = "top", "tree", "peek"
_VIEWS = (_TOP_VIEW, _TREE, _PEEK)

_UNIT = "bytes, or blocks where the total `sample_type` is one of objects"
_NODE = (
    Column("flat", "count", width=12, about=f"{_UNIT}: its own"),
    Column("flat_percent", "share", width=7, title="FLAT%"),
    Column("sum_percent", "share", width=7, title="SUM%", about="of this row and those above"),
    Column("cum", "count", width=12, about=f"{_UNIT}: with what it called"),
    Column("cum_percent", "share", width=7, title="CUM%"),
)
_CALLS = (
    *(replace(column, null="the row is a caller or a callee") for column in _NODE),
    Column("calls", "count", width=12, null="the row is the function itself", about=f"{_UNIT}: through this call"),
    Column("calls_percent", "share", width=7, title="CALLS%", null="the row is the function itself"),
    Column("context", about="the name, indented"),
    Column("role", hidden=True, about="caller, function or callee"),
    Column("function", hidden=True, about="whose callers and callees these are"),
)
_CONTEXTS = {
    view: Schema(view, "a function, one of its callers or one of its callees", _CALLS, when=f"with the view {view}")
    for view in (_TREE, _PEEK)
}
_WRITTEN = Schema(
    "written",
    "the file that was written",
    (Column("file"), Column("samples", "count"), Column("size", "bytes", title="BYTES")),
    when="with -o",
)
TOTALS = (
    Column("total", "count", about=_UNIT),
    Column("shown", "count", about=f"{_UNIT}: of the samples that --focus and --ignore leave"),
    Column("samples", "count"),
    Column("period", "count", about="bytes between two samples; 1 where every block was recorded"),
    Column("source", about="where the profile comes from"),
    Column("sample_type"),
)


_TOP_TABLE = Schema(
    "top",
    "what --by names",
    (*_NODE, *(Column(key, when=f"with --by {key}{' (the default)' if key == FUNCTION else ''}") for key in BY)),
    when="with the view top (the default)",
)


def profile_tables(keys: Sequence[str] = BY) -> tuple[Schema, ...]:
    """Return the tables of a command whose --by takes these keys."""
    own = [column for column in _TOP_TABLE.columns if column in _NODE or column.name in keys]
    top = replace(_TOP_TABLE, columns=own) if len(own) < len(_TOP_TABLE.columns) else _TOP_TABLE
    return (top, *_CONTEXTS.values(), _WRITTEN)


FORMS_HELP = (
    "-o writes a file. The end of its name says the form:\n"
    "  .pb.gz            pprof, with functions, lines and labels (go tool pprof x.pb.gz)\n"
    "  .heap             the text of jemalloc (jeprof) or gperftools (google-pprof)\n"
    "  .folded           folded stacks\n"
    "  .speedscope.json  speedscope\n"
    "  .svg, .html       a flame graph in one file, without network"
)
VIEW_ARGUMENTS = (
    Argument(
        "view",
        nargs="?",
        choices=_VIEWS,
        default=_TOP_VIEW,
        metavar="VIEW",
        help="top (the default), tree: with callers and callees, or peek: one function",
    ),
    Argument("function", nargs="?", type=pattern, metavar="REGEX", help="the functions for peek"),
)
FILTER_ARGUMENTS = (
    Argument("--focus", type=pattern, metavar="REGEX", help="only stacks with this function, file or library"),
    Argument("--ignore", type=pattern, metavar="REGEX", help="no stacks with this function, file or library"),
)
TOP_ARGUMENT = Argument("--top", type=positive, default=_TOP, metavar="N", help=f"the first N rows ({_TOP})")
OUTPUT_ARGUMENT = Argument("-o", "--output", metavar="FILE", help="write a file; its name says the form")


def check_view(args: argparse.Namespace) -> None:
    """Raise UsageError where the view and the function do not fit."""
    if (args.view == _PEEK) != (args.function is not None):
        raise UsageError("peek takes a function, and the other views take none", "profile peek REGEX")


def report_of(view: View, args: argparse.Namespace, write: Optional[Write]) -> Report:
    """Return the profile as a table, or write it to a file."""
    profile = view.profile
    report = Report(notes=list(dict.fromkeys(profile.notes)))
    if write is not None:
        report.tables.append(_written(view, write, args.output))
    elif args.view in (_TREE, _PEEK):
        report.tables.extend(_context(view, args))
    else:
        report.tables.append(_top(view, args.top))
    report.totals = {
        "total": view.total,
        "shown": sum(sample.values[view.index] for sample in view.samples()),
        "samples": len(profile.samples),
        "period": profile.period,
        "source": profile.source,
        "sample_type": view.sample,
    }
    return report


def _written(view: View, write: Write, path: str) -> Table:
    size = write_file(view, write, path)
    return _WRITTEN.table([(path, len(view.profile.samples), size)])


# -- text --------------------------------------------------------------------------------------------------------------


def _top(view: View, top: int) -> Table:
    graph = view.graph()
    ordered = graph.ordered()
    rows: list[tuple[Value, ...]] = []
    so_far = 0
    for name, node in ordered[:top]:
        so_far += node.flat
        rows.append((*_cells(graph, node, so_far), name))
    columns = [column for column in _TOP_TABLE.columns if column in _NODE or column.name == view.by]
    return _TOP_TABLE.table(rows, columns, title=_headline(view, graph, ordered[:top]))


def _cells(graph: Graph, node: Node, so_far: int) -> tuple[Value, ...]:
    share = _share(graph)
    return node.flat, share(node.flat), share(so_far), node.cum, share(node.cum)


def _share(graph: Graph) -> Callable[[int], float]:
    return lambda value: 100 * value / graph.total if graph.total else 0.0


def _headline(view: View, graph: Graph, shown: list[tuple[str, Node]]) -> str:
    flat = sum(node.flat for _name, node in shown)
    unit = "bytes" if view.unit == "bytes" else "blocks"
    hidden = len(graph.nodes) - len(shown)
    rest = f"; {hidden} more are not shown (--top)" if hidden else ""
    of = " of the base" if view.compared else ""
    return f"{view.sample}: {flat} {unit}, {_share(graph)(flat):.2f}% of {graph.total} {unit}{of} in total{rest}"


def _context(view: View, args: argparse.Namespace) -> Iterator[Table]:
    """Yield one table: for each function its callers, its own row, and its callees, as `pprof -tree` has them."""
    graph = view.graph()
    ordered = graph.ordered()
    if args.view == _PEEK:
        ordered = [(name, node) for name, node in ordered if args.function.search(name)]
    shown = ordered[: args.top]
    above: dict[str, list[tuple[int, str]]] = {}
    below: dict[str, list[tuple[int, str]]] = {}
    for (caller, callee), value in view.edges({name for name, _node in shown}).items():
        above.setdefault(callee, []).append((value, caller))
        below.setdefault(caller, []).append((value, callee))
    rows: list[tuple[Value, ...]] = []
    so_far = 0
    for name, node in shown:
        so_far += node.flat
        rows.extend(_edges(above.get(name, []), node, "caller", name))
        rows.append((*_cells(graph, node, so_far), None, None, name, "function", name))
        rows.extend(_edges(below.get(name, []), node, "callee", name))
    title = _headline(view, graph, shown) if args.view == _TREE else ""
    yield _CONTEXTS[args.view].table(rows, title=title)


def _edges(edges: list[tuple[int, str]], node: Node, role: str, function: str) -> Iterator[tuple[Value, ...]]:
    for value, name in sorted(edges, key=lambda edge: (-abs(edge[0]), edge[1])):
        share = 100 * value / node.cum if node.cum else 0.0
        yield (None,) * 5 + (value, share, f"{'  ' if role == 'caller' else '    '}{name}", role, function)
