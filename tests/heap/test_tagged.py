"""Pointers with a tag in their upper bits: lists without locks (boost::lockfree), values of interpreters (LuaJIT)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fixtures import answers
from tests.corekit import compile_c, kernel_core
from tests.quick import only

_HELD, _LOST = 400, 300


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("tagged") / "tagged.c"
    source.write_text(_STACK)
    return compile_c(source, source.with_suffix(""))


@pytest.mark.parametrize("bits", only([48], [48, 47]))
def test_a_note_says_so_and_the_option_follows_them(program: Path, tmp_path: Path, bits: int) -> None:
    core = kernel_core(program, tmp_path, str(_HELD), str(bits))
    plain, tagged = answers.typed("findleaks", core), answers.typed("findleaks", core, "--tagged")
    assert plain["totals"]["leaked_count"] == _HELD + _LOST
    assert {row["cache"]: row["leaked"] for row in answers.by_name(tagged)["leaks"]} == {"malloc-72": _LOST}
    assert _told(plain) == [(str(_HELD), str(_HELD + _LOST))]
    assert _told(tagged) == []
    assert _confidence(core) == "possible"


def test_where_there_are_only_leaks_there_is_no_note(program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, "0", "48")
    plain = answers.typed("findleaks", core)
    assert plain["totals"]["leaked_count"] == _LOST
    assert _told(plain) == []
    assert _confidence(core) == "certain"


def _confidence(core: Path) -> str:
    findings = answers.by_name(answers.typed("triage", core))["findings"]
    return next(str(row["confidence"]) for row in findings if row["kind"] == "leak")


def _told(answer: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [
        each for note in answer["notes"] for each in re.findall(r"(\d+) of the (\d+) leaked blocks have their", note)
    ]


# A stack whose links have a count above the address, and what was lost.
_STACK = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
struct node { uint64_t next; long values[4]; };
uint64_t head;
__attribute__((noinline)) static void fill(long held, int bits) {
    for (long i = 0; i < held; i++) {
        struct node *node = calloc(1, sizeof *node);
        node->next = head;
        head = (uint64_t)node | (uint64_t)(i + 1) << bits;
    }
    for (long i = 0; i < 300; i++) {
        long *volatile lost = calloc(9, sizeof(long));
        lost[0] = lost[5] = i << 16 | 0x5555;
        lost = 0;
    }
}
__attribute__((noinline)) static void wipe(void) {
    volatile char room[16384];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
}
int main(int argc, char **argv) {
    (void)argc;
    fill(atol(argv[1]), atoi(argv[2]));
    wipe();
    abort();
}
"""
