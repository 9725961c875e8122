"""Types that holders tell, compared with what the programs said of their blocks: tests/held.cc and tests/held.rs."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, cast

import pytest

from dmods.base.class_names import plain_class, split_template
from dmods.corefile.target import CoreFile
from dmods.graph.types.block_kinds import find_types
from dmods.graph.types.cxx_holders import cxx_marks
from dmods.graph.types.rust_vtables import Method, Vtable, dropped_type, method_of, resolved
from dmods.graph.types.type_name import TypeName
from dmods.graph.types.types_from_marks import coroutine_marks, different
from dmods.heap.block import DIRECT, INDIRECT, LIVE, OWN
from dmods.target import Symbol, Target
from fixtures import answers, audited, jemallocs
from tests.corekit import HERE, kernel_core

#: What `types` calls the blocks that the program cannot name as dmods does.
_LAMBDA = "make_functions()::{lambda"
_CLOSURE = "held::main::{{closure}}"


@dataclass(frozen=True)
class Held:
    """A core, and the blocks by the type that the program told."""

    core: Path
    blocks: Mapping[str, Sequence[int]]


def run(program: Path, where: Path, env: Optional[Mapping[str, str]] = None) -> Held:
    core = kernel_core(program, where, env=env)
    blocks: dict[str, list[int]] = defaultdict(list)
    *lines, last = (line.split("|") for line in (where / "truth").read_text().splitlines())
    assert last[0] == "told"
    for name, address, _size in lines:
        blocks[name].append(int(address))
    assert blocks
    return Held(core, blocks)


def built(where: Path, *flags: str) -> Path:
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-pthread", *flags, str(HERE / "held.cc"), "-o", str(where / "held")], check=True
    )
    return where / "held"


def rust(where: Path, *flags: str) -> Path:
    subprocess.run(["rustc", *flags, str(HERE / "held.rs"), "-o", str(where / "held")], check=True)
    return where / "held"


def named(core: Path) -> dict[int, TypeName]:
    """Return the types that blocks have. No block has two."""
    target = CoreFile(str(core))
    types = find_types(target)
    found: dict[int, TypeName] = {}
    for row in types.rows():
        for address in types.addresses(row.kinds, (LIVE, DIRECT, INDIRECT, OWN)):
            assert address not in found
            found[address] = row.name
    return found


def check(held: Held, lost: Optional[str] = None, lambdas: str = _LAMBDA) -> None:
    """Every block has the type that the program told. ``lost`` is the type of functors without a holder."""
    found = named(held.core)
    for kind, blocks in held.blocks.items():
        names = {found[address] for address in blocks}
        texts = {name.text for name in names if name.is_type}
        if kind == "-" or (kind == "lost" and lost is None):
            assert not texts, (kind, texts)
            continue
        assert all(name.is_type for name in names), (kind, names)
        if kind in ("a lambda", "a closure"):
            assert len(texts) == 1
            assert texts.pop().startswith(lambdas)
        else:
            assert texts == {lost if kind == "lost" else kind}
        expected = {"assumed"} if kind == "lost" else {"likely"}
        assert {name.confidence for name in names} == expected
    # Nothing else is called so.
    told = {address for kind, blocks in held.blocks.items() if kind != "-" for address in blocks}
    by_symbol = {address for address, name in found.items() if name.confidence in ("likely", "assumed")}
    assert by_symbol <= told


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("held"))


@pytest.fixture(scope="module")
def held(program: Path) -> Held:
    return run(program, program.parent)


@pytest.mark.thorough("it compiles a program with much of the library")
def test_holders_say_what_they_hold(held: Held) -> None:
    check(held)
    rows = {row["type"]: row for row in answers.answer(CoreFile(str(held.core)), "types")["tables"][0]["rows"]}
    assert rows["shop::Work"]["evidence"] == "std::function"
    assert rows["shop::Large"]["evidence"] == "std::any"
    assert rows["coroutine net::serve"]["evidence"] == "coroutine"
    # Each in its own class, which its vtable names.
    assert rows["shared_ptr<shop::Item> control block"]["count"] == len(held.blocks["shop::Large"]) * 2
    running = next(row for name, row in rows.items() if name.startswith("std::thread running"))
    # Its block has room for more, and only the library makes such objects.
    assert (running["count"], running["confidence"]) == (2, "proven")


@pytest.mark.thorough("it compiles a program with much of the library")
def test_a_leaked_functor_has_the_type_of_its_sisters(program: Path, tmp_path: Path) -> None:
    """It has no holder any more, but its stack makes only functors of that type."""
    held = run(program, tmp_path, audited.environment("audit"))
    check(held, lost="shop::Work")
    rows = answers.answer(CoreFile(str(held.core)), "types")["tables"][0]["rows"]
    (row,) = [row for row in rows if row["evidence"] == "records"]
    assert (row["count"], row["leaked_count"], row["confidence"]) == (5, 5, "assumed")


@pytest.mark.thorough("it compiles the program again")
@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O3", "-static"), ("-O2", "-Wl,-z,now"), ("-O2", "-no-pie")])
def test_the_compiler_does_not_matter(tmp_path: Path, flags: tuple[str, ...]) -> None:
    check(run(built(tmp_path, *flags), tmp_path))


@pytest.mark.thorough("it compiles the program again")
def test_a_stripped_program_names_only_what_run_time_types_name(tmp_path: Path) -> None:
    program = built(tmp_path)
    subprocess.run(["strip", str(program)], check=True)
    held = run(program, tmp_path)
    # Symbols of templates in the dynamic table stay, as far as the libraries share them.
    found = named(held.core)
    for kind, blocks in held.blocks.items():
        texts = {found[address].text for address in blocks if found[address].is_type}
        assert texts <= {kind}, kind


@pytest.mark.thorough("it needs jemalloc")
def test_jemalloc_does_not_matter(program: Path, tmp_path: Path) -> None:
    check(run(program, tmp_path, {"LD_PRELOAD": jemallocs.library()}))


@pytest.mark.thorough("it compiles a program")
@pytest.mark.parametrize("flags", [(), ("-Csymbol-mangling-version=v0",), ("-Copt-level=1",)])
def test_trait_objects_say_what_they_are(tmp_path: Path, flags: tuple[str, ...]) -> None:
    closure = "held::main::{closure#0}" if "v0" in "".join(flags) else _CLOSURE
    check(run(rust(tmp_path, *flags), tmp_path), lambdas=closure)


@pytest.mark.thorough("it compiles a program")
def test_folded_functions_give_no_wrong_name(tmp_path: Path) -> None:
    """In a release, types with the same code share functions."""
    held = run(rust(tmp_path, "-Copt-level=3"), tmp_path)
    found = named(held.core)
    for kind, blocks in held.blocks.items():
        for address in blocks:
            name = found[address]
            if name.is_type and kind != "a closure":
                assert name.text in (kind, f"{kind} or a type with the same code"), kind


class Named:
    """A target of which only symbols are asked."""

    def __init__(self, *names: tuple[str, int]) -> None:
        self.symbols = [Symbol(name, address, 16, "program") for name, address in names]

    def lookup(self, _name: str) -> Optional[Symbol]:
        return None

    def symbols_with(self, parts: Sequence[str]) -> Sequence[Symbol]:
        return [symbol for symbol in self.symbols if any(part in symbol.name for part in parts)]


def test_coroutines_of_both_compilers_are_known_by_their_symbols() -> None:
    gcc = "_ZN3net5serveEPZNS_5serveEilE22_ZN3net5serveEil.Frame"
    program = Named(
        (f"{gcc}.actor", 0x100),
        (f"{gcc}.destroy", 0x200),
        (f"{gcc}.actor.cold", 0x300),
        ("_ZN3net4pollEv.resume", 0x400),
        ("_ZN3net4pollEv.destroy", 0x500),
        ("_ZN3net4pollEv.cleanup", 0x600),
        ("other.destroy", 0x700),
    )
    found = [(mark.value, mark.name.text, mark.beside) for mark in coroutine_marks(cast(Target, program))]
    assert found == [(0x200, "coroutine net::serve", 0x100), (0x500, "coroutine net::poll", 0x400)]


def test_a_function_that_two_types_share_says_nothing() -> None:
    """A linker that folds functions (--icf=all) leaves both names at one address."""
    names = [f"_ZNSt3any17_Manager_externalI{cls}E9_S_manageENS_3_OpEPKS_PNS_4_ArgE" for cls in ("1A", "1B", "1C")]
    program = Named((names[0], 0x100), (names[1], 0x100), (names[2], 0x200))
    found = different(cxx_marks(cast(Target, program)))
    assert [(mark.value, mark.name.text) for mark in found] == [(0x200, "C")]


def vtables(*rows: tuple[Optional[str], str, Sequence[int]]) -> Iterator[Vtable]:
    for number, (drop, method, functions) in enumerate(rows):
        yield Vtable(number, 8, drop, (Method(method, "T"),), tuple(functions))


def test_a_folded_name_is_told_by_the_other_vtables() -> None:
    # B's drop_in_place has the same code as A's.
    found = dict(resolved(list(vtables(("A", "A", (1, 2)), ("A", "B", (1, 3))))))
    assert [found[key] for key in sorted(found, key=lambda v: v.address)] == ["A", "B or a type with the same code"]
    # Which of the two names is the folded one?
    assert not list(resolved(list(vtables(("A", "B", (1, 2))))))
    assert [text for _vtable, text in resolved(list(vtables((None, "A", (5,)))))] == ["A"]


def test_names_of_rust_functions() -> None:
    assert dropped_type("core::ptr::drop_in_place<shop::Item>") == "shop::Item"
    assert dropped_type("core::ptr::drop_in_place::<shop::Item>") == "shop::Item"
    assert dropped_type("core::ptr::drop") is None
    assert method_of("<a::B<c::D> as e::F<g>>::h") == Method("a::B<c::D>", "e::F<g>")
    assert method_of("<a::B>::h") is None
    # All types share the method: it names none.
    assert method_of("<T as core::any::Any>::type_id") is None
    assert method_of("<&mut T as core::fmt::Debug>::fmt") is None
    assert method_of("a::b::{{closure}}") == Method("a::b::{{closure}}", "")
    assert method_of("<fn() -> a::B as e::F>::h") == Method("fn() -> a::B", "e::F")


def test_names_of_classes() -> None:
    assert split_template("a<b>::c<d, e<f>>") == ("a<b>::c", ["d", "e<f>"])
    assert split_template("a<b>::c") == ("a<b>::c", [])
    assert plain_class("std::__1::__function::__func<F, std::__1::allocator<F>, void ()>") == "std::function holding F"
    state = "std::thread::_State_impl<std::thread::_Invoker<std::tuple<run(), int> > >"
    assert plain_class(state) == "std::thread running run()"
    assert plain_class("std::__1::__shared_ptr_pointer<A*, D, E>") == "shared_ptr<A> control block"
