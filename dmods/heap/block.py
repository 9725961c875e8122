"""A block of the heap, as commands see it. Allocators speak of blocks, too, so its definition is theirs."""

from dmods.allocators.block import DIRECT, FREE, INDIRECT, LIVE, OWN, Block, block_of_row
from dmods.allocators.numbers import allocator_name

__all__ = ["DIRECT", "FREE", "INDIRECT", "LIVE", "OWN", "Block", "allocator_name", "block_of_row"]
