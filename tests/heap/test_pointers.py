"""The engine's search for pointers, compared with a loop over every word."""

from __future__ import annotations

import random
import struct

import pytest

from dmods._engine import Image, find_pointers


@pytest.mark.parametrize("word", [4, 8])
def test_many_places_in_one_pass(word: int) -> None:
    dice = random.Random(1)
    base, count = 0x10000, 300_000  # more than the engine reads at a time
    values = [dice.randrange(1000) for _ in range(count)]
    image = Image([], [], [(base, struct.pack(f"<{count}{'Q' if word == 8 else 'I'}", *values))])
    wanted = [(0, 1), (10, 12), (12, 15), (900, 1000), (5000, 6000)]
    ranges = [(base, base + word * 1000), (base + word * 2000, base + word * count)]
    inside = [index for index in range(count) if not 1000 <= index < 2000]
    for most in (0, 1, 7, count):
        expected = [[base + word * i for i in inside if low <= values[i] < high][:most] for low, high in wanted]
        assert find_pointers(image, ranges, word, wanted, most) == expected
    assert find_pointers(image, ranges, word, [], 7) == []


def test_places_in_disorder_are_refused() -> None:
    image = Image([], [], [(0x1000, bytes(64))])
    for wanted in ([(5, 6), (1, 2)], [(1, 5), (4, 6)]):
        with pytest.raises(ValueError, match="overlap"):
            find_pointers(image, [(0x1000, 0x1040)], 8, wanted, 1)


def test_what_the_progress_raises_ends_it() -> None:
    """Ctrl-C does the same."""
    image = Image([], [], [(0, bytes(64 << 20))])

    def told(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # 64 GB; the search calls the progress twenty times a second
        find_pointers(image, [(0, 64 << 20)] * 1000, 8, [(1, 2)], 1, told)
