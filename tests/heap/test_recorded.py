"""Leaks of programs with an allocator that dmods cannot walk, from the auditor's records alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dmods.allocators import directory
from dmods.corefile.target import CoreFile
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.verdict import NO_VERDICT, heap_verdict, leak_verdict
from fixtures import audited, cores, judge, userlands
from fixtures.cores import CoreSet
from fixtures.heaps import others
from tests.auditkit import answer, text
from tests.corekit import kernel_core

TCMALLOC, MIMALLOC = "tcmalloc", "mimalloc"
LIBRARIES = {
    TCMALLOC: ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    MIMALLOC: ("libmimalloc2.0", "libmimalloc.so.2"),
}
BOTH = (TCMALLOC, pytest.param(MIMALLOC, marks=pytest.mark.thorough("tcmalloc is tested")))

# Answers that are right for glibc's layout, and wrong for another. A block has no header: the word before it belongs to
# another block. A pointer past the end of a block points to the next block. Freed pages are ordinary memory.
OTHER_LAYOUT = {"past-the-end", "at-header", "in-top", "in-freed-unsorted", "in-freed-tcached"}


@pytest.fixture(autouse=True)
def _no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the readers of these allocators away, as for a release whose layout they cannot prove."""
    known = [one for one in directory.allocators() if one.name not in (TCMALLOC, MIMALLOC)]
    monkeypatch.setattr(directory, "allocators", lambda: known)


def library(allocator: str) -> Path:
    return userlands.packaged(userlands.get("host"), *LIBRARIES[allocator])


def environment(allocator: str, options: str = "audit") -> dict[str, str]:
    variables = audited.environment(options)
    return {**variables, "LD_PRELOAD": f"{variables['LD_PRELOAD']} {library(allocator)}"}


def take(program: str, allocator: str, options: str = "audit", mode: str = "") -> CoreSet:
    return cores.take(program, mode=mode, env=environment(allocator, options))


def problems(heap: ProcessHeap, made: CoreSet, excused: set[str]) -> list[str]:
    """Return what is wrong with the states of the blocks. Their usable sizes are not recorded."""
    found = judge.problems(heap, made.truth, excused)
    return [each for each in found if not each.startswith("usable size")]


def opened(made: CoreSet) -> tuple[CoreFile, ProcessHeap]:
    target = judge.open_core(made)
    return target, find_heap(target)


@pytest.mark.parametrize("allocator", BOTH)
def test_every_leak_and_no_other(allocator: str) -> None:
    made = take("sizes", allocator)
    target, heap = opened(made)
    assert len(made.truth.leaked) > 80
    assert not problems(heap, made, set())
    assert not others(heap)[0].doubts
    report = answer(target, "findleaks", "--fail-on-leak")
    assert report["status"] == 3
    assert report["verdict"] is None or report["verdict"]["possible"]
    rows = [row for table in report["tables"].values() for row in table if "requested" in row]
    assert {row["requested"] for row in rows} == {made.truth.blocks[address].size for address in made.truth.leaked}
    assert any(f"malloc of this process is {allocator}" in note for note in report["notes"])


def _is_missed(problem: str) -> bool:
    # A cycle of which a block is missed is missed as a whole.
    return problem.startswith(("missed", "not reported", "the cycle"))


def _too_many(missed: Iterable[str], made: CoreSet) -> list[str]:
    """Return the leaks that were missed, if they are more than a few.

    tcmalloc's own tables keep old pointers into large spans, wherever these happen to lie.
    """
    found = list(missed)
    return found if len(found) > len(made.truth.leaked) // 50 + 2 else []


@pytest.mark.thorough("a program with a million pointers")
@pytest.mark.parametrize(
    ("program", "allocator"),
    # In `arenas` nobody writes to the blocks: the first word still links mimalloc's free blocks.
    [
        ("arenas", TCMALLOC),
        *product(("shapes", "anchors", "stale", "registers", "callers"), (TCMALLOC, MIMALLOC)),
    ],
)
def test_other_programs(program: str, allocator: str) -> None:
    made = take(program, allocator)
    found = problems(opened(made)[1], made, OTHER_LAYOUT if program == "stale" else set())
    if allocator == TCMALLOC:
        found = [each for each in found if not _is_missed(each)] + _too_many(filter(_is_missed, found), made)
    assert not found


