"""The door to a dead process: what a command may know of it, whichever debugger (or none) holds it.

:class:`Target` is implemented by ``dmods.corefile`` (a bare core), ``gdbext.target`` and ``drgnext.target``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Optional, Protocol

from dmods.rows import Rows

if TYPE_CHECKING:
    from dmods._engine import Image


@dataclass(frozen=True)
class Arch:
    """A machine as far as memory and stacks go.

    ``registers`` are the general purpose registers in the order of the kernel's ``elf_gregset_t``; ``pc``, ``sp``
    and ``thread_pointer`` name three of them (``thread_pointer`` is "" where the dump does not hold it).
    """

    name: str  # "x86_64", "aarch64", "i386"
    word: int  # bytes in a pointer: 8 or 4
    little_endian: bool
    pc: str
    sp: str
    thread_pointer: str
    registers: tuple[str, ...]
    red_zone: int = 0  # bytes below sp that a leaf function may use (x86-64 psABI 3.2.2: 128)

    @property
    def tcb_is_pthread(self) -> bool:
        """TLS variant II (x86): the TCB is where glibc's struct pthread begins, static TLS lies below. Variant I
        (AArch64): struct pthread ends where the TCB begins, static TLS lies above."""
        return self.name != "aarch64"


class AddressRange(NamedTuple):
    """A mapping of the process: ``[start, end)``, its permissions, and the file behind it, if any."""

    start: int
    end: int
    flags: str  # "rw-", "r-x", "---", ...
    path: Optional[str] = None
    offset: int = 0  # offset in ``path``
    dumped: int = 0  # how many of its bytes, from ``start``, the dump itself holds (not the file behind it)

    @property
    def size(self) -> int:
        return self.end - self.start

    def part(self, start: int, end: int) -> AddressRange:
        """``[start, end)`` of it."""
        skip = start - self.start
        dumped = max(0, min(self.dumped - skip, end - start))
        offset = self.offset + skip if self.path is not None else 0
        return AddressRange(start, end, self.flags, self.path, offset, dumped)

    def __contains__(self, address: object) -> bool:
        return isinstance(address, int) and self.start <= address < self.end


def address_ranges(some: Iterable[AddressRange] = ()) -> Rows[AddressRange]:
    """A list of them that takes little memory."""
    return Rows(AddressRange, "QQOOQQ", some)


@dataclass(frozen=True)
class Signal:
    """The signal a thread was about to get: ``siginfo_t`` as far as the dump holds it."""

    number: int
    code: Optional[int] = None
    address: Optional[int] = None  # si_addr, for faults
    sender: Optional[int] = None  # si_pid, for signals sent by a process


@dataclass(frozen=True)
class Thread:
    """A thread with its registers (name -> unsigned value) as they were when the dump was taken."""

    tid: int
    registers: Mapping[str, int]
    name: Optional[str] = None
    signal: Optional[Signal] = None


@dataclass(frozen=True)
class Module:
    """An ELF file mapped into the process.

    ``bias`` is what must be added to an address in the file to get the one in the process. ``file`` is where its
    bytes were found on this machine (None: not found, or its build-id differs: then ``problem`` says so).
    """

    path: str
    start: int
    end: int
    bias: int
    file: Optional[str] = None
    build_id: Optional[str] = None
    problem: Optional[str] = None
    ranges: tuple[AddressRange, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Symbol:
    """A function or object: ``address`` is where it starts in the process; ``size`` 0 where the table does not say."""

    name: str
    address: int
    size: int
    module: str  # Module.name


class Target(Protocol):
    """A dead (or stopped) process. No method prints; what is wrong with the dump is in ``notes``."""

    arch: Arch
    path: Optional[str]  # the core file; None for a live process
    pid: Optional[int]
    executable: Optional[str]  # the program's path as the process knew it
    notes: list[str]  # what is missing or wrong in the dump, one line each

    @property
    def auxv(self) -> Mapping[int, int]:
        """The auxiliary vector: a_type -> a_val; empty where the dump has none."""

    def state(self) -> Hashable:
        """A value that changes whenever the process has moved: the key of everything that is cached."""

    def image(self) -> Image:
        """The memory as the engine reads it: the dump's bytes, then those of the files behind the mappings."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly ``size`` bytes. Raises FaultError."""

    def mappings(self) -> Sequence[AddressRange]:
        """Sorted by address, not overlapping."""

    def threads(self) -> Sequence[Thread]:
        """The thread that died first, then the others in the dump's order."""

    def modules(self) -> Sequence[Module]:
        """Sorted by address; the program first where addresses say so is not promised: see ``executable``."""

    def symbol_at(self, address: int) -> Optional[Symbol]:
        """The symbol whose extent holds ``address`` (or the nearest one below it in the same section, where sizes are
        0)."""

    def lookup(self, name: str) -> Optional[Symbol]:
        """The symbol of that name: the program's first, then the libraries' in load order."""

    def evaluate(self, text: str) -> int:
        """An address as the user wrote it: a number, a symbol, a symbol+offset, or what the debugger understands.
        Raises UsageError."""
