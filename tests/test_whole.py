"""A fixture's file is checked before it is kept: a cut dump is recognised, and made again."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from fixtures import _cache, kernel, whole
from fixtures._cache import NotWhole
from tests.corekit import Crash, Memory, elf64_core, note


def cut(path: Path, to: Path, by: int) -> Path:
    to.write_bytes(path.read_bytes()[:-by])
    return to


@pytest.mark.quick("1621")
@pytest.mark.parametrize("by", [1, 1621])
def test_a_core_that_is_shorter_than_its_headers_say(crashed: Crash, gcored: Crash, tmp_path: Path, by: int) -> None:
    for made in (crashed, gcored):
        whole.elf_core(made.core)
        with pytest.raises(NotWhole, match=rf"{by} less than its program headers say"):
            whole.elf_core(cut(made.core, tmp_path / "core", _behind(made.core) + by))


def _behind(core: Path) -> int:
    """Return how many bytes lie behind the last segment, where gdb puts section headers."""
    data = core.read_bytes()
    (at,) = struct.unpack_from("<Q", data, 32)
    entry, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, at + number * entry) for number in range(count)]
    return len(data) - max(offset + size for _kind, _flags, offset, _, _, size in headers)


@pytest.mark.parametrize("xnum", [False, True])
def test_every_part_of_a_core(tmp_path: Path, xnum: bool) -> None:
    memory = [Memory(0x1000, b"x" * 5000), Memory(0x5000, b"y" * 100)]
    data = elf64_core(memory, note(1, b"z" * 100), xnum=xnum)
    path = tmp_path / "core"
    path.write_bytes(data)
    whole.elf_core(path)
    # Every length near a header or an end, and some between.
    sizes = sorted({*range(len(data) - 5300), *range(0, len(data), 61), *range(len(data) - 110, len(data))})
    assert len(sizes) > 110
    for size in sizes:
        path.write_bytes(data[:size])
        with pytest.raises(NotWhole):
            whole.elf_core(path)


def test_what_is_no_core_at_all(crashed: Crash, tmp_path: Path) -> None:
    with pytest.raises(NotWhole, match="not a core"):
        whole.elf_core(crashed.program)
    path = tmp_path / "core"
    path.write_bytes(elf64_core([], note(1, b"z")))
    with pytest.raises(NotWhole, match="no PT_LOAD"):
        whole.elf_core(path)
    data = bytearray(elf64_core([Memory(0x1000, b"x")], note(1, b"z" * 100)))
    struct.pack_into("<I", data, data.index(b"CORE") - 8, 101)  # n_descsz
    path.write_bytes(data)
    with pytest.raises(NotWhole, match="longer than its segment"):
        whole.elf_core(path)


def test_a_kdump_that_is_cut(tmp_path: Path) -> None:
    dump = kernel.guest("6.1", crash="null").kdump
    whole.dump(dump)
    size = dump.stat().st_size
    for by, said in ((1, "1 less than its page descriptors say"), (size - 5000, "within its headers")):
        with pytest.raises(NotWhole, match=said):
            whole.dump(cut(dump, tmp_path / "vmcore", by))


def test_a_flattened_kdump_that_is_cut(tmp_path: Path) -> None:
    """By makedumpfile's IMPLEMENTATION, a header of 4096 bytes comes first, then records.

    The last record is (-1, -1).
    """
    data = b"makedumpfile".ljust(4096, b"\0") + struct.pack(">qq", 0, 100) + bytes(100) + struct.pack(">qq", -1, -1)
    path = tmp_path / "vmcore"
    path.write_bytes(data)
    whole.dump(path)
    for size in (4096, 4100, 4150, len(data) - 16, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(NotWhole):
            whole.dump(path)


@pytest.mark.parametrize(
    "error",
    [NotWhole("cut at 1"), subprocess.CalledProcessError(100, "apt-get"), ConnectionResetError("QMP"), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_whole_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    calls: list[list[str]] = []

    def maker(work: Path) -> None:
        calls.append([path.name for path in work.iterdir()])
        (work / "made").write_text(str(len(calls)))
        if len(calls) < _cache.TRIES:
            raise error

    made = _cache.make(tmp_path / "entry", "an entry", maker)
    assert (made / "made").read_text() == str(_cache.TRIES)
    assert calls == [[]] * _cache.TRIES  # each time from nothing
    assert f"making an entry again: {error}" in capsys.readouterr().err


def test_what_is_never_whole_is_an_error_that_says_what(tmp_path: Path) -> None:
    def maker(work: Path) -> None:
        raise NotWhole("vmcore is cut")

    with pytest.raises(NotWhole, match=r"made a guest 3 times, and it was not whole: vmcore is cut"):
        _cache.make(tmp_path / "entry", "a guest", maker)
    assert not (tmp_path / "entry").exists()
