"""The table of offsets at the start of _PyRuntime, as each release has it (Include/internal/pycore_debug_offsets.h)."""

from __future__ import annotations

import struct

import pytest

from dmods.runtimes.python import COOKIE
from dmods.runtimes.python.debug_offsets import NEWEST, from_table
from dmods.runtimes.python.layout import Refused
from fixtures import pythons

# The words behind the cookie in _PyRuntime of Debian's python3.15 3.15.2-1, by structure.
_TABLE = {
    "head": (0x030F02F0, 0),
    "runtime": (346568, 912, 936),
    "interpreter": (226240, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584, 16, 7736, 0, 7752, 7744, 7944, 0),
    "thread": (888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36, 40, 136, 288),
    "exception": (0,),
    "frame": (88, 8, 0, 56, 80, 74, 64, 0),
    "code": (216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0),
    "object": (16, 8),
    "type": (424, 24, 88, 168, 32, 288),
    "class": (944, 888),
    "tuple": (40, 32, 16),
    "list": (40, 24, 16),
    "set": (200, 24, 40, 32),
    "dict": (48, 32, 40),
    "float": (24, 16),
    "int": (32, 16, 24),
    "bytes": (40, 16, 32),
    "str": (64, 32, 16, 40, 56),
    "gc": (176, 112, 120, 1120, 104),
    "generator": (160, 24, 72, 67),
}


def _table(**changed: tuple[int, ...]) -> bytes:
    words = [word for row in {**_TABLE, **changed}.values() for word in row]
    return COOKIE + struct.pack(f"<{len(words)}Q", *words)


def test_offsets_are_those_of_the_headers() -> None:
    layout = from_table(_table())
    assert layout.name == "CPython 3.15.2"
    # Include/cpython/pystate.h and code.h, Include/internal/pycore_interpframe_structs.h
    assert (layout.frame.at, layout.native_thread_id, layout.chunk) == ((72,), 184, 256)
    assert (layout.frame.previous, layout.frame.last, layout.frame.owner) == (8, 56, 74)
    assert (layout.code.filename, layout.code.qualname, layout.code.start) == (112, 128, 208)
    assert layout.gil is not None
    assert (layout.gil.locked, layout.gil.holder) == (16, 8)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"head": (0x031000F0, 0)}, r"CPython 3\.16\.0: dmods reads 3\.9 to 3\.15"),
        ({"head": (0x030F02F0, 1)}, "free-threaded"),
        ({"dict": (48, 24, 40)}, "ma_keys of a dict is at 24, not at 32"),
        ({"class": (944, 880)}, "ht_cached_keys of a class is at 880, not at 888"),
        ({"generator": (160, 24, 72, 66)}, "gi_frame_state of a generator is elsewhere"),
        ({"frame": (88, 8, 0, 96, 80, 74, 64, 0)}, "damaged"),
        ({"thread": (1 << 40, *_TABLE["thread"][1:])}, "damaged"),
    ],
)
def test_a_table_that_says_something_else_is_refused(changed: dict[str, tuple[int, ...]], why: str) -> None:
    with pytest.raises(Refused, match=why):
        from_table(_table(**changed))


@pytest.mark.parametrize("length", range(24, len(_table()), 104))
def test_a_table_that_is_cut_is_refused(length: int) -> None:
    with pytest.raises(Refused, match="not in the dump"):
        from_table(_table()[:length])


def test_the_newest_release_is_the_newest_that_is_tested() -> None:
    assert f"{NEWEST[0]}.{NEWEST[1]}" == pythons.VERSIONS[-1]
