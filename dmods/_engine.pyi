"""The engine's Python interface (engine/py). Addresses and sizes are unsigned 64-bit integers.

An address argument that does not fit into 64 bits (a sum of values from a dump) is not an error: no memory is there.
"""

from collections.abc import Collection
from typing import Callable, Optional, Protocol, TypedDict

__version__: str

class Image:
    """The memory of a process. Immutable, and readable from any thread."""

    def __init__(
        self,
        files: list[str],
        segments: Collection[tuple[int, ...]],
        blobs: list[tuple[int, bytes]],
    ) -> None:
        """Open the files.

        ``segments`` are (address, size, index into files, offset in that file); ``blobs`` are (address, bytes). Where
        ranges overlap, the first one given wins, and segments win over blobs. Where a file is shorter than a segment
        claims, the rest of that segment is unreadable; that is not an error. Raises OSError when a file cannot be
        opened.
        """

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes: fewer where memory ends or a byte is not in the dump, b"" when ``address``
        itself is not.
        """

    def covered(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the (start, end) parts of the range that have a source, merged where adjacent."""

class Symbols:
    """The functions and objects of one ELF file, by address and by name. Addresses are the file's own (add
    Module.bias).
    """

    def __init__(self, files: list[str], blobs: list[bytes] = ...) -> None:
        """Read .symtab and .dynsym of all files as one table.

        The further files are separate debug information or an unpacked .gnu_debugdata. A file that cannot be read or
        parsed adds nothing. Nothing in a file raises.
        """

    def __len__(self) -> int:
        """Return how many symbols ``at`` can name."""

    def at(self, address: int) -> tuple[str, int, int] | None:
        """Return (name, address, size) of the symbol whose extent holds the address.

        A symbol of size 0 reaches to the next one or to the end of its section. Among several names for one place,
        ``Rank`` in engine/core/src/symbols.rs decides.
        """

    def lookup(self, name: str) -> tuple[int, int] | None:
        """Return (address, size) of the function or object of exactly that (mangled) name."""

    def named(self, text: str, most: int) -> list[tuple[str, int, int, bool, bool]]:
        """Return the symbols that a text may mean, by address: (demangled name with parameters, address, size, whether
        the text is the whole name, whether it is a split-off part or an old version of a function).

        The text is a name as it is shown or as the symbol table has it. It may also be the end of a name, lack template
        arguments or parameters, or have ``...`` in place of a part. If one symbol matches exactly, only those that do
        are returned. All symbols are looked at: some 0.2 s for 130,000.
        """

    def tls(self, name: str) -> tuple[int, int] | None:
        """Return (offset in the module's TLS block, size) of a thread-local variable."""

class Lines:
    """Source lines and inlined functions of one ELF file, from DWARF debug information.

    Files are opened on the first question. Usable from any thread. Nothing in a file raises: it becomes an entry of
    ``problems``.
    """

    debug_file: str | None
    """The file that the answers come from: ``path`` itself or a separate file; None where there is none."""

    problems: list[str]
    """What was wrong with files and their debug information so far: whole phrases that begin with the file's name,
    at most 16. Empty where debug information was found, and also where none exists."""

    def __init__(self, path: str | None, debug_roots: list[str] = ..., build_id: bytes | None = None) -> None:
        """Prepare answers for the program or library at ``path``.

        ``debug_roots`` are folders like /usr/lib/debug. Separate debug information is found as gdb finds it: by the
        build-id (ROOT/.build-id/ab/cdef.debug), then by ``.gnu_debuglink`` (beside the file, in .debug/, below each
        root; the checksum must match). Files that dwz split off, and .dwo and .dwp files, are found too.
        ``build_id`` is the one in the process's memory: a file with another one is not used. With a build-id,
        ``path`` may be None.
        """

    def find(self, addresses: list[int]) -> list[list[tuple[str | None, str | None, int | None]]]:
        """Return for each address its frames, innermost first, as (function, source path, line).

        Addresses are the file's own (subtract Module.bias). For a return address ask for the address before it, as
        debuggers do. The last frame of a list is the function itself; those before it are inlined. Names are
        demangled as by ``demangle``. The list is empty where the debug information does not cover the address.
        Releases the GIL; Ctrl-C raises KeyboardInterrupt.
        """

