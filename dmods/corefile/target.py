"""A core file as a :class:`dmods.target.Target`, without a debugger. The kernel or gdb's gcore wrote it."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.base.dataclass import replace
from dmods.corefile import notes as corenotes
from dmods.corefile import segments as coremap
from dmods.corefile.file_notes import module_notes, unnamed_notes, unused_note
from dmods.corefile.kernel_dumps import MACHINE_NOTES, is_machines
from dmods.corefile.opening import core_header, given_program, open_core
from dmods.corefile.unpacked import plain_path
from dmods.errors import FaultError, KernelDumpError
from dmods.modules import debuginfod, elf
from dmods.modules.auxv import AT_ENTRY, AT_EXECFN, AT_PHDR, AT_SYSINFO_EHDR
from dmods.modules.find import (
    NOT_HERE,
    FoundModule,
    Program,
    as_mapped_files,
    code_flags,
    find_modules,
    is_program,
    program_link_map,
    with_flags,
)
from dmods.modules.localfiles import LocalFiles, debug_roots
from dmods.modules.lost_auxv import auxv_on_stack, program_in_memory
from dmods.modules.mapped_file import FileMapping
from dmods.modules.placing import place
from dmods.process import arch as arches
from dmods.target import AddressRange, Module, Symbol, Thread

if TYPE_CHECKING:
    from dmods._engine import Image
    from dmods.corefile.crash_handlers.common import Context
    from dmods.corefile.images.root import ImageRoot
    from dmods.modules.symbols import ModuleSymbols

_MAX_NOTES = 1 << 28  # bytes of notes that are read: enough for 500,000 threads


class CoreFile:
    """Implements Target.

    Raises UserError for a file that cannot be read as a core. What is missing or wrong in a core becomes a line in
    ``notes``. Some notes only appear when the modules or the image are asked for.
    """

    def __init__(self, path: str, executable: Optional[str] = None, sysroot: Optional[str] = None) -> None:
        self.path: Optional[str] = path
        self.notes: list[str] = []
        self.context: Optional[Context] = None  # what /proc says of a live process
        self.knows_touched = False
        self._packed: Optional[ImageRoot] = None
        if sysroot is not None:
            from dmods.corefile.images.root import open_root  # what reads archives takes 6 ms to import

            sysroot, self._packed = open_root(sysroot)
        self._files = LocalFiles(sysroot, self._packed)
        self._core, unpacking = plain_path(path)
        self._descriptor, self._size, self._state = open_core(self._core)
        weakref.finalize(self, os.close, self._descriptor)
        self._given = given_program(executable) if executable is not None else None
        header = core_header(self._pread, path)
        self.arch = arches.arch_of_elf(header.machine, header.word, header.little_endian, path)
        self._loads, spoiled = coremap.loads(header.segments, self._size)
        struct_word = self.arch.word
        self._kinds: set[int] = set()  # of the notes
        # The notes may be hundreds of megabytes. They are read twice, and not kept.
        if self.arch is arches.X86_64 and corenotes.described_machine(self._raw_notes(header)) == "i386":
            self.arch = arches.I386
        self.notes[:] = unpacking
        self._notes = corenotes.parse(self._raw_notes(header), self.arch, struct_word)
        if is_machines(header.segments, self._kinds):
            raise KernelDumpError(path)
        self.pid: Optional[int] = self._notes.pid
        self.missing: Sequence[tuple[int, int]] = [
            (load.start + load.dumped, load.start + load.promised)
            for load in self._loads
            if load.dumped < load.promised
        ]
        self.names_files = self._notes.has_files
        self._note_damage(header, spoiled)
        self._find_auxv()
        self.executable: Optional[str] = self._executable()

    def _pread(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset >= self._size or size <= 0:
            return b""
        return os.pread(self._descriptor, min(size, self._size - offset), offset)

    def _raw_notes(self, header: elf.Elf) -> Iterator[tuple[bytes, int, bytes]]:
        budget = _MAX_NOTES
        for segment in header.segments:
            if segment.type != elf.PT_NOTE or budget <= 0:
                continue
            data = self._pread(segment.offset, min(segment.filesz, budget))
            if len(data) < segment.filesz:
                self.notes.append(
                    f"{segment.filesz - len(data)} of {segment.filesz} bytes of the core's notes are missing: "
                    "threads and registers may be missing, too"
                )
            budget -= len(data)
            for note in elf.read_notes(data, header.little_endian):
                if note[0] in MACHINE_NOTES:
                    raise KernelDumpError(self.path or self._core)
                self._kinds.add(note[1])
                yield note

    def _note_damage(self, header: elf.Elf, spoiled: int) -> None:
        self.notes.extend(dict.fromkeys(self._notes.problems))
        if len(header.segments) < header.promised:
            lost = header.promised - len(header.segments)
            self.notes.append(f"{lost} of {header.promised} program headers of the core are missing")
        if spoiled:
            self.notes.append(
                f"{spoiled} segments of the core overlap others or the end of the address space: they are cut"
            )
        short = [load.promised - load.dumped for load in self._loads if load.dumped < load.promised]
        if short:
            of = f"{len(short)} of its {len(self._loads)} segments"
            self.notes.append(f"the core is truncated: {sum(short)} bytes of {of} are missing")
        if not self._loads:
            self.notes.append("the core has no memory")
        if not self._notes.threads:
            self.notes.append("the core has no thread: registers and stacks are unknown")

    # -- Target ---------------------------------------------------------------------------------------------------

    def state(self) -> Hashable:
        """Return a constant: a core does not change."""
        return self._state

    def threads(self) -> Sequence[Thread]:
        """Return the threads, the one that died first."""
        return self._notes.threads

    @property
    def auxv(self) -> dict[int, int]:
        """Return the auxiliary vector."""
        return self._notes.auxv

    def mappings(self) -> Sequence[AddressRange]:
        """Return the mappings of the process."""
        return self._layout[0].ranges

    def modules(self) -> Sequence[Module]:
        """Return the program and its libraries."""
        return self._modules

    @cached_property
    def _layout(self) -> tuple[coremap.Pieces, list[FoundModule]]:
        """Return the mappings, and the modules in them."""
        auxv = self._notes.auxv
        files = self._notes.files or self._linked_files()
        program = Program(auxv.get(AT_PHDR) or auxv.get(AT_ENTRY), self._execfn(), self._given)
        layout = self._laid_out(files, program)
        if self._given is None or any(found.named for found in layout[1]):
            return layout
        placed = place(self._given, auxv, layout[0].ranges)
        if placed:
            return self._laid_out(sorted([*files, *placed]), replace(program, address=placed[0].start))
        self.notes.append(unused_note(self._given))
        return layout

    def _laid_out(self, files: Sequence[FileMapping], program: Program) -> tuple[coremap.Pieces, list[FoundModule]]:
        """Return the mappings with these files, and the modules in them."""
        pieces = coremap.join(self._loads, files)
        found = find_modules(pieces.ranges, self.dumped, self._files, self._notes.auxv.get(AT_SYSINFO_EHDR), program)
        flags = code_flags(found)
        if flags:
            found = [with_flags(each, flags) for each in found]
            pieces.mend_flags(flags)
        return pieces, found

    @cached_property
    def _modules(self) -> list[Module]:
        self.notes.extend(module_notes(self._layout[1]))
        if not self.names_files:
            self.notes.extend(unnamed_notes(self._layout[0]))
        self.notes.extend(debuginfod.told())
        return [found.module for found in self._layout[1]]

    @cached_property
    def program(self) -> Optional[Module]:
        """Return the module of the program: the one that the user named, or that the auxiliary vector leads to.

        None where there is neither.
        """
        named = next((found.module for found in self._layout[1] if found.named), None)
        if named is not None:
            return next((module for module in self.modules() if module.start == named.start), None)
        for address in (self._notes.auxv.get(AT_PHDR), self._notes.auxv.get(AT_ENTRY)):
            for module in self.modules():
                if address is not None and any(address in piece for piece in module.ranges):
                    return module
        return None

    def _executable(self) -> Optional[str]:
        mappings = self._layout[0].ranges
        for address in (self._notes.auxv.get(AT_PHDR, 0), self._notes.auxv.get(AT_ENTRY, 0)):
            index = bisect_right(mappings.columns[0], address) - 1
            if index >= 0 and address in mappings[index] and mappings[index].path is not None:
                return mappings[index].path
        return self._execfn()

    def _execfn(self) -> Optional[str]:
        """Return the path that execve() was given, or None. It may be relative to an unknown folder."""
        text = self.dumped(self._notes.auxv.get(AT_EXECFN, 0), 4096).split(b"\0")[0]
        return text.decode("utf-8", "surrogateescape") or None

    def _find_auxv(self) -> None:
        """Find the auxiliary vector in the memory where the notes lack it, or have one that leads nowhere."""
        auxv, word = self._notes.auxv, self.arch.word
        if self._is_mapped(auxv.get(AT_PHDR, 0)):
            return
        pointers = [thread.registers.get(self.arch.sp, 0) for thread in self._notes.threads]
        stacks = coremap.likely_stacks(self._loads, pointers)
        found = auxv_on_stack(stacks, self.dumped, word)
        if not self._is_mapped(found.get(AT_PHDR, 0)):
            found = program_in_memory((load.start for load in self._loads if load.dumped), self.dumped, word)
        self._notes.auxv = {**auxv, **found}

    def _is_mapped(self, address: int) -> bool:
        """Return whether the address lies in a segment of the core, or in a file that its notes name."""
        return any(
            (index := bisect_right(rows.columns[0], address) - 1) >= 0 and address < rows[index].end
            for rows in (self._loads, self._notes.files)
        )

    def _linked_files(self) -> list[FileMapping]:
        """Return the mapped files of a core without NT_FILE, from the dynamic linker's list."""
        auxv, name = self._notes.auxv, self._execfn() or ""
        # qemu-user does not dump code, and so no program headers. Then those of the file are used, if it fits.
        local = self._given or (found if (found := self._files.find(name)) and is_program(found, auxv) else None)
        bias, linked = program_link_map(self.dumped, auxv, self.arch.word, local.elf if local else None)
        if bias is None:
            return []
        header = elf.page_down(auxv.get(AT_PHDR, 0))
        name = name or (local.path if local else f"[program at {header:#x}]")
        return as_mapped_files(linked, (bias, name, local), header, self.dumped, self._files)

    # -- memory ---------------------------------------------------------------------------------------------------

    def dumped(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the dump itself, not of mapped files."""
        parts: list[bytes] = []
        index = bisect_right(self._loads.columns[0], address) - 1
        while size > 0 and 0 <= index < len(self._loads):
            load = self._loads[index]
            skip = address - load.start
            if not 0 <= skip < load.dumped:
                break
            part = self._pread(load.offset + skip, min(size, load.dumped - skip))
            parts.append(part)
            address += len(part)
            size -= len(part)
            if address != load.end or not part:
                break
            index += 1
        return b"".join(parts)

    def image(self) -> Image:
        """Return the memory as the engine reads it."""
        return self._image

    @cached_property
    def _image(self) -> Image:
        from dmods.corefile.image import build

        self.modules()  # its notes come first
        image, notes = build(self._core, *self._layout, self._files, self._state[1] / 1e9)
        self.notes.extend(notes)
        self.notes.extend(self._packed.said() if self._packed is not None else ())
        return image

    def _peek(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the image. Any numbers are allowed."""
        return self.image().read(address, size) if 0 <= address < 1 << 64 and 0 < size < 1 << 63 else b""

    def read(self, address: int, size: int) -> bytes:
        """Return the `size` bytes at the address. Raises FaultError."""
        data = self._peek(address, size)
        if len(data) != size:
            raise FaultError(address, size)
        return data

    @property
    def debug_roots(self) -> Sequence[str]:
        """Return the folders that are searched for debug information."""
        return debug_roots(self._files.sysroot)

    # -- names ----------------------------------------------------------------------------------------------------

    @cached_property
    def _symbols(self) -> ModuleSymbols:
        from dmods.modules.symbols import ModuleSymbols

        return ModuleSymbols(self._load_order(), self.program, self.dumped, self.debug_roots)

    def _load_order(self) -> list[Module]:
        """Return the modules in the order in which the dynamic linker looks names up; then the others."""
        given = self._given.elf if self._given else None
        _bias, linked = program_link_map(self._peek, self._notes.auxv, self.arch.word, given)
        rank = {entry.bias: number for number, entry in reversed(list(enumerate(linked)))}
        return sorted(self.modules(), key=lambda module: rank.get(module.bias, len(rank)))

    def symbol_at(self, address: int) -> Optional[Symbol]:
        """Return the symbol at the address, or None."""
        from dmods.modules.golang.moduledata import go_symbol_at

        return self._symbols.at(address) or go_symbol_at(self, address)

    def lookup(self, name: str) -> Optional[Symbol]:
        """Return the global symbol of that name, or None."""
        return self._symbols.lookup(name)

    def symbols_with(self, parts: Sequence[str]) -> Sequence[Symbol]:
        """Return the symbols with one of the parts in their mangled names."""
        return self._symbols.with_part(parts)

    def evaluate(self, text: str) -> int:
        """Return the address that a user means by the text. Raises UsageError."""
        from dmods.process.addresses import evaluate

        return evaluate(self, text, self._symbols.named)


def find_executable(path: str, sysroot: Optional[str] = None) -> tuple[Optional[str], str]:
    """Return (the path on this machine of the program that dumped the core, or None; a sentence about it).

    Only headers are read. Raises UserError where ``path`` is not a core that can be read.
    """
    core = CoreFile(path, sysroot=sysroot)
    program = core.program
    if program is None:
        named = core.executable
        return (
            None,
            f"the core does not say where {named} was mapped" if named else "the core does not name its program",
        )
    if program.file is None:
        return None, f"the program {program.path}: {program.problem or NOT_HERE}"
    proof = next(found.proof for found in core._layout[1] if found.module is program)
    how = {"build-id": "its build-id matches", "header": "its first page matches"}.get(
        proof, "unproven: the core has no build-id"
    )
    return program.file, f"the program is {program.file} ({how})"
