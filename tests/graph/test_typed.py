"""Types from debug information, compared with what programs said of their blocks, and with gdb's printers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.graph.types.typegraph import find_typegraph
from dmods.heap.heap import find_heap
from fixtures import answers
from tests.graph.typed import Dumped, compared, dump, graph_of, libcxx, libstdcxx, plain


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("typed-c"), ["gcc", "-O0", "-g"], "typed.c")


@pytest.fixture(scope="module")
def cxx_program(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("typed-cc"), ["g++", "-std=c++17", "-O1", "-g"], "typed.cc")


def test_the_types_of_a_c_program(c_program: Dumped) -> None:
    """Lists, trees, hash chains, flexible array members, unions, intrusive lists, void pointers, locals."""
    graph = graph_of(c_program.core)
    found = compared(graph, c_program.blocks, {})
    assert found.wrong == []
    assert found.share > 0.95
    assert graph.conflict_count == 0
    target = CoreFile(str(c_program.core))
    rows = {row["type"]: row for row in answers.answer(target, "types", "--top", "100")["tables"][0]["rows"]}
    for kind in ("struct line", "struct leaf", "struct entry", "struct job", "struct session"):
        told = c_program.of(kind)
        assert (rows[kind]["count"], rows[kind]["bytes"]) == (len(told), sum(block.size for block in told))
    assert rows["struct leaf"]["evidence"] == "typed pointer"
    walked = answers.answer(target, "walk", "buf", "--type", "job")["tables"][0]["rows"]
    assert {int(row["address"], 16) for row in walked} == {block.address for block in c_program.of("struct job")}


def test_fields_and_variables_have_names(c_program: Dumped) -> None:
    target = CoreFile(str(c_program.core))
    inner = c_program.of("struct session")[0]
    answer = answers.answer(target, "whattype", hex(inner.address + 16))["tables"][0]["rows"][0]
    assert (answer["type"], answer["field"], answer["source"]) == (
        "struct session",
        ".owned.first",
        "server.sessions[0]",
    )
    paths = answers.answer(target, "pathto", hex(c_program.of("struct entry")[199].address))["tables"][0]["rows"]
    assert re.fullmatch(r"typed`server\.\w+(\[0\])?", paths[0]["place"])
    assert [row["looks_like"] for row in paths[-3:]] == ["struct table", "struct entry *[]", "struct entry"]
    assert paths[-2]["place"] == "+0x0 .buckets"
    owners = answers.answer(target, "owners", "--by", "type")["tables"][0]["rows"]
    by_type = {row["type"]: row["count"] for row in owners}
    assert by_type["struct leaf"] == len(c_program.of("struct leaf"))
    rows = answers.answer(target, "owners")["tables"][0]["rows"]
    (held,) = (row for row in rows if row["owner"] == "with_locals: local_lines")
    assert re.fullmatch(r"with_locals in thread \d+ \(\w+\), frame \d+, local 'local_lines'", held["roots"][0]["name"])


def test_taught_types_spread_and_are_taken_back(c_program: Dumped) -> None:
    target = CoreFile(str(c_program.core))
    table = hex(c_program.of("struct table")[0].address)
    derived = c_program.of("struct derived")[-1]
    before = answers.answer(target, "typegraph")["totals"]["typed_count"]
    taught = answers.answer(target, "istype", hex(derived.address), "struct", "derived")
    assert taught["tables"][0]["rows"][0]["confidence"] == "taught"
    assert taught["totals"]["typed_after"] > before
    # Its name is a text that only the taught type leads to.
    assert graph_type(target, derived.address) == "struct derived"
    removed = answers.answer(target, "notype", table)
    assert removed["tables"][0]["rows"][0]["type"] == "not known"
    assert removed["totals"]["typed_after"] < taught["totals"]["typed_after"]
    with pytest.raises(UsageError, match="no struct, class or union nonsense"):
        answers.answer(target, "istype", table, "nonsense")
    with pytest.raises(UsageError, match="only"):
        answers.answer(target, "istype", table, "struct", "job")


def graph_type(target: CoreFile, address: int) -> str:
    graph = find_typegraph(target)
    block = find_heap(target).block_at(address)
    assert graph is not None
    assert block is not None
    return graph.name(block) or ""


@pytest.mark.thorough("it builds with optimization and older formats of debug information")
@pytest.mark.parametrize(
    "flags",
    [
        ("-O2", "-gdwarf-5"),
        ("-O1", "-gdwarf-4"),
        ("-O0", "-gdwarf-4", "-fdebug-types-section"),
        ("-O0", "-g", "-gz=zlib"),
        ("-O0", "-gdwarf-2", "-gstrict-dwarf"),
    ],
    ids=" ".join,
)
def test_formats_of_debug_information(tmp_path: Path, flags: tuple[str, ...]) -> None:
    dumped = dump(tmp_path, ["gcc", *flags], "typed.c")
    found = compared(graph_of(dumped.core), dumped.blocks, {})
    assert found.wrong == []
    assert found.share > 0.8


@pytest.mark.thorough("it takes several seconds to compile")
def test_the_containers_of_libstdcxx(cxx_program: Dumped) -> None:
    found = compared(graph_of(cxx_program.core), cxx_program.blocks, libstdcxx())
    assert found.wrong == []
    assert found.missing == []


@pytest.mark.thorough("it takes several seconds to compile")
@pytest.mark.parametrize(
    "flags",
    [
        ("-O2", "-gdwarf-5"),
        ("-O0", "-g", "-fdebug-types-section"),
        ("-O0", "-gdwarf-4", "-fdebug-types-section"),
        ("-O1", "-g", "-gdwarf-4"),
        ("-std=c++20", "-g"),
    ],
    ids=" ".join,
)
def test_the_containers_with_other_options(tmp_path: Path, flags: tuple[str, ...]) -> None:
    dumped = dump(tmp_path, ["g++", "-std=c++17", *flags], "typed.cc")
    found = compared(graph_of(dumped.core), dumped.blocks, libstdcxx())
    assert found.wrong == []
    assert found.share > 0.95


@pytest.mark.thorough("it takes several seconds to compile")
def test_the_debug_mode_of_libstdcxx(tmp_path: Path) -> None:
    """There the containers are in one namespace, and their nodes in another."""
    dumped = dump(tmp_path, ["g++", "-std=c++17", "-O1", "-g", "-D_GLIBCXX_DEBUG"], "typed.cc")
    names = {key: list(values) for key, values in libstdcxx().items()}
    for values in names.values():
        for node in ("std::_List_node", "std::_Fwd_list_node"):
            values += [value.replace(node, node.replace("::", "::__cxx1998::")) for value in values if node in value]
        values += [value.replace("std::vector", "std::__debug::vector") for value in values if "std::vector" in value]
    found = compared(graph_of(dumped.core), dumped.blocks, names)
    assert found.wrong == []
    assert found.missing == []


@pytest.mark.thorough("it downloads clang and libc++")
@pytest.mark.parametrize("flags", [("-g",), ("-gdwarf-5", "-gsimple-template-names")], ids=" ".join)
def test_the_containers_of_libcxx(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Debug information may leave the arguments of templates out of their names."""
    from fixtures import libcxx as toolchain

    command = [*toolchain.compiler(), "-std=c++17", "-O1", *flags, "-fno-limit-debug-info"]
    dumped = dump(tmp_path, command, "typed.cc")
    found = compared(graph_of(dumped.core), dumped.blocks, libcxx())
    assert found.wrong == []
    assert found.share > 0.95


