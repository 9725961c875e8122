"""Memory that the kernel gives a name and that is no file: the code of a JIT in a memfd."""

from __future__ import annotations

from pathlib import Path

from dmods.corefile.target import CoreFile
from tests.corekit import compile_c, kernel_core

JIT = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int fd = memfd_create("jit", 0);
    if (ftruncate(fd, 8192))
        return 1;
    memset(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), 0xc3, 8192);
    mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    abort();
}
"""


def test_code_in_a_memfd_is_no_missing_file(tmp_path: Path) -> None:
    (tmp_path / "jit.c").write_text(JIT)
    target = CoreFile(str(kernel_core(compile_c(tmp_path / "jit.c", tmp_path / "jit"), tmp_path)))
    assert [mapping.flags for mapping in target.mappings() if "memfd:jit" in (mapping.path or "")]
    assert not [module.path for module in target.modules() if module.path.startswith("/memfd:")]
    target.image()
    assert not [note for note in target.notes if "not on this machine" in note]
