"""Deaths by the stack itself: it overflowed, or the register that leads to it is lost (tests/heap/stacks.c)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core
from tests.quick import only

_DEATHS = {
    "fall": ("stack-overflow", "fall calls itself"),
    "leap": ("stack-overflow", "overflowed in leap"),
    "junk": ("lost-stack-pointer", "rsp (0x4141414141414140) is in no mapping"),
    "zero": ("lost-stack-pointer", "rsp (0x0) is in no mapping"),
    "frame": ("lost-frame-pointer", "rbp (0x4141414141414140) is in no mapping"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = HERE / "heap" / "stacks.c"
    return compile_c(source, tmp_path_factory.mktemp("stacks") / "stacks", "-pthread", "-fno-stack-protector")


@pytest.mark.parametrize("thread", only([""], ["", "thread"]))
@pytest.mark.parametrize("how", _DEATHS)
def test_the_stack_is_named(program: Path, tmp_path: Path, how: str, thread: str) -> None:
    kind, text = _DEATHS[how]
    core = kernel_core(program, tmp_path, how, *thread.split())
    first = answers.by_name(answers.typed("triage", core))["findings"][0]
    assert (first["kind"], first["confidence"]) == (kind, "certain")
    assert text in first["what"]


def test_the_bytes_past_the_end_are_those_of_the_array(program: Path, tmp_path: Path) -> None:
    answer = answers.typed("triage", kernel_core(program, tmp_path, "leap"))
    (evidence,) = answers.by_name(answer)["findings"][0]["evidence"]
    past = int(evidence["what"].split(" bytes past the end")[0].rpartition(" ")[2])
    assert 298 << 20 < past <= 300 << 20  # an array of 300 MB, on a stack of at most 1 MB
