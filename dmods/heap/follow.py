"""Which words of a process count as pointers, besides plain ones: multiples of the word size that hold an address."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.named_tuple import NamedTuple

# x86-64 gives a process 47 bits of addresses, AArch64 gives it 48. What lies above them may be a tag.
_ADDRESS_BITS = (48, 47)


class Follow(NamedTuple):
    """Which words are followed.

    ``unaligned``: a pointer may begin at any byte of a root or a block. ``tagged``: it may have a tag above the bits of
    an address. ``stale_links``: a free list's link in a block that nobody wrote to since is no pointer.
    """

    unaligned: bool = False
    tagged: bool = False
    stale_links: bool = False

    @property
    def odd(self) -> bool:
        """Return whether there are further pointers than plain ones."""
        return self.unaligned or self.tagged


PLAIN = Follow()


def without_tag(value: int) -> Iterator[int]:
    """Yield the addresses that the value may have below a tag."""
    for bits in _ADDRESS_BITS:
        address = value % (1 << bits)
        if address != value:
            yield address
