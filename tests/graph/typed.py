"""Programs that tell the types of their blocks (typed.c, typed.cc), and what dmods says of the same blocks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmods.corefile.target import CoreFile
from dmods.graph.types.typegraph import TypeGraph, find_typegraph
from tests.corekit import kernel_core

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Told:
    """A block as the program told of it. ``may``: nothing need be known of its type."""

    type: str
    may: bool
    address: int
    size: int


@dataclass(frozen=True)
class Dumped:
    core: Path
    blocks: list[Told]

    def of(self, kind: str) -> list[Told]:
        return [block for block in self.blocks if block.type == kind]


@dataclass
class Compared:
    """The answer of dmods on the blocks: bytes whose type is right, all bytes, and the wrong names."""

    right: int = 0
    total: int = 0
    wrong: list[tuple[str, str, str]] = field(default_factory=list)  # told, said, evidence
    missing: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.right / self.total


def dump(where: Path, command: Sequence[str], source: str) -> Dumped:
    """Compile, let it die, and read what it told. A line "freed" takes a block back."""
    program = where / "typed"
    subprocess.run([*command, str(HERE / source), "-o", str(program)], check=True, cwd=where)
    return Dumped(kernel_core(program, where), told_in(where))


def told_in(where: Path) -> list[Told]:
    """Return the blocks that a program told of, in the file "truth"."""
    live: dict[int, Told] = {}
    for line in (where / "truth").read_text().splitlines():
        kind, address, size = line.rsplit("|", 2)
        if kind == "freed":
            live.pop(int(address), None)
        else:
            live[int(address)] = Told(kind.rstrip("?"), kind.endswith("?"), int(address), int(size))
    return list(live.values())


def graph_of(core: Path) -> TypeGraph:
    graph = find_typegraph(CoreFile(str(core)))
    assert graph is not None
    return graph


def compared(graph: TypeGraph, blocks: Sequence[Told], names: Mapping[str, Sequence[str]]) -> Compared:
    """Compare. ``names`` has the names of the C++ library for what the program calls "NODE(list<Point>)"."""
    out = Compared()
    for told in blocks:
        block = graph.heap.block_at(told.address)
        assert block is not None
        assert (block.address, block.size) == (told.address, told.size)
        allowed = [plain(name) for name in names.get(told.type, (told.type,))]
        said = graph.at(block)
        name = said.full if said is not None and not said.disputed else None
        if not told.may and told.type != "-":
            out.total += told.size
        if name is None:
            out.missing.extend([told.type] * (not told.may and told.type != "-"))
        elif plain(name) not in allowed:
            out.wrong.append((told.type, name, said.evidence if said is not None else ""))
        elif not told.may:
            out.right += told.size
    return out


def plain(name: str) -> str:
    return "".join(name.split())


def libstdcxx() -> dict[str, tuple[str, ...]]:
    """Return the names of libstdc++'s nodes, and what else a container allocates."""
    string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
    tree: Callable[[str], str] = lambda value: f"std::_Rb_tree_node<{value}>"  # noqa: E731
    table: Callable[[str, str], str] = lambda value, cached: f"std::__detail::_Hash_node<{value}, {cached}>"  # noqa: E731
    vector: Callable[[str], str] = lambda value: f"std::vector<{value}, std::allocator<{value}> >"  # noqa: E731
    shared = "std::_Sp_counted_ptr_inplace<shop::{}, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>"
    found = {
        "NODE(list<Point>)": "std::_List_node<shop::Point>",
        "NODE(list<string>)": f"std::_List_node<{string}>",
        "NODE(list<shared_ptr<Point>>)": "std::_List_node<std::shared_ptr<shop::Point> >",
        "NODE(forward_list<long>)": "std::_Fwd_list_node<long>",
        "NODE(map<int, Item>)": tree("std::pair<int const, shop::Item>"),
        "NODE(map<string, vector<int>>)": tree(f"std::pair<{string} const, {vector('int')} >"),
        "NODE(map<int, Point>)": tree("std::pair<int const, shop::Point>"),
        "NODE(map<long, Point>)": tree("std::pair<long const, shop::Point>"),
        "NODE(set<string>)": tree(string),
        "NODE(set<long>)": tree("long"),
        "SHARED(Item)": shared.format("Item"),
        "SHARED(Point)": shared.format("Point"),
        "CONTROL(Item)": "std::_Sp_counted_ptr<shop::Item*, (__gnu_cxx::_Lock_policy)2>",
        "std::vector<shop::Point>[]": f"{vector('shop::Point')}[]",
        "std::unique_ptr<shop::Shape>[]": "std::unique_ptr<shop::Shape, std::default_delete<shop::Shape> >[]",
    }
    several = {
        "HASH(int, Point)": table("std::pair<int const, shop::Point>", "false"),
        "HASH(string, Item)": table(f"std::pair<{string} const, shop::Item>", "true"),
        "HASH(string)": table(string, "true"),
        "HASH(int, long)": table("std::pair<int const, long>", "false"),
        "DEQUE(Item)": "shop::Item",
        "DEQUE(int)": "int",
    }
    return _both(found, several)


