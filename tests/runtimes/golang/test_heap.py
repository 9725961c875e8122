"""Go's heap out of cores, compared with runtime.ReadMemStats at the instant before and with what the program made."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dmods._engine import find_pointers
from dmods.allocators.golang.heap import GoBlocks
from dmods.base.ranges import Ranges
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.runtimes.golang.mheap import ARENA, find_mheap
from dmods.runtimes.golang.objects import go_types
from fixtures import answers, gos
from fixtures.heaps import others
from fixtures.limits import HANG
from tests import corekit
from tests.runtimes.golang.test_goroutines import offset

pytestmark = pytest.mark.thorough("it builds Go programs with several releases of Go")

HERE = Path(__file__).parent
#: The oldest and the newest release, and those in which the layout of spans or of objects changed. Green Tea is the
#: collector that keeps mark bits inside spans: an experiment in 1.25, the usual one since 1.26.
RELEASES = (
    "1.19.13",
    "1.20.14",
    "1.22.12",
    "1.24.13",
    "1.24.13 pie",
    "1.25.5",
    "1.25.5 greenteagc",
    "1.26.0",
    "1.27.4",
)
BY_SIZE = 61  # entries of MemStats.BySize


class Program(NamedTuple):
    """A program that died. ``truth`` is what it made: (what, type, address, bytes)."""

    core: Path
    stripped: bool

    @property
    def truth(self) -> list[tuple[str, str, int, int]]:
        lines = (line.split() for line in self.core.with_name("truth").read_text().splitlines())
        return [(what, kind, int(at, 16), int(size)) for what, kind, at, size in lines]


def build(release: str, flags: str, source: str, where: Path, cache: Path, *, cgo: bool = False) -> Path:
    """Build a program and return it. Behind the release may stand an experiment (GOEXPERIMENT), or "pie"."""
    release, _space, word = release.partition(" ")
    experiment, mode = ("", word) if word == "pie" else (word, "default")
    other = release != "host"
    environment = {
        **{key: value for key, value in os.environ.items() if key != "GOROOT"},
        "GO111MODULE": "off",
        "CGO_ENABLED": str(int(cgo)),
        "GOEXPERIMENT": experiment,
        **({"GOTOOLCHAIN": "local", "GOCACHE": str(cache)} if other else {}),
    }
    program = where / Path(source).stem
    words = [f"-ldflags={flags}", f"-buildmode={mode}", "-o", program]
    command = [gos.go(release) if other else "go", "build", *words, HERE / source]
    subprocess.run(command, check=True, cwd=where, env=environment, timeout=HANG)
    return program


def built(release: str, flags: str, source: str, where: Path, cache: Path, *words: str, cgo: bool = False) -> Path:
    """Build a program and return its core."""
    program = build(release, flags, source, where, cache, cgo=cgo)
    (where / "run").mkdir()
    return corekit.kernel_core(program, where / "run", *words, env={"GOTRACEBACK": "crash"})


def _case(release: str, flags: str) -> Any:
    """Return a parameter. What a stripped program's heap says, one with symbols says in the same way."""
    marks = (
        [] if flags or release in (RELEASES[0], RELEASES[-1]) else [pytest.mark.seldom("other releases have symbols")]
    )
    return pytest.param((release, flags), marks=marks, id=f"{release}{flags}")


@pytest.fixture(scope="module", params=[_case(r, s) for r in RELEASES for s in ("", "-s -w")])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    release, flags = request.param
    where, cache = tmp_path_factory.mktemp("goheap"), tmp_path_factory.getbasetemp() / f"cache-{release}"
    return Program(built(release, flags, "goheap.go", where, cache, "truth", "stats"), bool(flags))


@pytest.fixture(scope="module")
def heap(program: Program) -> ProcessHeap:
    found = find_heap(CoreFile(str(program.core)))
    found.leaks()
    return found


def memory_statistics(data: bytes) -> tuple[int, dict[int, int]]:
    """Return HeapAlloc, and how many objects of each size are in use, out of a runtime.MemStats."""
    (in_use,) = struct.unpack_from("<Q", data, 48)
    first = len(data) - BY_SIZE * 24
    rows = [struct.unpack_from("<I4xQQ", data, first + 24 * n) for n in range(BY_SIZE)]
    assert [size for size, _made, _freed in rows[:4]] == [0, 8, 16, 24]
    return in_use, {size: made - freed for size, made, freed in rows if size}


def test_objects_in_use_are_those_of_the_runtime(program: Program, heap: ProcessHeap) -> None:
    in_use, by_size = memory_statistics(program.core.with_name("stats").read_bytes())
    ours: dict[int, int] = defaultdict(int)
    total = 0
    for size, count, *_rest in heap.marks.engine.sizes():
        ours[size] += count
        total += size * count
    assert total == in_use
    assert {size: ours[size] for size in by_size} == by_size
    said = {
        row["what"]: row["value"] for row in answers.by_name(answers.answer(heap.target, "malloc_stats"))["allocator"]
    }
    assert said["bytes in use"] == in_use
    assert said["spans that wait for the sweeper"] == 0


