"""The types of blocks from debug information: mdb's ``::typegraph``.

The engine reads the debug information and spreads types from variables through typed pointers
(engine/core/src/typed). This module finds the variables: global ones, thread-local ones, and those of each frame. It
keeps what the user taught (``istype``, ``notype``) for as long as the target is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods import _engine
from dmods.base.cached import cached, forget
from dmods.base.class_names import plain_class
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.base.words import Words
from dmods.corefile.cached_types import AT_LEAST, folder_of_tables
from dmods.errors import UsageError
from dmods.graph.types.cxx_holders import managed_types
from dmods.graph.types.type_name import vtable_confidence
from dmods.heap.block import Block
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.modules.by_address import modules_by_address
from dmods.modules.debuginfod import debuginfod_file
from dmods.modules.lines import source_lines
from dmods.process.tls import dtv_blocks
from dmods.process.unwind import Frame, ManyThreads
from dmods.target import Module, Target

_TAUGHT = "_taught_types"
_MOST_NOTES = 8
_MOST_FRAMES = 1 << 14  # whose variables are read
_C_LIBRARY = ("ld-linux", "ld.so", "libc.so", "libc-", "libm.so", "libpthread", "libdl", "[vdso]", "linux-vdso")
# Frames whose registers are certain (dmods.process.unwind).
_CERTAIN = ("thread", "cfi", "signal")
# DWARF's numbers of registers: System V psABI for x86-64, figure 3.36; for i386, table 2.14; AADWARF64, 4.1.
_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        **{name: i for i, name in enumerate(["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"])},
        **{f"r{i}": i for i in range(8, 16)},
    },
    "i386": {name: i for i, name in enumerate(["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"])},
    "aarch64": {**{f"x{i}": i for i in range(31)}, "sp": 31},
}

#: The evidence for the type of a leaked block: live objects of one type look like it.
ALIKE = "like live objects"
#: What each kind of evidence is worth. "likely": a typed pointer or a container says so, and the size agrees.
CONFIDENCE = {
    "taught": "taught",
    "vtable": "likely",  # "proven" where the object fills its block: vtable_confidence()
    "container": "likely",
    "typed pointer": "likely",
    "typed pointer, larger block": "possible",
    "pointer in a union": "possible",
    "tag of the object": "possible",
    "variable of a frame": "possible",
    "the only candidate": "possible",
    "part of the block": "possible",
    "typed pointer in a pool": "possible",
    "weak pointer": "possible",
    "text behind a header": "possible",
    ALIKE: "possible",
}


class Claim(NamedTuple):
    """A statement on the type of a block.

    ``type`` is the name as a user would write it, with ``[]`` for an array; ``full`` as gdb prints it. ``shape`` is 0
    for one object, 1 for an array, and 2 for an object with a flexible array member. ``skip`` bytes come before the
    first object. ``source`` is the address of the pointer that says so, or of an object that looks like it; 0 where a
    register says so. ``size`` is the bytes of one object.
    """

    type: str
    shape: int
    skip: int
    evidence: str
    rank: int
    disputed: bool
    source: int
    size: int
    full: str

    def confidence(self, usable: int, word: int, asked: Optional[int] = None) -> str:
        """Return "taught", "proven", "likely", "possible", or "none" where two sources disagree.

        ``usable`` is the size of the block, ``word`` that of a word, and ``asked`` what a record says was asked for.
        """
        if self.disputed:
            return "none"
        if self.evidence == "vtable" and asked == self.skip + self.size:
            return "proven"
        is_vtable = self.evidence == "vtable"
        return vtable_confidence(self.skip + self.size, usable, word) if is_vtable else CONFIDENCE[self.evidence]


def _claim(row: _engine.ClaimRow) -> Claim:
    rest = (row.shape, row.skip, row.evidence, row.rank, row.disputed, row.source, row.size)
    return Claim(plain_class(row.name), *rest, row.name)


class PooledObject(NamedTuple):
    """An object in a block that holds many: a pool, a slab, an arena.

    ``proofs``: no typed pointer leads to it, and so many pointers in the object prove its type; 0: one does.
    ``extent`` are its bytes with those that the pool keeps for it; ``size`` those of its type. ``source`` is the
    address of the pointer that says so. ``field`` is the part at the address that was asked for.
    """

    address: int
    extent: int
    type: str
    size: int
    source: int
    proofs: int
    field: str
    full: str


class Conflict(NamedTuple):
    """Two claims for the block at an address that exclude each other. ``kept`` is the better one, or the first."""

    address: int
    kept: Claim
    other: Claim


@dataclass
class Taught:
    """The user's words on blocks: the name of a type, or that a block has no type."""

    types: dict[int, str] = field(default_factory=dict)
    untyped: set[int] = field(default_factory=set)


