"""Where a jemalloc is looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmods._engine import Image
from dmods.jemalloc import find
from dmods.target import AddressRange, Module

START, SIZE = 0x7F0000000000, 0x1000


@dataclass
class Made:
    """As much of a Target as is asked for: one module, then a mapping of another file and one of no file."""

    header: bytes  # of the other file, as the dump has it

    def image(self) -> Image:
        return Image([], [], [(START + 4 * SIZE, self.header)] if self.header else [])

    def modules(self) -> list[Module]:
        return [Module("/lib/libx.so", START, START + 2 * SIZE, START)]

    def mappings(self) -> list[AddressRange]:
        def mapped(page: int, path: Any, offset: int, flags: str = "rw-") -> AddressRange:
            return AddressRange(START + page * SIZE, START + (page + 1) * SIZE, flags, path, offset * SIZE, SIZE)

        return [
            mapped(0, "/lib/libx.so", 0, "r-x"),
            mapped(1, "/lib/libx.so", 2),  # whose header lies elsewhere: segments are not as far apart as in the file
            mapped(2, None, 0),  # its .bss
            mapped(4, "/other", 0),
            mapped(5, "/other", 1),
            mapped(8, None, 0),
        ]


def looked_through(header: bytes) -> list[tuple[int, int]]:
    target: Any = Made(header)
    return [((start - START) // SIZE, (end - START) // SIZE) for start, end in find._module_data(target)]


def test_what_belongs_to_no_module_is_not_looked_through() -> None:
    assert looked_through(b"DUMPEDGNUEMACS") == [(1, 3)]


def test_a_file_that_may_be_a_module_is() -> None:
    assert looked_through(b"\x7fELF") == [(1, 3), (4, 5), (5, 6)]
    assert looked_through(b"") == [(1, 3), (4, 5), (5, 6)]
