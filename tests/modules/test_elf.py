"""ELF headers, compared with what pyelftools reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE, ENUM_E_TYPE, ENUM_P_TYPE_BASE

from dmods.errors import CorruptError, TruncatedError
from dmods.modules import elf
from tests.corekit import Crash


def same_as_pyelftools(path: Path) -> None:
    data = path.read_bytes()
    ours = elf.parse(lambda offset, size: data[offset : offset + size], str(path))
    with path.open("rb") as file:
        theirs = ELFFile(file)
        assert ours.type == ENUM_E_TYPE[theirs["e_type"]]
        assert ours.machine == ENUM_E_MACHINE[theirs["e_machine"]]
        assert (ours.word * 8, ours.little_endian) == (theirs.elfclass, theirs.little_endian)
        assert ours.entry == theirs["e_entry"]
        assert ours.promised == theirs.num_segments()
        for mine, other in zip(ours.segments, theirs.iter_segments()):
            assert mine.type == ENUM_P_TYPE_BASE[other["p_type"]]
            for name in elf.Segment._fields[1:]:
                assert getattr(mine, name) == other[f"p_{name}"]


@pytest.mark.parametrize("fixture", ["crashed", "gcored"])
def test_a_core(fixture: str, request: pytest.FixtureRequest) -> None:
    crash: Crash = request.getfixturevalue(fixture)
    same_as_pyelftools(crash.core)


def test_a_program() -> None:
    same_as_pyelftools(Path(sys.executable).resolve())


@pytest.mark.parametrize(("word", "order"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_every_word_size_and_byte_order(word: int, order: int, tmp_path: Path) -> None:
    """The fields of the header all differ, and there is one program header of the same kind."""
    little: Literal["little", "big"] = "little" if order == 1 else "big"
    wide = 8 if word == 2 else 4
    head, segment = (64, 56) if word == 2 else (52, 32)
    ident = b"\x7fELF" + bytes((word, order, 1)) + bytes(9)
    fields = [(2, 2), (21, 2), (1, 4), (0x1234560, wide), (head, wide), (0, wide), (5, 4), (head, 2), (segment, 2)]
    fields += [(1, 2), (0, 2), (0, 2), (0, 2)]
    places = [(number * 0x1000, wide) for number in range(1, 6)]
    entry = [(1, 4), (6, 4), *places, (0x10, 8)] if word == 2 else [(1, 4), *places, (6, 4), (0x10, 4)]
    path = tmp_path / "file"
    path.write_bytes(ident + b"".join(value.to_bytes(size, little) for value, size in [*fields, *entry]))
    same_as_pyelftools(path)


@pytest.mark.parametrize("length", [0, 3, 4, 5, 6, 16, 40, 63])
def test_a_cut_header(length: int, crashed: Crash) -> None:
    with crashed.core.open("rb") as file:
        data = file.read(length)
    with pytest.raises((CorruptError, TruncatedError)):
        elf.parse(lambda offset, size: data[offset : offset + size], "cut")
