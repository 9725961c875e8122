"""Name the places of a core: each word that dmods reads, and where in the file it stands.

The ELF structures are read here with ``struct`` alone. dmods itself says where the heap's structures are in the
undamaged core. That decides only where to damage, not what the answer should be.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from dmods.allocators.glibc.structures import Arena
from dmods.corefile.target import CoreFile
from dmods.heap.block import FREE, LIVE
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.records.auditor import SIZE, parse
from fixtures.heaps import glibc, jemalloc_heaps

WORD = 8
EHDR = (("type", 16, 2), ("machine", 18, 2), ("phoff", 32, 8), ("shoff", 40, 8), ("phentsize", 54, 2), ("phnum", 56, 2))
IDENT = (("class", 4, 1), ("data", 5, 1))
PHDR = (("type", 4), ("flags", 4), ("offset", 8), ("vaddr", 8), ("paddr", 8), ("filesz", 8), ("memsz", 8), ("align", 8))
# XCR0 as the kernel writes it, and the header of the XSAVE area (SDM, volume 1, 13.4.2).
NT_X86_XSTATE, XSAVE = 0x202, (("xcr0", 464), ("xstate_bv", 512), ("xcomp_bv", 520))
MOST_NOTE_WORDS = 60
MOST_CHUNKS = 300


@dataclass(frozen=True)
class Place:
    """A place: ``width`` bytes at ``offset`` of the core, or, with ``exe``, of the program.

    ``address`` is the place in the process (0: none).
    """

    offset: int
    width: int
    exe: bool = False
    address: int = 0


class Fields:
    """Every named place, by kind. Names are "kind.number.part"."""

    def __init__(self, core: Path, exe: Path) -> None:
        self.places: dict[str, Place] = {}
        self._data = core.read_bytes()
        self._loads: list[tuple[int, int, int]] = []  # (address, size in the file, offset)
        self._elf()
        self._loads.sort()
        self._starts = [load[0] for load in self._loads]
        self._process(CoreFile(str(core)))
        self._program(exe)
        self.kinds: dict[str, list[str]] = {}
        for name in self.places:
            self.kinds.setdefault(name.partition(".")[0], []).append(name)

    def find(self, name: str) -> Place:
        """Return the place of that name.

        Where this machine's core has fewer of its kind, return another one of the kind.
        """
        if name.startswith("byte."):
            return Place(int(name[5:]) % len(self._data), 1)
        found = self.places.get(name)
        if found is None:
            kind = self.kinds[name.partition(".")[0]]
            found = self.places[kind[sum(name.encode()) % len(kind)]]
        return found

    def value(self, place: Place, exe: bytes) -> int:
        data = exe if place.exe else self._data
        return int.from_bytes(data[place.offset : place.offset + place.width], "little")

    @property
    def size(self) -> int:
        return len(self._data)

    def boundaries(self) -> list[int]:
        """Return the offsets where a structure begins or ends."""
        ends = {offset for _address, _size, offset in self._loads} | {offset + size for _a, size, offset in self._loads}
        return sorted({place.offset for place in self.places.values() if not place.exe and not place.address} | ends)

    # -- ELF ------------------------------------------------------------------------------------------------

    def _elf(self) -> None:
        for name, offset, width in (*IDENT, *EHDR):
            self.places[f"ehdr.{name}"] = Place(offset, width)
        (table,), (count,) = struct.unpack_from("<Q", self._data, 32), struct.unpack_from("<H", self._data, 56)
        for number in range(count):
            at = table + 56 * number
            values = struct.unpack_from("<IIQQQQQQ", self._data, at)
            for name, width in PHDR:
                self.places[f"phdr.{number}.{name}"] = Place(at, width)
                at += width
            if values[0] == 1 and values[5]:
                self._loads.append((values[3], values[5], values[2]))
            elif values[0] == 4:
                self._notes(values[2], values[2] + values[5])

    def _notes(self, at: int, end: int) -> None:
        number = 0
        while at + 12 <= end:
            name_size, size, kind = struct.unpack_from("<III", self._data, at)
            for part, offset in (("namesz", 0), ("descsz", 4), ("type", 8)):
                self.places[f"note.{number}.{part}"] = Place(at + offset, 4)
            content = at + 12 + (name_size + 3) // 4 * 4
            for word in range(min(size // WORD, MOST_NOTE_WORDS)):
                self.places[f"content.{number}.{word}"] = Place(content + WORD * word, WORD)
            for part, offset in XSAVE if kind == NT_X86_XSTATE else ():
                self.places[f"xsave.{number}.{part}"] = Place(content + offset, WORD)
            at = content + (size + 3) // 4 * 4
            number += 1

    # -- the process ----------------------------------------------------------------------------------------

    def _add(self, name: str, address: int, width: int = WORD) -> None:
        index = bisect_right(self._starts, address) - 1
        if index >= 0:
            start, size, offset = self._loads[index]
            if address + width <= start + size:
                self.places[name] = Place(offset + address - start, width, address=address)

    def _process(self, target: CoreFile) -> None:
        found = find_heap(target)
        for number, arena in enumerate(glibc(found).all):
            self._arena(number, arena)
        blocks = list(found.blocks(LIVE, FREE))
        for number, block in enumerate(blocks[:: max(1, len(blocks) // MOST_CHUNKS)]):
            for part, distance in (("prev_size", -16), ("size", -8), ("fd", 0), ("bk", 8)):
                self._add(f"chunk.{number}.{part}", block.address + distance)
        for number, address in enumerate(glibc(found).caches.tcaches):
            for word in range(80):
                self._add(f"tcache.{number}.{word}", address + WORD * word)
        for number, thread in enumerate(target.threads()):
            base, sp = thread.registers["fs_base"], thread.registers["rsp"]
            for word in range(-40, 288):
                self._add(f"tcb.{number}.{word}", base + WORD * word)
            for word in range(-8, 300):
                self._add(f"stack.{number}.{word}", sp + WORD * word)
        self._modules(target)
        self._auditor(target)
        self._jemallocs(target, found)

    def _arena(self, number: int, arena: Arena) -> None:
        for word, address in enumerate(range(arena.address, arena.end, WORD)):
            self._add(f"arena{number}.{word}", address)
        for heap, info in enumerate(arena.heaps):
            for word in range(6):
                self._add(f"heapinfo.{number}-{heap}.{word}", info.start + WORD * word)
        top = arena.top
        self._add(f"top.{number}.size", top + WORD)
        # The fields that are pointers have names: top before the bins; after the bins next, system_mem and so on.
        for name, address in (("flags", arena.address + 4), ("top", arena.bins - 16)):
            self._add(f"state.{number}.{name}", address, 4 if name == "flags" else WORD)
        for word in range(5):
            self._add(f"state.{number}.tail{word}", arena.end - WORD * (5 - word))
        if arena.main:  # mp_ is nearby: both are static variables of malloc.c
            for word in range(-160, 0):
                self._add(f"parameters.{word}", arena.address + WORD * word)
            for word in range(160):
                self._add(f"parameters.{word}", arena.end + WORD * word)

    def _auditor(self, target: CoreFile) -> None:
        """Add the tables of audit/format.h: the root, and the first entries in use of each table."""
        root_at = target.lookup("dmods_audit_root")
        root = parse(target.read(root_at.address, SIZE)) if root_at is not None else None
        if root_at is None or root is None:
            return
        for word in range(SIZE // WORD):
            self._add(f"auditroot.{word}", root_at.address + WORD * word)
        top, top_count = root.shadow.top, root.shadow.top_count
        for name, start, count in (
            ("audittop", top, top_count),
            ("auditranges", root.ranges.entries, root.ranges.count * 3),
            ("auditstacks", root.stacks.chunks, root.stacks.chunk_count),
            ("auditthreads", root.threads.chunks, root.threads.chunk_count),
            ("auditlog", root.log.entries, 500),
            ("auditmaps", root.maps.entries, 512),
        ):
            self._used(name, target, start, count)
        for table, name in (
            (top, "auditmiddle"),
            (root.stacks.chunks, "auditnodes"),
            (root.threads.chunks, "auditthread"),
        ):
            count = {"auditmiddle": top_count}.get(name, 64)
            for number, word in enumerate(self._words_at(target, table, count)[:4]):
                self._used(f"{name}.{number}", target, word, 4096)
                for leaf, pointer in enumerate(self._words_at(target, word, 4096)[:4] if name == "auditmiddle" else []):
                    self._used(f"auditrecord.{number}-{leaf}", target, pointer, 1 << 18)

    def _jemallocs(self, target: CoreFile, heap: ProcessHeap) -> None:
        """Add the radix tree with its first leaves, the records of extents with their bitmaps, and the tcaches."""
        for number, each in enumerate(jemalloc_heaps(heap)):
            one, own = each.one, each.caches
            self._used(f"jeroot.{number}", target, one.root, 1 << 16)
            for leaf, table in enumerate(self._words_at(target, one.root, 1 << 16)[:4]):
                self._used(f"jeleaf.{number}-{leaf}", target, table, 1 << 18)
            for extent, found in enumerate(one.extents.following(0, MOST_CHUNKS)):
                for word in range(16):
                    self._add(f"edata.{number}-{extent}.{word}", found[0] + WORD * word)
            for start, end in own.own_memory(one):
                for word, address in enumerate(range(start, min(end, start + (1 << 12)), WORD)):
                    self._add(f"jecache.{number}.{word}", address)

    def _used(self, name: str, target: CoreFile, start: int, count: int) -> None:
        """Add up to 200 of the words that are not 0."""
        data = target.image().read(start, count * WORD)
        values = memoryview(data[: len(data) // WORD * WORD]).cast("Q")
        for index in [index for index, value in enumerate(values) if value][:200]:
            self._add(f"{name}.{index}" if "." not in name else f"{name}-{index}", start + WORD * index)

    @staticmethod
    def _words_at(target: CoreFile, start: int, count: int) -> list[int]:
        data = target.image().read(start, count * WORD)
        return [value for value in memoryview(data[: len(data) // WORD * WORD]).cast("Q") if value]

    def _modules(self, target: CoreFile) -> None:
        """Add writable data of every module: GOTs, _DYNAMIC, r_debug and the link map of the first objects."""
        for number, module in enumerate(target.modules()):
            for mapping in module.ranges:
                if mapping.dumped:
                    for word in range(min(mapping.dumped // WORD, 600)):
                        self._add(f"data.{number}.{word}-{mapping.offset:x}", mapping.start + WORD * word)

    def _program(self, exe: Path) -> None:
        """Add places of the program's own file: headers, tables of sections, symbols, unwind tables."""
        with open(exe, "rb") as stream:
            elf = ELFFile(stream)
            parts = [(".head", 0, 64 + 56 * elf.num_segments())]
            parts += [
                (s.name, s["sh_offset"], s["sh_size"]) for s in elf.iter_sections() if s["sh_type"] != "SHT_NOBITS"
            ]
            parts += [(".shdr", elf["e_shoff"], elf["e_shnum"] * elf["e_shentsize"])]
        wanted = (
            ".head",
            ".shdr",
            ".eh_frame",
            ".eh_frame_hdr",
            ".symtab",
            ".strtab",
            ".dynsym",
            ".dynamic",
            ".note.gnu.build-id",
        )
        for name, offset, size in parts:
            if name in wanted:
                for word, at in enumerate(self._words(offset, size)):
                    self.places[f"exe.{name}.{word}"] = Place(at, 4, exe=True)

    @staticmethod
    def _words(offset: int, size: int) -> Iterator[int]:
        yield from range(offset, offset + min(size, 4096) - 3, 4)
