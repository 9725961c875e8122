"""The engine's Python face (engine/py). Addresses and sizes are unsigned 64-bit integers."""

__version__: str

class Image:
    """The memory of a process: immutable, readable from any thread."""

    def __init__(
        self,
        files: list[str],
        segments: list[tuple[int, int, int, int]],
        blobs: list[tuple[int, bytes]],
    ) -> None:
        """``segments`` are (address, size, index into files, offset in that file); ``blobs`` are (address, bytes).

        Overlaps are resolved in the order given: segments before blobs, first before later. A file shorter than a segment
        claims makes the rest of that segment unreadable, no error. Raises OSError when a file cannot be opened.
        """

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes: fewer where memory ends or a byte is not in the dump, b"" when ``address`` itself is not."""

    def covered(self, start: int, end: int) -> list[tuple[int, int]]:
        """The (start, end) parts of the range that have a source, merged where adjacent."""

class Symbols:
    """The functions and objects of one ELF file, by address and by name. Addresses are the file's own (add Module.bias)."""

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
