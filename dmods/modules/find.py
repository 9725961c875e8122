"""Finds the ELF files in a dead process: the bias and build-id of each, and the same file on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Optional

from dmods.base.dataclass import dataclass, replace
from dmods.base.named_tuple import NamedTuple
from dmods.errors import DmodsError
from dmods.modules.auxv import AT_ENTRY, AT_PHDR, AT_PHNUM
from dmods.modules.copies import copy_of
from dmods.modules.elf import (
    ET_DYN,
    ET_EXEC,
    MAGIC,
    PAGE,
    PF_W,
    PF_X,
    PT_LOAD,
    Elf,
    Read,
    build_id,
    page_down,
    page_up,
    parse,
    read_segments,
)
from dmods.modules.headers import first_page, in_memory, is_placed, shifted, soname
from dmods.modules.linkmap import Linked, bias_of, walk
from dmods.modules.localfiles import LocalFile, LocalFiles, was_deleted
from dmods.modules.mapped_file import FileMapping
from dmods.target import AddressRange, Module, Target

VDSO = "[vdso]"
_VDSO_NAMES = ("linux-vdso.so", "linux-gate.so")  # DT_SONAME (arch/*/vdso/*.lds.S, arch/x86/entry/vdso/Makefile)
# More modules are not believed. Each takes some kilobytes, and programs have hundreds.
MOST_MODULES = 1 << 13
_NEAR = 16  # mappings behind the first that may be of the same file
# ELF headers in anonymous memory that are looked at, and mappings of such a file: a program header has one or two.
_MOST_UNLISTED, _MOST_PIECES = 1 << 11, 128
_MOST_OTHERS = 64  # mappings of other files inside the extent of a module: the dynamic linker leaves none there

NOT_HERE = "not found on this machine"
# What the kernel calls memory that no file system has: memfd_create(2), shared anonymous memory, System V's, huge
# pages. A JIT maps its code from there.
_OF_NO_FILE = ("/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage")


@dataclass(frozen=True)
class FoundModule:
    """A module and its file on this machine.

    ``local`` is set where ``module.file`` is. ``same`` says that the file's bytes are those of the process. ``proof``
    says how that is known: "build-id"; "header" (there is no build-id, and the first page is equal); or "" (the core
    has nothing to compare with). ``instead`` says what is wrong with the file at the module's own path,
    where ``local`` is a copy of it that its build-id led to. ``named`` says that ``local`` is the program that the user
    named.
    """

    module: Module
    local: Optional[LocalFile]
    same: bool
    proof: str
    elf: Optional[Elf] = None
    instead: Optional[str] = None
    named: bool = False


class _Seen(NamedTuple):
    """A module as the memory has it. ``head`` is its first page, b"" where it is not in the dump."""

    path: str
    first: AddressRange
    bias: int
    ranges: tuple[AddressRange, ...]
    elf: Elf
    identity: Optional[str]
    head: bytes


@dataclass(frozen=True)
class Program:
    """The program, as far as it is known beside the mappings.

    ``address`` lies in its module, and ``path`` is that of execve(), by the auxiliary vector. ``given`` is the file
    that the user named.
    """

    address: Optional[int] = None
    path: Optional[str] = None
    given: Optional[LocalFile] = None

    def is_in(self, ranges: Sequence[AddressRange]) -> bool:
        """Return whether the auxiliary vector says that these mappings are the program's."""
        return self.address is not None and any(self.address in piece for piece in ranges)

    def file_of(self, seen: _Seen) -> Optional[LocalFile]:
        """Return the file that the user named, if the module is the program. Its build-id or first page proves it."""
        given = self.given
        if given is None:
            return None
        if seen.identity is not None or given.build_id is not None:
            same = seen.identity == given.build_id
        else:
            same = bool(seen.head) and seen.head[: len(given.head)] == given.head[: len(seen.head)]
        return given if same or self.is_in(seen.ranges) else None


def find_modules(
    mappings: Sequence[AddressRange],
    read: Read,
    files: LocalFiles,
    vdso: Optional[int],
    program: Program,
) -> list[FoundModule]:
    """Return every ELF file that was loaded, by address. Files that were only mapped as data are left out.

    ``read`` reads the dump only, not the files.
    """
    modules: list[FoundModule] = []
    end = unlisted = 0
    for index, mapping in enumerate(mappings):
        if len(modules) >= MOST_MODULES:
            break
        if mapping.start == vdso:
            found = _vdso(mapping, read)
        elif mapping.offset != 0 or mapping.start < end:
            continue
        elif mapping.path is None:
            if unlisted >= _MOST_UNLISTED or not mapping.dumped or read(mapping.start, len(MAGIC)) != MAGIC:
                continue
            unlisted += 1
            found = _unlisted(mappings, index, read, files, program)
        else:
            found = _module(mappings, index, read, files, program)
        if found is not None:
            modules.append(found)
            end = found.module.end
    return modules


