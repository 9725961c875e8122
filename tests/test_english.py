"""The texts of the product are plain English: sentences with a subject, and no riddles (CONTRIBUTING.md, "Taste")."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("dmods", "gdbext", "drgnext", "engine", "audit", "docs", "README.md", "CONTRIBUTING.md")
#: "Pages that are none", "such as are", "So many words": the reader must guess what is meant.
RIDDLES = re.compile(rb"(is|are) none\b|such as are|So many")
#: Sentences that a reader has to read twice: the subject comes last, or what is meant has no name.
HARD = re.compile(
    rb"(for|against) (that|it) speaks?\b|weaker waits\b|\ball own before\b|\bwhat tells (it|its|them)\b"
    rb"|\bno \w+'s word\b|\bwhat else numbers\b|; for (it|that) waits?\b|\bno types? for that\b|\bnobody before\b",
    re.IGNORECASE,
)


def _tracked(*where: str) -> list[Path]:
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *where]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    assert len(paths) > len(where)
    return [path for path in paths if path.is_file()]


def test_no_riddles() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.decode('utf-8', 'replace').strip()}"
        for path in _tracked(*PRODUCT)
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1)
        if RIDDLES.search(line) or HARD.search(line)
    ]
    assert found == []


def test_a_docstring_is_no_indirect_question() -> None:
    """A docstring says what the function returns or does. "Whether it is found" is not a sentence."""
    question = re.compile(r'^\s*"""(?:What|How|Whether)\b.*', re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {text}" for path in _tracked("*.py") for text in question.findall(path.read_text())
    ]
    assert found == []
