"""Heaps that are not walked are named, and no block on them is called a leak."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import cores, judge, musls, userlands
from fixtures.programs import PROGRAMS
from tests import quick
from tests.corekit import compile_c, kernel_core

TCMALLOC = ("TCMallocInternalMalloc", "google/tcmalloc")


def test_another_allocator_by_its_file() -> None:
    path = userlands.packaged(userlands.get("host"), "libtcmalloc-minimal4", "libtcmalloc_minimal_debug.so.4")
    heap = find_heap(judge.open_core(cores.take("graph", env={"LD_PRELOAD": str(path)})))
    assert [note for note in heap.notes if note.startswith("blocks of tcmalloc are not walked")]
    assert heap.leaks().direct_count == 0


@pytest.mark.thorough("it builds musl")
def test_old_malloc_of_musl() -> None:
    heap = find_heap(judge.open_core(musls.old("graph")))
    assert [note for note in heap.notes if note.startswith("old malloc of musl (oldmalloc), not walked")]
    assert not heap.found
    assert heap.leaks().direct_count == 0


@pytest.mark.parametrize(("symbol", "name"), quick.only([TCMALLOC], [TCMALLOC, ("moz_arena_malloc", "mozjemalloc")]))
def test_another_allocator_by_its_symbol(symbol: str, name: str) -> None:
    """Google's own tcmalloc and Firefox's allocator are always linked statically."""
    land = userlands.get("host")
    named = cores.build("graph", extra=[f"-Wl,--defsym={symbol}=malloc"])
    made = cores.taken(PROGRAMS["graph"], land, named, "kernel", settings={}, name="graph-named")
    notes = find_heap(judge.open_core(made)).notes
    assert [note for note in notes if note.startswith(f"blocks of {name} are not walked")]
    assert not [note for note in find_heap(judge.open_core(cores.take("graph"))).notes if "not walked" in note]


#: google/tcmalloc's regions begin and end at multiples of a GiB. A debugger has the constant, and no such memory.
REGION = """
#include <stdlib.h>
#include <stdio.h>
#include <sys/mman.h>
const char *volatile name = "NAME";
int main(void) {
    char *region = mmap((void *)PLACE, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region != (char *)PLACE || !malloc(100)) return 1;
    puts(name);
    abort();
}
"""


@pytest.mark.parametrize(
    ("constant", "place", "named"),
    [
        ("tcmalloc_region_%s", 0x2C0C80000000, True),
        ("TCMALLOC_HPAA_CONTROL", 0x2C0C80000000, True),  # of builds before 2023
        ("tcmalloc_region_%s", 0x2C0CBFF00000, True),  # the last MiB of one
        ("tcmalloc_region_%s", 0x2C0C80001000, False),
        ("a tcmalloc_region_%s of another", 0x2C0C80000000, False),
    ],
)
def test_googles_tcmalloc_without_symbols(constant: str, place: int, named: bool, tmp_path: Path) -> None:
    source = tmp_path / "region.c"
    source.write_text(REGION.replace("NAME", constant).replace("PLACE", f"{place:#x}"))
    core = kernel_core(compile_c(source, tmp_path / "region", "-s"), tmp_path, output=tmp_path / "said")
    notes = find_heap(CoreFile(str(core))).notes
    assert len([note for note in notes if note.startswith("blocks of google/tcmalloc are not walked")]) == named
    sizes = [int(found[1]) for note in notes if (found := re.search(r"\((\d+) bytes\) of anonymous memory", note))]
    assert len(sizes) == named
    assert all(size >= 1 << 20 for size in sizes)


ARENA = 40 << 20
RUNTIME = f"""
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
void NAME(void) {{}}
int main(void) {{
    char *arena = mmap(0, {ARENA}, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED || !malloc(100)) return 1;
    memset(arena, 1, {ARENA});
    abort();
}}
"""


@pytest.mark.thorough("cores of made runtimes")
@pytest.mark.parametrize(
    ("symbol", "name"), [("ruby_init", "Ruby"), ("php_module_startup", "PHP"), ("enif_alloc", "Erlang"), (None, None)]
)
def test_a_runtime_is_named_with_the_size_of_its_memory(
    symbol: Optional[str], name: Optional[str], tmp_path: Path
) -> None:
    """The program maps 40 MiB for itself. Nothing is said of a program that is no runtime."""
    source = tmp_path / "runtime.c"
    source.write_text(RUNTIME.replace("NAME", symbol or "nothing"))
    core = kernel_core(compile_c(source, tmp_path / "runtime", "-rdynamic"), tmp_path)
    notes = find_heap(CoreFile(str(core))).notes
    of_runtime = [note for note in notes if f"{name}'s own heap is not walked" in note]
    sizes = [int(found[1]) for note in notes if (found := re.search(r"\((\d+) bytes\) of anonymous memory", note))]
    assert len(of_runtime) == len(sizes) == (name is not None)
    assert all(ARENA <= size < ARENA + (1 << 20) for size in sizes)


@pytest.mark.parametrize(
    ("section", "name"), quick.only([(True, "JavaScriptCore")], [(True, "JavaScriptCore"), (False, "V8")])
)
def test_engines_of_javascript_are_told_apart(section: bool, name: str, tmp_path: Path) -> None:
    """Bun has symbols of Node.js and V8, for their modules, and a section of WTF."""
    source = tmp_path / "runtime.c"
    config = r'__asm__(".section \"__DATA,__wtf_config\",\"aw\"\n.quad 1\n.text");' if section else ""
    source.write_text(config + RUNTIME.replace("NAME", "node_module_register"))
    core = kernel_core(compile_c(source, tmp_path / "runtime", "-rdynamic"), tmp_path)
    notes = [note for note in find_heap(CoreFile(str(core))).notes if "own heap is not walked" in note]
    assert len(notes) == 1
    assert f"{name}'s own heap" in notes[0]
