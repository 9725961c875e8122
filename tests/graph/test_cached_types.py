"""The types of debug information are kept for the next command. Its answers do not depend on the cache folder."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile import cached_types
from dmods.corefile.target import CoreFile
from dmods.graph.types import typegraph
from fixtures import answers
from tests.graph.typed import HERE, Dumped, dump

_COMMANDS = (("types", "--top", "100"), ("typegraph",), ("findleaks", "-d"), ("owners",))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("kept"), ["g++", "-std=c++17", "-O1", "-g"], "typed.cc")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test. All debug information is worth to be kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(typegraph, "AT_LEAST", 0)
    return tmp_path / "cache/dmods/types"


def _answers(core: Path) -> list[dict[str, Any]]:
    target = CoreFile(str(core))
    return [answers.answer(target, *words) for words in _COMMANDS]


def _types(core: Path) -> set[str]:
    return {row["type"] for row in answers.answer(CoreFile(str(core)), "types", "--top", "100")["tables"][0]["rows"]}


def _kept(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.glob("*.types")}


def test_the_second_command_reads_what_the_first_one_kept(program: Dumped, folder: Path) -> None:
    first = _answers(program.core)
    kept = _kept(folder)
    own = [content for _, content in kept.values() if b"/typed\n" in content[:200]]
    assert len(own) == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    assert _answers(program.core) == first
    assert _kept(folder) == kept


def test_kept_types_are_used(program: Dumped, folder: Path) -> None:
    """The name of a type in what was kept is the one that is shown."""
    assert "shop::Point" in _types(program.core)
    (path,) = (path for path in folder.iterdir() if b"/typed\n" in path.read_bytes()[:200])
    _rewrite(path, lambda rest: rest.replace(b"shop::Point", b"shop::Joint"))
    changed = _types(program.core)
    assert "shop::Joint" in changed
    assert "shop::Point" not in changed


def test_a_name_is_kept_once(program: Dumped, folder: Path) -> None:
    """Names of templates are most of the debug information of C++. What tells types apart is a hash."""
    _answers(program.core)
    (content,) = (content for _, content in _kept(folder).values() if b"/typed\n" in content[:200])
    name = b"shop::Point"
    assert content.count(bytes([len(name)]) + name) == 1


def test_damage_to_what_was_kept_changes_no_answer(program: Dumped, folder: Path) -> None:
    first = _answers(program.core)
    assert _kept(folder)
    for name, (_, content) in _kept(folder).items():
        path = folder / name
        for damaged in (b"", content[:50], content[:-1], content + b"x", content[:-9] + b"12345678" + content[-1:]):
            path.write_bytes(damaged)
            assert _answers(program.core) == first
            assert path.read_bytes() == content, len(damaged)


def test_hostile_contents_with_a_right_checksum(program: Dumped, folder: Path) -> None:
    """Every number in a table is one of the reader's own making. Whatever it is, there is an answer."""
    _answers(program.core)
    (path,) = (path for path in folder.iterdir() if b"/typed\n" in path.read_bytes()[:200])
    whole = path.read_bytes()
    for seed in range(40):
        rng = random.Random(seed)

        def damaged(rest: bytes, rng: random.Random = rng) -> bytes:
            data = bytearray(rest)
            for _ in range(rng.choice((1, 10, 300))):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
            return bytes(data)

        path.write_bytes(whole)
        _rewrite(path, damaged)
        target = CoreFile(str(program.core))
        blocks = answers.answer(target, "types", "--top", "100")["totals"]
        assert blocks["count"] >= len(program.blocks), seed


def test_another_file_in_the_same_place_is_read_anew(tmp_path: Path, folder: Path) -> None:
    """The types of one build are not those of the next one."""
    build = ["gcc", "-O0", "-g", "-Wl,--build-id=none"]
    where = tmp_path / "program"
    where.mkdir()
    source = where / "typed.c"
    # Neither name is the end of another one, which the linker would keep once: the files differ in the name alone.
    source.write_text((HERE / "typed.c").read_text().replace("struct leaf", "struct tree1"))
    dumped = dump(where, build, str(source))
    program, before = where / "typed", (where / "typed").stat()
    assert "struct tree1" in str(_answers(dumped.core))
    source.write_text(source.read_text().replace("struct tree1", "struct tree2"))
    subprocess.run([*build, str(source), "-o", str(program)], check=True, cwd=where)
    os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert program.stat().st_size == before.st_size
    said = str(_answers(dumped.core))
    assert "struct tree2" in said
    assert "struct tree1" not in said


def test_a_program_whose_dwo_files_are_missing_is_not_kept(tmp_path: Path, folder: Path) -> None:
    """Later they may be there. The units that name them are none of those with types."""
    where = tmp_path / "program"
    where.mkdir()
    dumped = dump(where, ["gcc", "-O0", "-g", "-gsplit-dwarf"], "typed.c")
    (split,) = where.glob("*.dwo")
    split.rename(tmp_path / "elsewhere")
    assert "struct leaf" not in str(_answers(dumped.core))
    (tmp_path / "elsewhere").rename(split)
    assert "struct leaf" in str(_answers(dumped.core))
    assert not [name for name, (_, content) in _kept(folder).items() if b"/typed\n" in content[:200]]


def test_a_folder_that_cannot_be_used(program: Dumped, folder: Path, tmp_path: Path) -> None:
    first = _answers(program.core)
    shutil.rmtree(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert _answers(program.core) == first
    assert list(elsewhere.iterdir()) == []


def test_the_cache_command_lists_and_removes_them(program: Dumped, folder: Path, tmp_path: Path) -> None:
    _answers(program.core)
    count = len(_kept(folder))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    listed = answers.dmods("cache", env=environment)
    assert f"types of {count} file" in listed.stderr
    assert str(program.core.parent / "typed") in listed.stdout
    cleared = answers.dmods("cache", "--clear", env=environment)
    assert f"removed the types of {count} file" in cleared.stdout + cleared.stderr
    assert _kept(folder) == {}
    assert cached_types.kept_tables() == []


def test_a_full_disk_leaves_nothing_behind(program: Dumped, folder: Path) -> None:
    first = _types(program.core)
    kept = _kept(folder)
    assert kept
    shutil.rmtree(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # Python ignores the signal: a write fails
    try:
        assert _types(program.core) == first
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []
    assert _types(program.core) == first
    assert _kept(folder).keys() == kept.keys()


def test_a_folder_that_cannot_be_made(program: Dumped, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _types(program.core)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self/nobody")  # nobody makes a file in /proc, not even root
    assert _types(program.core) == first
    assert cached_types.folder_of_tables() is None


def _rewrite(path: Path, change: Any) -> None:
    """Change what follows the lines of text, and give it the checksum that belongs to it."""
    form, source, identity, _, rest = path.read_bytes().split(b"\n", 4)
    rest = change(rest)
    head = b"\n".join((form, source, identity, f"{zlib.crc32(rest):08x}".encode()))
    path.write_bytes(head + b"\n" + rest)
