"""Owners of blocks, compared with what containers' own allocators counted."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.owners.heap_owners import ALONE, FREE_, LEAKS, NEVER, OWN_, SHARED, TOP_, find_owners
from dmods.graph.owners.root_paths import path_to
from dmods.heap.heap import find_heap
from dmods.heap.verdict import NO_VERDICT
from dmods.profile import flame
from dmods.profile.holders import Holders
from dmods.profile.sources import GRAPH, profile_of
from dmods.profile.view import View
from fixtures import answers
from fixtures.cores import take
from tests.corekit import HERE, dumped_in, kernel_core

Held = dict[str, tuple[int, int]]  # container -> (bytes, blocks)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("containers")
    subprocess.run(["g++", "-O1", "-g", str(HERE / "containers.cc"), "-o", str(where / "containers")], check=True)
    return where / "containers"


@cache
def dumped(program: Path, mode: str) -> tuple[Path, Held]:
    """Return a core of the program in this mode, and what each container counted."""
    where = program.parent / mode
    where.mkdir()
    core = kernel_core(program, where, mode)
    lines = (line.split() for line in (where / "truth").read_text().splitlines())
    return core, {name: (int(size), int(count)) for name, size, count in lines}


def lines_of(core: Path, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answers.answer(CoreFile(str(core)), "owners", *words)["tables"][0]["rows"]
    return rows


@pytest.mark.parametrize("mode", ["plain", "stale"])
def test_each_container_holds_what_its_allocator_counted(program: Path, mode: str) -> None:
    """To the byte. Words on the stack that point into the middle of every container change nothing."""
    core, truth = dumped(program, mode)
    held = {row["owner"]: (row["bytes"], row["count"]) for row in lines_of(core) if row["how"] == "alone"}
    assert {name: held[f"containers`{name}"] for name in truth} == truth
    assert not [row for row in lines_of(core) if row["how"] == "shared"]


@pytest.mark.parametrize("least", [0.0, 1 / 50])
def test_the_picture_of_holders_has_each_container(program: Path, least: float) -> None:
    """Frames that are too narrow are left out, and counted. The profile of all chains has the same picture."""
    core, truth = dumped(program, "plain")
    target = CoreFile(str(core))
    drawn = flame.picture_of_holders(Holders(target), least, 20_000)
    roots = {frame.node.name: frame.node.new for frame in drawn.frames if frame.depth == 1}
    whole = drawn.frames[0].node.new
    wide = {f"containers`{name}": size for name, (size, _count) in truth.items() if size >= least * whole}
    assert wide
    assert {name: roots[name] for name in wide} == wide
    if not least:
        assert sum(roots.values()) == whole
    full = flame.picture(View(profile_of(target, GRAPH)), least)
    assert (full.frames, full.dropped) == (drawn.frames, drawn.dropped)
    assert (full.title, full.unit, full.notes) == (drawn.title, drawn.unit, drawn.notes)


@pytest.mark.parametrize("mode", ["plain", "stale"])
@pytest.mark.parametrize("userland", ["i386-bookworm"])
def test_a_program_of_32_bits(userland: str, mode: str) -> None:
    """The same to the byte: a chunk's header has half of the size, and more numbers look like pointers."""
    with dumped_in(userland, HERE / "containers.cc", ["g++", "-O1", "-g"], mode) as (core, sysroot):
        lines = (line.split() for line in (core.parent / "truth").read_text().splitlines())
        truth = {name: (int(size), int(count)) for name, size, count in lines}
        rows = answers.typed("owners", core, "--sysroot", sysroot)["tables"][0]["rows"]
    held = {row["owner"]: (row["bytes"], row["count"]) for row in rows if row["how"] == "alone"}
    assert {name: held[f"containers`{name}"] for name in truth} == truth
    assert not [row for row in rows if row["how"] == "shared"]


def test_local_containers_belong_to_the_function_that_has_them(program: Path) -> None:
    core, truth = dumped(program, "local")
    (row,) = (row for row in lines_of(core) if row["owner"].startswith("local: "))
    # The global deque is empty, and has a map and a first piece.
    empty = next(row for row in lines_of(core) if row["owner"] == "containers`queue")
    assert row["bytes"] + empty["bytes"] == sum(size for size, _count in truth.values())
    assert row["count"] + empty["count"] == sum(count for _size, count in truth.values())
    (root,) = row["roots"]
    assert root["kind"] == "frame"


