"""Objects in the pools of programs that have an allocator of their own, compared with what the program said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.graph.typed import Dumped, Told, compared, dump, graph_of

UNUSED = "-"  # bytes of which no object is known


def placed(dumped: Dumped) -> list[Told]:
    """Return the objects that the program placed in its pools."""
    out = []
    for line in (dumped.core.parent / "objects").read_text().splitlines():
        kind, address, size = line.rsplit("|", 2)
        out.append(Told(kind.rstrip("?"), kind.endswith("?"), int(address), int(size)))
    return out


@pytest.fixture(scope="module", params=["-O0", pytest.param("-O2", marks=pytest.mark.thorough("a second compilation"))])
def arenas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("typed-arenas"), ["gcc", request.param, "-g"], "arenas.c")


def test_objects_in_pools_have_their_types(arenas: Dumped) -> None:
    """Every object that typed pointers lead to is found, and none that is not there."""
    graph = graph_of(arenas.core)
    found = compared(graph, arenas.blocks, {})
    assert (found.wrong, found.missing) == ([], [])
    right = total = 0
    for told in placed(arenas):
        said = graph.object(told.address)
        total += told.size
        if said is None:
            # The pool of a server may hold objects that nothing proves.
            assert told.may or told.type == UNUSED, told
            total -= told.size
            continue
        assert (said.type, said.address) == (told.type, told.address)
        assert said.extent == told.size
        right += told.size
    assert right == total
    assert right > 100_000
    known = {told.address for told in placed(arenas)}
    for block in arenas.blocks:
        for address in range(block.address, block.address + block.size, 8):
            said = graph.object(address)
            assert said is None or said.address in known


def test_types_counts_objects_in_pools(arenas: Dumped) -> None:
    """The bytes of the objects have their types. The rest stays with the block, so all bytes are those of the heap."""
    target = CoreFile(str(arenas.core))
    answer = answers.answer(target, "types", "--top", "200")
    rows = {row["type"]: row for row in answer["tables"][0]["rows"]}
    items = [told for told in placed(arenas) if told.type == "struct item"]
    row = rows["struct item in a pool"]
    assert (row["count"], row["bytes"]) == (len(items), sum(told.size for told in items))
    assert (row["evidence"], row["confidence"]) == ("typed pointer into a pool", "possible")
    assert sum(row["bytes"] for row in rows.values()) == answer["totals"]["bytes"]
    assert answer["totals"]["bytes"] == answers.answer(target, "typegraph")["totals"]["bytes"]


def test_whattype_answers_inside_a_pool(arenas: Dumped) -> None:
    target = CoreFile(str(arenas.core))
    item = next(told for told in placed(arenas) if told.type == "struct item")
    answer = answers.answer(target, "whattype", hex(item.address + 8))
    row = answer["tables"][0]["rows"][0]
    assert (row["type"], int(row["address"], 16), row["field"]) == ("struct item", item.address, ".prev")
    pool = answer["tables"][1]["rows"][0]
    assert pool["type"] == "struct item"
    assert pool["count"] == 455  # two of three chunks of 96 bytes
    request = next(told for told in placed(arenas) if told.type == "struct request")
    row = answers.answer(target, "whattype", hex(request.address))["tables"][0]["rows"][0]
    assert row["type"] == "struct request"
    assert row["evidence"].startswith("content: ")


def test_an_object_of_two_types_has_none(arenas: Dumped) -> None:
    graph = graph_of(arenas.core)
    (told,) = [told for told in placed(arenas) if told.type == UNUSED]
    assert graph.object(told.address) is None
    assert graph.object(told.address + 32) is None


def test_the_folder_has_the_ledger(arenas: Dumped) -> None:
    """The program itself says which bytes are in a pool."""
    pools = [block for block in arenas.blocks if block.type == "-"]
    assert all(
        any(pool.address <= told.address < pool.address + pool.size for pool in pools) for told in placed(arenas)
    )
    assert Path(arenas.core.parent / "objects").stat().st_size > 0
