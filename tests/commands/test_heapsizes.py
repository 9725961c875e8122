"""heapsizes, compared with what programs know of their blocks and with malloc's own sums."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dmods.commands.heapsizes import class_of, classify
from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.heap.heap import find_heap
from dmods.report import Report
from fixtures import answers
from fixtures.cores import take
from fixtures.heaps import glibc
from fixtures.truth import Block


def report_of(target: CoreFile, *words: str) -> Report:
    return answers.report(target, "heapsizes", *words)


def rows_of(report: Report) -> list[dict[str, Any]]:
    table = report.tables[0]
    return [dict(zip((column.name for column in table.columns), row)) for row in table.rows]


@pytest.fixture
def freed() -> CoreFile:
    return CoreFile(str(take("freed").core))


def test_blocks_are_counted_as_the_program_made_them() -> None:
    core = take("sizes")
    alive = [block for block in core.truth.blocks.values() if block.state != "freed"]
    said = Counter(block.usable for block in alive)
    target = CoreFile(str(core.core))
    found = {row["least"]: row["live_count"] for row in rows_of(report_of(target, "--exact"))}
    # libc and the start-up code have a handful of blocks beside the program's.
    others = {size: found[size] - count for size, count in said.items() if found.get(size, 0) != count}
    assert all(more > 0 for more in others.values())
    assert 0 <= sum(found.values()) - len(alive) < 20


@pytest.mark.parametrize("program", ["freed", "mainarena"])
def test_chunks_fill_the_main_arena_below_its_top(program: str) -> None:
    core = take(program)
    target = CoreFile(str(core.core))
    rows = rows_of(report_of(target, "--arena", "main", "--exact"))
    headers = 8 * sum(row["live_count"] + row["free_count"] for row in rows)
    chunks = headers + sum(row["live_bytes"] + row["free_bytes"] for row in rows)
    # The tcache of the first thread is glibc's own, and no block of the program.
    chunks += sum((size + 8) * own for size, *_, own in find_heap(target).marks.engine.sizes(0))
    arena = answers.report(CoreFile(str(core.core)), "malloc_stats").tables[0]
    main = dict(zip((column.name for column in arena.columns), next(iter(arena.rows))))
    assert chunks == main["system_bytes"] - main["top_bytes"]


def test_arenas_and_mmapped_blocks_make_up_the_whole() -> None:
    target = CoreFile(str(take("sizes").core))
    arenas = len(glibc(find_heap(target)).all)
    whole = report_of(target).totals
    parts = [report_of(target, "--arena", name).totals for name in ["main", *map(str, range(1, arenas)), "mmapped"]]
    for name in ("live_count", "live_bytes", "free_count", "free_bytes"):
        assert sum(part[name] for part in parts) == whole[name], name  # type: ignore[misc]
    assert parts[-1]["live_count"] == take("sizes").truth.mallinfo["hblks"]


def test_classes_hold_what_the_exact_sizes_do(freed: CoreFile) -> None:
    rows = find_heap(freed).marks.engine.sizes()
    sizes = [row[:4] for row in rows] + [(size, 1, 2, 3) for size in range(24, 70000, 16)]
    exact, classes = classify(sizes, 8, True), classify(sizes, 8, False)
    assert len(classes) < len(exact) / 10
    for one in classes:
        inside = [c for c in exact if one.least <= c.least <= one.most]
        assert one.live == sum(c.live for c in inside)
        assert one.live_bytes == sum(c.live_bytes for c in inside)
        assert one.free_bytes == sum(c.free_bytes for c in inside)
        assert one.leaked_bytes == sum(c.leaked_bytes for c in inside)
    assert sum(c.live for c in classes) == sum(c.live for c in exact)


@pytest.mark.parametrize("word", [4, 8])
def test_classes_are_small_bins_then_quarters_of_powers_of_two(word: int) -> None:
    bounds = sorted({class_of(size, word) for size in range(word, 1 << 16, 4)})
    for (least, most), (following, _) in zip(bounds, bounds[1:]):
        assert least <= most < following
    for size in range(word, 1 << 16, 4):
        least, most = class_of(size, word)
        assert least <= size <= most
        if size + word > 1024:
            assert (most - least) < (size + word) / 3
    beyond = [most + word for _, most in bounds if most + word > 1024]
    assert [size for size in beyond if 4096 < size <= 8192] == [5120, 6144, 7168, 8192]


def test_order_and_top(freed: CoreFile) -> None:
    rows = rows_of(report_of(freed, "--exact"))
    assert [r["live_bytes"] for r in rows] == sorted((r["live_bytes"] for r in rows), reverse=True)
    assert sum(r["percent"] for r in rows) == pytest.approx(100)
    by_size = rows_of(report_of(freed, "--exact", "--sort", "size"))
    assert [r["least"] for r in by_size] == sorted(r["least"] for r in rows)
    top = report_of(freed, "--exact", "--sort", "free", "--top", "2")
    assert [r["least"] for r in rows_of(top)] == [
        r["least"] for r in sorted(rows, key=lambda r: -int(r["free_bytes"]))[:2]
    ]
    assert any(f"{len(rows) - 2} more sizes" in note for note in top.notes)


def test_leaked_blocks_are_counted() -> None:
    core = take("shapes")
    totals = report_of(CoreFile(str(core.core))).totals
    leaked: list[Block] = [core.truth.blocks[address] for address in core.truth.leaked]
    assert totals["leaked_count"] == len(leaked)
    assert totals["leaked_bytes"] == sum(block.usable for block in leaked)


def test_an_unknown_arena_is_a_usage_error(freed: CoreFile) -> None:
    with pytest.raises(UsageError, match="no arena '17'"):
        report_of(freed, "--arena", "17")
