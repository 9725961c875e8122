"""ELF headers, program headers and notes, read from a file or from the memory of a dead process.

No number is trusted: offsets and counts are checked against the bytes that exist. A short read shortens the result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, Optional, Union, overload

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.errors import CorruptError, TruncatedError

# read(offset, size) returns up to ``size`` bytes: fewer, or none, where the file or memory ends.
Read = Callable[[int, int], bytes]

ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_PHDR, PT_TLS = 1, 2, 3, 4, 6, 7
PF_X, PF_W, PF_R = 1, 2, 4
NT_GNU_BUILD_ID = 3
MAGIC = b"\x7fELF"
PAGE = 4096  # the smallest page size: an address that is aligned to a larger one is aligned to this one, too

# Addresses from here on are left out, so that an address plus the length of a buffer fits in 64 bits. The last mapping
# that a process can have is x86's vsyscall page, 10 MiB below the end of the address space.
TOP = (1 << 64) - (4 << 20)

# More program headers are not believed. Linux allows vm.max_map_count mappings (65,530 by default).
MAX_SEGMENTS = 1 << 20
_LARGEST_NOTE = 64 << 20  # the kernel's list of files has 16 MiB at most (sysctl kernel.core_file_note_size_limit)
_LONGEST_NAME = 256
_PN_XNUM = 0xFFFF  # the count is in sh_info of section 0 (gABI, "Program Header")


class Segment(NamedTuple):
    """A program header."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int  # in dumps of a kernel: the physical address
    filesz: int
    memsz: int
    align: int


class Segments(Sequence[Segment]):
    """Program headers. Each is decoded when it is asked for: a core may have a million."""

    def __init__(self, table: bytes, layout: struct.Struct, stride: int) -> None:
        count = (len(table) - layout.size) // stride + 1 if len(table) >= layout.size else 0
        self._table = table[: (count - 1) * stride + layout.size] if count else b""
        self._layout, self._stride, self._count = layout, stride, count
        self._make = Segment._make if layout.size == 56 else _narrow

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Segment]:
        if self._stride == self._layout.size:
            return map(self._make, self._layout.iter_unpack(self._table))
        return map(self.__getitem__, range(self._count))

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Segment, list[Segment]]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._count))]
        at = range(self._count)[index] * self._stride
        return self._make(self._layout.unpack_from(self._table, at))


def _narrow(row: Iterable[int]) -> Segment:
    """Return the Segment of an Elf32_Phdr, which has the flags in another place."""
    kind, offset, vaddr, paddr, filesz, memsz, flags, align = row
    return Segment(kind, flags, offset, vaddr, paddr, filesz, memsz, align)


@dataclass(frozen=True)
class Elf:
    """The header and program headers of an ELF file.

    ``type`` and ``machine`` are e_type and e_machine. ``promised`` is the number of program headers that the header
    claims. ``headers_at`` is the offset of the program headers.
    """

    type: int
    machine: int
    word: int
    little_endian: bool
    entry: int
    segments: Sequence[Segment]
    promised: int
    headers_at: int

    def loads(self) -> Iterator[Segment]:
        """Return the PT_LOAD segments."""
        return (segment for segment in self.segments if segment.type == PT_LOAD)

    def extent(self) -> tuple[int, int]:
        """Return the start and end of all PT_LOADs together, in whole pages. These are addresses of the file."""
        loads = [load for load in self.loads() if load.memsz]
        if not loads:
            return 0, 0
        return page_down(min(s.vaddr for s in loads)), page_up(max(s.vaddr + s.memsz for s in loads))


def page_down(value: int) -> int:
    """Return the start of the page that holds the address."""
    return value & -PAGE


def page_up(value: int) -> int:
    """Return the address itself at the start of a page, else the start of the next page."""
    return -(-value & -PAGE)


class _Header(NamedTuple):
    """The fields of Elf64_Ehdr and Elf32_Ehdr after e_ident (gABI, "ELF Header")."""

    type: int
    machine: int
    version: int
    entry: int
    phoff: int
    shoff: int
    flags: int
    ehsize: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


