"""Write what the fuzzers did into docs/FUZZING.md: sums of their own counts, by target, day and commit."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from fixtures._cache import CACHE, ROOT

LEDGER = CACHE / "fuzz" / "ledger"
PAGE = ROOT / "docs" / "FUZZING.md"
BEGIN, END = "<!-- counts: scripts/fuzz-engine --record -->", "<!-- end of counts -->"


@dataclass(frozen=True)
class Run:
    """One run of a fuzzer. ``executions`` is its own count."""

    target: str
    date: str
    commit: str
    seconds: float
    executions: int
    peak_mb: int
    broke: bool


def add(target: str, seconds: float, executions: int, peak_mb: int, broke: bool) -> Run:
    """Add a run to the ledger, with today's date and the commit that is checked out."""
    argv = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    ran = Run(target, date, commit, round(seconds, 1), executions, peak_mb, broke)
    LEDGER.parent.mkdir(parents=True, exist_ok=True)
    with open(LEDGER, "a") as ledger:
        ledger.write(json.dumps(asdict(ran)) + "\n")
    return ran


def write(ledger: Path = LEDGER) -> None:
    """Replace the table between the two marks. The new one has the ledger's rows, and the old rows of other commits."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    old, _, tail = rest.partition(END)
    rows = {tuple(cells[:3]): cells for cells in _rows(old)}
    rows.update({tuple(cells[:3]): cells for cells in sums(ledger)})
    lines = [
        "| target | date | commit | executions | wall time | peak memory | broke |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in sorted(rows.values(), key=lambda c: (c[1], c[2], c[0]))]
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail)


def _rows(table: str) -> list[list[str]]:
    found = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.splitlines() if "|" in line]
    return [cells for cells in found[2:] if len(cells) == 7]


def sums(path: Path) -> list[list[str]]:
    """Return a row of cells for each target, day and commit in the ledger."""
    kept: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0, 0])
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        sum_ = kept[run["target"], run["date"], run["commit"]]
        sum_[0] += run["executions"]
        sum_[1] += run["seconds"]
        sum_[2] = max(sum_[2], run["peak_mb"])
        sum_[3] += run["broke"]
    return [
        [*key, f"{int(count):,}", f"{seconds / 60:.0f} min", f"{int(peak)} MiB", str(int(broke))]
        for key, (count, seconds, peak, broke) in kept.items()
    ]
