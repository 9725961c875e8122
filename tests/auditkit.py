"""Run commands on cores of audited programs, and read what ``fixtures/userland/callers.c`` said of its blocks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple, Optional

from dmods.corefile.target import CoreFile
from fixtures import answers, audited
from fixtures.answers import text
from fixtures.truth import Block, Truth

__all__ = ("answer", "callers", "functions", "text")


class Told(NamedTuple):
    """The allocation and the free of a block, as the program knew them."""

    block: Block
    tid: int
    returns: int  # the return address of the function that called malloc
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
    """Return a core of callers.c, and what the program said."""
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
    """Return what --json prints, its tables by name."""
    whole = answers.answer(target, name, *words)
    return {**whole, "tables": answers.by_name(whole)}


def functions(frames: Iterable[dict[str, Any]]) -> list[str]:
    """Return the functions of a stack's frames, without offsets."""
    return [frame["name"].partition("+0x")[0] for frame in frames]
