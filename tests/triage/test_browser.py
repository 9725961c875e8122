"""The report in a real browser: it opens from a file, asks for nothing, sorts, folds, and stays inert."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.triage.html import html
from dmods.triage.process import triage_process
from dmods.triage.report import triage_report
from fixtures import audited, browser, planted
from tests.triage.test_details import written
from tests.triage.test_report import HOSTILE, _hostile, _Subject

pytestmark = pytest.mark.thorough("it downloads a browser, 150 MB")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.page(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def _written(where: Path, text: str) -> Path:
    path = where / "report.html"
    path.write_text(text)
    return path


def test_a_real_report_opens_sorts_and_folds(page: browser.Page, tmp_path: Path) -> None:
    core = CoreFile(str(planted.core("c", "overrun")))
    found = triage_process(core)
    path = _written(tmp_path, html(found, triage_report(found, "process"), core, "{}"))
    page.open(path)
    assert page.errors == []
    assert page.requests == [path.as_uri()]
    assert page.run("getComputedStyle(document.querySelector('.finding')).borderLeftStyle") == "solid"
    widths = page.run("Array.from(document.querySelectorAll('.bar span')).map(e => e.getBoundingClientRect().width)")
    whole = page.run("document.querySelector('.bar').clientWidth")
    assert sum(widths) == pytest.approx(whole, abs=2)

    column = "Array.from(document.querySelectorAll('table.sortable tbody')[0].rows).map(r => +r.cells[1].dataset.value)"
    page.run("document.querySelectorAll('table.sortable')[0].querySelectorAll('th button')[1].click()")
    assert page.run(column) == sorted(page.run(column))
    page.run("document.querySelectorAll('table.sortable')[0].querySelectorAll('th button')[1].click()")
    assert page.run(column) == sorted(page.run(column), reverse=True)
    page.run("document.querySelector('summary').click()")
    assert page.run("document.querySelector('details').open") is False

    colours = []
    for scheme in ("light", "dark"):
        page.media(scheme)
        colours.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]
    assert ("heading", "Verdict") in page.accessible()


def _part(title: str) -> str:
    return f"Array.from(document.querySelectorAll('.part')).find(e => e.firstElementChild.textContent === '{title}')"


def test_tables_fold_and_sort_and_pictures_zoom(page: browser.Page, tmp_path: Path) -> None:
    made = audited.take("profiled")
    path = tmp_path / "report.html"
    written(path, CoreFile(str(made.core)))
    page.open(path)
    assert page.errors == []
    assert page.requests == [path.as_uri()]
    assert page.run("Array.from(document.querySelectorAll('.part')).some(e => e.open)") is False

    types = _part("Types and shapes of blocks")
    page.run(f"{types}.firstElementChild.click()")
    assert page.run(f"{types}.open") is True
    column = f"Array.from({types}.querySelector('tbody').rows).map(r => +r.cells[1].dataset.value)"
    before = page.run(column)
    page.run(f"{types}.querySelectorAll('th button')[1].click()")
    assert page.run(column) == sorted(before)
    assert page.run(f"{types}.querySelectorAll('th')[1].getAttribute('aria-sort')") == "ascending"

    callers = _part("Callers, as a flame graph")
    page.run(f"{callers}.firstElementChild.click()")
    page.run("new Promise(done => setTimeout(done, 50))")  # the event `toggle` comes later
    frame = f"Array.from({callers}.querySelectorAll('.f')).find(e => e.querySelector('text').textContent === 'scene')"
    share = page.run(f"{frame}.querySelector('rect').getBoundingClientRect().width")
    whole = page.run(f"{callers}.querySelector('.chart').getBoundingClientRect().width")
    facts = made.truth.facts
    assert f"{facts['cum scene']} bytes" in page.run(f"{frame}.querySelector('title').textContent")
    assert page.run(f"getComputedStyle({frame}.querySelector('text')).display") != "none"
    page.run(f"{frame}.querySelector('rect').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    wide = page.run(f"{frame}.querySelector('rect').getBoundingClientRect().width")
    assert wide == pytest.approx(whole, abs=2)
    assert wide > share
    page.run(f"{callers}.querySelector('.reset').click()")
    assert page.run(f"{frame}.querySelector('rect').getBoundingClientRect().width") == pytest.approx(share)

    assert page.printed().startswith(b"%PDF")
    assert page.run("Array.from(document.querySelectorAll('.part')).every(e => e.open)") is True
    assert page.errors == []
    assert page.requests == [path.as_uri()]


def test_hostile_strings_do_nothing(page: browser.Page, tmp_path: Path) -> None:
    found = _hostile()
    said = json.dumps({"strings": HOSTILE})
    path = _written(tmp_path, html(found, triage_report(found, "process"), _Subject(), said))
    page.open(path)
    assert page.errors == []
    assert page.requests == [path.as_uri()]
    assert page.run("JSON.parse(document.getElementById('dmods-report').textContent).strings") == list(HOSTILE)
    assert page.run("document.querySelectorAll('img').length") == 0
