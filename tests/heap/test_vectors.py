"""Vector and floating-point registers as roots. fixtures/userland/vectors.c says what each of them holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.modules import elf
from dmods.process.vectors import NT_PRFPREG, NT_X86_XSAVE_LAYOUT, NT_X86_XSTATE
from fixtures import answers, cores, judge, userlands
from fixtures._cache import ROOT
from fixtures.kernel import processes
from fixtures.truth import Truth

#: The name of a block in the truth -> the register that whatis names. The number is that of the word.
REGISTERS = {"x87": "st7", "xmm3": "xmm3[1]", "ymm5": "ymm5[2]", "ymm4": "ymm4[3]", "zmm1": "zmm1[4]"}
REGISTERS.update({"zmm7": "zmm7[7]", "zmm30": "zmm30[7]", "xmm17": "zmm17[0]", "xmm0": "xmm0[0]"})


def test_the_program_uses_what_its_processor_has() -> None:
    """The program itself says which registers the processor lacks. SSE, MMX and the x87 unit are always there."""
    with open("/proc/cpuinfo") as info:
        flags = next(line for line in info if line.startswith("flags")).split()
    truth = cores.take("vectors").truth
    assert truth.facts == {"sse": 1, "avx": "avx" in flags, "avx512": {"avx512f", "avx512bw"} <= set(flags)}
    names = {block.name for block in truth.blocks.values()}
    assert {"xmm0", "xmm3", "mm1", "x87"} <= names
    assert ("ymm5" in names) == ("avx" in flags)
    assert cores.take("vectors", mode="sse").truth.facts == {"sse": 1, "avx": 0, "avx512": 0}


def test_whatis_names_the_register() -> None:
    made = cores.take("vectors")
    target = judge.open_core(made)
    live = [block for block in made.truth.blocks.values() if block.state == "live"]
    facts = made.truth.facts
    assert len(live) == 5 + 2 * facts["avx"] + 6 * facts["avx512"]
    for block in live:
        expected = "xmm6[1]" if block.name == "a register of another thread" else REGISTERS.get(block.name, block.name)
        tables = answers.by_name(answers.answer(target, "whatis", hex(block.address)))
        assert [row["register"] for row in tables["pointed_to_by"] if row["register"]] == [expected], block.name


def test_the_blocks_are_named_as_weakly_held() -> None:
    """The program's own count of the blocks that only registers hold."""
    made = cores.take("vectors")
    notes = answers.typed("findleaks", made.core)["notes"]
    count = sum(block.state == "live" for block in made.truth.blocks.values())
    assert [note for note in notes if note.startswith(f"{count} blocks are held by vector registers alone")]
    none = cores.take("freed")
    assert not [note for note in answers.typed("findleaks", none.core)["notes"] if "vector" in note]


def test_an_integer_of_the_x87_unit_in_a_signal_frame_is_named() -> None:
    made = cores.take("vectors", mode="handler")
    address = next(block.address for block in made.truth.blocks.values() if block.name == "x87")
    tables = answers.by_name(answers.typed("whatis", made.core, hex(address)))
    assert [row["register"] for row in tables["pointed_to_by"]] == ["st7 (saved in a signal frame)"]


def without_notes(core: Path, where: Path, *kinds: int) -> Path:
    """Return a copy of the core in which the notes of these kinds have another kind."""
    data = bytearray(core.read_bytes())
    for segment in elf.parse(lambda at, size: bytes(data[at : at + size]), str(core)).segments:
        at, end = segment.offset, segment.offset + segment.filesz
        while segment.type == elf.PT_NOTE and at < end:
            name, desc, kind = (int.from_bytes(data[at + skip : at + skip + 4], "little") for skip in (0, 4, 8))
            if kind in kinds:
                data[at + 8 : at + 12] = (0x7777).to_bytes(4, "little")
            at += 12 + -(-name // 4) * 4 + -(-desc // 4) * 4
    copy = where / "core.copy"
    copy.write_bytes(data)
    return copy


def test_a_core_without_the_wide_registers_has_those_of_sse(tmp_path: Path) -> None:
    """A processor without XSAVE leaves NT_PRFPREG alone."""
    made = cores.take("vectors", mode="sse")
    core = without_notes(made.core, tmp_path, NT_X86_XSTATE)
    heap = find_heap(CoreFile(str(core)))
    assert not judge.problems(heap, made.truth)
    assert not heap.roots.notes


def test_a_core_that_does_not_tell_the_layout(tmp_path: Path) -> None:
    """Kernels before 6.12 do not tell it. The size of the area tells which processors' layout it is."""
    made = cores.take("vectors")
    core = without_notes(made.core, tmp_path, NT_X86_XSAVE_LAYOUT)
    assert not judge.problems(find_heap(CoreFile(str(core))), made.truth)


def test_a_core_without_vector_registers_says_so(tmp_path: Path) -> None:
    made = cores.take("vectors", mode="sse")
    core = without_notes(made.core, tmp_path, NT_X86_XSTATE, NT_PRFPREG)
    answer = answers.typed("findleaks", core)
    assert answer["totals"]["leaked_count"] == len(made.truth.blocks)
    assert any("no vector registers" in note for note in answer["notes"])


def found_by_gdb(tmp_path: Path, *words: object) -> int:
    """Return how many leaks findleaks finds in a gdb with these arguments."""
    find = ("-ex", "echo {cut}", "-ex", "findleaks --json", "-ex", "echo {cut}")
    argv = ("gdb", "-batch", "-x", ROOT / "heapcmds.py", *words, *find)
    done = answers.finished(*argv, env=answers.user_environment(tmp_path))
    assert done.stdout.count("{cut}") == 2, done.stderr
    return int(json.loads(done.stdout.split("{cut}")[1])["totals"]["leaked_count"])


def test_a_core_in_gdb(tmp_path: Path) -> None:
    """gdb 13 does not show all of them. dmods reads them from the core's notes."""
    made = cores.take("vectors")
    assert found_by_gdb(tmp_path, made.core) == len(made.truth.leaked)


def test_in_a_live_process_gdb_is_asked(tmp_path: Path) -> None:
    launch = cores.Launch(
        userlands.get("host"), cores.build("vectors"), {"DMODS_END": "pause", "DMODS_MODE": ""}, tmp_path
    )
    with cores.started(launch) as process:
        cores.wait_until_told(process, tmp_path)
        leaked = found_by_gdb(tmp_path, "-p", process.pid)
    assert leaked == len(Truth.read(tmp_path / "truth").leaked) == 2


@pytest.mark.thorough("it boots a kernel")
@pytest.mark.parametrize("mode", ["", "handler"])
@pytest.mark.parametrize(
    ("release", "userland", "facts"),
    [
        ("6.1", "host", {"sse": 1, "avx": 1, "avx512": 0}),
        ("6.12", "host", {"sse": 1, "avx": 1, "avx512": 0}),
        ("6.1-arm64", "arm64-bookworm", {"sve": 1}),
    ],
)
def test_the_kernels_of_other_machines(release: str, userland: str, facts: dict[str, int], mode: str) -> None:
    """QEMU's processors: one without AVX-512, and one with SVE. The cores are those of the kernel in the guest."""
    made = processes.take("vectors", userland, release, mode)
    assert made.truth.facts == facts
    assert not judge.problems(find_heap(judge.open_core(made)), made.truth)
