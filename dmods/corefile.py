"""A bare core file as a :class:`dmods.target.Target`: what the kernel or gdb's gcore wrote, with no debugger at
hand."""

from __future__ import annotations

import os
import shlex
import weakref
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods import arch as arches
from dmods import coremap, corenotes, elf, modules
from dmods.corenotes import AT_ENTRY, AT_EXECFN, AT_PHDR, AT_SYSINFO_EHDR
from dmods.errors import CorruptError, FaultError, KernelDumpError, TruncatedError, UserError
from dmods.localfiles import LocalFile, LocalFiles, open_local
from dmods.modules import Found
from dmods.target import AddressRange, Module, Symbol, Thread

if TYPE_CHECKING:
    from dmods._engine import Image
    from dmods.symbols import ModuleSymbols

_MAX_NOTES = 1 << 28  # bytes of notes that are read: about 500,000 threads

# (magic, what it is, how to unpack it to standard output)
_PACKED = (
    (b"\x1f\x8b", "gzip", "gzip -dc"),
    (b"\xfd7zXZ\0", "xz", "xz -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
)


# (magic, what it is, what makes a core of it)
_OTHERS = (
    (b"MDMP", "a minidump", "Breakpad's minidump-2-core {} > core makes one of it, without its heap"),
    (b"Problem", "a report of Ubuntu's apport", "apport-unpack {} DIR: the core is DIR/CoreDump"),
)


class CoreFile:
    """Implements Target. Raises UserError for what cannot be read as a core at all; what is merely missing or wrong
    in it becomes a line in ``notes`` (some only once the modules or the image are asked for)."""

    def __init__(self, path: str, executable: Optional[str] = None, sysroot: Optional[str] = None) -> None:
        self.path: Optional[str] = path
        self.notes: list[str] = []
        self._core = path
        self._files = LocalFiles(sysroot)
        self._descriptor, self._size, self._state = _open(path)
        weakref.finalize(self, os.close, self._descriptor)
        self._given = _given(executable) if executable is not None else None
        header = _header(self._pread, path)
        self.arch = arches.of_elf(header.machine, header.word, header.little_endian, path)
        self._loads, spoiled = coremap.loads(header.segments, self._size)
        struct_word = self.arch.word
        # Twice through the notes rather than all of them kept: they may be hundreds of megabytes.
        if self.arch is arches.X86_64 and corenotes.described_machine(self._raw_notes(header)) == "i386":
            self.arch = arches.I386
        self.notes.clear()
        self._notes = corenotes.parse(self._raw_notes(header), self.arch, struct_word)
        self.pid: Optional[int] = self._notes.pid
        self._note_damage(header, spoiled)
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
                    "threads or registers may be too"
                )
            budget -= len(data)
            for note in elf.notes(data, header.little_endian):
                if note[0] == b"VMCOREINFO":
                    raise KernelDumpError(self._core)
                yield note

    def _note_damage(self, header: elf.Elf, spoiled: int) -> None:
        self.notes.extend(dict.fromkeys(self._notes.problems))
        if len(header.segments) < header.promised:
            lost = header.promised - len(header.segments)
            self.notes.append(f"{lost} of {header.promised} program headers of the core are missing")
        if spoiled:
            self.notes.append(f"{spoiled} segments of the core overlap others or the end of memory: they are cut")
        short = [load.promised - load.dumped for load in self._loads if load.dumped < load.promised]
        if short:
            of = f"{len(short)} of its {len(self._loads)} segments"
            self.notes.append(f"the core is truncated: {sum(short)} bytes of {of} are missing")
        if not self._loads:
            self.notes.append("the core holds no memory at all")
        if not self._notes.threads:
            self.notes.append("the core names no thread: its registers and stacks are unknown")

    # -- Target ---------------------------------------------------------------------------------------------------

    def state(self) -> Hashable:
        return self._state

    def threads(self) -> Sequence[Thread]:
        return self._notes.threads

    @property
    def auxv(self) -> dict[int, int]:
        return self._notes.auxv

    def mappings(self) -> Sequence[AddressRange]:
        return self._layout[0].ranges

    def modules(self) -> Sequence[Module]:
        return self._modules

    @cached_property
    def _layout(self) -> tuple[coremap.Pieces, list[Found]]:
        """The mappings and the modules in them."""
        pieces = coremap.join(self._loads, self._notes.files or self._linked_files())
        auxv = self._notes.auxv
        override = (auxv.get(AT_PHDR) or auxv.get(AT_ENTRY, -1), self._given) if self._given else None
        found = modules.find(pieces.ranges, self.dumped, self._files, auxv.get(AT_SYSINFO_EHDR), override)
        flags = modules.code_flags(found)
        if flags:
            found = [modules.with_flags(one, flags) for one in found]
            pieces.mend_flags(flags)
        return pieces, found

    @cached_property
    def _modules(self) -> list[Module]:
        self.notes.extend(_module_notes(self._layout[1]))
        return [found.module for found in self._layout[1]]

    @cached_property
    def program(self) -> Optional[Module]:
        """The module that was executed."""
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
        """What execve() was given: it may be relative to a folder nobody knows."""
        text = self.dumped(self._notes.auxv.get(AT_EXECFN, 0), 4096).split(b"\0")[0]
        return text.decode("utf-8", "surrogateescape") or None

    def _linked_files(self) -> list[corenotes.FileMapping]:
        """For a core without NT_FILE: from the dynamic linker's list."""
        auxv, name = self._notes.auxv, self._execfn() or ""
        # qemu-user dumps no code, the program's headers neither: then they are the file's, if it is the one.
        local = self._given or (
            found if (found := self._files.find(name)) and modules.is_program(found, auxv) else None
        )
        bias, linked = modules.program_link_map(self.dumped, auxv, self.arch.word, local.elf if local else None)
        if bias is None:
            return []
        return modules.as_mapped_files(linked, (bias, name, local), self.dumped, self._files)

    # -- memory ---------------------------------------------------------------------------------------------------

    def dumped(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes of the dump itself, not of the files behind it."""
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
        return self._image

    @cached_property
    def _image(self) -> Image:
        from dmods.coreimage import build

        self.modules()  # its notes come first
        image, notes = build(self._core, *self._layout, self._files, self._state[1] / 1e9)
        self.notes.extend(notes)
        return image

    def _peek(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes of the image, whatever the numbers are."""
        return self.image().read(address, size) if 0 <= address < 1 << 64 and 0 < size < 1 << 63 else b""

    def read(self, address: int, size: int) -> bytes:
        data = self._peek(address, size)
        if len(data) != size:
            raise FaultError(address, size)
        return data

    # -- names ----------------------------------------------------------------------------------------------------

    @cached_property
    def _symbols(self) -> ModuleSymbols:
        from dmods.symbols import ModuleSymbols

        return ModuleSymbols(self._load_order(), self.program, self.dumped, self._files.sysroot)

    def _load_order(self) -> list[Module]:
        """The libraries as the dynamic linker listed them, which is where it looks names up; then the rest."""
        given = self._given.elf if self._given else None
        _bias, linked = modules.program_link_map(self._peek, self._notes.auxv, self.arch.word, given)
        rank = {entry.bias: number for number, entry in reversed(list(enumerate(linked)))}
        return sorted(self.modules(), key=lambda module: rank.get(module.bias, len(rank)))

    def symbol_at(self, address: int) -> Optional[Symbol]:
        return self._symbols.at(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        return self._symbols.lookup(name)

    def evaluate(self, text: str) -> int:
        from dmods.names import evaluate

        return evaluate(self, text)


def find_executable(path: str, sysroot: Optional[str] = None) -> tuple[Optional[str], str]:
    """The program that dumped the core ``path``: (its path on this machine, or None; a sentence that says what was
    found).

    Cheap: reads headers only. Raises UserError where ``path`` is not a core that can be read.
    """
    core = CoreFile(path, sysroot=sysroot)
    program = core.program
    if program is None:
        named = core.executable
        return (
            None,
            f"the program {named} cannot be told from the core" if named else "the core does not name its program",
        )
    if program.file is None:
        return None, f"the program {program.path}: {program.problem or modules.NOT_HERE}"
    proof = next(found.proof for found in core._layout[1] if found.module is program)
    how = {"build-id": "its build-id matches", "header": "its first page matches"}.get(
        proof, "unproven: the core has no build-id"
    )
    return program.file, f"the program is {program.file} ({how})"


def _open(path: str) -> tuple[int, int, tuple[str, int, int]]:
    import stat

    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UserError(f"{path} is {kind}", "give the path of a core file")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        how = "give the path of a core file"
        if isinstance(error, PermissionError):
            how = "as root: chown it to you (the core of a set-uid program is root's)"
        elif path.isdecimal() and os.path.exists(f"/proc/{path}"):
            how = f"process {path} is alive: `gcore {path}` makes its core; or: dmods gdb -p {path}"
        raise UserError(f"cannot open {path}: {reason}", how) from None
    return descriptor, status.st_size, (os.path.realpath(path), status.st_mtime_ns, status.st_size)


def _given(path: str) -> LocalFile:
    local = open_local(path)
    if local is None or local.elf is None:
        reason = "it cannot be read" if local is None else "it is not an ELF file"
        raise UserError(f"cannot use {path} as the program: {reason}", "give the program that dumped the core, or none")
    return local


def _header(read: elf.Read, path: str) -> elf.Elf:
    magic = read(0, 8)
    if not magic:
        raise UserError(f"{path} is empty", "was there room on the disk, and did `ulimit -c` allow a core?")
    # makedumpfile's header (struct disk_dump_header), or that of its flattened form (struct makedumpfile_header)
    if magic in (b"KDUMP   ", b"makedump"):
        raise KernelDumpError(path)
    for start, kind, unpack in _PACKED:
        if magic.startswith(start):
            raise UserError(f"{path} is compressed ({kind})", f"unpack it first: {unpack} {_unpacked(path)}")
    for start, kind, how in _OTHERS:
        if magic.startswith(start):
            raise UserError(f"{path} is {kind}, not a core file", how.format(shlex.quote(path)))
    try:
        header = elf.parse(read, path)
    except CorruptError as error:
        raise UserError(
            f"{error}: not a core file", "give a core file of Linux (`file` tells what a file is)"
        ) from None
    except TruncatedError as error:
        raise UserError(str(error), "copy or make the core again: nothing in it can be read") from None
    if header.type != elf.ET_CORE:
        what = {elf.ET_EXEC: "a program", elf.ET_DYN: "a program or library", elf.ET_REL: "an object file"}
        raise UserError(
            f"{path} is {what.get(header.type, 'an ELF file')}, not a core",
            "give the core first; a program goes after --exe",
        )
    return header


def _unpacked(path: str) -> str:
    """ "FILE > CORE": beside it, or here where that is another's folder (systemd's)."""
    plain = os.path.splitext(path)[0] if path.endswith((".gz", ".xz", ".zst", ".bz2", ".lz4")) else f"{path}.plain"
    if not os.access(os.path.dirname(path) or ".", os.W_OK):
        plain = os.path.basename(plain)
    return f"{shlex.quote(path)} > {shlex.quote(plain)}"


def _module_notes(found: Sequence[Found]) -> list[str]:
    """One line for each kind of trouble, however many modules have it."""
    notes = []
    if len(found) >= modules.MOST_MODULES:
        notes.append(f"the process has more than {modules.MOST_MODULES} ELF files mapped: the others have no symbols")
    gone = [f.module.name for f in found if f.module.problem == modules.NOT_HERE]
    if gone:
        notes.append(
            f"{len(gone)} of {len(found)} mapped ELF files are not on this machine ({_some(gone)}): no symbols and no "
            "read-only bytes of theirs (--sysroot names another root)"
        )
    other = [f.module for f in found if f.module.problem not in (None, modules.NOT_HERE)]
    notes.extend(f"{module.name} is not used: {module.problem}" for module in other[:3] if module.file is None)
    notes.extend(f"{module.name}: {module.problem}; its symbols may be wrong" for module in other if module.file)
    if len(other) > 3:
        notes.append(
            f"{len(other) - 3} more mapped ELF files differ from this machine's (--sysroot names another root)"
        )
    trusted = [f.module.name for f in found if f.same and not f.proof]
    if trusted:
        notes.append(
            f"the core cannot prove which files these were, those of the same path are believed: {_some(trusted)}"
        )
    return notes


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
