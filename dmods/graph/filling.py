"""Measure how much of a block the program has filled."""

from __future__ import annotations

from typing import Optional

from dmods.errors import FaultError
from dmods.heap.block import Block
from dmods.target import Target

_PIECE = 1 << 12
_PIECES = 256  # of a block that are looked at, at equal distances: a large block takes no longer than a small one


def zero_part(target: Target, block: Block) -> Optional[float]:
    """Return which part of a block's pieces of 4 KB is all zeros, from 0 to 1; None where too few are in the dump."""
    whole = block.size // _PIECE
    looked_at = min(whole, _PIECES)
    found = zeros = 0
    for number in range(looked_at):
        try:
            data = target.read(block.address + whole * number // looked_at * _PIECE, _PIECE)
        except FaultError:
            continue
        found += 1
        zeros += not any(data)
    return zeros / found if 2 * found > looked_at else None
