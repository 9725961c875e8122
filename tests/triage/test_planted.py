"""Planted faults: each is the first finding of its report. The names of the faults are the programs' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.output.text import table_text
from dmods.triage.answer import Triage
from dmods.triage.process import triage_process
from dmods.triage.report import triage_report
from fixtures import mallocs, planted
from tests.corekit import kernel_core

# The fault of the program -> the kind of the first finding, and what its sentence names.
C = {
    "null-read": ("null-pointer", "read_value"),
    "null-write": ("null-pointer", "null_write"),
    "null-call": ("null-call", "null_call"),
    "null-table": ("null-vtable", "use_device"),
    "stack-overflow": ("stack-overflow", "recurse"),
    "thread-overflow": ("stack-overflow", "recurse"),
    "double-free": ("double-free", "release"),
    "double-free-large": ("double-free", "release"),
    "double-free-fast": ("double-free", "release"),
    "overrun": ("heap-overrun", "40 bytes"),
    "overrun-top": ("heap-overrun", "40 bytes"),
    "use-after-free": ("use-after-free", "read_value"),
    "invalid-free": ("invalid-free", "release"),
    "interior-free": ("invalid-free", "release"),
    "assertion": ("assertion", 'count > 0 && "count is positive"'),
    "abort": ("abort", "give_up"),
    "stack-smash": ("stack-smash", "smash"),
    "fortified": ("buffer-overflow", "strcpy()"),
    "divide": ("division-by-zero", "divide"),
    "trap": ("trap", "trap"),
    "bus": ("past-end-of-file", "bus"),
    "read-only": ("read-only-write", "read_only"),
    "no-execute": ("bad-jump", "no_execute"),
    "deadlock": ("deadlock", "other_order"),
    "self-deadlock": ("deadlock", "self_deadlock"),
    "orphaned-lock": ("orphaned-lock", "orphaned_lock"),
    "leak": ("leak", "20,000 blocks"),
    "out-of-memory": ("out-of-memory", "out_of_memory"),
    "out-of-memory-null": ("out-of-memory", "out_of_memory_null"),
    "arenas": ("arenas", "12 thread arenas"),
    "untrimmed": ("untrimmed", "free between blocks"),
    "mismatch": ("allocator-mismatch", "libother.so"),
}
CXX = {
    "exception": ("uncaught-exception", "OrderError: order 7 has no customer"),
    "range": ("uncaught-exception", "std::out_of_range: vector::_M_range_check"),
    "bad-alloc": ("out-of-memory", "std::bad_alloc"),
    "thrown-text": ("uncaught-exception", "only a text"),
    "pure-virtual": ("pure-virtual", "Shape::say"),
    "joinable": ("terminate", "main"),
    "noexcept": ("uncaught-exception", "noexcept"),
    "deleted": ("use-after-free", "count_sides"),
    "cleared": ("null-vtable", "count_sides"),
    "filesystem": ("uncaught-exception", "No such file or directory"),
}
RUST = {
    "panic": ("rust-panic", "faults.rs:9"),
    "unwrap": ("rust-panic", "faults.rs:10"),
    "expect": ("rust-panic", "faults.rs:11"),
    "index": ("out-of-bounds", "faults::first"),
    "abort": ("abort", "faults::main"),
}
GO = {
    "panic": ("go-panic", "the queue is gone"),
    "error": ("go-panic", "no order 7: lost"),
    "nil": ("null-pointer", "main.value"),
    "index": ("out-of-bounds", "index out of range [2] with length 0"),
    "nil-map": ("go-panic", "assignment to entry in nil map"),
    "deadlock": ("deadlock", "all goroutines are asleep"),
    "overflow": ("stack-overflow", "stack overflow"),
}
PLANTED = [
    (language, fault, *expected)
    for language, faults in (("c", C), ("c++", CXX), ("rust", RUST), ("go", GO))
    for fault, expected in faults.items()
]

SCREEN = 23  # lines of a terminal of 24, without its prompt
LONG = ("overrun", "overrun-top", "out-of-memory-null", "bad-alloc", "bus")  # longer sentences, and the path of a file


def _triage(language: str, fault: str) -> Triage:
    return triage_process(CoreFile(str(planted.core(language, fault))))


@pytest.mark.thorough("it makes a core of each fault")
@pytest.mark.parametrize(("language", "fault", "kind", "named"), PLANTED)
def test_a_planted_fault_is_the_first_finding(language: str, fault: str, kind: str, named: str) -> None:
    found = _triage(language, fault)
    assert found.findings, found.unknown
    first = found.findings[0]
    assert (first.kind, named in first.what) == (kind, True), first
    assert first.remedy
    assert all(each.remedy for each in found.findings)
    assert found.memory is None or sum(found.memory.percents()) == 100
    assert found.memory is None or found.memory.total == sum(part.bytes for part in found.memory.parts)
    tables = [each for each in triage_report(found, "process").tables if each.only != "json"]
    lines = sum("".join(table_text(each, str, 80)).count("\n") + (not each.joined) for each in tables) - 1
    assert lines <= SCREEN + (4 if fault in LONG else 0)
    assert [each.name for each in tables[:2]] == ["verdict", "crash"]


KEPT = 2_000  # blocks of 2,000 bytes that the fault "untrimmed" keeps, of 100,000


@pytest.mark.thorough("it downloads mimalloc")
def test_mimalloc_keeps_free_blocks(tmp_path: Path) -> None:
    core = kernel_core(planted.program("c"), tmp_path, "untrimmed", env=mallocs.MIMALLOC.environment())
    found = triage_process(CoreFile(str(core)), "waste")
    (waste,) = found.findings
    assert waste.kind == "untrimmed"
    assert waste.what.startswith("mimalloc keeps ")
    # Each kept block holds its page: 64 KB, 32 blocks of 2,048 bytes. mimalloc gives back pages that are wholly free,
    # but not at once: the kernel wrote what was there.
    assert KEPT * 30 * 2048 <= waste.weight < core.stat().st_blocks * 512
    assert "mi_collect" in waste.remedy
