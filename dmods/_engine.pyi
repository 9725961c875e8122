"""The engine's Python face (engine/py). Addresses and sizes are unsigned 64-bit integers."""

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
