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
        addresses: tuple[int, int] = ...,
    ) -> None:
        """Open the files. Blocks and roots may lie at the ``addresses``: by default, those that a process can use.

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

class Untouched:
    """The memory that a process never touched.

    A page counts as touched if the dump has it and it is not all zeros; with ``holes``, if it is no hole of the file.
    """

    def __init__(
        self, image: Image, ranges: list[tuple[int, int]], holes: bool, threads: int, progress: Progress = None
    ) -> None:
        """Look at all pages of the ranges."""

    def within(self, ranges: list[tuple[int, int]]) -> int:
        """Return how many bytes of the ranges were never touched."""

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

    def with_part(self, parts: list[str], most: int) -> list[tuple[str, int, int]]:
        """Return (name as the file has it, address, size) of up to ``most`` symbols with one of the parts in it.

        A place with several names comes several times.
        """

    def tls(self, name: str) -> tuple[int, int] | None:
        """Return (offset in the module's TLS block, size) of a thread-local variable."""

class SoleSymbols:
    """The symbols of a 64-bit ELF file's .symtab, for addresses that one of them alone contains.

    Addresses are the file's own. The file stays open. Nothing in it raises.
    """

    def __init__(self, path: str) -> None:
        """Read the symbols. A file that cannot be read or parsed has none."""

    def at(self, address: int) -> tuple[str, int, int] | None:
        """Return (name, address, size) of the symbol that contains the address. None where none does, or several do.

        All symbols are looked at: some 0.05 ms for 100,000.
        """

class ClaimRow:
    """A statement on a block: see ``dmods.graph.types.typegraph.Claim``. ``name`` is the type as gdb prints it."""

    name: str
    shape: int
    skip: int
    evidence: str
    rank: int
    disputed: bool
    source: int
    size: int

class TypeGraph:
    """Types of blocks, from debug information.

    Use it in this order: ``open`` for each module, ``add_variables``, ``add_frame``, ``build``; then ask. Nothing in a
    file raises: it becomes an entry of ``problems``.
    """

    problems: list[str]

    exhausted: bool
    """True if not all pointers were followed, because there were too many."""

    work: tuple[int, int, int, int]
    """The work of ``build``: addresses that it looked up, its reads of memory, places in objects that it looked at, and
    blocks and pointers that it took from lists."""

    parsing_work: int
    """The work of parsing debug information: the bytes that were read, and more for each entry. What an earlier command
    kept needs none."""

    def __init__(self, word: int, folder: str | None = None, at_least: int = 0) -> None:
        """Make an empty one for pointers of ``word`` bytes.

        Debug information that has ``at_least`` bytes in its file is read once, and what it says is kept in ``folder``.
        """

    def open(self, path: str | None, debug_roots: list[str], build_id: bytes | None, bias: int) -> int | None:
        """Return the number of the module; None where there is no debug information. See ``Lines`` for the places."""

    def add_variables(self, module: int, thread_local: list[int]) -> tuple[int, int]:
        """Add the global variables, and the thread-local ones at each of these addresses.

        Return how many there are, and how many thread-local ones were left out because there is no address.
        """

    def needs_line(self, module: int, pc: int) -> bool:
        """Return whether ``add_frame`` needs the source line of a pc: a variable has one place in all its scope."""

    def add_frame(
        self,
        image: Image,
        module: int,
        pc: int,
        cfa: int | None,
        registers: dict[int, int],
        line: int | None,
    ) -> list[tuple[str, str, int | None, int, int | None, str | None]]:
        """Add the variables of a frame. Return (name, type, address or None, size, register or None, the inlined
        function that has it or None) of each that has a place at the pc.

        Registers are by DWARF's numbers. Variables that are declared below ``line`` are left out.
        """

    def build(
        self,
        marks: Marks,
        memory: list[tuple[int, int]],
        taught: list[tuple[int, int]],
        untyped: list[int],
        managed: list[tuple[int, int]],
        strange: list[int],
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Spread the types. ``taught`` are (address, number of a type).

        Blocks at the addresses ``untyped`` and of the arenas ``strange`` get no type. ``managed`` are the functions
        that manage values of std::any, with the numbers of the types of these values.
        """

    def find(self, name: str) -> list[tuple[int, str, int]]:
        """Return the complete structs, classes and unions of a name: (number, name, size)."""

    def at(self, marks: Marks, address: int) -> ClaimRow | None:
        """Return the claim for the block at the address."""

    def field(self, marks: Marks, address: int, offset: int) -> str | None:
        """Return the name of the part of the block's object at an offset in the block: ".next"."""

    def object(self, address: int) -> tuple[int, int, str, int, int, int, str] | None:
        """Return the object that has an address, in a block that holds many.

        It is (where it begins, its bytes, its type, the bytes of the type, address of the pointer that says so, how
        many pointers in it prove that or 0, the part of the object at the address).
        """

    def pool(self, marks: Marks, address: int) -> list[tuple[str, int, int, int]]:
        """Return the objects in a block that holds many, by type: (type, count, bytes, distance or 0)."""

    def variable(self, address: int) -> tuple[str, bool] | None:
        """Return the variable at an address with the name of its part ("server.db"), and whether it is a frame's."""

    def conflicts(
        self,
    ) -> tuple[int, list[tuple[int, ClaimRow, ClaimRow]]]:
        """Return how many conflicts there are, and (address, what is kept, the other claim) of each."""

    def sums(
        self, kinds: Kinds, index: int, marks: Marks
    ) -> tuple[list[SumRow], list[tuple[int, int, int, str, str, SumRow]], list[tuple[str, bool, SumRow]]]:
        """Return the sums of all kinds, as ``Kinds.sums``, of all types, and of the types of objects in pools.

        A type is (number, shape, rank, evidence, name, sum). No block is in both. A pool counts for its kind, with the
        bytes that no object in it has. The objects are (type, whether their contents alone prove it, sum).
        """

    def asked(
        self, kinds: Kinds, index: int, marks: Marks, records: list[Records], sizes: list[int]
    ) -> list[tuple[int, int]]:
        """Return counts as ``Kinds.asked``, of the blocks that ``sums`` counts by their kind."""

    def addresses(
        self,
        kinds: Kinds,
        index: int,
        marks: Marks,
        wanted_kinds: list[int],
        wanted_types: list[tuple[int, bool]],
        states: list[int],
        start: tuple[int, int],
        most: int,
    ) -> tuple[list[int], tuple[int, int] | None]:
        """Return addresses as ``Kinds.addresses``. A wanted type is its number, and whether it is an array."""

    def retained(
        self,
        kinds: Kinds,
        index: int,
        owners: Owners,
        groups: list[int],
        types: list[tuple[int, bool, int]],
        count: int,
    ) -> list[tuple[int, int]]:
        """Return the same as ``Kinds.retained``, where debug information gives some blocks types.

        ``types`` has (number of the type, whether arrays of it, group).
        """

    def groups(self, kinds: Kinds, index: int, marks: Marks) -> list[tuple[Group, tuple[str, str] | None]]:
        """Return the direct leaks by size and by kind or type: (group, (type, evidence)).

        The type is None for a group with a kind.
        """

    def in_scope(
        self, kinds: Kinds, index: int, owners: Owners, scope: tuple[str, int]
    ) -> list[tuple[int | None, str | None, int, int, int]]:
        """Return the blocks of a scope by what they are counted as, and by size: (kind, type, size, count, example).

        Blocks with a type from debug information have no kind.
        """

def sampled_leaks(
    graph: TypeGraph,
    kinds: Kinds,
    index: int,
    marks: Marks,
    memory: list[tuple[int, int]],
    taught: list[tuple[int, int]],
    untyped: list[int],
    managed: list[tuple[int, int]],
    strange: list[int],
    progress: Callable[[int], object] | None = None,
) -> tuple[list[tuple[Group, tuple[str, str] | None, bool]], tuple[int, int, int, int]]:
    """Return the direct leaks by size and by kind or type, and the work: see ``TypeGraph``.

    Only the types of some blocks of each group are found, and only a part of the live objects is followed for that.
    A row is (group, (type, evidence), whether not every block of the group was looked at). The type is None for a group
    with a kind. Takes what ``TypeGraph.build`` takes, and leaves its result as it is.
    """

class Lines:
    """Source lines and inlined functions of one ELF file, from DWARF debug information.

    Files are opened on the first question. Usable from any thread. Nothing in a file raises: it becomes an entry of
    ``problems``.
    """

    debug_file: str | None
    """The file that the answers come from: ``path`` itself or a separate file; None: neither has any."""

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

def short_type(name: str) -> str:
    """Return a type as a person would write it: without the namespaces of versions in ``std``, and without arguments
    that are the C++ library's defaults. Qualifiers stand behind the type, as gdb prints them.
    """

def is_name(text: str, symbol: str) -> bool:
    """Return whether the text may mean the (mangled) symbol. See ``Symbols.named``."""

def is_short(text: str, name: str) -> bool:
    """Return whether the text is the name of a type or function, or a short spelling of it.

    ``Vec<Order>`` is one of ``alloc::vec::Vec<prog::Order, alloc::alloc::Global>``.
    """

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

class Block:
    """A block. ``state``: 0 live (or not yet known), 1 free, 2 leaked directly, 3 leaked indirectly, 4 the allocator's
    own. ``single``: it has its own mapping or extent. A direct leak keeps other blocks alive, ``kept_count`` of them.
    """

    address: int
    size: int  # usable
    state: int
    allocator: int
    arena: int
    single: bool
    kept_count: int
    kept_bytes: int

class Group:
    """Direct leaks of one size, allocator and, where kinds are told apart, kind. ``first`` is the lowest address."""

    size: int  # usable
    allocator: int
    single: bool
    count: int
    first: int
    kept_count: int
    kept_bytes: int
    kind: Optional[int]

Scope = tuple[str, int]  # ("live", 0), ("set", its number), or ("below", the address of a block)
Kept = tuple[int, int, int, int]  # a block: address, usable size; blocks and bytes that it keeps alive, itself included

class Pymalloc:
    """The arenas and pools of CPython's pymalloc."""

    slots: Slots
    strays: int  # pools that were found and belong to no arena
    arenas: list[tuple[int, int, int, int]]  # (start, end, pools, pools with blocks in use), by address
    problems: list[tuple[str, int]]  # ("pool", "free pools" or "missing", address)
    unknown: list[tuple[int, int]]  # the pools whose blocks are not known
    classes: list[tuple[int, int, int]]  # (pools, blocks in use, free blocks) by size class: 16 bytes, 32, ... 512

    def __init__(
        self,
        image: Image,
        memory: list[tuple[int, int]],
        places: list[list[tuple[int, int]]],
        arena: int,
        pool: int,
        progress: Progress = None,
    ) -> None:
        """Find the pools in ``memory``, and the arrays of arenas to which words in the ``places`` point.

        A place is searched only while there are pools without an arena. ``arena`` and ``pool`` are their sizes.
        """

class CollectorLinks:
    """The links of CPython's collector: two words before each object that it tracks. They keep nothing alive."""

    heads: list[int]  # of the lists, in the states of interpreters
    broken: Optional[int]  # where a list is damaged

    def __init__(self, image: Image, states: list[tuple[int, int]], minor: int, progress: Progress = None) -> None:
        """Find the lists whose heads lie in ``states``, and follow them."""

    def __len__(self) -> int:
        """Return how many objects are tracked."""

    def __contains__(self, address: int) -> bool:
        """Return whether the address lies in a link or a head."""

    def tables_in_use(self, image: Image, tables: list[int]) -> list[int]:
        """Return those of a few ``tables`` that a tracked dictionary has (until 3.13)."""

    def garbage(
        self, image: Image, blocks: list[tuple[int, int]], minor: int, unused: Optional[UnusedWords] = None
    ) -> list[int]:
        """Return the tracked objects in the unreachable ``blocks`` (address, bytes) that the collector would free.

        Their references are all pointers in those blocks, and no object with more references leads to them.
        ``unused`` words are no references.
        """

class PythonNames:
    """The objects of CPython in the blocks in use of a heap, and the modules and classes that give variables names."""

    def holders(self) -> list[tuple[int, bool, str, tuple[int, int], list[tuple[str, int, int]]]]:
        """Return (address, whether it is a class, name, its memory, variables) of modules and classes.

        A variable is (name, where its entry begins, where its value lies). The value is the last word of the entry.
        """

def find_python_names(
    marks: Marks, minor: int, links: Optional[CollectorLinks] = None, progress: Progress = None
) -> PythonNames:
    """Look at all blocks in use. ``minor`` is 9 for CPython 3.9, ``links`` are the collector's."""

def python_labels(marks: Marks, names: PythonNames) -> tuple[Labels, list[tuple[int, str]]]:
    """Return a label for each block of an object, and what each label means: the address of a type, and a part.

    The part is "" for the object itself, "items" for those of a list, "table" or "values" for those of a dictionary or
    a set.
    """

class UnusedWords:
    """Words in blocks in use that keep nothing alive."""

    def __init__(
        self,
        image: Image,
        slots: list[Slots],
        minor: int,
        links: Optional[CollectorLinks],
        interpreter: list[tuple[int, int]],
        heads: list[tuple[int, int]],
        stacks: list[tuple[int, int]],
        threads: list[tuple[int, int]],
        registers: list[int],
        frames: list[int],
        chunks: list[tuple[int, int]],
        progress: Progress = None,
    ) -> None:
        """Find what CPython does not use: words behind objects and behind the last items of lists, and objects that are
        kept for reuse.

        ``frames`` are those of threads, where frames are objects. ``chunks`` are stretches of glibc's chunks.
        ``interpreter`` is the file of CPython in memory. Free lists begin in ``heads``. What ``stacks``, ``registers``
        or the states of ``threads`` point to may be in use.
        """

    @staticmethod
    def in_data(
        image: Image, minor: int, interpreter: list[tuple[int, int]], data: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return the ranges of ``data``, the writable parts of CPython's file, where no word is a pointer.

        They are the instructions, characters and numbers of objects that the compiler made (deepfreeze.py, 3.11).
        """

    @staticmethod
    def stale_links(image: Image, slots: Slots, progress: Progress = None) -> UnusedWords:
        """Find blocks that are zero but for their first word, where it leads to a block of the same size.

        Free blocks are linked so, and malloc() does not clear the link.
        """

    def __len__(self) -> int:
        """Return how many ranges of such words there are."""

    def __contains__(self, address: int) -> bool:
        """Return whether such a word begins at the address."""

def python_objects(
    image: Image,
    slots: list[Slots],
    blocks: list[tuple[int, int]],
    minor: int,
    links: Optional[CollectorLinks] = None,
    wanted: list[int] = ...,
    most: int = 0,
    progress: Progress = None,
) -> tuple[list[tuple[int, int, int, int, int]], list[tuple[int, int, int, bool]]]:
    """Return CPython's objects in the used slots and in the blocks (address, usable bytes), by type.

    Each row is (address of the type, objects, bytes, objects that the collector tracks, their bytes). Bytes are
    those of ``sys.getsizeof``. Objects of the ``wanted`` types are listed, up to ``most``: (address, type, bytes,
    whether the collector tracks it). ``minor`` is 9 for CPython 3.9. With ``links``, what is tracked must be in them.
    """

class GoObjects:
    """The types of the objects in Go's heap.

    ``spans`` are (start, bytes of an object, objects, map of the free ones as in ``Slots``, whether objects may have
    pointers, whether it is one large object, the address of its type or 0). ``sections`` are where the descriptions of
    types are, ``modules`` the memory of the programs that have them. ``variables`` are those of the programs.
    ``stacks`` may hold interface values, too: also stale ones.

    A shape is "one" (a value of the type), "array" (of values of the type), "string" (the bytes of one), "map",
    "table" and "directory" (of a map of the type), "channel", "function" (a closure of the type), "begins" (a value of
    the type is at the beginning of it), or "": not known.
    """

    headers: bool  # objects of more than 512 bytes with pointers name their type

    def __init__(
        self,
        image: Image,
        spans: list[tuple[int, int, int, bytes, bool, bool, int]],
        sections: list[tuple[int, int]],
        modules: list[tuple[int, int]],
        variables: list[tuple[int, int]],
        stacks: list[tuple[int, int]],
        progress: Progress = None,
    ) -> None: ...
    def rows(self) -> tuple[list[tuple[str, str, int, int, int]], list[tuple[int, bool, int, int]]]:
        """Return (shape, name of the type, bytes of a value, objects, bytes).

        Then those of unknown type: (bytes of an object, whether it may have pointers, objects, bytes).
        """

    def labels(self) -> tuple[Labels, list[tuple[str, str]]]:
        """Return labels of the objects whose type is known, and (shape, name of the type) of each label."""

    def at(self, address: int) -> Optional[tuple[str, str, int, int, int]]:
        """Return (shape, name, bytes of a value, where its value begins, bytes there) of the object at an address."""

    def listed(self, shape: str, name: str, most: int) -> list[tuple[int, int]]:
        """Return up to `most` objects of a type, by address: (where its value begins, bytes there)."""

class HeapBuilder:
    """A heap whose bytes are read: the first of four stages. Here blocks are set free, and become the allocator's own.

    Then ``index`` ends this stage: whatever else is asked of it raises RuntimeError.
    """

    def __init__(
        self,
        image: Image,
        word: int,
        runs: list[tuple[int, int, int, int, int, int]],
        dead: list[tuple[int, int]],
        watch: list[tuple[int, int, int]],
        threads: int,
        progress: Progress = None,
        extents: list[tuple[Extents, int, int]] = ...,
        slots: list[tuple[Slots, int, int]] = ...,
        links: list[CollectorLinks] = ...,
        unused: list[UnusedWords] = ...,
    ) -> None:
        """Read every run once, and the blocks of ``extents``, each with the number that is added to its arenas'
        numbers, and the blocks of ``slots``, each with the number of its arena. The number of the allocator comes last.

        ``runs`` are (start, end, kind, arena number, usable, number of the allocator). Kind 0 is the main arena, 1 a
        thread arena (NON_MAIN_ARENA set), 2 one mmapped chunk of ``usable`` bytes. ``start`` is a chunk's
        address, ``end`` that of the top chunk, or where the memory ends.

        ``dead`` is memory whose words are not pointers. ``watch`` are structures to report, as (chunk size, number of
        counters, bytes of each); as many pointers follow the counters.

        Raises MemoryError when the address space for the tables cannot be had.
        """

    def reports(self) -> list[RunReport]:
        """Return what the walk met in each run, in the order of ``Index.runs``."""

    def find(self, address: int) -> Optional[Block]:
        """Return the block that the address points into, live or free. A header belongs to no block."""

    def follow(
        self, head: int, to_user: bool, protected: bool, least: int, most: int
    ) -> tuple[int, int, Optional[tuple[str, int]]]:
        """Set the chunks of a free list free, of sizes ``least`` to ``most``. Return (chunks, chunk bytes, problem and
        where).

        ``to_user``: links point to what malloc returned (tcache), else to headers (fastbins). ``protected``:
        safe-linking.
        """

    def release_orphans(self, to_user: bool, protected: bool, least: int, most: int, key: Optional[int]) -> int:
        """Set the chunks free that a damaged list of this kind cut off, and return how many.

        They are found by ``key`` (the second word of every chunk in a tcache), or by links that lead to the list's end
        (with safe-linking only).
        """

    def release(self, addresses: list[int]) -> list[int]:
        """Set the blocks of jemalloc free that begin at the addresses. Return the addresses where no block in use
        begins.
        """

    def own(self, values: list[int], closure: bool) -> int:
        """Make the blocks that the values point into the allocator's own: they are not followed, and are no leaks.

        With ``closure``, the blocks that those lead to become the allocator's too. Return how many blocks became the
        allocator's.
        """

    def index(self) -> Index:
        """Return the blocks as they are now. Nothing changes them any more."""

class Index:
    """The blocks of a heap: the second stage. A block is in use (state 0), free, or the allocator's own.

    What has leaked is not known here: a leaked block is in use, also once ``mark`` has run.
    """

    dropped: int  # runs left out because they overlap others, or are far larger than what the dump has of them
    missing: list[tuple[int, int]]  # parts of jemalloc's blocks that are not in the dump, in pieces

    def runs(self) -> list[tuple[int, int, int, int, int]]:
        """Return the runs as given, without allocators, by address. ``HeapBuilder.reports`` has the same order."""

    def follow(
        self, head: int, to_user: bool, protected: bool, least: int, most: int
    ) -> tuple[Optional[tuple[str, int]], list[int]]:
        """Return (problem and where, block addresses) of a free list: see ``HeapBuilder.follow``."""

    def bins(
        self, bins: list[tuple[int, int, int, int, bool]], progress: Progress = None
    ) -> tuple[list[tuple[int, int]], int, list[tuple[int, str, int, int]]]:
        """Follow the arenas' bins, each (address seen as a chunk, arena number, least and most chunk size, whether it
        is a large bin).

        Return (chunks, chunk bytes) for each, how many problems there are, and the first of them as (index of the bin,
        fault, chunk or bin at fault, its link or size): see ``Fault`` in engine/core/src/allocators/glibc/bins.rs.
        """

    def pointers(
        self,
        ranges: list[tuple[int, int]],
        dead: list[tuple[int, int]],
        wanted: list[tuple[int, int]],
        most: int,
        progress: Progress = None,
    ) -> list[list[int]]:
        """Return for each wanted range the addresses of up to ``most`` words in memory whose value lies in it.

        Memory in ``ranges`` is searched. Heaps of chunks are not read again, but for their parts in ``dead``: where
        they point to is known. All ranges are sorted and do not overlap.
        """

    def find(self, address: int) -> Optional[Block]:
        """Return the block that the address points into. A header belongs to no block."""

    def blocks(self, states: list[int], start: int, most: int) -> list[Block]:
        """Return up to ``most`` blocks in one of the states, in address order, from address ``start`` on."""

    def addresses(self, states: list[int], start: int, end: int, most: int) -> list[int]:
        """Return only the addresses of up to ``most`` blocks in one of the states, in address order, in [start,
        end).
        """

    def sizes(self, arena: int | None = None) -> list[tuple[int, int, int, int]]:
        """Return (usable size, blocks in use, free blocks, the allocator's own) by size, of all runs or of those with
        that arena number.
        """

    def mark(
        self,
        ranges: list[tuple[int, int]],
        values: list[int],
        vectors: list[int] = ...,
        unaligned: bool = False,
        tagged: bool = False,
        dead: list[tuple[int, int]] = ...,
        progress: Progress = None,
    ) -> Marks:
        """Mark the blocks that the words of the ranges and the values lead to, and find the leaks. Only once.

        ``vectors`` are words of vector registers: what each alone reaches is counted. A word that is the end of a block
        and the beginning of the next counts last: what only such words lead to is listed.

        ``unaligned``: pointers begin at any byte, and the ends of blocks are pointers like others. ``tagged``: pointers
        may have a tag above the 47 or 48 bits of the address. ``dead`` is memory inside blocks that holds none of
        these. Every block reached is then read once more.

        Raises RuntimeError if it has been marked. An exception of ``progress``, or Ctrl-C, leaves it unmarked.
        """

class Marks:
    """The marked blocks of a heap: the third stage. What is not reached has leaked.

    Where further roots become known, ``more`` goes on, and these marks raise RuntimeError.
    """

    candidates: int  # words of roots that were candidate pointers
    reached: int  # blocks
    by_vectors: list[tuple[int, int]]  # (word of a vector register, blocks that it alone reaches)
    by_ends: list[int]  # the blocks that only words lead to which are ends of blocks, too
    beside_ends: list[int]  # other blocks that those hold
    totals: tuple[int, int, int, int]  # direct leaks, their usable bytes, indirect leaks, their usable bytes

    def more(self, values: list[int], progress: Progress = None) -> Marks:
        """Return the marks with what further values lead to. An exception leaves the index unmarked."""

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
        they begin at the direct leaks. The answers stay as they are. It
        marks again: about as much work as ``mark``.
        """

    def groups(self) -> list[Group]:
        """Return the direct leaks by size."""

    def blocks(self, states: list[int], start: int, most: int) -> list[Block]:
        """Return up to ``most`` blocks in one of the states, in address order, from address ``start`` on."""

    def addresses(self, states: list[int], start: int, end: int, most: int) -> list[int]:
        """Return only the addresses of up to ``most`` blocks in one of the states, in address order, in [start,
        end).
        """

    def find(self, address: int) -> Optional[Block]:
        """Return the block that the address points into. A header belongs to no block."""

    def untouched(self, memory: Untouched, most: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the bytes that were never touched, of the blocks in each state.

        Then (address, such bytes) of the ``most`` blocks in use, leaked or not, that have most of them.
        """

    def sizes(self, arena: int | None = None) -> list[tuple[int, int, int, int, int]]:
        """Return (usable size, live blocks, free blocks, leaked blocks, the allocator's own) by size, of all runs
        or of those with that arena number.
        """

    def find_owners(
        self,
        ranges: list[tuple[int, int]],
        named: list[tuple[int, int, int, int]],
        single: list[tuple[int, int, int]],
        homes: list[tuple[int, Optional[int], bool]],
        leaves: list[int],
        all_edges: bool = False,
        progress: Progress = None,
        parts: list[tuple[int, int, int, int]] = ...,
        selves: list[tuple[int, int, int]] = ...,
        names: Optional[PythonNames] = None,
    ) -> Owners:
        """Find the owners of all blocks: the dominator tree, and the roots that lead to each block.

        ``ranges`` are those of ``mark``. ``named`` are (start, end, root, rank), sorted
        and disjoint: whose memory it is. Root 0 has what is left out. ``single`` are (value, root, rank). ``rank``: 0
        for the allocator's own words, 1 for data, more for stacks: the lower, the more it counts. The words of stacks
        attribute only what data does not reach. See engine/core/src/graph/owners.rs. ``homes`` are (root, the arena of
        its thread, whether it is a variable), for roots on stacks. ``leaves`` are addresses of blocks that hold bytes.
        Pointers that are left over from an earlier use of the memory are not followed
        (engine/core/src/graph/regular.rs), except with ``all_edges``.

        ``parts`` are (start, end, root, rank) in blocks, sorted and disjoint: the variables of CPython. The blocks do
        not lead on from there. ``rank``: 0 for the memory of what holds variables, 1 for variables, or that of a frame.
        ``selves`` are (block, root, 0): what holds variables. See engine/core/src/graph/parts.rs. Of ``names``, the
        engine takes what weak references hold, and which blocks are proven to be objects.

        Raises ValueError if ``named`` or ``parts`` overlap, MemoryError if there are more than 2**31 blocks.
        """

    def path(
        self,
        ranges: list[tuple[int, int]],
        named: list[tuple[int, int, int, int]],
        single: list[tuple[int, int, int]],
        root: Optional[int],
        address: int,
        progress: Progress = None,
        parts: list[tuple[int, int, int, int]] = ...,
        owners: Optional[Owners] = None,
    ) -> Optional[tuple[str, int, int, bytes]]:
        """Return a shortest path to the block at the address, from the best root or only from ``root``.

        It is ("memory", address of the word, root, blocks), ("value", index in ``single``, root, blocks), or ("leak",
        0, 0, blocks) from a direct leak to a leaked block. The blocks are addresses of 8 bytes in this machine's order;
        the last is the block itself.
        Words that the ``owners`` did not follow count only if nothing else leads there.
        """

class Owners:
    """Who holds the blocks of a heap: the fourth stage. The dominator tree, and the roots that lead to each block."""

    set_aside: int  # pointers that were not followed
    many_roots: list[int]  # the roots of the sets that are too large to list

    def lines(self) -> list[tuple[int, Optional[list[int]], int, int]]:
        """Return (set, its roots, blocks, usable bytes) for each set of roots that holds something.

        Every block that is in use is counted once. The leaked blocks have the root 2**32 - 1. Those that only pointers
        at addresses that are not aligned lead to have 2**32 - 2. The roots are None where they are too many to list.
        """

    def above(self, address: int, most: int) -> Optional[tuple[list[Kept], int]]:
        """Return the block and those that dominate it, from the block up, and the set of roots that holds them."""

    def largest(self, within: Scope, most: int) -> list[Kept]:
        """Return the blocks that keep most alive, of those in the scope that no other block in it dominates.

        In the scope ("below", address) they are the blocks that the one at the address dominates directly.
        """

    def addresses_in(self, within: Scope, start: int, most: int) -> list[int]:
        """Return the addresses of up to ``most`` blocks in the scope, in address order, from ``start`` on."""

    def spread_in(self, within: Scope, start: int, size: int, most: int) -> list[int]:
        """Return the addresses of up to ``most`` blocks of a size, from all over the scope from ``start`` on."""

    def held_by_words(self, address: int, most: int) -> list[tuple[int, tuple[int, int, int, int]]]:
        """Return (offset, row as of ``largest``) of words of a block that lead to what it alone keeps alive directly.

        At most ``most`` words are read, up to the first one that the dump lacks.
        """

    def led_to(self, by: int, without: list[int], step: int, sizes: list[int], words: int) -> list[tuple[int, int]]:
        """Return (address, usable size) of blocks that words of what the block ``by`` keeps alive lead to.

        They are of one of the sizes, in address order, and none that ``by`` keeps alive. What the blocks at ``without``
        keep alive is not read. Words of one in ``step`` of the others are read, ``words`` in all.
        """

    def alike(
        self, within: Scope, ranges: list[tuple[int, int]], progress: Progress = None
    ) -> list[tuple[int, int, int, int]]:
        """Return (first word, usable size, count, lowest address) of the blocks in the scope, most bytes first.

        The first word is 0 unless it lies in one of the sorted ranges.
        """

# (start, end, section, number of the module, its bias); section: 0 code, 1 read-only, 2 data, 3 outside all modules
Place = tuple[int, int, int, int, int]
Amount = tuple[int, int]  # blocks, usable bytes

class HeldRow:
    """Blocks of one kind and usable ``size``. ``example`` is the lowest address."""

    kind: int
    size: int
    count: int
    bytes: int
    example: int

class KindRow:
    """A kind of blocks.

    ``form``: 0 shape, 1 object, 2 exception, 3 various, 4 not in the dump, 5 named (the detail of the first word is the
    caller's number of the name). Kinds of words: ``word_kind`` in engine/core/src/contents/signature.rs.
    """

    id: int
    form: int
    least: int  # size of the class
    most: int
    count: int  # blocks
    words: list[tuple[int, int]]  # (kind, detail)
    sample: list[int]  # the words of the first block
    same: list[int]  # how many bytes of each word are the same in all blocks

class SumRow:
    """The blocks of a kind or a type."""

    live: Amount
    leaked: Amount
    own: Amount  # the allocator's
    least: int  # size
    most: int
    first: Optional[int]  # the lowest block
    first_leaked: Optional[int]

class GrowthRow:
    """What became of the blocks of a key."""

    key: int
    totals: list[Amount]  # in each core
    leaked: list[Amount]  # of these
    gone: Amount
    new: Amount
    kept: Amount
    survived: Amount
    proven: int  # to be the same blocks
    example: Optional[int]
    times: Optional[tuple[int, int]]  # the oldest and the newest of the new ones

class Census:
    """The signatures of all blocks in use of one heap: what their first words hold.

    They are taken in one pass. Blocks are counted by their states.
    """

    missing: int  # blocks whose first words are not in the dump

    def __init__(
        self, marks: Marks, places: list[Place], direct: bool, threads: int, progress: Progress = None
    ) -> None:
        """Look at all blocks in use. With ``direct``, look only at direct leaks: only ``Kinds.groups`` is for those."""

    def __len__(self) -> int:
        """Return how many blocks there are."""

    def named(
        self,
        marks: Marks,
        labels: Labels,
        names: dict[LabelKey, int],
        whole: set[LabelKey] = ...,
        progress: Progress = None,
    ) -> Census:
        """Return the census with names for the labelled blocks: their kind is "named".

        ``names`` has the number of the name for the key of a label. Others keep their shape. Exceptions stay what they
        are, and so do objects, but for those with a key in ``whole``: there the object is a first part.
        """

# (value, label, where a pointer to the block stands, where ``beside`` stands, beside, where the room of a buffer
# stands, bytes of what the room counts). Places are in words from the value. Pointer 0: the value is the second word of
# the block. Beside at 0: nothing is known. Room at 0: it is no buffer; else the value is the vtable pointer of a
# streambuf.
Mark = tuple[int, int, int, int, int, int, int]

# (label, usable size, whether the first two words may be counts of references, kind: see ``Kinds.take_kinds``)
LabelKey = tuple[int, int, bool, int]

class Labels:
    """Labels of blocks that do not come from their content: a number for each."""

    conflicts: int  # blocks with several labels: they are left out
    cut: bool  # there were more than are kept

    def __init__(self, rows: list[tuple[int, int, int]]) -> None:
        """Take (address, usable size, label)."""

    def __len__(self) -> int: ...
    def sizes(self) -> list[tuple[LabelKey, int]]:
        """Return (key, how many blocks have it), in order."""

def find_labels(
    marks: Marks,
    word: int,
    inside: list[tuple[int, int]],
    outside: list[tuple[int, int]],
    signs: list[Mark],
    direct: bool,
    progress: Progress = None,
) -> Labels:
    """Return the blocks that signs name: in blocks in use of ``inside``, and in all words of ``outside``. One pass.

    With ``direct``, look only at direct leaks, and only for signs that stand in the block itself.
    """

class Kinds:
    """The kinds of the blocks of one or more heaps. Signatures of all heaps are merged together.

    The number of a kind is its place in ``all``. A census has the number of its place in the list given.
    """

    def __init__(self, censuses: list[Census]) -> None: ...
    def all(self) -> list[KindRow]: ...
    def sums(self, index: int, marks: Marks) -> list[SumRow]:
        """Return the sums of each kind in one heap."""

    def groups(self, index: int, marks: Marks) -> list[Group]:
        """Return the direct leaks by size and kind."""

    def addresses(
        self, index: int, marks: Marks, wanted: list[int], states: list[int], start: tuple[int, int], most: int
    ) -> tuple[list[int], Optional[tuple[int, int]]]:
        """Return the addresses of up to ``most`` blocks of the wanted kinds in one of the states.

        ``start`` is the number and the address of a block, (0, 0) at first. Also return where to go on, or None at the
        end.
        """

    def examples(self, index: int, marks: Marks, wanted: list[int], states: list[int], most: int) -> list[list[int]]:
        """Return for each of the wanted kinds the addresses of its first blocks in one of the states, up to ``most``.

        One pass over the blocks finds those of all kinds.
        """

    def retained(
        self, index: int, owners: Owners, groups: list[int], count: int, progress: Progress = None
    ) -> list[tuple[int, int]]:
        """Return the bytes that the live and the leaked blocks of each group keep alive, themselves included.

        ``groups`` has the group of each kind, below ``count``. Each byte counts once for a group.
        """

    def in_scope(self, index: int, owners: Owners, within: Scope) -> list[HeldRow]:
        """Return the blocks in the scope by kind and size, in order."""

    def take_kinds(self, index: int, marks: Marks, labels: Labels) -> Labels:
        """Return the labels with the kinds of their blocks."""

    def by_stack(
        self, plain: Kinds, index: int, marks: Marks, callers: list[tuple[Records, dict[int, int]]], known: list[int]
    ) -> Labels:
        """Return labels for blocks whose caller makes only one type of their size, and whose shape is that type's.

        ``callers`` are recorders with the number of the caller for each stack. ``plain`` are the kinds of the same heap
        without names. ``known`` has for each kind the number of its type, -1 for a shape, or -2 for a type that a block
        itself would show.
        """

    def asked(self, index: int, marks: Marks, records: list[Records], sizes: list[int]) -> list[tuple[int, int]]:
        """Return for each kind how many (live, leaked) blocks were asked for with just the bytes of its objects.

        ``sizes`` has these bytes for each kind, 0 where they are not known.
        """

    def kinds_at(self, index: int, marks: Marks, asked: list[int]) -> list[Optional[int]]:
        """Return the kind of the block in use that begins at each address, or None. The addresses must be sorted."""

def changed_in_place(
    old: Marks, new: Marks, owned: list[tuple[int, int]], word: int, progress: Progress = None
) -> tuple[int, int]:
    """Return how many surviving blocks were compared, and in how many most words have changed.

    ``owned`` is the memory of the older heap: ranges in order. All blocks of a small heap are compared, else those of
    parts that lie evenly in it. ``word`` is the size of a word, 4 or 8.
    """

def compare_heaps(
    cores: list[
        tuple[
            Marks,
            Optional[Owners],
            list[tuple[Records, tuple[int, int, int, int], list[int]]],
            list[tuple[int, int, int]],
            dict[int, int],
            list[int],
            bool,
        ]
    ],
    kinds: Optional[Kinds],
    by: str,
    aligned: bool,
    progress: Progress = None,
) -> tuple[list[GrowthRow], list[tuple[int, int, int]]]:
    """Compare the blocks of several cores, the oldest first.

    A core is (marks, owners or None, recorders, modules, the caller's key of each arena by number, its key of each
    set of roots, whether all of its heap is in the dump). A core whose heap is not whole does not say that a block
    was not there. A recorder is (records, its clock as (ns at 0, shift, numerator, denominator), the caller's key
    of each thread by number). A part of a module is (start, end, what to add to an address to make it comparable).
    ``by`` is "size", "state", "arena", "kind", "stack", "thread", "owner" or "holder". ``aligned``: addresses mean
    the same in all cores. Otherwise only the sums are compared.

    By "owner", the key of a block is that of the set of roots that holds it, or 2**64 - 2 for the allocator's own. By
    "holder", the key has the block's kind in its lower 32 bits. Above it is the kind of the block that alone keeps it
    alive, or with the highest bit, the key of the set of roots. Keys of sets are below 2**31.
    Both need the owners.

    Under each key: the bytes of the first core, minus those gone, plus those new, are the bytes of the last. Also
    return (core, recorder, stack) of each key, for "stack". The key 2**64 - 1 is "not known".
    """

class RecordRow:
    """A record of a block, or one of its events. A stack or a thread that is not known is 0."""

    address: int  # of the block
    at: int  # where the record lies
    size: int  # asked for
    time: int  # ns of CLOCK_MONOTONIC
    stack: int
    thread: int

class LogRow:
    """A transaction. Of a freed block it has the allocation and a copy of its first bytes, or zeros."""

    at: int  # where it lies
    sequence: int
    freed: bool
    address: int  # of the block
    size: int  # asked for
    time: int  # ns of CLOCK_MONOTONIC
    stack: int
    thread: int
    alloc_time: int
    alloc_stack: int
    alloc_thread: int
    contents: int  # where the copy lies
    contents_size: int

class UserRow:
    """What the blocks of one stack have, or of a part of it. ``likely`` figures are scaled from samples."""

    stack: int
    part: int  # the thread or the size, if the stack was split
    count: int
    bytes: int
    likely_count: float
    likely_bytes: float
    least: int  # size
    most: int
    oldest: RecordRow

# Records and transactions, as the caller gives them: (block, where the record lies, bytes asked for, ns, stack, thread)
# and (where it lies, sequence, whether freed, block, bytes asked for, ns, stack, thread, (ns, stack, thread) of the
# allocation, (where a copy lies, its bytes)). Stacks are counted from 1.
GivenRecord = tuple[int, int, int, int, int, int]
GivenLog = tuple[int, int, bool, int, int, int, int, int, tuple[int, int, int], tuple[int, int]]

class LeakGroup:
    """Direct leaks of one size and stack. ``recorder`` (an index) and ``record`` are None where nobody recorded them.

    ``first`` is the oldest block, or the lowest where nobody recorded them.
    """

    size: int  # usable
    single: bool
    recorder: Optional[int]
    stack: int
    count: int
    first: int
    record: Optional[RecordRow]
    kept_count: int
    kept_bytes: int

class Records:
    """The records of live blocks of one recorder, and its log. Immutable, sorted by block."""

    logged: int  # transactions

    def __init__(
        self, records: list[GivenRecord], transactions: list[GivenLog], stacks: list[list[int]], mean: int
    ) -> None:
        """Take the records of a recorder that Python has read.

        In the rows a stack is its number in ``stacks`` (lists of addresses, innermost first), counted from 1. Bits 48
        and 49 of an address are those of audit/format.h (truncated, exact). After
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

    def newest(self, freed: bool, threads: list[int], most: int) -> tuple[int, int, list[RecordRow]]:
        """Return what these threads allocated and did not free, or what they freed as far as the log goes back.

        That is: how many, their bytes, and the newest of them, newest first, as (where the record or transaction lies,
        block, size, time, stack, thread).
        """

    def redzones(self, image: Image, size: int, byte: int, most: int) -> tuple[int, int, int, list[RecordRow]]:
        """Compare the ``size`` bytes behind the requested end of every live block with ``byte``. Return how many blocks
        were compared, how many are not in the dump, how many are damaged, and the first ``most`` damaged ones."""

    def users(self, split: str = "") -> list[UserRow]:
        """Return the users of memory by stack, biggest first: (stack, part, records, their bytes, how many blocks and
        bytes they stand for, least and largest size, the oldest record). With ``split`` "thread" or "size" each stack
        is split by that, and ``part`` is the thread's index or the size."""

class Slots:
    """The blocks of an allocator without headers: spans of slots of one size, and single blocks.

    A span is (its first address, bytes of a slot, how many slots, free). Bit i of ``free``, from the lowest bit of the
    first byte on, says that slot i is free. A slot's size is a multiple of a word. A single block is in use; it is
    (address, usable bytes, end): an address before ``end`` is in the block.
    """

    usable_bytes: int  # of all slots and single blocks, in use or not

    def __init__(self, spans: list[tuple[int, int, int, bytes]], singles: list[tuple[int, int, int]] = ...) -> None:
        """Take the blocks. Raises ValueError if a map does not fit its span."""

    def __len__(self) -> int:
        """Return how many blocks are in use."""

class MuslGroup:
    """A group of ``count`` slots of ``stride`` bytes. ``outermost``: it lies in no other group."""

    start: int
    end: int
    meta: int
    stride: int
    count: int
    size_class: int
    mapped: bool  # it has a mapping of its own
    freeable: bool
    outermost: bool

class Mallocng:
    """All groups and blocks of one mallocng, the malloc of musl since 1.2.1."""

    slots: Slots  # blocks in use, with the size that was asked for; free slots
    groups: int
    areas: int  # of metas
    listed: bool  # whether the list of areas is whole
    missing: tuple[int, int]  # areas that the dump has only a part of; blocks whose header it lacks
    between: list[int]  # slots that a thread is about to give out or has begun to free
    fault_count: int
    #: The first hundred: (what is wrong, where, what belongs there). "overflow" has the place << 8 | the byte there.
    faults: list[tuple[str, int, int]]

    def __init__(
        self,
        image: Image,
        word: int,
        context: tuple[int, int, int, int],
        inside: list[tuple[int, int]],
        progress: Progress = None,
    ) -> None:
        """Read the groups of a context from ``find_mallocngs``. ``inside`` is the memory that may hold one, sorted.

        Raises what ``progress`` raises.
        """

    def owned(self) -> list[tuple[int, int]]:
        """Return all memory of its groups and of its metas, sorted."""

    def at(self, address: int) -> tuple[MuslGroup, int | None, bool] | None:
        """Return the innermost group that holds the address, the slot, and whether the slot is in use."""

    def figures(self) -> tuple[int, int, int, int, int]:
        """Return bytes: asked for, of slots in use, of free slots, of mappings, given away by the dynamic linker."""

    def classes(self) -> list[tuple[int, int, int, int]]:
        """Return (bytes of a slot, groups, slots, slots with a block). 0 stands for mappings of one block."""

def find_mallocngs(image: Image, word: int, ranges: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Return the contexts of mallocng in the ranges: (address, secret, first and last area of metas)."""

class Recorded:
    """The blocks of an allocator that dmods cannot walk, from records alone. The usable size of a block is what was
    asked for. A pointer into what its allocator gave in addition points into the block, too.
    """

    slots: Slots
    strays: int  # records that were left out: the block is not in ``inside``
    cut: int  # blocks that were cut, because another begins inside

    def __init__(self, records: Records, inside: list[tuple[int, int]], classes: list[int]) -> None:
        """Take the records of blocks that lie in the sorted, disjoint ranges ``inside``.

        ``classes`` are the size classes of the allocator, sorted, where the program may use all that it was given.
        """

    def areas(self, page: int) -> list[tuple[int, int]]:
        """Return the pages that hold a part of a block, adjacent ones merged."""

    def gaps(self, image: Image, areas: list[tuple[int, int]], every: bool) -> list[tuple[int, int]]:
        """Return the parts of ``areas`` that are in no block and hold a word that points into a block.

        With ``every``, all such parts, whatever their words.
        """

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

# (stack, thread, size, state, kind, set of owners, records, bytes, blocks and bytes that they stand for). The size is
# 2**64 - 1 and the thread, kind and set are 2**32 - 1 where they are not known or not told apart; the state is None.
SampleRow = tuple[int, int, int, Optional[int], int, int, int, int, float, float]

def group_records(
    records: Records,
    marks: Marks | None = None,
    kinds: Kinds | None = None,
    owners: Owners | None = None,
    progress: Progress = None,
) -> list[SampleRow]:
    """Add up records by stack, thread and size, those with the most bytes first.

    With ``marks``, also by the state of the block; with ``kinds`` of that heap alone by its kind; with ``owners``
    by the set of roots that hold it. There are at most some 100,000 groups: with more, sizes are no longer told
    apart, then owners, kinds and threads. If the stacks alone are too many, the rest of them is one stack, 2**32 -
    1.
    """

def reference_stacks(
    owners: Owners, kinds: Kinds, progress: Progress = None
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int, int]], bool]:
    """Return the stacks of holders of a heap.

    It is (nodes, held, whether there were too many nodes). A node is (number of its holder plus 1, or 0; its kind, or
    without a holder a set of roots). A holder comes before what it holds. ``held`` are (node, usable size, blocks,
    their bytes); the size is 2**64 - 1 where sizes are not told apart. See engine/core/src/graph/reference.rs.
    """

# A profile for pprof. Texts are indices of the strings; the first string is empty.
# (sample types as (type, unit), samples, mappings, locations, functions, strings, ns since 1970, ((type, unit) of the
# period, period), comments, default sample type)
# sample: (locations counted from 1, leaf first, values, labels as (key, text or None, number, unit))
# mapping: (start, end, offset, file, build-id, has functions, files, lines, inlined functions)
# location: (mapping counted from 1 or 0, address, (function counted from 1, line), innermost first)
# function: (name, system name, file)
PprofProfile = tuple[
    list[tuple[int, int]],
    list[tuple[list[int], list[int], list[tuple[int, Optional[int], int, int]]]],
    list[tuple[int, int, int, int, int, bool, bool, bool, bool]],
    list[tuple[int, int, list[tuple[int, int]]]],
    list[tuple[int, int, int]],
    list[str],
    int,
    tuple[tuple[int, int], int],
    list[int],
    int,
]

def encode_pprof(profile: PprofProfile) -> bytes:
    """Return pprof's file of a profile: profile.proto, compressed by gzip."""

def decode_pprof(file: bytes, most: int) -> PprofProfile:
    """Return the profile in a file. Raises ValueError where it is damaged, a number in it names nothing, or it has more
    than ``most`` bytes when it is unpacked.
    """

class JemallocLayout(Protocol):
    """See ``Layout`` in engine/core/src/allocators/jemalloc/layout.rs, and dmods/allocators/jemalloc/layouts.py."""

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

class Tcmalloc:
    """A heap of gperftools' tcmalloc. All its free lists were followed."""

    central: tuple[int, int, int]  # the array of central caches: address, bytes of an entry, number of size classes
    sizes: list[int]  # bytes of an object, by size class; class 0 has none
    page_map: tuple[int, int, list[int]]  # address of its root, kPageShift, bits of each level from the root down
    fault_count: int  # entries of the page map that lead to no sound span
    faults: list[tuple[str, int, int]]  # the first of them: (what is wrong, record, address of the page)
    problem_count: int  # problems of free lists
    # The first of them: (what is wrong, the list, size class, where the bad link is or 0, where it leads). A list is
    # ("span", its record), ("transfer", size class) or ("cache", its address). For "count" the last two are how many
    # objects are counted, and how many there are.
    problems: list[tuple[str, tuple[str, int], int, int, int]]
    caches: list[tuple[int, int, int]]  # of threads: (address, objects, bytes)
    free: tuple[int, int, int]  # bytes of free objects: in the spans' lists, in transfer slots, in caches
    span_bytes: tuple[int, int, int]  # in use, free, given back to the kernel
    object_bytes: int  # all objects of spans in use, free ones included
    sampled: int  # blocks that tcmalloc's sampler chose
    owned: list[tuple[int, int]]  # spans, tables, records and caches, sorted

    def free_spans(self) -> list[tuple[int, int]]:
        """Return the spans that are not in use, also those given back to the kernel."""

    def span(self, address: int) -> Optional[tuple[int, int, int, int]]:
        """Return (address, bytes, size class, location) of the span that holds the address, or None.

        Location 0 is in use, 1 free, 2 given back to the kernel.
        """

    def holder(self, image: Image, address: int) -> Optional[tuple[str, int]]:
        """Return the list that holds the free object at the address, as in ``problems``, or None."""

    def samples(
        self, image: Image, ranges: list[tuple[int, int]]
    ) -> tuple[Optional[tuple[list[tuple[int, int, int, int]], list[list[int]], int, int, int, Optional[int]]], str]:
        """Return what the sampler recorded, or (None, the check that failed). ``ranges`` are the data of modules.

        That is: live blocks by address, as (address, address of the record, bytes asked for, index of the stack); the
        stacks, innermost first; the head of the list; how many sampled spans are not on the list, and how many have no
        sound record; how many frames a record has room for, where that is known.
        """

    def small_spans(self, most: int) -> list[tuple[int, int]]:
        """Return the spans in use whose objects have at most so many bytes."""

    def slots(self) -> Slots:
        """Return the blocks."""

def find_tcmallocs(
    image: Image, ranges: list[tuple[int, int]], threads: list[tuple[int, int]]
) -> tuple[list[Tcmalloc], list[tuple[int, str]]]:
    """Return the tcmallocs whose variables are in the ranges, and (address, the check that failed) for central caches
    that were found and are not read. ``threads`` is thread-local memory.
    """

def find_radix_trees(image: Image, ranges: list[tuple[int, int]], layout: JemallocLayout) -> list[tuple[int, int]]:
    """Return where the root table of jemalloc's radix tree may be, and how many entries support it. These are
    candidates to validate.
    """

class Mimalloc:
    """The pages of one mimalloc. ``find_mimallocs`` makes them."""

    shape: str  # the releases whose pages look like that
    own: list[int]  # blocks that mimalloc took for itself
    coded: bool  # whether the links of free lists are encoded
    segmented: bool  # whether it is mimalloc 2.x: its pages lie in segments
    slots: Slots
    owned: list[tuple[int, int]]
    regions: list[tuple[int, int, int]]  # segments or arenas: (start, end, thread id of mimalloc, or 0)
    faults: list[tuple[str, int]]  # the first of them: see dmods.allocators.mimalloc.heap.FAULTS
    fault_count: int
    changing: int  # pages whose count of blocks is off by one
    no_delayed: bool  # whether the heaps' lists of delayed blocks were not recognised
    absent: int  # pages whose blocks are not in the dump
    map: int  # address of the page map (3.x), or 0

    def page_at(self, address: int) -> Optional[tuple[int, int, int, int, int, int, int]]:
        """Return the page that the address lies in: (page, first block, bytes of a block, blocks that were made, blocks
        that fit, blocks not on the owner's own lists, thread).
        """

    def free_memory(self) -> list[tuple[int, int]]:
        """Return the memory of the regions in which no block was made so far."""

    def list_of(self, image: Image, address: int) -> Optional[int]:
        """Return the list of the free block: 0 free, 1 freed by its thread, 2 by another thread, 3 delayed."""

    def counts(self) -> tuple[int, int, int, int, int, int, int]:
        """Return sums over the pages: pages, those without an owner, blocks in each of the four lists, bytes in
        which no block was made yet.
        """

def find_mimallocs(
    image: Image,
    data: list[tuple[int, int]],
    memory: list[tuple[int, int]],
    mapped: list[tuple[int, int]],
    progress: Progress = None,
) -> tuple[list[Mimalloc], list[str]]:
    """Return every mimalloc of the process, and which check failed where something looked like one. ``data`` is the
    writable memory of modules, ``memory`` where segments may lie, ``mapped`` are all mappings.
    """

def find_bins(image: Image, ranges: list[tuple[int, int]], word: int) -> list[int]:
    """Return where a ``malloc_state.bins`` may begin. These are candidates to validate."""

def find_mmapped(
    image: Image,
    ranges: list[tuple[int, int]],
    whole: list[tuple[int, int]],
    word: int,
    page: int,
    deep: bool,
) -> list[tuple[int, int, int, int]]:
    """Return mmapped chunks that begin in the ranges: (chunk, start of its mapping, end, usable bytes).

    A chunk may reach to the end of the part of ``whole``, which are sorted, that the range lies in. ``deep`` tries
    every page.
    """

def find_stretches(
    image: Image, ranges: list[tuple[int, int]], word: int, page: int, top: int
) -> list[tuple[int, int]]:
    """Return stretches of main-arena chunks that lead to a double fencepost or to ``top``: (first chunk, end)."""

def find_parts(image: Image, start: int, top: int, foreign: list[tuple[int, int]], word: int) -> list[tuple[int, int]]:
    """Return the parts of the main arena's memory between its first chunk and ``top`` that have its chunks.

    ``foreign`` is memory of other allocators, by address. What lies within a chunk stays in its part. A part ends where
    foreign memory begins.
    """

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

def find_code_words(
    image: Image, ranges: list[tuple[int, int]], word: int, wanted: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return (address, value) of the values at unaligned bytes of the ranges that lie in one of ``wanted``.

    There are 2^20 of them at most. Raises ValueError where ``wanted`` is not sorted or overlaps.
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
        list[tuple[int, int, str, bool, bool, int | None, int | None, dict[str, int], list[tuple[str, int]]]],
        str,
    ]:
        """Return the frames, innermost first, and why there are no more. Empty without pc and sp.

        A frame is (pc, sp, found, exact, trampoline, ucontext, siginfo, known registers, saved). ``saved`` are
        (register, address): where the function, or the kernel, saved registers that a function must preserve.
        """

    def function(self, pc: int) -> tuple[int, int] | None:
        """Return the code with ``pc`` that one entry of the unwind tables describes, (first byte, end).

        It is a function, or the part of one that lies together. None where no entry describes it.
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

def red_zone_in_use(image: Image, pc: int, registers: list[int]) -> int | None:
    """Return how many bytes below the stack pointer the code from ``pc`` on may read: 0 to 128, on x86-64.

    ``registers`` are rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15. None where there is no code at ``pc``.
    """

def calls_function(image: Image, start: int, end: int) -> bool:
    """Return whether code of x86-64 in ``[start, end)``, of a function, calls another function."""

PAGE_KINDS: tuple[str, ...]
"""The kinds of use of a page: their names by number."""

def hex_lines(start: int, step: int, count: int, numbers: Optional[bytes] = None, wanted: int = 0) -> str:
    """Return ``count`` addresses from ``start`` on, ``step`` apart, each as hex() writes it and on its own line.
    With ``numbers``, a byte for each, only those whose byte is ``wanted``.
    """

class KernelSymbols:
    """A kernel's own symbol table (kallsyms), from its arrays in memory. Each may go on behind its end.

    ``base`` is kallsyms_relative_base, None where the kernel has none (it counts from each offset's own place). Raises
    ValueError with what is wrong with the table.
    """

    def __init__(
        self,
        count: int,
        *,
        names: bytes,
        token_table: bytes,
        token_index: bytes,
        offsets: bytes,
        offsets_at: int,
        base: Optional[int],
    ) -> None: ...
    @staticmethod
    def by_shape(image: bytes, at: int, stext: int) -> Optional[KernelSymbols]:
        """Return the symbols whose table lies in a part of a kernel's image, None if no table is there.

        The part begins at the address ``at``, a multiple of eight. ``stext`` is the address of the kernel's _stext.
        Raises ValueError with the reason why a table is not the kernel's.
        """

    @staticmethod
    def listed(text: bytes) -> KernelSymbols:
        """Return the symbols of a System.map, or of what /proc/kallsyms gave (without those of modules), by address.

        Raises ValueError with what is wrong with it.
        """

    @staticmethod
    def of_module(table: bytes, strings: bytes, letters: bool) -> KernelSymbols:
        """Return the symbols of a module from its Elf64_Sym in memory, by address. Entries that are broken are left
        out. ``letters``: st_info has the type as nm prints it.
        """

    def moved(self, start: int, end: int, by: int) -> KernelSymbols:
        """Return the symbols, those from ``start`` up to ``end`` with addresses that are ``by`` higher (in 64 bits)."""

    def __len__(self) -> int: ...
    def addresses(self, name: str) -> list[int]:
        """Return the addresses of all symbols of that name."""

    def rows(self) -> list[tuple[int, str, str]]:
        """Return (address, type as nm prints it, name) of each symbol, in the table's order."""

def own_debug_file(
    symbols: KernelSymbols,
    of_modules: list[KernelSymbols],
    btf: bytes,
    declared: list[tuple[str, str, int, bool, bool]],
    *,
    start: int,
    end: int,
    moved: int,
    build_id: bytes,
    aarch64: bool,
    char_signed: bool,
) -> bytes:
    """Return an ELF file with a kernel's symbols and types, as debuggers read them from vmlinux.

    ``declared`` has (name, type, pointers, whether it is an array, whether it may be a pointer instead) of variables.
    ``start`` and ``end`` are the image's addresses in vmlinux, ``moved`` is how much higher it ran. Raises ValueError
    with what is wrong with ``btf``.
    """

def own_module_file(symbols: KernelSymbols, build_id: bytes, aarch64: bool) -> bytes:
    """Return an ELF file with a module's symbols and no types. Raises ValueError where there are no symbols."""

def btf_answers(btf: bytes, asked: list[str]) -> list[Optional[int]]:
    """Return what the types answer to questions in VMCOREINFO's words, None where they do not have it.

    A question is "SIZE(page)", "OFFSET(page.flags)", "LENGTH(zone.free_area)" or "NUMBER(PG_lru)" of an enumeration.
    Raises ValueError with what is wrong with ``btf``.
    """

def btf_counts(btf: bytes) -> tuple[int, int]:
    """Return (types, with void; bytes of strings). Raises ValueError with what is wrong with ``btf``."""

def misplaced_variable(symbols: KernelSymbols, btf: bytes) -> Optional[tuple[str, int, int]]:
    """Return a per-CPU variable that is not where the types have it: (name, address there, that of the symbol).

    Then the types and the symbols are not of one build. Raises ValueError with what is wrong with ``btf``.
    """

def joined_types(kernel: bytes, modules: list[bytes]) -> tuple[bytes, list[Optional[str]]]:
    """Return the types of a kernel and of its modules as one table, and what is wrong with the types of each module.

    Broken ones are left out. Raises ValueError with what is wrong with the kernel's.
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
    page_pool: Optional[tuple[int, int, int]]
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
    areas: list[tuple[str, int, int]]

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

#: (size, addr, stack, bytes of the stack, cpu, pid, when) of struct track.
TrackOffsets = tuple[int, int, int, int, int, int, int]

class SheafOffsets(TypedDict):
    """Offsets that lead to the objects in sheaves. See ``Sheaves`` in engine/core/src/kernel/slabs/layout.rs."""

    of_cpu: list[int]
    of_barn: list[int]
    list: int
    cache: int
    size: int
    objects: int

class SlabCache(TypedDict):
    """A kmem_cache. See ``Cache`` in engine/core/src/kernel/slabs/layout.rs."""

    address: int
    size: int
    object_size: int
    inuse: int
    offset: int
    red_left: int
    scanned: int
    random: Optional[int]
    cpu_slab: int
    cpu_sheaves: int
    barns: list[int]
    track: int
    red_zone: bool
    poison: bool
    padded: bool
    rest: bool

class SlabsDescription(TypedDict):
    """Offsets of struct slab, and the caches. A bit field is (offset of its word of 8 bytes, shift, width).

    ``code``: the virtual addresses (start, end) of the kernel's code. ``guarded``: (page frame, number of a cache that
    describes one object, whether it was freed) of each object in KFENCE's pool. ``ignored``: the physical addresses of
    words that hold no object. ``unread``: ranges of page frames that hold no pointer of this kernel.
    """

    cache: int
    freelist: int
    inuse: tuple[int, int, int]
    objects: tuple[int, int, int]
    direct_map: int
    cpus: list[int]
    code: list[tuple[int, int]]
    cpu_freelist: Optional[int]
    sheaves: Optional[SheafOffsets]
    track: Optional[TrackOffsets]
    caches: list[SlabCache]
    guarded: list[tuple[int, int, bool]]
    ignored: list[int]
    unread: list[tuple[int, int]]

#: (number of the cache or None for kmalloc's own pages, bytes of an object, stack of the track or None, objects, what
#: they keep alive: objects, bytes; the oldest object, its time in jiffies)
SlabGroup = tuple[Optional[int], int, Optional[bytes], int, int, int, int, int]
#: (its address, the stack: the caller, then a handle or the addresses, cpu, pid, time in jiffies)
SlabTrack = tuple[int, bytes, int, int, int]

class Slabs:
    """All slab objects of a kernel. Addresses are those of the map of all memory. Caches have the numbers of their
    order in the description. States are the numbers of ``state`` in engine/core/src/kernel/slabs/freelists.rs.
    """

    def __init__(
        self,
        memmap: Memmap,
        ranges: list[tuple[int, int]],
        description: SlabsDescription,
        remember: int = ...,
        progress: Progress = None,
    ) -> None:
        """Find all slab objects, in one pass over the page array. ``Memmap.gather`` comes first. Raises ValueError for
        an impossible description.
        """

    def caches(self) -> list[tuple[int, int, int, int, int, int]]:
        """Return (slabs, pages, objects, in use by the pages' own counts, of these free on CPUs and in sheaves, lists
        of those that lead into pages that the dump lacks).
        """

    def odd(self) -> dict[str, int]:
        """Return counts of what is wrong, and of objects and large blocks."""

    def kinds(self) -> PageCounts:
        """Return what ``Memmap.classify`` returns, of the same pass."""

    def kind(self, pfn: int) -> Optional[str]:
        """Return the kind of a page frame."""

    def broken(self) -> list[tuple[int, Optional[int], int, int]]:
        """Return the damaged lists of CPUs and sheaves: (cache, cpu or None for sheaves, after this object, value)."""

    def damage(self) -> tuple[list[tuple[str, int, int, Optional[int], int]], int, int, int]:
        """Return (rows of freelists that are damaged, how many, pages that the dump lacks of slabs with free objects,
        slabs whose freelist leads into such a page). A row is (what, address of the slab, cache, object that holds the
        bad link, value).
        """

    def overwritten(self, progress: Progress = None) -> tuple[list[tuple[str, int, int, int, int, int, bytes]], int]:
        """Return (rows of overwritten red zones and poison, how many). A row is (zone, object, cache, first byte,
        bytes, expected value, what is there).
        """

    def at(self, address: int) -> Optional[tuple[int, int, Optional[int], int, int, int, int]]:
        """Return (object, bytes, cache, state, slot, address of the slab, its pages) where an object's slot holds the
        address.
        """

    def in_slab(self, address: int) -> Optional[tuple[int, int, Optional[int]]]:
        """Return (address of the slab, its pages, cache)."""

    def listed(self, cache: int, free: bool, start: int, most: int) -> tuple[list[int], Optional[int]]:
        """Return objects of a cache, at least ``most``, and where to go on."""

    def find_leaks(self, registers: list[int], unsure: bool = False, progress: Progress = None) -> None:
        """Find the objects that nothing holds. The states have the result.

        ``unsure``: the dump lacks too much to call any object leaked.
        """

    def leak_totals(self) -> dict[str, int]:
        """Return the totals of the search. This and what follows raise ValueError before ``find_leaks``."""

    def only_paged(self, address: int) -> bool:
        """Return whether the address lies in pages that ``find_leaks`` has found to be held by pointers to their struct
        page only: they are not a block of kmalloc.
        """

    def evidence(self) -> dict[int, tuple[int, int]]:
        """Return (objects, bytes) of each state, without large blocks that are not kmalloc's after ``find_leaks``."""

    def matching(
        self, patterns: list[tuple[int, list[tuple[int, int, int]]]]
    ) -> list[tuple[int, int, Optional[int], int, int, int]]:
        """Return the direct leaks that match a pattern (bytes at least, [(offset, lowest, highest)]): (address, bytes,
        cache, number of the pattern, kept objects, kept bytes).
        """

    def set_aside(self, addresses: list[int]) -> None:
        """Take objects, and what only they keep alive, out of the leaks. To be called once, after ``matching``."""

    def leak_groups(self) -> list[SlabGroup]:
        """Return the direct leaks by cache and stack."""

    def groups(self, wanted: list[int], untracked: bool) -> list[SlabGroup]:
        """Return the objects in these states by cache and stack. Without ``untracked``, only those with a track.

        After ``find_leaks``, large blocks that are not kmalloc's are left out.
        """

    def leaked(
        self, start: int, most: int
    ) -> tuple[list[tuple[int, int, Optional[int], bool, int, int]], Optional[int]]:
        """Return leaked objects: (address, bytes, cache, whether direct, kept, kept bytes); and where to go on."""

    def track(self, address: int, freed: bool) -> Optional[SlabTrack]:
        """Return who allocated, or last freed, the object that begins at the address."""

    def newest(
        self, freed: bool, pid: Optional[int], most: int
    ) -> tuple[int, int, list[tuple[int, int, Optional[int], SlabTrack]]]:
        """Return (objects, bytes, the newest rows) that a task allocated and are live, or freed. A row is (address,
        bytes, cache, track).
        """

    def holders(
        self, start: int, end: int, most: int, progress: Progress = None
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Return (where, value, state for the class of evidence) of words that point there, and how many there are."""

class KeptObject:
    """A slab object, and what it keeps alive, itself included: ``count`` objects of ``bytes``."""

    address: int
    size: int
    cache: Optional[int]  # None: a block of kmalloc that has its own pages
    count: int
    bytes: int
    leaked: bool

class CacheKeeps:
    """The bytes that the objects of a cache keep alive, themselves included: those that are held, and leaked ones."""

    cache: Optional[int]
    held: int
    leaked: int

class CacheSum:
    """Objects of one cache."""

    cache: Optional[int]
    count: int
    bytes: int

class SlabsRetained:
    """The dominator tree of a kernel's slab objects: an object keeps another one alive if every path from a root to the
    other one leads through it.
    """

    def __init__(self, slabs: Slabs, registers: list[int], unsure: bool = False, progress: Progress = None) -> None:
        """Search for all pointers, as ``Slabs.find_leaks`` does, and make the tree. The states of ``slabs`` stay."""

    read: int  # bytes read
    missing: tuple[int, int]  # pages that the dump lacks: of slabs, and others

    def by_cache(self) -> list[CacheKeeps]:
        """Return a row for each cache, and one for kmalloc's own pages. A byte counts once in each."""

    def largest(self, cache: Optional[int], most: int) -> list[KeptObject]:
        """Return the objects of a cache that keep most alive and are below no other object of it, the largest first."""

    def above(self, address: int, most: int) -> list[KeptObject]:
        """Return the object at the address and those that dominate it, from the inside out. [] if it is free."""

    def below(self, address: int, most: int) -> list[KeptObject]:
        """Return the largest objects that the object at the address dominates directly, the largest first."""

    def caches_of(self, address: int) -> list[CacheSum]:
        """Return what the object at the address keeps alive, itself included, by cache."""

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

class NamesLayout(TypedDict):
    """Offsets in struct dentry, and its hash table. See ``Names`` in engine/core/src/kernel/file_caches.rs."""

    hash: int
    inode: int
    superblock: int
    count: int
    table: int
    buckets: int

class InodesLayout(TypedDict):
    """Offsets in struct inode. See ``Inodes`` in engine/core/src/kernel/file_caches.rs."""

    list: int
    pages: int
    number: int

def count_names(
    memmap: Memmap, layout: NamesLayout, superblocks: list[int], progress: Progress = None
) -> tuple[list[tuple[int, int, int]], int, int, tuple[int, int]]:
    """Return ((names, negative ones, unused ones) for each superblock, names of other superblocks, buckets that the
    dump lacks, (chains that end early, the node where the first of them ends)). ``progress`` gets the number of names.
    """

def count_inodes(
    memmap: Memmap, layout: InodesLayout, heads: list[int], top: int, progress: Progress = None
) -> tuple[list[tuple[int, int, Optional[int]]], list[tuple[int, int, int, int]]]:
    """Return (inodes, cached pages, where the list ends early or None) for each list of inodes, and the files with most
    cached pages: (pages, inode, number, index of its list), the largest first. ``heads`` are the addresses of s_inodes.
    """

class Unpacker:
    """Unpacks a compressed file into an empty one, whose blocks of zeros become holes.

    ``form`` is "gzip", "xz", "zstd", "bzip2" or "lz4". A file of several streams, one after the other, is unpacked
    whole. See engine/core/src/unpack.rs. Raises OSError where a file cannot be opened.
    """

    def __init__(self, path: str, form: str, to: str) -> None: ...
    def step(self, bytes: int) -> tuple[int, int, int, bool, Optional[str]]:
        """Unpack about ``bytes`` more.

        Return (size so far with holes, size without holes, packed bytes that were read, whether this is the end, what
        is wrong with the packed file there or None). Raises OSError where the new file cannot be written.
        """

def unpacked_head(path: str, form: str, count: int) -> bytes:
    """Return the first ``count`` bytes of what is in a compressed file; fewer where it ends or is damaged.

    Raises OSError where the file cannot be opened.
    """

def take_picture(
    pid: int, path: str, filter: int, page: int, in_memory: bool, least: int
) -> tuple[
    float,
    int,
    int,
    int,
    list[tuple[int, int, Optional[bytes], list[tuple[int, bytes]]]],
    list[tuple[int, int, str, Optional[int], bytes, int, int]],
]:
    """Stop a live process, copy its memory into the empty file at ``path``, and let it run on.

    ``filter`` has the bits of coredump_filter (core(5)), ``page`` is the size of a page. In a file that is in memory,
    the offset of a byte is its address, and memory below ``least`` is left out. Other files get one mapping behind the
    other, from ``least`` on.

    Return (seconds for which it stood still, bytes that were read, bytes that could not be read, bytes of files that
    were left out because only the process itself can read them, threads, mappings). A thread is (tid, the signal that
    it was about to receive or 0, its siginfo_t or None, its registers by the kind of their note); the first thread of
    the process comes first. A mapping is (start, end, flags, offset in its file or None, path, bytes from its start in
    the picture, their offset there). See engine/core/src/live/mod.rs.

    Raises PermissionError, ProcessLookupError where it has ended, TimeoutError with the number of a thread that does
    not stop, and OSError.
    """
