"""The tables and pictures that the HTML report of `triage` has of a process: what other commands say."""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional

from dmods.command import find_command
from dmods.heap.heap import find_heap
from dmods.profile import flame
from dmods.profile.sources import profile_of, recorded_source
from dmods.profile.view import View
from dmods.records.sources import allocation_records
from dmods.report import Report
from dmods.target import Target
from dmods.triage.details import ROWS, Part


def process_parts(target: Target) -> list[Part]:
    """Return the parts, in the order of the page."""
    top = ["--top", str(ROWS)]
    holders = partial(flame.embedded_holders, target)

    def heap() -> bool:
        return find_heap(target).found

    def recorded() -> bool:
        return bool(allocation_records(target))

    return [
        _part(target, "Leaks", "findleaks", *top, wanted=heap),
        _part(target, "Owners of the heap", "owners", *top, wanted=heap),
        Part("Holders of the heap, as a flame graph", "profile --source graph", holders, heap),
        _part(target, "Types and shapes of blocks", "types", *top, wanted=heap),
        _part(target, "Callers that allocated what is in use", "umausers", *top, wanted=recorded),
        Part("Callers, as a flame graph", "profile", partial(_callers, target)),
        _part(target, "Sizes of blocks", "heapsizes", wanted=heap),
        _part(target, "Arenas", "malloc_stats", wanted=heap),
        _part(target, "Threads by stack", "stacks", "-n", "40"),
        _part(target, "Mappings, and what large ones hold", "maps", "-v", "--contents"),
    ]


def _part(target: Target, title: str, name: str, *words: str, wanted: Callable[[], bool] = lambda: True) -> Part:
    """Return what a command says with these words. The page names the command with the words that change its answer."""

    def make() -> Report:
        command = find_command(name)
        return command.run(target, command.parser().parse_args(list(words)))

    return Part(title, " ".join([name, *(word for word in words if word in ("-v", "--contents"))]), make, wanted)


def _callers(target: Target) -> Optional[str]:
    """Return the picture of who allocated what is in use, where that was recorded."""
    source = recorded_source(target)
    return flame.embedded(View(profile_of(target, source))) if source is not None else None
