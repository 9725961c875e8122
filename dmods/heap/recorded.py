"""The heap of an allocator that dmods cannot walk, from the auditor's records alone.

The records say where every live block is. They do not say what the rest of the allocator's memory is. If every
allocation was recorded, memory between the blocks of a page is free or the allocator's own. Then it is no root:
tcmalloc and mimalloc give a page to blocks only (the pages of a span, or of a segment). If the records may lack a
block, all memory between the blocks counts as a root. So no block that is in use is reported as leaked. Pages without
a recorded block are ordinary memory: they count as roots in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.protocol import Heap
from dmods.allocators.size_classes import size_classes
from dmods.allocators.unwalked import AUDITOR, OTHERS, unwalked_malloc
from dmods.base.dataclass import dataclass
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.modules.elf import PAGE
from dmods.modules.find import VDSO
from dmods.process.unwind import ManyThreads
from dmods.records.audit_format import RECORDING
from dmods.records.auditor import auditor_root
from dmods.records.model import Recording, Records
from dmods.target import Module, Target

# Allocators whose pages with blocks hold nothing else.
_PAGES_OF_BLOCKS = ("tcmalloc", "mimalloc")
# Functions of an allocator that give out blocks, and that the auditor does not replace.
_DIRECT = regex(
    rb"(?:tc_(?:new|malloc|calloc|realloc|memalign|posix_memalign|p?valloc)\w*"
    rb"|mi_\w*(?:alloc|new|dup|realpath|aligned)\w*"
    rb"|__libc_(?:malloc|calloc|realloc|memalign|p?valloc))\0"
)
_USABLE = regex(rb"(?:malloc_usable_size|malloc_size|malloc_good_size|tc_nallocx|nallocx|mi_good_size)\0")
_LIBC = regex(r"(?:^|/)(?:libc|ld-linux[^/]*|ld64)[-.][^/]*$")
_BATCH = 65536
_SECTIONS = (".dynstr", ".rodata")  # names that a module imports, and names for dlsym()


@dataclass
class RecordedHeap(Heap):
    """The recorded blocks of an allocator. ``owned`` are the pages that hold a part of one.

    ``doubts`` say why a block may be missing in the records.
    """

    recorded: Optional[_engine.Recorded] = None

    @property
    def is_checked(self) -> bool:
        """Return False: records say nothing about the allocator's own structures."""
        return False

    def roots(self, target: Target, unaligned: bool) -> list[tuple[int, int]]:
        """Return the parts of the pages that are in no block, and may hold a pointer that the program uses."""
        if self.recorded is None or not self.doubts:
            return []
        return self.recorded.gaps(target.image(), list(self.owned), unaligned)

    def where(self, address: int) -> Optional[str]:
        """Return what memory beside the recorded blocks is."""
        known = "may be in use" if self.doubts else "free, or the allocator's own"
        return f"in a page of {self.name}, in no recorded block: {known}"


def find_recorded(target: Target, records: Records, heaps: Sequence[Heap], owned: Ranges) -> Optional[RecordedHeap]:
    """Return the heap of the allocator that serves malloc, or None.

    No such heap exists where dmods can walk that allocator, or where not every block was recorded on purpose (samples).
    ``heaps`` are those that dmods walks. ``owned`` is their memory: it holds none of these blocks.
    """
    root = auditor_root(target)
    if root is None or root.state != RECORDING:
        return None
    recording = next((one for one in records.recordings if one.own and one.allocator is None), None)
    name = unwalked_malloc(target)
    walked = any(one.allocator == name and one.serves_malloc for one in heaps)
    if recording is None or recording.mean or name is None or walked:
        return None
    free = Ranges([*owned, *recording.own])
    writable = Ranges((m.start, m.end) for m in target.mappings() if "w" in m.flags and m.anonymous)
    asks = any(_has(module, _USABLE) for module in _program_modules(target, name))
    blocks = _engine.Recorded(recording.rows, free.without(writable), size_classes(name) if asks else [])
    if not len(blocks.slots):
        return None
    heap = RecordedHeap(name, blocks.areas(PAGE), blocks.slots, recorded=blocks)
    heap.doubts.extend(_doubts(target, heap, blocks, recording, root.figures.unknown_frees))
    heap.own.extend(_own_blocks(target, name, recording))
    heap.notes.extend(_notes(heap))
    return heap