def taught(target: Target) -> Taught:
    """Return what the user said of the blocks of this target."""
    found: Taught = vars(target).setdefault(_TAUGHT, Taught())
    return found


class TypeGraph:
    """The types of one heap's blocks, from debug information."""

    def __init__(self, heap: ProcessHeap, opened: Opened) -> None:
        self.heap, self.target = heap, heap.target
        self.engine = opened.engine
        self.opened = opened
        self.notes = list(opened.notes)
        with Progress("spreading types") as bar:
            self.engine.build(heap.marks.engine, *_asked(heap, self.engine), lambda done: bar.update(done, 0))
        if self.engine.exhausted:
            self.notes.append("types: there are too many typed pointers to follow, so some blocks have no type")
        self.conflict_count, rows = self.engine.conflicts()
        self.conflicts = [Conflict(at, _claim(kept), _claim(other)) for at, kept, other in rows]

    def types_named(self, name: str) -> list[tuple[int, str, int]]:
        """Return the types of that name as (number, name, size). Raises UsageError for an unknown name."""
        return types_named(self.engine, name)

    def at(self, block: Block) -> Optional[Claim]:
        """Return what is said of a block, or None."""
        row = self.engine.at(self.heap.marks.engine, block.address)
        return _claim(row) if row is not None else None

    def name(self, block: Block) -> Optional[str]:
        """Return the type of a block where nothing contradicts it."""
        claim = self.at(block)
        return claim.type if claim is not None and not claim.disputed else None

    def field(self, block: Block, offset: int) -> str:
        """Return the name of the field at an offset in a block: ".next"; "" where it is not known."""
        return self.engine.field(self.heap.marks.engine, block.address, offset) or ""

    def object(self, address: int) -> Optional[PooledObject]:
        """Return the object that has an address, in a block that holds many objects."""
        row = self.engine.object(address)
        if row is None:
            return None
        at, extent, name, size, source, proofs, field = row
        return PooledObject(at, extent, plain_class(name), size, source, proofs, field, name)

    def pool(self, block: Block) -> list[tuple[str, int, int, int]]:
        """Return the objects in a block that holds many: (type, count, bytes, distance or 0)."""
        rows = self.engine.pool(self.heap.marks.engine, block.address)
        return [(plain_class(name), count, bytes_, stride) for name, count, bytes_, stride in rows]

    def place(self, address: int) -> Optional[str]:
        """Return the variable at an address, and the part of it there: "server.db"."""
        return self.opened.place(address)

    def source(self, claim: Claim) -> str:
        """Return who says what a block is: a variable, or the field of another block."""
        if claim.evidence == ALIKE:
            return f"{claim.type} {claim.source:#x}, which looks like it"
        if claim.evidence in ("taught", "vtable") or not claim.source:
            return {"taught": "istype", "vtable": "its vtable"}.get(claim.evidence, "a register")
        return self.holder(claim.source)

    def holder(self, pointer: int) -> str:
        """Return what holds the pointer at an address: a variable, or the field of a block or of an object."""
        place = self.place(pointer)
        if place is not None:
            return place
        found = self.object(pointer)
        if found is not None:
            return f"{found.type} {found.address:#x} {found.field}"
        block = self.heap.block_at(pointer)
        if block is None:
            return f"{pointer:#x}"
        holder, offset = self.name(block), pointer - block.address
        part = self.field(block, offset) or f"+{offset:#x}"
        return f"{holder or 'block'} {block.address:#x} {part}"


