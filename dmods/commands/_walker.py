"""The shape of a walker of ``walk``, for processes and kernels, and the list of walkers as a table and as help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Generic, Optional, TypeVar

from dmods.base.dataclass import dataclass, replace
from dmods.command import Argument
from dmods.report import Column, Report, Schema, Table, Value

Rows = Iterable[Sequence[Value]]
Subject = TypeVar("Subject")
Query = TypeVar("Query")


@dataclass(frozen=True)
class Walker(Generic[Subject, Query]):
    """A walk over addresses of one kind.

    ``columns`` begin with the address; ``rows(subject, query)`` gives their cells. ``narrows`` says in words how the
    word behind the walker's name narrows the walk ("": the walker takes no word). ``of_blocks``: it walks blocks of the
    heap and takes sizes. ``typed``: it takes a type or a shape. ``of_heap``: its answer depends on the heap.
    ``of_leaks``: an empty answer says that nothing leaked. ``lines`` gives the addresses as text, for a walker that can
    make text faster than row by row.
    """

    summary: str
    columns: Sequence[Column]
    rows: Callable[[Subject, Query], Rows]
    narrows: str = ""
    of_blocks: bool = False
    of_heap: bool = False
    typed: bool = False
    of_leaks: bool = False
    lines: Optional[Callable[[Subject, Query], Iterable[str]]] = None

    def table(self, name: str, rows: Rows, whole: bool, lines: Optional[Iterable[str]] = None) -> Table:
        """Return the table of the walker of that name. Only the ``whole`` one has more than addresses."""
        columns = self.columns if whole else self.columns[:1]
        return Schema(name, self.summary, self.columns).table(rows, columns, style="plain", lines=lines)


def list_of(walkers: Mapping[str, Walker[Any, Any]], narrowed: Column) -> Report:
    """Return the names of the walkers with their summaries. ``narrowed`` is the column of what narrows them."""
    rows = [(name, walker.summary, walker.narrows or None) for name, walker in walkers.items()]
    return Report([list_schema(narrowed).table(rows)])


def list_schema(narrowed: Column) -> Schema:
    """Return the table of `list_of`."""
    columns = (Column("name"), Column("summary"), replace(narrowed, null="nothing narrows it"))
    return Schema("walkers", "a walker", columns, when="without NAME")


def walker_schemas(walkers: Mapping[str, Walker[Any, Any]]) -> Sequence[Schema]:
    """Return the table of each walker."""
    return [Schema(name, one.summary, one.columns, when=f"with NAME {name}") for name, one in walkers.items()]


def help_of(walkers: Mapping[str, Walker[Any, Any]], word: str, width: int) -> str:
    """Return the walkers as a list for help. ``word`` names what narrows a walk; names have ``width`` characters."""
    behind = f";\n{'':{width + 3}}with {word} "
    lines = [
        f"  {name:<{width}} {walker.summary}" + (f"{behind}{walker.narrows}" if walker.narrows else "")
        for name, walker in walkers.items()
    ]
    return "\n".join(["Walkers (`walk` alone lists them):", *lines])


def name_argument(walkers: Mapping[str, Walker[Any, Any]]) -> Argument:
    """Return the argument that names a walker."""
    return Argument("walker", nargs="?", metavar="NAME", choices=list(walkers), help="what to walk")
