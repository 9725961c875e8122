"""Destroyed objects that weak_ptrs keep (tests/graph/expired.cc, which counts them with weak_ptr::expired())."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.owners import expired
from dmods.graph.owners.expired import find_expired
from dmods.triage.process import triage_process
from fixtures import libcxx
from tests.corekit import HERE, dumped_in, kernel_core
from tests.quick import only

_SOURCE = HERE / "graph" / "expired.cc"
_FLAGS = ["-g -O1", "-O2 -g0 -s", "-O2 -static -s -g0"]


def built(where: Path, flags: str, compiler: Sequence[str] = ("g++",)) -> Path:
    program = where / "expired"
    subprocess.run([*compiler, *flags.split(), str(_SOURCE), "-o", str(program)], check=True)
    return program


def dumped(program: Path, where: Path, how: str) -> tuple[CoreFile, dict[str, tuple[int, int]]]:
    """Return the target, and how many of each kind are destroyed and alive."""
    core = kernel_core(program, where, *how.split(), output=where / "said")
    lines = (line.split() for line in (where / "said").read_text().splitlines())
    return CoreFile(str(core)), {name: (int(gone), int(alive)) for name, gone, alive in lines}


def counted(target: CoreFile) -> dict[str, int]:
    """Return how many destroyed objects there are of each kind, by the name in the type of the control block."""
    found = dict.fromkeys(("Job", "Page", "Row"), 0)
    for each in find_expired(target):
        (name,) = [name for name in found if name in each.name]
        found[name] += each.objects
    return found


@pytest.mark.parametrize("flags", only(_FLAGS[:2], _FLAGS))
def test_each_destroyed_object_is_counted(tmp_path: Path, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, said = dumped(built(tmp_path, flags), tmp_path, "400 4")
    assert said == dict.fromkeys(("Job", "Page", "Row"), (300, 100))
    assert counted(target) == {name: gone for name, (gone, _alive) in said.items()}
    monkeypatch.setattr(expired, "_MANY", 0)  # as in a heap of millions of blocks
    assert sum(counted(target).values()) == 900
    (finding,) = triage_process(target, "expired").findings
    assert (finding.kind, finding.severity, finding.confidence) == ("expired-objects", "waste", "certain")
    assert finding.what.startswith("900 objects of shared_ptr are destroyed")
    assert "300 make_shared<Job> and 2 other types" in finding.what
    assert [each.what.startswith("the object and") for each in finding.evidence] == [True, False, False]


def test_a_table_of_living_objects_is_no_finding(tmp_path: Path) -> None:
    target, said = dumped(built(tmp_path, "-g -O1"), tmp_path, "400 1")
    assert said == dict.fromkeys(("Job", "Page", "Row"), (0, 400))
    assert find_expired(target) == []
    assert triage_process(target, "expired").findings == []


@pytest.mark.thorough("it needs clang and libc++")
@pytest.mark.parametrize("flags", ["-std=c++17 -O2 -s", "-std=c++17 -O1 -g"])
def test_libcxx(tmp_path: Path, flags: str) -> None:
    target, said = dumped(built(tmp_path, flags, libcxx.compiler()), tmp_path, "400 4")
    assert said == dict.fromkeys(("Job", "Page", "Row"), (300, 100))
    assert counted(target) == dict.fromkeys(("Job", "Page", "Row"), 300)


@pytest.mark.parametrize("userland", ["bullseye", "trixie", "i386-bookworm"])
def test_other_userlands(userland: str) -> None:
    compiler = ["g++", "-O2", "-g0", "-s"]
    with dumped_in(userland, _SOURCE, compiler, "400", "4") as (core, root):
        assert counted(CoreFile(str(core), sysroot=str(root))) == dict.fromkeys(("Job", "Page", "Row"), 300)
