"""Triage of one process: the facts, the checks, and the report's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from dmods.corefile.context import crash_context
from dmods.finding import FATAL, Finding
from dmods.heap.verdict import leak_verdict
from dmods.process.stdio import open_files
from dmods.target import Target
from dmods.triage.answer import Triage, Unknown
from dmods.triage.crash import process_crash
from dmods.triage.facts import ProcessFacts
from dmods.triage.holder import process_holder
from dmods.triage.identity import process_identity, process_trust
from dmods.triage.memory import memory_by_use
from dmods.triage.private import redacted
from dmods.triage.runner import Runner, chosen, discover, together

CHECKS = "dmods.triage.checks"
_NAMED = 8  # descriptors


def triage_process(
    target: Target, names: Optional[str] = None, seconds: Optional[float] = None, private: bool = False
) -> Triage:
    """Return what the checks find in the process. ``private``: no contents of its memory, and no arguments."""
    checks = chosen(discover(CHECKS), names)
    facts = ProcessFacts(target, private)
    runner = Runner(facts, seconds)
    found = Triage()

    def crash() -> None:
        found.crash = process_crash(facts)

    def memory() -> None:
        found.memory = memory_by_use(facts)

    def identity() -> None:
        found.identity = process_identity(facts)

    def trust() -> None:
        found.trust = process_trust(facts)

    def holder() -> None:
        found.holder = process_holder(facts)

    parts = (
        ("cause", "the crash", 60.0, crash),
        ("", "where memory went", 120.0, memory),
        *([("", "who holds most", 60.0, holder)] if names is None else []),
        ("", "which process it was", 30.0, identity),
        ("cause", "how far the dump can be trusted", 60.0, trust),
    )
    runner.run(checks, found)
    found.findings[:] = without_repeats(found.findings)
    found.subject = _subject(target)
    for need, name, budget, work in parts:
        lacking = (runner.fact(need) if need else None) or runner.guarded(name, budget, work)
        if lacking is not None:
            found.unknown.append(Unknown(name, lacking.why, lacking.help))
    found.unknown[:] = together(found.unknown)
    found.unknown.extend(_gaps(facts))
    return redacted(found, thread_names(target)) if private else found


def without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without damage of the heap that a fatal one has as its evidence already."""
    fatal = {each.address for finding in findings if finding.severity == FATAL for each in finding.evidence}

    def is_new(finding: Finding) -> bool:
        known = {each.address for each in finding.evidence}
        return finding.severity == FATAL or finding.check != "damage" or not known or not known <= fatal

    return list(filter(is_new, findings))


def thread_names(target: Target) -> set[str]:
    """Return the names that the program gave to its threads."""
    return {thread.name for thread in target.threads() if thread.name}


def _subject(target: Target) -> dict[str, Any]:
    """Return which program it was (the file's name, its build-id, the pid), and how much of the dump is missing."""
    path = target.executable
    program = next((module for module in target.modules() if module.path == path), None)
    name = path.rsplit("/", 1)[-1] if path else None
    lost = sum(end - start for start, end in target.missing)
    build_id = program.build_id if program else None
    return {"program": name, "build_id": build_id, "pid": target.pid, "missing_bytes": lost}


#: What a core does not have, and the name under which its keeper may have it.
_BESIDE = {"open files": "open_fds", "sockets": "sockets", "rlimits": "limits", "cgroup": "cgroup", "uptime": "uptime"}


def _gaps(facts: ProcessFacts) -> list[Unknown]:
    """Return what the dump lacks, a line each."""
    target = facts.target
    gaps = [Unknown("the dump", note) for note in target.notes]
    if "heap" in vars(facts):
        verdict = leak_verdict(facts.heap)
        if verdict.possible and verdict.reason:
            gaps.append(Unknown("leaks", f"the verdict is partial: {verdict.reason}"))
        gaps += [Unknown("the heap", note) for note in facts.heap.index.dump_notes()]
    if target.path is not None:
        kept = crash_context(target)
        told = kept.known if kept is not None else {}
        lacking = [name for name, item in _BESIDE.items() if item not in told]
        gaps.append(Unknown(", ".join(lacking), f"a core does not have them{_known(target)}"))
    return gaps


def _known(target: Target) -> str:
    """Return the descriptors that stdio has open, in words."""
    numbers = sorted({each.descriptor for each in open_files(target)})
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"; stdio has descriptors {', '.join(map(str, numbers[:_NAMED]))}{more}" if numbers else ""
