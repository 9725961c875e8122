"""A variable that the program sets is no slot of the dynamic linker: it proves no allocator mismatch."""

from __future__ import annotations

from pathlib import Path

from dmods.corefile.target import CoreFile
from dmods.process.malloc_slots import providers, slots
from dmods.triage.bindings import mixes
from tests.corekit import compile_c, kernel_core

#: Its functions are variables, as libogg's are: a program may set others.
HOOKED = """
#include <stdlib.h>
void *(*take)(size_t) = malloc;
void (*give)(void *) = free;
void *keep(void) { return calloc(1, 100); }
void drop(void *block) { give(block); }
"""
COUNTED = """
#include <stdlib.h>
int count;
void *counted_malloc(size_t size) { count++; return malloc(size); }
void counted_free(void *block) { count--; free(block); }
"""
PROGRAM = """
#include <stdlib.h>
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void __libc_free(void *);
void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void free(void *block) { __libc_free(block); }
extern void *(*take)(size_t);
extern void (*give)(void *);
void *keep(void);
void drop(void *);
void *counted_malloc(size_t);
void counted_free(void *);
int main(void) {
    drop(keep());
#ifdef SET
    take = counted_malloc;
    give = counted_free;
#endif
    drop(take(100));
    abort();
}
"""


def test_variables_that_the_program_set_are_no_slots(tmp_path: Path) -> None:
    """The words of the library first led to the program's malloc() and free(), then to functions that call these."""
    for name, text in (("hooked", HOOKED), ("counted", COUNTED), ("program", PROGRAM)):
        (tmp_path / f"{name}.c").write_text(text)
    shared = ("-shared", "-fPIC")
    libraries = [compile_c(tmp_path / f"{one}.c", tmp_path / f"lib{one}.so", *shared) for one in ("hooked", "counted")]
    # -fPIE: the program leaves the variables in the library, and does not copy them.
    flags = ("-rdynamic", "-fPIE", "-pie", "-Wl,-z,nocopyreloc", "-mno-direct-extern-access")
    for how in ((), ("-DSET",)):
        work = tmp_path / f"work{len(how)}"
        work.mkdir()
        program = compile_c(tmp_path / "program.c", work / "program", *how, *flags, *map(str, libraries))
        target = CoreFile(str(kernel_core(program, work)))
        assert len(providers(target)) == 2
        words = [slot for slot in slots(target) if slot.module.name == "libhooked.so"]
        assert {slot.server.name for slot in words} == {"program"}
        assert ("malloc" in {slot.function for slot in words}) == (not how)
        assert mixes(target) == []
