"""``findleaks`` with allocation records: the callers that the program knew, and nothing of the recorder's own.

That every leak is found, and nothing else, is tests/test_truth.py's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from dmods import heap as heaps
from dmods.corefile import CoreFile
from dmods.errors import UsageError
from fixtures import audited, cores
from fixtures.truth import Truth
from tests.auditkit import Told, answer, callers, functions, text
from tests.corekit import compile_c, kernel_core


def leaked_groups(told: dict[int, Told]) -> dict[tuple[int, str, int], list[Told]]:
    """The program's leaks by size, function that called malloc, and where that returned to."""
    groups = defaultdict(list)
    for known in told.values():
        if known.block.state == "direct":
            groups[known.block.usable, known.block.name, known.returns].append(known)
    return dict(groups)


@pytest.mark.parametrize(("how", "userland"), [("kernel", "host"), ("gcore", "host"), ("kernel", "arm64-bookworm")])
def test_leaks_are_added_up_by_size_and_stack_and_the_oldest_stands_for_all(how: str, userland: str) -> None:
    target, _truth, told = callers(how=how, userland=userland)
    tables = answer(target, "findleaks")["tables"]
    expected = leaked_groups(told)
    rows = [*tables["leaks"], *tables["oversized"]]
    assert "unrecorded" not in tables
    found = {int(row["buffer"], 16): row for row in rows}
    assert len(rows) == len(expected) == 9
    for (usable, name, _returns), members in expected.items():
        oldest = min(members, key=lambda known: known.before)
        row = found[oldest.block.address]
        assert row["leaked"] == len(members)
        assert row["bytes"] == len(members) * usable
        assert row["requested"] == oldest.block.size
        assert row["caller"].startswith("libc.so.6`strdup+0x" if name == "by_strdup" else f"{name}+0x")
    three = [members for members in expected.values() if len(members) == 3]
    assert three
    assert min(three[0], key=lambda k: k.before).block.address != min(known.block.address for known in three[0])


def test_they_are_sorted_by_caller_the_oversized_apart() -> None:
    target, _truth, told = callers()
    tables = answer(target, "findleaks")["tables"]
    listed = [row["caller"] for row in tables["leaks"]]
    assert listed == sorted(listed)
    assert {row["size"] for row in tables["oversized"]} == {
        k.block.usable for k in told.values() if k.block.size == 1 << 20
    }
    lines = text(target, "findleaks").splitlines()
    assert lines[0] == "CACHE             LEAKED            BUFCTL CALLER"
    assert re.fullmatch(r"malloc-\d+ +1  0000[0-9a-f]{12} by_calloc\+0x[0-9a-f]+", lines[1])
    assert "           BYTES  LEAKED          VMEM_SEG CALLER" in lines
    assert lines[-2] == "-" * 72


@pytest.mark.parametrize("function", ["one_way", "every_kind", "by_malloc", "allocator", "main"])
def test_only_those_with_a_function_in_their_stack(function: str) -> None:
    target, _truth, _told = callers()
    everything = answer(target, "findleaks")["tables"]
    wanted = set()
    for row in (*everything["leaks"], *everything["oversized"]):
        stack = answer(target, "bufctl_audit", row.get("bufctl") or row["vmem_seg"])["tables"]["stack"]
        if function in functions(stack):
            wanted.add(row["buffer"])
    tables = answer(target, "findleaks", function)["tables"]
    assert {row["buffer"] for name in ("leaks", "oversized") for row in tables.get(name, [])} == wanted
    assert wanted


def test_only_those_that_return_to_an_address() -> None:
    target, _truth, told = callers()
    (group,) = [members for members in leaked_groups(told).values() if len(members) == 3]
    (row,) = answer(target, "findleaks", hex(group[0].returns))["tables"]["leaks"]
    assert row["leaked"] == 3


def test_only_the_leak_of_a_bufctl() -> None:
    target, _truth, told = callers()
    one = next(known.block for known in told.values() if known.block.size == 700)
    bufctl = answer(target, "bufctl", hex(one.address))["tables"]["bufctl"][0]["addr"]
    for where in (bufctl, hex(one.address + 3)):
        (row,) = answer(target, "findleaks", where)["tables"]["leaks"]
        assert (row["bufctl"], row["buffer"]) == (bufctl, hex(one.address))
    live = next(known.block for known in told.values() if known.block.state == "live")
    with pytest.raises(UsageError, match="not leaked"):
        answer(target, "findleaks", hex(live.address))


def test_a_function_that_lost_nothing() -> None:
    target, _truth, _told = callers()
    report = answer(target, "findleaks", "by_free")
    assert report["tables"]["leaks"] == []
    assert any("no leak has by_free in its stack" in note for note in report["notes"])


def test_the_largest_stay_in_their_order() -> None:
    target, _truth, _told = callers()
    tables = answer(target, "findleaks", "--top", "3")["tables"]
    assert [row["caller"].partition("+")[0] for row in tables["leaks"]] == ["by_malloc", "by_realloc"]
    assert len(tables["oversized"]) == 1


def test_details_are_those_of_bufctl_v() -> None:
    target, _truth, _told = callers()
    tables = answer(target, "findleaks", "-d", "three_times")["tables"]
    record = answer(target, "bufctl", "-v", tables["leaks"][0]["bufctl"])["tables"]
    assert tables["bufctl_audit 1"] == record["bufctl_audit"]
    assert tables["stack 1"] == record["stack"]
    assert "malloc-2008 leak: 3 buffers, 2008 bytes each, 6024 bytes total" in text(target, "findleaks", "-d")


