"""The data that every rule about false pointers may use, and the scans that the rules share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Callable, Optional

from dmods._engine import find_pointers
from dmods.base.dataclass import dataclass
from dmods.base.ranges import Ranges
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import known_stack
from dmods.target import Target

LOW_END = 1 << 32  # below it, ordinary numbers are addresses, too
WINDOW = 1 << 20  # bytes that are read at once
_MOST_LOOKALIKES = 1 << 20  # words that are looked at for each number or range of numbers


def _any_block(_value: int) -> Optional[int]:
    return 0


@dataclass(frozen=True)
class Search:
    """The searched memory: `roots` are the root ranges, `owned` is the memory of the allocators.

    `block_of` returns the address of the block that an address leads into, or None.
    """

    target: Target
    owned: Ranges
    roots: Sequence[tuple[int, int]]
    block_of: Callable[[int], Optional[int]] = _any_block

    @cached_property
    def within_roots(self) -> Ranges:
        """Return the roots as a set."""
        return Ranges(self.roots)

    @cached_property
    def low(self) -> Ranges:
        """Return the part of the allocators' memory whose addresses are also ordinary numbers."""
        return Ranges(self.owned.within(0, LOW_END))

    def roots_in(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the parts of the ranges that are roots."""
        return [part for start, end in ranges for part in self.within_roots.within(start, end)]

    def leads_inside(self, value: int) -> bool:
        """Return whether the value leads into a block, but not to its beginning. Pointers to a beginning are kept."""
        block = self.block_of(value)
        return block is not None and block != value

    def lookalikes(
        self, ranges: Iterable[tuple[int, int]], values: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Yield (address, value) of the words in `ranges` whose value is in `values`: disjoint ranges, in order."""
        image, word = self.target.image(), self.target.arch.word
        for addresses in find_pointers(image, list(ranges), word, list(values), _MOST_LOOKALIKES):
            for address in addresses:
                yield address, self.word(address)

    def words_equal(self, number: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the words in `ranges` that are the number."""
        for at, _value in self.lookalikes(ranges, [(number, number + 1)]):
            yield self.word_range(at)

    def word(self, address: int) -> int:
        """Return the word at the address, 0 where the dump has none."""
        return int.from_bytes(self.target.image().read(address, self.target.arch.word), "little")

    def word_range(self, address: int) -> tuple[int, int]:
        """Return the range of the word at the address."""
        return address, address + self.target.arch.word

    def windows(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of the ranges piece by piece, each with the address of its first whole word."""
        word, image = self.target.arch.word, self.target.image()
        for range_ in ranges:
            for start, end in image.covered(*range_):
                for at in range(start + -start % word, end, WINDOW):
                    yield at, image.read(at, min(WINDOW, end - at))

    def module_data(self, name: str = "") -> Iterator[tuple[int, int]]:
        """Yield the writable parts of the modules whose name begins with `name`, a regular expression."""
        for module in self.target.modules():
            if re.match(name, module.name):
                yield from ((piece.start, piece.end) for piece in module.ranges if "w" in piece.flags)

    @cached_property
    def stacks(self) -> Ranges:
        """Return the memory from each thread's stack pointer to the end of its stack, where glibc or the kernel knows
        it."""
        return Ranges(running_stacks(self.target))


def running_stacks(target: Target) -> Iterator[tuple[int, int]]:
    """Yield each thread's stack pointer and the end of its stack, if glibc or the kernel made it and it is dumped."""
    for thread in target.threads():
        bounds, sp = known_stack(target, thread), thread.registers.get(target.arch.sp, 0)
        mapping = mapping_at(target, sp) if bounds is not None else None
        if bounds is not None and mapping is not None and mapping.dumped:
            yield sp, bounds[1]


def above_stack_pointers(target: Target) -> Iterator[tuple[int, int]]:
    """Yield each thread's stack pointer and the end of its mapping, if it is dumped. More than the stack may lie there,
    but all frames of a stack that the program made do, too."""
    for thread in target.threads():
        sp = thread.registers.get(target.arch.sp, 0)
        mapping = mapping_at(target, sp)
        if mapping is not None and mapping.dumped:
            yield sp, mapping.end
