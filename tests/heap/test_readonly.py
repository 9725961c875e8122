"""Memory that was written and is read-only now, and has a name: what the dump has of it holds blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from tests.corekit import HERE, compile_c, gdb_core, kernel_core

_ALL = 0x7F  # a coredump_filter that dumps the pages of files, too


def _leaked(core: Path, where: Path) -> list[str]:
    """Return which blocks are reported, by the names that the program wrote down."""
    heap = find_heap(CoreFile(str(core)))
    reported = {block.address for block in heap.blocks(DIRECT, INDIRECT)}
    rows = [line.split() for line in (where / "truth").read_text().splitlines() if line != "told"]
    return [kind for kind, _size, hidden in rows if ~int(hidden) & (1 << 64) - 1 in reported]


@pytest.mark.quick("51-", "127--static", "gcore--no-pie")
@pytest.mark.parametrize("linked", ["", "-no-pie", "-static"])
@pytest.mark.parametrize("how", [0x33, _ALL, "gcore"])
def test_read_only_memory_with_a_name_holds_blocks(how: object, linked: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "readonly.c", tmp_path / "readonly", *filter(None, [linked]))
    if isinstance(how, int):
        core = kernel_core(program, tmp_path, "die", coredump_filter=how)
    else:
        core = gdb_core(program, tmp_path)
    assert _leaked(core, tmp_path) == ["lost"]


def test_files_that_are_gone_hold_what_the_dump_has(tmp_path: Path) -> None:
    program = compile_c(HERE / "readonly.c", tmp_path / "readonly")
    core = kernel_core(program, tmp_path, "die")
    program.unlink()
    (tmp_path / "data").unlink()
    assert _leaked(core, tmp_path) == ["lost"]


@pytest.mark.parametrize("also_in_file", [False, True])
def test_what_the_file_itself_contains_holds_nothing(also_in_file: bool, tmp_path: Path) -> None:
    """A constant of the program is the address of the lost block, by accident; or the program wrote it there."""
    program = compile_c(HERE / "readonly.c", tmp_path / "readonly", "-no-pie")
    core = kernel_core(program, tmp_path, "die", coredump_filter=_ALL)
    lost = next(line for line in (tmp_path / "truth").read_text().splitlines() if line.startswith("lost"))
    address = (~int(lost.split()[2]) & (1 << 64) - 1).to_bytes(8, "little")
    with open(program, "rb") as stream:
        table = next(s for s in ELFFile(stream).get_section_by_name(".symtab").iter_symbols() if s.name == "constants")
        section = ELFFile(stream).get_section(table["st_shndx"])
        value, in_file = table["st_value"], table["st_value"] - section["sh_addr"] + section["sh_offset"]
    with open(core, "rb") as stream:
        loads = list(ELFFile(stream).iter_segments("PT_LOAD"))
        load = next(s for s in loads if s["p_vaddr"] <= value < s["p_vaddr"] + s["p_filesz"])
        in_core = value - load["p_vaddr"] + load["p_offset"]
    for path, at in ((core, in_core), *(((program, in_file),) if also_in_file else ())):
        with open(path, "r+b") as stream:
            stream.seek(at + 64)
            stream.write(address)
    assert _leaked(core, tmp_path) == (["lost"] if also_in_file else [])
