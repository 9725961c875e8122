"""Place the program that the user named, where neither a build-id nor the auxiliary vector says where it was mapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dmods.modules.auxv import AT_ENTRY
from dmods.modules.elf import ET_DYN, ET_EXEC, Elf, Segment, page_down, page_up
from dmods.modules.headers import is_placed
from dmods.modules.localfiles import LocalFile
from dmods.modules.mapped_file import FileMapping
from dmods.target import AddressRange


def place(local: LocalFile, auxv: Mapping[int, int], mappings: Sequence[AddressRange]) -> list[FileMapping]:
    """Return the mappings of the file where all its segments fit memory that no file is known for, or []."""
    header = local.elf
    if header is None:
        return []
    for bias in _biases(header, auxv):
        start, end = (bias + bound for bound in header.extent())
        inside = [each for each in mappings if each.start < end and start < each.end]
        if all(each.path is None for each in inside) and is_placed(header, bias, inside):
            return [_mapping(load, bias, local.path) for load in header.loads() if load.filesz]
    return []


def _mapping(load: Segment, bias: int, path: str) -> FileMapping:
    start, end = page_down(bias + load.vaddr), page_up(bias + load.vaddr + load.filesz)
    return FileMapping(start, end, page_down(load.offset), path)


def _biases(header: Elf, auxv: Mapping[int, int]) -> Iterator[int]:
    """Yield the biases that are possible: a program that is not position-independent lies at its own addresses."""
    if header.type == ET_EXEC:
        yield 0
    elif header.type == ET_DYN and AT_ENTRY in auxv:
        yield auxv[AT_ENTRY] - header.entry
