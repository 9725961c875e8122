"""Types of programs whose debug information lies in .dwo files, or in a .dwp file that has them all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fixtures import _cache
from fixtures import libcxx as toolchain
from tests.graph.typed import Dumped, compared, dump, graph_of, libcxx, libstdcxx

_SPLIT = ("-O0", "-g", "-gsplit-dwarf")


@pytest.mark.quick("-O0 -gdwarf-5 -fdebug-types-section", "-O0 -gdwarf-4")
@pytest.mark.parametrize(
    "flags",
    [
        ("-O0", "-gdwarf-5"),
        pytest.param(("-O2", "-gdwarf-5"), marks=pytest.mark.thorough("it builds with optimization")),
        ("-O0", "-gdwarf-4"),
        ("-O0", "-gdwarf-5", "-fdebug-types-section"),
        ("-O0", "-gdwarf-4", "-fdebug-types-section"),
    ],
    ids=" ".join,
)
def test_dwo_files_of_gcc(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Each type unit of a .dwo file has a section of its own, all with one name."""
    dumped = dump(tmp_path, ["gcc", *flags, "-gsplit-dwarf"], "typed.c")
    assert list(tmp_path.glob("*.dwo"))
    _is_right(dumped)


@pytest.mark.parametrize("flags", [(), ("-fdebug-types-section",)], ids=["plain", "types"])
def test_a_dwp_file_of_gcc(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """GNU dwp reads DWARF 4 only."""
    dumped = dump(tmp_path, ["gcc", "-O0", "-gdwarf-4", "-gsplit-dwarf", *flags], "typed.c")
    subprocess.run([_cache.tool("dwp", "binutils"), "-e", "typed"], check=True, cwd=tmp_path)
    _without_dwo(tmp_path)
    _is_right(dumped)


@pytest.mark.thorough("it takes several seconds to compile")
@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
def test_the_containers_of_libstdcxx(tmp_path: Path, version: str) -> None:
    dumped = dump(tmp_path, ["g++", "-std=c++17", "-O1", version, "-gsplit-dwarf"], "typed.cc")
    found = compared(graph_of(dumped.core), dumped.blocks, libstdcxx())
    assert (found.wrong, found.missing) == ([], [])


@pytest.mark.thorough("it downloads clang and libc++")
@pytest.mark.parametrize(
    ("flags", "packed"),
    [
        (("-gdwarf-5",), False),
        (("-gdwarf-4",), False),
        (("-gdwarf-5",), True),
        (("-gdwarf-5", "-fdebug-types-section"), True),
    ],
)
def test_clang(tmp_path: Path, flags: tuple[str, ...], packed: bool) -> None:
    command = [*toolchain.compiler(), "-std=c++17", "-O1", *flags, "-gsplit-dwarf", "-fno-limit-debug-info"]
    dumped = dump(tmp_path, command, "typed.cc")
    if packed:
        subprocess.run([*toolchain.tool("llvm-dwp"), "-e", "typed", "-o", "typed.dwp"], check=True, cwd=tmp_path)
        _without_dwo(tmp_path)
    found = compared(graph_of(dumped.core), dumped.blocks, libcxx())
    assert found.wrong == []
    assert found.share > 0.95


@pytest.mark.thorough("it downloads clang and libc++")
def test_a_dwo_file_of_several_units(tmp_path: Path) -> None:
    """Link-time optimization makes such files. The types of typed.c are not in the first unit."""
    compiler = [*toolchain.c_compiler(), "-O0", "-g", "-gsplit-dwarf"]
    source = Path(__file__).parent / "typed.c"
    (tmp_path / "first.c").write_text("struct first { struct first *next; int n; }; struct first *first;\n")
    for one in (tmp_path / "first.c", source):
        subprocess.run([*compiler, "-emit-llvm", "-c", str(one)], check=True, cwd=tmp_path)
    linker = [*toolchain.tool("llvm-link"), "first.bc", "typed.bc", "-o", "both.bc"]
    subprocess.run(linker, check=True, cwd=tmp_path)
    dumped = dump(tmp_path, compiler, str(tmp_path / "both.bc"))
    assert len(list(tmp_path.glob("*.dwo"))) == 1
    _is_right(dumped)


def test_dwo_files_that_were_moved_with_the_program(tmp_path: Path) -> None:
    """They are beside it, and no longer where the compiler put them."""
    (tmp_path / "build").mkdir()
    dumped = dump(tmp_path, ["gcc", *_SPLIT, "-dumpdir", "build/"], "typed.c")
    (dwo,) = (tmp_path / "build").glob("*.dwo")
    dwo.rename(tmp_path / dwo.name)
    _is_right(dumped)


@pytest.mark.parametrize("why", ["missing", "of another build", "cut off"])
def test_a_dwo_file_that_cannot_be_used(tmp_path: Path, why: str) -> None:
    dumped = dump(tmp_path, ["gcc", *_SPLIT], "typed.c")
    (dwo,) = tmp_path.glob("*.dwo")
    if why == "missing":
        dwo.unlink()
    elif why == "of another build":
        other = ["gcc", *_SPLIT, "-DOTHER", "-include", "time.h", str(Path(__file__).parent / "typed.c"), "-o", "typed"]
        (tmp_path / "other").mkdir()
        subprocess.run(other, check=True, cwd=tmp_path / "other")
        next((tmp_path / "other").glob("*.dwo")).replace(dwo)
    else:
        os.truncate(dwo, dwo.stat().st_size // 2)
    graph = graph_of(dumped.core)
    (note,) = graph.notes
    assert "1 of 1 units have no types: they lie in .dwo files" in note
    assert dwo.name in note
    assert ("it belongs to another build" in note) == (why == "of another build")
    assert compared(graph, dumped.blocks, {}).wrong == []


def _without_dwo(folder: Path) -> None:
    found = list(folder.glob("*.dwo"))
    assert found
    for path in found:
        path.unlink()


def _is_right(dumped: Dumped) -> None:
    graph = graph_of(dumped.core)
    found = compared(graph, dumped.blocks, {})
    assert found.wrong == []
    assert found.share > 0.95
    assert graph.notes == []