def test_a_container_is_retained_by_its_variable(program: Path) -> None:
    core, truth = dumped(program, "plain")
    target = CoreFile(str(core))
    for name, (size, count) in truth.items():
        answer = answers.answer(target, "retained", f"containers`{name}")
        assert answer["totals"] == {"bytes": size, "count": count}
        assert sum(row["bytes"] for row in answers.by_name(answer)["kinds"]) == size
    # What the buffer of the vector keeps alive is all that the vector holds.
    largest = answers.by_name(answers.answer(target, "retained", "containers`texts"))["below"][0]
    assert (largest["bytes"], largest["count"]) == truth["texts"]
    walked = answers.typed("walk", core, "dominated", largest["address"])["tables"][0]["rows"]
    assert sum(row["size"] for row in walked) == truth["texts"][0]


def test_the_path_to_a_node_begins_at_its_container(program: Path) -> None:
    core, truth = dumped(program, "stale")
    target = CoreFile(str(core))
    owners = find_owners(target)
    for name in truth:
        held = next(line for line in owners.lines if line.name == f"containers`{name}")
        assert held.set is not None
        blocks = list(owners.addresses(("set", held.set)))
        for address in blocks[:: 1 + len(blocks) // 2]:
            path = path_to(owners.roots, address)
            assert path is not None
            assert path.root is not None
            assert path.root.name == f"containers`{name}"
            words = find_heap(target).words
            for step in path.steps:
                assert step.at is not None
                assert step.to is not None
                assert words.at(step.at) == step.block.address + step.to
            assert path.steps[-1].block.address == address
    last = blocks[-1]
    steps = answers.typed("pathto", core, hex(last))["tables"][0]["rows"]
    walked = answers.typed("walk", core, "path", hex(last))["tables"][0]["rows"]
    assert [step["block"] for step in steps] == [row["address"] for row in walked]
    shown = next(table for table in answers.typed("whatis", core, hex(last))["tables"] if table["name"] == "path")
    assert shown["rows"] == steps


def test_of_a_path_through_a_list_the_ends_are_shown(program: Path) -> None:
    """The last node of the chain is reached through all the others, one after the other."""
    core, truth = dumped(program, "plain")
    target = CoreFile(str(core))
    owners = find_owners(target)
    held = next(line for line in owners.lines if line.name == "containers`chain")
    assert held.set is not None
    nodes = list(owners.addresses(("set", held.set)))
    ends = [found for node in (nodes[0], nodes[-1]) if (found := path_to(owners.roots, node)) is not None]
    path = max(ends, key=lambda found: len(found.addresses))
    count = truth["chain"][1]
    assert sorted(path.addresses) == nodes
    assert len(nodes) == count
    words = find_heap(target).words
    assert all(words.at(node) == following for node, following in zip(path.addresses, path.addresses[1:]))
    for most, shown in enumerate([[], [1], [1, count], [1, count - 1, count]]):
        few = path_to(owners.roots, path.addresses[-1], most=most)
        assert few is not None
        assert list(few.addresses) == list(path.addresses)
        assert [step.number for step in few.steps] == shown
    last = hex(path.addresses[-1])
    answer = answers.answer(target, "pathto", last)
    rows = answer["tables"][0]["rows"]
    assert [row["step"] for row in rows] == [*range(1, 9), *range(count - 23, count + 1)]
    assert [row["block"] for row in rows] == [hex(path.addresses[row["step"] - 1]) for row in rows]
    assert all(row["at"] == hex(path.addresses[row["step"] - 2]) for row in rows[1:])
    noted = f"the path has {count} blocks; the first 8 and the last 24 are shown (`pathto {last} -n {count}` shows all)"
    assert noted in answer["notes"]
    whole = answers.answer(target, "pathto", last, "-n", str(count))
    assert [row["block"] for row in whole["tables"][0]["rows"]] == [hex(node) for node in path.addresses]
    assert not [note for note in whole["notes"] if "are shown" in note]
    two = answers.answer(target, "pathto", last, "-n", "1")["tables"][0]["rows"]
    assert [row["step"] for row in two] == [1, count]


@pytest.mark.parametrize("name", ["graph", "shapes", "cxx", "anchors"])
def test_every_byte_has_one_line(name: str) -> None:
    """The lines sum to the heap, and every block is in the line that its state says."""
    target = CoreFile(str(take(name).core))
    owners, heap = find_owners(target), find_heap(target)
    assert owners.missing == 0
    tops = sum(row["top_bytes"] for row in answers.answer(target, "malloc_stats")["tables"][0]["rows"])
    assert owners.total == heap.bytes + tops
    leaks, sizes = heap.leaks(), heap.marks.engine.sizes()
    by_how = {
        how: [line for line in owners.lines if line.how == how]
        for how in (ALONE, SHARED, LEAKS, FREE_, TOP_, NEVER, OWN_)
    }
    (leaked,) = by_how[LEAKS]
    assert (leaked.count, leaked.bytes) == (
        leaks.direct_count + leaks.indirect_count,
        leaks.direct_bytes + leaks.indirect_bytes,
    )
    live = sum(row[0] * row[1] for row in sizes)
    assert owners.live == live
    assert sum(line.bytes for line in (*by_how[TOP_], *by_how[NEVER])) == tops
    for by in ("root", "type", "size"):
        rows = answers.answer(target, "owners", "--by", by, "--top", "2")["tables"][0]["rows"]
        assert sum(row["bytes"] for row in rows) == heap.bytes + tops, by


def test_what_leaks_belongs_to_its_leak() -> None:
    core = take("shapes")
    target = CoreFile(str(core.core))
    owners = find_owners(target)
    leaked = core.truth.addresses("direct", "indirect", "cycle")
    assert len(leaked) > 30_000
    for address in leaked:
        found = owners.above(address)
        assert found is not None
        assert found[1].how == LEAKS
    direct = answers.answer(target, "findleaks")["tables"][0]["rows"]
    assert any(row["kept_count"] for row in direct)
    for row in direct:
        steps = answers.answer(target, "pathto", row["buffer"])["tables"][0]["rows"]
        assert [step["block"] for step in steps] == [row["buffer"]]


def test_a_small_program_has_no_suspects(program: Path) -> None:
    for core in (take("cxx").core, dumped(program, "plain")[0]):
        answer = answers.answer(CoreFile(str(core)), "suspects")
        assert answer["totals"]["suspects"] == 0
        assert any("no suspects" in note for note in answer["notes"])


def test_a_long_list_is_a_suspect() -> None:
    core = take("shapes")
    leak, row = answers.answer(CoreFile(str(core.core)), "suspects", "--least", "1M")["tables"][0]["rows"]
    # Another list, as long, has leaked.
    assert leak["kind"] == "leaked"
    assert leak["bytes"] > row["bytes"]
    # The list's nodes of 56 bytes, beside what else lives: most of the heap, whatever a block is rounded to.
    sentence = r"`live_doubly` \(shapes\) keeps (\d+)% of the heap in use \(.+\) alive through one block"
    found = re.match(sentence, row["sentence"])
    assert found, row["sentence"]
    assert int(found[1]) >= 48
    assert row["next"][0] == f"retained {row['address']}"


def test_a_truncated_core_gives_the_rest(program: Path, tmp_path: Path) -> None:
    core, _truth = dumped(program, "plain")
    size = core.stat().st_size
    for part in (0.3, 0.6, 0.9):
        cut = tmp_path / f"core.{part}"
        cut.write_bytes(core.read_bytes()[: int(size * part)])
        done = answers.dmods("owners", cut, "--json")
        assert done.returncode in (0, NO_VERDICT), done.stderr
        answer = json.loads(done.stdout)
        assert answer["notes"]
        total = sum(row["bytes"] for row in answer["tables"][0]["rows"])
        assert total == answer["totals"]["heap_bytes"]
        # What is cut off may be heap, or is. No line says that nothing is missing.
        assert answer["totals"]["missing_bytes"] > 0
        printed = answers.dmods("owners", cut).stdout if part == 0.6 else "the dump lacks"
        assert ("the dump lacks" in printed, "whole heap" in printed) == (True, False)
        if part != 0.6:
            continue
        target = CoreFile(str(cut))
        for by in ("type", "size"):
            rows = answers.answer(target, "owners", "--by", by, "--top", "1000")["tables"][0]["rows"]
            assert sum(row["bytes"] for row in rows) == total, by
        suspects = answers.answer(target, "suspects")
        assert suspects["notes"]
        for line in find_owners(target).lines:
            if line.how == ALONE and line.roots[0].address is not None:
                kept = answers.answer(target, "retained", hex(line.roots[0].address), "--top", "1000")
                by_name = answers.by_name(kept)
                assert kept["totals"]["bytes"] == line.bytes == sum(row["bytes"] for row in by_name["kinds"])
                assert sum(row["bytes"] for row in by_name.get("parts", [])) in (0, line.bytes)


def test_areas_that_overlap_are_refused() -> None:
    target = CoreFile(str(take("cxx").core))
    with pytest.raises(ValueError, match="overlap"):
        find_heap(target).marks.engine.find_owners([], [(16, 64, 1, 1), (32, 96, 2, 1)], [], [], [])
    with pytest.raises(ValueError, match="scope"):
        find_owners(target).engine.largest(("nothing", 0), 1)