def _vdso(mapping: AddressRange, read: Read) -> Optional[FoundModule]:
    elf = in_memory(mapping.start, read)
    if elf is None:
        return None
    bias = mapping.start - elf.extent()[0]
    identity = build_id(elf, shifted(read, bias), in_memory=True)
    module = Module(VDSO, mapping.start, mapping.end, bias, None, identity, ranges=(mapping,))
    return FoundModule(module, None, False, "")


def _unlisted(
    mappings: Sequence[AddressRange], index: int, read: Read, files: LocalFiles, program: Program
) -> Optional[FoundModule]:
    """Return the ELF file that was loaded into anonymous memory, or None: a program that a packer unpacked, or any
    file where nothing says which file is mapped."""
    first = mappings[index]
    elf = in_memory(first.start, read)
    if elf is None or elf.type not in (ET_EXEC, ET_DYN):
        return None
    bias = first.start - first_page(elf)
    ranges = tuple(islice(_within(mappings, index, None, bias + elf.extent()[1]), _MOST_PIECES))
    if (elf.type == ET_EXEC and bias) or not is_placed(elf, bias, ranges):
        return None
    name = soname(elf, bias, read)
    if name is not None and name.startswith(_VDSO_NAMES):
        return _vdso(first, read)
    identity = build_id(elf, shifted(read, bias), in_memory=True)
    path = name or (program.path if program.is_in(ranges) else None) or f"[ELF file {(identity or '')[:8]}]"
    seen = _Seen(path, first, bias, ranges, elf, identity, read(first.start, PAGE))
    named = program.file_of(seen)
    return _found(seen if named is None else seen._replace(path=named.path), named, named is not None, files)


def _module(
    mappings: Sequence[AddressRange], index: int, read: Read, files: LocalFiles, program: Program
) -> Optional[FoundModule]:
    """Return the ELF file that begins in this mapping of a file, or None."""
    first = mappings[index]
    path = first.path or ""
    local = files.find(path)
    header = in_memory(first.start, read)
    nearby = [m for m in mappings[index : index + _NEAR] if m.path == path]
    if program.given is not None and header is None and program.is_in(nearby):
        local = program.given
    elf = header or (local.elf if local else None)
    if elf is None and path.startswith(_OF_NO_FILE):
        return None
    if elf is None:
        if not any("x" in m.flags for m in nearby):
            return None
        # The file is gone, and the core does not have its header. Only its address is known.
        module = Module(path, first.start, nearby[-1].end, first.start, problem=NOT_HERE, ranges=tuple(nearby))
        return FoundModule(module, None, False, "")
    bias = first.start - first_page(elf)
    ranges = tuple(_within(mappings, index, path, bias + elf.extent()[1]))
    if not _loaded(elf, path, ranges):
        return None
    identity = build_id(header, shifted(read, bias), in_memory=True) if header else None
    head = read(first.start, PAGE) if header else b""
    seen = _Seen(path, first, bias, ranges, elf, identity, head)
    named = program.file_of(seen)
    return _found(seen, named or local, named is not None, files)


def _found(seen: _Seen, local: Optional[LocalFile], named: bool, files: LocalFiles) -> FoundModule:
    """Return the module with its file on this machine. ``local`` may be it; ``named``: the user says so."""
    path, identity = seen.path, seen.identity
    problem, proof = _compare(local, path, identity, seen.head)
    instead = None
    if problem is not None and identity is not None and not named:
        copy = copy_of(files, identity, seen.head)
        if copy is not None:
            local, instead, problem, proof = copy, problem, None, "build-id"
    if identity is not None and local is not None:
        files.unpack_debug_files(identity, path)
    same = local is not None and problem is None
    module = Module(
        path=path,
        start=seen.first.start,
        end=seen.ranges[-1].end,
        bias=seen.bias,
        file=local.path if local and (same or named) else None,
        build_id=identity or (local.build_id if local and same else None),
        problem=problem,
        ranges=seen.ranges,
    )
    return FoundModule(module, local if module.file else None, same, proof, seen.elf, instead, named)


def _compare(local: Optional[LocalFile], path: str, identity: Optional[str], head: bytes) -> tuple[Optional[str], str]:
    """Return (why ``local`` is not the file that was mapped, or None; how it is known that it is)."""
    problem, proof = None, ""
    if local is None:
        problem = NOT_HERE
    elif local.elf is None:
        problem = f"{local.path} is not an ELF file"
    elif identity is not None:
        proof = "build-id"
        if identity != local.build_id:
            here = f"has build-id {local.build_id}" if local.build_id else "has no build-id"
            problem = f"{local.path} {here}, and the process had {identity}"
    elif head:
        proof = "header"
        if head[: len(local.head)] != local.head[: len(head)]:
            problem = f"{local.path} is not the file that was mapped (its first page differs)"
    elif was_deleted(path):
        problem = f"{local.path} was deleted or replaced while the process ran"
    return problem, proof


