"""``whatis``, compared with what programs say of their blocks and of who holds them."""

from __future__ import annotations

from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.heap.heap import find_heap
from dmods.output.render import render
from dmods.process.unwind import unwind
from dmods.report import Report
from fixtures import answers, audited, cores
from fixtures.heaps import glibc
from fixtures.truth import Truth
from tests.auditkit import callers
from tests.corekit import HERE, compile_c, kernel_core


@cache
def taken(program: str, mode: str = "", variant: str = "dynamic") -> tuple[CoreFile, Truth]:
    core = cores.take(program, mode=mode, variant=variant)
    return CoreFile(str(core.core)), core.truth


def run(target: CoreFile, *words: str) -> Report:
    return answers.report(target, "whatis", *words)


def answer(target: CoreFile, *words: str) -> dict[str, Any]:
    """Return the tables of --json by name."""
    return answers.by_name(answers.answer(target, "whatis", *words))


def sentence(target: CoreFile, address: int) -> str:
    text = answer(target, hex(address))["whatis"][0]["sentence"]
    assert isinstance(text, str)
    return text


def holders(target: CoreFile, address: int) -> list[str]:
    return [row["where"] for row in answer(target, hex(address), "-n", "64")["pointed_to_by"]]


def named(truth: Truth, name: str) -> int:
    return next(block.address for block in truth.blocks.values() if block.name == name)


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_a_block_its_size_arena_state_and_the_offset_in_it() -> None:
    target, truth = taken("freed")
    live = min(block.address for block in truth.blocks.values() if block.name == "separator")
    block = answer(target, hex(live + 5))["block"][0]
    assert block["block"] == hex(live)
    assert block["offset"] == "0x5"
    assert block["size"] == truth.blocks[live].usable
    assert (block["state"], block["allocator"], block["arena"]) == ("live", "glibc malloc", "main")
    usable = truth.blocks[live].usable
    assert sentence(target, live + 5) == f"{live + 5:#x} is {live:#x}+5, allocated from malloc-{usable}"


@pytest.mark.parametrize("program", ["shapes", "cxx"])
def test_states_are_as_the_program_says(program: str) -> None:
    target, truth = taken(program)
    said = {"live": {"live"}, "direct": {"leaked directly"}, "indirect": {"leaked indirectly"}}
    said["cycle"] = said["direct"] | said["indirect"]
    seen = set()
    for block in truth.blocks.values():
        if block.name not in seen and block.state in said:
            seen.add(block.name)
            assert answer(target, hex(block.address))["block"][0]["state"] in said[block.state], block.name
    assert len(seen) > 10


def test_an_indirect_leak_names_a_direct_one_that_keeps_it() -> None:
    target, truth = taken("cxx")
    for name, holder in (("leaked-name", "leaked-object"), ("leaked-vector-text", "leaked-vector")):
        block = answer(target, hex(named(truth, name)))["block"][0]
        assert block["leaked_with"] == hex(named(truth, holder))


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("main-freed-56", {"in the tcache of thread {pid} (freed)", "in a small bin of arena main"}),
        ("living-freed-56", {"in the tcache of thread {other}", "in a small bin of arena 1"}),
        ("main-freed-1032", {"in the tcache of thread {pid} (freed)", "in the unsorted bin of arena main"}),
        ("main-freed-20000", {"in a large bin of arena main", "in the unsorted bin of arena main"}),
        ("main-freed-500", {"in the tcache of thread {pid} (freed)", "in a small bin of arena main"}),
    ],
)
def test_a_free_block_is_on_the_list_where_malloc_puts_it(name: str, where: set[str]) -> None:
    """A tcache takes seven blocks of each size up to 1032 bytes. The others go to bins.

    They first go to the unsorted bin, from which the next large request sorts them. Blocks of up to 120 bytes go
    through a fastbin, which the free of a large block empties.
    """
    target, truth = taken("freed")
    pid, others = target.pid, [thread.tid for thread in target.threads() if thread.tid != target.pid]
    expected = {text.format(pid=pid, other=others[0]) for text in where}
    blocks = [block.address for block in truth.blocks.values() if block.name == name]
    assert len(blocks) == 14
    seen = {_list(sentence(target, address)) for address in blocks}
    assert {_arena_blind(text) for text in seen} >= {_arena_blind(text) for text in expected}


def _list(text: str) -> str:
    return text.partition(": ")[2]


