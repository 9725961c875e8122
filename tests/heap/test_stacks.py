"""Leaks where a stack overflowed, has lost its stack pointer, or is in pieces (tests/heap/stacks.c)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core
from tests.quick import only

_LOST = [3008 + number * 16 for number in range(20)]
_WAYS = [how + thread for how in ("fall", "leap", "junk", "zero", "cut", "guard") for thread in ("", " thread")]
_QUICK = ["fall", "leap thread", "junk", "zero thread", "cut", "guard thread"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = HERE / "heap" / "stacks.c"
    return compile_c(source, tmp_path_factory.mktemp("stacks") / "stacks", "-pthread", "-fno-stack-protector")


@pytest.mark.parametrize("how", only(_QUICK, _WAYS))
def test_the_verdict_is_whole_and_right(program: Path, tmp_path: Path, how: str) -> None:
    core = kernel_core(program, tmp_path, *how.split())
    leaks = answers.answer(CoreFile(str(core)), "findleaks")
    assert leaks["verdict"] == {"possible": True, "reason": ""}
    rows = answers.by_name(leaks)["leaks"]
    assert sorted(row["bytes"] for row in rows) == [size + 8 for size in _LOST]  # malloc_usable_size()


@pytest.mark.parametrize("how", only(["cut", "guard thread"], ["cut", "guard", "cut thread", "guard thread"]))
def test_all_pieces_are_of_the_stack(program: Path, tmp_path: Path, how: str) -> None:
    target = CoreFile(str(kernel_core(program, tmp_path, *how.split())))
    kinds = {row["kind"]: row for row in answers.by_name(answers.answer(target, "maps"))["kinds"]}
    sp = target.threads()[0].registers["rsp"]
    near = [m for m in target.mappings() if m.start <= sp < m.end or 0 < sp - m.end < 24 * 4096]
    pieces = [mapping for mapping in near if "w" in mapping.flags]
    assert len(pieces) > 1
    assert kinds["thread stack" if "thread" in how else "stack"]["count"] >= len(pieces)
