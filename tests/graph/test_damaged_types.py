"""Damaged debug information costs a note, and never an exception, a hang, or memory without a bound."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.graph.types.typed_rows import typed_blocks
from dmods.graph.types.typegraph import find_typegraph
from fixtures import _cache, answers
from fixtures.limits import HANG_CPU
from tests.graph.typed import dump

_SECTIONS = (".debug_info", ".debug_abbrev", ".debug_str", ".debug_loclists", ".debug_rnglists", ".debug_str_offsets")
_SPLIT = (*(f"{name}.dwo" for name in _SECTIONS), ".debug_cu_index", ".debug_tu_index")


def _pieces(program: Path) -> list[tuple[int, int]]:
    with program.open("rb") as file:
        found = [section for section in ELFFile(file).iter_sections() if section.name in (*_SECTIONS, *_SPLIT)]
        return [(section["sh_offset"], section["sh_size"]) for section in found]


@pytest.mark.thorough("it reads many damaged programs")
@pytest.mark.parametrize(
    ("source", "damaged"),
    [
        ("typed.c", "typed"),
        ("typed.cc", "typed"),
        ("idioms.c", "typed"),
        ("typed.c", "typed.dwo"),
        ("typed.cc", "typed.dwo"),
        ("idioms.c", "typed.dwp"),
    ],
)
def test_damaged_debug_information(tmp_path: Path, source: str, damaged: str) -> None:
    compiler = ["gcc", "-O0"] if source.endswith(".c") else ["g++", "-std=c++17", "-O0"]
    # GNU dwp reads DWARF 4 only.
    version = "-gdwarf-4" if damaged == "typed.dwp" else "-g"
    split = [] if damaged == "typed" else ["-gsplit-dwarf", "-fdebug-types-section"]
    dumped = dump(tmp_path, [*compiler, version, *split], source)
    if damaged == "typed.dwp":
        subprocess.run([_cache.tool("dwp", "binutils"), "-e", "typed"], check=True, cwd=tmp_path)
    program, whole = tmp_path / damaged, tmp_path / "whole"
    shutil.copy(program, whole)
    pieces = _pieces(program)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of all tests that this process ran
    for seed in range(20):
        rng = random.Random(seed)
        data = bytearray(whole.read_bytes())
        for _ in range(rng.choice((1, 3, 30, 1000))):
            start, size = rng.choice(pieces)
            data[start + rng.randrange(size)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        program.unlink()
        program.write_bytes(data)
        began = time.process_time()
        target = CoreFile(str(dumped.core))
        graph = find_typegraph(target)
        rows = typed_blocks(target).rows()
        assert sum(row.total.count for row in rows) >= len(dumped.blocks)
        if graph is not None:
            for told in dumped.blocks[::97]:
                block = graph.heap.block_at(told.address)
                assert block is not None
                claim = graph.at(block)
                graph.field(block, 8)
                if claim is not None:
                    graph.source(claim)
        assert time.process_time() - began < 2 * HANG_CPU, f"seed {seed}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20  # KiB


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """No type is known for that reason, and not because the debug information is missing."""
    dumped = dump(tmp_path, ["gcc", "-O0", "-g", "-gz=zlib"], "typed.c")
    program = tmp_path / "typed"
    with program.open("rb") as file:
        start = ELFFile(file).get_section_by_name(".debug_info")["sh_offset"]
    data = bytearray(program.read_bytes())
    data[start + 24 : start + 64] = bytes(40)  # behind the header of the compressed section
    program.unlink()
    program.write_bytes(data)
    notes = answers.answer(CoreFile(str(dumped.core)), "typegraph")["notes"]
    assert any(str(program) in note and "debug_info" in note for note in notes), notes
    assert any("that can be read" in note for note in notes)


@pytest.mark.thorough("it reads many damaged cores")
@pytest.mark.parametrize("source", ["typed.c", "idioms.c"])
def test_damaged_objects(tmp_path: Path, source: str) -> None:
    """Words of the heap are overwritten, with pointers too: tags, counts, sizes and links that lie."""
    dumped = dump(tmp_path, ["gcc", "-O0", "-g"], source)
    whole = dumped.core.read_bytes()
    with dumped.core.open("rb") as file:
        headers = [segment.header for segment in ELFFile(file).iter_segments("PT_LOAD")]
    pieces = [(header.p_vaddr, header.p_filesz, header.p_offset) for header in headers]
    blocks = [block for block in dumped.blocks if block.size >= 8]
    wrong = tmp_path / "wrong.core"
    for seed in range(20):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.choice((10, 1000, 10000))):
            block = rng.choice(blocks)
            at = block.address + rng.randrange(block.size // 8) * 8
            place = next(at - start + offset for start, size, offset in pieces if start <= at < start + size)
            other = rng.choice(blocks).address
            value = rng.choice((0, 1, 2**64 - 1, other, other + 8 * rng.randrange(8), rng.getrandbits(64)))
            data[place : place + 8] = value.to_bytes(8, "little")
        wrong.write_bytes(data)
        began = time.process_time()
        target = CoreFile(str(wrong))
        rows = typed_blocks(target).rows()
        assert sum(row.total.count for row in rows) >= len(dumped.blocks)
        assert find_typegraph(target) is not None
        assert time.process_time() - began < 2 * HANG_CPU, f"seed {seed}"