def _arena_blind(text: str) -> str:
    """Return the text without the number of a thread arena. It is not known which of two arenas has which number."""
    return text.replace("arena 2", "arena 1")


def test_freed_blocks_of_an_exited_thread() -> None:
    """The exit of the thread gives its tcache back, so its blocks lie in fastbins and bins."""
    target, truth = taken("freed")
    texts = {sentence(target, b.address) for b in truth.blocks.values() if b.name == "dead-freed-56"}
    assert any("fastbin" in text for text in texts)


def test_a_block_with_a_mapping_of_its_own() -> None:
    target, truth = taken("sizes")
    large = max(truth.blocks.values(), key=lambda block: block.size)
    block = answer(target, hex(large.address + 100))["block"][0]
    assert (block["block"], block["arena"], block["size"]) == (hex(large.address), "mmapped", large.usable)


# -- around blocks, and the allocator's own ---------------------------------------------------------------------------


def test_the_header_of_a_block_and_the_end_of_the_one_before() -> None:
    target, truth = taken("freed")
    live = named(truth, "separator")
    text = sentence(target, live - 8)
    assert f"in the header of the block {live:#x} (8 bytes before it)" in text
    end = live + truth.blocks[live].usable
    assert f"just past the end of the block {live:#x}" in sentence(target, end)
    assert answer(target, hex(end))["whatis"][0]["kind"] == "header"


def test_the_first_header_of_the_heap_and_of_a_mapping() -> None:
    target, truth = taken("sizes")
    first = min(start for start, _end, kind, *_ in glibc(find_heap(target)).layout.runs if kind == 0)
    assert f"in the header of the block {first + 16:#x}" in sentence(target, first)
    large = max(truth.blocks.values(), key=lambda block: block.size)
    assert f"in the header of the block {large.address:#x}" in sentence(target, large.address - 16)


def test_the_allocators_own_structures() -> None:
    target, _truth = taken("freed")
    main = target.lookup("main_arena")
    arenas = glibc(find_heap(target)).all
    assert main is None or main.address == arenas[0].address
    assert "malloc_state of arena main" in sentence(target, arenas[0].address + 0x60)
    assert "malloc_state of arena 1" in sentence(target, arenas[1].address + 8)
    assert "heap_info of a heap of arena 1" in sentence(target, arenas[1].address & ~0x3FFFFFF)
    assert "top chunk of arena 2" in sentence(target, arenas[2].top + 24)
    stale, of_stale = taken("stale")
    assert "in the top chunk of arena main" in sentence(stale, named(of_stale, "merged-into-top"))
    # A tcache is the first thing that a thread allocates: the first block of its arena.
    first = min(start for start, _end, _kind, number, _ in glibc(find_heap(target)).layout.runs if number == 0) + 16
    assert f"tcache_perthread_struct of thread {target.pid} (freed)" in sentence(target, first)


# -- who points to it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "holder"),
    [
        ("static", "at_start"),
        ("interior", "at_interior"),
        ("data", "in_data+0x8"),
        ("relro", "in_relro"),
        ("library-data", "library_data+0x8"),
        ("plugin-data", "libanchorplugin.so`plugin_data"),
        ("tls", "thread-local memory of thread {pid} (anchors)"),
        ("library-tls", "thread-local memory of thread {pid} (anchors)"),
        ("plugin-tls", "(thread-local memory of thread {pid} (anchors))"),
        ("thread-tls", "thread-local memory of thread {other}"),
        ("specific", "struct pthread of thread {pid} (anchors)"),
        ("main-stack", ", main+"),
        ("thread-stack", ", stack_holder+"),
        ("interrupted-frame", ", signal_holder+"),
        ("signal-frame", "alternate signal stack of thread {other}"),
        ("signal-frame", ", on_other_stack+"),
        ("anonymous", "anonymous memory "),
        ("memfd", "/memfd:anchors"),
        ("file-private", "/mapped+0x"),
    ],
)
def test_the_holder_of_a_block_is_named(name: str, holder: str) -> None:
    target, truth = taken("anchors")
    others = [thread.tid for thread in target.threads() if thread.tid != target.pid]
    expected = [holder.format(pid=target.pid, other=tid) for tid in others]
    found = holders(target, named(truth, name))
    assert any(text in where for text in expected for where in found), found


