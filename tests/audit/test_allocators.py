"""The auditor over the allocators that programs link or preload."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmods.machine.installed import preloadable
from tests.audit.auditor import LIBRARY, Tables, compiled, environment, size_of, waiting
from tests.audit.test_records import compare

FOLDER = Path("/usr/lib/x86_64-linux-gnu")
ALLOCATORS = ("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4")


def preload(allocator: str) -> dict[str, str]:
    if allocator:
        assert (FOLDER / allocator).exists(), "scripts/setup installs it"
    return {"LD_PRELOAD": f"{preloadable(str(LIBRARY))} {FOLDER / allocator if allocator else ''}".strip()}


@pytest.mark.quick("-audit", "libjemalloc.so.2-audit,guards", "libtcmalloc_minimal.so.4-audit,guards")
@pytest.mark.parametrize("words", ["audit", "audit,guards"])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_c(tmp_path: Path, allocator: str, words: str) -> None:
    program, told = compiled("ledger.c", tmp_path / "ledger"), tmp_path / "told"
    variables = {**environment(words), **preload(allocator)}
    with waiting([program, told, 4, 5000, 0], told, variables) as (pid, books):
        tables = Tables(pid)
        assert compare(program, books, tables.blocks()) > 400
        assert tables.figures[4] == 0  # unknown frees


@pytest.mark.quick("-audit,guards", "libjemalloc.so.2-audit", "libtcmalloc_minimal.so.4-audit")
@pytest.mark.parametrize("words", ["audit", "audit,guards"])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_cxx(tmp_path: Path, allocator: str, words: str) -> None:
    program, told = compiled("objects.cc", tmp_path / "objects", "-std=c++17"), tmp_path / "told"
    variables = {**environment(words), **preload(allocator)}
    with waiting([program, told], told, variables) as (pid, lines):
        tables = Tables(pid)
        blocks = {block.address: block for block in tables.blocks()}
        assert tables.figures[4] == 0  # unknown frees
    maker = int(lines[0].split()[1], 16)
    end = maker + size_of(program, "_ZL5makerP8_IO_FILE")
    expected = {int(address, 16): int(size) for address, size in map(str.split, lines[1:-1])}
    ours = {b.address: b.size for b in blocks.values() if any(maker < pc <= end for pc in b.stack)}
    # libstdc++ rounds sizes of aligned new up to the alignment, which is what its malloc is asked for
    assert ours == expected


def test_samples_over_jemalloc(tmp_path: Path) -> None:
    program, told = compiled("objects.cc", tmp_path / "objects", "-std=c++17"), tmp_path / "told"
    with waiting([program, told], told, {**environment("sample=1k"), **preload("libjemalloc.so.2")}) as (pid, lines):
        tables = Tables(pid)
        assert len(tables.blocks()) > 0
        assert tables.figures[1] == 0
    assert len(lines) == 10


def test_a_module_with_its_own_libstdcxx(tmp_path: Path) -> None:
    """The auditor finds operator new in a library with its own scope, as Python loads modules."""
    (tmp_path / "module.cc").write_text(
        'struct S { int n[9]; }; extern "C" int use() { S *s = new S(); int n = s->n[3]; delete s; return n; }'
    )
    module = tmp_path / "module.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O0", "-o", module, tmp_path / "module.cc"], check=True)
    (tmp_path / "main.c").write_text(
        "#include <dlfcn.h>\nint main(int c, char **v) { void *m = dlopen(v[1], RTLD_NOW | RTLD_LOCAL);"
        ' return m ? ((int (*)(void))dlsym(m, "use"))() : 9; }'
    )
    subprocess.run(["gcc", "-o", tmp_path / "main", tmp_path / "main.c", "-ldl"], check=True)
    done = subprocess.run([tmp_path / "main", module], env=environment("audit"), check=False)
    assert done.returncode == 0
