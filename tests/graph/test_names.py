"""The names of variables in owners, compared with what a program said of a list in each."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import kernel_core
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