@pytest.mark.thorough("other programs are tested")
@pytest.mark.parametrize("allocator", [TCMALLOC, MIMALLOC])
@pytest.mark.parametrize("program", ["graph", "freed", "ownstacks"])
def test_nothing_in_use_is_reported(allocator: str, program: str) -> None:
    made = take(program, allocator)
    heap = opened(made)[1]
    found = problems(heap, made, set())
    assert not [each for each in found if not _is_missed(each)]
    assert not (_too_many(found, made) if allocator == TCMALLOC else found)


@pytest.mark.thorough("findleaks is tested")
@pytest.mark.parametrize("allocator", [TCMALLOC, MIMALLOC])
def test_commands(allocator: str) -> None:
    made = take("sizes", allocator)
    target, heap = opened(made)
    leak = next(block for block in made.truth.blocks.values() if block.state == "direct" and block.size > 40)
    assert f"allocated from {allocator}-{leak.size}" in text(target, "whatis", hex(leak.address))
    assert "leaked directly" in text(target, "whatis", hex(leak.address))
    walked = {int(row["address"], 16) for row in answer(target, "walk", "leakbuf")["tables"]["leakbuf"]}
    assert walked == made.truth.leaked
    sizes = answer(target, "heapsizes")
    assert sizes["totals"]["leaked_count"] == len(made.truth.leaked)
    # The records do not show damage of the allocator's own tables.
    assert answer(target, "heapcheck")["status"] == NO_VERDICT
    assert not heap_verdict(heap).possible
    assert leak_verdict(heap).possible


@pytest.mark.thorough("a core of its own")
@pytest.mark.parametrize("allocator", [TCMALLOC, MIMALLOC])
def test_samples_say_nothing(allocator: str) -> None:
    target, heap = opened(take("sizes", allocator, "sample=4096"))
    assert not others(heap)
    report: dict[str, Any] = answer(target, "findleaks", "--fail-on-leak")
    assert report["status"] == NO_VERDICT
    assert "samples" in report["verdict"]["reason"]


DIRECT = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void *%(direct)s(size_t size);
static void **volatile holder;
static volatile uintptr_t hidden;
static void __attribute__((noinline)) scene(void) {
    holder = %(direct)s(64);
    holder[3] = malloc(48);
    char *lost = malloc(80);
    hidden = ~(uintptr_t)lost;
    fprintf(stderr, "%%#lx %%#lx\\n", (long)holder[3], (long)lost);
}
int main(void) {
    char room[8192];
    for (int i = 0; i < 8192; i++)
        ((volatile char *)room)[i] = 1;
    scene();
    for (int i = 0; i < 8192; i++)
        ((volatile char *)room)[i] = 2;
    abort();
}
"""


@pytest.mark.thorough("a program of its own")
@pytest.mark.parametrize(("allocator", "direct"), [(TCMALLOC, "tc_malloc"), (MIMALLOC, "mi_malloc")])
def test_a_block_that_the_auditor_does_not_see_keeps_others_alive(allocator: str, direct: str, tmp_path: Path) -> None:
    (tmp_path / "direct.c").write_text(DIRECT % {"direct": direct})
    program = tmp_path / "direct"
    subprocess.run(["gcc", "-O1", "-o", program, tmp_path / "direct.c", library(allocator)], check=True)
    work = tmp_path / "work"
    work.mkdir()
    with open(tmp_path / "told", "w") as told:
        core = kernel_core(Path("/bin/sh"), work, "-c", f"exec {program} 2>{told.name}", env=environment(allocator))
    held, lost = (int(word, 16) for word in (tmp_path / "told").read_text().split()[:2])
    heap = find_heap(CoreFile(str(core)))
    assert any("direct may call functions" in doubt for doubt in others(heap)[0].doubts)
    states = {block.address: block.leaked for block in heap.blocks(0, 1, 2, 3, 4)}
    assert not states[held]
    assert lost in states
    assert leak_verdict(heap).reason
    assert any("counts as reachable" in note for note in heap.notes)


@pytest.mark.thorough("a core of its own")
def test_a_thread_inside_malloc(tmp_path: Path) -> None:
    (tmp_path / "inside.c").write_text(
        "#include <stdlib.h>\nint main(void) { static char room[64]; free(malloc(40)); free(room + 16); abort(); }"
    )
    program = tmp_path / "inside"
    subprocess.run(["gcc", "-o", program, tmp_path / "inside.c"], check=True)
    work = tmp_path / "work"
    work.mkdir()
    core = kernel_core(program, work, env=environment(TCMALLOC))  # tcmalloc aborts in free()
    heap = find_heap(CoreFile(str(core)))
    assert any("inside malloc" in doubt for doubt in others(heap)[0].doubts)
