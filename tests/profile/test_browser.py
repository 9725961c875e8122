"""The pictures in a real browser: they draw, search and zoom, by mouse and keyboard, and fetch nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import audited, browser
from tests.profile.test_profile import asked, ledger, written

pytestmark = pytest.mark.thorough("it downloads a browser, 150 MB")

FORMS = ("x.html", "x.svg")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.page(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def frames(page: browser.Page) -> list[dict[str, Any]]:
    """Return the frames that are seen: name, title, left and right edge and top in pixels, colours."""
    found = page.run(
        """Array.from(document.querySelectorAll('.f')).filter(f => f.style.display !== 'none').map(f => {
            const rect = f.querySelector('rect'), box = rect.getBoundingClientRect(), style = getComputedStyle(rect);
            return {name: f.querySelector('text').textContent, title: f.querySelector('title').textContent,
                    left: box.left, right: box.right, top: box.top, fill: style.fill,
                    hit: f.classList.contains('hit'), className: f.getAttribute('class')}})"""
    )
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("name", FORMS)
def test_it_draws_what_the_program_allocated(name: str, page: browser.Page, tmp_path: Path) -> None:
    made = audited.take("profiled")
    page.open(written(made, tmp_path, name))
    assert page.errors == []
    assert page.requests == [(tmp_path / name).as_uri()], "nothing is fetched"
    seen = frames(page)
    root, known = seen[0], ledger(made)
    total = asked(made)["totals"]["total"]
    assert root["right"] - root["left"] > 1000
    assert root["right"] <= page.run("document.documentElement.clientWidth")
    for function in ("scene", "worker", "around"):
        (frame,) = [frame for frame in seen if frame["name"] == function]
        share = (frame["right"] - frame["left"]) / (root["right"] - root["left"])
        assert share == pytest.approx(known[function].cum / total, abs=0.002)
        assert f"{known[function].cum} bytes" in frame["title"]
        above = [other for other in seen if other["top"] < frame["top"] and other["left"] <= frame["left"] + 1]
        assert {"main", "start_thread"} & {other["name"] for other in above}


@pytest.mark.parametrize("name", FORMS)
def test_search_and_zoom(name: str, page: browser.Page, tmp_path: Path) -> None:
    made = audited.take("profiled")
    page.open(written(made, tmp_path, name))
    page.press("/", "/")
    assert page.run("document.activeElement.id") == "search"
    for letter in "^leaf$":
        page.press(letter, letter)
    status = page.run("document.getElementById('state').textContent")
    known = ledger(made)["leaf"].cum
    assert f"{known:,}" in status
    assert re.match(r"\d+ frames match", status)
    hits = {frame["name"] for frame in frames(page) if frame["hit"]}
    assert hits == {"leaf"}
    page.press("Escape")
    assert not any(frame["hit"] for frame in frames(page))
    everything = len(frames(page))
    page.run(
        "Array.from(document.querySelectorAll('.f')).find(f => f.querySelector('text').textContent === 'worker')"
        ".querySelector('rect').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    zoomed = {frame["name"]: frame for frame in frames(page)}
    assert "scene" not in zoomed
    assert zoomed["worker"]["right"] - zoomed["worker"]["left"] == zoomed["all"]["right"] - zoomed["all"]["left"]
    page.press("Escape")
    assert len(frames(page)) == everything
    assert page.errors == []


@pytest.mark.parametrize("name", FORMS)
def test_keyboard_and_screen_reader(name: str, page: browser.Page, tmp_path: Path) -> None:
    made = audited.take("profiled")
    page.open(written(made, tmp_path, name))
    page.run("document.querySelector('.f').focus()")
    focused = "document.activeElement.querySelector('text').textContent"
    path = []
    for _ in range(5):
        page.press("ArrowDown")
        path.append(page.run(focused))
    assert path[-2:] == ["main", "scene"]
    page.press("ArrowUp")
    assert page.run(focused) == "main"
    page.press("Home")
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert page.run(focused) == "clone3"
    assert "clone3: 50000 bytes" in page.run("document.getElementById('state').textContent")
    page.press("Enter")
    assert "main" not in {frame["name"] for frame in frames(page)}
    page.press("Escape")
    roles = page.accessible()
    assert any(role == "tree" and "inuse_space" in text for role, text in roles)
    assert any(role == "treeitem" and text.startswith("scene: 202274 bytes") for role, text in roles)
    assert any(role == "searchbox" and text.startswith("Search") for role, text in roles)
    assert "status" in {role for role, _text in roles}


def test_dark_and_light_and_the_colours_of_a_difference(page: browser.Page, tmp_path: Path) -> None:
    old, new = audited.take("profiled"), audited.take("profiled", mode="more")
    page.open(written(new, tmp_path, "x.html", "--base", str(old.core)))
    back = "getComputedStyle(document.body).backgroundColor"
    page.media("light")
    light = page.run(back)
    page.media("dark")
    assert light == "rgb(255, 255, 255)" != page.run(back)
    seen = {frame["name"]: frame for frame in frames(page)}
    red, _green, blue = map(int, re.findall(r"\d+", seen["other_leaf"]["fill"])[:3])
    assert red > blue, "it grew"
    assert "same" in seen["around"]["className"]
    shrunk = [frame for frame in frames(page) if frame["name"] == "leaf" and "down" in frame["className"]]
    red, _green, blue = map(int, re.findall(r"\d+", shrunk[0]["fill"])[:3])
    assert blue > red


def test_a_hostile_name_runs_nothing(page: browser.Page, tmp_path: Path) -> None:
    from dmods.profile import flame
    from dmods.profile.model import Line, Location, Profile, Sample
    from dmods.profile.view import View

    evil = "</script><script>window.bad=1</script><img src=http://127.0.0.1/x onerror='window.bad=1'>]]>\ud800"
    profile = Profile(locations=[Location(0, 0, (Line(evil, evil, evil),))], source=evil, notes=[evil])
    profile.samples.append(Sample((0,), (1, 10)))
    for name, write in (("x.html", flame.html), ("x.svg", flame.svg)):
        (tmp_path / name).write_text("".join(write(View(profile))), encoding="utf-8")
        page.open(tmp_path / name)
        assert page.run("window.bad") is None
        assert page.requests == [(tmp_path / name).as_uri()]
        assert page.errors == []
        assert frames(page)[1]["name"].startswith("</script><script>")