def libcxx() -> dict[str, tuple[str, ...]]:
    """Return the same for libc++."""
    string = "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char> >"
    vector: Callable[[str], str] = lambda value: f"std::__1::vector<{value}, std::__1::allocator<{value}> >"  # noqa: E731
    tree: Callable[[str], str] = lambda value: f"std::__1::__tree_node<{value}, void*>"  # noqa: E731
    pair: Callable[[str, str], str] = lambda key, value: f"std::__1::__value_type<{key}, {value}>"  # noqa: E731
    table: Callable[[str], str] = lambda value: f"std::__1::__hash_node<{value}, void*>"  # noqa: E731
    hashed: Callable[[str, str], str] = lambda key, value: f"std::__1::__hash_value_type<{key}, {value}>"  # noqa: E731
    shared = "std::__1::__shared_ptr_emplace<shop::{0}, std::__1::allocator<shop::{0}> >"
    control = (
        "std::__1::__shared_ptr_pointer<shop::Item*, std::__1::shared_ptr<shop::Item>::"
        "__shared_ptr_default_delete<shop::Item, shop::Item>, std::__1::allocator<shop::Item> >"
    )
    found = {
        "NODE(list<Point>)": "std::__1::__list_node<shop::Point, void*>",
        "NODE(list<string>)": f"std::__1::__list_node<{string}, void*>",
        "NODE(list<shared_ptr<Point>>)": "std::__1::__list_node<std::__1::shared_ptr<shop::Point>, void*>",
        "NODE(forward_list<long>)": "std::__1::__forward_list_node<long, void*>",
        "NODE(map<int, Item>)": tree(pair("int", "shop::Item")),
        "NODE(map<string, vector<int>>)": tree(pair(string, vector("int"))),
        "NODE(map<int, Point>)": tree(pair("int", "shop::Point")),
        "NODE(map<long, Point>)": tree(pair("long", "shop::Point")),
        "NODE(set<string>)": tree(string),
        "NODE(set<long>)": tree("long"),
        "SHARED(Item)": shared.format("Item"),
        "SHARED(Point)": shared.format("Point"),
        "CONTROL(Item)": control,
        "std::vector<shop::Point>[]": f"{vector('shop::Point')}[]",
        "std::unique_ptr<shop::Shape>[]": (
            "std::__1::unique_ptr<shop::Shape, std::__1::default_delete<shop::Shape> >[]"
        ),
    }
    several = {
        "HASH(int, Point)": table(hashed("int", "shop::Point")),
        "HASH(string, Item)": table(hashed(string, "shop::Item")),
        "HASH(string)": table(string),
        "HASH(int, long)": table(hashed("int", "long")),
        "DEQUE(Item)": "shop::Item",
        "DEQUE(int)": "int",
    }
    return _both(found, several)


def _both(found: Mapping[str, str], several: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the names. A hash table has buckets beside its nodes, and a deque a map beside its blocks."""
    out = {key: (name,) for key, name in found.items()}
    for key, name in several.items():
        out[key] = (f"{name}[]" if key.startswith("DEQUE") else name, f"{name}*[]")
    return out
