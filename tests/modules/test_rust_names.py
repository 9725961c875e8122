"""Generic functions of Rust by the short names that people type, compared with the addresses that a program told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import kernel_core

SOURCE = Path(__file__).parent / "generic.rs"


@pytest.mark.thorough("it compiles a Rust program")
@pytest.mark.parametrize("mangling", ["v0", "legacy"])
def test_short_names_of_generic_functions(tmp_path: Path, mangling: str) -> None:
    program = tmp_path / "generic"
    words = ["rustc", "-Awarnings", "--edition", "2021", "-C", f"symbol-mangling-version={mangling}"]
    if mangling == "legacy":
        words += ["-Z", "unstable-options"]
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    subprocess.run([*words, str(SOURCE), "-o", str(program)], cwd=tmp_path, check=True, env=environment)
    core = kernel_core(program, tmp_path)
    target = CoreFile(str(core))
    told = [line.split("|") for line in (tmp_path / "truth").read_text().splitlines()]
    assert len(told) == 3
    for *names, address in told:
        for name in names:
            assert target.evaluate(name) == int(address), name
    shown = answers.printed("whatis", core, told[0][0])
    assert "make_vec" in shown
    assert f"{int(told[0][-1]):x}" in shown
