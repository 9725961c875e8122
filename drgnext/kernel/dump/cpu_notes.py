"""The registers of each CPU, as the notes of a dump have them (NT_PRSTATUS). They come first in the file.

A crash kernel's dump has a note for each CPU that was online. It names the task that ran there, and the CPU that died
has the registers of its trap (crash_save_cpu). QEMU numbers its CPUs from 1 on instead, and has where they stood. It
adds notes of its own on x86, and floating-point registers on arm64 (target/arm/arch_dump.c). A kernel writes neither.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.corefile import kdumps
from dmods.corefile.flattened import plain_reader_of
from dmods.errors import CorruptError, TruncatedError
from dmods.modules import elf
from dmods.process import arch

_NT_PRSTATUS, _NT_PRFPREG = 1, 2
_PID_AT, _REGISTERS_AT = 32, 112  # in struct elf_prstatus of a 64-bit machine (linux/elfcore.h)
_EM_X86_64, _EM_AARCH64 = 62, 183
# The members of struct user_regs_struct (x86) and struct user_pt_regs (arm64), in their order. x86 has more behind.
_NAMES = {
    _EM_X86_64: tuple(arch.X86_64.registers[:21]),
    _EM_AARCH64: (*(f"x{n}" for n in range(31)), "sp", "pc", "pstate"),
}
_PC_SP = {_EM_X86_64: ("rip", "rsp"), _EM_AARCH64: ("pc", "sp")}
_MOST_NOTES = 64 << 20  # bytes: 8,192 CPUs (NR_CPUS_RANGE_END) have 4 MB
_MOST_CPUS = 8192
_MACHINES = {"x86_64": _EM_X86_64, "aarch64": _EM_AARCH64}


class CpuNote(NamedTuple):
    """The registers of a CPU. ``number`` counts the notes; it is the CPU's number if all CPUs were online."""

    number: int
    pid: int
    pc: int
    sp: int
    registers: dict[str, int]


class CpuNotes(NamedTuple):
    """The CPUs of a dump. ``by_kernel``: a kernel wrote the notes, so that they have the pids of tasks."""

    cpus: Sequence[CpuNote]
    by_kernel: bool

    def of(self, pid: Optional[int], cpu: Optional[int] = None) -> Optional[CpuNote]:
        """Return the registers of the task that died, or None if it is not certain which they are.

        An idle task has pid 0 on every CPU. Then the number decides, if it is that of an idle CPU.
        """
        if not self.by_kernel:
            return None
        found = [one for one in self.cpus if one.pid == pid]
        if len(found) > 1:
            found = [one for one in found if one.number == cpu]
        return found[0] if len(found) == 1 else None

    def running(self, pid: int, cpu: Optional[int]) -> Optional[CpuNote]:
        """Return the registers of the task that ran on the CPU, or None if it is not certain which they are.

        The note's number decides, and in a note by a kernel the pid as well.
        """
        if cpu is None or not 0 <= cpu < len(self.cpus):
            return None
        found = self.cpus[cpu]
        return found if found.pid == pid or not self.by_kernel else None


NOTHING = CpuNotes((), False)


def read_cpu_notes(path: Optional[str]) -> CpuNotes:
    """Return the registers in the notes of the dump. A dump without such notes, or another format, has none."""
    machine, notes = read_notes(path)
    return _cpus(machine, notes)


def read_notes(path: Optional[str]) -> tuple[int, list[bytes]]:
    """Return (e_machine or 0, the notes) of a dump of any format. A dump without notes has (0, [])."""
    if path is None:
        return 0, []
    try:
        with open(path, "rb") as file:
            read, _size = plain_reader_of(file)
            header = kdumps.read_header(read)
            return _elf(read) if header is None else _kdump(read, header)
    except (OSError, struct.error, CorruptError, TruncatedError):
        return 0, []


def _elf(read: elf.Read) -> tuple[int, list[bytes]]:
    """Return (machine, notes) of an ELF dump."""
    header = elf.parse(read, "the dump")
    if header.word != 8 or not header.little_endian:
        return 0, []
    left, notes = _MOST_NOTES, []
    for segment in header.segments:
        if segment.type == elf.PT_NOTE and left > 0:
            notes.append(read(segment.offset, min(segment.filesz, left)))
            left -= len(notes[-1])
    return header.machine, notes


def _kdump(read: elf.Read, header: kdumps.Header) -> tuple[int, list[bytes]]:
    """Return (machine, notes) of a compressed dump."""
    return _MACHINES.get(kdumps.machine_of(read, header) or "", 0), [kdumps.notes_of(read, header)]


def _cpus(machine: int, notes: Sequence[bytes]) -> CpuNotes:
    """Return the CPUs that the notes describe."""
    names = _NAMES.get(machine)
    if names is None:
        return NOTHING
    form = struct.Struct(f"<{len(names)}Q")
    pc, sp = _PC_SP[machine]
    found: list[CpuNote] = []
    by_kernel = True
    for name, kind, data in _all(notes):
        by_kernel = by_kernel and name != b"QEMU" and (name, kind) != (b"CORE", _NT_PRFPREG)
        if kind != _NT_PRSTATUS or name != b"CORE" or len(data) < _REGISTERS_AT + form.size:
            continue
        registers = dict(zip(names, form.unpack_from(data, _REGISTERS_AT)))
        (pid,) = struct.unpack_from("<i", data, _PID_AT)
        if len(found) < _MOST_CPUS:
            found.append(CpuNote(len(found), pid, registers[pc], registers[sp], registers))
    return CpuNotes(found, by_kernel)


def _all(notes: Sequence[bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield each note."""
    for each in notes:
        yield from elf.read_notes(each, True)
