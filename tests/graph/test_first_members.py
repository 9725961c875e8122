"""Objects inside of others: links in C, values in containers, words that an earlier use left in a FILE."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.types.block_kinds import find_types
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from fixtures import answers, audited
from tests.corekit import kernel_core
from tests.graph.typed import HERE, Dumped, compared, dump, graph_of, told_in


def test_links_and_unions_of_c(tmp_path: Path) -> None:
    """A pointer to the link before is no array, and what a union leads to must look like it."""
    dumped = dump(tmp_path, ["gcc", "-O1", "-g"], "intrusive.c")
    graph = graph_of(dumped.core)
    found = compared(graph, dumped.blocks, {})
    assert found.wrong == []
    # The texts are those of connections.
    assert set(found.missing) <= {"struct conn", "struct packet", "char[]"}
    assert graph.conflict_count == 0


def names_in(core: Path) -> dict[int, str]:
    """Return the type of each block that `types` names."""
    target = CoreFile(str(core))
    found: dict[int, str] = {}
    for row in answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]:
        if row["confidence"] != "none" and row["type"].startswith(("zoo::", "main::")):
            walked = answers.answer(target, "walk", "buf", "--type", row["type"])["tables"][0]["rows"]
            found.update((int(each["address"], 16), row["type"]) for each in walked)
    return found


# What each kind of block may be called where no debug information says more.
_PLAIN = {
    "zoo::Dog[]": {"zoo::Dog[]"},
    "DEQUE(Cat)": {"zoo::Cat[]"},
    "zoo::Cage": set[str](),
    "zoo::Four": {"zoo::Dog[]"},
    "zoo::Node<zoo::Cat>": set[str](),
    "LAMBDA": {"main::{lambda()#5}::operator()() const::{lambda()#1}"},
    "zoo::Dog": {"zoo::Dog"},
    "KENNEL": {"zoo::Dog[]"},
}


def lambdas(dumped: Dumped, names: dict[int, str]) -> set[str]:
    return {names.get(block.address, "") for block in dumped.of("LAMBDA")}


@pytest.mark.thorough("it takes several seconds to compile")
@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O2", "-fno-rtti")], ids=" ".join)
def test_a_vtable_at_the_start_of_something_larger(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """It names an object that fills its block, and arrays of such objects."""
    dumped = dump(tmp_path, ["g++", "-std=c++17", *flags], "byvalue.cc")
    names = names_in(dumped.core)
    wrong = [
        (block.type, names[block.address])
        for block in dumped.blocks
        if block.address in names and block.type != "LAMBDA" and names[block.address] not in _PLAIN[block.type]
    ]
    assert wrong == []
    (named,) = lambdas(dumped, names)
    assert named.startswith("main::{lambda()#")
    known = {block.type for block in dumped.blocks if block.address in names}
    assert known >= ({"zoo::Dog[]", "zoo::Four"} if "-fno-rtti" in flags else {"zoo::Dog[]", "zoo::Four", "zoo::Dog"})


@pytest.mark.quick("1--O1", "7--O2 -fno-rtti")
@pytest.mark.parametrize("flags", [("-O1",), ("-O2", "-fno-rtti")], ids=" ".join)
@pytest.mark.parametrize("seed", ["1", "7"])
def test_what_nobody_wrote_is_no_array(tmp_path: Path, flags: tuple[str, ...], seed: str) -> None:
    """It has the array that was there before. Vectors say where arrays are."""
    program = tmp_path / "unwritten"
    subprocess.run(["g++", *flags, str(HERE / "unwritten.cc"), "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path, seed)
    told = told_in(tmp_path)
    names = names_in(core)
    assert [
        (block.type, names[block.address]) for block in told if names.get(block.address, block.type) != block.type
    ] == []
    assert {block.type for block in told if block.address in names} >= {"zoo::Shared[]", "zoo::Small[]", "zoo::Deleted"}


@pytest.mark.parametrize("flags", [("-O1",), ("-O2", "-fno-rtti")], ids=" ".join)
def test_an_array_whose_elements_begin_with_an_object(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Single objects of the class are smaller than the elements."""
    program = tmp_path / "larger"
    subprocess.run(["g++", *flags, str(HERE / "larger.cc"), "-o", str(program)], check=True)
    names = names_in(kernel_core(program, tmp_path))
    told = told_in(tmp_path)
    assert [(each.type, names[each.address]) for each in told if names.get(each.address, each.type) != each.type] == []
    assert {each.type for each in told if each.address in names} >= {"zoo::Cat[]", "zoo::Dog[]"}


