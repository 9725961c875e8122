"""mimalloc 1.x, whose layout dmods does not read: it is named, with its version."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dmods.allocators.mimalloc.find import version
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import cores
from fixtures import mimallocs as kit
from tests.corekit import compile_c, kernel_core

#: The last release of the crate that has mimalloc 1.x's sources.
CRATE = "0.1.24"
MANIFEST = f"""
[package]
name = "older"
version = "0.0.0"
[lib]
path = "lib.rs"
[dependencies]
libmimalloc-sys = "={CRATE}"
"""
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int mi_version(void);
int main(void) {
    for (int n = 0; n < 1000; n++)
        *(volatile char *)malloc(16 + n) = 1;
    fprintf(stderr, "%d\\n", mi_version());
    abort();
}
"""


@pytest.mark.thorough("it downloads and builds mimalloc 1.x")
def test_a_release_of_1_is_named_and_not_read(tmp_path: Path) -> None:
    crate = tmp_path / "crate"
    crate.mkdir()
    (crate / "Cargo.toml").write_text(MANIFEST)
    (crate / "lib.rs").touch()
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    subprocess.run([cargo, "vendor", "--quiet"], cwd=crate, check=True, stdout=subprocess.DEVNULL)
    sources = crate / "vendor" / "libmimalloc-sys" / "c_src" / "mimalloc"
    static = sources / "src" / "static.c"
    library = tmp_path / "libmimalloc.so.1"
    flags = ["-O2", "-fPIC", "-shared", "-DNDEBUG", "-DMI_MALLOC_OVERRIDE", f"-I{sources / 'include'}", "-pthread"]
    subprocess.run(["gcc", *flags, str(static), "-o", str(library)], check=True)
    (tmp_path / "program.c").write_text(PROGRAM)
    program = compile_c(tmp_path / "program.c", tmp_path / "program", str(library), f"-Wl,-rpath,{tmp_path}")
    work = tmp_path / "work"
    work.mkdir()
    target = CoreFile(str(kernel_core(program, work)))
    number = version(target)
    assert number is not None
    assert 100 < number < 200
    notes = find_heap(target).notes
    told = f"{number // 100}.{number // 10 % 10}.{number % 10}"
    assert f"mimalloc {told} is in the process: dmods reads the layouts of 2.x and 3.x, not those of 1.x" in notes
    assert any("bytes) of anonymous memory belong to no allocator that dmods walks" in note for note in notes)


@pytest.mark.thorough("the heap of mimalloc: a core of each release")
@pytest.mark.parametrize(("release", "number"), [("2.0.9", 209), ("3.0.1", 301), ("3.6", None)])
def test_the_version_is_read_from_code(release: str, number: int) -> None:
    made = kit.take("shapes", release)
    found = version(CoreFile(str(made.core)))
    assert found == number or (number is None and found is not None and found >= 300)


def test_no_version_without_mimalloc() -> None:
    assert version(CoreFile(str(cores.take("shapes").core))) is None
