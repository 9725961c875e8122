"""Compressed dumps: each command answers as on the plain dump, and the copy is safe, bounded, and made once."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import pytest

from dmods.corefile import packed, unpacked
from dmods.errors import UserError
from fixtures import answers
from fixtures.cores import CoreSet, take
from fixtures.packing import FORMS


@pytest.fixture(scope="module")
def small() -> CoreSet:
    return take("corrupt", mode="overrun")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the copies, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dmods" / "cores"


def packed_core(small: CoreSet, folder: Path, form: str) -> Path:
    path = folder / f"core.{form}"
    path.write_bytes(FORMS[form](small.core.read_bytes()))
    return path


@pytest.mark.quick("zstd", "xz")
@pytest.mark.parametrize("form", FORMS)
def test_the_same_answers(form: str, tmp_path: Path, small: CoreSet, cache: Path) -> None:
    path = packed_core(small, tmp_path, form)
    for number, name in enumerate(["findleaks", "panicinfo", "maps"]):
        plain, found = answers.dmods(name, small.core), answers.dmods(name, path)
        assert (found.returncode, found.stdout) == (plain.returncode, plain.stdout)
        notes = [line for line in found.stderr.splitlines() if "is compressed" in line]
        assert len(notes) == (number == 0)  # the next commands find the copy
    (copy,) = cache.glob("*.core")
    assert copy.read_bytes() == small.core.read_bytes()
    assert copy.stat().st_mtime == path.stat().st_mtime
    assert {stat.S_IMODE(each.stat().st_mode) for each in (cache, cache.parent)} == {0o700}
    assert {stat.S_IMODE(each.stat().st_mode) for each in cache.iterdir()} == {0o600}


@pytest.mark.parametrize("form", FORMS)
def test_streams_zeros_and_cuts(form: str, tmp_path: Path) -> None:
    """A file of two streams is unpacked whole; zeros take no room; of a cut file the beginning is kept."""
    first, second = os.urandom(300_000), os.urandom(100_000)
    data = first + bytes(16 << 20) + second
    path, to = tmp_path / "file", tmp_path / "plain"
    whole = FORMS[form](data[:2_000_000]) + FORMS[form](data[2_000_000:])
    path.write_bytes(whole)
    to.touch()
    seen: list[int] = []
    made = packed.unpack(str(path), form, str(to), packed.Limits(1 << 40, 1 << 40), seen.append)
    assert (made.size, made.damage, made.full) == (len(data), None, False)
    assert to.read_bytes() == data
    assert to.stat().st_blocks * 512 < 1 << 20
    assert seen[-1] == len(whole)
    for size in (len(whole) - 1, 250_000, 12, 5):
        path.write_bytes(whole[:size])
        to.write_bytes(b"")
        made = packed.unpack(str(path), form, str(to), packed.Limits(1 << 40, 1 << 40), seen.append)
        assert made.damage, size
        assert data.startswith(to.read_bytes())
        assert made.size == to.stat().st_size
    path.write_bytes(whole)
    to.write_bytes(b"")
    made = packed.unpack(str(path), form, str(to), packed.Limits(1_000_001, 1 << 40), seen.append)
    assert made.full
    assert to.read_bytes() == data[:1_000_001]


def test_a_cut_file_is_a_truncated_core(tmp_path: Path, small: CoreSet) -> None:
    path = packed_core(small, tmp_path, "zstd")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    for _ in range(2):  # also where the copy is there
        done = answers.dmods("maps", path)
        assert done.returncode == 0
        assert "is cut or damaged" in done.stderr
        assert "the core is truncated" in done.stderr


def refused(path: Path, *said: str, **options: object) -> None:
    done = answers.dmods("findleaks", path, **options)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 2, done.stderr
    for text in said:
        assert text in done.stderr


def _promising(size: int) -> bytes:
    """Return the first bytes of a core with one segment of that size."""
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 6, 4096, 0x10000, 0, size, size, 4096)


def test_bombs(tmp_path: Path, cache: Path) -> None:
    """A small file that promises too much is refused at once; one that has too much, at the limit."""
    bomb = tmp_path / "core.zst"
    bomb.write_bytes(FORMS["zstd"](_promising(100 << 30) + bytes(50 << 20)))
    assert bomb.stat().st_size < 10_000
    refused(bomb, "it has 100G, and the limit is 16G", "DMODS_MAX_SIZE")
    done = answers.dmods("findleaks", bomb, "--max-size", "200G")
    assert "the core is truncated" in done.stderr
    assert next(cache.glob("*.core")).stat().st_blocks * 512 < 1 << 20
    bomb.write_bytes(FORMS["zstd"](b"KDUMP   " + bytes(300 << 20)))  # nothing says how long it is
    refused(bomb, "it has more than 256M", env={**os.environ, "DMODS_MAX_SIZE": "256M"})
    bomb.write_bytes(FORMS["gzip"](bytes(50 << 20)))
    refused(bomb, "what is in it is no dump")
    bomb.write_bytes(FORMS["zstd"](_promising(1 << 20))[:9])
    refused(bomb, "cannot be unpacked", "take it again")
    bomb.write_bytes(FORMS["zstd"](_promising(4096) + bytes(500 << 20)))  # more than its headers tell: not a core's
    answers.dmods("maps", bomb)
    assert max(each.stat().st_size for each in cache.glob("*.core")) < 500 << 20


@pytest.mark.parametrize("which", ["dmods", "dmods/cores"])
def test_the_folder_of_somebody_else(which: str, tmp_path: Path, small: CoreSet, cache: Path) -> None:
    path = packed_core(small, tmp_path, "gzip")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    link = cache.parent.parent / which
    link.parent.mkdir(parents=True)
    link.symlink_to(theirs)
    refused(path, f"{link} is not a folder of yours", "XDG_CACHE_HOME")
    assert list(theirs.iterdir()) == []


def test_links_in_the_folder_are_not_followed(tmp_path: Path, small: CoreSet, cache: Path) -> None:
    path = packed_core(small, tmp_path, "gzip")
    copy, _notes = unpacked.plain_path(str(path))
    os.unlink(copy)
    os.symlink(tmp_path / "victim", copy)
    (tmp_path / "victim").write_bytes(small.core.read_bytes())
    again, _notes = unpacked.plain_path(str(path))
    assert again == copy
    assert not os.path.islink(copy)


def test_list_and_clear(tmp_path: Path, small: CoreSet, cache: Path) -> None:
    assert answers.printed("cache") == ""
    for form in ("gzip", "xz"):
        unpacked.plain_path(str(packed_core(small, tmp_path, form)))
    (cache / "gone.core.4194305.part").write_bytes(bytes(5000))  # pid_max is 4194304
    (cache / f"being-made.core.{os.getpid()}.part").touch()
    lines = answers.printed("cache", "--list").splitlines()
    assert [line.split()[-1] for line in lines] == [str(tmp_path / "core.xz"), str(tmp_path / "core.gzip")]
    assert answers.dmods("cache", "--all").returncode == 2
    assert answers.printed("cache", "--clear").startswith("removed 3 copies with ")
    assert [each.name for each in cache.iterdir()] == [f"being-made.core.{os.getpid()}.part"]


def test_the_oldest_copies_go(tmp_path: Path, small: CoreSet, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, _notes = unpacked.plain_path(str(packed_core(small, tmp_path, "gzip")))
    os.utime(f"{old}.json", (1, 1))
    monkeypatch.setattr(unpacked, "_MOST_KEPT", os.stat(old).st_blocks * 512 * 3 // 2)
    new, _notes = unpacked.plain_path(str(packed_core(small, tmp_path, "xz")))
    assert [each.path for each in unpacked.copies()] == [new]
    assert sorted(each.name for each in cache.iterdir()) == [os.path.basename(new), os.path.basename(new) + ".json"]


def test_a_full_disk(tmp_path: Path, small: CoreSet, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(unpacked, "_LEFT_FREE", 1 << 62)
    with pytest.raises(UserError, match="there is no room to unpack"):
        unpacked.plain_path(str(packed_core(small, tmp_path, "gzip")))
    assert list(cache.iterdir()) == []


def test_a_changed_file_is_unpacked_again(tmp_path: Path, small: CoreSet) -> None:
    path = packed_core(small, tmp_path, "gzip")
    first, _notes = unpacked.plain_path(str(path))
    os.utime(path, (5, 5))
    second, notes = unpacked.plain_path(str(path))
    assert second != first
    assert len(notes) == 1


def test_sizes() -> None:
    assert [unpacked.size_of(text) for text in ("10", "1k", "2M", "200G", "1T")] == [
        10,
        1024,
        2 << 20,
        200 << 30,
        1 << 40,
    ]
    for text in ("", "G", "-1", "1.5G", "9" * 19):
        with pytest.raises(UserError, match="is not a size"):
            unpacked.size_of(text)
