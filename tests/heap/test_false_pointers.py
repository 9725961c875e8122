"""False pointers into the heap, compared with the processes' own memory and files."""

from __future__ import annotations

import resource
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from dmods._engine import Image
from dmods.allocators.glibc.parameters import noted_sizes
from dmods.allocators.jemalloc import layouts
from dmods.allocators.jemalloc.false_words import leaf_keys
from dmods.allocators.search import Search
from dmods.base.dataclass import replace
from dmods.base.ranges import Ranges
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT
from dmods.heap.false_pointers.cpu_caches import cache_sizes
from dmods.heap.false_pointers.kernel import execve_text_range
from dmods.heap.false_pointers.leftovers import half_overwritten, half_overwritten_candidates
from dmods.heap.false_pointers.libc import (
    encrypted_pointers,
    pointer_guards,
    random_tables,
    stack_size_candidates,
    stack_sizes,
)
from dmods.heap.false_pointers.linker import unchanged_data, version_hashes
from dmods.heap.heap import find_heap
from dmods.heap.marks import root_ranges
from dmods.modules.auxv import AT_BASE, AT_RANDOM
from dmods.process.arch import I386, X86_64
from dmods.target import AddressRange, Module, Thread
from fixtures import answers, cores, jemallocs, judge
from fixtures.heaps import glibc
from tests.corekit import HERE, compile_c, kernel_core

EVERYWHERE = Ranges([(0, 1 << 32)])

#: Offsets in tcbhead_t (sysdeps/x86_64/nptl/tls.h, sysdeps/i386/nptl/tls.h): stack_guard, pointer_guard.
GUARDS = {"host": ("fs_base", 0x28, 0x30), "i386-bookworm": ("gs_base", 0x14, 0x18)}


@pytest.mark.parametrize("userland", list(GUARDS))
def test_the_guards_are_those_in_the_tcb(userland: str) -> None:
    target = judge.open_core(cores.take("sizes", userland=userland))
    register, *offsets = GUARDS[userland]
    tcb, word = target.threads()[0].registers[register], target.arch.word
    assert list(pointer_guards(target)) == [
        int.from_bytes(target.read(tcb + offset, word), "little") for offset in offsets
    ]


@pytest.mark.parametrize("userland", ["host", "i386-bookworm", "arm64-bookworm"])
def test_what_execve_wrote_is_text_and_nothing_below_it(userland: str) -> None:
    made = cores.take("sizes", userland=userland)
    target = judge.open_core(made)
    found = execve_text_range(target)
    assert found is not None
    text = target.read(found[0], found[1] - found[0])
    assert text.startswith(target.read(target.auxv[25], 16))
    assert b"\0DMODS_TRUTH=" in text
    assert text.endswith(b"sizes")
    # envp[] ends below it and points into it.
    word = target.arch.word
    below = target.read((found[0] & -word) - 2048, 2048)
    pointers = {int.from_bytes(below[at : at + word], "little") for at in range(0, 2048, word)}
    assert found[0] + text.index(b"\0DMODS_TRUTH=") + 1 in pointers
    heap = find_heap(target)
    assert not Ranges(root_ranges(heap.index)).within(*found)


@dataclass
class Made:
    """A Target with the parts that constants() uses."""

    words: Sequence[int]
    module: Module
    arch: Any = I386
    auxv: dict[int, int] = field(default_factory=dict)

    def image(self) -> Image:
        return Image([], [], [(self.module.start, struct.pack(f"<{len(self.words)}I", *self.words))])

    def modules(self) -> list[Module]:
        return [self.module]


def test_what_the_file_holds_is_no_pointer_to_a_heap(tmp_path: Path) -> None:
    heap = Ranges([(0x58000000, 0x58800000)])
    # In order: text, the linker's number, a pointer that the program wrote, a pointer that it wrote over a number, no
    # pointer, the end.
    before = [0x58414D5F, 0x58000010, 0, 0x58000020, 7]
    now = [0x58414D5F, 0x58000010, 0x58000030, 0x58000024, 7, 0x58000010]
    file = tmp_path / "file"
    file.write_bytes(bytes(4096) + struct.pack("<5I", *before))
    start = 0xF7000000
    piece = AddressRange(start, start + 24, "rw-", "/file", 4096, 24)
    module = Module("/file", start, start + 24, start, str(file), ranges=(piece,))
    roots = [(start, start + 24)]

    def found(module: Module, heap: Ranges = heap) -> list[tuple[int, int]]:
        target: Any = Made(now, module)
        return list(unchanged_data(Search(target, heap, roots)))

    assert found(module) == [(start, start + 4), (start + 4, start + 8)]
    assert found(replace(module, problem="another build-id")) == []
    assert found(replace(module, file=None)) == []
    assert found(replace(module, file=str(tmp_path / "gone"))) == []
    assert found(module, Ranges([(1 << 33, 1 << 34)])) == []
    beyond = piece._replace(offset=1 << 40)
    assert found(replace(module, ranges=(beyond,))) == []