@pytest.mark.parametrize(
    ("name", "holder"),
    [
        ("below-stack-pointer", "below sp"),
        ("exited-thread-stack", "dead stack of a thread that has exited"),
        ("exited-thread-tls", "thread-local memory of a thread that has exited"),
        ("in-freed-unsorted", "freed block"),
        ("in-freed-tcached", "freed block"),
        ("in-top", "top chunk of arena main"),
        ("hidden", None),
        ("past-the-end", None),
        ("at-header", None),
        ("halves", None),
    ],
)
def test_a_stale_pointer_is_called_so(name: str, holder: Optional[str]) -> None:
    target, truth = taken("stale")
    found = holders(target, named(truth, name))
    if holder is None:
        assert found == []
    else:
        assert any(holder in where for where in found), found
        assert not any("live block" in where or "in frame" in where for where in found), found


def test_registers_that_hold_a_block() -> None:
    target, truth = taken("registers")
    seen = 0
    for block in truth.blocks.values():
        for thread in target.threads():
            for register, value in thread.registers.items():
                if block.address <= value < block.address + block.usable:
                    assert any(
                        f"register {register} of thread {thread.tid}" in w for w in holders(target, block.address)
                    )
                    seen += 1
    assert seen >= 5


def test_as_many_holders_as_asked_for() -> None:
    target, truth = taken("stale")
    address = hex(named(truth, "below-stack-pointer"))
    report = run(target, address, "-n", "1")
    assert len(list(report.tables[-1].rows)) == 1
    assert any("-n shows more" in note for note in report.notes)


Held = tuple[CoreFile, dict[str, int]]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Held:
    """Return a core of tests/holders.c, and where its blocks lie."""
    where = tmp_path_factory.mktemp("holders")
    core = kernel_core(compile_c(HERE / "holders.c", where / "holders"), where)
    truth = (line.split() for line in (where / "truth").read_text().splitlines())
    return CoreFile(str(core)), {name: int(value) for name, value in truth}


def held_by(held: Held, name: str, most: int = 8) -> list[dict[str, Any]]:
    target, truth = held
    rows = answer(target, hex(truth[name]), "-n", str(most))["pointed_to_by"]
    return [row["holder"] for row in rows]


def test_what_keeps_a_block_alive_comes_before_its_children_that_point_back(held: Held) -> None:
    """The hub has a thousand children at lower addresses than its one true holder."""
    first, *others = held_by(held, "hub")
    assert (first["block"], first["state"], first["keeps"]) == (hex(held[1]["keeper"]), "live", True)
    assert (first["type"], first["address"], first["offset"]) == ("block", hex(held[1]["keeper"] + 16), "0x0")
    assert len(others) == 7
    assert {(each["state"], each["keeps"]) for each in others} == {("live", False)}
    assert len([each for each in held_by(held, "hub", 5000) if each["keeps"] is False]) == 1000
    text = StringIO()
    render(run(held[0], hex(held[1]["hub"])), "whatis", held[0], False, text, StringIO())
    assert text.getvalue().count("points back: only this block leads to it") == 7


def test_a_pointer_back_from_a_block_with_another_holder_keeps_alive(held: Held) -> None:
    """A static variable points to one child of the second hub. This child keeps its hub alive; its siblings do not."""
    first, second = held_by(held, "second-hub")
    assert (first["block"], first["keeps"]) == (hex(held[1]["anchored-child"]), True)
    assert (second["block"], second["keeps"]) == (hex(held[1]["other-child"]), False)


def test_a_variable_that_holds_a_block_is_first(held: Held) -> None:
    found = held_by(held, "keeper")
    keeping = [holder for holder in found if holder["keeps"]]
    assert found[: len(keeping)] == keeping
    assert ("root", "module") in {(holder["where"], holder["type"]) for holder in keeping}
    assert {holder["state"] for holder in keeping} == {"root"}
    (back,) = (holder for holder in found if holder.get("block") == hex(held[1]["hub"]))
    assert back["keeps"] is False


def test_a_leaked_block_names_the_holder_on_the_way_from_the_direct_leak(held: Held) -> None:
    first, *others = held_by(held, "leaked-hub")
    assert (first["block"], first["state"], first["keeps"]) == (hex(held[1]["leaked-root"]), "leaked", True)
    assert [(each["state"], each["keeps"]) for each in others] == [("leaked", False)] * 3


