"""The names of variables in owners, compared with what a program said of a list in each."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import compile_c, kernel_core
from tests.graph.typed import HERE


def test_each_variable_has_its_whole_name(tmp_path: Path) -> None:
    """Namespaces, classes, threads, inlined functions and lambdas."""
    program = tmp_path / "names"
    subprocess.run(["g++", "-std=c++17", "-g", "-O0", str(HERE / "names.cc"), "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path)
    told = [line.split("|") for line in (tmp_path / "truth").read_text().splitlines()]
    rows = answers.answer(CoreFile(str(core)), "owners")["tables"][0]["rows"]
    # Each list has a length of its own. All of them hang on one member.
    named = {(row["bytes"], row["count"]): re.sub(r"\.first$", "", row["owner"]) for row in rows}
    found = {name: named.get((int(size), int(count))) for name, size, count in told}
    assert found == {name: name for name in found}


def test_a_part_of_a_function_has_the_name_of_the_function(tmp_path: Path) -> None:
    """gcc moves code that is hardly ever run to "main.cold", and makes copies such as "hold.constprop.0"."""
    source = tmp_path / "parts.c"
    source.write_text(_PARTS)
    core = kernel_core(compile_c(source, tmp_path / "parts", "-g", "-O0"), tmp_path)
    rows = {row["owner"]: row for row in answers.typed("owners", core)["tables"][0]["rows"]}
    assert rows["hold: blocks"]["count"] == 3


_PARTS = """
#include <stdlib.h>
void hold(void) __asm__("hold.constprop.0.cold");
void hold(void) {
    void *volatile blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = calloc(1, 100);
    abort();
}
int main(void) { hold(); }
"""
