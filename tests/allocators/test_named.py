"""Real programs whose heaps dmods only names: every command says in one line how many bytes may be theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import answers, cores, debian, programs_at_work, software
from tests.corekit import compile_c, kernel_core

pytestmark = pytest.mark.thorough("cores of real programs with other heaps")

COMMANDS = ("findleaks", "heapsizes", "triage")
BYTES = re.compile(r"\((\d+) bytes\) of anonymous memory belong to no allocator that dmods walks")
#: Program -> (the words that name it, bytes of its heap at least).
RUNTIMES = {
    "node": ("V8's own heap is not walked", 8 << 20),
    "ruby": ("Ruby's own heap is not walked", 4 << 20),
    "php": ("PHP's own heap is not walked", 4 << 20),
    "erlang": ("Erlang's own heap is not walked", 8 << 20),
    "java": ("Java's own heap is not walked", 8 << 20),
}
JAVA = programs_at_work.Program("java", "openjdk-17-jdk-headless", ("java", "{work}/Table.java", "{scale}"))
SCUDO = "libclang_rt.scudo_standalone-x86_64"
FIREFOX = programs_at_work.Program(
    "firefox",
    "firefox-esr",
    ("firefox-esr", "--headless", "--no-remote", "--profile", "{folder}", "--remote-debugging-port", "0"),
    work=lambda start: start.wait_for_file("WebDriverBiDiServer.json"),
    env=(("MOZ_CRASHREPORTER_DISABLE", "1"),),  # it would handle the signal, and leave no core
)
HOLDER = """
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (int n = 0; n < 20000; n++) memset(malloc(2000), n, 2000);
    abort();
}
"""


def said(core: Path, named: str, least: int) -> None:
    """Check the notes of every command."""
    target = CoreFile(str(core))
    anonymous = sum(m.end - m.start for m in target.mappings() if m.path is None)
    for command in COMMANDS:
        answer = answers.answer(target, command)
        # triage lists what it could not know; the others have notes.
        notes = [row["why"] for row in answers.by_name(answer)["unknown"]] if command == "triage" else answer["notes"]
        assert len([note for note in notes if named in note]) == 1, (command, notes)
        (size,) = (int(found.group(1)) for note in notes if (found := BYTES.search(note)))
        assert least <= size <= anonymous, command


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime(name: str, tmp_path: Path) -> None:
    known = {**programs_at_work.programs(), "java": JAVA}
    program = known[name]
    programs_at_work.install([name], known)
    if program.prepare:
        program.prepare(tmp_path, 1)
    with programs_at_work.started(program, tmp_path, 1) as start:
        core = tmp_path / "core"
        cores.gcore(start.process.pid, core)
    said(core, *RUNTIMES[name])


def scudo(ending: str, tmp_path: Path) -> Path:
    """Return a form of the library."""
    (tmp_path / "root").mkdir()
    package = debian.Apt(tmp_path / "apt", "bookworm").download("libclang-rt-14-dev")
    debian.unpack(package, tmp_path / "root", [f"./usr/lib/*/{SCUDO}{ending}"])
    (library,) = (tmp_path / "root").rglob(f"{SCUDO}{ending}")
    return library


def test_scudo(tmp_path: Path) -> None:
    """Scudo as clang's runtime has it, under a program that holds 300,000 blocks."""
    programs_at_work.install(["lua"])
    library = scudo(".so", tmp_path)
    argv = ("lua5.4", "{work}/table.lua", "{scale}")
    program = programs_at_work.Program("lua", "lua5.4", argv, env=(("LD_PRELOAD", str(library)),))
    # gdb's gcore would read all of what Scudo reserves: terabytes.
    with programs_at_work.started(program, tmp_path, 1) as start:
        core = software.aborted(start.process, tmp_path)
    said(core, "blocks of Scudo are not walked", 10 << 20)
    heap = find_heap(CoreFile(str(core)))
    assert heap.leaks().direct_count == 0


@pytest.mark.parametrize("flags", [(), ("-s",)], ids=["", "stripped"])
def test_scudo_inside_a_program(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Scudo is linked in as clang's -fsanitize=scudo does. The program holds 40 MB."""
    (tmp_path / "holder.c").write_text(HOLDER)
    library = ("-Wl,--whole-archive", str(scudo(".a", tmp_path)), "-Wl,--no-whole-archive", "-lstdc++", "-rdynamic")
    work = tmp_path / "work"
    work.mkdir()
    program = compile_c(tmp_path / "holder.c", work / "holder", *flags, *library)
    said(kernel_core(program, work), "blocks of Scudo are not walked", 20000 * 2000)


def test_mozjemalloc(tmp_path: Path) -> None:
    """The main process of Debian's Firefox, without a screen."""
    programs_at_work.install(["firefox"], {"firefox": FIREFOX})
    with programs_at_work.started(FIREFOX, tmp_path, 1) as start:
        core = software.aborted(start.process, tmp_path)
    said(core, "blocks of mozjemalloc are not walked", 16 << 20)
    heap = find_heap(CoreFile(str(core)))
    assert not heap.found
    assert heap.leaks().direct_count == 0