def test_the_tutorial_is_as_in_libumems(tmp_path: Path) -> None:
    """Three leaks, by main, func_leak, and buf_create through nested_leak to nested_leak_l3."""
    target = CoreFile(str(audited.tutorial(tmp_path)))
    rows = answer(target, "findleaks")["tables"]["leaks"]
    assert [row["caller"].partition("+0x")[0] for row in rows] == ["buf_create", "func_leak", "main"]
    assert {(row["leaked"], row["cache"]) for row in rows} == {(1, "malloc-1032")}
    stacks = [functions(answer(target, "bufctl_audit", row["bufctl"])["tables"]["stack"]) for row in rows]
    start = ["libc.so.6`__libc_start_call_main", "libc.so.6`__libc_start_main", "_start"]
    nested = ["nested_leak_l3", "nested_leak_l2", "nested_leak_l1", "nested_leak"]
    assert stacks == [["buf_create", *nested, "main", *start], ["func_leak", "main", *start], ["main", *start]]
    assert text(target, "findleaks").endswith(f"{'-' * 72}\n           Total       3 buffers, 3096 bytes\n")


#: Without the auditor the same programs answer the same: tests/test_truth.py.
AUDITED = [
    *((name, "audit", "kernel") for name in ("sizes", "shapes", "graph", "freed", "arenas", "cxx", "stale", "anchors")),
    *((name, "audit,log=100000,contents=32", "gcore") for name in ("graph", "freed", "cxx")),
    *((name, "audit,sample=1000", "kernel") for name in ("graph", "shapes")),
]


@pytest.mark.parametrize(("program", "options", "how"), AUDITED)
def test_nothing_of_the_auditor_leaks_and_nothing_of_it_keeps_a_leak_alive(
    program: str, options: str, how: str
) -> None:
    """Its tables know of every block, and its log holds their very addresses."""
    made = audited.take(program, options, how)
    truth: Truth = made.truth
    heap = heaps.of(CoreFile(str(made.core)))
    heap.leaks()
    leaked = {block.address for block in heap.blocks(heaps.DIRECT, heaps.INDIRECT)}
    live = {block.address for block in heap.blocks(heaps.LIVE)}
    assert sorted(map(truth.describe, truth.leaked - leaked)) == []
    assert sorted(map(truth.describe, leaked - truth.leaked)) == []
    assert truth.addresses("live") <= live
    assert heap.records.own
    assert heap.notes == []


@pytest.mark.parametrize("options", ["audit", "audit,log=1000"])
def test_every_leak_has_its_record(options: str) -> None:
    made = audited.take("graph", options)
    target = CoreFile(str(made.core))
    tables = answer(target, "findleaks")["tables"]
    assert "unrecorded" not in tables
    direct = len(made.truth.addresses("direct")) + len(made.truth.cycles)
    assert sum(row["leaked"] for row in (*tables["leaks"], *tables.get("oversized", []))) == direct
    assert {row["caller"] for row in tables["leaks"]}.isdisjoint({"?"})


def test_samples_tell_some_callers_and_say_so() -> None:
    made = audited.take("graph", "audit,sample=1000")
    report = answer(CoreFile(str(made.core)), "findleaks")
    tables = report["tables"]
    known, unknown = tables["leaks"], tables["unrecorded"]
    assert {row["caller"] for row in unknown} == {"?"}
    assert "?" not in {row["caller"] for row in known}
    direct = len(made.truth.addresses("direct")) + len(made.truth.cycles)
    assert sum(row["leaked"] for row in (*known, *unknown, *tables.get("oversized", []))) == direct
    assert any("only samples were recorded" in note for note in report["notes"])


def test_without_the_auditor_one_line_says_how_to_know_callers() -> None:
    target = CoreFile(str(cores.take("freed").core))
    report = answer(target, "findleaks", "main")
    assert any("dmods run -- PROG" in note for note in report["notes"])
    assert {row["caller"] for row in answer(target, "findleaks")["tables"]["leaks"]} == {"?"}


SIGNAL_STACK = r"""
#include <signal.h>
#include <stdlib.h>
__attribute__((noinline)) static void set(size_t size) {
    stack_t stack = {.ss_size = size, .ss_sp = malloc(size)};
    sigaltstack(&stack, NULL);
    *(void *volatile *)&stack.ss_sp = NULL;
}
__attribute__((noinline)) static void wipe(void) {
    volatile char frame[4096];
    for (int i = 0; i < 4096; i++)
        frame[i] = 0;
}
int main(int argc, char **argv) {
    set(atoi(argv[argc - 1]));
    wipe();
    abort();
}
"""


@pytest.mark.parametrize(("size", "said"), [(8192, True), (65536, True), (5000, False)])
def test_what_may_be_an_alternate_signal_stack_is_said_to_be(tmp_path: Path, size: int, said: bool) -> None:
    source = tmp_path / "stack.c"
    source.write_text(SIGNAL_STACK)
    program = compile_c(source, tmp_path / "stack")
    report = answer(CoreFile(str(kernel_core(program, tmp_path, str(size)))), "findleaks")
    assert report["totals"]["direct_count"] == 1
    assert any("alternate signal stack" in note for note in report["notes"]) == said
