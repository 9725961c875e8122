"""Goroutines that pile up in one place, and goroutines that the runtime itself calls leaked."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from dmods.runtimes.golang.crowds import MANY, SHARE, Crowd, find_crowds
from dmods.triage.facts import ProcessFacts


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield each crowd of goroutines."""
    if not facts.is_go:
        yield Measured("not a Go program")
    else:
        yield from map(_finding, find_crowds(facts.target))


def _finding(crowd: Crowd) -> Finding:
    first = min(crowd.goroutines, key=lambda one: one.number)
    return Finding(
        "goroutines",
        SERIOUS,
        CERTAIN if crowd.proven else LIKELY,
        crowd.sentence,
        "let the other side end them: close the channel, cancel a context, or give the channel a buffer",
        (Evidence(first.address, f"the runtime's record of goroutine {first.number}, the oldest of them"),),
        (f"goroutines -s '{crowd.reason}'", f"goroutines {first.number}"),
        weight=crowd.stacks,
        alternative="they are a pool that waits for work, and is as large as it should be",
        subject=crowd.place,
    )


CHECK = Check(
    "goroutines",
    f"{MANY:,} goroutines, and {SHARE:.0%} of all, wait in one place for the same reason, and not for I/O or a time; "
    "or the runtime calls goroutines leaked",
    run,
    seconds=30,
)
