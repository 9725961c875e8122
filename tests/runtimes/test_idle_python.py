"""Programs that are linked with CPython and never start it, as Debian's unbound."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from fixtures import answers
from tests.corekit import compile_c, kernel_core

# CPython 3.11 has words in _PyRuntime that are not zero from the beginning. A flag is set as Python starts.
LINKED = r"""
#include <stdlib.h>
struct { int flags[6]; long words[500]; } _PyRuntime = {.words = {[4] = -1}};
int main(int argc, char **argv) {
    _PyRuntime.flags[2] = argc > 1;
    abort();
}
"""


@pytest.mark.parametrize("started", [False, True])
def test_a_python_that_never_started_has_no_objects_to_speak_of(tmp_path: Path, started: bool) -> None:
    source = tmp_path / "linked.c"
    source.write_text(LINKED)
    program = compile_c(source, tmp_path / "linked", "-rdynamic")
    target = CoreFile(str(kernel_core(program, tmp_path, *(["started"] if started else []))))
    notes = answers.answer(target, "findleaks")["notes"]
    assert any("interpreter of a release" in note for note in notes) == started
    with pytest.raises(UserError) as refused:
        answers.report(target, "pystack")
    assert ("never started it" in refused.value.what) == (not started)
