"""Limits of processes and of the machine: open files, mappings, and tasks."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Parties, Said
from drgnext.kernel.system.limits import Use, machine_uses, process_uses
from drgnext.triage.facts import KernelFacts

_NEAR = 0.95
_LEAST = 256  # a limit that is lower was set on purpose


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the processes and the tables of the machine that have used up a limit, or nearly so."""
    machine = list(machine_uses(facts.reader, len(facts.processes)))
    processes = list(process_uses(facts.reader, facts.threads, facts.processes))
    fullest = max(processes, key=lambda use: use.share, default=None)
    parts = [f"{use.used:,} of {use.limit:,} {use.what}" for use in machine]
    if fullest is not None:
        parts.append(f"of processes: {fullest.used:,} of {fullest.limit:,} {fullest.what} of {fullest.who}")
    yield Measured(", ".join(parts))
    for use in (*machine, *processes):
        if use.limit >= _LEAST and use.share >= _NEAR:
            yield _finding(use)


def _finding(use: Use) -> Finding:
    return Finding(
        "limit",
        SERIOUS,
        CERTAIN if use.used >= use.limit else LIKELY,
        f"{use.who} has {use.used:,} of {use.limit:,} {use.what}: the next call fails with {use.error}",
        f"find what is not closed or freed; or raise {use.name}",
        [Evidence(use.address, use.who)] if use.address else [],
        use.next,
        weight=use.used,
        subject=use.what,
        alternative="the load needs so many; evidence for this would be that none of them is idle",
        parties=Parties(holds=use.who),
    )


CHECK = Check(
    "limits",
    f"a process has {_NEAR:.0%} of the open files or mappings that it may have, or the machine of its files or tasks",
    run,
    needs=("processes",),
    seconds=60,
)