class Opened:
    """The debug information of a target's modules, with the variables in it.

    ``modules`` are those that have any. ``locals`` are the variables of frames that are in memory, as (thread, number
    of the frame, name, address, size, function). ``in_registers`` are those that are in registers, as (thread, number
    of the frame, name, register, function). The function is an inlined one, or None: the frame's own.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.engine = _engine.TypeGraph(target.arch.word, folder_of_tables(), AT_LEAST)
        self.modules: dict[int, tuple[int, Module]] = {}
        self.locals: list[tuple[int, int, str, int, int, Optional[str]]] = []
        self.in_registers: list[tuple[int, int, str, str, Optional[str]]] = []
        self.variables = 0
        self._framed = False
        left_out = 0
        with Progress("reading debug information"):
            # The C library's debug information alone tells of a few blocks. It is read where another module has some.
            for module in sorted(target.modules(), key=_is_c_library):
                if _is_c_library(module) and not self.modules:
                    break
                number = self._open(module)
                if number is not None:
                    self.modules[module.start] = (number, module)
                    added, placeless = self.engine.add_variables(number, list(self._thread_local(module)))
                    self.variables += added
                    left_out += 0 if _is_c_library(module) else placeless
        self.notes = [f"types: {problem}" for problem in self.engine.problems[:_MOST_NOTES]]
        if left_out:
            self.notes.append(
                f"types: {left_out} thread-local variables are not followed: the place of the program's own is known"
            )

    def _open(self, module: Module) -> Optional[int]:
        # A program that the user named is believed although its build-id differs.
        named = module.file is not None and module.problem is not None
        build_id = None if named or module.build_id is None else bytes.fromhex(module.build_id)
        if module.file is None and build_id is None:
            return None
        roots = list(self.target.debug_roots)
        number = self.engine.open(module.file, roots, build_id, module.bias)
        if number is None and module.build_id is not None:
            downloaded = debuginfod_file(module.build_id)
            if downloaded is not None:
                number = self.engine.open(downloaded, roots, build_id, module.bias)
        return number

    def _thread_local(self, module: Module) -> Iterator[int]:
        """Yield where each thread has the thread-local variables of the module. Only the program's place is certain."""
        arch = self.target.arch
        if module.path != self.target.executable or not arch.thread_pointer:
            return
        words = Words(self.target.image(), arch.word)
        for thread in self.target.threads():
            # Module number 1 is the program, if it has thread-local variables (glibc elf/dl-tls.c).
            blocks = dtv_blocks(words, arch, thread.registers.get(arch.thread_pointer, 0))
            if blocks:
                yield blocks[0]

    def place(self, address: int) -> Optional[str]:
        """Return the variable at an address, and the part of it there: "server.db"; None: none is known there."""
        found = self.engine.variable(address)
        return found[0] if found is not None else None

    def add_frames(self, heap: ProcessHeap) -> None:
        """Add the variables of the frames of all threads, once."""
        if self._framed:
            return
        self._framed = True
        by_address = modules_by_address(self.target)
        many = ManyThreads(self.target)
        left = _MOST_FRAMES
        names = {number: name for name, number in _NUMBERS.get(self.target.arch.name, {}).items()}
        for thread in self.target.threads():
            frames = many.unwind(thread)
            for place, frame in enumerate(frames):
                module = by_address.at(frame.code_address)
                known = self.modules.get(module.start) if module is not None else None
                if known is None or left <= 0 or frame.found_by not in _CERTAIN:
                    continue
                left -= 1
                caller = frames[place + 1] if place + 1 < len(frames) else None
                for name, _type, address, size, register, inlined in self._variables_of(heap, known[0], frame, caller):
                    if address is not None:
                        self.locals.append((thread.tid, place, name, address, size, inlined))
                    elif register in names:
                        self.in_registers.append((thread.tid, place, name, names[register], inlined))
        if left <= 0:
            self.notes.append(f"types: the variables of the first {_MOST_FRAMES} frames only are looked at")

    def _variables_of(
        self, heap: ProcessHeap, module: int, frame: Frame, caller: Optional[Frame]
    ) -> list[tuple[str, str, Optional[int], int, Optional[int], Optional[str]]]:
        """Add the variables of a frame. Return (name, type, address, size, register, inlined function) of each."""
        numbers = _NUMBERS.get(self.target.arch.name, {})
        registers = {numbers[name]: value for name, value in frame.registers.items() if name in numbers}
        # The caller's stack pointer is this frame's CFA, unless a signal lies between them.
        cfa = caller.sp if caller is not None and caller.found_by == "cfi" else None
        lines = []
        if self.engine.needs_line(module, frame.code_address):
            lines = source_lines(self.target).frames_at(frame.code_address, True)
        line = lines[-1].line if lines else None
        return self.engine.add_frame(heap.words.image, module, frame.code_address, cfa, registers, line)