def demangle(name: str) -> str:
    """Return a C++ name (without parameters) or a Rust name (without hash) as written. Other names, and names that
    are too complex, are returned unchanged.
    """

def is_name(text: str, symbol: str) -> bool:
    """Return whether the text may mean the (mangled) symbol. See ``Symbols.named``."""

def elf_section(path: str, name: str) -> bytes | None:
    """Return the bytes of a section of at most 64 MiB. None where there is no such section, or the file cannot be
    read or parsed.
    """

Progress = Optional[Callable[[int], object]]

class RunReport(TypedDict):
    """The report on one run of chunks. Ranges are (start, end). Chunk addresses are those of headers."""

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

Scope = tuple[str, int]  # ("live", 0), ("set", its number), or ("below", the address of a block)
Kept = tuple[int, int, int, int]  # a block: address, usable size; blocks and bytes that it keeps alive, itself included

class Heap:
    """The blocks of glibc's heaps and jemalloc's.

    Make it, call ``follow`` for every free list with set=True, ``mark`` from the roots, then ``find_leaks``. The three
    long calls release the GIL and call ``progress(bytes done)`` now and then. They raise what it (or Ctrl-C) raises.
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
        """Read every run once, and the blocks of ``extents``, each with the number that is added to its arenas'
        numbers.

        ``runs`` are (start, end, kind, arena number, usable). Kind 0 is the main arena, 1 a thread arena
        (NON_MAIN_ARENA set), 2 one mmapped chunk of ``usable`` bytes. ``start`` is a chunk's address, ``end`` that of
        the top chunk, or where the memory ends.

        ``dead`` is memory whose words are not pointers. ``watch`` are structures to report, as (chunk size, number of
        counters, bytes of each); as many pointers follow the counters.

        Raises MemoryError when the address space for the tables cannot be had.
        """

    missing: list[tuple[int, int]]  # parts of jemalloc's blocks that are not in the dump, in pieces

    def runs(self) -> list[tuple[int, int, int, int, int]]:
        """Return the runs as given, sorted by address. ``reports`` has the same order."""

    def reports(self) -> list[RunReport]: ...
    def follow(
        self, head: int, to_user: bool, protected: bool, least: int, most: int, set: bool, collect: bool
    ) -> tuple[int, int, Optional[tuple[str, int]], list[int]]:
        """Follow a free list whose chunks have sizes ``least`` to ``most``. Return (chunks, chunk bytes, problem and
        where, block addresses).

        ``to_user``: links point to what malloc returned (tcache), else to headers (fastbins). ``protected``:
        safe-linking. With ``set`` its chunks are free from now on. Block addresses are returned only with ``collect``.
        """

    def release_orphans(self, to_user: bool, protected: bool, least: int, most: int, key: Optional[int]) -> int:
        """Set the chunks free that a damaged list of this kind cut off, and return how many.

        They are found by ``key`` (the second word of every chunk in a tcache), or by links that lead to the list's end
        (with safe-linking only).
        """

    def bins(
        self, bins: list[tuple[int, int, int, int, bool]], progress: Progress = None
    ) -> tuple[list[tuple[int, int]], int, list[tuple[int, str, int, int]]]:
        """Follow the arenas' bins, each (address seen as a chunk, arena number, least and most chunk size, whether it
        is a large bin).

        Return (chunks, chunk bytes) for each, how many problems there are, and the first of them as (index of the bin,
        fault, chunk or bin at fault, its link or size): see ``Fault`` in engine/core/src/heap/bins.rs.
        """

    def release(self, addresses: list[int]) -> list[int]:
        """Set the blocks of jemalloc free that begin at the addresses. Return the addresses where no block in use
        begins.
        """

    def own(self, values: list[int], closure: bool) -> int:
        """Make the blocks that the values point into the allocator's own: they are not followed, and are no leaks.

        With ``closure``, the blocks that those lead to become the allocator's too. Call it before ``mark``. Return how
        many blocks became the allocator's.
        """

    def take_unaligned(self, dead: list[tuple[int, int]]) -> None:
        """From now on a pointer may begin at any byte, of blocks and of roots. Call it before ``mark``.

        ``dead`` is memory inside blocks that holds none. Each of the three long calls then reads every block reached
        once more.
        """

    def mark(self, ranges: list[tuple[int, int]], values: list[int], progress: Progress = None) -> tuple[int, int]:
        """Mark the blocks that the words of the ranges and the values lead to. Return (candidate pointers in roots,
        blocks reached).
        """

    def find_leaks(self, progress: Progress = None) -> tuple[int, int, int, int]:
        """Return (direct count, usable bytes, indirect count, usable bytes) of the blocks that were not reached."""

    def reached_without(
        self,
        ranges: list[tuple[int, int]],
        values: list[int],
        barrier: int,
        asked: list[int],
        progress: Progress = None,
    ) -> list[bool]:
        """Return for each address whether a path that avoids the block at ``barrier`` leads to the block it lies in.

        Paths begin at the roots (``ranges`` and ``values``, as for ``mark``). If the block at ``barrier`` is leaked,
        they begin at the direct leaks. To be called after ``find_leaks``, whose answers stay as they are. It marks
        again: about as much work as ``mark``.
        """

    def groups(self) -> list[tuple[int, bool, bool, int, int, int, int]]:
        """Return the direct leaks by size: (usable size, glibc's, own mapping or extent, count, lowest address,
        blocks kept alive, bytes kept alive).
        """

    def blocks(self, states: list[int], start: int, most: int) -> list[Block]:
        """Return up to ``most`` blocks in one of the states, in address order, from address ``start`` on."""

    def addresses(self, states: list[int], start: int, end: int, most: int) -> list[int]:
        """Return only the addresses of up to ``most`` blocks in one of the states, in address order, in [start,
        end).
        """

    def find(self, address: int) -> Optional[Block]:
        """Return the block that the address points into. A header belongs to no block."""

    def sizes(self, arena: int | None = None) -> list[tuple[int, int, int, int, int]]:
        """Return (usable size, live blocks, free blocks, leaked blocks, the allocator's own) by size, of all runs
        or of those with that arena number.
        """

    def find_owners(
        self,
        ranges: list[tuple[int, int]],
        named: list[tuple[int, int, int, int]],
        single: list[tuple[int, int, int]],
        progress: Progress = None,
    ) -> None:
        """Find the owners of all blocks: the dominator tree, and the roots that lead to each block.

        To be called after ``find_leaks``, with the ranges of ``mark``. ``named`` are (start, end, root, rank), sorted
        and disjoint: whose memory it is. Root 0 has what is left out. ``single`` are (value, root, rank). ``rank``: 0
        for the allocator's own words, 1 for data, more for stacks: the lower, the more it counts. The words of stacks
        attribute only what data does not reach. See engine/core/src/graph/owners.rs.

        Raises ValueError if ``named`` overlap, MemoryError if there are more than 2**31 blocks.
        """

    def owner_lines(self) -> list[tuple[int, Optional[list[int]], int, int]]:
        """Return (set, its roots, blocks, usable bytes) for each set of roots that holds something.

        Every block that is in use is counted once. The leaked blocks have the root 2**32 - 1. Those that only pointers
        at addresses that are not aligned lead to have 2**32 - 2. The roots are None where they are too many to list.
        """

    def owners_above(self, address: int, most: int) -> Optional[tuple[list[Kept], int]]:
        """Return the block and those that dominate it, from the block up, and the set of roots that holds them."""

    def largest(self, within: Scope, most: int) -> list[Kept]:
        """Return the blocks that keep most alive, of those in the scope that no other block in it dominates.

        In the scope ("below", address) they are the blocks that the one at the address dominates directly.
        """

    def addresses_in(self, within: Scope, start: int, most: int) -> list[int]:
        """Return the addresses of up to ``most`` blocks in the scope, in address order, from ``start`` on."""

    def alike(
        self, within: Scope, ranges: list[tuple[int, int]], progress: Progress = None
    ) -> list[tuple[int, int, int, int]]:
        """Return (first word, usable size, count, lowest address) of the blocks in the scope, most bytes first.

        The first word is 0 unless it lies in one of the sorted ranges.
        """

    def path(
        self,
        ranges: list[tuple[int, int]],
        named: list[tuple[int, int, int, int]],
        single: list[tuple[int, int, int]],
        root: Optional[int],
        address: int,
        progress: Progress = None,
    ) -> Optional[tuple[str, int, int, list[int]]]:
        """Return a shortest path to the block at the address, from the best root or only from ``root``.

        It is ("memory", address of the word, root, blocks), ("value", index in ``single``, root, blocks), or ("leak",
        0, 0, blocks) from a direct leak to a leaked block. The blocks are addresses; the last is the block itself.
        """

# (block, where the record lies, bytes asked for, ns of CLOCK_MONOTONIC, stack, thread); stack and thread 0: not known
RecordRow = tuple[int, int, int, int, int, int]
# (where it lies, sequence, whether freed, block, bytes asked for, ns, stack, thread; of a freed block, or zeros: (ns,
# stack, thread) of its allocation, and (where a copy of its first bytes lies, how many there are))
LogRow = tuple[int, int, bool, int, int, int, int, int, tuple[int, int, int], tuple[int, int]]
# (usable size, own mapping, index of the recorder, stack, count, oldest block, its record, blocks kept alive, bytes
# kept alive); recorder and record are None where nobody recorded them: then the block is the lowest
LeakGroup = tuple[int, bool, Optional[int], int, int, int, Optional[RecordRow], int, int]

class Records:
    """The records of live blocks of one recorder, and its log. Immutable, sorted by block."""

    logged: int  # transactions

    def __init__(
        self, records: list[RecordRow], transactions: list[LogRow], stacks: list[list[int]], mean: int
    ) -> None:
        """Take the records of a recorder that Python has read.

        In the rows a stack is its number in ``stacks`` (lists of addresses, innermost first), counted from 1. After
        that only ``stack`` can resolve it. ``mean`` is the average number of bytes between samples, 0 where every
        block was recorded.
        """

    def __len__(self) -> int: ...
    def of_block(self, address: int) -> RecordRow | None:
        """Return the record of the block that begins exactly there."""

    def at(self, at: int) -> RecordRow | None:
        """Return the record that lies exactly there."""

    def records(self, start: int, most: int, threads: list[int] | None = None) -> list[RecordRow]:
        """Return up to ``most`` records by block, from block ``start`` on, of these threads only."""

    def stack(self, key: int) -> tuple[list[tuple[int, bool]], bool]:
        """Return the frames, innermost first, as (address, whether it is exact, else a return address), and whether
        there were more. The number of frames is bounded.
        """

    def logged_at(self, at: int) -> LogRow | None:
        """Return the transaction that lies exactly there."""

    def logged_of(self, address: int, most: int) -> list[LogRow]:
        """Return up to ``most`` transactions of blocks that began exactly there, newest first."""

    def freed_holding(self, address: int) -> LogRow | None:
        """Return the newest free of a block that held the address."""

    def logged_holding(self, address: int) -> LogRow | None:
        """Return the newest transaction of a block that held the address."""

    def log(self, before: int, most: int, freed: bool | None = None, threads: list[int] | None = None) -> list[LogRow]:
        """Return up to ``most`` transactions with a lower sequence than ``before``, newest first."""

    def newest(
        self, freed: bool, threads: list[int], most: int
    ) -> tuple[int, int, list[tuple[int, int, int, int, int, int]]]:
        """Return what these threads allocated and did not free, or what they freed as far as the log goes back.

        That is: how many, their bytes, and the newest of them, newest first, as (where the record or transaction lies,
        block, size, time, stack, thread).
        """

    def redzones(self, image: Image, size: int, byte: int, most: int) -> tuple[int, int, int, list[RecordRow]]:
        """Compare the ``size`` bytes behind the requested end of every live block with ``byte``. Return how many blocks
        were compared, how many are not in the dump, how many are damaged, and the first ``most`` damaged ones."""

    def users(self, split: str = "") -> list[tuple[int, int, int, int, float, float, int, int, RecordRow]]:
        """Return the users of memory by stack, biggest first: (stack, part, records, their bytes, how many blocks and
        bytes they stand for, least and largest size, the oldest record). With ``split`` "thread" or "size" each stack
        is split by that, and ``part`` is the thread's index or the size."""

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
    """Read the auditor's tables (audit/format.h), each once.

    ``shadow``: (top, [top_shift, top_count, middle_shift, middle_count, granule_shift, leaf_records, record_size,
    offset_shift], bits of live, offset, stack, thread, size, time and freed); ``stacks``: (chunks, chunk_shift,
    chunk_count, entry_size, count); ``log`` and ``contents``: (entries, capacity, entry_size); ``clock``: (ns of time
    0, shift, numerator, denominator); at most ``frames`` frames of a stack.

    Also return whether the numbers of shadow, stacks and log made no sense, how many tables were not (wholly) in the
    dump, and how many entries contradicted themselves. The records of freed blocks extend the log into the past.
    """

def group_leaks(recorders: list[Records], blocks: list[Block]) -> list[LeakGroup]:
    """Return direct leaks by size and stack. Each block is looked up with the recorders in turn."""

class JemallocLayout(Protocol):
    """See ``Layout`` in engine/core/src/heap/jemalloc/layout.rs, and dmods/allocators/jemalloc/layouts.py."""

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
        """Follow the radix tree whose root table is at ``root``; with ``most``, to about so many extents."""

    def __len__(self) -> int: ...
    def at(self, address: int) -> Optional[Extent]:
        """Return the extent that the address lies in."""

    def following(self, start: int, most: int) -> list[Extent]:
        """Return up to ``most`` extents that begin at ``start`` or later."""

    def classes(self) -> list[tuple[int, bool, int, int, int, int, int]]:
        """Return what is in use: (arena, slabs, size class, extents, usable bytes in use, regions, regions in use
        by the bitmaps).
        """

    def states(self) -> list[tuple[int, int, int, int]]:
        """Return (arena, state, extents, bytes)."""

    def ranges(self) -> list[tuple[int, int]]:
        """Return the address space of all extents."""

    def metadata(self) -> list[int]:
        """Return multiples of 2 MiB where the extents' records and tables of the tree lie."""

def find_radix_trees(image: Image, ranges: list[tuple[int, int]], layout: JemallocLayout) -> list[tuple[int, int]]:
    """Return where the root table of jemalloc's radix tree may be, and how many entries support it. These are
    candidates to validate.
    """

def find_bins(image: Image, ranges: list[tuple[int, int]], word: int) -> list[int]:
    """Return where a ``malloc_state.bins`` may begin. These are candidates to validate."""

def find_mmapped(
    image: Image, ranges: list[tuple[int, int]], word: int, page: int, deep: bool
) -> list[tuple[int, int, int, int]]:
    """Return mmapped chunks in the ranges: (chunk, start of its mapping, end, usable bytes). ``deep`` tries every
    page.
    """

def find_stretches(
    image: Image, ranges: list[tuple[int, int]], word: int, page: int, top: int
) -> list[tuple[int, int]]:
    """Return stretches of main-arena chunks that lead to a double fencepost or to ``top``: (first chunk, end)."""

def find_pointers(
    image: Image,
    ranges: list[tuple[int, int]],
    word: int,
    wanted: list[tuple[int, int]],
    most: int,
    progress: Progress = None,
) -> list[list[int]]:
    """Return, for each [low, high) of ``wanted``, the addresses of up to ``most`` aligned words that hold a value
    in it. One pass. Raises ValueError where ``wanted`` is not sorted or overlaps.
    """

class Unwinder:
    """Unwinds the threads of one process. Tables are read when first needed, and kept. Usable from any thread."""

    def __init__(
        self,
        image: Image,
        arch: str,
        modules: list[tuple[int, int, int, str | None]],
        code: list[tuple[int, int]],
    ) -> None:
        """Prepare an unwinder.

        ``modules`` are (start, end, bias, file or None), ``code`` the executable (start, end) mappings. Raises
        ValueError for an ``arch`` other than "x86_64", "aarch64" and "i386".
        """

    def unwind(
        self, registers: dict[str, int], limit: int = 256
    ) -> tuple[
        list[tuple[int, int, str, bool, bool, int | None, int | None, dict[str, int]]],
        str,
    ]:
        """Return the frames, innermost first, and why there are no more. Empty without pc and sp.

        A frame is (pc, sp, found, exact, trampoline, ucontext, siginfo, known registers).
        """

def find_self_pointers(image: Image, ranges: list[tuple[int, int]], word: int = 8, limit: int = 65536) -> list[int]:
    """Return the 16-aligned addresses whose words at +0 and two words on both hold the address itself, in the
    ranges' order: x86's TCBs.
    """

def find_dtv_pointers(image: Image, ranges: list[tuple[int, int]], limit: int = 65536) -> list[int]:
    """Return the 16-aligned addresses that look like a TCB of AArch64. It leads to a dtv, and the struct pthread
    below it describes the stack that holds it.
    """

def disassemble(arch: str, code: bytes, address: int) -> tuple[str, int] | None:
    """Return the instruction that ``code`` begins with, as gdb and objdump write it, and its length.

    Give 16 bytes, or as many as there are. None where there is no instruction, or the machine is not known.
    """

PAGE_KINDS: tuple[str, ...]
"""The kinds of use of a page: their names by number."""

def hex_lines(start: int, step: int, count: int, numbers: Optional[bytes] = None, wanted: int = 0) -> str:
    """Return ``count`` addresses from ``start`` on, ``step`` apart, each as hex() writes it and on its own line.
    With ``numbers``, a byte for each, only those whose byte is ``wanted``.
    """

class Physical:
    """A machine's memory by physical address. Usable from any thread."""

    @staticmethod
    def elf(image: Image) -> Physical:
        """Return the memory of an ELF dump: an image whose segments lie at physical addresses."""

    @staticmethod
    def kdump(path: str) -> Physical:
        """Return the memory of a dump in makedumpfile's compressed format. Raises ValueError with the reason where
        it is flattened, split, or something else.
        """

    @staticmethod
    def through(reader: Callable[[int, int], bytes]) -> Physical:
        """Return the memory that ``reader(address, size)`` reads. It returns fewer bytes where one cannot be had.
        What it raises is raised by the caller's method.
        """

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes, up to the first one that is not in the dump."""

class PageTables(TypedDict):
    """The kernel's page tables: ``arch`` "x86_64" or "aarch64", the first table's physical address, log2 of the
    page size, the bits that translation decides, and bits of an entry that do not belong to the address (memory
    encryption).
    """

    arch: str
    root: int
    page_bits: int
    va_bits: int
    clear: int

class PageLayout(TypedDict):
    """Offsets in bytes and masks of flags; a mask of 0 means that there is no such flag. See
    engine/core/src/kernel/layout.rs.
    """

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
    """Where lists begin, and offsets. See ``Lists`` in engine/core/src/kernel/listed_pages.rs."""

    per_cpu: list[tuple[int, int]]
    vmap: list[int]
    vmap_area: tuple[int, ...]
    first_task: int
    task: tuple[int, ...]
    thread_head: int
    stack_size: int
    owned: list[tuple[str, int, int]]

class Gathered(TypedDict):
    """The contents of the lists. ``broken``: lists that were left before their end. ``endless``: the lists claim
    more mapped memory than there is.
    """

    broken: int
    endless: bool
    tasks: int
    vmap_areas: int

class PageCounts(TypedDict):
    """Pages by kind, figures of the cache of mappings, pages that need not be read, and counts of what looks wrong
    (see ``Oddities`` in engine/core/src/kernel/scan.rs).
    """

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
        """Take the layout of a kernel. Raises ValueError where no kernel can have it."""

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the kernel's memory, up to the first one that is not mapped or not in the
        dump.
        """

    def translate(self, address: int) -> Optional[int]:
        """Return the physical address, or None where nothing is mapped."""

    def some_last_table(self, root: int) -> Optional[int]:
        """Return the physical address of a table of the last level in the lower half below ``root`` (a process's)."""

    def gather(self, lists: PageLists, ram: list[tuple[int, int]], progress: Progress = None) -> Gathered:
        """Follow the lists. ``classify`` uses the result from then on. ``ram`` are page frames, sorted."""

    def classify(
        self, ranges: list[tuple[int, int]], remember: int = ..., each: bool = False, progress: Progress = None
    ) -> tuple[PageCounts, Optional[bytes]]:
        """Classify the pages of the ranges (page frames, sorted, without overlaps) in one pass. With ``each``, also
        return a byte for each page: the number of its kind.
        """
