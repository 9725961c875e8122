"""A malloc of the program's own, or of a library: glibc's heap alone proves nothing, so there is no verdict.

A library that only stands before the next malloc, as tracers do, changes nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.heap.verdict import NO_VERDICT
from dmods.machine.core_doctor import core_findings
from fixtures import answers, cores, judge, tcmallocs
from tests.corekit import HERE, compile_c, kernel_core

SOURCE = HERE / "ownmalloc.c"
WAYS = ("-DOVER_MMAP", "-DOVER_LIBC", "-DMIXED")
LEAKED = 500


def made(where: Path, program: tuple[str, ...] = (), library: tuple[str, ...] = (), preload: bool = True) -> Path:
    """Return a core of the program. The library, if any, is preloaded or linked."""
    env, flags = {}, [*program]
    if library:
        path = compile_c(SOURCE, where / "libown.so", "-shared", "-fPIC", "-fno-builtin", *library)
        if preload:
            env["LD_PRELOAD"] = str(path)
        else:
            flags += ["-Wl,--no-as-needed", str(path)]
    executable = compile_c(SOURCE, where / "program", "-DPROGRAM", "-fno-builtin", *flags)
    (where / "run").mkdir()
    return kernel_core(executable, where / "run", env=env)


def no_verdict(core: Path, name: str) -> None:
    target = CoreFile(str(core))
    for command in ("findleaks", "heapcheck"):
        answer = answers.answer(target, command)
        assert answer["status"] == NO_VERDICT, command
        assert f"malloc of this process is that of {name}" in answer["verdict"]["reason"]
        assert [note for note in answer["notes"] if f"that of {name}, which dmods does not know" in note], command


@pytest.mark.quick("-DOVER_MMAP-stripped", "-DOVER_LIBC-", "-DMIXED-stripped")
@pytest.mark.parametrize("stripped", [(), ("-s",)], ids=["", "stripped"])
@pytest.mark.parametrize("way", WAYS)
def test_the_programs_own(way: str, stripped: tuple[str, ...], tmp_path: Path) -> None:
    no_verdict(made(tmp_path, ("-DOWN", way, *stripped)), "program")


def test_the_programs_own_without_its_symbol_for_others(tmp_path: Path) -> None:
    """libc has its own malloc then, and the program calls another one of that name."""
    no_verdict(made(tmp_path, ("-DOWN", "-DOVER_MMAP", "-fvisibility=hidden")), "program")


def test_the_programs_own_beside_a_tcmalloc(tmp_path: Path) -> None:
    """A library with tcmalloc is loaded, and malloc() is not the library's."""
    no_verdict(made(tmp_path, ("-DOWN", "-DOVER_MMAP", "-Wl,--no-as-needed", tcmallocs.library())), "program")


@pytest.mark.thorough("a program of another release")
def test_tcmalloc_inside_a_stripped_program_is_known() -> None:
    """libc calls the program's malloc(), and no symbol says that it is tcmalloc's."""
    given = tcmallocs.linked("sizes", "dynamic")
    answer = answers.answer(judge.open_core(given), "findleaks")
    assert answer["verdict"]["possible"], answer["verdict"]
    assert answer["totals"]["leaked_count"] == len(given.truth.leaked)


@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "linked"])
def test_a_librarys(preload: bool, tmp_path: Path) -> None:
    no_verdict(made(tmp_path, (), ("-DOWN", "-DOVER_MMAP"), preload), "libown.so")


@pytest.mark.quick("-DMIXED")
@pytest.mark.parametrize("way", ["-DOVER_LIBC", "-DMIXED"])
def test_a_library_with_pools_of_the_next_malloc(way: str, tmp_path: Path) -> None:
    target = CoreFile(str(made(tmp_path, (), ("-DOWN", way))))
    for command in ("findleaks", "heapcheck"):
        answer = answers.answer(target, command)
        assert answer["status"] == NO_VERDICT, command
        assert "libown.so, which seems to keep many blocks in one" in answer["verdict"]["reason"]


