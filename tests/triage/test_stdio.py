"""Output that stdio had not written, against __fpending() and fileno() in the program itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.process.stdio import open_files
from dmods.triage.process import triage_process
from tests.corekit import compile_c, kernel_core

PROGRAM = """
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void tell(FILE *truth, FILE *of) { fprintf(truth, "%d %zu\\n", fileno(of), __fpending(of)); }
int main(int argc, char **argv) {
    char *kept = 0;
    size_t size = 0;
    FILE *truth = fopen("truth", "w"), *log = fopen("log", "w"), *read = fopen(argv[0], "r");
    FILE *memory = open_memstream(&kept, &size), *closed = fopen("closed", "w");
    fputs("no descriptor", memory);
    fclose(closed);
    printf("flushed\\n");
    fflush(stdout);
    for (int i = 0; i < 40; i++) fprintf(log, "line %d of the log\\n", i);
    fgetc(read);
    if (argc < 2) printf("the last words");
    FILE *all[] = {stdin, stdout, stderr, log, read};
    for (int i = 0; i < 5; i++) tell(truth, all[i]);
    fprintf(truth, "%d 0\\n", fileno(truth));
    fflush(truth);
    abort();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("stdio")
    (where / "stdio.c").write_text(PROGRAM)
    return compile_c(where / "stdio.c", where / "stdio", "-w")


@pytest.mark.thorough("it takes a core")
def test_what_was_not_written(program: Path, tmp_path: Path) -> None:
    core = CoreFile(str(kernel_core(program, tmp_path)))
    truth = {int(fd): int(size) for fd, size in map(str.split, (tmp_path / "truth").read_text().splitlines())}
    assert {each.descriptor: each.unwritten for each in open_files(core)} == truth
    found = triage_process(core)
    assert found.crash is not None
    (told,) = (line.text for line in found.crash.facts if line.name == "unwritten")
    (log,) = (fd for fd, size in truth.items() if size > 100)
    assert "14 bytes to descriptor 1: the last words" in told
    assert re.search(rf"{truth[log]:,} bytes to descriptor {log}: \.\.\..*line 39 of the log", told)
    assert told.count(" bytes to descriptor ") == sum(map(bool, truth.values())) == 2
    (gap,) = (one.why for one in found.unknown if one.what.startswith("open files, sockets"))
    assert gap.endswith(f"stdio has descriptors {', '.join(map(str, sorted(truth)))}")
    private = triage_process(core, private=True)
    assert private.crash is not None
    assert "last words" not in str(private.crash)


@pytest.mark.thorough("it takes a core")
def test_a_list_that_is_damaged(program: Path, tmp_path: Path) -> None:
    """The chain of a file is turned back to itself, and leads to nowhere: the files before it stay."""
    path = kernel_core(program, tmp_path)
    core = CoreFile(str(path))
    first, second = open_files(core)[:2]
    for wrong in (second.address, 0x10):
        with path.open("r+b") as file:
            file.seek(offset(path, second.address + 104))  # its _chain
            file.write(wrong.to_bytes(8, "little"))
        assert open_files(CoreFile(str(path))) == [first, second]


def offset(path: Path, address: int) -> int:
    """Return where the memory at the address lies in a core."""
    with path.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            if segment["p_vaddr"] <= address < segment["p_vaddr"] + segment["p_filesz"]:
                return int(segment["p_offset"] + address - segment["p_vaddr"])
    raise AssertionError(f"{address:#x} is not in {path}")
