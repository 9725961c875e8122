"""The soak on two small programs that every Debian has, and its witnesses on programs that know the truth.

``scripts/soak`` runs all of it. docs/SOAK.md has its table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import cores, programs_at_work
from fixtures.programs_at_work import Program
from tests.corekit import compile_c
from tools import soak, witness


@pytest.mark.quick("bash")
@pytest.mark.parametrize("name", ["bash", "perl"])
def test_a_real_program_at_work(name: str) -> None:
    outcome = soak.soak(programs_at_work.programs()[name], 1)
    assert [problem for problem in outcome.problems if "s of CPU" not in problem] == []
    assert outcome.blocks > 10_000


@pytest.mark.thorough("it installs Django, and takes half a minute")
def test_a_django_service_at_work() -> None:
    """Its objects are those of gc.get_objects by type, and its stacks are faulthandler's."""
    programs_at_work.install(["django"])
    outcome = soak.soak(programs_at_work.programs()["django"], 1)
    assert [problem for problem in outcome.problems if "s of CPU" not in problem] == []
    assert outcome.blocks > 1000


def test_a_search_of_the_file_sees_who_holds_a_block() -> None:
    made = cores.take("anchors")
    core = witness.Core(made.core)
    for name in ("static", "interior", "last-byte", "slack", "tls", "anonymous", "coroutine-frame"):
        (block,) = (block for block in made.truth.blocks.values() if block.name == name)
        assert witness.held(core, block.address, block.address + block.usable), name


def test_a_search_of_the_file_sees_that_nobody_holds_a_block() -> None:
    made = cores.take("sizes")
    core = witness.Core(made.core)
    leaked = [a for a in made.truth.addresses("direct") if made.truth.blocks[a].usable < 4096][:20]
    unheld = [a for a in leaked if not witness.held(core, a, a + made.truth.blocks[a].usable)]
    assert len(unheld) > len(leaked) / 2  # stale words on dead stacks may point to some


LEAKY = r"""
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 3; i++)
        *(volatile char *)malloc(5000) = 1;
    puts("ready");
    fflush(stdout);
    return getchar();
}
"""


def test_memcheck_is_asked_about_a_program_at_work(tmp_path: Path) -> None:
    source = tmp_path / "leaky.c"
    source.write_text(LEAKY)
    program = compile_c(source, tmp_path / "leaky")
    assert witness.memcheck(Program("leaky", "", (str(program),)), 1) == 3


@pytest.mark.thorough("programs of other userlands, built from source")
@pytest.mark.parametrize("name", ["nginx musl", "busybox ash musl static", "yrmcds tcmalloc", "lua mimalloc"])
def test_a_real_program_with_another_malloc(name: str) -> None:
    programs_at_work.install([name])
    outcome = soak.soak(programs_at_work.programs()[name], 1)
    # The CPU time is the soak's own business.
    assert [problem for problem in outcome.problems if "s of CPU" not in problem] == []
    assert outcome.blocks > 1000