@pytest.mark.thorough("it needs a 32-bit userland")
def test_the_registers_that_setjmp_encrypts() -> None:
    """__libc_start_call_main() saves its own registers before it calls main(). Here it has a symbol."""
    target = judge.open_core(cores.take("sizes", variant="static", userland="i386-bookworm"))
    roots = [(m.start, m.end) for m in target.mappings() if "w" in m.flags]
    places = sorted(start for start, _end in encrypted_pointers(Search(target, EVERYWHERE, roots)))
    guard = pointer_guards(target)[1]

    def plain(address: int) -> int:
        value = int.from_bytes(target.read(address, 4), "little")
        return ((value >> 9) | (value << 23 & 0xFFFFFFFF)) ^ guard

    pairs = [(plain(at), plain(at + 4)) for at in places if at + 4 in places]
    callers = [(sp, symbol.name) for sp, pc in pairs if (symbol := target.symbol_at(pc)) is not None]
    (sp,) = (sp for sp, name in callers if name == "__libc_start_call_main")
    assert sp > target.threads()[0].registers["esp"]
    assert len(places) <= 16  # and little else


def test_what_ld_so_may_not_write_any_more() -> None:
    """The bits of the CPU's features lie in the read-only part that the symbol names. The writable part remains."""
    target = judge.open_core(cores.take("sizes"))
    symbol = target.lookup("_rtld_global_ro")
    assert symbol is not None
    ranges = Ranges(root_ranges(find_heap(target).index))
    assert not ranges.within(symbol.address, symbol.address + symbol.size)
    written = target.lookup("_rtld_global")
    assert written is not None
    assert written.address in ranges


def test_sizes_of_the_cpus_caches() -> None:
    """The values that ld.so found and libc keeps, and half of them, count.

    ld.so's code and the program's data do not.
    """
    heap = Ranges([(0x0F000000, 0x11000000)])
    loader, libc, program = 0xF7F00000, 0xF7000000, 0x08048000
    words = {
        loader: [0x10000004],
        loader + 4096: [7, 0x10000000, 0x20000010],
        libc: [0x10000000, 0x10000004, 0x10000008, 0x08000000, 7],
        program: [0x10000000],
    }
    pieces = {at: AddressRange(at, at + 4 * len(some), "rw-", "/file", 0, 4 * len(some)) for at, some in words.items()}
    code, locked = (pieces[at]._replace(flags=flags) for at, flags in ((loader, "r-x"), (loader + 4096, "r--")))
    modules = [
        Module("/ld.so", loader, loader + 8192, loader, ranges=(code, locked)),
        Module("/lib/libc.so.6", libc, libc + 20, libc, ranges=(pieces[libc],)),
        Module("/program", program, program + 4, program, ranges=(pieces[program],)),
    ]
    target: Any = Made([], modules[1], auxv={AT_BASE: loader})
    target.modules = lambda: modules
    target.image = lambda: Image([], [], [(at, struct.pack(f"<{len(some)}I", *some)) for at, some in words.items()])
    roots = [(locked.start, locked.end), (libc, libc + 20), (program, program + 4)]
    assert list(cache_sizes(Search(target, heap, roots))) == [(libc, libc + 4), (libc + 8, libc + 12)]
    assert list(cache_sizes(Search(target, Ranges([(1 << 33, 1 << 34)]), roots))) == []
    assert list(cache_sizes(Search(target, heap, roots[1:]))) == []


