"""Use after free: triage names who freed the block, as AddressSanitizer does for the same program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import CERTAIN, Finding
from dmods.triage.checks import death
from dmods.triage.facts import ProcessFacts
from fixtures import audited
from fixtures.limits import HANG
from tests.corekit import compile_c, kernel_core

SOURCE = Path(__file__).parent / "freed.c"
WAYS = ("backward", "forward", "both", "later", "top", "mapped", "tcache", "fastbin", "moved")


def _finding(core: Path) -> Finding:
    (found,) = [each for each in death.run(ProcessFacts(CoreFile(str(core)))) if isinstance(each, Finding)]
    return found


def _sanitized(where: Path, way: str) -> tuple[int, int, str, str]:
    """Return AddressSanitizer's answer: bytes into the block, its size, and who freed and allocated it."""
    program = compile_c(SOURCE, where / "sanitized", "-fsanitize=address", "-w")
    done = subprocess.run([program, way], capture_output=True, text=True, timeout=HANG, check=False)
    place = re.search(r"located (\d+) bytes inside of (\d+)-byte region", done.stderr)
    blamed = re.findall(r"(?:freed|allocated) by thread T0 here:\n +#0 [^\n]*\n +#1 \S+ in (\w+)", done.stderr)
    assert place is not None, done.stderr
    freed, allocated = blamed
    return int(place[1]), int(place[2]), freed, allocated


@pytest.mark.quick("backward")
@pytest.mark.parametrize("way", WAYS)
def test_the_record_of_the_address_says_who_freed_it(way: str, tmp_path: Path) -> None:
    program = compile_c(SOURCE, tmp_path / "freed", "-w")
    core = kernel_core(program, tmp_path, way, env=audited.environment("audit,log"))
    offset, size, freed, allocated = _sanitized(tmp_path, way)
    found = _finding(core)
    assert found.kind == "use-after-free"
    into = f"{offset:#x} bytes into a freed block of {size} bytes, freed by {freed}+"
    assert into in found.what, found.what
    assert f"allocated by {allocated}+" in found.what
    assert found.parties.wrote.startswith(f"{freed}+")


@pytest.mark.quick("backward")
@pytest.mark.parametrize("way", ["backward", "later", "tcache"])
def test_who_freed_a_block_first_that_is_freed_twice(way: str, tmp_path: Path) -> None:
    program = compile_c(SOURCE, tmp_path / "freed", "-w")
    core = kernel_core(program, tmp_path, "twice", way, env=audited.environment("audit,log"))
    _offset, size, freed, allocated = _sanitized(tmp_path, way)
    found = _finding(core)
    assert (found.kind, found.confidence) == ("double-free", CERTAIN), found.what
    assert f", {size} bytes, freed by {freed}+" in found.what
    assert f", allocated by {allocated}+" in found.what


# Without records: what malloc has there, and no more.
UNRECORDED = {
    "backward": "bytes into free memory that malloc has merged from several blocks",
    "top": "bytes into free memory that malloc has merged into its top chunk",
    "tcache": "0x20 bytes into a freed block of 88 bytes",
    "fastbin": "0x20 bytes into a freed block of 88 bytes",
}


@pytest.mark.quick("backward")
@pytest.mark.parametrize("way", UNRECORDED)
def test_without_records_merged_memory_is_called_so(way: str, tmp_path: Path) -> None:
    found = _finding(kernel_core(compile_c(SOURCE, tmp_path / "freed", "-w"), tmp_path, way))
    assert found.kind == "use-after-free"
    assert UNRECORDED[way] in found.what, found.what
    assert "freed by" not in found.what
