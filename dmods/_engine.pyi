"""The engine's Python face (engine/py). Addresses and sizes are unsigned 64-bit integers.

An address argument that 64 bits cannot hold (a sum of what a dump says) is not an error: no memory is there.
"""

from collections.abc import Collection
from typing import Callable, Optional, Protocol, TypedDict

__version__: str

class Image:
    """The memory of a process: immutable, readable from any thread."""

    def __init__(
        self,
        files: list[str],
        segments: Collection[tuple[int, ...]],
        blobs: list[tuple[int, bytes]],
    ) -> None:
        """``segments`` are (address, size, index into files, offset in that file); ``blobs`` are (address, bytes).

        Overlaps are resolved in the order given: segments before blobs, first before later. A file shorter than a
        segment
        claims makes the rest of that segment unreadable, no error. Raises OSError when a file cannot be opened.
        """

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes: fewer where memory ends or a byte is not in the dump, b"" when ``address`` itself is
        not."""

    def covered(self, start: int, end: int) -> list[tuple[int, int]]:
        """The (start, end) parts of the range that have a source, merged where adjacent."""

class Symbols:
    """The functions and objects of one ELF file, by address and by name. Addresses are the file's own (add
    Module.bias)."""

    def __init__(self, files: list[str], blobs: list[bytes] = ...) -> None:
        """.symtab and .dynsym of the file, and of the others given (separate debug information, an unpacked
        .gnu_debugdata), as one table. What cannot be read or parsed adds nothing; never raises for what is in it.
        """

    def __len__(self) -> int:
        """How many symbols ``at`` can name."""

    def at(self, address: int) -> tuple[str, int, int] | None:
        """(name, address, size) of the symbol whose extent holds the address; a symbol of size 0 reaches to the next
        one or the end of its section. Of several names for one place: see engine/core/src/symbols.rs, ``Rank``.
        """

    def lookup(self, name: str) -> tuple[int, int] | None:
        """(address, size) of the function or object of exactly that (mangled) name."""

    def tls(self, name: str) -> tuple[int, int] | None:
        """(offset in the module's TLS block, size) of a thread-local variable."""

def demangle(name: str) -> str:
    """A C++ (without parameters) or Rust (without hash) name as written; any other, or too complex a one, unchanged."""

def elf_section(path: str, name: str) -> bytes | None:
    """The bytes of a section of at most 64 MiB; None where there is none, or the file cannot be read or parsed."""

Progress = Optional[Callable[[int], object]]

class RunReport(TypedDict):
    """What the pass says of one run of chunks. Ranges are (start, end); chunk addresses are those of headers."""

    chunks: int  # free ones too
    free_chunks: int  # of them, free in bins (or a fencepost's neighbour)
    free_bytes: int  # their chunk sizes
    used_end: int  # where the last block ends
    missing: list[tuple[int, int]]  # not in the dump
    gaps: list[tuple[int, int]]  # between stretches of chunks: somebody else's memory (sbrk)
    lost: list[tuple[int, int]]  # where no chunk could be made out
    watched: list[int]  # chunks that look like a watched structure
    anomaly_count: int
    anomalies: list[
        tuple[str, int, int, int, int]
    ]  # (fault, chunk, value, chunk before, where chunks make sense again)

# (address, usable size, state, arena, own mapping, blocks kept alive, bytes kept alive)
# state: 0 live (or not yet known), 1 free, 2 leaked directly, 3 leaked indirectly, 4 the allocator's own
Block = tuple[int, int, int, int, bool, int, int]

class Heap:
    """The blocks of glibc's heaps and jemalloc's. Make it, ``follow`` every free list with set=True, ``mark`` from the
    roots, ``find_leaks``.

    The three long calls release the GIL, call ``progress(bytes done)`` now and then, and raise what it (or Ctrl-C)
    raises.
    """

    dropped: int  # runs left out because they overlap others, or are far larger than what the dump has of them

    def __init__(
        self,
        image: Image,
        word: int,
        runs: list[tuple[int, int, int, int, int]],
        dead: list[tuple[int, int]],
        watch: list[tuple[int, int, int]],
        threads: int,
        progress: Progress = None,
        extents: list[tuple[Extents, int]] = ...,
    ) -> None:
        """Reads every run once, and the blocks of ``extents``, each with what is added to its arenas' numbers.

        ``runs`` are (start, end, kind, arena number, usable): kind 0 main arena, 1 thread arena (NON_MAIN_ARENA set),
        2 one mmapped chunk of
        ``usable`` bytes. ``start`` is a chunk's address, ``end`` the top chunk's (or where the memory ends).
        ``dead`` is memory within whose words are no pointers; ``watch`` are structures to report, as (chunk size,
        number of counters, bytes of each), the counters being followed by as many pointers.
        Raises MemoryError when the address space for the tables cannot be had.
        """

    missing: list[tuple[int, int]]  # parts of jemalloc's blocks that are not in the dump, in pieces

    def runs(self) -> list[tuple[int, int, int, int, int]]:
        """As given, sorted by address; ``reports`` has the same order."""

    def reports(self) -> list[RunReport]: ...
    def follow(
        self, head: int, to_user: bool, protected: bool, least: int, most: int, set: bool, collect: bool
    ) -> tuple[int, int, Optional[tuple[str, int]], list[int]]:
        """Follows a free list whose chunks have sizes ``least`` to ``most``: (chunks, chunk bytes, problem and where,
        block addresses).

        ``to_user``: links point to what malloc returned (tcache), else to headers (fastbins). ``protected``:
        safe-linking. With ``set`` its chunks are free from now on; block addresses are there only with ``collect``.
        """

    def release_orphans(self, to_user: bool, protected: bool, least: int, most: int, key: Optional[int]) -> int:
        """Sets chunks free that a damaged list of this kind cut off: by ``key`` (the second word of every chunk in a
        tcache), or by links that lead to the list's end (with safe-linking only). Returns how many."""

    def bins(
        self, bins: list[tuple[int, int, int, int, bool]], progress: Progress = None
    ) -> tuple[list[tuple[int, int]], int, list[tuple[int, str, int, int]]]:
        """Follows the arenas' bins, each (address seen as a chunk, arena number, least and most chunk size, whether
        it is a large bin).

        Gives (chunks, chunk bytes) for each, how many problems there are, and the first of them as (index of the bin,
        fault, chunk or bin that is at fault, what its link or size is): see ``Fault`` in engine/core/src/heap/bins.rs.
        """

    def release(self, addresses: list[int]) -> list[int]:
        """Sets free the blocks of jemalloc that begin at the addresses. Returns those where none in use does."""

    def own(self, values: list[int], closure: bool) -> int:
        """The blocks that the values point into are the allocator's own: not followed, and no leaks. With ``closure``,
        what they lead to, too. To be called before ``mark``. Returns how many such blocks there are now."""

    def mark(self, ranges: list[tuple[int, int]], values: list[int], progress: Progress = None) -> tuple[int, int]:
        """Marks what the words of the ranges, and the values, lead to. Returns (candidate pointers in roots, blocks
        reached)."""

    def find_leaks(self, progress: Progress = None) -> tuple[int, int, int, int]:
        """(direct count, usable bytes, indirect count, usable bytes) of what was not reached."""

    def groups(self) -> list[tuple[int, bool, bool, int, int, int, int]]:
        """Direct leaks by size: (usable size, glibc's, own mapping or extent, count, lowest address, blocks kept alive,
        bytes kept alive)."""

    def blocks(self, states: list[int], start: int, most: int) -> list[Block]:
        """Up to ``most`` blocks in one of the states, in address order, from address ``start`` on."""

    def addresses(self, states: list[int], start: int, end: int, most: int) -> list[int]:
        """The addresses alone of up to ``most`` blocks in one of the states, in address order, in [start, end)."""

    def find(self, address: int) -> Optional[Block]:
        """The block that the address points into (headers belong to none)."""

    def sizes(self, arena: int | None = None) -> list[tuple[int, int, int, int, int]]:
        """(usable size, live blocks, free blocks, leaked blocks, the allocator's own), by size: of all runs, or
        those with that arena number."""

# (block, where the record lies, bytes asked for, ns of CLOCK_MONOTONIC, stack, thread); stack and thread 0: not known
RecordRow = tuple[int, int, int, int, int, int]
# (where it lies, sequence, whether freed, block, bytes asked for, ns, stack, thread; of a freed block, or zeros: (ns,
# stack, thread) of its allocation, and (where a copy of its first bytes lies, how many there are))
LogRow = tuple[int, int, bool, int, int, int, int, int, tuple[int, int, int], tuple[int, int]]
# (usable size, own mapping, index of the recorder, stack, count, oldest block, its record, blocks kept alive, bytes
# kept alive); recorder and record are None where nobody recorded them: then the block is the lowest
LeakGroup = tuple[int, bool, Optional[int], int, int, int, Optional[RecordRow], int, int]

class Records:
    """What one recorder kept of live blocks, and its log. Immutable; sorted by block."""

    logged: int  # transactions

    def __init__(
        self, records: list[RecordRow], transactions: list[LogRow], stacks: list[list[int]], mean: int
    ) -> None:
        """Of a recorder that is read elsewhere. Here a stack is its number in ``stacks`` counted from 1 (lists of
        addresses, innermost first); from then on only ``stack`` knows what it is. ``mean``: bytes between samples on
        average, 0 where every block was recorded."""

    def __len__(self) -> int: ...
    def of_block(self, address: int) -> RecordRow | None:
        """The record of the block that begins exactly there."""

    def at(self, at: int) -> RecordRow | None:
        """The record that lies exactly there."""

    def records(self, start: int, most: int, threads: list[int] | None = None) -> list[RecordRow]:
        """Up to ``most`` records by block, from block ``start`` on; of these threads only."""

    def stack(self, key: int) -> tuple[list[tuple[int, bool]], bool]:
        """Frames, innermost first, as (address, whether it is exact: else a return address); and whether there were
        more. Bounded, whatever the tables say."""

    def logged_at(self, at: int) -> LogRow | None:
        """The transaction that lies exactly there."""

    def logged_of(self, address: int, most: int) -> list[LogRow]:
        """Up to ``most`` transactions of blocks that began exactly there, newest first."""

    def logged_holding(self, address: int) -> LogRow | None:
        """The newest transaction of a block that held the address."""

    def log(self, before: int, most: int, freed: bool | None = None, threads: list[int] | None = None) -> list[LogRow]:
        """Up to ``most`` transactions with a lower sequence than ``before``, newest first."""

    def newest(
        self, freed: bool, threads: list[int], most: int
    ) -> tuple[int, int, list[tuple[int, int, int, int, int, int]]]:
        """What these threads allocated (and is still there) or freed (as far as the log goes back): how often, how many
        bytes, and the newest of it, newest first, as (where the record or transaction lies, block, size, time, stack,
        thread)."""

    def users(self) -> list[tuple[int, int, int, float, float, int, int, RecordRow]]:
        """By stack, biggest first: (stack, records, their bytes, how many blocks and bytes they stand for, least and
        largest size, the oldest record)."""

def read_audit(
    image: Image,
    shadow: tuple[int, list[int], list[tuple[int, int, int]]],
    stacks: tuple[int, int, int, int, int],
    log: tuple[int, int, int],
    contents: tuple[int, int, int],
    clock: tuple[int, int, int, int],
    frames: int,
    mean: int,
    progress: Progress,
) -> tuple[Records, tuple[bool, bool, bool, int, int]]:
    """The auditor's tables (audit/format.h), each read once.

    ``shadow``: (top, [top_shift, top_count, middle_shift, middle_count, granule_shift, leaf_records, record_size,
    offset_shift], bits of live, offset, stack, thread, size, time and freed); ``stacks``: (chunks, chunk_shift,
    chunk_count, entry_size, count); ``log`` and ``contents``: (entries, capacity, entry_size); ``clock``: (ns of time
    0, shift, numerator, denominator); at most ``frames`` frames of a stack.
    Also gives whether the numbers of shadow, stacks and log made no sense; how many tables were not (wholly) in the
    dump; and how many entries contradicted themselves. What records of freed blocks say extends the log into the past.
    """

def group_leaks(recorders: list[Records], blocks: list[Block]) -> list[LeakGroup]:
    """Direct leaks by size and stack: each is looked up with the recorders in turn."""

class JemallocLayout(Protocol):
    """See ``Layout`` in engine/core/src/heap/jemalloc.rs, and dmods/jemalloc/layouts.py."""

    @property
    def levels(self) -> tuple[int, ...]: ...
    @property
    def entry(self) -> int: ...
    @property
    def pointer(self) -> int: ...
    @property
    def leaf_szind(self) -> tuple[int, int]: ...
    @property
    def leaf_slab(self) -> tuple[int, int]: ...
    @property
    def leaf_state(self) -> tuple[int, int]: ...
    @property
    def alignment(self) -> int: ...
    @property
    def arena(self) -> tuple[int, int]: ...
    @property
    def slab(self) -> tuple[int, int]: ...
    @property
    def state(self) -> tuple[int, int]: ...
    @property
    def szind(self) -> tuple[int, int]: ...
    @property
    def nfree(self) -> tuple[int, int]: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def bins(self) -> int: ...

# (record, address of its block, bytes, arena, state, size class where it is in use, slab)
Extent = tuple[int, int, int, int, int, Optional[int], bool]

class Extents:
    """All extents of one jemalloc, by address."""

    entries: int  # of the radix tree, that were looked at
    fault_count: int
    faults: list[tuple[str, int, int]]  # the first of them: (check, record, page): see dmods.jemalloc.find.FAULTS

    def __init__(
        self, image: Image, layout: JemallocLayout, root: int, most: int = ..., progress: Progress = None
    ) -> None:
        """Follows the radix tree whose root table is at ``root``; with ``most``, to about so many extents."""

    def __len__(self) -> int: ...
    def at(self, address: int) -> Optional[Extent]:
        """The one that the address lies in."""

    def following(self, start: int, most: int) -> list[Extent]:
        """Up to ``most`` that begin at ``start`` or later."""

    def classes(self) -> list[tuple[int, bool, int, int, int, int, int]]:
        """What is in use: (arena, slabs, size class, extents, usable bytes in use, regions, regions in use by the
        bitmaps)."""

    def states(self) -> list[tuple[int, int, int, int]]:
        """(arena, state, extents, bytes)."""

    def ranges(self) -> list[tuple[int, int]]:
        """The address space of all of them."""

    def metadata(self) -> list[int]:
        """Multiples of 2 MiB: where their records, and tables of the tree, lie."""

def find_radix_trees(image: Image, ranges: list[tuple[int, int]], layout: JemallocLayout) -> list[tuple[int, int]]:
    """Where the root table of jemalloc's radix tree may be, and how much speaks for it: candidates, to be validated."""

def find_bins(image: Image, ranges: list[tuple[int, int]], word: int) -> list[int]:
    """Where a ``malloc_state.bins`` may begin: candidates, to be validated."""

def find_mmapped(
    image: Image, ranges: list[tuple[int, int]], word: int, page: int, deep: bool
) -> list[tuple[int, int, int, int]]:
    """Mmapped chunks in the ranges: (chunk, start of its mapping, end, usable bytes). ``deep`` tries every page."""

def find_stretches(
    image: Image, ranges: list[tuple[int, int]], word: int, page: int, top: int
) -> list[tuple[int, int]]:
    """Stretches of main-arena chunks that lead to a double fencepost or to ``top``: (first chunk, end)."""

def find_pointers(
    image: Image,
    ranges: list[tuple[int, int]],
    word: int,
    wanted: list[tuple[int, int]],
    most: int,
    progress: Progress = None,
) -> list[list[int]]:
    """For each [low, high) of ``wanted`` (in order, not overlapping: else ValueError) the addresses of up to ``most``
    aligned words that hold a value in it. One pass."""

class Unwinder:
    """Unwinds the threads of one process; tables are read when first needed and kept. Usable from any thread."""

    def __init__(
        self,
        image: Image,
        arch: str,
        modules: list[tuple[int, int, int, str | None]],
        code: list[tuple[int, int]],
    ) -> None:
        """``modules`` are (start, end, bias, file or None), ``code`` the executable (start, end) mappings.

        Raises ValueError for an ``arch`` other than "x86_64", "aarch64" and "i386".
        """

    def unwind(
        self, registers: dict[str, int], limit: int = 256
    ) -> tuple[
        list[tuple[int, int, str, bool, bool, int | None, int | None, dict[str, int]]],
        str,
    ]:
        """The frames, innermost first, and why there are no more. Empty without pc and sp.

        A frame is (pc, sp, found, exact, trampoline, ucontext, siginfo, known registers): see ``dmods.stacks.Frame``.
        """

def find_self_pointers(image: Image, ranges: list[tuple[int, int]], word: int = 8, limit: int = 65536) -> list[int]:
    """The 16-aligned addresses whose words at +0 and two words on both hold the address itself, in the ranges' order:
    x86's TCBs."""

def find_dtv_pointers(image: Image, ranges: list[tuple[int, int]], limit: int = 65536) -> list[int]:
    """The 16-aligned addresses where a TCB of AArch64 seems to be: it leads to a dtv, and what lies below it knows the
    stack that it is in."""

def disassemble(arch: str, code: bytes, address: int) -> tuple[str, int] | None:
    """The instruction that ``code`` begins with (give 16 bytes or what there is), as gdb and objdump write it, and its
    length. None where there is none, or for a machine that is not known.
    """

PAGE_KINDS: tuple[str, ...]
"""What a page can be used for: the names by number."""

def hex_lines(start: int, step: int, count: int, numbers: Optional[bytes] = None, wanted: int = 0) -> str:
    """``count`` addresses from ``start`` on, ``step`` apart, each as hex() writes it and on a line of its own; with
    ``numbers``, a byte for each, only those whose byte is ``wanted``."""

class Physical:
    """A machine's memory by physical address. Usable from any thread."""

    @staticmethod
    def elf(image: Image) -> Physical:
        """Of an ELF dump: an image whose segments lie at physical addresses."""

    @staticmethod
    def kdump(path: str) -> Physical:
        """Of makedumpfile's compressed format. Raises ValueError with the reason where it is flattened, split, or
        something else."""

    @staticmethod
    def through(reader: Callable[[int, int], bytes]) -> Physical:
        """What ``reader(address, size)`` returns: fewer bytes from the first on that cannot be had. What it raises is
        raised by whoever asked."""

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes: fewer from the first on that is not in the dump."""

class PageTables(TypedDict):
    """The kernel's page tables: ``arch`` "x86_64" or "aarch64", the first table's physical address, log2 of the page
    size, the bits that translation decides, and bits of an entry that are no address (memory encryption)."""

    arch: str
    root: int
    page_bits: int
    va_bits: int
    clear: int

class PageLayout(TypedDict):
    """Offsets in bytes, masks of flags (0: there is no such flag); see engine/core/src/kernel/layout.rs."""

    base: int
    page_bits: int
    size: int
    flags: int
    head: int
    mapping: int
    private: int
    mapcount: int
    refcount: int
    lru: int
    head_is_mask: bool
    reserved: int
    compound: int
    slab: int
    swapbacked: int
    swapcache: int
    kept: int
    has_private: int
    hwpoison: int
    types: list[tuple[int, int, str]]
    huge_byte: Optional[tuple[int, int]]
    huge_flags: int
    large_counts: list[tuple[int, int]]
    movable: bool
    movers: list[tuple[int, str]]
    orders: int
    zfs: int
    host: int
    i_mmap: int
    i_sb: int
    left: int
    right: int
    to_flags: int
    exec: int
    special: list[tuple[int, str]]

class PageLists(TypedDict):
    """Where lists begin, and offsets; see ``Lists`` in engine/core/src/kernel/overlay.rs."""

    per_cpu: list[tuple[int, int]]
    vmap: list[int]
    vmap_area: tuple[int, ...]
    first_task: int
    task: tuple[int, ...]
    thread_head: int
    stack_size: int

class Gathered(TypedDict):
    """What the lists held. ``broken``: those that were left before their end; ``endless``: more was said to be mapped
    than there is memory."""

    broken: int
    endless: bool
    tasks: int
    vmap_areas: int

class PageCounts(TypedDict):
    """Pages by kind; figures of the cache of mappings; pages that need not be read; what looks wrong, counted (see
    ``Oddities`` in engine/core/src/kernel/scan.rs)."""

    kinds: dict[str, int]
    identity: dict[str, int]
    skipped: int
    odd: dict[str, int]

class Memmap:
    """A kernel's page array, and the memory around it by virtual address.

    The two long calls release the GIL, call ``progress(bytes of page array done)`` now and then, and raise what it (or
    Ctrl-C) raises.
    """

    def __init__(self, physical: Physical, tables: PageTables, layout: PageLayout) -> None:
        """Raises ValueError where they cannot be those of any kernel."""

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes of the kernel's memory: fewer from the first on that is not mapped or not in the
        dump."""

    def translate(self, address: int) -> Optional[int]:
        """The physical address; None where nothing is mapped."""

    def some_last_table(self, root: int) -> Optional[int]:
        """Physical address of a table of the last level in the lower half below ``root`` (a process's)."""

    def gather(self, lists: PageLists, ram: list[tuple[int, int]], progress: Progress = None) -> Gathered:
        """Follows the lists, whose answer ``classify`` uses from then on. ``ram``: page frames, sorted."""

    def classify(
        self, ranges: list[tuple[int, int]], remember: int = ..., each: bool = False, progress: Progress = None
    ) -> tuple[PageCounts, Optional[bytes]]:
        """One pass over the ranges (page frames, sorted and apart). With ``each`` also a byte for each page: its
        kind's number."""