def test_every_object_is_a_block(program: Program, heap: ProcessHeap) -> None:
    """Garbage is unreachable and no leak. What the collector has freed is free."""
    garbage = 0
    for what, kind, address, size in program.truth:
        block = heap.block_at(address)
        assert block is not None, kind
        assert block.address <= address
        assert address + size <= block.address + block.size
        assert address - block.address in (0, 8)  # the header of an object since 1.22
        assert block.state == LIVE
        if what == "live":
            assert not heap.marks.is_garbage(block), kind
        garbage += heap.marks.is_garbage(block)
    made = sum(what == "garbage" for what, *_rest in program.truth)
    assert garbage >= 0.95 * made  # a register or a stack may still hold some
    assert len([*heap.blocks(FREE)]) > 1000
    assert not [*heap.blocks(DIRECT, INDIRECT)]


def test_findleaks_calls_garbage_no_leak(program: Program) -> None:
    answer = answers.typed("findleaks", program.core)
    assert answer["totals"]["direct_count"] == 0
    assert any("of Go garbage in" in note and "they are no leaks" in note for note in answer["notes"])
    made = [at for what, _kind, at, _size in program.truth if what == "garbage"]
    asked = [answers.typed("whatis", program.core, hex(at)) for at in made[50::100]]
    states = [answers.by_name(answer)["block"][0]["state"] for answer in asked]
    # Green Tea's queue of each P names the first objects of a span by number, which looks like a pointer to them.
    assert states.count("garbage, not yet collected") >= len(states) - 1 == 4


def test_a_goroutine_holds_what_its_stack_points_to(program: Program) -> None:
    address = next(at for _w, kind, at, _size in reversed(program.truth) if kind == "main.node" and _w == "live")
    text = answers.printed("whatis", program.core, hex(address))
    assert " is on the stack of thread" not in text
    # The runtime's lists of what it marked may name it, too.
    assert re.search(r"main\.waits in goroutine|[0-9a-f]{16} +0 the stack of goroutine \d+", text), text


def test_commands_know_the_heap(program: Program) -> None:
    assert "clean" in answers.printed("heapcheck", program.core)
    assert "Go" in answers.printed("doctor", program.core)
    held = answers.by_name(answers.typed("owners", program.core))["owners"]
    # A word on a stack may share it.
    assert any("`main.held" in row["owner"] for row in held) or program.stripped
    assert "leak" not in {row["kind"] for row in answers.by_name(answers.typed("triage", program.core))["findings"]}


def test_no_type_is_wrong(program: Program) -> None:
    """Each object whose type is said has that type. Since 1.22 nearly all have one."""
    target = CoreFile(str(program.core))
    types = go_types(target)
    assert types is not None
    known: dict[str, int] = defaultdict(int)
    made: dict[str, int] = defaultdict(int)
    for what, kind, address, _size in program.truth:
        found = types.at(address)
        assert found is not None
        assert found[1] == address
        assert found[0].text in (kind, "")
        made[kind] += what == "live"
        known[kind] += what == "live" and found[0].text == kind
    assert made["main.node"] == 1001
    expected = dict(made) if types.engine.headers else {"main.node": 1000, "main.circle": 200, "main.square": 200}
    for kind, count in expected.items():
        if kind not in ("main.holder", "main.page", "[]main.node"):  # a variable alone, or a field of that, holds it
            assert known[kind] >= count - (kind == "main.node"), kind  # a stack alone holds one


def test_the_histogram_counts_them(program: Program) -> None:
    answer = answers.typed("goobjects", program.core, "--top", 10000)
    tables = answers.by_name(answer)
    in_use, _by_size = memory_statistics(program.core.with_name("stats").read_bytes())
    assert answer["totals"]["bytes"] == in_use
    counts = {row["type"]: row["count"] for row in tables["types"]}
    truth: dict[str, int] = defaultdict(int)
    for _what, kind, _at, _size in program.truth:
        truth[kind] += 1
    for kind in truth.keys() & counts.keys():
        assert counts[kind] <= truth[kind]
    assert (
        sum(row["count"] for row in tables["types"]) + sum(row["count"] for row in tables["unknown"])
        == (answer["totals"]["objects"])
    )
    squares = answers.by_name(answers.typed("goobjects", program.core, "--type", "main.square", "--top", 1000))
    addresses = {int(row["address"], 16) for row in squares["objects"]}
    assert addresses == {at for _what, kind, at, _size in program.truth if kind == "main.square"}
    text = answers.printed("whatis", program.core, hex(min(addresses)))
    assert "Go object of type main.square" in text