@pytest.mark.parametrize(("line", "found"), [(64, True), (65, False)])
def test_sizes_of_the_cpus_caches_in_a_static_program(tmp_path: Path, line: int, found: bool) -> None:
    """The size of the third level leads into a leaked block. Only glibc's structure says that it is a size."""
    source = tmp_path / "caches.c"
    source.write_text(_CACHES.replace("LINE", str(line)))
    program = compile_c(source, tmp_path / "caches", "-static", "-no-pie")
    core = kernel_core(program, tmp_path, output=tmp_path / "out")
    (leaked,) = (int(number, 16) for number in (tmp_path / "out").read_text().split())
    heap = find_heap(CoreFile(str(core)))
    assert (leaked in {block.address for block in heap.blocks(DIRECT)}) == found


@pytest.mark.parametrize("userland", ["host", "i386-bookworm", "arm64-bookworm"])
def test_the_default_size_of_stacks(userland: str) -> None:
    """The one false word is the limit RLIMIT_STACK, or 2 or 8 MiB where there was no limit."""
    target = judge.open_core(cores.take("sizes", userland=userland))
    found = list(stack_size_candidates(Search(target, EVERYWHERE, ())))
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    expected = {limit} if limit != resource.RLIM_INFINITY else {2 << 20, 8 << 20}
    assert expected & {value for _at, value in found}
    assert len(found) <= 2
    assert list(stack_size_candidates(Search(target, Ranges([(1 << 33, 1 << 34)]), ()))) == []


@pytest.mark.parametrize("userland", ["host", "i386-bookworm"])
def test_hashes_of_symbol_versions(userland: str) -> None:
    """ld.so keeps a hash of every version that the program asks for."""
    made = cores.take("sizes", userland=userland)
    target = judge.open_core(made)
    roots = [(m.start, m.end) for m in target.mappings() if "w" in m.flags]
    word = target.arch.word
    places = [start for start, _end in version_hashes(Search(target, EVERYWHERE, roots))]
    found = {int.from_bytes(target.read(at, word), "little") for at in places}
    with open(made.executable, "rb") as file:
        needed = ELFFile(file).get_section_by_name(".gnu.version_r")
        hashes = {aux.entry.vna_hash for _version, auxes in needed.iter_versions() for aux in auxes}
    assert hashes
    assert hashes <= found
    assert list(version_hashes(Search(target, Ranges([(1 << 33, 1 << 34)]), roots))) == []


@dataclass
class Running:
    """A Target with the parts that halves() and stack_sizes() use: one thread, with its sp at the fourth word."""

    words: Sequence[int]
    start: int = 0x7FFD00000000
    arch: Any = X86_64

    def image(self) -> Image:
        return Image([], [], [(self.start, struct.pack(f"<{len(self.words)}Q", *self.words))])

    def mappings(self) -> list[AddressRange]:
        size = 8 * len(self.words)
        return [AddressRange(self.start, self.start + size, "rw-", None, 0, size)]

    @property
    def auxv(self) -> dict[int, int]:
        return {AT_RANDOM: self.start}  # the kernel made this stack

    def modules(self) -> list[Module]:
        return []

    def state(self) -> int:
        return 0

    def threads(self) -> list[Thread]:
        return [Thread(1, {"rsp": self.start + 24})]


def test_the_size_of_a_stack_beside_its_beginning() -> None:
    start = Running([]).start
    # In order: below sp; ends above the word; at the word; above; above; beyond the mapping; the address of no page.
    words = [0x60, start, 0, 0x60, start, 0x28, 0, start, 0x60, 0, 0x68, start, 0, 0, start, 0x2000, start + 8, 0x60]
    target: Any = Running(words)
    found = list(stack_size_candidates(Search(target, Ranges([(0x20, 0x3000)]), ())))
    assert found == [(start + 8 * index, words[index]) for index in (3, 8, 10)]
    assert list(stack_size_candidates(Search(target, Ranges([(0x64, 0x3000)]), ()))) == [(start + 80, 0x68)]


def test_an_int_over_half_of_a_pointer() -> None:
    at = 0x7FAF00000000
    heap = Ranges([(at - 0x10000, at + 0x10000)])
    # In order: below sp; 0, flags, -1; pointers that are too far away; pointers of another heap.
    words = [at, at + 1, at + 2, at, at + 0x189, at - 1, at + 0x2000, at - 0x2000, at + 0x100000000]
    target: Any = Running(words)
    place = target.start
    expected = [(place + 24, at), (place + 32, at + 0x189), (place + 40, at - 1)]
    assert sorted(half_overwritten_candidates(Search(target, heap, ()))) == expected
    assert list(half_overwritten_candidates(Search(target, Ranges([(at + 8, at + 0x10000)]), ()))) == []
    assert (
        list(half_overwritten_candidates(Search(target, Ranges([(at, at + 0x10000)]), ()))) == []
    )  # no range lies across it
    assert list(half_overwritten_candidates(Search(target, Ranges([(0, 1 << 64)]), ()))) == []