@pytest.mark.quick("-DTRACE-preloaded--Wl,-z,lazy", "-DTRACE_LIBC-linked--Wl,-z,now")
@pytest.mark.parametrize("binding", ["-Wl,-z,lazy", "-Wl,-z,now"])
@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "linked"])
@pytest.mark.parametrize("way", ["-DTRACE", "-DTRACE_LIBC"])
def test_a_tracer_keeps_the_verdict(way: str, preload: bool, binding: str, tmp_path: Path) -> None:
    core = made(tmp_path, (binding,), (way, binding), preload)
    answer = answers.answer(CoreFile(str(core)), "findleaks")
    assert answer["verdict"]["possible"], answer["verdict"]
    assert answer["verdict"]["reason"] == ""
    assert answer["status"] == 0
    # The program leaked so many, one more at the end and the one that it replaced.
    assert LEAKED <= answer["totals"]["leaked_count"] <= LEAKED + 2


def test_glibcs_own(tmp_path: Path) -> None:
    answer = answers.answer(CoreFile(str(made(tmp_path))), "findleaks")
    assert answer["verdict"]["possible"]
    assert answer["notes"] == []


def sanitized(where: Path, *flags: str) -> Path:
    """Return a core of the program with AddressSanitizer. It makes no core unless it is told so."""
    executable = compile_c(SOURCE, where / "program", "-DPROGRAM", "-fno-builtin", "-fsanitize=address", *flags)
    (where / "run").mkdir()
    options = "disable_coredump=0:detect_leaks=0:handle_abort=0"
    return kernel_core(executable, where / "run", env={"ASAN_OPTIONS": options})


@pytest.mark.quick("", "-static-libasan -s")
@pytest.mark.parametrize("flags", [(), ("-s",), ("-static-libasan",), ("-static-libasan", "-s")], ids=" ".join)
def test_a_sanitizers_is_named(flags: tuple[str, ...], tmp_path: Path) -> None:
    target = CoreFile(str(sanitized(tmp_path, *flags)))
    for command in ("findleaks", "heapcheck"):
        answer = answers.answer(target, command)
        assert answer["status"] == NO_VERDICT
        assert "malloc of this process is AddressSanitizer's malloc" in answer["verdict"]["reason"]
        assert len([note for note in answer["notes"] if "blocks of AddressSanitizer's malloc" in note]) == 1


@pytest.mark.parametrize(
    ("program", "variant", "reason"),
    [
        ("nomalloc", "dynamic", "malloc of libc.so.6 has no arena, as before its first call"),
        ("freestanding", "static", "the process has no libc of its own"),
    ],
)
def test_no_heap_says_why(program: str, variant: str, reason: str) -> None:
    answer = answers.answer(CoreFile(str(cores.take(program, variant=variant).core)), "findleaks")
    assert answer["verdict"]["reason"].startswith("no heap: ")
    assert reason in answer["verdict"]["reason"]
    assert answer["notes"][0].startswith("no heap: ")


def test_commands_agree_on_why_there_is_no_heap() -> None:
    """Each command that misses the heap gives the reason that findleaks gives."""
    target = CoreFile(str(cores.take("nomalloc").core))
    reason = answers.answer(target, "findleaks")["verdict"]["reason"]
    assert reason.startswith("no heap: malloc of libc.so.6 has no arena")
    for command in ("owners", "types", "heapsizes", "malloc_stats", "heapcheck"):
        assert reason in answers.answer(target, command)["notes"], command
    with pytest.raises(UserError) as profile:
        answers.answer(target, "profile")
    assert profile.value.what == reason
    assert [remark.found for remark in core_findings(target) if remark.what == "heap"] == [reason]


def test_no_heap_says_that_the_dump_lacks_it(tmp_path: Path) -> None:
    core = tmp_path / "core"
    core.write_bytes(cores.take("sizes").core.read_bytes()[:300_000])
    reason = answers.answer(CoreFile(str(core)), "findleaks")["verdict"]["reason"]
    assert reason.startswith("no heap: ")
    assert "not in the dump" in reason
    assert "truncated" in reason