def test_nothing_keeps_a_free_block(held: Held) -> None:
    (holder,) = (each for each in held_by(held, "freed") if each["type"] == "module")
    assert holder["keeps"] is None


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_the_bytes_are_those_of_the_program(held: Held) -> None:
    target, truth = held
    rows = answer(target, hex(truth["bytes"] + 21))["bytes"]
    assert [row["address"] for row in rows] == [hex(truth["bytes"] + at) for at in (16, 32, 48, 64)]
    assert rows[0]["bytes"] == "10111213 14151617 18191a1b 1c1d1e1f"
    assert rows[2]["text"] == "0123456789:;<=>?"
    whole = answer(target, hex(truth["bytes"]), "--dump", "200")["bytes"]
    assert "".join(row["bytes"].replace(" ", "") for row in whole) == bytes(range(200)).hex()
    assert whole[-1]["bytes"] == "c0c1c2c3 c4c5c6c7"


def test_the_bytes_end_with_the_block_or_with_what_the_dump_has(held: Held) -> None:
    target, truth = held
    (only, last) = answer(target, hex(truth["freed"]))["bytes"]
    assert len(only["bytes"].replace(" ", "")) == 32
    assert len(last["bytes"].replace(" ", "")) == 16  # the usable size is 24
    mapping = next(m for m in target.mappings() if m.dumped == m.size and "w" in m.flags)
    huge = answer(target, hex(mapping.end - 16), "--dump", str(1 << 70))["bytes"]
    read = sum(len(row["bytes"].replace(" ", "")) // 2 for row in huge)
    assert read == len(target.image().read(mapping.end - 16, read + 1))


# -- everything else --------------------------------------------------------------------------------------------------


def test_functions_and_variables() -> None:
    target, _truth = taken("anchors")
    assert "main+0x1, in " in answer(target, "main+1")["whatis"][0]["sentence"]
    assert "/anchors (" in answer(target, "main+1")["whatis"][0]["sentence"]
    assert "in_data+0x8" in answer(target, "in_data+8")["whatis"][0]["sentence"]
    mapping = answer(target, "main")["mapping"][0]
    assert mapping["path"].endswith("/anchors")
    assert mapping["flags"] == "r-x"


def test_the_frames_of_a_stack() -> None:
    target, _truth = taken("anchors")
    thread = target.threads()[0]
    frames = unwind(target, thread)
    for number, frame in enumerate(frames[:-1]):
        if frames[number + 1].sp > frame.sp:
            text = sentence(target, frame.sp)
            assert f"on the stack of thread {thread.tid} (anchors), in frame {number}, " in text
    assert "below its stack pointer" in sentence(target, thread.registers["rsp"] - 4096)
    assert "in or above the outermost frame" in sentence(target, frames[-1].sp + 64)


def test_what_lies_around_a_stack_of_the_programs_own_is_no_stack() -> None:
    """The main thread runs on a part of the static variable `last`: a table, the stack, another table."""
    target, _ = taken("ownstacks", mode="main-fiber")
    last, word = target.lookup("last"), target.arch.word
    assert last is not None
    table = 40 * word  # KEPT
    before, after = sentence(target, last.address), sentence(target, last.address + last.size - word)
    assert before.startswith(f"{last.address:#x} is last, in ")
    assert " is last+" in after
    assert sentence(target, last.address + table + 8).endswith(": dead")
    assert "in frame 0" in sentence(target, target.threads()[0].registers[target.arch.sp])


def test_an_address_in_no_mapping() -> None:
    target, _truth = taken("anchors")
    mapping = target.mappings()[0]
    tables = answer(target, hex(mapping.start - 0x1000))
    assert list(tables) == ["whatis"]
    assert "is in no mapping: 0x1000 bytes below" in tables["whatis"][0]["sentence"]
    for address in ("0x0", "0x1", "0xffffffffffffffff", "0x8000000000000000"):
        assert "in no mapping" in answer(target, address)["whatis"][0]["sentence"]


@pytest.mark.parametrize("text", ["no such thing", "0x", "0x1ffffffffffffffff", "-5", ""])
def test_what_is_no_address_is_the_users_to_mend(text: str) -> None:
    target, _truth = taken("anchors")
    with pytest.raises(UsageError):
        run(target, f" {text}")


@pytest.mark.quick("overrun", "cyclic-tcache", "wild-bins")
@pytest.mark.parametrize(
    "mode", ["overrun", "overrun-free", "overrun-top", "cyclic-fastbin", "cyclic-tcache", "wild-tcache", "wild-bins"]
)
def test_a_damaged_heap_answers_for_every_block(mode: str) -> None:
    target, truth = taken("corrupt", mode)
    assert len(truth.blocks) == 312
    for address in [*truth.blocks][:20]:
        for at in (address, address - 8, address + truth.blocks[address].usable):
            assert sentence(target, at).startswith(f"{at:#x} is ")


def test_a_process_without_malloc() -> None:
    target = CoreFile(str(cores.take("nomalloc").core))
    assert sentence(target, target.threads()[0].registers["rsp"]).startswith("0x")


def test_text_and_json_agree() -> None:
    target, truth = taken("cxx")
    address = named(truth, "leaked-object")
    lines = answers.text(target, "whatis", hex(address)).splitlines()
    tables = answer(target, hex(address))
    assert lines[0] == tables["whatis"][0]["sentence"]
    assert any(line.endswith(tables["block"][0]["looks_like"]) for line in lines)
    assert tables["block"][0]["looks_like"] == "C++ object of class shapes::Square"
    for row in tables["points_to"]:
        assert any(row["what"] in line and row["address"][2:] in line for line in lines)


# -- allocation records -----------------------------------------------------------------------------------------------


def test_a_live_block_says_who_allocated_it() -> None:
    target, _truth, told = callers()
    live = [known for known in told.values() if known.block.state == "live"]
    assert len(live) == 10
    for known in live:
        (row,) = answer(target, hex(known.block.address + 1))["block"]
        assert row["requested"] == known.block.size
        assert row["allocated_by"].startswith(f"{known.block.name}+0x")
        assert f"thread {known.tid} (" in row["allocated_by"]
        assert sentence(target, int(row["bufctl"], 16)).endswith(f"of the buffer {known.block.address:#x}")


def test_a_freed_block_says_who_freed_it_and_who_had_allocated_it() -> None:
    target, truth, told = callers()
    freed = [told[block.address] for block in truth.blocks.values() if block.size == 600]
    assert len(freed) == 8
    for known in freed:
        (row,) = answer(target, hex(known.block.address + 599))["freed"]
        assert (row["address"], row["requested"]) == (hex(known.block.address), 600)
        assert row["freed_by"].startswith("by_free+0x")
        assert f"thread {known.freed_tid} (freer)" in row["freed_by"]
        assert row["allocated_by"].startswith("by_malloc+0x")
        assert f"thread {known.tid} (allocator)" in row["allocated_by"]
        assert sentence(target, int(row["log"], 16)).endswith(f"{known.block.address:#x} was freed")


def test_with_guards_a_freed_blocks_own_record_says_who_freed_it() -> None:
    target, truth, told = callers("audit,guards")
    freed = [told[block.address] for block in truth.blocks.values() if block.state == "freed"]
    assert len(freed) > 4
    for known in freed:
        (row,) = answer(target, hex(known.block.address + 599))["freed"]
        assert (row["address"], row["requested"]) == (hex(known.block.address), known.block.size)
        assert row["freed_by"].startswith("by_free+0x")
        assert f"thread {known.freed_tid} (freer)" in row["freed_by"]
        assert row["allocated_by"] is None
        assert sentence(target, int(row["log"], 16)).endswith(f"{known.block.address:#x} was freed")


def test_memory_that_was_given_out_again_tells_both_owners(tmp_path: Path) -> None:
    program = compile_c(HERE / "holders.c", tmp_path / "holders")
    core = kernel_core(program, tmp_path, env=audited.environment("audit,log=10000"))
    truth = dict(line.split() for line in (tmp_path / "truth").read_text().splitlines())
    target = CoreFile(str(core))
    tables = answer(target, hex(int(truth["reused"]) + 3))
    (block,), (before,) = tables["block"], tables["previous"]
    assert block["allocated_by"].startswith("second_owner+0x")
    assert (before["address"], before["requested"]) == (hex(int(truth["reused"])), 300)
    assert before["freed_by"].startswith("give_back+0x")
    assert before["allocated_by"].startswith("first_owner+0x")
    assert any(frame["name"].startswith("give_back+") for frame in before["stack"])
    assert any(frame["name"].startswith("first_owner+") for frame in before["alloc_stack"])
    assert any(frame["name"].startswith("second_owner+") for frame in block["stack"])
    assert "previous" not in answer(target, hex(int(truth["keeper"])))
    assert "freed" not in tables


def test_without_a_log_nobody_says_who_freed_a_block() -> None:
    target, truth, _told = callers("audit")
    freed = next(block for block in truth.blocks.values() if block.size == 600)
    assert "freed" not in answer(target, hex(freed.address))
