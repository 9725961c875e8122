"""``findleaks`` with allocation records: the callers that the program knew, and no block of the recorder's own.

tests/heap/test_truth.py checks that every leak is found, and nothing else.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import audited, cores
from fixtures.truth import Truth
from tests.auditkit import Told, answer, callers, functions, text
from tests.corekit import compile_c, kernel_core


def leaked_groups(told: dict[int, Told]) -> dict[tuple[int, str, int], list[Told]]:
    """Return the program's leaks by size, function that called malloc, and its return address."""
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


def test_they_are_sorted_by_the_bytes_lost_the_oversized_apart() -> None:
    target, _truth, told = callers()
    tables = answer(target, "findleaks")["tables"]
    for name in ("leaks", "oversized"):
        assert all(row["lost"] == row["bytes"] + row["kept_bytes"] for row in tables[name])
        listed = [(-row["lost"], row["caller"]) for row in tables[name]]
        assert listed == sorted(listed)
    assert list(tables) == ["oversized", "leaks"], "what costs most comes first"
    assert {row["size"] for row in tables["oversized"]} == {
        k.block.usable for k in told.values() if k.block.size == 1 << 20
    }
    lines = text(target, "findleaks").splitlines()
    assert re.fullmatch(r"           BYTES  LEAKED          VMEM_SEG CALLER +LOST", lines[0])
    head = next(number for number, line in enumerate(lines) if line.startswith("CACHE"))
    assert re.fullmatch(r"CACHE             LEAKED            BUFCTL CALLER +LOST", lines[head])
    assert re.fullmatch(r"malloc-\d+ +1  0000[0-9a-f]{12} by_realloc\+0x[0-9a-f]+ +68K", lines[head + 1])
    assert lines[-2] == "-" * 72


@pytest.mark.parametrize("function", ["one_way", "every_kind", "by_malloc", "allocator", "main"])
def test_only_those_with_a_function_in_their_stack(function: str) -> None:
    target, _truth, _told = callers()
    everything = answer(target, "findleaks")["tables"]
    wanted = set()
    for row in (*everything["leaks"], *everything["oversized"]):
        if function in functions(row["stack"]):
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
    # The totals are of what is shown. The whole stands beside it.
    whole = answer(target, "findleaks")["totals"]
    assert dict.fromkeys(whole, 0) == {name: report["totals"][name] for name in whole}
    assert whole == {name: report["totals"][f"all_{name}"] for name in whole}
    assert answer(target, "findleaks", "by_free", "--fail-on-leak")["status"] == 0
    assert "All leaks" in text(target, "findleaks", "by_free")


def test_the_groups_that_lost_most() -> None:
    target, _truth, _told = callers()
    everything = answer(target, "findleaks")
    report = answer(target, "findleaks", "--top", "3")
    tables = report["tables"]
    assert [row["caller"].partition("+")[0] for row in tables["leaks"]] == ["by_realloc", "by_malloc"]
    assert len(tables["oversized"]) == 1
    hidden = sum(row["lost"] for row in everything["tables"]["leaks"][2:])
    assert f"6 smaller groups, {hidden} bytes, are not shown (--top)" in report["notes"]


@pytest.mark.quick("graph")
@pytest.mark.parametrize("program", ["shapes", "graph"])
def test_what_leaks_keep_alive_counts_as_lost(program: str) -> None:
    target = CoreFile(str(cores.take(program).core))
    report = answer(target, "findleaks")
    rows = [row for name in ("leaks", "oversized") for row in report["tables"].get(name, [])]
    totals = report["totals"]
    assert totals["indirect_bytes"] > 0
    assert sum(row["bytes"] for row in rows) == totals["direct_bytes"]
    assert sum(row["lost"] for row in rows) == totals["leaked_bytes"]
    last = text(target, "findleaks").splitlines()[-1]
    lost = f"{totals['leaked_count']} buffers, {totals['leaked_bytes']} bytes"
    assert re.fullmatch(rf" +Lost +{lost}( \([0-9.]+[KM]\))?", last)