def _is_c_library(module: Module) -> bool:
    return module.name.startswith(_C_LIBRARY)


@cached
def _opened(target: Target) -> Opened:
    return Opened(target)


def opened(target: Target) -> Optional[Opened]:
    """Return the debug information of the target's modules. None where no module has any."""
    found = _opened(target)
    return found if found.modules else None


def debug_problems(target: Target) -> list[str]:
    """Return why debug information could not be read, as notes."""
    return list(_opened(target).notes)


@cached
def _graph(target: Target) -> Optional[TypeGraph]:
    information = opened(target)
    if information is None:
        return None
    heap = find_heap(target)
    information.add_frames(heap)
    return TypeGraph(heap, information)


def find_typegraph(target: Target) -> Optional[TypeGraph]:
    """Return the types of the target's blocks from debug information. None: no module has any.

    They are computed once for each state of the target, and again when the user has taught a type.
    """
    return _graph(target)


class SampledLeaks(NamedTuple):
    """The groups of direct leaks in a large heap: the group, its type and the evidence, whether it is that of a sample.

    The type is None for a group with a kind. ``work`` is that of the engine: see ``_engine.TypeGraph``.
    """

    groups: list[tuple[_engine.Group, Optional[tuple[str, str]], bool]]
    work: tuple[int, int, int, int]


def sampled_leaks(heap: ProcessHeap, kinds: _engine.Kinds) -> Optional[SampledLeaks]:
    """Return the direct leaks by size and by kind or type, in time that does not grow with the heap's live blocks.

    ``kinds`` are those of the direct leaks. None: no module has debug information.
    """
    information = opened(heap.target)
    if information is None:
        return None
    information.add_frames(heap)
    with Progress("finding the types of leaks") as bar:
        asked = _asked(heap, information.engine)
        found = _engine.sampled_leaks(
            information.engine, kinds, 0, heap.marks.engine, *asked, lambda done: bar.update(done, 0)
        )
    return SampledLeaks(*found)


def _asked(
    heap: ProcessHeap, engine: _engine.TypeGraph
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int], list[tuple[int, int]], list[int]]:
    """Return what the engine has to know beside the heap: see ``build``."""
    said = taught(heap.target)
    memory = [(mapping.start, mapping.end) for mapping in heap.target.mappings()]
    numbers = [(address, types_named(engine, name)[0][0]) for address, name in sorted(said.types.items())]
    # Debug information says of most objects of Python no more than that they are some object.
    strange = [one.arena for one in heap.heaps if not one.serves_malloc]
    return memory, numbers, sorted(said.untyped), _managed(heap.target, engine), strange


def _managed(target: Target, engine: _engine.TypeGraph) -> list[tuple[int, int]]:
    """Return the functions that manage values of std::any, and the types of these values."""
    found = ((address, engine.find(name)) for address, name in managed_types(target))
    return [(address, types[0][0]) for address, types in found if len({each[1:] for each in types}) == 1]


def teach(target: Target, address: int, name: Optional[str]) -> None:
    """Remember that the block at the address has this type, or none; and forget the types that were found."""
    said = taught(target)
    said.types.pop(address, None)
    said.untyped.discard(address)
    if name is None:
        said.untyped.add(address)
    else:
        said.types[address] = name
    forget(target, _graph)


def types_named(engine: _engine.TypeGraph, name: str) -> list[tuple[int, str, int]]:
    """Return the types of that name as (number, name, size). Raises UsageError for an unknown name."""
    found = engine.find(name)
    if not found:
        raise UsageError(
            f"the debug information has no struct, class or union {name}", "give its name as gdb prints it"
        )
    return found