# This is not done with pyelftools. Its import takes 70 ms, a third of a short command. It takes 8 microseconds for a
# program header, against 0.4 here, and a core may have tens of thousands. tests/modules/test_elf.py compares the two.


def parse(read: Read, where: str, most: int = MAX_SEGMENTS) -> Elf:
    """Return the headers at offset 0 of ``read``, with at most ``most`` program headers.

    ``where`` names the file in errors. Raises CorruptError where it is not ELF, and TruncatedError where the ELF header
    is not complete.
    """
    head = read(0, 64)
    if head[:4] != MAGIC:
        raise CorruptError(f"{where} is not ELF")
    word = {1: 4, 2: 8}.get(head[4] if len(head) > 4 else 0)
    order = {1: "<", 2: ">"}.get(head[5] if len(head) > 5 else 0)
    if len(head) >= 6 and (word is None or order is None):
        raise CorruptError(f"{where} has an ELF header without a valid word size and byte order")
    layout = struct.Struct(f"{order or '<'}HHI{'QQQ' if word == 8 else 'III'}IHHHHHH")
    if word is None or order is None or len(head) < 16 + layout.size:
        raise TruncatedError(f"{where} ends inside its ELF header: {len(head)} bytes")
    header = _Header(*layout.unpack_from(head, 16))
    count = header.phnum
    if count == _PN_XNUM:
        # sh_info of section 0: four fields of a word and three of 4 bytes lie before it (gABI, "Section Header")
        at = header.shoff + (44 if word == 8 else 28)
        info = read(at, 4) if at + 4 <= TOP else b""
        count = struct.unpack(f"{order}I", info)[0] if len(info) == 4 else 0
    little = order == "<"
    segments = read_segments(read, header.phoff, min(count, most), word, little=little, entry_size=header.phentsize)
    return Elf(header.type, header.machine, word, little, header.entry, segments, count, header.phoff)


def read_segments(
    read: Read, offset: int, count: int, word: int, *, little: bool = True, entry_size: int = 0
) -> Sequence[Segment]:
    """Return up to ``count`` program headers at ``offset``: those whose bytes exist."""
    layout = struct.Struct(("<" if little else ">") + ("IIQQQQQQ" if word == 8 else "IIIIIIII"))
    entry_size = entry_size or layout.size
    if entry_size < layout.size:
        return ()
    return Segments(read(offset, min(entry_size * count, layout.size * MAX_SEGMENTS)), layout, entry_size)


def read_notes(data: bytes, little_endian: bool, align: int = 4) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (name without its NUL, type, desc) of each note.

    A note that is cut short ends the list. Its desc has the bytes that exist. Of a desc that is too large to be real,
    only the beginning is returned.
    """
    head = struct.Struct("<III" if little_endian else ">III")
    align = 8 if align == 8 else 4  # 8 only for .note.gnu.property (Linux Extensions to gABI)
    at = 0
    while at + head.size <= len(data):
        name_size, desc_size, kind = head.unpack_from(data, at)
        desc = at + head.size + (name_size + 3 & -4)
        desc = desc + align - 1 & -align
        if desc > len(data):
            return
        kept = data[desc : desc + min(desc_size, _LARGEST_NOTE)]
        yield data[at + head.size : at + head.size + min(name_size, _LONGEST_NAME)].rstrip(b"\0"), kind, kept
        at = desc + (desc_size + align - 1 & -align)


def build_id(elf: Elf, read: Read, in_memory: bool = False) -> Optional[str]:
    """Return the build-id in hexadecimal, or None.

    ``read`` reads the file. With ``in_memory`` it reads the mapped file, at the file's own addresses.
    """
    for segment in elf.segments:
        if segment.type != PT_NOTE:
            continue
        data = read(segment.vaddr if in_memory else segment.offset, min(segment.filesz, 1 << 16))
        for name, kind, desc in read_notes(data, elf.little_endian, segment.align):
            if name == b"GNU" and kind == NT_GNU_BUILD_ID and 0 < len(desc) <= 64:
                return desc.hex()
    return None
