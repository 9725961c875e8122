"""The rows of a table of types: how many blocks each has, of what sizes, and how sure their type is."""

from __future__ import annotations

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
