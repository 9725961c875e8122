"""Cores in which gdb wrote zeros for memory that it could not read (tests/heap/only_stacks.c)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.machine.absent import absences
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import first_stack
from fixtures import answers, userlands
from fixtures.cores import gcore
from tests.corekit import HERE, compile_c, kernel_core

SOURCE = HERE / "heap" / "only_stacks.c"


@pytest.fixture(scope="module")
def whole_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("zeroed")
    return kernel_core(compile_c(SOURCE, where / "only_stacks", "-pthread"), where)


def _thread_stack(target: CoreFile) -> int:
    """Return an address in the stack of a thread that is not the first."""
    return max(target.threads(), key=lambda thread: thread.tid).registers["rsp"]


def _first_stack(target: CoreFile) -> int:
    found = first_stack(target)
    assert found is not None
    return found[0]


def _arena(target: CoreFile) -> int:
    arenas = answers.by_name(answers.answer(target, "heapcheck"))["arenas"]
    return int(next(row["address"] for row in arenas if row["arena"] == "1"), 16)


def _data(target: CoreFile) -> int:
    """Return an address in what libc wrote of itself and made read-only (PT_GNU_RELRO)."""
    libc = next(module for module in target.modules() if module.name.startswith("libc.so"))
    return next(m.start for m in target.mappings() if m.path == libc.path and m.flags == "r--" and m.dumped == m.size)


def _zeroed(core: Path, where: Path, address: Callable[[CoreFile], int]) -> CoreFile:
    """Return the core with zeros in the mapping that holds an address, as gdb leaves it."""
    target = CoreFile(str(core))
    mapping = mapping_at(target, address(target))
    assert mapping is not None
    copy = where / "core.zeroed"
    shutil.copyfile(core, copy)
    with open(core, "rb") as stream, open(copy, "r+b") as changed:
        for segment in ELFFile(stream).iter_segments("PT_LOAD"):
            if mapping.start <= segment["p_vaddr"] < mapping.end:
                changed.seek(segment["p_offset"])
                changed.write(bytes(segment["p_filesz"]))
    return CoreFile(str(copy))


@pytest.mark.parametrize(
    ("address", "what"),
    [
        (None, ""),
        (_thread_stack, "the stacks of 1 of 5 threads"),
        (_first_stack, "the stacks of 1 of 5 threads"),
        (_arena, "the heap at 0x"),
        (_data, "the data of libc.so.6"),
    ],
)
def test_zeros_that_gdb_wrote_are_no_answer(
    whole_core: Path, tmp_path: Path, address: Optional[Callable[[CoreFile], int]], what: str
) -> None:
    target = CoreFile(str(whole_core)) if address is None else _zeroed(whole_core, tmp_path, address)
    leaks = answers.answer(target, "findleaks")
    assert leaks["verdict"]["possible"] is (address is None)
    assert leaks["totals"]["direct_count"] == (0 if address is None else None)
    assert what in leaks["verdict"]["reason"]
    assert ("-p PID" in leaks["verdict"]["reason"]) is (address is not None)
    check = answers.answer(target, "heapcheck")
    assert check["totals"]["problems"] == 0  # what gdb did not read is no damage
    findings = answers.by_name(answers.answer(target, "triage"))["findings"]
    assert "leak" not in {row["kind"] for row in findings}
    absent = [each.why for each in absences(target) if "wrote zeros" in each.why]  # doctor and triage have these
    assert len(absent) == (address not in (None, _arena))
    assert all(what in each for each in absent)


@pytest.mark.parametrize("userland", ["sid"])
def test_gdb_of_the_host_and_guards_within_the_stacks(userland: str) -> None:
    """glibc 2.42 and later: whether the host's gdb can read such stacks or not, no live block is reported."""
    land = userlands.get(userland)
    where = land.directory("cores") / "only_stacks"
    where.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SOURCE, where / SOURCE.name)
    program, core = where / "only_stacks", where / "core"
    compiled = ["gcc", "-O1", SOURCE.name, "-o", program.name, "-pthread"]
    subprocess.run(land.command(compiled, where), check=True)
    with subprocess.Popen(land.command([land.inside(program), "wait"], where), stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"READY\n"
            gcore(started.pid, core)
        finally:
            started.kill()
    leaks = answers.answer(CoreFile(str(core), sysroot=str(land.sysroot)), "findleaks")
    assert leaks["totals"]["direct_count"] == (0 if leaks["verdict"]["possible"] else None)
    assert leaks["verdict"]["possible"] or "the stacks of 4 of 5 threads" in leaks["verdict"]["reason"]
    shutil.rmtree(where)
