"""An allocator that dmods does not know: bump.c has one, and the folder ``path`` teaches it to dmods.

The program itself says where its blocks are, so every answer is compared with that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dmods.heap.verdict import NO_VERDICT
from fixtures import answers
from tests.corekit import compile_c, kernel_core

HERE = Path(__file__).parent
PATH = HERE / "path"
MOST_LINES = 150
KEPT, LEAKED, FREED = 300, 50, 20  # of the first core; the second has more
MORE_KEPT, MORE_LEAKED = 700, 80


@dataclass
class Dump:
    """A core, and what the program said: the addresses of each kind of block, and the bytes of all live ones."""

    core: Path
    blocks: dict[str, list[int]] = field(default_factory=dict)
    live_bytes: int = 0


def dumped(program: Path, where: Path, *arguments: object) -> Dump:
    where.mkdir()
    made = Dump(kernel_core(program, where, *map(str, arguments), output=where / "said"))
    for line in (where / "said").read_text().splitlines():
        kind, *values = line.split()
        if kind == "live":
            made.live_bytes = int(values[0])
        else:
            made.blocks.setdefault(kind, []).extend(int(value, 16) for value in values)
    return made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bump")
    return compile_c(HERE / "bump.c", folder / "bump", "-fno-builtin")


@pytest.fixture(scope="session")
def dump(program: Path) -> Dump:
    return dumped(program, program.parent / "first", KEPT, LEAKED)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the folder on the search path of the programs that the test starts."""
    monkeypatch.setenv("DMODS_ALLOCATORS", str(PATH))


def walked(dump: Dump, *words: str) -> set[int]:
    return {int(line, 16) for line in answers.printed("walk", dump.core, *words).split()}


def test_the_folder_is_small() -> None:
    assert sum(len(file.read_text().splitlines()) for file in PATH.rglob("*.py")) <= MOST_LINES


def test_without_its_folder_there_is_no_verdict(dump: Dump) -> None:
    assert answers.dmods("findleaks", dump.core).returncode == NO_VERDICT


def test_a_path_that_is_not_there(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMODS_ALLOCATORS", str(PATH / "nowhere"))
    done = answers.dmods("findleaks", dump.core)
    assert done.returncode == 1
    assert f"DMODS_ALLOCATORS names {PATH / 'nowhere'}, which is no folder" in done.stderr


@pytest.mark.usefixtures("known")
def test_findleaks(dump: Dump) -> None:
    answer = answers.typed("findleaks", dump.core)
    assert answer["verdict"] == {"possible": True, "reason": ""}
    assert answer["notes"] == []
    (group,) = (row for table in answer["tables"] for row in table["rows"])
    assert group["cache"] == "bump-96"
    assert group["leaked"] == LEAKED
    assert group["kept_count"] == LEAKED
    assert answer["totals"]["leaked_bytes"] == (96 + 208) * LEAKED


@pytest.mark.usefixtures("known")
def test_walk(dump: Dump) -> None:
    assert walked(dump, "leak") == {*dump.blocks["direct"]}
    assert walked(dump, "leakbuf") == {*dump.blocks["direct"], *dump.blocks["indirect"]}
    assert walked(dump, "freebuf") == {*dump.blocks["freed"]}
    live = walked(dump, "buf", hex(dump.blocks["kept"][0]))
    assert live > {*dump.blocks["kept"], *dump.blocks["direct"], *dump.blocks["indirect"]}
    assert not live & {*dump.blocks["freed"]}
    notes = answers.dmods("walk", dump.core, "arena").stderr
    assert "bump has no arenas" in notes


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("kind", "offset", "said"),
    [
        ("direct", 0, "allocated from bump-96, leaked directly"),
        ("freed", 0, "freed from bump-320: on the list of freed blocks"),
        ("kept", -8, "in the header of the block {block:#x}"),
    ],
)
def test_whatis(dump: Dump, kind: str, offset: int, said: str) -> None:
    block = dump.blocks[kind][1]
    assert said.format(block=block) in answers.printed("whatis", dump.core, hex(block + offset))


@pytest.mark.usefixtures("known")
def test_heapsizes(dump: Dump) -> None:
    answer = answers.typed("heapsizes", dump.core)
    rows = {row["size"]: row for row in answers.by_name(answer)["sizes"]}
    assert rows["320"]["free_count"] == FREED
    assert rows["96"]["leaked_count"] == rows["208"]["leaked_count"] == LEAKED
    assert rows["48"]["live_count"] == KEPT + 1
    assert answer["totals"]["live_bytes"] == dump.live_bytes


@pytest.mark.usefixtures("known")
def test_malloc_stats(dump: Dump) -> None:
    rows = answers.by_name(answers.typed("malloc_stats", dump.core))["allocator"]
    figures = {row["what"]: row["value"] for row in rows}
    assert figures["bytes in use"] == dump.live_bytes
    assert figures["free blocks"] == FREED
    assert figures["bytes of memory"] % 4096 == 0
    assert figures["bytes of headers"] == 16 * (figures["blocks in use"] + FREED)


@pytest.mark.usefixtures("known")
def test_heapcheck(dump: Dump, program: Path, tmp_path: Path) -> None:
    assert answers.typed("heapcheck", dump.core, "--fail-on-damage")["totals"]["problems"] == 0
    broken = dumped(program, tmp_path / "broken", 30, 5, "overrun")
    _victim, behind = broken.blocks["overrun"]
    done = answers.dmods("heapcheck", broken.core, "--fail-on-damage")
    assert done.returncode == 3
    assert f"the header at {behind - 16:#x}" in done.stdout


@pytest.mark.usefixtures("known")
def test_types_and_owners(dump: Dump) -> None:
    (row,) = (row for row in answers.typed("types", dump.core)["tables"][0]["rows"] if "customer" in row["type"])
    assert (row["count"], row["type"]) == (KEPT + 1, "struct customer")
    lines = answers.typed("owners", dump.core)["tables"][0]["rows"]
    (held,) = (line for line in lines if line["owner"] == "bump`customers")
    assert (held["count"], held["bytes"]) == (KEPT + 1, 48 * (KEPT + 1))


@pytest.mark.usefixtures("known")
def test_growth(dump: Dump, program: Path, tmp_path: Path) -> None:
    later = dumped(program, tmp_path / "later", MORE_KEPT, MORE_LEAKED)
    answer = answers.typed("growth", dump.core, later.core, "--by", "arena")
    (row,) = (row for table in answer["tables"] for row in table["rows"] if row.get("key") == "bump")
    assert row["growth_bytes"] == later.live_bytes - dump.live_bytes