@pytest.mark.thorough("it downloads clang and libc++")
def test_a_local_whose_places_are_listed_by_number(tmp_path: Path) -> None:
    """clang's form since DWARF 5 (DW_FORM_loclistx). gdb says where the variable is."""
    from fixtures import libcxx as toolchain

    dumped = dump(tmp_path, [*toolchain.c_compiler(), "-O2", "-gdwarf-5"], "typed.c")
    argv = ["gdb", "-nx", "-batch", "-ex", "backtrace full"]
    argv += [str(tmp_path / "typed"), str(dumped.core)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    at = re.search(r"\blocal_lines = (0x\w+)", said)
    assert at is not None, said
    row = answers.answer(CoreFile(str(dumped.core)), "whattype", at[1])["tables"][0]["rows"][0]
    assert (row["type"], row["evidence"]) == ("struct line", "variable of a frame")


@pytest.mark.thorough("it takes several seconds to compile")
def test_short_and_long_spellings_are_one_type(cxx_program: Dumped) -> None:
    target = CoreFile(str(cxx_program.core))
    rows = answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]
    short = "std::_Rb_tree_node<std::pair<std::string const, std::vector<int>>>"
    (long,) = libstdcxx()["NODE(map<string, vector<int>>)"]
    (row,) = [row for row in rows if row["type"] == short]
    assert plain(row["full_type"]) == plain(long)
    # A node keeps its vector alive, and the text of its key.
    assert row["retained_bytes"] > row["bytes"]
    assert not [row for row in rows if "__cxx11" in row["type"] or "std::allocator" in row["type"]]
    for command in (["types"], ["owners", "--by", "type"], ["typegraph"]):
        text = str(answers.answer(target, *command)["tables"])
        assert "__cxx11" not in re.sub("'full_type': '[^']*'", "", text)
    nodes = {block.address for block in cxx_program.of("NODE(map<string, vector<int>>)")}
    for spelling in (short, long, short.replace("std::", "", 1)):
        walked = answers.answer(target, "walk", "buf", "--type", spelling)["tables"][0]["rows"]
        assert {int(row["address"], 16) for row in walked} == nodes
    node = hex(min(nodes))
    answer = answers.answer(target, "whattype", node)["tables"][0]["rows"][0]
    assert (answer["type"], plain(answer["full_type"])) == (short, plain(long))
    for spelling in (short, long):
        taught = answers.answer(target, "istype", node, spelling)["tables"][0]["rows"][0]
        assert (taught["type"], taught["confidence"]) == (short, "taught")
    answers.answer(target, "notype", node)
    assert answers.answer(target, "whattype", node)["tables"][0]["rows"][0]["type"] == "not known"


