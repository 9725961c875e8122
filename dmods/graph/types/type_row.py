"""The rows of a table of types: how many blocks each has, how sure their type is, and a short id.

An id is a letter and the first digits of a 64-bit number, as many as tell the types apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from dmods import _engine
from dmods.base.dataclass import dataclass, field, replace
from dmods.graph.types.type_name import CONFIDENCES, TypeName


@dataclass(frozen=True)
class Amount:
    """A number of blocks, and their usable bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.count + other.count, self.bytes + other.bytes)


NOTHING = Amount()
_LEAST, _ALL = 6, 17  # characters of an id, with the letter


@dataclass
class TypeRow:
    """The blocks of one type or shape. `id` is short; `walk buf --shape` takes it.

    `least` and `most` are usable sizes. `first` is the block with the lowest address, `first_leaked` of those that
    leaked. The confidence of `name` is the weakest of all its blocks; `sure` has the live and the leaked blocks of each
    confidence.
    """

    name: TypeName
    id: str
    kinds: list[int] = field(default_factory=list)
    types: list[tuple[int, bool]] = field(default_factory=list)  # of debug information; and whether arrays
    live: Amount = NOTHING
    leaked: Amount = NOTHING
    own: Amount = NOTHING
    least: int = 0
    most: int = 0
    first: Optional[int] = None
    first_leaked: Optional[int] = None
    sure: dict[str, tuple[int, int]] = field(default_factory=dict)
    pooled: bool = False  # objects in blocks that hold many: they are no blocks of their own

    @property
    def total(self) -> Amount:
        """Return all blocks in use by the program."""
        return self.live + self.leaked

    def add(self, sums: _engine.SumRow, confidence: str, asked: tuple[int, int] = (0, 0)) -> None:
        """Add the blocks of a kind or a type that is there. Records prove the type of ``asked``: (live, leaked)."""
        for sure, more in ((confidence, (sums.live[0] - asked[0], sums.leaked[0] - asked[1])), ("proven", asked)):
            if any(more) or (sure == confidence and not any(asked)):
                live, leaked = self.sure.get(sure, (0, 0))
                self.sure[sure] = live + more[0], leaked + more[1]
        self.name = replace(self.name, confidence=max(self.sure, key=CONFIDENCES.index))
        self.live += Amount(*sums.live)
        if sums.leaked[0]:
            self.leaked += Amount(*sums.leaked)
        if sums.own[0]:
            self.own += Amount(*sums.own)
        self.least, self.most = min(self.least, sums.least), max(self.most, sums.most)
        self.first = _lower(self.first, sums.first)
        self.first_leaked = _lower(self.first_leaked, sums.first_leaked)


def _lower(a: Optional[int], b: Optional[int]) -> Optional[int]:
    return min((each for each in (a, b) if each is not None), default=None)


def kind_id(number: int) -> str:
    """Return the whole id of a kind."""
    return f"s{number:016x}"


def type_id(text: str) -> str:
    """Return the whole id of a type from debug information."""
    from hashlib import blake2b  # it brings OpenSSL: 3 ms

    return f"t{blake2b(text.encode(), digest_size=8).hexdigest()}"


def short_length(names: Iterable[str]) -> int:
    """Return how many characters tell all of the names apart."""
    different = set(names)
    lengths = range(_LEAST, _ALL)
    return next((n for n in lengths if len({name[:n] for name in different}) == len(different)), _ALL)


def named_so(short: str, names: Iterable[str]) -> set[str]:
    """Return the name that `short` means, the whole or its beginning; empty where it means none, or several."""
    found = {name for name in names if name.startswith(short)} if len(short) >= _LEAST else set()
    return found if len(found) == 1 else set()
