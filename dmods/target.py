"""The interface between a command and a process.

Three modules implement :class:`Target`: ``dmods.corefile.target`` (a core file without a debugger), ``gdbext.target``
and ``drgnext.target``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Optional, Protocol

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.rows import Rows

if TYPE_CHECKING:
    from dmods._engine import Image


@dataclass(frozen=True)
class Arch:
    """A machine: its memory and its registers.

    ``registers`` are the general purpose registers in the order of the kernel's ``elf_gregset_t``. ``pc``, ``sp`` and
    ``thread_pointer`` name three of them. ``thread_pointer`` is "" where dumps do not hold it.
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
        """Return whether glibc's struct pthread begins at the TCB.

        So it does in TLS variant II (x86), where static TLS lies below the TCB. In variant I (AArch64) struct pthread
        ends where the TCB begins, and static TLS lies above.
        """
        return self.name != "aarch64"


# Paths of memory that programs write their own data to, and in which allocators work. The kernel names huge pages
# (include/linux/hugetlb.h, HUGETLB_ANON_FILE), memfd_create() (mm/memfd.c), shared anonymous memory (mm/shmem.c) and
# System V's (ipc/shm.c); glibc names POSIX shared memory, and administrators mount hugetlbfs.
_MEMORY = ("/anon_hugepage", "/memfd:", "/dev/zero", "/SYSV", "/dev/shm/", "/dev/hugepages/")
_HUGETLBFS = "libhugetlbfs.tmp."  # of libhugetlbfs, whose heap was glibc's before 2.34 (__morecore)


class AddressRange(NamedTuple):
    """A mapping of the process: ``[start, end)``, its permissions, and the file behind it, if any."""

    start: int
    end: int
    flags: str  # "rw-", "r-x", "---", ...
    path: Optional[str] = None
    offset: int = 0  # offset in ``path``
    dumped: int = 0  # how many of its bytes, from ``start``, are in the dump itself (not in the file behind it)

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.end - self.start

    @property
    def anonymous(self) -> bool:
        """Return whether the mapping is plain memory: no file, or one that only names memory (huge pages, a memfd)."""
        return self.path is None or self.path.startswith(_MEMORY) or _HUGETLBFS in self.path

    def part(self, start: int, end: int) -> AddressRange:
        """Return the part ``[start, end)`` of the mapping."""
        skip = start - self.start
        dumped = max(0, min(self.dumped - skip, end - start))
        offset = self.offset + skip if self.path is not None else 0
        return AddressRange(start, end, self.flags, self.path, offset, dumped)

    def __contains__(self, address: object) -> bool:
        return isinstance(address, int) and self.start <= address < self.end


def address_ranges(some: Iterable[AddressRange] = ()) -> Rows[AddressRange]:
    """Return a list of mappings that takes little memory."""
    return Rows(AddressRange, "QQOOQQ", some)


@dataclass(frozen=True)
class Signal:
    """The signal that a thread was about to receive: the fields of ``siginfo_t`` that the dump holds."""

    number: int
    code: Optional[int] = None
    address: Optional[int] = None  # si_addr, for faults
    sender: Optional[int] = None  # si_pid, for signals sent by a process


@dataclass(frozen=True)
class Thread:
    """A thread with its registers (name -> unsigned value) at the time of the dump.

    ``vectors`` are the vector and floating-point registers (name -> bytes, lowest first; see ``process.vectors``).
    None: the dump has none of this thread.
    """

    tid: int
    registers: Mapping[str, int]
    name: Optional[str] = None
    signal: Optional[Signal] = None
    vectors: Optional[Mapping[str, bytes]] = None


@dataclass(frozen=True)
class Module:
    """An ELF file that is mapped into the process.

    An address in the file plus ``bias`` is the address in the process. ``file`` is the path of the file on this
    machine. It is None where the file was not found, or its build-id differs: ``problem`` says why.
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
        """Return the file name without its folder."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Symbol:
    """A function or object. ``address`` is its start in the process. ``size`` is 0 where it is not known."""

    name: str
    address: int
    size: int
    module: str  # Module.name


class Target(Protocol):
    """A dead or stopped process. No method prints. ``notes`` says what is wrong with the dump."""

    arch: Arch
    path: Optional[str]  # the core file; None for a live process
    pid: Optional[int]
    executable: Optional[str]  # the program's path as the process knew it
    notes: list[str]  # what is missing or wrong in the dump, one line each
    missing: Sequence[tuple[int, int]]  # memory that a truncated dump promises and lacks, by address
    names_files: bool  # the dump says which files were mapped; if not, memory without a name may be of a file
    knows_touched: bool  # memory that the process never touched is a hole of the image's file, and nothing else is

    @property
    def debug_roots(self) -> Sequence[str]:
        """Return the folders that may hold separate debug information, such as /usr/lib/debug."""

    @property
    def auxv(self) -> Mapping[int, int]:
        """Return the auxiliary vector: a_type -> a_val. It is empty where the dump has none."""

    def state(self) -> Hashable:
        """Return a value that changes whenever the process has moved. All cached results depend on it."""

    def image(self) -> Image:
        """Return the memory as the engine reads it: the bytes of the dump, then those of the mapped files."""

    def read(self, address: int, size: int) -> bytes:
        """Return exactly ``size`` bytes. Raises FaultError."""

    def mappings(self) -> Sequence[AddressRange]:
        """Return the mappings, sorted by address. They do not overlap."""

    def threads(self) -> Sequence[Thread]:
        """Return the threads: the one that died, then the others in the order of the dump."""

    def modules(self) -> Sequence[Module]:
        """Return the modules, sorted by address. The program need not be the first: see ``executable``."""

    def symbol_at(self, address: int) -> Optional[Symbol]:
        """Return the symbol that holds ``address``, or None.

        A symbol of size 0 reaches to the next one in its section.
        """

    def lookup(self, name: str) -> Optional[Symbol]:
        """Return the symbol of that name, or None. The program comes first, then the libraries in load order."""

    def symbols_with(self, parts: Sequence[str]) -> Sequence[Symbol]:
        """Return the symbols with one of the parts in their mangled names.

        A place with several names comes several times, for all of them.
        """

    def evaluate(self, text: str) -> int:
        """Return the address that a user wrote: a number, a symbol, symbol+offset, or a debugger's expression.

        Raises UsageError.
        """
