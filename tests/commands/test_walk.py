"""``walk``, compared with what programs say of their own blocks."""

from __future__ import annotations

from functools import cache

import pytest

from dmods.commands._walkers import WALKERS
from dmods.corefile.target import CoreFile
from dmods.errors import UsageError, UserError
from dmods.heap.heap import find_heap
from dmods.report import Report, Value
from fixtures import answers, cores
from fixtures.heaps import glibc
from fixtures.truth import Truth
from tests.auditkit import callers


@cache
def taken(program: str, mode: str = "") -> tuple[CoreFile, Truth]:
    core = cores.take(program, mode=mode)
    return CoreFile(str(core.core)), core.truth


def run(target: CoreFile, *words: str) -> Report:
    return answers.report(target, "walk", *words)


def rows(target: CoreFile, *words: str) -> list[tuple[Value, ...]]:
    return [tuple(row) for row in run(target, *words).tables[0].rows]


def walked(target: CoreFile, *words: str) -> list[int]:
    addresses = [row[0] for row in rows(target, *words)]
    assert all(isinstance(address, int) for address in addresses)
    return [int(address or 0) for address in addresses]


@pytest.mark.parametrize("program", ["shapes", "sizes", "freed", "cxx", "arenas"])
def test_leaks_are_the_leaked_blocks(program: str) -> None:
    target, truth = taken(program)
    assert set(walked(target, "leakbuf")) == truth.leaked
    assert truth.direct_problems(walked(target, "leak")) == []


@pytest.mark.parametrize("program", ["freed", "shapes", "sizes", "cxx", "arenas"])
def test_blocks_are_either_allocated_or_free(program: str) -> None:
    target, truth = taken(program)
    allocated, free = set(walked(target, "buf")), set(walked(target, "freebuf"))
    used = truth.addresses("live", "direct", "indirect", "cycle")
    assert used <= allocated
    assert not used & free
    # A freed block may have been reused, coalesced or returned. It is never in use as it was.
    assert not truth.addresses("freed") & allocated


def test_free_buffers_are_in_every_kind_of_list() -> None:
    """Blocks of 56 bytes are in a tcache, and beyond seven in a fastbin.

    Blocks of 1032 bytes beyond seven are in a bin.
    """
    target, truth = taken("freed")
    free = set(walked(target, "freebuf"))
    for name in ("main-freed-56", "living-freed-56", "main-freed-1032", "living-freed-1032"):
        freed = {block.address for block in truth.blocks.values() if block.name == name}
        assert len(freed) == 14
        assert freed <= free, name


@pytest.mark.parametrize("mode", ["", "foreign-sbrk", "mmap-fallback"])
def test_what_lies_between_stretches_of_the_heap_is_no_buffer(mode: str) -> None:
    """The chunks are counted as malloc_info does: those in use, and free ones without top."""
    target, truth = taken("mainarena", mode)
    assert truth.leaked == set(walked(target, "leakbuf"))
    sizes = [row[1] for row in rows(target, "freebuf", "--json")]
    free = sum(int(size or 0) + target.arch.word for size in sizes)
    # fordblks has free chunks in bins and tops; fsmblks has those in fastbins, whose bytes are in fordblks too.
    # keepcost is the main arena's top. Blocks in tcaches count as in use.
    cached = glibc(find_heap(target)).caches.tcache_bytes
    tops = sum(_top_size(target, arena.top) for arena in glibc(find_heap(target)).all)
    assert free - cached + tops == truth.mallinfo["fordblks"]


def _top_size(target: CoreFile, top: int) -> int:
    return int.from_bytes(target.read(top + target.arch.word, target.arch.word), "little") & ~7


def test_an_address_narrows_the_walk_to_its_arena() -> None:
    target, truth = taken("freed")
    arenas = walked(target, "arena")
    assert len(arenas) == 3
    for walker in ("buf", "freebuf"):
        parts = [walked(target, walker, hex(arena)) for arena in arenas]
        assert all(parts)
        assert sorted(address for part in parts for address in part) == walked(target, walker)
    living = next(block.address for block in truth.blocks.values() if block.name == "living-freed-56")
    assert living in walked(target, "freebuf", hex(living))
    assert living not in walked(target, "freebuf", hex(arenas[0]))


