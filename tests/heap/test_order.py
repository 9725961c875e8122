"""Commands on one open target answer the same in any order: each sees one state of the heap, whoever asks first."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from fixtures import _cache, answers, cores, jemallocs
from fixtures.cores import CoreSet
from fixtures.judge import open_core
from tests import quick

#: The commands that count blocks, or say what state a block has. {} is the address of a block that the program freed.
COMMANDS = (
    "heapsizes",
    "heapsizes --exact --sort size",
    "malloc_stats",
    "findleaks -i",
    "heapcheck",
    "types",
    "typegraph",
    "owners --by size",
    "suspects",
    "walk buf",
    "walk freebuf",
    "walk leakbuf",
    "whatis {}",
    "maps",
    "profile",
    "triage",
)


def take(name: str) -> CoreSet:
    allocator, program, mode = name.split()
    if allocator == "glibc":
        return cores.take(program, mode="" if mode == "-" else mode)
    return jemallocs.take(program, mode="" if mode == "-" else mode)


def said(target: Any, line: str) -> Any:
    """Return the command's answer without the times that it took."""
    name, *words = line.split()
    return _plain(answers.answer(target, name, *words))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if "seconds" not in key}
    return [_plain(each) for each in value] if isinstance(value, list) else value


NAMES = ["jemalloc forkers new-threads", "jemalloc forkers -", "jemalloc graph -", "glibc freed -"]


@pytest.mark.parametrize("name", quick.only([NAMES[0], NAMES[3]], NAMES))
def test_every_order_gives_the_same_answers(name: str) -> None:
    made = take(name)
    freed = min(made.truth.addresses("freed") or made.truth.addresses("live"))
    lines = [line.format(hex(freed)) for line in COMMANDS]
    alone = {line: said(open_core(made), line) for line in lines}
    assert len(alone) == len(COMMANDS)
    # A line and its reverse have each pair of commands in both orders.
    shuffled = (
        () if os.environ.get(_cache.QUICK) else (random.Random(seed).sample(lines, len(lines)) for seed in (1, 2))
    )
    orders = (lines, lines[::-1], *shuffled)
    for number, order in enumerate(orders):
        target = open_core(made)
        for line in order:
            assert said(target, line) == alone[line], f"`{line}` in order {number}: {order}"


@pytest.mark.parametrize("mode", ["new-threads", ""])
def test_what_lost_caches_held_is_free_for_the_first_command(mode: str) -> None:
    """The program said what it freed before it died; the caches of threads that the fork did not copy have it."""
    made = jemallocs.take("forkers", mode=mode)
    rows = answers.by_name(answers.answer(open_core(made), "walk", "buf"))["buf"]
    listed = {int(row["address"], 16) for row in rows}
    assert made.truth.addresses("live") <= listed
    assert not made.truth.addresses("freed") & listed
    totals = answers.answer(open_core(made), "heapsizes")["totals"]
    assert totals["live_count"] == len(listed)
