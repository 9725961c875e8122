"""The data that a recorder of allocations left in a process: the auditor, or an allocator that profiles itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Callable, Optional

from dmods import _engine
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple


class RecordedThread(NamedTuple):
    """A thread as the recorder knew it. The thread may have exited long ago."""

    tid: Optional[int]
    name: Optional[str] = None
    pthread: Optional[int] = None  # pthread_self()


NOBODY = RecordedThread(None)


class Guards(NamedTuple):
    """The patterns that a recorder writes around blocks and into freed blocks, to make misuse visible."""

    redzone: int  # bytes behind the requested end of a live block
    redzone_byte: int
    freed_word: int  # fills freed blocks: 32 bits, little-endian
    was_filled: Callable[[int], bool]  # whether a free filled the block at an address, and nobody has used it since


class LastWords(NamedTuple):
    """Why the recorder stopped the program.

    ``kind`` is "overrun", "double-free" or "invalid-free". ``address`` is what was to be freed. ``block`` begins at or
    before it: None where no block is known. ``requested`` and ``offset`` are known for an overrun. ``thread`` and
    ``stack`` are numbers in the recording.
    """

    kind: str
    text: str
    address: int
    block: Optional[int]
    requested: Optional[int]
    offset: Optional[int]
    thread: int
    stack: int

    def concerns(self, address: int) -> bool:
        """Return whether a block or pointer that begins at the address is the one in question."""
        return address in (self.address, self.block)


@dataclass(frozen=True)
class Recording:
    """The data that one recorder left in the process. `load` reads it when it is first asked for.

    A row's thread is an index into `threads`; the first entry stands for an unknown thread. `own` is the recorder's
    memory: it is no leak and holds no block. `scratch` are the recorder's words in memory of others (thread-local
    variables); they hold no block either. `mean` is the average number of bytes between two samples, 0 where every
    block was recorded. `epoch` converts a record's time (CLOCK_MONOTONIC, ns) to CLOCK_REALTIME; it is None where that
    is not known. `log` says whether the recorder keeps transactions. `structures` are addresses of the recorder's own
    blocks in the allocator; the blocks that they lead to are its own as well. `guards` is None where the recorder
    writes none. `clock` is (ns at time 0, shift, numerator, denominator): how the recorder's times became ns.

    ``last_words`` say why the recorder stopped the program.

    ``allocator`` is the allocator that records its own blocks. `load_usable` then reads the same records with usable
    sizes, which its own profiles count. ``unbiased``: its profiles are corrected for the mix of sizes of a stack.
    """

    name: str
    load: Callable[[], _engine.Records]
    threads: Sequence[RecordedThread]
    own: Sequence[tuple[int, int]] = ()
    scratch: Sequence[tuple[int, int]] = ()
    mean: int = 0
    epoch: Optional[int] = None
    log: bool = False
    structures: Sequence[int] = ()
    guards: Optional[Guards] = None
    clock: tuple[int, int, int, int] = (0, 0, 1, 1)
    notes: list[str] = field(default_factory=list)
    allocator: Optional[str] = None
    unbiased: bool = False
    load_usable: Optional[Callable[[], _engine.Records]] = None
    last_words: Optional[LastWords] = None

    @cached_property
    def rows(self) -> _engine.Records:
        """Return the engine's records, loaded once."""
        return self.load()

    @cached_property
    def sized(self) -> _engine.Records:
        """Return the records with the sizes that the recorder's own profiles count, loaded once."""
        return self.load_usable() if self.load_usable is not None else self.rows

    def thread(self, number: int) -> RecordedThread:
        """Return the recorded thread of that number."""
        return self.threads[number] if number < len(self.threads) else NOBODY

    def threads_called(self, text: str, number: Optional[int]) -> list[int]:
        """Return the indices of the threads with this tid, `pthread_t` or name."""
        return [
            index
            for index, thread in enumerate(self.threads)
            if index and ((number is not None and number in (thread.tid, thread.pthread)) or thread.name == text)
        ]
