"""The arguments of a process, as its core has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.process.arguments import arguments
from tests.corekit import compile_c, kernel_core

PROGRAM = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argv[1] && argv[1][0] == 'e') setenv("LONGER", "than before", 1), unsetenv("HOME"), putenv("A=1");
    if (argv[1] && argv[1][0] == 'g') while (getopt(argc, argv, "x:") != -1) ;    /* it permutes argv */
    abort();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("arguments")
    (where / "args.c").write_text(PROGRAM)
    return compile_c(where / "args.c", where / "args")


@pytest.mark.parametrize(
    "words", [(), ("one", "two words", ""), ("e", "x" * 100), ("a",) * 60], ids=["none", "few", "environment", "many"]
)
def test_the_arguments_are_those_that_it_was_given(words: tuple[str, ...], program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, *words)
    assert arguments(CoreFile(str(core))) == [str(program), *words]


def test_a_permuted_vector_is_found(program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, "go", "-x", "1", "rest")
    assert sorted(arguments(CoreFile(str(core)))[1:]) == sorted(["go", "-x", "1", "rest"])


def test_an_empty_environment(program: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").write_text(f"#!/bin/sh\nexec env -i {program} one\n")
    (tmp_path / "bare").chmod(0o755)
    core = kernel_core(tmp_path / "bare", tmp_path)
    assert arguments(CoreFile(str(core)))[1:] == ["one"]
