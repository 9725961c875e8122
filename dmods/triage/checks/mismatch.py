"""Allocator mismatch: blocks of one allocator that another one may be asked to free."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, SERIOUS, Check, Finding, Measured, Said
from dmods.process.malloc_slots import providers
from dmods.triage.bindings import REMEDY, mix_evidence, mix_sentence, mixes
from dmods.triage.facts import ProcessFacts


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield the modules that take blocks from one allocator and free them with another one."""
    found = len(providers(facts.target))
    yield Measured("1 allocator" if found == 1 else f"{found} allocators")
    for mix in mixes(facts.target):
        if mix.takes.module.start == mix.gives.module.start:
            yield Finding(
                "allocator-mismatch",
                SERIOUS,
                CERTAIN,
                mix_sentence(mix),
                REMEDY,
                mix_evidence(mix),
                ("dmods -l",),
                alternative="the module gives its blocks back only by functions of its own: then no block crosses",
            )


CHECK = Check(
    "mismatch",
    "the GOT of one module leads malloc() and free() to different allocators",
    run,
    seconds=30,
)
