"""mimalloc inside a stripped program: no library and no symbol names it, and libc calls the program's malloc()."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from fixtures import answers, judge, userlands
from fixtures import mimallocs as kit
from fixtures.cores import CoreSet, build, taken
from fixtures.programs import PROGRAMS
from tests.corekit import compile_c, kernel_core

CRATE = Path(__file__).parent / "crate"
HIDDEN = 0x5A5A5A5A5A5A5A5A
#: A program with a malloc() of its own, in which mimalloc serves other calls.
APART = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *mi_malloc(size_t);
static char pool[1 << 20], *at = pool;
void *kept[1000];
void *malloc(size_t size) { char *p = at; at += (size + 15) & ~(size_t)15; return p; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *old, size_t size) { void *p = malloc(size); if (old) memmove(p, old, size); return p; }
void free(void *p) { (void)p; }
int main(void) {
    for (int n = 0; n < 1000; n++)
        kept[n] = mi_malloc(16 + n);
    setenv("ONE", "1", 1);
    abort();
}
"""
#: A program in which libc holds no block. It calls malloc() alone, and says nothing through stdio.
QUIET = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *volatile kept[500];
static struct { uintptr_t hidden, size; } lost[500];
__attribute__((noinline)) static void work(void) {
    for (int n = 0; n < 500; n++) {
        size_t size = 24 + 3 * n;
        void *block = memset(malloc(size), 0x11, size);
        if (n % 10 == 3)
            lost[n].hidden = (uintptr_t)block ^ 0x5a5a5a5a5a5a5a5a, lost[n].size = size;
        else
            kept[n] = block;
    }
}
__attribute__((noinline)) static void clear_stack(void) {
    volatile char below[16384];
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = 0;
}
int main(void) {
    work();
    clear_stack();
    if (write(1, lost, sizeof lost) != sizeof lost)
        return 1;
    __builtin_trap();
}
"""


def sources(where: Path, release: str) -> Path:
    """Return the sources of mimalloc that the crate brings: "v2" or "v3"."""
    crate = Path(shutil.copytree(CRATE, where / "crate"))
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    subprocess.run([cargo, "vendor", "--quiet"], cwd=crate, check=True, stdout=subprocess.DEVNULL)
    return crate / "vendor" / "libmimalloc-sys" / "c_src" / "mimalloc" / release


def compiled(where: Path, release: str, *flags: str) -> Path:
    """Return the object file of all of mimalloc."""
    source, made = sources(where, release), where / "mimalloc.o"
    command = ["gcc", "-O2", "-fPIC", "-DNDEBUG", *flags, "-c", f"-I{source / 'include'}"]
    subprocess.run([*command, str(source / "src" / "static.c"), "-o", str(made)], check=True)
    return made


def leaking(where: Path, release: str) -> CoreSet:
    """Return a core of the program `graph`, whose malloc() is mimalloc's."""
    extra = ["-s", str(compiled(where, release, "-DMI_MALLOC_OVERRIDE"))]
    host, executable = userlands.get("host"), build("graph", extra=extra)
    name = f"graph-mimalloc-{release}-inside"
    return taken(PROGRAMS["graph"], host, executable, "kernel", settings={"DMODS_MODE": ""}, name=name)


@pytest.mark.thorough("it downloads and builds mimalloc")
@pytest.mark.parametrize("release", ["v2", "v3"])
def test_every_leak_and_no_other(release: str, tmp_path: Path) -> None:
    made = leaking(tmp_path, release)
    target = judge.open_core(made)
    heap = find_heap(target)
    assert kit.problems(heap, made.truth) == []
    assert heap.notes == []
    assert kit.walked(heap).serves_malloc
    assert answers.answer(target, "findleaks")["verdict"]["possible"]


@pytest.mark.thorough("it downloads and builds mimalloc")
def test_a_malloc_beside_it_is_another(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(APART)
    program = compile_c(tmp_path / "program.c", tmp_path / "program", "-s", str(compiled(tmp_path, "v2")))
    work = tmp_path / "work"
    work.mkdir()
    target = CoreFile(str(kernel_core(program, work)))
    assert not kit.walked(find_heap(target)).serves_malloc
    answer = answers.answer(target, "findleaks")
    assert "malloc of this process is that of program" in answer["verdict"]["reason"]


def quiet(where: Path, *flags: str) -> tuple[CoreFile, set[int]]:
    """Return a core of the stripped quiet program, and the blocks that it lost."""
    (where / "quiet.c").write_text(QUIET)
    program = compile_c(where / "quiet.c", where / "quiet", "-s", *flags)
    work = where / "work"
    work.mkdir()
    target = CoreFile(str(kernel_core(program, work, output=where / "told")))
    numbers = struct.unpack("<1000Q", (where / "told").read_bytes())
    return target, {hidden ^ HIDDEN for hidden in numbers[::2] if hidden}


def whole(target: CoreFile, lost: set[int]) -> None:
    """Check that malloc() is known, that the lost blocks are found and no other, and that a verdict is possible."""
    heap = find_heap(target)
    assert len(lost) == 50
    assert {block.address for block in heap.blocks(DIRECT, INDIRECT)} == lost
    assert heap.notes == []
    answer = answers.answer(target, "findleaks")
    assert answer["verdict"] == {"possible": True, "reason": ""}
    assert answer["status"] == 0


def test_a_renamed_library_in_a_process_whose_libc_holds_no_block(tmp_path: Path) -> None:
    library = shutil.copy(kit.library("2.0.9"), tmp_path / "libother.so")
    target, lost = quiet(tmp_path, "-Wl,--no-as-needed", str(library))
    whole(target, lost)
    assert kit.walked(find_heap(target)).serves_malloc


@pytest.mark.thorough("it downloads and builds mimalloc")
@pytest.mark.parametrize("flags", [(), ("-DMI_SECURE=4",), ("-UNDEBUG", "-DMI_DEBUG=2")], ids=str)
@pytest.mark.parametrize("release", ["v2", "v3"])
def test_a_stripped_program_whose_libc_holds_no_block(release: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    made = compiled(tmp_path, release, "-DMI_MALLOC_OVERRIDE", *flags)
    target, lost = quiet(tmp_path, str(made), "-pthread")
    whole(target, lost)
    assert kit.walked(find_heap(target)).serves_malloc


@pytest.mark.thorough("it takes a package of another userland")
def test_a_stripped_program_with_tcmalloc_whose_libc_holds_no_block(tmp_path: Path) -> None:
    archive = userlands.packaged(userlands.get("bullseye"), "libgoogle-perftools-dev", "libtcmalloc_minimal.a")
    flags = ("-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive", "-lstdc++", "-lm", "-pthread")
    whole(*quiet(tmp_path, *flags))
