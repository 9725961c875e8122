"""A mark: a value that says what a block is wherever it stands beside a pointer to the block."""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.graph.types.type_name import TypeName


@dataclass(frozen=True)
class Mark:
    """A value that says what a block is. The places are counted in words from the value.

    ``pointer``: where a pointer to the block stands; 0 if the value is the block's second word. ``beside`` must stand
    at ``beside_at``; 0: nothing is known. ``size`` is the size of the type, or None. ``counted`` is the name of the
    block if two counts of references stand before the value of that type. Then ``size`` is known.

    The block may be the buffer of a streambuf, whose vtable pointer the value is: then ``room`` is where the capacity
    stands, in elements of ``width`` bytes. A buffer has any size.
    """

    value: int
    name: TypeName
    pointer: int
    beside_at: int = 0
    beside: int = 0
    size: Optional[int] = None
    counted: Optional[TypeName] = None
    room: int = 0
    width: int = 0