def _notes(heap: RecordedHeap) -> list[str]:
    """Return what proves the answer, and what is not covered."""
    known = (
        f"malloc of this process is {heap.name}: its {len(heap.slots)} blocks are known from the auditor's "
        "records alone, with the sizes that the program asked for"
    )
    if heap.doubts:
        rest = "memory between the recorded blocks may be in use, and what it points to counts as reachable"
        return [known, f"{rest}: {'; '.join(heap.doubts)}"]
    return [
        f"{known}; every allocation was recorded, so memory between the blocks of a page counts as free; "
        f"what other memory of {heap.name} points to counts as reachable"
    ]


def _doubts(
    target: Target, heap: RecordedHeap, blocks: _engine.Recorded, recording: Recording, unknown_frees: int
) -> Iterator[str]:
    """Yield the reasons why a block that is in use may have no record."""
    if heap.name not in _PAGES_OF_BLOCKS:
        yield f"a page of {heap.name} may hold more than blocks"
    yield from recording.notes
    if blocks.strays:
        yield f"{blocks.strays} records name no memory of the allocator"
    if blocks.cut:
        yield f"{blocks.cut} recorded blocks overlap the next one"
    if unknown_frees:
        yield f"{unknown_frees} blocks without a record were freed"
    modules = _program_modules(target, heap.name)
    direct = [module.name for module in modules if _has(module, _DIRECT)]
    if direct:
        yield f"{_some(direct)} may call functions of {heap.name} that the auditor does not see"
    absent = [module.name for module in modules if module.file is None]
    if absent:
        yield f"the file of {_some(absent)} is not here: it may call functions of {heap.name} that the auditor misses"
    inside = _threads_inside(target, heap.name)
    if inside is None:
        yield "there are too many threads to see whether one was inside malloc"
    elif inside:
        # realloc() copies a block while it has no record.
        yield (
            f"thread {inside[0]} was inside malloc" if len(inside) == 1 else f"{len(inside)} threads were inside malloc"
        )


def _own_blocks(target: Target, name: str, recording: Recording) -> Iterator[int]:
    """Yield the blocks that a function of the allocator itself took with malloc or operator new.

    tcmalloc does so at its start, and drops the block (gperftools 2.10, MallocExtension::Register).
    """
    code = Ranges((m.start, m.end) for m in _allocator_modules(target, name))
    rows = recording.rows
    for user in rows.users(""):
        frames = rows.stack(user.stack)[0]
        if not frames or frames[0][0] not in code:
            continue
        if user.count == 1:
            yield user.oldest.address
            continue
        at = 0
        while batch := rows.records(at, _BATCH):
            yield from (row.address for row in batch if row.stack == user.stack)
            at = batch[-1].address + 1


def _program_modules(target: Target, name: str) -> list[Module]:
    """Return the modules that may call the allocator: all but the allocator itself, the auditor and the vdso."""
    skip = {module.path for module in _allocator_modules(target, name)}
    return [module for module in target.modules() if module.path not in skip and module.path != VDSO]


def _allocator_modules(target: Target, name: str) -> list[Module]:
    patterns = [other.files for other in OTHERS if other.name == name]
    return [
        module
        for module in target.modules()
        if module.name.startswith(AUDITOR) or any(re.search(pattern, module.path) for pattern in patterns)
    ]


def _has(module: Module, names: re.Pattern[bytes]) -> bool:
    """Return whether the module imports one of the names, or has it as a text."""
    if module.file is None:
        return False
    for section in _SECTIONS:
        data = _engine.elf_section(module.file, section)
        if data is not None and any(not _is_own(module, found) for found in names.findall(data)):
            return True
    return False


def _is_own(module: Module, name: bytes) -> bool:
    """Return whether libc and the dynamic linker export the name themselves."""
    own = name.startswith(b"__libc_") or name == b"malloc_usable_size\0"
    return own and _LIBC.search(module.path) is not None


def _threads_inside(target: Target, name: str) -> Optional[list[int]]:
    """Return the threads that have a frame in the allocator or the auditor. None: not all stacks could be looked at."""
    code = Ranges((m.start, m.end) for m in _allocator_modules(target, name))
    many, found = ManyThreads(target), []
    for thread in target.threads():
        if any(frame.pc in code for frame in many.walk(thread).frames):
            found.append(thread.tid)
    return None if many.missed else found


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} other modules"