def test_details_are_those_of_bufctl_v() -> None:
    target, _truth, _told = callers()
    tables = answer(target, "findleaks", "-d", "three_times")["tables"]
    record = answer(target, "bufctl", "-v", tables["leaks"][0]["bufctl"])["tables"]
    assert tables["bufctl_audit"] == record["bufctl_audit"]
    assert tables["leaks"][0]["stack"] == record["bufctl_audit"][0]["stack"]
    assert "malloc-2008 leak: 3 buffers, 2008 bytes each, 6024 bytes total" in text(target, "findleaks", "-d")


def test_the_tutorial_is_as_in_libumems(tmp_path: Path) -> None:
    """There are three leaks: by main, by func_leak, and by buf_create through nested_leak to nested_leak_l3."""
    target = CoreFile(str(audited.tutorial(tmp_path)))
    rows = answer(target, "findleaks")["tables"]["leaks"]
    assert [row["caller"].partition("+0x")[0] for row in rows] == ["buf_create", "func_leak", "main"]
    assert {(row["leaked"], row["cache"]) for row in rows} == {(1, "malloc-1032")}
    stacks = [functions(row["stack"]) for row in rows]
    start = ["libc.so.6`__libc_start_call_main", "libc.so.6`__libc_start_main", "_start"]
    nested = ["nested_leak_l3", "nested_leak_l2", "nested_leak_l1", "nested_leak"]
    assert stacks == [["buf_create", *nested, "main", *start], ["func_leak", "main", *start], ["main", *start]]
    assert text(target, "findleaks").endswith(f"{'-' * 72}\n           Total       3 buffers, 3096 bytes\n")


#: Without the auditor, the same programs have the same answers: tests/heap/test_truth.py.
AUDITED = [
    *((name, "audit", "kernel") for name in ("sizes", "shapes", "graph", "freed", "arenas", "cxx", "stale", "anchors")),
    *((name, "audit,log=100000,contents=32", "gcore") for name in ("freed", "cxx")),
    ("graph", "audit,sample=1000", "kernel"),
    *(
        pytest.param(*case, marks=pytest.mark.thorough("another program is tested"))
        for case in (("graph", "audit,log=100000,contents=32", "gcore"), ("shapes", "audit,sample=1000", "kernel"))
    ),
]


@pytest.mark.quick(
    "graph-audit-kernel",
    "cxx-audit-kernel",
    "freed-audit,log=100000,contents=32-gcore",
    "graph-audit,sample=1000-kernel",
)
@pytest.mark.parametrize(("program", "options", "how"), AUDITED)
def test_nothing_of_the_auditor_leaks_and_nothing_of_it_keeps_a_leak_alive(
    program: str, options: str, how: str
) -> None:
    """The auditor's tables know every block, and its log holds their addresses."""
    made = audited.take(program, options, how)
    truth: Truth = made.truth
    heap = find_heap(CoreFile(str(made.core)))
    leaked = {block.address for block in heap.blocks(DIRECT, INDIRECT)}
    live = {block.address for block in heap.blocks(LIVE)}
    assert sorted(map(truth.describe, truth.leaked - leaked)) == []
    assert sorted(map(truth.describe, leaked - truth.leaked)) == []
    assert truth.addresses("live") <= live
    assert heap.records.own
    assert heap.notes == []


@pytest.mark.quick("audit,log=1000")
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


# Since glibc 2.34 SIGSTKSZ is four times AT_MINSIGSTKSZ (51), which depends on the processor.
_SIGSTKSZ = 4 * ctypes.CDLL(None).getauxval(51)


@pytest.mark.quick("8192-True", "5000-False")
@pytest.mark.parametrize(("size", "said"), [(8192, True), (65536, True), (_SIGSTKSZ or 8192, True), (5000, False)])
def test_what_may_be_an_alternate_signal_stack_is_said_to_be(tmp_path: Path, size: int, said: bool) -> None:
    source = tmp_path / "stack.c"
    source.write_text(SIGNAL_STACK)
    program = compile_c(source, tmp_path / "stack")
    report = answer(CoreFile(str(kernel_core(program, tmp_path, str(size)))), "findleaks")
    assert report["totals"]["direct_count"] == 1
    assert any("alternate signal stack" in note for note in report["notes"]) == said
