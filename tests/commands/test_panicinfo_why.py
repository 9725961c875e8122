"""``panicinfo`` says why in the program's own words, and shows the whole of a deep stack in a few lines."""

from __future__ import annotations

import re
import resource
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, planted
from tests import quick
from tests.corekit import HERE, compile_c, kernel_core

# What each program says or does before it dies (fixtures/planted).
WHY = [
    ("c", "assertion", 'count > 0 && "count is positive"'),
    ("c", "double-free", "freed a block that was free already"),
    ("c++", "exception", "threw OrderError: order 7 has no customer, and nobody caught it"),
    ("rust", "unwrap", "panicked at faults.rs:10"),
    ("go", "deadlock", "all goroutines are asleep - deadlock!"),
    ("go", "panic", "panicked: the queue is gone"),
]


@pytest.mark.parametrize(("language", "fault", "said"), WHY)
def test_it_says_what_the_program_said(language: str, fault: str, said: str) -> None:
    (row,) = answers.by_name(answers.typed("panicinfo", planted.core(language, fault)))["panicinfo"]
    assert said in row["why"]


# -- deep stacks -------------------------------------------------------------------------------------------------------


def overflow(where: Path, how: str) -> tuple[CoreFile, int]:
    """Return a core of tests/recursion.c, and the calls that the program counted."""
    program = compile_c(HERE / "recursion.c", where / "recursion", "-fno-optimize-sibling-calls")
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, hard))  # 60,000 calls do as well as 500,000
    try:
        target = CoreFile(str(kernel_core(program, where, how)))
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    symbol = target.lookup("depth")
    assert symbol is not None
    return target, int.from_bytes(target.read(symbol.address, 8), "little")


RECURSIONS = [
    (command, how, names)
    for command in ("panicinfo", "findstack")
    for how, names in (("alone", ("down",)), ("pair", ("even", "odd")))
]


@pytest.mark.parametrize(("command", "how", "names"), quick.only([RECURSIONS[1], RECURSIONS[2]], RECURSIONS))
def test_a_recursion_is_one_line_and_main_is_there(
    tmp_path: Path, how: str, names: tuple[str, ...], command: str
) -> None:
    target, depth = overflow(tmp_path, how)
    lines = [line for line in answers.text(target, command).splitlines() if line.startswith("0x7ff")]
    assert len(lines) < 20
    assert any(" main+0x" in line for line in lines)
    (folded,) = (line for line in lines if " x " in line)
    found = re.search(r"\(\.\.\. (.*) x (\d+), (\d+) bytes each\)", folded)
    assert found is not None
    assert sorted(found[1].split(" <- ")) == sorted(names)
    # The innermost frames, where the stack ended, and the outermost call may stand for themselves.
    assert depth - 4 <= int(found[2]) * len(names) <= depth
    stack = answers.by_name(answers.answer(target, "findstack"))["threads"][0]
    assert stack["truncated"] is True
    assert any(frame["name"].startswith("main+") for frame in stack["outermost"])


def test_a_deep_stack_without_a_recursion_shows_both_ends(tmp_path: Path) -> None:
    target, depth = overflow(tmp_path, "deep")
    assert depth == 400
    text = answers.text(target, "panicinfo").splitlines()
    shown = [line for line in text if "uneven+0x" in line and line.startswith("0x7ff")]
    (gap,) = (line for line in text if "frames (-n N shows more)" in line)
    hidden = re.search(r"\.\.\. (\d+) frames", gap)
    assert hidden is not None
    assert len(shown) + int(hidden[1]) == depth
    assert any(line.startswith("0x7ff") and " main+0x" in line for line in text)
    few = [line for line in answers.text(target, "panicinfo", "-n", "3").splitlines() if line.startswith("0x7ff")]
    assert len(few) == 3
    many = [line for line in answers.text(target, "panicinfo", "-n", "1000").splitlines() if "uneven+0x" in line]
    assert len([line for line in many if line.startswith("0x7ff")]) == depth


# -- registers and addresses -------------------------------------------------------------------------------------------


def test_a_null_pointer_is_one_register(tmp_path: Path) -> None:
    target, _depth = overflow(tmp_path, "deep")
    lines = [line for line in answers.text(target, "panicinfo").splitlines() if line.endswith("-> NULL")]
    assert len(lines) == 1
    assert "," not in lines[0]


JUMP = """
int main(void) { void (*volatile f)(void) = (void (*)(void))0x123456789000; f(); return 0; }
"""
BELOW = """
#include <stdlib.h>
#include <stdio.h>
int main(int argc, char **argv) {
    char *sp = __builtin_frame_address(0);
    FILE *file = fopen(argv[1], "w");
    fprintf(file, "%p", (void *)(sp - 0x3000));
    fclose(file);
    __builtin_trap();
}
"""


def made(where: Path, source: str, *words: str) -> CoreFile:
    (where / "program.c").write_text(source)
    program = compile_c(where / "program.c", where / "program")
    return CoreFile(str(kernel_core(program, where, *words)))


def test_a_jump_to_nowhere_is_a_sentence(tmp_path: Path) -> None:
    text = answers.text(made(tmp_path, JUMP), "panicinfo")
    assert "the pc itself: a jump to an address in no mapping" in text


def test_the_distance_below_the_stack_pointer(tmp_path: Path) -> None:
    target = made(tmp_path, BELOW, str(tmp_path / "told"))
    below = int((tmp_path / "told").read_text(), 16)
    thread = target.threads()[0]
    first = answers.text(target, "whatis", hex(below)).splitlines()[0]
    assert f"below its stack pointer by {thread.registers['rsp'] - below:#x}: dead" in first


# -- the abort message -------------------------------------------------------------------------------------------------

ABORTS = """
#include <assert.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char *volatile p = malloc(40);
    if (argc > 1) { free(p); free(p); }
    assert(argc == 7 && "seven words");
    return 0;
}
"""


@pytest.mark.quick("words0-", "words1--s", "words0--static -s")
@pytest.mark.parametrize("build", ["", "-static", "-static -s", "-s"])
@pytest.mark.parametrize("words", [(), ("twice",)])
def test_the_message_of_abort_needs_no_symbols(tmp_path: Path, build: str, words: tuple[str, ...]) -> None:
    (tmp_path / "program.c").write_text(ABORTS)
    program = compile_c(tmp_path / "program.c", tmp_path / "program", *build.split())
    core = kernel_core(program, tmp_path, *words, output=tmp_path / "said")
    said = (tmp_path / "said").read_text().strip()
    assert said
    (row,) = answers.by_name(answers.typed("panicinfo", core))["panicinfo"]
    assert row["abort_message"] == said
    subprocess.run(["rm", str(program)], check=True)  # a core of another machine
    (row,) = answers.by_name(answers.typed("panicinfo", core))["panicinfo"]
    assert row.get("abort_message") in (said, None)
