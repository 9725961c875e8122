"""The notes of a core: threads, signal, auxiliary vector, mapped files.

The layouts are in the kernel's fs/binfmt_elf.c, include/uapi/linux/elfcore.h and elf.h. Cores of 64-bit and 32-bit
processes are read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.rows import Rows
from dmods.modules.elf import MAX_SEGMENTS, TOP
from dmods.modules.mapped_file import FileMapping
from dmods.process.vectors import NT_X86_XSAVE_LAYOUT, Layout, Place, VectorRegisters, xsave_layout
from dmods.target import Arch, Signal, Thread

NT_PRSTATUS, NT_PRPSINFO, NT_AUXV = 1, 3, 6
NT_386_TLS, NT_ARM_TLS = 0x200, 0x401
NT_FILE, NT_SIGINFO = 0x46494C45, 0x53494749
NT_GDB_TDESC = 0xFF000000

_FAULTS = frozenset((4, 5, 7, 8, 11))  # SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV carry si_addr
_SI_KERNEL = 0x80  # asm-generic/siginfo.h: sent by the kernel, si_addr unknown (a non-canonical address on x86-64)

# More threads are not believed: there are half as many pids, unless kernel.pid_max was raised. Each thread costs every
# command some time, and a crafted core could cost minutes.
_MAX_THREADS = 1 << 16
# delve gives the notes of Linux no owner (delve 1.27, pkg/proc/native/dump_linux_amd64.go: no Name in elfwriter.Note).
_OWNERS = (b"CORE", b"LINUX", b"")
_TOO_MANY = f"the core has more than {_MAX_THREADS} threads: the others are left out"


class Registers(Mapping[str, int]):
    """The registers of an ``elf_gregset_t``. They are decoded on first use: a core may have 10,000 threads."""

    __slots__ = ("_arch", "_extra", "_raw", "_values")

    def __init__(self, arch: Arch, raw: bytes) -> None:
        self._arch = arch
        self._raw = raw
        self._extra: dict[str, int] = {}
        self._values: Optional[dict[str, int]] = None

    def add(self, name: str, value: int) -> None:
        """Set a register that is not part of ``elf_gregset_t``."""
        self._extra[name] = value
        self._values = None

    def _decoded(self) -> dict[str, int]:
        if self._values is None:
            count = min(len(self._arch.registers), len(self._raw) // self._arch.word)
            values = struct.unpack_from(f"<{count}{'Q' if self._arch.word == 8 else 'I'}", self._raw)
            self._values = {**dict(zip(self._arch.registers, values)), **self._extra}
        return self._values

    def __getitem__(self, name: str) -> int:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())


@dataclass
class CoreNotes:
    """The content of the notes. ``auxv`` is a_type -> a_val. ``pid`` and ``program`` (comm) are from NT_PRPSINFO."""

    threads: list[Thread] = field(default_factory=list)
    auxv: dict[int, int] = field(default_factory=dict)
    files: Rows[FileMapping] = field(default_factory=lambda: Rows(FileMapping, "QQQO"))
    has_files: bool = False
    pid: Optional[int] = None
    program: Optional[str] = None
    problems: list[str] = field(default_factory=list)


@dataclass
class _Started:
    """A thread whose notes are being read. They are those from its NT_PRSTATUS to the next one."""

    tid: int
    registers: Registers
    number: int
    vectors: VectorRegisters
    signal: Optional[Signal] = None


def described_machine(notes: Iterable[tuple[bytes, int, bytes]]) -> Optional[str]:
    """Return the machine that gdb's gcore says it dumped, or None.

    A gdb for x86-64 writes a 64-bit core of an i386 process.
    """
    for name, kind, desc in notes:
        if name == b"GDB" and kind == NT_GDB_TDESC:
            found = re.search(rb"<architecture>\s*([^<\s]{1,64})\s*</architecture>", desc[: 1 << 16])
            if found:
                return found[1].decode("ascii", "replace")
    return None


def parse(notes: Iterable[tuple[bytes, int, bytes]], arch: Arch, struct_word: int = 0) -> CoreNotes:
    """Return what the notes say. ``problems`` has a line for each note that makes no sense.

    ``struct_word`` is the size of a word in the kernel's structures around the registers, where it is not the word size
    of the process.
    """
    struct_word = struct_word or arch.word
    found = CoreNotes()
    started: list[_Started] = []
    first_signal: Optional[Signal] = None
    layout: dict[int, Place] = {}  # the note comes after the threads
    for _name, kind, desc in (note for note in notes if note[0] in _OWNERS):
        if kind == NT_PRSTATUS and len(started) < _MAX_THREADS:
            started.extend(_prstatus(desc, arch, struct_word, layout, found.problems))
        elif kind == NT_PRSTATUS:
            found.problems.extend([] if _TOO_MANY in found.problems[-1:] else [_TOO_MANY])
        elif kind == NT_SIGINFO:
            signal = _siginfo(desc, arch.word)
            first_signal = first_signal or signal
            for thread in started[-1:]:
                thread.signal = signal
        elif kind == NT_PRPSINFO:
            _prpsinfo(desc, struct_word, found)
        elif kind == NT_AUXV:
            found.auxv.update(_words_in_pairs(desc, arch.word))
        elif kind == NT_FILE:
            found.has_files = True
            _files(desc, arch.word, found)
        elif kind == NT_X86_XSAVE_LAYOUT:
            layout.update(xsave_layout(desc))
        elif started:
            _further_registers(kind, desc, arch, started[-1], found.problems)
    for index, thread in enumerate(started):
        signal = thread.signal
        if signal is None and index == 0:  # the kernel gives every thread's pr_cursig the number that killed the first
            signal = first_signal or (Signal(thread.number) if thread.number else None)
        name_ = found.program if thread.tid == found.pid else None
        known = thread.vectors if thread.vectors.known else None
        found.threads.append(Thread(thread.tid, thread.registers, name_, signal, known))
    return found


def _prstatus(desc: bytes, arch: Arch, word: int, layout: Layout, problems: list[str]) -> list[_Started]:
    """Return the thread of a struct elf_prstatus, or [].

    pr_cursig (a short) lies after three ints, pr_pid after two more longs, pr_reg after four pids and four timevals.
    """
    pid_at = 16 + 2 * word
    registers_at = pid_at + 16 + 8 * word
    size = len(arch.registers) * arch.word
    if len(desc) < registers_at + size:
        problems.append("the registers of a thread are cut short in the core: this thread is left out")
        return []
    number = struct.unpack_from("<h", desc, 12)[0]
    tid = struct.unpack_from("<i", desc, pid_at)[0]
    registers = Registers(arch, desc[registers_at : registers_at + size])
    return [_Started(tid, registers, max(number, 0), VectorRegisters(arch, layout))]


def _siginfo(desc: bytes, word: int) -> Optional[Signal]:
    """Return the signal of a siginfo_t: si_signo, si_errno, si_code, then the union (aligned to a word)."""
    union = 16 if word == 8 else 12
    if len(desc) < union + word:
        return None
    number, _errno, code = struct.unpack_from("<iii", desc)
    if number <= 0:
        return None
    if code <= 0:  # SI_USER, SI_QUEUE, SI_TKILL ...: sent by a process
        return Signal(number, code, sender=struct.unpack_from("<i", desc, union)[0])
    if number in _FAULTS and code != _SI_KERNEL:
        return Signal(number, code, address=struct.unpack_from("<Q" if word == 8 else "<I", desc, union)[0])
    return Signal(number, code)


def _prpsinfo(desc: bytes, word: int, found: CoreNotes) -> None:
    """Read pid and name from a struct elf_prpsinfo.

    i386 has 16-bit uids (arch/x86/include/asm/compat.h). gdb writes a 64-bit core of an i386 process with 16-bit uids,
    too: the structure is shorter then.
    """
    pid_at, name_at = (12, 28) if word == 4 else (24, 40) if len(desc) >= 136 else (16, 32)
    if len(desc) >= name_at + 16:
        found.pid = struct.unpack_from("<i", desc, pid_at)[0]
        found.program = desc[name_at : name_at + 16].split(b"\0")[0].decode("utf-8", "replace") or None


def _words_in_pairs(desc: bytes, word: int) -> dict[int, int]:
    code = "Q" if word == 8 else "I"
    count = len(desc) // (2 * word)
    values = struct.unpack_from(f"<{2 * count}{code}", desc)
    return {kind: value for kind, value in zip(values[::2], values[1::2]) if kind}


def _files(desc: bytes, word: int, found: CoreNotes) -> None:
    """Read NT_FILE: count, page size, (start, end, offset in pages) of each mapping, then NUL-terminated paths."""
    code = "Q" if word == 8 else "I"
    if len(desc) < 2 * word:
        found.problems.append("the core's list of mapped files (NT_FILE) is cut short")
        return
    count, page = struct.unpack_from(f"<2{code}", desc)
    fits = min(count, (len(desc) - 2 * word) // (3 * word), MAX_SEGMENTS)
    ranges = struct.Struct(f"<3{code}").iter_unpack(desc[2 * word : (2 + 3 * fits) * word])
    named = 0
    for (start, end, offset), path in zip(ranges, _strings(desc, (2 + 3 * count) * word)):
        if start < end <= TOP and path and offset * page < 1 << 63:
            named += (no_file := _is_name(path))
            if not no_file:
                found.files.append((start, end, offset * page, path))
    if len(found.files) + named < count:
        found.problems.append(
            f"the core's list of mapped files (NT_FILE) is damaged: {len(found.files)} of {count} entries can be used"
        )
    found.files = found.files.in_order()


def _is_name(path: str) -> bool:
    """Return whether the entry only names memory, as /proc/PID/maps does: "[heap]", "[anon:glibc: malloc]".

    The kernel leaves such mappings out of its list. Tools that build it from /proc/PID/maps do not.
    """
    return path.startswith("[") and path.endswith("]") and not path.startswith("[vd")


def _strings(data: bytes, at: int) -> Iterator[str]:
    """Yield NUL-terminated strings. The NUL of the last one may be missing.

    Equal neighbours (the mappings of a library) share one string.
    """
    raw, text = b"", ""
    while at < len(data):
        end = data.find(b"\0", at)
        end = len(data) if end < 0 else end
        if data[at:end] != raw:
            raw = data[at:end]
            text = raw.decode("utf-8", "surrogateescape")
        yield text
        at = end + 1


def _further_registers(kind: int, desc: bytes, arch: Arch, thread: _Started, problems: list[str]) -> None:
    """Read a note that tells registers of a thread beside those of its NT_PRSTATUS."""
    if kind in (NT_386_TLS, NT_ARM_TLS):
        _thread_pointer(kind, desc, arch, thread.registers)
        return
    problem = thread.vectors.add(kind, desc)
    if problem is not None:
        problems.append(problem)


def _thread_pointer(kind: int, desc: bytes, arch: Arch, registers: Registers) -> None:
    if kind == NT_ARM_TLS and arch.name == "aarch64" and len(desc) >= 8:
        registers.add(arch.thread_pointer, struct.unpack_from("<Q", desc)[0])
    elif kind == NT_386_TLS and arch.name == "i386":
        # An array of struct user_desc {entry_number, base_addr, limit, flags}; gs holds entry_number << 3 | 3.
        for entry, base, _limit, _flags in struct.iter_unpack("<IIII", desc[: len(desc) // 16 * 16]):
            if entry == registers["gs"] >> 3:
                registers.add(arch.thread_pointer, base)
