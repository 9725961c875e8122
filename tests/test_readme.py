"""The statements in README.md, and in the pages of docs that its text moved to, are true."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fixtures.answers import finished, user_environment
from fixtures.limits import HANG

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text()
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
README = PAGES["README.md"]
SPLIT = ("README.md", "docs/CI.md", "docs/KERNELS.md", "docs/PROCESSES.md")
MOST_WORDS = 1300  # a page that somebody reads before he types anything


@pytest.mark.thorough("it makes the transcripts again")
def test_the_transcripts_have_the_shape_of_what_is_printed_now() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "transcripts", "--check"], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nscripts/transcripts pastes what is printed now"
    with_transcripts = [name for name, text in PAGES.items() if "\n```console\n" in text]
    assert {"README.md", "docs/KERNELS.md", "docs/PROCESSES.md"} <= set(with_transcripts)
    assert re.findall(r"^(\S+): all \d+ transcripts are true$", done.stdout, re.MULTILINE) == with_transcripts


def test_the_two_literal_lines_are_there() -> None:
    assert "\ngdb -x heapcmds.py core.1603\n" in README
    assert "\n$ dmods findleaks core.1603\n" in README
    assert "\n$ drgn -c vmcore memstat\n" in README


def test_the_readme_is_short() -> None:
    assert len(README.split()) < MOST_WORDS, "docs/PROCESSES.md, docs/KERNELS.md and docs/CI.md take what is longer"


def test_the_scripts_that_are_named_exist() -> None:
    assert {"scripts/setup", "scripts/demo", "scripts/test"} <= set(re.findall(r"\bscripts/[\w-]+", README))
    named = {script for page in SPLIT for script in re.findall(r"\bscripts/[\w-]+", PAGES[page])}
    assert [script for script in named if not (ROOT / script).is_file()] == []


def _anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_links_lead_somewhere() -> None:
    """Each link of a page to a file or folder of the checkout, and to a heading there."""
    links = [
        (page, where, anchor)
        for page, text in PAGES.items()
        for where, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)(?:#([^)\s]*))?\)", text)
    ]
    assert ("README.md", "docs/PROCESSES.md", "who-allocated-it") in links
    broken = []
    for page, where, anchor in links:
        target = ((ROOT / page).parent / where).resolve() if where else ROOT / page
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            broken.append(f"{page}: {where}#{anchor}")
    assert broken == []


def _ci_block() -> str:
    """Return the lines for a CI job: README.md and docs/CI.md have the same."""
    blocks = [
        text
        for page in ("README.md", "docs/CI.md")
        for text in re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL)
        if "--fail-on-leak" in text
    ]
    assert len(blocks) == 2
    assert blocks[0] == blocks[1]
    return blocks[0]


@pytest.mark.parametrize(("program", "status"), [("free(malloc(24))", 0), ("malloc(24)", 3)])
def test_the_lines_for_a_ci_job(tmp_path: Path, program: str, status: int) -> None:
    """The block takes a core at the end of ./test, from an empty folder, and its status is the verdict."""
    (tmp_path / "test.c").write_text(f"#include <stdlib.h>\nint main(void) {{ {program}; return 0; }}\n")
    subprocess.run(["gcc", "-O0", "-Wno-unused-result", "-o", "test", "test.c"], cwd=tmp_path, check=True)
    environment = {**user_environment(tmp_path), "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    done = finished("sh", "-c", _ci_block(), cwd=tmp_path, env=environment)
    assert (tmp_path / "core.ci").is_file(), done.stderr
    assert done.returncode == status, done.stdout + done.stderr


def test_the_words_have_a_home() -> None:
    """The glossary is in order, and the modules that it names exist."""
    rows = re.findall(r"^\| ([a-z ]+) \| (.+) \| `(\S+)` \|$", PAGES["CONTRIBUTING.md"], re.MULTILINE)
    assert len(rows) >= 40
    words = [word for word, _meaning, _module in rows]
    assert words == sorted(set(words))
    assert [module for _word, _meaning, module in rows if not (ROOT / module).is_file()] == []
