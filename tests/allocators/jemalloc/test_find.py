"""The memory in which a jemalloc is searched."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmods._engine import Image
from dmods.base.ranges import Ranges
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.modules.data import module_data
from dmods.target import AddressRange, Module
from fixtures.heaps import glibc
from tests.corekit import HERE, compile_c, kernel_core

START, SIZE = 0x7F0000000000, 0x1000


@dataclass
class Made:
    """A Target with the parts that the search uses: one module, then a mapping of another file and an anonymous one."""

    header: bytes  # the header of the other file, as the dump has it

    def image(self) -> Image:
        return Image([], [], [(START + 4 * SIZE, self.header)] if self.header else [])

    def modules(self) -> list[Module]:
        return [Module("/lib/libx.so", START, START + 2 * SIZE, START)]

    def mappings(self) -> list[AddressRange]:
        def mapped(page: int, path: Any, offset: int, flags: str = "rw-") -> AddressRange:
            return AddressRange(START + page * SIZE, START + (page + 1) * SIZE, flags, path, offset * SIZE, SIZE)

        return [
            mapped(0, "/lib/libx.so", 0, "r-x"),
            mapped(1, "/lib/libx.so", 2),  # its header lies elsewhere: segments are not as far apart as in the file
            mapped(2, None, 0),  # its .bss
            mapped(4, "/other", 0),
            mapped(5, "/other", 1),
            mapped(8, None, 0),
        ]


def looked_through(header: bytes) -> list[tuple[int, int]]:
    target: Any = Made(header)
    return [((start - START) // SIZE, (end - START) // SIZE) for start, end in module_data(target)]


def test_what_belongs_to_no_module_is_not_looked_through() -> None:
    assert looked_through(b"DUMPEDGNUEMACS") == [(1, 3)]


def test_a_file_that_may_be_a_module_is() -> None:
    assert looked_through(b"\x7fELF") == [(1, 3), (4, 5), (5, 6)]
    assert looked_through(b"") == [(1, 3), (4, 5), (5, 6)]


def test_a_heap_right_behind_a_modules_data_is_not_looked_through(tmp_path: Path) -> None:
    """Without randomisation, the program's break begins at the end of its .bss."""
    program = compile_c(HERE / "sizes_kept.c", tmp_path / "sizes_kept", "-no-pie", "-fno-pie")
    setarch = shutil.which("setarch")
    assert setarch is not None
    target = CoreFile(str(kernel_core(Path(setarch), tmp_path, "-R", str(program))))
    start = glibc(find_heap(target)).layout.runs[0][0]
    heap = next(mapping for mapping in target.mappings() if start in mapping)
    assert any(mapping.end == heap.start for mapping in target.mappings())
    data = Ranges(module_data(target))
    assert start not in data
    for symbol in ("main_arena", "_IO_2_1_stdout_"):
        found = target.lookup(symbol)
        assert found is None or found.address in data