def _within(mappings: Sequence[AddressRange], index: int, path: Optional[str], end: int) -> Iterator[AddressRange]:
    """Yield the mappings of a module: those of its file, and anonymous ones in its extent.

    Anonymous mappings are .bss, or text that was moved to huge pages. The last mapping is cut at the end of the module:
    the heap can follow .bss in the same mapping.
    """
    others = 0
    for place in range(index, len(mappings)):
        mapping = mappings[place]
        if mapping.start >= end or others > _MOST_OTHERS:
            return
        others += mapping.path not in (path, None)
        if mapping.path == path or mapping.path is None:
            if mapping.path is None and mapping.end > end:
                mapping = AddressRange(
                    mapping.start, end, mapping.flags, dumped=min(mapping.dumped, end - mapping.start)
                )
            yield mapping


def _loaded(elf: Elf, path: str, ranges: Sequence[AddressRange]) -> bool:
    """Return whether the file was loaded. A file may be mapped only to be read.

    "x" alone does not decide: gdb's gcore writes text that it does not dump as "r--".
    """
    code = any(s.type == PT_LOAD and s.flags & PF_X and s.memsz for s in elf.segments)
    return not code or any(piece.path == path and ("x" in piece.flags or "w" in piece.flags) for piece in ranges)


def code_flags(found: Sequence[FoundModule]) -> dict[int, str]:
    """Return the true flags of code that the dump does not mark as executable, by the start of the mapping.

    gdb's gcore writes a mapping that it does not dump as "r--": BFD derives the flags of a section from its contents.
    The program headers of the file have the true flags.
    """
    flags: dict[int, str] = {}
    for each in found:
        if each.elf is None or any("x" in piece.flags for piece in each.module.ranges):
            continue
        bias = each.module.bias
        for load in each.elf.loads():
            if load.flags & PF_X:
                start, end = bias + page_down(load.vaddr), bias + load.vaddr + load.memsz
                inside = (p for p in each.module.ranges if start <= p.start < end and "w" not in p.flags)
                flags.update((piece.start, piece.flags[:2] + "x") for piece in inside)
    return flags


def with_flags(found: FoundModule, flags: Mapping[int, str]) -> FoundModule:
    """Return the module with the corrected flags of its ranges."""
    ranges = tuple(piece._replace(flags=flags.get(piece.start, piece.flags)) for piece in found.module.ranges)
    return replace(found, module=replace(found.module, ranges=ranges))


def program_link_map(
    read: Read, auxv: Mapping[int, int], word: int, given: Optional[Elf]
) -> tuple[Optional[int], list[Linked]]:
    """Return (the program's bias or None, the objects that its dynamic linker had loaded).

    The program headers are those that AT_PHDR points to. Where the dump lacks them, they are those of ``given``,
    the file that the user named.
    """
    address = auxv.get(AT_PHDR, 0)
    segments = read_segments(shifted(read, address), 0, min(auxv.get(AT_PHNUM, 0), 1 << 12), word)
    bias = bias_of(segments, address)
    if bias is None and given is not None and AT_ENTRY in auxv:
        segments, bias = given.segments, auxv[AT_ENTRY] - given.entry
    return (None, []) if bias is None else (bias, walk(read, segments, bias, word))


def is_program(local: LocalFile, auxv: Mapping[int, int]) -> bool:
    """Return whether the auxiliary vector fits the file: the number of program headers, and their distance from the
    entry point."""
    elf = local.elf
    if elf is None or AT_ENTRY not in auxv or AT_PHDR not in auxv or len(elf.segments) != auxv.get(AT_PHNUM):
        return False
    return bias_of(elf.segments, auxv[AT_PHDR]) == auxv[AT_ENTRY] - elf.entry


def as_mapped_files(
    linked: Sequence[Linked],
    program: tuple[int, str, Optional[LocalFile]],
    header: int,
    read: Read,
    files: LocalFiles,
) -> list[FileMapping]:
    """Return the mapped files of a core without NT_FILE: the PT_LOADs of each linked object, plus its bias.

    ``program`` is (bias, path, the file if the user named one), and its ELF header is at ``header``. The headers are
    those in the dump, or those of the file on this machine where the dump lacks them.
    """
    mapped: list[FileMapping] = []
    objects = [(program[0], program[1], header), *((each.bias, each.name, each.bias) for each in linked if each.name)]
    for bias, name, at in objects:
        local = program[2] if name == program[1] else None
        local = local or files.find(name)
        elf = in_memory(at, read) or (local.elf if local else None)
        for load in elf.loads() if elf else ():
            start = page_down(bias + load.vaddr)
            end = page_up(bias + load.vaddr + load.filesz)
            if 0 <= start < end < 1 << 64:
                mapped.append(FileMapping(start, end, page_down(load.offset), name))
    return sorted(set(mapped))


def writable_segments(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the writable segments of every module as (start, end).

    They contain PT_GNU_RELRO, which the dynamic linker makes read-only after relocation. A program may make other data
    read-only, too.
    """
    for module in target.modules():

        def at(offset: int, size: int, start: int = module.start) -> bytes:
            return target.image().read(start + offset, size)

        try:
            header = parse(at, module.name)
        except DmodsError:
            continue
        for segment in header.segments:
            if segment.type == PT_LOAD and segment.flags & PF_W:
                yield segment.vaddr + module.bias, segment.vaddr + module.bias + segment.memsz
