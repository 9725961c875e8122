"""The TLS blocks of a thread, compared with the addresses of its thread-local variables."""

from __future__ import annotations

from pathlib import Path

from dmods._engine import Symbols
from dmods.base.words import Words
from dmods.corefile.target import CoreFile
from dmods.process.tls import dtv_blocks
from tests.corekit import compile_c, kernel_core

LIBRARY = "__thread long in_library[4] = {1}; void *where(void) { return in_library; }\n"
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
void *where(void);
__thread long in_program[4] = {2};
int main(void) {
    FILE *out = fopen("truth", "w");
    fprintf(out, "%lu %lu\\n", (unsigned long)in_program, (unsigned long)where());
    fclose(out);
    abort();
}
"""


def test_the_blocks_hold_the_variables_of_each_module(tmp_path: Path) -> None:
    (tmp_path / "l.c").write_text(LIBRARY)
    (tmp_path / "p.c").write_text(PROGRAM)
    library = compile_c(tmp_path / "l.c", tmp_path / "libl.so", "-shared", "-fPIC")
    program = compile_c(tmp_path / "p.c", tmp_path / "p", str(library), f"-Wl,-rpath,{tmp_path}")
    (tmp_path / "run").mkdir()
    target = CoreFile(str(kernel_core(program, tmp_path / "run")))
    thread = target.threads()[0]
    blocks = dtv_blocks(Words(target.image(), target.arch.word), target.arch, thread.registers["fs_base"])
    addresses = [int(word) for word in (tmp_path / "run" / "truth").read_text().split()]
    assert len(addresses) == 2
    for path, name, address in zip((program, library), ("in_program", "in_library"), addresses):
        found = Symbols([str(path)]).tls(name)
        assert found is not None
        assert address - found[0] in blocks


def test_a_dtv_that_lies_gives_no_blocks(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text("#include <stdlib.h>\nint main(void) { abort(); }\n")
    program = compile_c(tmp_path / "p.c", tmp_path / "p")
    (tmp_path / "run").mkdir()
    target = CoreFile(str(kernel_core(program, tmp_path / "run")))
    words = Words(target.image(), target.arch.word)
    sp = target.threads()[0].registers["rsp"]
    for pointer in (0, 1, 8, (1 << 64) - 8, sp):
        assert len(dtv_blocks(words, target.arch, pointer)) <= 1 << 12
    assert dtv_blocks(words, target.arch, 0) == []
    assert dtv_blocks(words, target.arch, (1 << 64) - 8) == []
