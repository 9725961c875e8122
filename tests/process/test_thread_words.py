"""The thread-local words that a function reads: those of a program that says where its variable lies."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.process.thread_words import thread_words
from tests.corekit import compile_c, kernel_core

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the forms of x86-64 are known")

LIBRARY = """
static __thread int before[100];
__thread long *variable;
long *reads(long number) { return variable ? variable + number : 0; }
long *jumps(long number) { return reads(number); }
int other(int number) { volatile int local = number; return local + 3; }
void set(long *to) { variable = to; before[3] = 1; }
"""
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
extern __thread long *variable;
long *reads(long), *jumps(long);
int other(int);
void set(long *);
int main(void) {
    long here = 7;
    set(&here);
    char *pointer;
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
    printf("%ld %ld %ld %ld\\n", (long)((char *)&variable - pointer), (long)reads, (long)jumps, (long)other);
    fflush(stdout);
    abort();
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("model", ["local-exec", "initial-exec"])
def test_the_word_is_that_of_the_program(model: str, level: str, tmp_path: Path) -> None:
    (tmp_path / "library.c").write_text(LIBRARY)
    (tmp_path / "program.c").write_text(PROGRAM)
    flags = [level, f"-ftls-model={model}"]
    if model == "local-exec":
        made = compile_c(tmp_path / "library.c", tmp_path / "library.o", "-c", *flags)
    else:
        made = compile_c(tmp_path / "library.c", tmp_path / "libwords.so", "-shared", "-fPIC", *flags)
    program = compile_c(tmp_path / "program.c", tmp_path / "program", str(made), f"-Wl,-rpath,{tmp_path}")
    work = tmp_path / "work"
    work.mkdir()
    target = CoreFile(str(kernel_core(program, work, output=tmp_path / "told")))
    offset, reads, jumps, other = map(int, (tmp_path / "told").read_text().split())
    assert offset < 0
    assert set(thread_words(target, reads)) == {offset}
    # Without optimisation it calls the other function, and a call ends the search.
    assert set(thread_words(target, jumps)) == ({offset} if level == "-O2" and model == "local-exec" else set())
    assert set(thread_words(target, other)) == set()