@pytest.mark.thorough("it takes several seconds to compile")
def test_gdb_prints_containers_of_the_same_sizes(cxx_program: Dumped) -> None:
    """The printers of gdb count as many elements as there are nodes."""
    wanted = {
        "by_number": "NODE(map<int, Item>)",
        "by_name": "NODE(map<string, vector<int>>)",
        "many": "NODE(map<int, Point>)",
        "names": "NODE(set<string>)",
        "table": "HASH(int, Point)",
        "seen": "HASH(string)",
    }
    ask = "python print('{0}', gdb.default_visualizer(gdb.parse_and_eval('program.{0}')).to_string())"
    lines = [part for name in [*wanted, "numbers"] for part in ("-ex", ask.format(name))]
    argv = ["gdb", "-nx", "-batch", *_printers(), *lines, str(cxx_program.core.parent / "typed"), str(cxx_program.core)]
    environment = {**os.environ, "DEBUGINFOD_URLS": ""}
    said = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment).stdout
    counts = dict(re.findall(r"^(\w+) .* with (\d+) elements$", said, re.MULTILINE))
    assert set(counts) == set(wanted), said
    target = CoreFile(str(cxx_program.core))
    rows = answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]
    by_type = {plain(row["full_type"]): row for row in rows}
    names = libstdcxx()
    for name, kind in wanted.items():
        assert by_type[plain(names[kind][0])]["count"] == int(counts[name])
    capacity = re.search(r"^numbers .* capacity (\d+)$", said, re.MULTILINE)
    assert capacity is not None
    assert 0 <= by_type["long[]"]["bytes"] - 8 * int(capacity[1]) < 32


def _printers() -> list[str]:
    folder = Path("/usr/share/gcc/python")
    assert (folder / "libstdcxx").is_dir(), "libstdc++'s printers come with its package"
    code = f"python import sys; sys.path.insert(0, '{folder}')"
    return ["-ex", code, "-ex", "python from libstdcxx.v6 import register_libstdcxx_printers as r; r(None)"]


@pytest.fixture(scope="module", params=["-O0", pytest.param("-O2", marks=pytest.mark.thorough("a second compilation"))])
def idioms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    return dump(tmp_path_factory.mktemp("typed-idioms"), ["gcc", request.param, "-g"], "idioms.c")


def test_c_programs_that_hide_their_types(idioms: Dumped) -> None:
    """Objects that begin alike, sizes before blocks, private data before instances, pages, two structs in one block."""
    graph = graph_of(idioms.core)
    found = compared(graph, idioms.blocks, {})
    assert found.wrong == []
    assert found.share > 0.99
    assert graph.conflict_count == 0


@pytest.mark.parametrize("flag", ["-O0", pytest.param("-O2", marks=pytest.mark.thorough("a second compilation"))])
def test_no_single_object_names_a_pool(tmp_path: Path, flag: str) -> None:
    """Slab pages, linked free buffers, and arrays whose elements are in trees."""
    dumped = dump(tmp_path, ["gcc", flag, "-g"], "pools.c")
    found = compared(graph_of(dumped.core), dumped.blocks, {})
    assert found.wrong == []
    assert found.missing == []


def test_the_place_of_an_object_in_its_block(idioms: Dumped) -> None:
    target = CoreFile(str(idioms.core))
    for kind, skip in (("struct account", 8), ("struct transfer", 32), ("struct window", 40), ("struct page", 4096)):
        row = answers.answer(target, "whattype", hex(idioms.of(kind)[7].address + skip))["tables"][0]["rows"][0]
        assert row["type"] == kind
        assert row["field"] in (".next", ".from", ".instance.class", ".data")


def test_the_pool_for_exceptions_has_a_name(cxx_program: Dumped) -> None:
    """libstdc++ allocates it before main(). Nothing but its own static variable leads to it."""
    target = CoreFile(str(cxx_program.core))
    rows = answers.answer(target, "types", "--top", "200")["tables"][0]["rows"]
    (pool,) = [row for row in rows if row["evidence"] == "libstdc++"]
    assert (pool["type"], pool["count"]) == ("libstdc++'s pool for exceptions", 1)
    (block,) = answers.answer(target, "walk", "buf", "--type", pool["type"])["tables"][0]["rows"]
    path = answers.answer(target, "pathto", block["address"])["tables"][0]["rows"]
    assert path[0]["place"].startswith("libstdc++.so")
    assert len(path) == 1
    unknown = answers.answer(target, "typegraph")["tables"][-1]
    assert unknown["name"] == "unknown"
    assert block["address"] not in [row["address"] for row in unknown["rows"]]
