"""The words of `suspects` for kinds of memory that servers have (kinds.c): what a person needs to know the cause."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.owners.heap_owners import Line, Owners, find_owners
from dmods.graph.roots.named_roots import GARBAGE
from dmods.graph.roots.ranked_root import Root
from dmods.graph.suspects.candidates import is_held, of_line
from dmods.graph.suspects.process_share import process_memory
from dmods.graph.suspects.subject import holders
from dmods.graph.suspects.suspect import Suspect
from tests.corekit import HERE, compile_c, kernel_core


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Owners, dict[str, int]]:
    """Return the owners, and the bytes of each variable as the program said them."""
    where = tmp_path_factory.mktemp("kinds")
    program = compile_c(HERE / "commands" / "kinds.c", where / "kinds", "-g0")
    core = kernel_core(program, where, output=where / "said")
    lines = (line.split() for line in (where / "said").read_text().splitlines())
    return find_owners(CoreFile(str(core))), {name: int(value) for name, value in lines}


def suspect_of(dumped: tuple[Owners, dict[str, int]], *names: str) -> Suspect:
    """Return the suspect of the line whose roots are these variables. It has the bytes that the program said."""
    owners, truth = dumped
    wanted = [f"kinds`{name}" for name in names]
    (line,) = (each for each in owners.lines if is_held(each) and sorted(root.name for root in each.roots) == wanted)
    assert line.bytes == truth[names[0]]
    (found,) = of_line(owners, process_memory(owners), line, line.bytes)
    return found


def test_samples_are_from_the_whole_heap(dumped: tuple[Owners, dict[str, int]]) -> None:
    """The first blocks of a size are those that the program made as it began."""
    what = suspect_of(dumped, "startup").what
    assert re.search(r"6,300 blocks of 264 bytes \(one holds 'order-\d+', another 'order-\d+'\)$", what), what


def test_a_kind_has_the_name_that_its_blocks_lead_to(dumped: tuple[Owners, dict[str, int]]) -> None:
    found = suspect_of(dumped, "contexts")
    said = re.search(r"\((\d) of 8 read lead to the text '(Sort buffer|Plan of a query)'", found.what)
    assert said, found.what
    # It is a constant of the program, and no private text.
    assert said[0] in found.public


def test_one_large_block_of_rows_has_texts(dumped: tuple[Owners, dict[str, int]]) -> None:
    found = suspect_of(dumped, "rows")
    assert re.search(r"'cust-\d{6}' and 'cust-\d{6}' are inside", found.what), found.what
    assert "cust-" not in found.public


def test_a_list_whose_head_is_as_large_as_another_is_followed(dumped: tuple[Owners, dict[str, int]]) -> None:
    what = suspect_of(dumped, "clients").what
    assert re.search(r"through one block of 56 bytes at 0x\w+, and in it one block of 56 bytes at", what), what


def test_the_only_entry_of_a_table_is_named(dumped: tuple[Owners, dict[str, int]]) -> None:
    what = suspect_of(dumped, "table").what
    assert re.search(r", 100% of it under one block with 'events:clicks' at 0x\w+$", what), what


def test_a_text_may_end_with_its_line(dumped: tuple[Owners, dict[str, int]]) -> None:
    what = suspect_of(dumped, "jobs").what
    assert re.search(r"\(one holds 'resize image \d{6}', another 'resize image \d{6}'\)$", what), what


def test_a_label_with_its_length_is_a_text_and_a_magic_number_is_none(dumped: tuple[Owners, dict[str, int]]) -> None:
    what = suspect_of(dumped, "labels", "second").what
    assert re.search(r"\(one holds 'host-\d{5}', another 'host-\d{5}'\)$", what), what
    assert "PAEH" not in what


def test_the_keys_of_one_large_table_are_told(dumped: tuple[Owners, dict[str, int]]) -> None:
    what = suspect_of(dumped, "sparse").what
    assert re.search(r"\(one of 6,000 blocks of 24 bytes holds 'session-\d+', another 'session-\d+'\)$", what), what


def test_words_say_more_than_numbers(dumped: tuple[Owners, dict[str, int]]) -> None:
    what = suspect_of(dumped, "topics").what
    assert re.search(r"holds 'reading of \d+', another 'reading of \d+'\)$", what), what


def test_the_share_of_the_process_has_no_memory_that_was_never_touched(dumped: tuple[Owners, dict[str, int]]) -> None:
    """Some blocks have such memory in the thousands. Of each of these, the program touched one page of five."""
    found, own = suspect_of(dumped, "halves"), process_memory(dumped[0]).own
    assert found.count == 1501
    assert found.weight > own
    assert found.share_of_process == pytest.approx(1500 * 4096 / own, rel=0.1)


def test_garbage_is_no_owner_beside_others() -> None:
    """Objects that Go's collector will free lead to much that is in use."""
    roots = [GARBAGE, *(Root(f"prog`{name}", "variable", module="prog") for name in ("cache", "index"))]
    names = holders(cast(Owners, SimpleNamespace(leading_to=lambda _line: roots, names=None)), cast(Line, None))
    assert names == "`cache` (prog) and `index` (prog)"
