"""The tables and pictures of the HTML report: what the commands say, bounded, and with nothing of memory's contents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmods.command import command_names
from dmods.commands._details import process_parts
from dmods.commands.triage import COMMAND, run
from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.report import Column, Report, Table
from dmods.triage.answer import Triage
from dmods.triage.details import ROWS, Part, details
from dmods.triage.html import html
from dmods.triage.report import triage_report
from fixtures import audited
from tests.triage.test_report import HOSTILE, _Elements, _Subject

COLUMNS = (Column("size", "bytes"), Column("looks_like"), Column("hidden", hidden=True))
PART = re.compile(r'<details class="part"><summary>([^<]*)</summary>(.*?)</details>', re.DOTALL)


def written(path: Path, core: CoreFile) -> str:
    run(core, COMMAND.parser().parse_args(["-o", str(path)]))
    return path.read_text()


@pytest.mark.thorough("it makes two whole reports")
def test_the_page_has_what_the_program_knows_of_its_callers(tmp_path: Path) -> None:
    """The flame graph of callers, and the tables, to the byte. Two pages of one core differ in the time alone."""
    made = audited.take("profiled")
    core, facts = CoreFile(str(made.core)), made.truth.facts
    page = written(tmp_path / "one.html", core)
    parts = dict(PART.findall(page))
    shown = {"Owners of the heap", "Holders of the heap, as a flame graph", "Callers, as a flame graph", "Arenas"}
    assert shown | {"Types and shapes of blocks", "Mappings, and what large ones hold", "Threads by stack"} <= set(
        parts
    )
    frames = re.findall(r'data-v="(\d+)"[^>]*><title>(\w+): ', parts["Callers, as a flame graph"])
    assert (str(facts["cum scene"]), "scene") in frames
    assert "leaf" in parts["Callers that allocated what is in use"]
    parsed = _Elements(page)
    assert not any(name in ("src", "style") or name.startswith("on") for _, own in parsed.elements for name in own)
    again = written(tmp_path / "two.html", CoreFile(str(made.core)))
    assert re.sub("<time>.*?</time>", "", page) == re.sub("<time>.*?</time>", "", again)
    assert len(page) < 500_000


def _parts(rows: int) -> Iterator[Part]:
    table = Table("t", COLUMNS, ((number, HOSTILE[number % len(HOSTILE)], None) for number in range(rows)))
    text = Table("x", (Column("line"),), ((text,) for text in HOSTILE * 1000), style="plain", title=HOSTILE[0])
    yield Part(HOSTILE[1], HOSTILE[0], lambda: Report([table, text], notes=list(HOSTILE)))


def test_parts_are_bounded_and_inert() -> None:
    found = Triage(details=list(details(_parts(10_000), private=False)))
    page = html(found, triage_report(found, "process"), _Subject(), "{}")
    assert f"{10_000 - ROWS:,} more rows" in page
    assert len(page) < 300_000
    assert "more lines" in page
    tags = [tag for tag, _attributes in _Elements(page).elements]
    assert "img" not in tags
    assert tags.count("script") == 2
    assert not {"\x1b", "\u202e", "\x07"} & set(page)


def test_private_parts_have_no_column_of_contents() -> None:
    (shown,), (private,) = (list(details(_parts(3), each)) for each in (False, True))
    assert [heading.name for heading in shown.grids[0].headings] == ["SIZE", "LOOKS_LIKE"]
    assert [heading.name for heading in private.grids[0].headings] == ["SIZE"]


def _refused() -> Report:
    raise UserError("no records", "record")


def _forever() -> Report:
    while True:
        pass


def test_a_part_that_cannot_be_made_says_why() -> None:
    parts = [Part("a", "a", _refused), Part("b", "b", _forever), Part("c", "c", _refused, lambda: False)]
    found = list(details([*parts, Part("d", "d", Report)], private=False, seconds=0.1))
    assert [(part.title, part.why[:10]) for part in found] == [("a", "no records"), ("b", "it took to")]


def test_every_part_names_a_command() -> None:
    core = CoreFile(str(audited.take("profiled").core))
    commands = {part.command.split()[0] for part in process_parts(core)}
    assert "findleaks" in commands
    assert commands <= set(command_names())
