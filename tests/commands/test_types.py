"""types, `walk --type` and `--shape`, and findleaks by type, compared with what a program said of its blocks."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest

from dmods.base.class_names import plain_class, split_template
from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.graph.owners.heap_owners import find_owners
from dmods.graph.types.block_kinds import find_types
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import answers, audited
from tests.corekit import kernel_core

SOURCE = Path(__file__).parent.parent / "kinds.cc"
EVERY_STATE = (LIVE, DIRECT, INDIRECT)


@dataclass(frozen=True)
class Told:
    """A block as the program told of it."""

    kind: str
    state: str
    address: int
    size: int


@dataclass(frozen=True)
class Dumped:
    """A core of tests/kinds.cc and its truth."""

    core: Path
    blocks: tuple[Told, ...]

    def of(self, kind: str) -> set[int]:
        return {block.address for block in self.blocks if block.kind == kind}


def dump(where: Path, *flags: str) -> Dumped:
    program = where / "kinds"
    subprocess.run(["g++", "-O1", *flags, "-o", str(program), str(SOURCE)], check=True)
    return dumped_by(program, where)


def dumped_by(program: Path, where: Path, env: Optional[Mapping[str, str]] = None) -> Dumped:
    core = kernel_core(program, where, env=env)
    lines = [line.split() for line in (where / "truth").read_text().splitlines()]
    assert lines.pop() == ["told"]
    return Dumped(core, tuple(Told(kind, state, int(at), int(size)) for kind, state, at, size in lines))


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module")
def target(dumped: Dumped) -> CoreFile:
    return CoreFile(str(dumped.core))


def kinds_by_row(target: CoreFile) -> Mapping[int, str]:
    """Return what `types` calls each block in use."""
    types, found = find_types(target), {}
    for row in types.rows():
        for address in types.addresses(row.kinds, EVERY_STATE):
            assert address not in found
            found[address] = row.name.text
    return found


def test_no_two_kinds_share_a_row(dumped: Dumped, target: CoreFile) -> None:
    named, rows = kinds_by_row(target), defaultdict(Counter)
    for block in dumped.blocks:
        rows[named[block.address]][block.kind] += 1
    # A block of zeros says nothing: Link's last node has the value 0 and no next.
    mixed = {row: dict(kinds) for row, kinds in rows.items() if len(kinds) > 1 and "zeros" not in row}
    assert not mixed
    assert sum(count for row, kinds in rows.items() for count in kinds.values() if "zeros" in row) <= 1


def test_few_kinds_are_split(dumped: Dumped, target: CoreFile) -> None:
    named, rows = kinds_by_row(target), defaultdict(set)
    for block in dumped.blocks:
        rows[block.kind].add(named[block.address])
    assert {kind: len(found) for kind, found in rows.items() if len(found) > 1} in ({}, {"Link": 2})


# Bytes of the objects, on x86-64.
@pytest.mark.parametrize(("name", "size"), [("shop::Item", 16), ("shop::Both", 40), ("make_shared<Shared>", 40)])
def test_objects_have_their_class(dumped: Dumped, target: CoreFile, name: str, size: int) -> None:
    rows = answers.answer(target, "types")["tables"][0]["rows"]
    row = next(row for row in rows if row["type"] == name)
    # An object that leaves room in its block may be the first member of something larger.
    (usable,) = {block.size for block in dumped.blocks if block.kind == name}
    confidence = "proven" if usable - size < 8 else "likely"
    assert (row["count"], row["evidence"], row["confidence"]) == (len(dumped.of(name)), "vtable", confidence)
    walked = answers.answer(target, "walk", "buf", "--type", name)["tables"][0]["rows"]
    assert {int(each["address"], 16) for each in walked} == dumped.of(name)


def test_a_class_may_be_typed_short(dumped: Dumped, target: CoreFile) -> None:
    walked = answers.answer(target, "walk", "buf", "--type", "Both")["tables"][0]["rows"]
    assert {int(each["address"], 16) for each in walked} == dumped.of("shop::Both")


def test_no_other_block_has_a_type(dumped: Dumped, target: CoreFile) -> None:
    types = find_types(target)
    # The program did not ask for libstdc++'s pool for exceptions.
    rows = [row for row in types.rows() if row.name.is_type and row.name.evidence != "libstdc++"]
    typed = {at for row in rows for at in types.addresses(row.kinds, EVERY_STATE)}
    known = ("shop::Item", "shop::Both", "make_shared<Shared>", "Work")
    assert typed == set().union(*(dumped.of(kind) for kind in known))


def test_a_functor_has_the_type_that_its_function_says(dumped: Dumped, target: CoreFile) -> None:
    rows = answers.answer(target, "types")["tables"][0]["rows"]
    row = next(row for row in rows if row["type"] == "Work")
    assert (row["count"], row["evidence"], row["confidence"]) == (len(dumped.of("Work")), "std::function", "likely")


def test_a_member_with_a_vtable_is_part_of_the_shape(dumped: Dumped, target: CoreFile) -> None:
    named = kinds_by_row(target)
    assert {named[at] for at in dumped.of("Member")} == {"malloc-24: 6, vtable of shop::Item, 1"}


def test_tables_of_functions_tell_structures_apart(dumped: Dumped, target: CoreFile) -> None:
    named = kinds_by_row(target)
    for kind in ("doubling", "halving"):
        assert dumped.of(kind)
        assert all(named[at].startswith(f"malloc-72: {kind}, ") for at in dumped.of(kind))


def test_the_rows_are_all_blocks_in_use(target: CoreFile) -> None:
    answer = answers.answer(target, "types", "--top", "1000")
    rows = answer["tables"][0]["rows"]
    in_use = list(find_heap(target).blocks(*EVERY_STATE))
    assert sum(row["count"] for row in rows) == answer["totals"]["count"] == len(in_use)
    assert sum(row["bytes"] for row in rows) == answer["totals"]["bytes"] == sum(block.size for block in in_use)


def test_leaked_and_live_are_the_whole(target: CoreFile) -> None:
    totals = {part: answers.answer(target, "types", *part.split())["totals"] for part in ("", "--live", "--leaked")}
    leaks = find_heap(target).leaks()
    assert totals["--leaked"]["bytes"] == leaks.direct_bytes + leaks.indirect_bytes
    assert totals["--live"]["bytes"] + totals["--leaked"]["bytes"] == totals[""]["bytes"]


def test_a_caller_that_makes_one_type_says_what_its_leaks_are(dumped: Dumped, tmp_path: Path) -> None:
    found = dumped_by(dumped.core.parent / "kinds", tmp_path, audited.environment("audit"))
    rows = answers.answer(CoreFile(str(found.core)), "types")["tables"][0]["rows"]
    said = {row["evidence"]: (row["count"], row["leaked_count"]) for row in rows if row["type"] == "Work"}
    assert said == {"std::function": (len(found.of("Work")), 0), "records": (len(found.of("Lost")),) * 2}


@pytest.mark.parametrize("part", ["", "--live", "--leaked"])
def test_a_type_retains_what_is_below_one_of_its_blocks(target: CoreFile, part: str) -> None:
    """Each byte once for a type: by the dominators of each block, one by one."""
    owners = find_owners(target)
    named = kinds_by_row(target)
    expected: dict[str, int] = defaultdict(int)
    for block in find_heap(target).blocks(LIVE, DIRECT, INDIRECT):
        if part and (block.state == LIVE) != (part == "--live"):
            continue
        found = owners.above(block.address, len(named))
        assert found is not None
        for name in {named[kept.address] for kept in found[0]}:
            expected[name] += block.size
    assert len(expected) >= (2 if part == "--leaked" else 10)
    rows = answers.answer(target, "types", "--top", "1000", *part.split())["tables"][0]["rows"]
    assert {row["type"]: row["retained_bytes"] for row in rows} == expected
    assert all(row["retained_bytes"] >= row["bytes"] for row in rows)


def test_owners_and_retained_have_the_same_types(target: CoreFile) -> None:
    live = {row["type"]: row["bytes"] for row in answers.answer(target, "types", "--live")["tables"][0]["rows"]}
    owners = answers.answer(target, "owners", "--by", "type", "--top", "1000")
    rows = owners["tables"][0]["rows"]
    held = {row["type"]: row["bytes"] for row in rows if row["how"] == "live"}
    # The cache of the thread is the allocator's own, and live for `types`.
    assert {name: size for name, size in live.items() if name in held} == held
    assert sum(row["bytes"] for row in rows) == owners["totals"]["heap_bytes"]
    kept = answers.answer(target, "retained", "functions", "--top", "1000")
    kinds = answers.by_name(kept)["kinds"]
    assert sum(row["bytes"] for row in kinds) == kept["totals"]["bytes"]
    assert {row["type"]: row["count"] for row in kinds}["Work"] == 8


def test_findleaks_tells_leaks_of_one_size_apart(dumped: Dumped, target: CoreFile) -> None:
    answer = answers.answer(target, "findleaks")
    rows = answer["tables"][0]["rows"]
    groups = {row["type"]: row for row in rows}
    customers = groups["text 'customer..', 0, number, heap-72, number, .."]
    logins = groups["text 'login-..', 0, number, small, number, .."]
    # Of each pair one is direct, and keeps the other.
    assert (customers["leaked"], customers["kept_count"]) == (400, 400)
    assert (logins["leaked"], logins["kept_count"]) == (300, 0)
    assert int(customers["buffer"], 16) in dumped.of("Customer")
    assert int(logins["buffer"], 16) in dumped.of("LoginEvent")
    assert sum(row["leaked"] for row in rows) == answer["totals"]["direct_count"]
    assert "customer" in answers.text(target, "findleaks")


def test_walk_takes_a_shape_and_its_id(dumped: Dumped, target: CoreFile) -> None:
    rows = answers.answer(target, "types")["tables"][0]["rows"]
    row = next(row for row in rows if "login" in row["type"])
    for text in (row["id"], row["type"]):
        walked = answers.answer(target, "walk", "buf", "--shape", text)["tables"][0]["rows"]
        assert {int(each["address"], 16) for each in walked} == dumped.of("LoginEvent")
        assert {each["state"] for each in walked} == {"leaked directly"}


@pytest.mark.parametrize(
    "words", [("buf", "--type", "Nobody"), ("leak", "--type", "Item"), ("buf", "--type", "a", "--shape", "b")]
)
def test_what_walk_refuses(target: CoreFile, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        answers.report(target, "walk", *words)


def test_both_parts_at_once_are_refused(target: CoreFile) -> None:
    with pytest.raises(UsageError):
        answers.report(target, "types", "--live", "--leaked")


@pytest.mark.thorough("it compiles and dumps the program again")
def test_a_vtable_without_type_information_is_known_by_its_symbol(tmp_path: Path) -> None:
    made = dump(tmp_path, "-fno-rtti")
    target = CoreFile(str(made.core))
    rows = {row["type"]: row for row in answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]}
    for name in ("shop::Item", "shop::Both"):
        row = rows[name]
        assert (row["count"], row["evidence"], row["confidence"]) == (len(made.of(name)), "vtable symbol", "likely")


def test_a_truncated_core_keeps_the_rest_of_the_answer(dumped: Dumped, tmp_path: Path) -> None:
    data = dumped.core.read_bytes()
    for part in (9, 7, 5, 3):
        short = tmp_path / f"core.{part}"
        short.write_bytes(data[: len(data) * part // 10])
        target = CoreFile(str(short))
        answer = answers.answer(target, "types", "--top", "1000")
        assert sum(row["count"] for row in answer["tables"][0]["rows"]) == answer["totals"]["count"]
        assert any("truncated" in note for note in target.notes)


def test_names_of_control_blocks() -> None:
    inplace = "std::_Sp_counted_ptr_inplace<shop::Pair<int, A>, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>"
    assert plain_class(inplace) == "make_shared<shop::Pair<int, A>>"
    assert plain_class("std::__1::__shared_ptr_emplace<Foo, std::__1::allocator<Foo>>") == "make_shared<Foo>"
    assert plain_class("std::_Sp_counted_ptr<Foo*, (__gnu_cxx::_Lock_policy)2>") == "shared_ptr<Foo> control block"
    array = "std::_Sp_counted_deleter<Foo*, std::__sp_array_delete, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>"
    assert plain_class(array) == "shared_ptr<Foo[]> control block"
    made = "std::_Sp_counted_array<std::allocator<Foo>, (__gnu_cxx::_Lock_policy)2>"
    assert plain_class(made) == "shared_ptr<Foo[]> control block"
    assert plain_class("mine::_Sp_counted_ptr<Foo*>") == "mine::_Sp_counted_ptr<Foo*>"
    assert split_template("std::map<int, std::pair<a, b>>") == ("std::map", ["int", "std::pair<a, b>"])
    assert split_template("plain") == ("plain", [])
