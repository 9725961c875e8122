"""Memory that dmods does not look at, or cannot see: pointers at odd places, and requests in an io_uring."""

from __future__ import annotations

import re
from pathlib import Path

from dmods.heap.block import DIRECT, LIVE
from dmods.heap.follow import Follow
from dmods.heap.heap import ProcessHeap, find_heap
from fixtures import answers, cores, judge
from tests.corekit import Memory, compile_c, elf64_core, file_note, kernel_core, note, prstatus64

IO_URING = "the process uses io_uring"


def test_pointers_at_any_byte() -> None:
    made = cores.take("packed")
    assert not judge.problems(ProcessHeap(judge.open_core(made), Follow(unaligned=True)), made.truth)


def test_only_if_it_is_asked_for() -> None:
    """Without the option each of the blocks is reported, and with it the note says what the answer is worth."""
    made = cores.take("packed")
    plain, unaligned = answers.typed("findleaks", made.core), answers.typed("findleaks", made.core, "--unaligned")
    assert plain["totals"]["leaked_count"] == len(made.truth.blocks)
    assert unaligned["totals"]["leaked_count"] == len(made.truth.leaked)
    hidden = [[note for note in answer["notes"] if "leaks may be hidden" in note] for answer in (plain, unaligned)]
    assert [len(notes) for notes in hidden] == [0, 1]


def test_leaks_with_such_pointers_have_a_note(tmp_path: Path) -> None:
    """A packed array holds 200 blocks, and 300 have leaked. Where there are only leaks, there is no note."""
    source = tmp_path / "parcels.c"
    source.write_text(_PARCELS)
    program = compile_c(source, tmp_path / "parcels")
    for held in (200, 0):
        answer = answers.typed("findleaks", kernel_core(program, tmp_path, str(held), "300"))
        packed = held * 7 // 8  # every eighth is aligned
        assert 297 <= answer["totals"]["leaked_count"] - packed <= 300  # old words may hold a few
        told = [re.match(r"([\d,]+) of the ([\d,]+) leaked blocks have pointers", each) for each in answer["notes"]]
        numbers = [(int(each[1]), int(each[2])) for each in told if each]
        assert numbers == ([(packed, answer["totals"]["leaked_count"])] if held else [])


_PARCELS = """
#include <stdlib.h>
#include <string.h>
struct __attribute__((packed)) parcel { char kind; char *text; } *parcels;
int main(int argc, char **argv) {
    long held = atol(argv[1]), leaked = atol(argv[2]);
    parcels = calloc(held + 1, sizeof *parcels);
    for (long i = 0; i < held; i++)
        parcels[i].text = strdup("a text of a parcel");
    for (long i = 0; i < leaked; i++) {
        long *volatile lost = calloc(5, sizeof(long));
        lost[0] = lost[3] = i << 16 | 0x5555;
    }
    abort();
}
"""


def test_vector_registers_are_read_at_any_byte_too() -> None:
    made = cores.take("vectors")
    odd = next(block.address for block in made.truth.blocks.values() if block.name.startswith("at an odd place"))
    target = judge.open_core(made)
    for heap, state in ((find_heap(target), DIRECT), (ProcessHeap(target, Follow(unaligned=True)), LIVE)):
        block = heap.block_at(odd)
        assert block is not None
        assert block.state == state


def test_what_points_back_to_a_block_at_an_odd_place_does_not_keep_it() -> None:
    made = cores.take("packed")
    heap = ProcessHeap(judge.open_core(made), Follow(unaligned=True))
    by_name = {block.name: block.address for block in made.truth.blocks.values()}
    large, child = heap.block_at(by_name["large"]), by_name["at a border"]
    assert large is not None
    assert heap.marks.reached_without(large, [child, by_name["on the stack"]]) == [False, True]


def test_a_process_with_an_io_uring() -> None:
    """The program says whether the kernel gave it one. Only there its block is held, and only there is a note."""
    made = cores.take("rings")
    answer = answers.typed("findleaks", made.core)
    notes = [note for note in answer["notes"] if note.startswith(IO_URING)]
    assert len(notes) == answer["totals"]["leaked_count"] == made.truth.facts["io_uring"]


def test_a_core_whose_mappings_name_an_io_uring(tmp_path: Path) -> None:
    """The kernel does not dump the shared mapping of an io_uring."""
    rings = (0x7F0000000000, 0x7F0000001000, 0x10000000, "anon_inode:[io_uring]")
    other = (0x7F0000002000, 0x7F0000003000, 0, "/tmp/shared [io_uring]")
    for number, files in enumerate(([rings, other], [other])):
        notes = note(1, prstatus64(7, [0] * 27)) + note(0x46494C45, file_note(files))
        memory = [Memory(entry[0], b"", size=0x1000) for entry in files]
        core = tmp_path / f"core.{number}"
        core.write_bytes(elf64_core([*memory, Memory(0x7F0000010000, bytes(4096))], notes))
        done = answers.dmods("findleaks", core)
        assert (IO_URING in done.stderr) == (rings in files), done.stderr