def test_an_address_narrows_leaks_to_those_of_its_size() -> None:
    target, truth = taken("shapes")
    one = next(iter(truth.addresses("direct")))
    alike = set(walked(target, "leak", hex(one + 1)))
    assert one in alike
    usable = truth.blocks[one].usable
    assert {a for a in truth.addresses("direct") if truth.blocks[a].usable == usable} <= alike
    assert {truth.blocks[a].usable for a in alike} == {usable}


@pytest.mark.parametrize("walker", ["leak", "leakbuf", "buf", "freebuf", "arena"])
def test_without_a_heap_no_word_stands_among_the_addresses(walker: str) -> None:
    done = answers.dmods("walk", cores.take("nomalloc").core, walker)
    assert done.stdout == ""
    assert done.returncode == 4
    assert "no verdict: no heap" in done.stderr


@pytest.mark.parametrize("words", [(), ("--json",)])
@pytest.mark.parametrize("walker", ["buf", "freebuf", "leakbuf", "leak"])
def test_only_buffers_of_the_wanted_sizes(walker: str, words: tuple[str, ...]) -> None:
    target, truth = taken("freed")
    every = {int(row[0] or 0): int(row[1] or 0) for row in rows(target, walker, "--json")}
    one = sorted(every.values())[len(every) // 2]
    for text, wanted in (
        (str(one), {a for a, size in every.items() if size == one}),
        (f"{one}..{one + 1000}", {a for a, size in every.items() if one <= size <= one + 1000}),
        ("1k..", {a for a, size in every.items() if size >= 1024}),
        ("0..1023", {a for a, size in every.items() if size < 1024}),
        ("7", set()),
    ):
        assert set(walked(target, walker, "--size", text, *words)) == wanted, text
    known = {a for a, block in truth.blocks.items() if block.usable == one}
    assert known & every.keys() <= set(walked(target, walker, "--size", str(one)))


def test_sizes_and_an_address_narrow_together() -> None:
    target, _truth = taken("freed")
    arenas = walked(target, "arena")
    parts = [walked(target, "buf", hex(arena), "--size", "1..100") for arena in arenas]
    assert sorted(address for part in parts for address in part) == walked(target, "buf", "--size", "1..100")
    leak = walked(target, "leak")[0]
    size = rows(target, "leak", "--json")[0][1]
    assert walked(target, "leak", hex(leak), "--size", f"{size}") == walked(target, "leak", hex(leak))
    assert walked(target, "leak", hex(leak), "--size", "1000000..") == []


@pytest.mark.parametrize("text", ["", "x", "-1", "10..5", "1..2..3", "1T", "..5", "0x10"])
def test_what_is_no_size_is_the_users_to_mend(text: str) -> None:
    with pytest.raises(UsageError) as error:
        run(taken("freed")[0], "buf", f"--size={text}")
    assert text in error.value.what


def test_walkers_without_buffers_take_no_sizes() -> None:
    with pytest.raises(UsageError) as error:
        run(taken("freed")[0], "thread", "--size", "8")
    assert "buf" in error.value.how


def test_rows_of_json_tell_size_state_and_arena() -> None:
    target, truth = taken("freed")
    told = {"live": {"live"}, "direct": {"leaked directly"}, "indirect": {"leaked indirectly"}}
    seen = 0
    for address, size, state, arena, *_kept in rows(target, "buf", "--json"):
        block = truth.blocks.get(int(address or 0))
        if block is not None:
            assert (size, {state}) == (block.usable, told[block.state])
            assert arena == ("main" if int(address or 0) < 1 << 46 else arena)
            seen += 1
    assert seen == len(truth.addresses("live", "direct"))


def test_threads_are_their_thread_pointers() -> None:
    target, _truth = taken("freed")
    pointers = {thread.tid: thread.registers["fs_base"] for thread in target.threads()}
    assert {row[1]: row[0] for row in rows(target, "thread", "--json")} == pointers
    assert sorted(walked(target, "thread")) == sorted(pointers.values())


def test_mappings_are_where_they_begin() -> None:
    target, _truth = taken("freed")
    assert walked(target, "mapping") == [mapping.start for mapping in target.mappings()]


def test_a_process_without_malloc_has_nothing_to_walk() -> None:
    target = CoreFile(str(cores.take("nomalloc").core))
    for walker in ("leak", "leakbuf", "buf", "freebuf"):
        report = run(target, walker)
        assert list(report.tables[0].rows) == []
        assert "no heap" in report.notes[0] or report.notes


def test_without_a_name_the_walkers_are_listed() -> None:
    target, _truth = taken("freed")
    assert [row[0] for row in rows(target)] == list(WALKERS)


@pytest.mark.parametrize("words", [("bogus",), ("thread", "0x10"), ("buf", "0x10"), ("leak", "0x10"), ("buf", "no!")])
def test_what_cannot_be_walked_is_the_users_to_mend(words: tuple[str, ...]) -> None:
    target, _truth = taken("freed")
    with pytest.raises(UsageError) as error:
        run(target, *words)
    assert error.value.how


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    target, _truth = taken("freed")
    with pytest.raises(UsageError) as error:
        run(target, "bogus")
    assert all(name in error.value.what for name in WALKERS)


# -- allocation records -----------------------------------------------------------------------------------------------


def test_leaks_are_bufctls_where_there_are_records() -> None:
    target, truth, _told = callers()
    rows_of = {int(row[-1] or 0): row for row in rows(target, "leak", "--json")}
    assert rows_of.keys() == truth.addresses("direct")
    bufctls = {int(row[0] or 0): row[1] for row in rows(target, "bufctl", "--json")}
    assert {bufctls[int(row[0] or 0)] for row in rows_of.values()} == rows_of.keys()
    assert sorted(walked(target, "leak")) == sorted(int(row[0] or 0) for row in rows_of.values())
    assert set(walked(target, "leakbuf")) == truth.leaked


def test_an_address_narrows_leaks_to_those_of_its_size_and_stack() -> None:
    """malloc(100) leaked twice, by two ways; malloc(2000) three times by one way."""
    target, truth, _told = callers()
    for size, alike in ((100, 1), (2000, 3)):
        one = next(block.address for block in truth.blocks.values() if (block.size, block.state) == (size, "direct"))
        found = walked(target, "leak", hex(one))
        assert len(found) == alike
        assert walked(target, "leak", hex(found[0])) == found


def test_records_are_those_of_every_live_buffer() -> None:
    target, truth, told = callers()
    found = {int(row[1] or 0): row for row in rows(target, "bufctl", "--json")}
    assert truth.addresses("live", "direct") <= found.keys()
    assert not truth.addresses("freed") & found.keys()
    for address in truth.addresses("live", "direct"):
        _bufctl, _buffer, event, requested, _time, tid = found[address]
        assert (event, requested, tid) == ("live", told[address].block.size, told[address].tid)


def test_the_log_is_newest_first_and_an_address_narrows_it() -> None:
    target, truth, told = callers()
    entries = rows(target, "log", "--json")
    times = [int(row[4] or 0) for row in entries]
    assert times == sorted(times, reverse=True)
    freed = next(block for block in truth.blocks.values() if block.size == 600)
    known = told[freed.address]
    last, before = rows(target, "log", hex(freed.address + 1), "--json")[:2]
    assert (last[1], last[2], last[5]) == (freed.address, "freed", known.freed_tid)
    assert (before[1], before[2], before[5]) == (freed.address, "allocated", known.tid)
    assert {last[0], before[0]} <= set(walked(target, "log"))


@pytest.mark.parametrize("walker", ["bufctl", "log"])
def test_without_records_one_line_says_how_to_have_them(walker: str) -> None:
    with pytest.raises(UserError) as error:
        run(taken("freed")[0], walker)
    assert "dmods run -- PROG" in error.value.how