@pytest.mark.parametrize("release", ["1.19.13", "1.22.12"])
def test_the_runtimes_ranges_of_pages_hold_no_object(release: str, tmp_path: Path) -> None:
    """Where an arena begins, an object begins. In nats-server such a range held all, through a dead object."""
    core = built(release, "-s -w", "goheap.go", tmp_path, tmp_path / "cache", "truth", "stats")
    heap = find_heap(CoreFile(str(core)))
    start = 0xC000000000  # the first arena of 64-bit Linux until Go 1.26 (mallocinit of runtime/malloc.go)
    arena = range(start, start + ARENA)
    anonymous = [(m.start, m.end) for m in heap.target.mappings() if m.anonymous and m.start not in arena]
    (found,) = find_pointers(heap.target.image(), anonymous, 8, [(start, start + 1)], 1000)
    limits = {at: struct.unpack("<Q", heap.target.read(at + 8, 8))[0] for at in found}
    ranges = [at for at, limit in limits.items() if start < limit <= start + ARENA and limit % (4 << 20) == 0]
    assert ranges
    assert [at for at in ranges if at not in Ranges(heap.roots.dead)] == []


def test_a_damaged_span_is_named_and_the_rest_is_right(program: Program, tmp_path: Path) -> None:
    whole = CoreFile(str(program.core))
    before = find_mheap(whole).heap
    assert before is not None
    small = [span for span in before.spans if span.size_class > 1]
    layout, victims = before.layout, small[:: len(small) // 4][:4]
    damaged = tmp_path / "core"
    damaged.write_bytes(program.core.read_bytes())
    fields = ((layout.elemsize, 7), (layout.elemsize + 8, 1 << 63), (24, victims[3].start), (32, 1 << 40))
    with open(damaged, "r+b") as file:
        for span, (at, value) in zip(victims, fields):
            file.seek(offset(whole, span.record + at))
            file.write(value.to_bytes(8, "little"))
    found = find_heap(CoreFile(str(damaged)))
    (go,) = (one for one in others(found) if isinstance(one, GoBlocks))
    records = {problem.address for problem in go.problems}
    assert records & {span.record for span in victims}
    assert records <= {span.record for span in victims}
    in_use = sum(1 for block in find_heap(whole).blocks(LIVE) if block.arena == go.arena)
    assert len(go.slots) >= in_use - sum(span.objects for span in victims)
    assert not found.leaks().direct_count


def test_c_blocks_are_held_by_go_and_lost_with_it(tmp_path: Path) -> None:
    """Go's live objects, its garbage and goroutines hold them. Freed objects and dead stacks do not."""
    core = built("host", "-s -w", "cgoheap.go", tmp_path, tmp_path, "truth", cgo=True)
    heap = find_heap(CoreFile(str(core)))
    leaks = heap.leaks()
    said = [line.split() for line in core.with_name("truth").read_text().splitlines()]
    states = {(what, at): block.state for what, at in said if (block := heap.block_at(int(at, 16))) is not None}
    assert len(states) == len(said) == 216
    leaked = [what for (what, _at), state in states.items() if state in (DIRECT, INDIRECT)]
    assert set(leaked) == {"leaked"}
    # A word on a live stack may hold one by accident.
    assert 63 <= len(leaked) == leaks.direct_count <= 65


def test_lies_cost_an_answer_at_most(program: Program, tmp_path: Path) -> None:
    """Random words become lies: in the records of spans, in the list of them, in variables, in objects."""
    whole = CoreFile(str(program.core))
    heap = find_mheap(whole).heap
    assert heap is not None
    data = program.core.read_bytes()
    places = [*(offset(whole, record) for record in heap.records), *(offset(whole, span.start) for span in heap.spans)]
    places.append(offset(whole, heap.allspans))
    pointers = [span.start for span in heap.spans[::7]] + heap.records[::7]
    chance = random.Random(16)
    for _round in range(6):
        damaged = bytearray(data)
        for place in chance.sample(places, 60):
            at = place + 8 * chance.randrange(20)
            lie = chance.choice([0, 1, 7, 1 << 20, 1 << 47, (1 << 64) - 1, *chance.sample(pointers, 3)])
            damaged[at : at + 8] = lie.to_bytes(8, "little")
        path = tmp_path / "core"
        path.write_bytes(damaged)
        target = CoreFile(str(path))
        found = find_heap(target)
        assert found.leaks().direct_count == 0
        types = go_types(target)
        assert types is None or sum(count for _kind, count, _bytes in types.rows()) <= 20000
        answers.answer(target, "malloc_stats")
        answers.answer(target, "heapcheck")
