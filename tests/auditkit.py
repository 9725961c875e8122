"""Commands on cores of audited programs, and what ``fixtures/userland/callers.c`` said of its blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from io import StringIO
from typing import Any, NamedTuple, Optional

from dmods import command
from dmods.corefile import CoreFile
from dmods.render import render
from fixtures import audited
from fixtures.truth import Block, Truth


class Told(NamedTuple):
    """Who allocated a block, and who freed it, as the program knew it."""

    block: Block
    tid: int
    returns: int  # where the function that called malloc returns to
    before: int  # CLOCK_MONOTONIC, ns
    after: int
    freed_tid: Optional[int]
    freed_returns: Optional[int]


class Taken(NamedTuple):
    target: CoreFile
    truth: Truth
    told: dict[int, Told]


@cache
def callers(
    options: str = "audit,log=10000", how: str = "kernel", variant: str = "dynamic", userland: str = "host"
) -> Taken:
    """A core of callers.c."""
    made = audited.take("callers", options, how, variant, userland)
    facts = made.truth.facts

    def of(block: Block) -> Told:
        values = [facts[f"{what} {block.address:#x}"] for what in ("tid", "returns", "before", "after")]
        freed = [facts.get(f"freed-{what} {block.address:#x}") for what in ("tid", "returns")]
        return Told(block, *values, *freed)

    told = {address: of(block) for address, block in made.truth.blocks.items()}
    target = CoreFile(str(made.core), sysroot=str(made.sysroot) if made.sysroot else None)
    return Taken(target, made.truth, told)


def answer(target: CoreFile, name: str, *words: str) -> dict[str, Any]:
    """What --json prints, its tables by name."""
    found = command.find(name)
    report = found.run(target, found.parser().parse_args(words))
    out = StringIO()
    render(report, name, target, True, out, StringIO())
    whole = json.loads(out.getvalue())
    whole["tables"] = {table["name"]: table["rows"] for table in whole["tables"]}
    assert isinstance(whole, dict)
    return whole


def text(target: CoreFile, name: str, *words: str) -> str:
    """What is printed on stdout."""
    found = command.find(name)
    out = StringIO()
    render(found.run(target, found.parser().parse_args(words)), name, target, False, out, StringIO())
    return out.getvalue()


def functions(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The functions of a stack's rows, without offsets."""
    return [row["where"].partition("+0x")[0] for row in rows]