def test_a_candidate_that_leads_to_the_beginning_of_a_block_is_a_pointer() -> None:
    """Only a value that leads inside a block is a false pointer. A value that leads to no block anchors nothing."""
    start = Running([]).start
    target: Any = Running([0, 0, 0, 0x60, start, *[0] * 8])
    heap = Ranges([(0x20, 0x3000)])
    word = (start + 24, start + 32)
    assert list(stack_sizes(Search(target, heap, (), lambda _value: 0x50))) == [word]
    assert list(stack_sizes(Search(target, heap, (), lambda value: value))) == []
    assert list(stack_sizes(Search(target, heap, (), lambda _value: None))) == []
    at = 0x7FAF00000000
    target = Running([0, 0, 0, at + 0x189])
    heap = Ranges([(at - 0x10000, at + 0x10000)])
    assert list(half_overwritten(Search(target, heap, (), lambda _value: at))) == [word]
    assert list(half_overwritten(Search(target, heap, (), lambda value: value))) == []


def test_the_keys_of_a_jemalloc_tree() -> None:
    """A key of 1 GiB inside a block is none beside a pointer to jemalloc's own memory, and a pointer elsewhere."""
    key, leaf = 3 << 30, 0x700000001000
    target: Any = Running([key, leaf, key, 0, key + 8, leaf])
    tree: Any = SimpleNamespace(layout=layouts.LAYOUTS[0], base=Ranges([(leaf, leaf + 0x1000)]))
    heap, roots = Ranges([(key - 0x1000, key + 0x1000)]), [(target.start, target.start + 48)]
    found = Search(target, heap, roots, lambda _value: key - 64)
    assert list(leaf_keys(tree, found)) == [(target.start, target.start + 8)]
    assert list(leaf_keys(tree, replace(found, block_of=lambda value: value))) == []


def test_what_malloc_keeps_of_sizes(tmp_path: Path) -> None:
    program = compile_c(HERE / "sizes_kept.c", tmp_path / "sizes_kept", "-no-pie", "-fno-pie")
    target = CoreFile(str(kernel_core(program, tmp_path)))
    heap = find_heap(target)
    (leaked,) = heap.blocks(DIRECT)
    assert leaked.size == 20008
    (parameters,) = (one.parameters for one in glibc(heap).layout.mallocs)
    assert parameters is not None
    (held,) = [at for at, value in noted_sizes(heap.words, parameters) if leaked.address <= value < leaked.end]
    symbol = target.symbol_at(held)
    assert symbol is None or symbol.name == "mp_"


#: randtbl[1] (stdlib/random.c), which no call of random() has changed yet.
FIRST_NUMBER = struct.pack("<i", -1726662223)


@pytest.mark.thorough("it needs a 32-bit userland")
def test_the_numbers_of_random_are_no_pointers() -> None:
    target = judge.open_core(cores.take("sizes", userland="i386-bookworm"))
    roots = [(m.start, m.end) for m in target.mappings() if "w" in m.flags]
    data = [(m.start, m.end) for m in target.mappings() if "w" in m.flags and m.path and "libc.so" in m.path]
    starts = [start + target.read(start, end - start).index(FIRST_NUMBER) for start, end in data]
    assert list(random_tables(Search(target, EVERYWHERE, roots))) == [(start, start + 31 * 4) for start in starts]
    assert len(starts) == 1
    assert list(random_tables(Search(target, Ranges([(1 << 33, 1 << 34)]), roots))) == []


@pytest.mark.thorough("it needs a 32-bit userland")
@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_a_program_in_a_sysroot_has_its_files(how: str) -> None:
    """The program ran in a chroot. The kernel notes the paths as seen inside, gdb those outside."""
    target = judge.open_core(cores.take("sizes", how, userland="i386-bookworm"))
    modules = [m for m in target.modules() if m.path != "[vdso]"]
    assert modules
    assert all(m.file and not m.problem for m in modules)