@pytest.mark.thorough("it takes several seconds to compile")
def test_debug_information_tells_what_a_vtable_does_not(tmp_path: Path) -> None:
    dumped = dump(tmp_path, ["g++", "-std=c++17", "-O2", "-g"], "byvalue.cc")
    told = {"zoo::Node<zoo::Cat>", "zoo::Cage", "zoo::Four", "zoo::Dog", "zoo::Dog[]"}
    other = {"DEQUE(Cat)": ("zoo::Cat[]", "zoo::Cat*[]"), "KENNEL": ("zoo::Dog[]",)}
    # The arrays of pointers were told as what they point to.
    arrays = {f"zoo::{each}": (f"zoo::{each}", f"zoo::{each}*[]") for each in ("Cage", "Four")}
    graph = graph_of(dumped.core)
    found = compared(
        graph, [block for block in dumped.blocks if block.type in told | other.keys()], {**other, **arrays}
    )
    assert found.wrong == []
    assert found.missing == []
    (named,) = lambdas(dumped, names_in(dumped.core))
    assert named.startswith("main::{lambda()#")


@pytest.mark.quick("-std=c++17 -O1")
@pytest.mark.parametrize("flags", [("-std=c++17", "-O1"), ("-std=c++20", "-O2")], ids=" ".join)
def test_owned_arrays_and_what_an_any_holds(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """An allocator takes no room: a pointer to where one may be proves no struct."""
    dumped = dump(tmp_path, ["g++", *flags, "-g"], "shared.cc")
    control = "std::_Sp_counted_deleter<{}*, std::__sp_array_delete, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>"
    shared = "std::_Sp_counted_ptr_inplace<shop::Point, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>"
    names = {
        "CONTROL(Point)": (control.format("shop::Point"),),
        "CONTROL(long)": (control.format("long"),),
        "SHARED(Point)": (shared,),
        "std::shared_ptr<shop::Point>": ("std::shared_ptr<shop::Point>",),
        "STRING": ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",),
    }
    found = compared(graph_of(dumped.core), dumped.blocks, names)
    assert found.wrong == []
    assert found.missing == []
    rows = {
        row["type"]: row["count"] for row in answers.typed("types", dumped.core, "--top", "100")["tables"][0]["rows"]
    }
    assert rows["shared_ptr<shop::Point[]> control block"] == 200
    assert rows["shared_ptr<long[]> control block"] == 200


def test_an_old_object_to_which_only_characters_point(tmp_path: Path) -> None:
    """It is there from before: the program says that there are characters."""
    dumped = dump(tmp_path, ["g++", "-O1", "-g"], "oldobject.cc")
    graph = graph_of(dumped.core)
    image, word = graph.target.image(), graph.target.arch.word
    vtable = image.read(dumped.of("zoo::Derived")[0].address, word)
    old = [block for block in dumped.of("char[]") if image.read(block.address, word) == vtable]
    assert len(old) > 50
    found = compared(graph, dumped.blocks, {})
    assert (found.wrong, found.missing) == ([], [])
    named = {address for address, name in names_in(dumped.core).items() if name == "zoo::Derived"}
    assert named == {block.address for block in dumped.of("zoo::Derived")}


def test_old_words_in_a_file_own_nothing(tmp_path: Path) -> None:
    """fopen() clears neither all of a FILE nor its buffer."""
    program = tmp_path / "files"
    subprocess.run(["gcc", "-O0", "-g", str(HERE / "files.c"), "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path)
    size, count = map(int, (tmp_path / "truth").read_text().split())
    rows = answers.typed("owners", core)["tables"][0]["rows"]
    (root,) = (row for row in rows if row["owner"].endswith("`root"))
    assert (root["bytes"], root["count"], root["how"]) == (size, count, "alone")
    # The words are there: every pointer counts.
    everything = answers.typed("owners", core, "--all-edges")["tables"][0]["rows"]
    assert any(row["how"] == "shared" and row["count"] > count / 2 for row in everything)


def confidences(target: CoreFile) -> dict[int, tuple[str, str]]:
    """Return the type and the confidence of each block that has a class as its type."""
    types, found = find_types(target), {}
    for kind in (kind for row in types.rows() for kind in row.kinds):
        name = types.name(kind)
        if name.is_type and name.text.startswith("zoo::"):
            said = (name.text, name.confidence)
            found.update(dict.fromkeys(types.addresses([kind], (LIVE, DIRECT, INDIRECT)), said))
    return found


def wrapped(where: Path, compiler: Sequence[str], *arguments: str, env: Optional[dict[str, str]] = None) -> CoreFile:
    program = where / "wrapped"
    subprocess.run([*compiler, "-std=c++17", str(HERE / "wrapped.cc"), "-o", str(program)], check=True)
    return CoreFile(str(kernel_core(program, where, *arguments, env=env)))


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        pytest.param(("-O0",), (), marks=pytest.mark.thorough("it takes several seconds to compile")),
        pytest.param(("-O2", "-s"), (), id="stripped"),
        pytest.param(("-O2", "-s"), ("stale",), marks=pytest.mark.thorough("as the one before"), id="stale"),
    ],
)
def test_only_an_object_that_fills_its_block_is_proven(
    tmp_path: Path, flags: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    """A block with room for a word more may be an optional, a tuple, a variant or a struct that begins with it."""
    target = wrapped(tmp_path, ["g++", *flags], *arguments)
    said = confidences(target)
    told = {block.address: block for block in told_in(tmp_path)}
    assert len(told) == 690
    proven = {at: name for at, (name, confidence) in said.items() if confidence == "proven"}
    assert [(told[at].type, name) for at, name in proven.items() if told[at].type != name] == []
    # The sizes of the objects stand in the program. Each one that leaves no room is proven.
    sizes = {"zoo::Cat": 24, "zoo::Dog": 32, "zoo::Cow": 40}
    assert set(proven) == {at for at, block in told.items() if block.size == sizes.get(block.type)}
    assert {told[at].type for at in proven} == {"zoo::Cat", "zoo::Cow"}
    # One in a larger block has its name as well.
    assert {said[at] for at, block in told.items() if block.type == "zoo::Dog"} == {("zoo::Dog", "likely")}
    # A type has one row, with its blocks by confidence.
    for leaked in ((), ("--live",)):
        rows = answers.answer(target, "types", "--top", "1000", *leaked)["tables"][0]["rows"]
        by_type = {row["type"]: row for row in rows}
        assert len(by_type) == len(rows)
        for name in sizes:
            row, sure = by_type[name], by_type[name]["by_confidence"]
            assert sure.get("proven", 0) == sum(told[at].type == name for at in proven)
            assert sum(sure.values()) == row["count"] == Counter(each for each, _sure in said.values())[name]
            assert row["confidence"] == ("likely" if "likely" in sure else "proven")


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("-O2", "-s"), id="stripped"),
        pytest.param(("-O2", "-g"), marks=pytest.mark.thorough("it takes several seconds to compile"), id="debug"),
    ],
)
def test_a_record_of_just_its_size_proves_an_object(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The auditor knows what was asked for: 32 bytes for a Dog, and 40 for an optional<Dog>."""
    target = wrapped(tmp_path, ["g++", *flags], env=audited.environment("audit"))
    told = {block.address: block for block in told_in(tmp_path)}
    alone = Counter(block.type for block in told.values() if block.type in ("zoo::Cat", "zoo::Dog", "zoo::Cow"))
    assert sum(alone.values()) == 130
    proven: dict[str, int] = Counter()
    for block in told.values():
        (row,) = answers.answer(target, "whattype", f"{block.address:#x}")["tables"][0]["rows"]
        if row["type"] != "not known":
            assert (row["confidence"] == "proven") == (block.type in alone), block
            proven.update([row["type"]] * (row["confidence"] == "proven"))
    assert proven == alone
    for part in ((), ("--live",)):
        rows = answers.answer(target, "types", "--top", "1000", *part)["tables"][0]["rows"]
        sure = {row["type"]: row["by_confidence"].get("proven", 0) for row in rows if row["type"].startswith("zoo::")}
        assert {name: count for name, count in sure.items() if count} == alone


@pytest.mark.thorough("it takes several seconds to compile")
def test_debug_information_does_not_prove_a_class_with_room_behind_it(tmp_path: Path) -> None:
    target = wrapped(tmp_path, ["g++", "-O2", "-g"])
    told = {block.address: block for block in told_in(tmp_path)}
    asked: dict[str, str] = {}
    for block in told.values():
        (row,) = answers.answer(target, "whattype", f"{block.address:#x}")["tables"][0]["rows"]
        if row["type"] != "not known":
            assert (row["confidence"] == "likely") or row["type"] == block.type
            asked[block.type] = row["confidence"]
    assert (asked["zoo::Cat"], asked["zoo::Dog"], asked["optional"]) == ("proven", "likely", "likely")
