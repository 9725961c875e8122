"""`heapcheck` names the block whose link left its list, and not the one to which it leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import compile_c, kernel_core

SOURCE = Path(__file__).parent / "links.c"
WAYS = ("wild", "larger", "cycle", "other-list")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(SOURCE, tmp_path_factory.mktemp("links") / "links", "-w", "-O0")


def _lists(core: Path) -> list[dict[str, str]]:
    answer = answers.answer(CoreFile(str(core)), "heapcheck")
    return [row for table in answer["tables"] if table["name"] == "lists" for row in table["rows"]]


@pytest.mark.quick("tcache-other-list", "fast-other-list")
@pytest.mark.parametrize("way", [*(f"tcache-{way}" for way in (*WAYS, "live")), *(f"fast-{way}" for way in WAYS)])
def test_the_block_with_the_bad_link_is_named(way: str, program: Path, tmp_path: Path) -> None:
    rows = _lists(kernel_core(program, tmp_path, way))
    assert [int(row["at"], 16) for row in rows] == [int((tmp_path / "said").read_text(), 16)]


def test_both_blocks_are_named_where_the_dump_does_not_decide(program: Path, tmp_path: Path) -> None:
    """A fastbin leads to a block in use. It may have been on the list, and its own link may have been overwritten."""
    (row,) = _lists(kernel_core(program, tmp_path, "fast-live"))
    assert f"or the wrong link is in {(tmp_path / 'said').read_text().strip()}" in row["what"]


def test_the_only_entry_of_a_tcache_is_a_block_of_another_size(program: Path, tmp_path: Path) -> None:
    (row,) = _lists(kernel_core(program, tmp_path, "only"))
    assert row["list"].startswith("tcache ")
    assert row["at"] is None
    assert row["what"].endswith("a chunk of another size")