_BUFFERED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// Pointers are left far below the frames of abort(), which has room on its stack that it never writes.
static __attribute__((noinline)) void leak(void) {
    volatile char room[1 << 16];
    room[0] = 0;
    FILE *truth = fopen("truth", "w");
    setvbuf(truth, NULL, _IONBF, 0);
    char *buffer = malloc(1024);
    setvbuf(stdout, buffer, _IOFBF, 1024);
    printf("text");
    fprintf(truth, "%p", (void *)buffer);
    for (int i = 0; i < 3; i++) {
        char *leaked = malloc(1024);
        memset(leaked, 'x', 1024);
        fprintf(truth, " %p", (void *)leaked);
        leaked = 0;
    }
}
int main(void) {
    leak();
    abort();
}
"""


@pytest.mark.thorough("it needs a package of Debian")
def test_the_end_of_a_files_buffer_does_not_hold_the_block_behind_it(tmp_path: Path) -> None:
    """jemalloc's blocks have no headers between them: the end of stdout's buffer is the beginning of a leaked block."""
    (tmp_path / "buffered.c").write_text(_BUFFERED)
    program = compile_c(tmp_path / "buffered.c", tmp_path / "buffered")
    target = CoreFile(str(kernel_core(program, tmp_path, env={"LD_PRELOAD": jemallocs.library()})))
    buffer, *leaked = (int(word, 16) for word in (tmp_path / "truth").read_text().split())
    assert leaked[0] == buffer + 1024
    heap = find_heap(target)
    assert {block.address for block in heap.blocks(DIRECT)} == set(leaked)


# The upper half of the first word of a FILE is what was there before. The block covers 0xFBAD0000 of that half: its
# mapping gets the only hole in a large one.
_FLAGS = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static volatile uintptr_t secret = 0x5555555555555555;
int main(void) {
    size_t room = 10UL << 30, hole = 16UL << 20;
    FILE *truth = fopen("truth", "w"), *volatile file = fopen("/dev/null", "w");
    char *map = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uintptr_t at = ((uintptr_t)map + (4UL << 30)) >> 32 << 32 | 0xFB000000;
    if (map == MAP_FAILED || munmap((void *)at, hole))
        return 1;
    uintptr_t hidden = (uintptr_t)malloc(12 << 20) ^ secret;
    fprintf(truth, "%lu %lu", (unsigned long)hidden, (unsigned long)file);
    fclose(truth);
    *(uint32_t *)((char *)file + 4) = at >> 32;
    abort();
}
"""


def test_the_flags_of_a_file_hold_no_block(tmp_path: Path) -> None:
    (tmp_path / "flags.c").write_text(_FLAGS)
    program = compile_c(tmp_path / "flags.c", tmp_path / "flags", "-O2")
    target = CoreFile(str(kernel_core(program, tmp_path)))
    hidden, file = map(int, (tmp_path / "truth").read_text().split())
    lost, word = hidden ^ 0x5555555555555555, int.from_bytes(target.read(file, 8), "little")
    assert lost <= word < lost + (12 << 20)
    heap = find_heap(target)
    assert [block.address for block in heap.blocks(DIRECT)] == [lost]
    (row,) = answers.by_name(answers.answer(target, "whatis", hex(lost)))["pointed_to_by"]
    assert (int(row["at"], 16), row["note"]) == (file, "holds nothing: no program reads this as a pointer")


_CACHES = """
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* struct cpu_features ends so: sysdeps/x86/include/cpu-features.h */
static volatile struct {
    unsigned long data, shared, non_temporal, movsb, movsb_stop, stosb;
    unsigned long code, code_line, first, first_ways, first_line, second, second_ways, second_line;
    unsigned long third, third_ways, third_line;
} features = {.code = 32768, .code_line = LINE, .first = 49152, .first_ways = 12, .first_line = 64,
              .second = 2 << 20, .second_ways = 16, .second_line = 64, .third_ways = 20, .third_line = 64};
static volatile unsigned long tunable;
__attribute__((noinline)) static void leak(void) {
    char *volatile leaked = malloc(1 << 20);
    features.third = ((uintptr_t)leaked + (512 << 10)) & -4096;
    tunable = features.shared = features.third;
    dprintf(1, "%p\\n", (void *)leaked);
    leaked = NULL;
}
int main(void) {
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    leak();
    dprintf(1, "\\n");
    abort();
}
"""
