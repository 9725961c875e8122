"""Arrays of NumPy that were lost. np.array() keeps records for later, and does not clear them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Optional

import pytest

from dmods._engine import Image
from dmods.heap.block import DIRECT
from dmods.heap.heap import find_heap
from dmods.process.arch import X86_64
from dmods.runtimes.python.numpy_records import old_records
from dmods.target import Module, Symbol
from fixtures import pythons

_DATA = 0x7F0000001000  # of NumPy's library: five records, and how many of them are kept
_RECORD = 0x5000


@pytest.mark.thorough("it needs Debian's Pythons and NumPy")
@pytest.mark.parametrize(
    ("version", "numpy"), [("3.9", "1.21.6"), ("3.11", "1.26.4"), ("3.13", "2.2.6"), ("3.15", "2.5.5")]
)
def test_lost_arrays_are_found_and_no_other(version: str, numpy: str) -> None:
    made = pythons.core(version, "numpy_arrays", packages=[f"numpy=={numpy}"])
    truth = made.truth()
    assert truth["numpy"] == numpy
    lost, held = ({at ^ pythons.HIDDEN for at in truth[name]} for name in ("lost", "held"))
    assert len(lost) == len(held) == 20
    target = made.target()
    heap = find_heap(target)
    found = {block.address for block in heap.blocks(DIRECT)}  # NumPy 1.21 itself has lost 19 more in Python 3.9
    assert found & (lost | held) == lost


@dataclass
class Made:
    """A Target with the parts that `old_records` uses."""

    words: tuple[int, ...]
    kept: int
    names: tuple[str, ...] = ("_coercion_cache_cache", "_coercion_cache_num")
    file: str = "_multiarray_umath.cpython-313-x86_64-linux-gnu.so"
    arch: Any = X86_64

    def image(self) -> Image:
        return Image([], [], [(_DATA, struct.pack(f"<{len(self.words)}Qi", *self.words, self.kept))])

    def modules(self) -> list[Module]:
        return [Module(f"/lib/{self.file}", _DATA, _DATA + 4096, 0)]

    def lookup(self, name: str) -> Optional[Symbol]:
        module, _, symbol = name.partition("`")
        assert module == self.file
        places = dict(zip(("_coercion_cache_cache", "_coercion_cache_num"), (_DATA, _DATA + 8 * len(self.words))))
        return Symbol(symbol, places[symbol], 0, module) if symbol in self.names else None


def records(*, kept: int = 2, **fields: Any) -> list[tuple[int, int]]:
    target: Any = Made(tuple(_RECORD + 32 * number for number in range(5)), kept, **fields)
    return list(old_records(target))


def test_what_is_kept_in_records_for_later_holds_nothing() -> None:
    first, second = (_RECORD, _RECORD + 24), (_RECORD + 32, _RECORD + 56)
    assert records() == [first, second, (_DATA + 16, _DATA + 40)]
    assert records(kept=0) == [(_DATA, _DATA + 40)]
    assert len(records(kept=5)) == 6


def test_no_records_where_none_can_be() -> None:
    assert records(kept=-1) == records(kept=6) == []
    assert records(names=("_coercion_cache_cache",)) == records(names=()) == []
    assert records(file="_multiarray_tests.so") == []
    target: Any = Made((_RECORD,), 2)  # the dump ends in the middle of them
    assert list(old_records(target)) == []
