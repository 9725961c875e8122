"""A suspect: something that has much of the memory, as a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.finding import CERTAIN, LIKELY, POSSIBLE, SERIOUS, WASTE, Evidence, Finding

WORTH = 16 << 20
FEW_WORTH = 64 << 20
SHARE_OF_PROCESS = 0.1
RESERVED = 0.9  # of a block: so many zeros, and it is not filled

#: What to do about each kind of suspect.
_REMEDIES = {
    "held": "compare with a later core (`growth`). If it grows, bound it, or drop what is old",
    "type": "find who makes so many of them: `dmods run -- PROG` records who allocates",
    "size": "find who makes so many of them: `dmods run -- PROG` records who allocates",
    "leaked": "free what the caller allocates; `dmods run -- PROG` records the callers",
    "free": "malloc_stats says which arenas hold it, and how to give it back",
    "goroutines": "let them end: cancel what they wait for, or close the channel",
}
#: What nobody has shown to be wrong: somebody still has it.
HELD = ("held", "type", "size")
_CONFIDENCE = {"leaked": CERTAIN, "free": CERTAIN, **dict.fromkeys(HELD, POSSIBLE)}


@dataclass(frozen=True)
class Suspect(Finding):
    """Something that has much of the memory: ``weight`` bytes.

    ``kind`` is "held", "type", "size", "leaked", "free" or "goroutines". ``subject`` is the name of the root that holds
    it, or "". ``share`` is a part of the blocks in use; of free memory, a part of the heap. ``share_of_process`` is a
    part of the process's own memory. Both are None for goroutines. ``scope`` has the blocks where they have one owner.
    ``public`` is the sentence without texts of the blocks.
    """

    count: Optional[int] = None
    share: Optional[float] = None
    share_of_process: Optional[float] = None
    zeros: Optional[float] = None  # of a single block that is most of it: the part that is zeros
    is_few: bool = False  # a few blocks have most of it: buffers or tables
    scope: Optional[tuple[str, int]] = None
    public: str = ""

    @property
    def address(self) -> Optional[int]:
        """Return the outermost block that keeps so much alive, or one of the blocks, or None."""
        return self.evidence[0].address if self.evidence else None

    @property
    def point(self) -> Optional[int]:
        """Return the block where the memory comes together, or None."""
        return self.evidence[1].address if len(self.evidence) > 1 else None

    @property
    def is_reserved(self) -> bool:
        """Return whether it is one block that the program has hardly filled."""
        return self.zeros is not None and self.zeros >= RESERVED

    def least(self, asked: Optional[int] = None) -> int:
        """Return how many bytes such a suspect has at least. ``asked`` is the user's own limit."""
        return asked if asked is not None else FEW_WORTH if self.is_few else WORTH

    def is_worth(self, asked: Optional[int] = None) -> bool:
        """Return whether so much memory is worth somebody's time. ``asked`` is the user's own limit, in bytes."""
        if self.is_reserved:
            return False
        least = self.least(asked)
        return self.weight >= least and (self.share_of_process is None or self.share_of_process >= SHARE_OF_PROCESS)


class Words(NamedTuple):
    """A part of a sentence: words that anybody may read, and then texts of the program's own blocks."""

    public: str
    texts: str = ""


def suspect(
    kind: str,
    sentence: str,
    size: int,
    next_: Sequence[str],
    *,
    count: Optional[int] = None,
    shares: tuple[Optional[float], Optional[float]] = (None, None),
    evidence: Sequence[Evidence] = (),
    root: str = "",
    zeros: Optional[float] = None,
    few: bool = False,
    scope: Optional[tuple[str, int]] = None,
    behind: Sequence[Words] = (),
) -> Suspect:
    """Return the finding. ``shares`` are those of the heap and of the process. ``behind`` ends the sentence."""
    return Suspect(
        kind,
        SERIOUS if kind == "leaked" else WASTE,
        _CONFIDENCE.get(kind, LIKELY),
        sentence + "".join(each.public + each.texts for each in behind),
        _REMEDIES[kind],
        tuple(evidence),
        tuple(next_),
        weight=size,
        subject=root,
        remedy_confidence=POSSIBLE,
        count=count,
        share=shares[0],
        share_of_process=shares[1],
        zeros=zeros,
        is_few=few,
        scope=scope,
        public=sentence + "".join(each.public for each in behind),
    )
