"""A pointer that malloc did not return: triage tells which one was given back, and where it leads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import CERTAIN, Finding
from dmods.triage.checks import death
from dmods.triage.facts import ProcessFacts
from fixtures.answers import HANG
from tests.corekit import dumped_in, kernel_core

SOURCE = Path(__file__).parent / "given.cc"
PLAIN = ("-O1", "-g", "-fno-optimize-sibling-calls")
HARD = ("-O2", "-s")  # no symbols, and free() reached by jumps
VERBS = {"free": "freed", "realloc": "resized", "delete": "deleted", "array": "deleted"}
#: What the answer says of each place, beside the pointer that the program wrote.
PLACES = {
    "stack": "on the stack of thread {pid} (given), in the frame of on_stack",
    "data": "in the data of given, at table_of_words+0x20",
    "code": "in the code of given, at main",
    "constant": "in the read-only data of given, ",
    "inside": "0x10 bytes into a block of 120 bytes",
    "odd": "0x2 bytes into a block of 120 bytes",
    "far": "0x200 bytes into a block of 4008 bytes",
    "header": "in the header of the block ",
    "thread-local": "in thread-local memory of thread {pid} (given)",
    "mapping": "in anonymous memory ",
    "nowhere": "in no mapping",
    "other-stack": "on the stack of thread ",
}
WAYS = [(where, how) for where in PLACES for how in ("free", "realloc", "delete")]


def _build(where: Path, *flags: str) -> Path:
    program = where / "given"
    subprocess.run(["g++", "-w", *flags, str(SOURCE), "-o", str(program), "-pthread"], check=True, timeout=HANG)
    return program


def _died(core: Path, sysroot: str | None = None) -> tuple[Finding, CoreFile]:
    target = CoreFile(str(core), sysroot=sysroot)
    (found,) = [each for each in death.run(ProcessFacts(target)) if isinstance(each, Finding)]
    return found, target


@pytest.mark.quick("stack-free", "data-realloc", "odd-free", "inside-delete", "constant-free")
@pytest.mark.parametrize(("where", "how"), WAYS, ids=["-".join(way) for way in WAYS])
def test_the_pointer_that_was_given_is_named(where: str, how: str, tmp_path: Path) -> None:
    core = kernel_core(_build(tmp_path, *PLAIN), tmp_path, where, how, output=tmp_path / "said")
    _place, pointer, _offset = (tmp_path / "said").read_text().splitlines()[0].split()
    found, target = _died(core)
    assert (found.kind, found.confidence) == ("invalid-free", CERTAIN), found.what
    place = PLACES[where].format(pid=target.pid)
    assert f"{VERBS[how]} a pointer that malloc did not return: {pointer} lies {place}" in found.what
    assert found.evidence[0].address == int(pointer, 16)


# The word before the pointer is a size field to malloc. Its low bits ask for another arena (4) or a mapping (2).
FIELDS = ("0x0", "0x75", "0x72", "0x1001", "0x1005", "0x7fffffffe541", "0x7fffffffe545", "0x555555555140")


@pytest.mark.quick("0x75")
@pytest.mark.parametrize("field", FIELDS)
def test_whatever_lies_before_an_array_on_the_stack(field: str, tmp_path: Path) -> None:
    arguments = ("stack", "free", field)
    core = kernel_core(_build(tmp_path, *PLAIN), tmp_path, *arguments, output=tmp_path / "said")
    pointer = (tmp_path / "said").read_text().split()[1]
    found, _target = _died(core)
    assert found.kind == "invalid-free", found.what
    assert f"{pointer} lies on the stack of thread" in found.what


@pytest.mark.quick("inside-array")
@pytest.mark.parametrize(
    ("where", "how"),
    [("inside", "array"), ("stack", "free"), ("data", "realloc")],
    ids=["inside-array", "stack-free", "data-realloc"],
)
def test_a_stripped_and_optimized_program(where: str, how: str, tmp_path: Path) -> None:
    core = kernel_core(_build(tmp_path, *HARD), tmp_path, where, how, output=tmp_path / "said")
    pointer = (tmp_path / "said").read_text().split()[1]
    found, _target = _died(core)
    assert found.kind == "invalid-free", found.what
    assert f"{VERBS[how]} a pointer that malloc did not return: {pointer} lies " in found.what


@pytest.mark.parametrize("userland", ["bullseye", "trixie", "sid"])
@pytest.mark.parametrize("where", ["stack", "odd", "data"])
def test_other_releases_of_glibc(where: str, userland: str) -> None:
    compiler = ("g++", "-w", *PLAIN, "-pthread")
    with dumped_in(userland, SOURCE, compiler, where, "free") as (core, root):
        found, target = _died(core, str(root))
    assert (found.kind, found.confidence) == ("invalid-free", CERTAIN), found.what
    assert f" lies {PLACES[where].format(pid=target.pid)}" in found.what
